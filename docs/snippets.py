"""The snippets of the documentation: found, run as printed, their printed results compared or written anew.

A fence of python, console or sh is run, in the order of the page, in one folder and one Python namespace for the page.
A comment before a fence changes that:

- `<!-- slow -->`: run only with `slow=True`;
- `<!-- no-run: REASON -->`: never run;
- `<!-- fails -->`: the command must end with an exit code other than 0;
- `<!-- output -->` before a text fence: this is what the fence before it prints. `<!-- output: from "WORDS" -->` begins
  at the first line that starts with these words. Line breaks and repeated blanks do not count.

`python docs/snippets.py` runs all pages; `--update` writes what the fences print now into the text fences.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUN = ("python", "console", "sh")
_FENCE = re.compile(r"^(?:<!-- (?P<note>[^\n]*?) -->\n\n?)?```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$", re.M | re.S)
_WIDTH = 100


@dataclass
class Block:
    """One fence.

    Attributes:
        page, line: where it is.
        kind: language of the fence.
        note: what stands in the comment before it.
        body: the text inside.
        span: first and last position of the body in the page.
        whole: those of fence and comment.
    """

    page: Path
    line: int
    kind: str
    note: str
    body: str
    span: tuple[int, int]
    whole: tuple[int, int]

    @property
    def runs(self) -> bool:
        """Whether it is meant to be run at all."""
        return self.kind in RUN and not self.note.startswith("no-run:")

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.page.relative_to(ROOT)}, line {self.line}"


@dataclass
class Ran:
    """A fence that was run.

    Attributes:
        block: the fence.
        printed: what it left on stdout.
        expected: the text fence that shows it, or None.
        shown: the part of `printed` that belongs there.
    """

    block: Block
    printed: str
    expected: Block | None = None
    shown: str = field(default="")

    @property
    def agrees(self) -> bool:
        """Whether the page shows what was printed."""
        return self.expected is None or self.expected.body.split() == self.shown.split()


def pages() -> list[Path]:
    """README and every page of the documentation."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fences of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, m.start()) + 1, m["kind"], m["note"] or "", m["body"], m.span("body"), m.span())
        for m in _FENCE.finditer(text)
    ]


def run_page(page: Path, folder: Path, *, slow: bool = False) -> Iterator[Ran]:
    """Run the fences of a page in a folder, one after the other.

    Args:
        page: the page.
        folder: an empty folder to run in.
        slow: run the fences that are marked slow, too.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    last: Ran | None = None
    with contextlib.chdir(folder):
        for block in blocks(page):
            if block.kind == "text" and block.note.startswith("output"):
                if last is not None:
                    last.expected = block
                    last.shown = _part(last.printed, block)
            elif block.runs and (slow or block.note != "slow"):
                if last is not None:
                    yield last
                run = _python if block.kind == "python" else _commands
                last = Ran(block, run(block, namespace))
            elif block.kind in RUN:
                if last is not None:
                    yield last
                last = None
        if last is not None:
            yield last


def update(page: Path, ran: list[Ran]) -> bool:
    """Write what was printed into the page; whether that changed it."""
    text = page.read_text(encoding="utf-8")
    for each in sorted((r for r in ran if not r.agrees), key=lambda r: r.expected.span, reverse=True):
        start, end = each.expected.span
        text = text[:start] + _wrapped(each.shown) + text[end:]
    changed = text != page.read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    return changed


def _part(printed: str, block: Block) -> str:
    start = re.fullmatch(r'output: from "(.*)"', block.note)
    if start is None:
        return printed
    lines = printed.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if line.startswith(start[1])), None)
    if first is None:
        raise AssertionError(f"{block.where}: no line starts with {start[1]!r} in:\n{printed}")
    return "".join(lines[first:])


def _wrapped(text: str) -> str:
    lines: list[str] = []
    for line in text.rstrip().splitlines():
        lines += textwrap.wrap(line, _WIDTH, break_on_hyphens=False) if len(line) > 1.3 * _WIDTH else [line.rstrip()]
    return "\n".join(lines) + "\n"


def _python(block: Block, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    code = compile("\n" * block.line + block.body, str(block.page), "exec")
    with contextlib.redirect_stdout(out):
        exec(code, namespace)
    return out.getvalue()


def _commands(block: Block, _: dict[str, Any]) -> str:
    fails = block.note == "fails"
    printed = ""
    for command in commands(block):
        code, out = _command(command)
        if (code != 0) is not fails:
            raise AssertionError(f"{block.where}: exit code {code} of: {command}\n{out}")
        printed += out
    return printed


def commands(block: Block) -> list[str]:
    """The commands of a fence; in a console fence they follow a $, and > goes on with one."""
    body = block.body.replace("\\\n> ", " ").replace("\\\n", " ")
    lines = [line for line in body.splitlines() if line.strip() and not line.startswith("#")]
    if block.kind == "sh":
        return lines
    return [line[2:] for line in lines if line.startswith("$ ")]


def _command(command: str) -> tuple[int, str]:
    """Exit code and what was printed, but for progress; sfumato's own commands run here, which saves loading torch."""
    if command.startswith("sfumato ") and not re.search(r"[|&;<>$*]", command):
        from sfumato.cli.main import main

        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main(shlex.split(command)[1:])
        return code, _without_progress(out.buffer.getvalue().decode())
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, _without_progress(done.stdout)


def _without_progress(printed: str) -> str:
    """Leave out the lines of progress: how many a command prints depends on how long it takes."""
    return re.sub(r"^sfumato: (round [\d,]+ of .*|.*: \d+ min \d\d s)\n", "", printed, flags=re.MULTILINE)


def main() -> int:
    """Run all pages, or those named."""
    parser = argparse.ArgumentParser(description="Run the snippets of the documentation.")
    parser.add_argument("pages", nargs="*", type=Path, help="pages; all, if none is named")
    parser.add_argument("--slow", action="store_true", help="run the slow ones too")
    parser.add_argument("--update", action="store_true", help="write what they print into the pages")
    options = parser.parse_args()
    wrong = 0
    for page in [path.resolve() for path in options.pages] or pages():
        with tempfile.TemporaryDirectory() as folder:
            ran = list(run_page(page, Path(folder), slow=options.slow))
        bad = [each for each in ran if not each.agrees]
        print(f"{page.relative_to(ROOT)}: {len(ran)} fences, {len(bad)} with another result", flush=True)
        if bad and options.update:
            update(page, ran)
            bad = []
        for each in bad:
            print(f"--- {each.expected.where} shows\n{each.expected.body}--- printed now\n{_wrapped(each.shown)}")
        wrong += len(bad)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
