"""Flags and settings files → typed options, by tyro; a mistake becomes one line.

A settings file is turned into flags that stand before those of the command line. So both are read by the same
rules, and the command line wins.
"""

import contextlib
import dataclasses
import difflib
import io
import json
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tyro

from sfumato._check import InputError

T = TypeVar("T")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RULE = re.compile(r"[─-]{4,}")
_NO_NUMBER = re.compile(r"Error parsing (--[a-z-]+): .*(?:invalid literal for int|could not convert string to float)")
_GIVEN = re.compile(r"(?:base 10|to float): '(.*?)'")
_MARKERS = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff)


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of every command.

    Attributes:
        config: settings in a YAML or JSON file, by the names of the options; flags on the command line win.
        json: print one JSON object on stdout and nothing else.
    """

    config: Path | None = None
    json: bool = False


def parse(kind: type[T], argv: Sequence[str], *, command: str, about: str) -> T:
    """Options of a command from its words and its settings file.

    Args:
        kind: a dataclass whose fields are the options; their docstrings are the help.
        argv: the words behind the command's name.
        command: the command's name.
        about: what the command does, for --help.

    Raises:
        InputError: a word is no option, a value is not of the option's type, or the settings file is of no use.
        SystemExit: help was asked for and printed.
    """
    file = find(argv, "config")
    settings = [] if file is None else as_flags(read_settings(Path(file)), kind, source=file)
    return read_flags(kind, [*settings, *argv], command=command, about=about)


def read_flags(kind: type[T], words: Sequence[str], *, command: str, about: str) -> T:
    """Options from words alone; arguments and errors as for `parse`."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(kind, args=list(words), prog=f"sfumato {command}", description=about, config=_MARKERS)
    except SystemExit as stop:
        if not stop.code:
            raise
    raise InputError(f"{_first_paragraph(errors.getvalue())}; sfumato {command} --help explains the options")


def find(argv: Sequence[str], name: str) -> str | None:
    """The last value that the words give to an option of one value; None if it is not there."""
    found = None
    for place, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == f"--{name}":
            found = value if equals else argv[place + 1] if place + 1 < len(argv) else ""
    return found


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a YAML or JSON file.

    Raises:
        InputError: the file is missing, is not YAML or JSON, or does not hold names with values.
    """
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise InputError(f"{path}: settings are read from .yaml, .yml or .json")
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".json":
            settings = json.loads(text)
        else:
            import yaml

            try:
                settings = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ValueError(error) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a settings file that exists") from None
    except ValueError as error:
        raise InputError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from None
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise InputError(f"{path} must hold names with values, such as rounds: 100")
    return {name.replace("-", "_"): value for name, value in settings.items()}


def as_flags(settings: Mapping[str, Any], kind: Any, *, source: Path | str) -> list[str]:
    """The words that give these settings to a command.

    Args:
        settings: by field name.
        kind: the command's options.
        source: where they come from, for messages.

    Raises:
        InputError: there is no such option, or the value is not of its type; names the file.
    """
    known = fields(kind)
    words: list[str] = []
    for name, value in settings.items():
        if name not in known or name == "config":
            close = difflib.get_close_matches(name, known, 1)
            hint = f"perhaps {close[0]}" if close else "--help lists the options"
            raise InputError(f"{source}: there is no option {name!r}; {hint}")
        flag = _flag(name, value, source=source)
        _check_type(name, known[name], value, flag, source=source)
        words += flag
    return words


def fields(kind: Any) -> dict[str, Any]:
    """The types of all options of a command by field name; groups are taken apart, positional words left out."""
    origin = typing.get_origin(kind) or kind
    bound = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(kind)))
    found: dict[str, Any] = {}
    for name, annotation in typing.get_type_hints(origin, include_extras=True).items():
        inner = bound.get(annotation, annotation)
        if dataclasses.is_dataclass(inner):
            found |= fields(inner)
        elif typing.get_origin(inner) is not typing.ClassVar and tyro.conf.Positional not in _marks(inner):
            found[name] = inner
    return found


def _marks(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


def _flag(name: str, value: Any, *, source: Path | str) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else [f"--no-{flag[2:]}"]
    values = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, dict | list | tuple) for item in values):
        raise InputError(f"{source}: {name} must be one value or a list of values, got {value!r}")
    words = [repr(item) if isinstance(item, float) else str(item) for item in values]
    if len(words) == 1 and words[0].startswith("-"):
        return [f"{flag}={words[0]}"]
    return [flag, *words]


def _check_type(name: str, annotation: Any, value: Any, flag: list[str], *, source: Path | str) -> None:
    """Read one setting alone, to name the file and the setting if it does not fit."""
    # Only an option with a default can be a switch without a value.
    field = (name, annotation, dataclasses.field(default=False)) if annotation is bool else (name, annotation)
    alone = dataclasses.make_dataclass("Setting", [field], kw_only=True)
    try:
        read_flags(alone, flag, command="", about="")
    except InputError:
        expected = annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
        raise InputError(f"{source}: {name} must be {expected}, got {value!r}") from None


def _first_paragraph(box: str) -> str:
    """What tyro says inside its frame, before its advice, in one line."""
    lines = [_COLOUR.sub("", line).strip(" │╭╮╰╯") for line in box.splitlines()[1:]]  # the first is a title
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if _RULE.fullmatch(line):
            paragraphs.append([])
        elif line:
            paragraphs[-1].append(line)
    paragraphs = [paragraph for paragraph in paragraphs if paragraph] or [["the options were not understood"]]
    if paragraphs[0][0].startswith("Missing from"):
        flags = [line.split()[0] for line in paragraphs[0][1:] if re.match(r"--[a-z]|[A-Z]+\b", line)]
        return f"missing: {', '.join(flags)}"
    text = " ".join(paragraphs[0]).rstrip(".")
    number = _NO_NUMBER.match(text)
    if number:
        kind = "a number" if "FLOAT" in text or "to float" in text else "a whole number"
        return f"{number[1]} must be {kind}, got {_GIVEN.findall(text)[-1]}"
    text = re.sub(r"^Error parsing [a-z]+: ", "", text)  # a check of the options' own, which names its value
    guess = next((re.search(r"--[a-z-]+", " ".join(p)) for p in paragraphs[1:] if p[0].startswith("Perhaps")), None)
    return f"{text} (perhaps {guess[0]})" if guess else text
