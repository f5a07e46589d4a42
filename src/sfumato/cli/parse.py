"""Flags and settings files → typed options, by tyro; a mistake becomes one line.

A settings file is turned into flags that stand before those of the command line. So both are read by the same
rules, and the command line wins.

What `--help` and `--help-all` print: the options that matter, or all of them.

The long help is tyro's, made from the options' docstrings. The short one is cut out of it, so both state the same.
"""

import contextlib
import dataclasses
import functools
import io
import json
import re
import sys
import textwrap
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    UnsupportedTypeAnnotationError,
)

from sfumato._check import InputError, guess, one_of
from sfumato.cli.commands import COMMANDS
from sfumato.cli.console import SettingsError, is_text, print_line
from sfumato.cli.parts import Options, flag_of, flattened, off, read_options, registry, typed, without_replaced

MARKERS = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff)
"""How tyro reads options of every command."""


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


def show_help(options: Options, word: str, *, command: str, about: str) -> None:
    """Print the help of a command, short or whole.

    Args:
        options: all of it.
        word: --help or --help-all.
        command: its name, of the registry.
        about: what the command does.
    """
    names = list(options.flagged)
    chosen = [name for name in COMMANDS[command].shown(names) if name in names]  # other plans have others
    if word != "--help-all":
        options = replace(options, only=frozenset({*chosen, *(options.types.keys() - options.flagged.keys())}))
    frames = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    frames.isatty = sys.stdout.isatty  # as colourful as the place where it will stand
    with contextlib.redirect_stdout(frames):
        _by_tyro(options, command=command, about=about)
    whole = in_plain_words(frames.buffer.getvalue().decode())
    if word == "--help-all":
        print(whole.rstrip("\n"))
    else:
        flags = [flag_of(name) for name in chosen]
        print(_short(read(whole), flags, command=command, about=about, count=len(names)))


def in_plain_words(whole: str) -> str:
    """Defaults in words that are not Python's, within frames of the same width.

    >>> print(in_plain_words("│ Nesterov's momentum (default: False) │"))
    │ Nesterov's momentum (default: off)   │
    """

    def on_or_off(found: re.Match[str]) -> str:
        word = "on" if found[1] == "True" else "off"
        return f"{word}){found[2]}{' ' * (len(found[1]) - len(word))}│"

    return re.sub(r"\bNone\b", "none", _SWITCH.sub(on_or_off, whole)).replace(_NOTHING, " " * len(_NOTHING))


def _by_tyro(options: Options, *, command: str, about: str) -> None:
    """Print all of it."""
    shown = registry()
    shown.primitive_rule(_without_none)
    with contextlib.suppress(SystemExit):
        tyro.cli(
            typed(options),
            args=["--help"],
            prog=f"sfumato {command}",
            description=about,
            config=MARKERS,
            registry=shown,
        )


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


def _short(groups: Sequence[Group], flags: Sequence[str], *, command: str, about: str, count: int) -> str:
    """Usage, what it does, an example, and the options that matter, of so many."""
    entries = {name: lines for group in groups for name, lines in group.entries.items()}
    words = [name for name in entries if not name.startswith("-")]
    example = textwrap.wrap(f"$ {COMMANDS[command].example}", _WIDTH - 8, break_on_hyphens=False)
    lines = [
        f"usage: sfumato {' '.join([command, *words])} [options]",
        "",
        textwrap.fill(about, _WIDTH, break_on_hyphens=False),
        "",
        "  " + " \\\n      ".join(example),
        "",
        *(line for name in (*words, *flags) for line in entries[name]),
        "",
        f"--help-all explains all {count} options.",
    ]
    return "\n".join(lines)


# `sfumato --completion SHELL`: a script that completes commands, options and their values, by tyro.


_SHELLS = ("bash", "zsh", "fish")


def print_completion(words: Sequence[str]) -> None:
    """Print the script of the shell that is named.

    Raises:
        InputError: not exactly one shell that there is a script for.
    """
    if len(words) != 1:
        raise InputError("which shell? give sfumato --completion bash, zsh or fish")
    one_of(_SHELLS, shell=words[0])
    from tyro.extras import SubcommandApp

    app, groups = SubcommandApp(), dict[str, SubcommandApp]()
    for name, command in COMMANDS.items():
        group, _, rest = name.partition(" ")
        if rest and group in COMMANDS:  # a word is completed as a command or as a group of commands, not as both
            continue
        if rest and group not in groups:
            groups[group] = SubcommandApp()
            app.command(groups[group], name=group)
        (groups[group] if rest else app).command(
            typed(read_options(command.kind())), name=rest or group, help=command.summary
        )
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        app.cli(prog="sfumato", args=["--tyro-write-completion", words[0], "-"], config=MARKERS, registry=registry())
    print_line(script.getvalue().rstrip("\n"))


