"""What `--help` and `--help-all` print: the options that matter, or all of them.

The long help is tyro's, made from the options' docstrings. The short one is cut out of it, so both tell the same.
"""

import contextlib
import io
import re
import sys
import textwrap
import types
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    UnsupportedTypeAnnotationError,
)

from sfumato.cli.commands import COMMANDS

MARKERS = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff)
"""How tyro reads options of every command."""

_SHOWN = ConstructorRegistry()
"""How the help shows types."""

_WIDTH = 80
_FRAME = re.compile(r"^╭─ (.*?) ─+╮$")
_LINE = re.compile(r"^│ (.*?) *│$")
_SWITCH = re.compile(r"\b(False|True)\)(.*)│")
_NOTHING = "(default: )"
_ASKS = ("-h", "--help", "--help-all")


@dataclass
class Group:
    """Options that stand together.

    Attributes:
        title: of the frame around them.
        about: what they are for.
        entries: lines by flag or by the name of a positional word.
    """

    title: str
    about: list[str] = field(default_factory=list)
    entries: dict[str, list[str]] = field(default_factory=dict)


def asked(argv: Sequence[str]) -> str | None:
    """The first word that asks for help; None if there is none."""
    return next((word for word in argv if word in _ASKS), None)


def show_help(kind: Any, word: str, *, command: str, about: str) -> None:
    """Print the help of a command, short or whole.

    Args:
        kind: the class of its options.
        word: --help or --help-all.
        command: its name, of the registry.
        about: what the command does.
    """
    frames = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    frames.isatty = sys.stdout.isatty  # as colourful as the place where it will stand
    with contextlib.redirect_stdout(frames):
        _by_tyro(kind, command=command, about=about)
    whole = in_plain_words(frames.buffer.getvalue().decode())
    print(whole.rstrip("\n") if word == "--help-all" else _short(read(whole), command=command, about=about))


def in_plain_words(whole: str) -> str:
    """Defaults in words that are not Python's, within frames of the same width.

    >>> print(in_plain_words("│ Nesterov's momentum (default: False) │"))
    │ Nesterov's momentum (default: off)   │
    """

    def on_or_off(found: re.Match[str]) -> str:
        word = "on" if found[1] == "True" else "off"
        return f"{word}){found[2]}{' ' * (len(found[1]) - len(word))}│"

    return re.sub(r"\bNone\b", "none", _SWITCH.sub(on_or_off, whole)).replace(_NOTHING, " " * len(_NOTHING))


def _by_tyro(kind: Any, *, command: str, about: str) -> None:
    """Print all of it."""
    with contextlib.suppress(SystemExit):
        tyro.cli(kind, args=["--help"], prog=f"sfumato {command}", description=about, config=MARKERS, registry=_SHOWN)


@_SHOWN.primitive_rule
def _without_none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | UnsupportedTypeAnnotationError | None:
    """An option that may be left out, by the type of what can be given: FLOAT, not {None}|FLOAT."""
    kinds = get_args(info.type)
    if get_origin(info.type) not in (Union, types.UnionType) or type(None) not in kinds:
        return None
    given: Any = Union[tuple(kind for kind in kinds if kind is not type(None))]  # noqa: UP007  # of as many as there are
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(given, info.markers))
    if isinstance(spec, UnsupportedTypeAnnotationError):
        return spec
    return replace(
        spec,
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: ["None"] if value is None else spec.str_from_instance(value),
    )


def read(whole: str) -> list[Group]:
    """The groups of options in tyro's help, without frames."""
    groups: list[Group] = []
    entry: list[str] | None = None
    for line in whole.splitlines():
        frame, inner = _FRAME.match(line), _LINE.match(line)
        if frame:
            groups.append(Group(frame[1]))
            entry = None
        elif inner and re.fullmatch("─+", inner[1]):
            continue
        elif inner and re.match(r"--?[a-z]|[A-Z]+\b.* ", inner[1]) and _starts(inner[1], groups[-1]):
            entry = groups[-1].entries[re.split(r"[ ,]", inner[1])[0]] = [inner[1]]
        elif inner and entry is not None:
            entry.append(inner[1])
        elif inner:
            groups[-1].about.append(inner[1])
    return groups


def _starts(line: str, group: Group) -> bool:
    """A flag, or a positional word in the frame of those."""
    return line.startswith("-") or group.title == "positional arguments"


def _short(groups: Sequence[Group], *, command: str, about: str) -> str:
    """Usage, what it does, an example, and the options that matter."""
    told = COMMANDS[command]
    entries = {name: lines for group in groups for name, lines in group.entries.items()}
    words = [name for name in entries if not name.startswith("-")]
    flags = [name for name in entries if name.startswith("--")]
    names = [flag[2:].replace("-", "_") for flag in flags]
    chosen = [f"--{name.replace('_', '-')}" for name in told.shown(names) if name in names]  # other plans have others
    lines = [
        f"usage: sfumato {' '.join([command, *words])} [options]",
        "",
        textwrap.fill(about, _WIDTH, break_on_hyphens=False),
        "",
    ]
    lines.append("  " + " \\\n      ".join(textwrap.wrap(f"$ {told.example}", _WIDTH - 8, break_on_hyphens=False)))
    lines += ["", *(line for name in (*words, *chosen) for line in entries[name]), ""]
    lines.append(f"--help-all explains all {len(flags)} options.")
    return "\n".join(lines)
