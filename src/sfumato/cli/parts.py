"""Parts of a plan as options: `--clipping adaptive --clipping.quantile 0.5`, or `--clipping 0.5`.

A class of options names its parts in `choices`: field → kinds, which map words to classes of parts, and make a part of
a word, a number or None when they are called. The words are looked at before tyro reads the options, so that the help
shows the options of the chosen kinds only. Options of a part stand behind its name and a point; so do those of a plain
dataclass within a group of options (`--server.learning-rate`). What stands in `renamed` is refused with its new name,
and fields that a run fills in (`metadata={"planned": True}`) are no options.
"""

import dataclasses
import functools
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import docstring_parser
import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from sfumato._check import InputError
from sfumato._parts import Incomplete

KIND = "kind"
"""In a settings file, the name of a part's word in the mapping of its options."""

_WORD = "word of "
"""Before the name of a part: the field of tyro that its word is."""


class Kinds(Protocol):
    """The kinds of a part: classes by their words; called, it gives the part that a word, a number or None means."""

    @property
    def kinds(self) -> Mapping[str, type]: ...

    def __call__(self, value: Any, /) -> Any: ...


@dataclass(frozen=True)
class Part:
    """A part, and what was chosen for it.

    Attributes:
        kinds: its kinds.
        value: the part, or what stands for it where it has no options; MISSING_NONPROP for the kind's own defaults.
        kind: the class of the part; None where it has no options.
        shown: the word or number of this choice.
    """

    kinds: Kinds
    value: Any
    kind: type | None
    shown: str

    @property
    def words(self) -> str:
        """What can be chosen, as the help shows it."""
        words = getattr(self.kinds, "words", self.kinds.kinds)
        return "|".join([*words, *(["FLOAT"] if _takes(self.kinds, 1.0) else [])])


@dataclass
class Options:
    """All options of a command, for the parts that were chosen.

    Attributes:
        kind: the dataclass of all options.
        types: by name; names of parts' options have points, and underscores as fields have.
        parts: by name.
        nested: names of dataclasses whose options stand behind a point.
        elsewhere: options of kinds that were not chosen: the part's name, and the words of the kinds that have them.
        renamed: old names of options, and the flags that they are now.
        planned: names of what is filled in by the run.
        only: names of the options that a help shows; None for all.
    """

    kind: Any
    types: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    nested: set[str] = field(default_factory=set)
    elsewhere: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)
    only: frozenset[str] | None = None

    def shows(self, name: str) -> bool:
        """Whether the help shows this option, or one in it."""
        return self.only is None or any(each == name or each.startswith(f"{name}.") for each in self.only)

    @property
    def flagged(self) -> dict[str, Any]:
        """The types of those that have flags, without positional words."""
        positional = tyro.conf.Positional
        return {name: each for name, each in self.types.items() if positional not in getattr(each, "__metadata__", ())}

    def why_not(self, name: str, *, as_flags: bool = True) -> str | None:
        """Why there is no such option, where it had another name or another kind of a part has it.

        Args:
            name: of the option, with underscores.
            as_flags: name options as on the command line; False for their names in a file.
        """
        shown = flag_of if as_flags else str
        if name in self.renamed:
            return f"{shown(name)} is now {shown(self.renamed[name])}"
        if name not in self.elsewhere:
            return None
        part, words = self.elsewhere[name]
        has = self.parts[part].shown
        return f"{shown(name)} is for {shown(part)} {' or '.join(words)}, and {shown(part)} is {has}"


def flag_of(name: str) -> str:
    """The flag of an option."""
    return f"--{name.replace('_', '-')}"


def off(flag: str) -> str:
    """The flag that turns a switch off.

    >>> off("--dry-run"), off("--server.nesterov")
    ('--no-dry-run', '--server.no-nesterov')
    """
    before, dot, last = flag[2:].rpartition(".")
    return f"--{before}{dot}no-{last}"