T = TypeVar("T")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RULE = re.compile(r"[─-]{4,}")
_NO_VALUE = re.compile(r"Error parsing (--[a-z.-]+)( \(.*?\))?: (.*)")
_NO_CHOICE = re.compile(r"invalid choice (.*) for argument '?(--[a-z.-]+).*Expected one of \((.*)\)")
_WHOLE = re.compile(r"[+-]?\d+(\.\d*)?([eE]\+?\d+)?")
_MOST_WHOLE = 2**53  # up to which a double holds every whole number
_LONGEST_VALUE = 60  # characters of a wrong value
_LONGEST = 200  # characters of a library's words


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of every command.

    Attributes:
        config: settings in a YAML or JSON file, by the names of the options; flags on the command line win.
        json: print one JSON object on stdout and nothing else.
        chosen: names of the options that were given, where a command asks.
    """

    config: Path | None = None
    json: bool = False
    chosen: frozenset[str] = field(default=frozenset(), metadata={"planned": True})


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
    answer_help(kind, argv, command=command, about=about)
    file = find(argv, "config")
    settings = [] if file is None else as_flags(read_settings(Path(file)), kind, source=file, later=argv)
    return read_flags(kind, [*settings, *argv], command=command, about=about)


def read_flags(kind: type[T], words: Sequence[str], *, command: str, about: str) -> T:
    """Options from words alone; arguments and errors as for `parse`."""
    options = read_options(kind, words)
    known = options.flagged
    _refuse_unknown(words, known, options, command)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                typed(options),
                args=_with_none(words, known),
                prog=f"sfumato {command}",
                description=about,
                config=MARKERS,
                registry=registry(),
            )
    except SystemExit:
        pass
    raise InputError(f"{_mistake(errors.getvalue(), words, known)}; {_advice(command)}")


def _with_none(words: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """The words, where the help's "none" for a number is what tyro takes for it, and 1e4 is a whole number."""
    numbers = {f"--{name.replace('_', '-')}" for name, kind in known.items() if _is_number_or_none(kind)}
    wholes = {f"--{name.replace('_', '-')}" for name, kind in known.items() if _is_whole(kind)}
    option = ""
    found, before = list[str](), ""
    for word in words:
        flag, equals, value = word.partition("=")
        if equals and value == "none" and flag.replace("_", "-") in numbers:
            word = f"{flag}=None"
        elif word == "none" and before.replace("_", "-") in numbers:
            word = "None"
        option = flag.replace("_", "-") if word.startswith("--") else option
        if option in wholes:
            word = f"{flag}={_as_whole(value)}" if equals else _as_whole(word)
        found.append(word)
        before = word
    return found


def _as_whole(word: str) -> str:
    """The digits of a whole number that is written with an exponent or a point; any other word as it is.

    >>> _as_whole("1e4"), _as_whole("2.5e3"), _as_whole("2.5")
    ('10000', '2500', '2.5')
    """
    if not _WHOLE.fullmatch(word) or not float(word).is_integer() or abs(float(word)) > _MOST_WHOLE:
        return word
    return str(int(float(word)))


