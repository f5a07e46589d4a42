"""Pages of the commands and of the Python reference, made from the registry when the site is built.

A hook of mkdocs: it adds the pages and their navigation, so that neither is written by hand. A command's page has its
summary and example from the registry, the guides that use it, the commands for the same records, and its own help. A
package's page has the names that the package makes public.
"""

import ast
import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sfumato.algorithms import ALGORITHMS
from sfumato.cli.commands import COMMANDS
from sfumato.cli.main import main

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent / "src" / "sfumato"
COMMAND_PAGES, PACKAGE_PAGES = "reference/commands", "reference/api"

_INDEX_END = """
`--help` shows the options that matter, `--help-all` every one. Every command has `--config FILE` for
[settings in a file](../../how-to/config-files.md) and `--json`. `sfumato --completion bash`, `zsh` or `fish` prints a
script that completes commands, options and values: `source <(sfumato --completion bash)`.

Exit codes: 0 done, 2 a mistake in what was given (one line says which), 130 stopped by a signal.
"""


# ---- commands


def command_index() -> str:
    """The table of all commands."""
    rows = [f"| [`{name}`]({_file(name)}) | {command.summary} |" for name, command in COMMANDS.items()]
    return "\n".join(["# Commands", "", "| command | what it does |", "| --- | --- |", *rows, _INDEX_END])


def command_page(name: str) -> str:
    """One command: an example, where to read more, and its help, short and whole."""
    command = COMMANDS[name]
    parts = [f"# sfumato {name}", f"{command.summary[0].upper()}{command.summary[1:]}."]
    parts.append(f"```console\n$ {command.example}\n```")
    if see := [*_guides(name), *_similar(name)]:
        parts.append(f"See also: {', '.join(see)}.")
    for title, word in (("The options that matter", "--help"), ("All options", "--help-all")):
        parts += [f"## {title}", f"```text\n{help_text(name, word)}\n```"]
    return "\n\n".join(parts) + "\n"