def flattened(kind: Any, settings: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """Settings by the names of options, where a file has mappings for parts and dataclasses; and these options.

    A part is a word, a number, None or a mapping of its options, whose `kind` is the word.

    Raises:
        InputError: a word stands for no part.
    """
    usual, flat = read_options(kind), dict[str, Any]()

    def put(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, each in value.items():
                put(name if key == KIND else f"{name}.{_name(str(key))}", each)
        else:
            flat[name] = value

    for name, value in settings.items():
        if name in usual.parts or name in usual.nested:
            put(name, value)
        else:
            flat[name] = value
    single = {name: value for name, value in flat.items() if value is None or isinstance(value, str | int | float)}
    options = read_options(kind, [f"{flag_of(name)}={value}" for name, value in single.items()])
    return {name: "none" if value is None and name in options.parts else value for name, value in flat.items()}, options


def without_replaced(settings: Mapping[str, Any], words: Sequence[str], kind: Any) -> dict[str, Any]:
    """Settings of a file without the parts that later words choose: a part is chosen whole."""
    chosen = _assigned(words).keys() & read_options(kind).parts.keys()
    return {name: value for name, value in settings.items() if name.partition(".")[0] not in chosen}


def read_options(kind: Any, words: Sequence[str] = ()) -> Options:
    """The options of a command.

    Args:
        kind: the dataclass of all of them, whose dataclasses are groups.
        words: flags and values, which choose kinds of parts.

    Raises:
        InputError: a word stands for no part.
    """
    found = Options(kind)
    _read(kind, "", _assigned(words), found)
    _refuse_both(words, found)
    return found


def typed(options: Options) -> Any:
    """The type by which tyro reads these options, with `registry()`."""
    return _at(_Place(options, options.kind, root=True))


def registry() -> ConstructorRegistry:
    """How tyro reads what `typed` gives."""
    found = ConstructorRegistry()
    found.struct_rule(_with_parts)
    return found


@dataclass(frozen=True)
class _Place:
    """Where a dataclass is among the options.

    Attributes:
        options: all of them.
        kind: the dataclass.
        path: what stands before the names of its fields, with a point.
        default: an object whose values are the defaults.
        root: whether its dataclasses are groups, whose options have no path.
    """

    options: Options
    kind: Any
    path: str = ""
    default: Any = tyro.MISSING_NONPROP
    root: bool = False


def _at(place: _Place) -> Any:
    """A type that stands for a dataclass there."""
    return type(place.kind.__name__, (), {"sfumato_place": place, "__doc__": place.kind.__doc__})


def _with_parts(info: StructTypeInfo) -> StructConstructorSpec | None:
    place: _Place | None = getattr(info.type, "sfumato_place", None)
    if place is None:
        return None
    usual = StructTypeInfo.make(place.kind, place.default, info.in_union_context)
    spec = ConstructorRegistry.get_struct_spec(dataclasses.replace(usual, markers=info.markers))
    assert isinstance(spec, StructConstructorSpec)
    fields, fixed = list[StructFieldSpec](), dict[str, Any]()
    nothing = (tyro.MISSING, tyro.MISSING_NONPROP)

    def nested(each: StructFieldSpec, kind: Any, path: str, default: Any) -> StructFieldSpec:
        place_of_it = _Place(place.options, kind, path, default)
        return dataclasses.replace(each, type=_at(place_of_it), default=tyro.MISSING_NONPROP)

    for each in spec.fields:
        each = dataclasses.replace(each, helptext=_described(place.kind, each.name))
        name = f"{place.path}{each.name}"
        group = place.root and dataclasses.is_dataclass(each.type)
        if name in place.options.planned:
            if place.default not in nothing:
                fixed[each.name] = getattr(place.default, each.name)
        elif not (group or place.options.shows(name)):
            continue
        elif part := place.options.parts.get(name):
            word: Any = Annotated[str, tyro.conf.arg(name=name, metavar=part.words)]
            fields.append(StructFieldSpec(_WORD + each.name, word, part.shown, each.helptext))
            if part.kind is None:
                fixed[each.name] = part.value
            else:
                fields.append(nested(dataclasses.replace(each, helptext=None), part.kind, f"{name}.", part.value))
        elif group or name in place.options.nested:
            fields.append(nested(each, each.type, "" if place.root else f"{name}.", each.default))
        else:
            kind: Any = _unchecked(each.type, info.markers)
            fields.append(
                dataclasses.replace(each, type=Annotated[kind, tyro.conf.arg(name=name)] if place.path else kind)
            )
    return StructConstructorSpec(_maker(spec.instantiate, fixed, place.path), tuple(fields))


def _described(kind: Any, name: str) -> str | None:
    """What the docstrings of a class and of those above it state of a field; tyro would parse their source for it."""
    return next((text for each in kind.__mro__ if (text := _attributes(each).get(name)) is not None), None)


@functools.cache
def _attributes(kind: type) -> dict[str, str]:
    """What a class's own docstring states of each field, without line breaks."""
    params = docstring_parser.parse(kind.__dict__.get("__doc__") or "").params
    return {each.arg_name: " ".join(each.description.split()) for each in params if each.description is not None}


def _unchecked(annotation: Any, markers: tuple[Any, ...]) -> Any:
    """A union or a tuple as a type whose default tyro does not check: it would load a library for it.

    That takes half as long again as all of tyro.
    """
    kind, *marks = typing.get_args(annotation) if typing.get_origin(annotation) is Annotated else (annotation,)
    if typing.get_origin(kind) in (None, typing.Literal):
        return annotation
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kind, set(markers)))
    return Annotated[(object, *marks, spec)] if isinstance(spec, PrimitiveConstructorSpec) else annotation


def _maker(make: Callable[..., Any], fixed: Mapping[str, Any], path: str) -> Callable[..., Any]:
    """Makes a dataclass of the values that tyro has read; what it refuses is named by its path."""

    def made(**values: Any) -> Any:
        values = {name: value for name, value in values.items() if not name.startswith(_WORD)}
        try:
            return make(**values, **fixed)
        except InputError as error:
            if not path:
                raise
            names = "|".join(map(re.escape, values))
            long = "|".join(re.escape(name) for name in values if "_" in name) or "(?!)"
            raise InputError(re.sub(rf"^({names})\b|(?<![\w.'\"-])({long})\b", rf"{path}\g<0>", str(error))) from None

    return made