def _is_whole(kind: Any) -> bool:
    """Whether an option takes whole numbers, one or several."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    kinds = {each for each in typing.get_args(kind) if each not in (type(None), ...)} or {kind}
    return kinds == {int} or (len(kinds) == 1 and kinds != {kind} and all(map(_is_whole, kinds)))


def _is_number_or_none(kind: Any) -> bool:
    kinds = set(typing.get_args(kind))
    return type(None) in kinds and bool(kinds & {int, float}) and kinds <= {int, float, type(None)}


def answer_help(kind: Any, argv: Sequence[str], *, command: str, about: str) -> None:
    """Print the help and stop, if a word asks for it; whatever else the words and files hold.

    Raises:
        SystemExit: help was asked for and printed.
    """
    word = asked(argv)
    if word is None:
        return
    try:
        options = read_options(kind, argv)
    except InputError:  # a word that stands for no part
        options = read_options(kind)
    show_help(options, word, command=command, about=about)
    raise SystemExit(0)


def _advice(command: str) -> str:
    return f"sfumato {command} --help-all explains the options"


def _refuse_unknown(words: Sequence[str], known: Mapping[str, Any], options: Options, command: str) -> None:
    """Refuse the first flag that there is not, with the one that it looks like; or a word that takes no flag."""
    flags = [flag_of(name) for name in known]
    bare = [name for name in options.types if name not in known]
    flags += [off(flag) for flag, kind in zip(flags, known.values()) if kind is bool]
    before = ""
    for word in words:
        flag = word.partition("=")[0]
        if re.match("-[^0-9.]", flag) and flag.replace("_", "-") not in flags and flag not in ("-inf", "-nan"):
            taken = known.get(before.removeprefix("--").replace("-", "_"))
            if reason := options.why_not(flag[2:].replace("-", "_")):
                raise InputError(f"{reason}; {_advice(command)}")
            if flag[2:].replace("-", "_") in bare:
                metavars = " ".join(name.upper() for name in bare)
                raise InputError(f"there is no option {flag}: write sfumato {command} {metavars}; {_advice(command)}")
            value = f"; for a value of {before}, write {before}={shortened(word)}" if _takes_words(taken) else ""
            raise InputError(f"there is no option {shortened(flag)}{guess(flag, flags)}{value}; {_advice(command)}")
        before = word


def _takes_words(kind: Any) -> bool:
    """Whether any word can be a value of an option of this type."""
    kind = typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind
    return any(each in (str, Path) for each in (kind, *typing.get_args(kind)))


def find(argv: Sequence[str], name: str) -> str | None:
    """The last value that the words give to an option of one value; None if it is not there."""
    found = None
    for place, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == f"--{name}":
            found = value if equals else argv[place + 1] if place + 1 < len(argv) else ""
    return found


def _once(names: Sequence[Any]) -> None:
    """Refuse a name that an object of JSON or a mapping of YAML has twice: the last one would win in silence."""
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise ValueError(f"{twice!r} is there twice; leave one out")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _once([name for name, _ in pairs])
    return dict(pairs)


def _from_yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            _once([key.value for key, _ in node.value if isinstance(key.value, str) and key.value != "<<"])
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # a safe loader
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a YAML or JSON file.

    Raises:
        SettingsError: the file is missing, is not YAML or JSON, or does not hold names with values.
    """
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise SettingsError(f"{path}: settings are read from .yaml, .yml or .json")
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".json":
            settings = json.loads(text, object_pairs_hook=_object)
        else:
            settings = _from_yaml(text)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; give a settings file that exists") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is no text in UTF-8; save it so") from None
    except RecursionError:
        raise SettingsError(f"{path} is nested too deep; settings are names with values") from None
    except ValueError as error:
        raise SettingsError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from None
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise SettingsError(f"{path} must hold names with values, such as rounds: 100")
    return {name.replace("-", "_"): value for name, value in settings.items()}


def as_flags(settings: Mapping[str, Any], kind: Any, *, source: Path | str, later: Sequence[str] = ()) -> list[str]:
    """The words that give these settings to a command.

    Args:
        settings: by field name.
        kind: the command's options.
        source: where they come from, for messages.
        later: words that stand after these; a part that they choose is not read from the settings.

    Raises:
        SettingsError: there is no such option, or the value is not of its type; names the file.
    """
    try:
        settings, options = flattened(kind, without_replaced(settings, later, kind))
    except SettingsError:
        raise
    except InputError as error:
        raise SettingsError(f"{source}: {error}") from None
    known = options.flagged
    words: list[str] = []
    for name, value in settings.items():
        if name not in known or name == "config":
            if reason := options.why_not(name, as_flags=False):
                raise SettingsError(f"{source}: {reason}")
            raise SettingsError(
                f"{source}: there is no option {shortened(name)}{guess(name, known)}; --help-all lists them"
            )
        flag = _flag(name, value, source=source)
        if name in options.parts and isinstance(value, list | tuple | bool):
            raise SettingsError(f"{source}: {name} must be {options.parts[name].words}, got {value!r}")
        if not all(map(is_text, flag)):
            raise SettingsError(f"{source}: {name} must be text in UTF-8, got {value!a}")
        _check_type(name, known[name], value, flag, source=source)
        words += flag
    return words