def help_text(name: str, word: str) -> str:
    """What `sfumato NAME WORD` prints in a terminal of 96 columns, without frames."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before = {key: os.environ.pop(key, None) for key in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
    os.environ["COLUMNS"], os.environ["NO_COLOR"] = "96", "1"
    try:
        with contextlib.redirect_stdout(out):
            code = main([*name.split(), word])
    finally:
        del os.environ["COLUMNS"], os.environ["NO_COLOR"]
        os.environ.update({key: value for key, value in before.items() if value is not None})
    if code:
        raise RuntimeError(f"sfumato {name} {word} ended with {code}")
    lines = []
    for line in out.buffer.getvalue().decode().splitlines():
        if re.fullmatch(r"[╰─╯]+", line):
            lines.append("")
        elif not re.fullmatch(r"│ ─+ │", line):
            line = re.sub(r"^╭─ (.*?) ─+╮$", r"\1:", line)
            lines.append(re.sub(r"^│ (.*?) *│$", r"  \1", line).rstrip())
    return "\n".join(lines).strip()


def _guides(name: str) -> list[str]:
    """Links to the tutorials, guides and explanations that use a command."""
    longer = [other.removeprefix(f"{name} ") for other in COMMANDS if other.startswith(f"{name} ")]
    used = re.compile(rf"\bsfumato {name}\b(?! (?:{'|'.join(longer)})\b)" if longer else rf"\bsfumato {name}\b")
    links = []
    for folder in ("tutorials", "how-to", "explanation"):
        for page in sorted((DOCS / folder).glob("*.md")):
            text = page.read_text(encoding="utf-8")
            if used.search(text):
                title = text.partition("\n")[0].removeprefix("# ")
                links.append(f"[{title}](../../{folder}/{page.name})")
    return links


def _similar(name: str) -> list[str]:
    """Links to the other commands of a group, and to those that train on the same records."""
    records = {each.command or plan: each.records for plan, each in ALGORITHMS.items()}
    group = name.partition(" ")[0]
    return [
        f"[`{other}`]({_file(other)})"
        for other in COMMANDS
        if other != name
        and (other.partition(" ")[0] == group or (name in records and records[name] == records.get(other)))
    ]


def _file(name: str) -> str:
    return f"{name.replace(' ', '-')}.md"


# ---- packages


def package_pages() -> dict[str, str]:
    """Name and text of the page of each package that makes something public."""
    found = {}
    for init in sorted(SOURCE.glob("*/__init__.py")):
        public = _public(init) or _public_of_folders(init.parent)
        if public:
            found[f"{init.parent.name}.md"] = _package_page(init.parent, public)
    return found


def _package_page(package: Path, public: dict[str, list[str]]) -> str:
    hidden = "    options:\n      members: false\n      show_root_heading: false\n      show_root_toc_entry: false\n"
    parts = [f"# sfumato.{package.name}\n", f"::: sfumato.{package.name}\n{hidden}"]
    for folder in sorted(public):
        if folder:
            docstring = ast.get_docstring(_parsed(package / folder / "__init__.py")) or ""
            parts.append(f"## {folder}\n\n{docstring.splitlines()[0]}\n")
        parts += [f"::: {path}\n" for path in public[folder]]
    return "\n".join(parts)


def _public(init: Path) -> dict[str, list[str]]:
    """Folder → the public names from its modules, as mkdocstrings finds them; "" for modules that lie in none."""
    found: dict[str, list[str]] = {}
    package = f"sfumato.{init.parent.name}"
    for statement in ast.walk(_parsed(init)):
        if isinstance(statement, ast.ImportFrom) and re.match(r"sfumato\.(?!_lazy$)", statement.module or ""):
            assert statement.module
            first = statement.module.removeprefix(f"{package}.").split(".")[0]
            folder = first if (init.parent / first).is_dir() else ""
            for name in (alias.name for alias in statement.names):
                found.setdefault(folder, []).append(_path(package, statement.module, name))
    return found


def _public_of_folders(package: Path) -> dict[str, list[str]]:
    """Folder → what it makes public itself, where the package leaves that to its folders."""
    found = {}
    for init in sorted(package.glob("*/__init__.py")):
        names = [
            f"sfumato.{package.name}.{init.parent.name}.{alias.name}"
            for statement in _parsed(init).body
            if isinstance(statement, ast.ImportFrom) and statement.module
            for alias in statement.names
        ]
        if names:
            found[init.parent.name] = names
    return found


def _path(package: str, module: str, name: str) -> str:
    """Where mkdocstrings finds a public name: a module of the same name hides it in its package."""
    origin = SOURCE.parent.joinpath(*module.split("."))
    if (origin / f"{name}.py").exists():
        return f"{module}.{name}.{name}"
    hidden = (SOURCE.parent.joinpath(*package.split(".")) / f"{name}.py").exists()
    return f"{module if hidden else package}.{name}"


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


# ---- the hook


def generated() -> Iterator[str]:
    """The places of all generated pages in docs/, in the order of the navigation."""
    yield f"{COMMAND_PAGES}/index.md"
    yield from (f"{COMMAND_PAGES}/{_file(name)}" for name in COMMANDS)
    yield from (f"{PACKAGE_PAGES}/{name}" for name in package_pages())


def on_config(config: Any) -> Any:
    """Put the pages at the end of the navigation."""
    for title, folder in (("Commands", COMMAND_PAGES), ("Python", PACKAGE_PAGES)):
        config.nav.append({title: [place for place in generated() if place.startswith(folder)]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Make the pages."""
    from mkdocs.structure.files import File

    texts = {f"{COMMAND_PAGES}/index.md": command_index()}
    texts.update({f"{COMMAND_PAGES}/{_file(name)}": command_page(name) for name in COMMANDS})
    texts.update({f"{PACKAGE_PAGES}/{name}": text for name, text in package_pages().items()})
    for place, text in texts.items():
        files.append(File.generated(config, place, content=text))
    return files