def _assigned(words: Sequence[str]) -> dict[str, str]:
    """The last value that the words give to each option that has one."""
    return dict(_pairs(words))


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options and the values that the words give to them, in their order."""
    for word, following in zip(words, [*words[1:], "--"]):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and (equals or not following.startswith("--")):
            yield flag[2:].replace("-", "_"), value if equals else following


def _refuse_both(words: Sequence[str], options: Options) -> None:
    """Refuse a number and a word for one part: the last counts, and the number would be lost in silence."""
    earlier: dict[str, str] = {}
    for name, value in _pairs(words):
        if (part := options.parts.get(name)) is None:
            continue
        first, earlier[name] = earlier.get(name, value), value
        named = [each in part.kinds.kinds for each in (first, value)]
        if named[0] != named[1]:
            word, number = (first, value) if named[0] else (value, first)
            fields = [each.name for each in dataclasses.fields(part.kinds.kinds[word]) if each.init]
            flag = flag_of(name)
            more = f" {flag}.{fields[0].replace('_', '-')} {number}" if fields else ""
            raise InputError(f"{flag} is given as {first} and as {value}; give {flag} {word}{more}, or one of the two")


def _read(kind: Any, prefix: str, given: Mapping[str, str], found: Options, default: Any = None) -> None:
    """Find the options of a dataclass, and of those in it; a default object has the defaults of its parts."""
    choices: Mapping[str, Kinds] = getattr(kind, "choices", {})
    found.renamed |= {_name(old): _name(new) for old, new in getattr(kind, "renamed", {}).items()}
    declared = {each.name: each for each in dataclasses.fields(kind)}
    for name, inner in typing.get_type_hints(kind, include_extras=True).items():
        path = f"{prefix}{name}"
        if typing.get_origin(inner) is typing.ClassVar or (name in declared and not declared[name].init):
            continue
        if name in declared and declared[name].metadata.get("planned"):
            found.planned.add(path)
        elif name in choices:
            usual = declared[name].default if default is None else getattr(default, name)
            part = found.parts[path] = _chosen(choices[name], given.get(path), declared[name], usual)
            found.types[path] = str
            if part.kind is not None:
                chosen = None if part.value is tyro.MISSING_NONPROP else part.value
                _read(part.kind, f"{path}.", given, found, chosen)
            for word, other in choices[name].kinds.items():
                others = Options(other)
                _read(other, f"{path}.", {}, others)
                for option in others.types.keys() - found.types.keys():
                    found.elsewhere.setdefault(option, (path, []))[1].append(word)
        elif dataclasses.is_dataclass(inner):
            nested = kind is not found.kind
            found.nested |= {path} if nested else set()
            usual = declared[name].default if default is None else getattr(default, name)
            usual = usual if dataclasses.is_dataclass(usual) and not isinstance(usual, type) else None
            _read(inner, f"{path}." if nested else "", given, found, usual)
        else:
            found.types[path] = inner


def _chosen(kinds: Kinds, word: str | None, declared: dataclasses.Field[Any], usual: Any) -> Part:
    """The part of a word of the command line, or the usual one."""
    if word is not None and word in kinds.kinds:
        kind = kinds.kinds[word]
        if _has_options(kind):
            try:
                return Part(kinds, kinds(word), kind, word)  # what it shares with the usual one stays
            except (Incomplete, TypeError):  # an option without a default
                return Part(kinds, tyro.MISSING_NONPROP, kind, word)
    if word is None:
        value = usual
        if usual is dataclasses.MISSING and declared.default_factory is not dataclasses.MISSING:
            value = declared.default_factory()
        if value is dataclasses.MISSING:
            return Part(kinds, tyro.MISSING_NONPROP, None, "not given")
    else:
        value = _value(word)
    try:
        part = kinds(value)
    except InputError as error:
        if word is not None:
            named = declared.name in str(error)
            raise InputError(str(error) if named else f"{declared.name}: {error}") from None
        return Part(kinds, value, None, "not given")  # where something has to be chosen
    named = getattr(kinds, "word", None) or _word_of(kinds)
    shown = str(value) if isinstance(value, str | int | float) else named(part)
    return Part(kinds, part, type(part), shown) if _has_options(type(part)) else Part(kinds, value, None, shown)


def _word_of(kinds: Kinds) -> Callable[[Any], str]:
    """The word of a part's kind; none where it has none."""
    return lambda part: next((word for word, kind in kinds.kinds.items() if type(part) is kind), "none")


def _value(word: str) -> Any:
    """A number or None of a word that is one."""
    if word in ("none", "None"):
        return None
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _takes(kinds: Kinds, value: Any) -> bool:
    try:
        kinds(value)
    except InputError:
        return False
    return True


def _has_options(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and any(not each.metadata.get("planned") for each in dataclasses.fields(kind))


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")