@functools.cache
def fields(kind: Any) -> dict[str, Any]:
    """The types of all options of a command by name, with those of the usual parts; positional words are left out."""
    return read_options(kind).flagged


def _flag(name: str, value: Any, *, source: Path | str) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else [off(flag)]
    values = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, dict | list | tuple) for item in values):
        raise SettingsError(f"{source}: {name} must be one value or a list of values, got {value!r}")
    words = [repr(item) if isinstance(item, float) else str(item) for item in values]
    if len(words) == 1 and words[0].startswith("-"):
        return [f"{flag}={words[0]}"]
    return [flag, *words]


def _check_type(name: str, annotation: Any, value: Any, flag: list[str], *, source: Path | str) -> None:
    """Read one setting alone, to name the file and the setting if it does not fit."""
    # Only an option with a default can be a switch without a value.
    alone = name.rpartition(".")[2]
    if isinstance(value, bool):
        flag = [flag_of(alone) if value else off(flag_of(alone))]
    else:
        flag = [flag[0].replace(flag_of(name)[2:], flag_of(alone)[2:], 1), *flag[1:]]
    field = (alone, annotation, dataclasses.field(default=False)) if annotation is bool else (alone, annotation)
    try:
        read_flags(dataclasses.make_dataclass("Setting", [field], kw_only=True), flag, command="", about="")
    except InputError:
        expected = annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
        raise SettingsError(f"{source}: {name} must be {expected}, got {value!r}") from None


def _mistake(box: str, words: Sequence[str], known: Mapping[str, Any]) -> str:
    """What tyro reports inside its frame, before its advice, in one line.

    Args:
        box: all that tyro reports.
        words: what was given.
        known: the types of the options by field name.
    """
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
    more = text.removeprefix("Unrecognized options: ")
    if more != text:
        first = next((word for word in words if more.startswith(word[:_LONGEST_VALUE])), more)
        return f"{shortened(first)} is one word too many"
    wrong = _NO_VALUE.match(text)
    if wrong:
        return _wrong_value(wrong[1], wrong[3], words, known) or wrong[0]
    choice = _NO_CHOICE.search(text)
    if choice:
        allowed = sorted({*re.findall(r"'([^']*)'", choice[3])} - {"None"})  # in an order that differs between runs
        given = choice[1].strip("'\"")
        return f"{choice[2]} must be one of {', '.join(allowed)}, got {shortened(given)}{guess(given, allowed)}"
    return re.sub(r"^Error parsing [A-Za-z.]+: ", "", text)  # a check of the options' own, which names its value


def _wrong_value(flag: str, reason: str, words: Sequence[str], known: Mapping[str, Any]) -> str | None:
    """A word that is no number, where only numbers are allowed."""
    expected = str(known.get(flag[2:].replace("-", "_"), ""))
    if "float" not in expected and "int" not in expected:
        return None
    kind, read = ("a number", float) if "float" in expected else ("a whole number", int)
    many = [word for word in values_of(words, flag[2:]) if not _reads(read, word)]
    shown = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"
    return f"{flag} must be {kind}, got {shortened(many[0]) if many else shown}"


def _reads(kind: Callable[[str], object], word: str) -> bool:
    try:
        kind(word)
    except ValueError:  # also a whole number of more digits than Python reads
        return False
    return True


def values_of(words: Sequence[str], name: str) -> list[str]:
    """All words that follow an option, up to the next one."""
    found: list[str] = []
    inside = False
    for word in words:
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            inside = flag.replace("_", "-") == f"--{name}"
            found += [value] if inside and equals else []
        elif inside:
            found.append(word)
    return found


def gathered(words: Sequence[str], name: str) -> list[str]:
    """The words, where an option that was given several times stands there once, with the values of all.

    >>> gathered(["--log", "a", "--json", "--log=b"], "log")
    ['--json', '--log', 'a', 'b']
    """
    values, rest, inside = values_of(words, name), list[str](), False
    for word in words:
        if word.startswith("--"):
            inside = word.partition("=")[0].replace("_", "-") == f"--{name}"
        if not inside:
            rest.append(word)
    return [*rest, f"--{name}", *values] if len(rest) < len(words) else rest


def shortened(value: str) -> str:
    """A wrong value as a message shows it."""
    text = value if value.isprintable() and value else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
