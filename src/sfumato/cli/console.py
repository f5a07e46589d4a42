"""What a command prints: words and tables for people, or one JSON object for machines.

Under torchrun only the first process prints; the others speak up when something is wrong. Characters that would steer
a terminal (a name in a file that somebody else wrote may hold them) are shown, not sent.
"""

import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from sfumato import _bar
from sfumato._check import InputError

_LONG = re.compile(r"\S{400,}")
_WHOLE = 1_000_000  # columns, where there is no terminal to fit


class SettingsError(InputError):
    """A mistake in a settings file, whose names are those of fields: `clip_norm` there is `--clip-norm` elsewhere."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Answer:
    """What a command brought, which `main` prints.

    Attributes:
        data: what --json prints as one object.
        lines: what people read; not gone through where JSON is printed.
        code: the exit code.
        wrong: what is wrong with what was given, for stderr, after the lines.
    """

    data: Any = None
    lines: Iterable[str | Table] = ()
    code: int = 0
    wrong: str | None = None

    def give(self, *, as_json: bool) -> int:
        """Print it; the exit code."""
        if as_json:
            if self.data is not None:
                print_json(self.data)
            return self.code
        for line in self.lines:
            if isinstance(line, Table):
                table(line.header, line.rows)
            else:
                print_line(line)
        if self.wrong is not None:
            complain(self.wrong)
        return self.code


STOPPED = Answer(code=130)
"""Of a command that Ctrl-C ended, after it printed how to go on."""


def leads() -> bool:
    """Whether this process is the one that prints."""
    return os.environ.get("RANK", "0") == "0"


def complain(message: str) -> None:
    """What is wrong, in one line on stderr; of several processes, each reports its own error."""
    who = "" if leads() else f"process {os.environ['RANK']}: "
    print(f"sfumato: {who}{_one_line(message)}", file=sys.stderr, flush=True)


def notify(message: str) -> None:
    """What to know, in one line on stderr."""
    if leads():
        print(f"sfumato: {_one_line(message)}", file=sys.stderr, flush=True)


def is_text(word: str) -> bool:
    """Whether a word can be a file's name and be written down in UTF-8; other bytes of a terminal cannot."""
    return "\0" not in word and (word.isascii() or word == word.encode(errors="replace").decode())


def _one_line(message: str) -> str:
    """In one line, where very long words are shortened to their two ends."""
    return harmless(" ".join(_LONG.sub(lambda word: f"{word[0][:200]}…{word[0][-40:]}", message).split()))


def harmless(text: str) -> str:
    """Text without characters that steer a terminal or turn the direction of writing; they are shown as escapes.

    >>> harmless("name \\x1b[2J and\\nnew line")
    'name \\\\x1b[2J and\\nnew line'
    """
    if text.isprintable():
        return text
    steering = {c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in steering})


def print_line(text: str = "") -> None:
    """A line of text on stdout."""
    if leads():
        print(harmless(text), flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people, on stdout: cells are wrapped to a terminal's width, a file gets whole lines."""
    if not leads():
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in header:
        drawn.add_column(title, overflow="fold")
    for row in rows:
        drawn.add_row(*map(harmless, row))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WHOLE
    with console.capture() as text:
        console.print(drawn)
    print("\n".join(line.rstrip() for line in text.get().splitlines()), flush=True)  # bold stays bold


def print_json(value: Any) -> None:
    """One JSON object on stdout; infinite numbers become the string "inf"."""
    if leads():
        print(json.dumps(plain(value), indent=2, sort_keys=True, allow_nan=False), flush=True)


def plain(value: Any) -> Any:
    """Values that JSON can write."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def number(value: float) -> str:
    """A number in a table: four digits, and a word for infinity."""
    return "infinite (no guarantee)" if math.isinf(value) else f"{value:.4g}"


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """How far something is, on stderr: a bar, or lines for a log; the function inside takes (done, total)."""
    with _bar.bar(title, visible=leads()) as show:
        yield show


@contextmanager
def staged_bar(start_line: str | None, only: str | None = None) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each of several stages that follow one another, and a line when the first begins.

    What is refused before the first stage leaves no run, so the line says of none where it is.

    Args:
        start_line: the line; None for none. The function inside takes (stage, done, total).
        only: the one stage that has a bar; None for all.
    """
    with ExitStack() as shown:
        begun, current, step = start_line is None, "", _no_step

        def show(stage: str, done: int, total: int) -> None:
            nonlocal begun, current, step
            if not begun:
                print_line(start_line or "")
                begun = True
            if only not in (None, stage):
                return
            if stage != current:
                shown.close()
                current, step = stage, shown.enter_context(bar(stage))
            step(done, total)

        yield show


def _no_step(done: int, total: int) -> None:
    """Before the first stage there is no bar."""
