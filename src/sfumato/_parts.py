"""Parts of plans: small frozen objects, and the words, numbers and mappings that are short for them.

A field of a plan that holds a part is declared with `part`, and its class with `plan`. The field then takes the part
itself, or what is short for one:

- a word chooses a kind, which keeps what it shares with the plan's default: clipping="adaptive";
- a number sets one field of the default: clipping=0.5;
- a mapping changes fields of the default, or of the kind that it names: clipping={"kind": "adaptive", "quantile": 0.7};
- a name with a dot, as in a sweep or a settings file, changes one field: **{"clipping.quantile": 0.7}.

>>> @dataclass(frozen=True, kw_only=True)
... class Flat:
...     norm: float | None = 1.0
>>> @dataclass(frozen=True, kw_only=True)
... class Adaptive:
...     norm: float | None = 1.0
...     quantile: float = 0.5
>>> CLIPPINGS = Kinds[Flat | Adaptive]({"flat": Flat, "adaptive": Adaptive}, number="norm")
>>> @plan
... class Toy:
...     clipping: Flat | Adaptive = part(default=Flat(norm=2.0), converter=CLIPPINGS)
>>> Toy().clipping, Toy(clipping=0.5).clipping, Toy(clipping="adaptive").clipping
(Flat(norm=2.0), Flat(norm=0.5), Adaptive(norm=2.0, quantile=0.5))
>>> Toy(clipping={"kind": "adaptive", "quantile": 0.7}).clipping
Adaptive(norm=2.0, quantile=0.7)
>>> Toy(**{"clipping": "adaptive", "clipping.norm": 0.1}).clipping
Adaptive(norm=0.1, quantile=0.5)
>>> to_json(Toy(clipping="adaptive"))
{'clipping': {'kind': 'adaptive', 'norm': 2.0, 'quantile': 0.5}}
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, dataclass_transform

from sfumato._check import InputError, guess

T = TypeVar("T")
C = TypeVar("C", bound=type)

KINDS = "kinds"
"""In the metadata of a field: the `Kinds` of part that it holds."""

SET_BY_RUN = "planned"
"""In the metadata of a field of a part that is no option."""


class Incomplete(InputError):
    """A part of a word lacks fields that have no default."""


@dataclass(frozen=True)
class Kinds(Generic[T]):
    """The kinds of one part.

    Attributes:
        kinds: by word, the class of each; a class has one word.
        number: the field that a bare number, or None, sets; "" where none is short for a part.
        text: of a part of one kind, the field that a word sets; "" where words choose a kind.
        values: the words that this field takes.
    """

    kinds: Mapping[str, type[Any]]
    number: str = ""
    text: str = ""
    values: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words that are short for a part; none where it is of one kind and a number is short for it."""
        return self.values or (() if self._one_number else tuple(self.kinds))

    @property
    def _one_number(self) -> bool:
        return len(self.kinds) == 1 and bool(self.number) and not self.text

    def __call__(
        self, value: T | float | str | Mapping[str, Any] | None, default: T | None = None, *, of: str = ""
    ) -> T:
        """The part that a value stands for.

        Args:
            value: a part, or what is short for one.
            default: the part whose fields are kept where the value does not set them.
            of: the name of the field, for messages.

        Raises:
            InputError: no such kind, no such field, or a value that stands for nothing.
        """
        if type(value) in self.kinds.values():  # a subclass may run something else than it says
            return _plain(value)
        base: Any = next(iter(self.kinds.values()))() if default is None else default
        if isinstance(value, str) and self._one_number:
            raise InputError(f"{of or 'it'} must be a number or none, got {value:.60}")
        if isinstance(value, str):
            return dataclasses.replace(base, **{self.text: value}) if self.text else self._kind(value, base, of)
        if isinstance(value, Mapping):
            changes = dict(value)
            kind = changes.pop("kind", None)
            base = base if kind is None else self._kind(str(kind), base, of, changes)
            self._refuse_other_kind(base, changes, of)
            return changed(base, changes, of=of)
        if self.number and (value is None or _is_number(value)):
            return changed(base, {self.number: value}, of=of)
        number = ", or a number" if self.number else ""
        raise InputError(
            f"{of or 'it'} must be one of {', '.join(self.kinds)}{number}, got {value!r:.60}; or give the part itself, "
            f"{next(iter(self.kinds.values())).__name__}() for example"
        )

    def _kind(self, word: str, base: Any, of: str, changes: dict[str, Any] | None = None) -> Any:
        """The part of a word, with what it shares with another one; what has no default is taken out of the changes."""
        kind = self.kinds.get(word)
        if kind is None:
            known = ", ".join(self.kinds)
            raise InputError(f"{of or 'it'} must be one of {known}, got {word:.60}{guess(word, self.kinds)}")
        if type(base) is kind:
            return base
        shared = {field.name for field in options_of(kind)} & {field.name for field in options_of(type(base))}
        nothing, changes = dataclasses.MISSING, {} if changes is None else changes
        needed = [f.name for f in options_of(kind) if f.default is nothing and f.default_factory is nothing]
        found = {name: getattr(base, name) for name in shared}
        found |= {name: changes.pop(name) for name in needed if name in changes}
        if missing := [name for name in needed if name not in found]:
            raise Incomplete(f"{of or 'it'} {word} needs {' and '.join(missing)}, which have no default; give them")
        return kind(**found)

    def _refuse_other_kind(self, base: Any, changes: Mapping[str, Any], of: str) -> None:
        """Refuse fields that another kind has, and this one has not."""
        own = {field.name for field in dataclasses.fields(base)}
        for name in (first.partition(".")[0] for first in changes):
            if name not in own and (others := self.having(name)):
                raise InputError(
                    f"{name} is for {of}={' or '.join(others)}, got {of}={self.word(base)}; leave it out, or choose "
                    f"another {of}"
                )

    def word(self, part: Any) -> str:
        """The word for a part; of a part of one kind, the number that is short for it."""
        if self.text:
            return getattr(part, self.text)
        if self._one_number:
            number = getattr(part, self.number)
            return "none" if number is None else f"{number:g}"
        return next(word for word, kind in self.kinds.items() if type(part) is kind)

    def having(self, field: str) -> list[str]:
        """The words of the kinds that have this field."""
        return [word for word, kind in self.kinds.items() if field in {each.name for each in options_of(kind)}]


def part(*, default: T, converter: Kinds[T]) -> T:
    """A field that holds a part of these kinds; type checkers take what it may be given from `converter`."""
    return dataclasses.field(default=default, metadata={KINDS: converter})  # pyright: ignore[reportReturnType]


def set_by_run(default: Any = None) -> Any:
    """A field of a part that the run sets, so it is no option."""
    return dataclasses.field(default=default, metadata={SET_BY_RUN: True})


@dataclass(frozen=True)
class Choice:
    """The kinds of part that one field of one class takes (`choices` of a class that `plan` made).

    Attributes:
        of: the kinds.
        default: the part of the class.
        name: of the field.
    """

    of: Kinds[Any]
    default: Any
    name: str

    @property
    def kinds(self) -> Mapping[str, type[Any]]:
        """Classes by word."""
        return self.of.kinds

    @property
    def words(self) -> tuple[str, ...]:
        """The words that are short for a part."""
        return self.of.words

    def __call__(self, value: Any) -> Any:
        """The part that a value stands for; errors as of `Kinds`."""
        return self.of(value, self.default, of=self.name)

    def word(self, part: Any) -> str:
        """The word for a part."""
        return self.of.word(part)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(part, dataclasses.field))
def plan(cls: C) -> C:
    """A frozen dataclass of keywords, whose fields may be given by what is short for a part, or by names with dots.

    `choices` says by field which words and numbers are short for a part. A keyword of an earlier version (`renamed` of
    the class, old name to new) is refused with the name that it has now.
    """
    made = dataclass(frozen=True, kw_only=True)(cls)
    initialise = made.__init__

    @functools.wraps(initialise)
    def __init__(self: Any, **fields: Any) -> None:
        initialise(self, **_resolved(type(self), fields, lambda field: field.default))

    made.__init__ = __init__
    kinds = {
        field.name: (field.metadata[KINDS], field.default)
        for field in dataclasses.fields(made)
        if KINDS in field.metadata
    }
    made.choices = {
        name: Choice(each, default, name)
        for name, (each, default) in kinds.items()
        if len(each.kinds) > 1 or each.text or each.number
    }
    return made


def changed(part: Any, changes: Mapping[str, Any], *, of: str = "") -> Any:
    """The part, or the plan, with some fields changed.

    Args:
        part: it stays as it is.
        changes: by name; a field that holds a part may be given by what is short for it, and the fields of a part in a
            field by names with dots ("client.loss.scale").
        of: the name of the field that holds the part, for messages.

    Raises:
        InputError: it has no such field, or a value stands for nothing.
    """
    values = _resolved(type(part), changes, lambda field: getattr(part, field.name), of)
    try:
        return dataclasses.replace(part, **values)
    except InputError as error:  # of a part, which does not know where it is
        name = next((name for name in values if of and str(error).startswith(f"{name} ")), None)
        if name is None:
            raise
        raise InputError(f"{of}.{error}") from None


def _resolved(
    kind: type[Any], changes: Mapping[str, Any], current: Callable[[dataclasses.Field[Any]], Any], of: str = ""
) -> dict[str, Any]:
    """Values of fields, with the parts that changes stand for: those of a whole part before those of its fields."""
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    found: dict[str, Any] = {}
    for depth in sorted({name.count(".") for name in changes}):
        for name, value in _nested({name: value for name, value in changes.items() if name.count(".") == depth}):
            if name not in fields:
                if name in (renamed := getattr(kind, "renamed", {})):
                    raise InputError(f"{name} is now {_as_words(renamed[name])}")
                raise InputError(
                    f"{of or kind.__name__} has no field {name}{guess(name, fields)}; it has {', '.join(fields)}"
                )
            path, kinds = f"{of}.{name}" if of else name, fields[name].metadata.get(KINDS)
            if kinds is not None:
                value = kinds(value, found.get(name, current(fields[name])), of=path)
            found[name] = _held(fields[name], value, path)
    return found


def _nested(dotted: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names with dots, of one depth, as mappings."""
    found: dict[str, Any] = {}
    for name, value in dotted.items():
        *parts, last = name.split(".")
        place = found
        for each in parts:
            place = place.setdefault(each, {})
        place[last] = value
    return list(found.items())


def options_of(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    """The fields of a part that a user sets."""
    return [field for field in dataclasses.fields(kind) if field.init and not field.metadata.get(SET_BY_RUN)]


def to_json(instance: Any) -> dict[str, Any]:
    """All fields that a user sets, parts with the word of their kind.

    A whole number in a field of real ones is written as such, so that a plan is the same however it was given.
    """
    found: dict[str, Any] = {}
    for field in options_of(type(instance)):
        value, kinds = getattr(instance, field.name), field.metadata.get(KINDS)
        if kinds is not None:
            value = to_json(value) if len(kinds.kinds) == 1 else {"kind": kinds.word(value), **to_json(value)}
        elif dataclasses.is_dataclass(value):
            value = to_json(value)
        elif type(value) is int and "float" in str(field.type):
            value = float(value)
        found[field.name] = value
    return found


def flat(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Settings of a plan by their dotted names; the word of a part stands under the part's own name.

    >>> flat({"rounds": 3, "clipping": {"kind": "flat", "norm": 1.0}})
    [('rounds', 3), ('clipping', 'flat'), ('clipping.norm', 1.0)]
    """
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found += flat(value, f"{before}{name}.")
        else:
            found.append((before[:-1] if name == "kind" and before else f"{before}{name}", value))
    return found


def _as_words(path: str) -> str:
    """How a field is given in Python.

    >>> _as_words("clipping"), _as_words("client.head.start")
    ('clipping=…', 'client={"head": {"start": …}}')
    """
    first, *rest = path.split(".")
    value = "…"
    for name in reversed(rest):
        value = f'{{"{name}": {value}}}'
    return f"{first}={value}"


def _is_number(value: object) -> bool:
    return not isinstance(value, bool | bytes) and hasattr(value, "__float__")


def _held(field: dataclasses.Field[Any], value: Any, path: str) -> Any:
    """What a field holds of a value: a whole number where it is declared whole, and a truth value where it is one.

    Raises:
        InputError: "no" or 0 for a truth value, for example.
    """
    declared = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
    if declared in ("Any", "typing.Any") and field.metadata.get(SET_BY_RUN):
        return value  # the run's own, such as directions that were released
    made = _plain(value)
    if declared == "bool" and not isinstance(made, bool):
        raise InputError(f"{path} must be True or False, got {made!r:.60}")
    if declared in ("int", "int | None") and isinstance(made, float) and made.is_integer():
        return int(made)
    return made


def _plain(value: Any) -> Any:
    """A value as frozen parts hold it: numbers and lists of other libraries may change once a plan is accounted for.

    >>> import numpy as np
    >>> _plain([np.float32(0.5), np.arange(2)]), _plain("tree"), _plain(True)
    ((0.5, (0, 1)), 'tree', True)
    """
    if hasattr(type(value), "tolist"):  # of NumPy, torch, pandas: scalars, too
        value = value.tolist()
    if type(value) in (list, tuple):
        made = tuple(map(_plain, value))
        same = type(value) is tuple and all(one is other for one, other in zip(made, value, strict=True))
        return value if same else made
    if dataclasses.is_dataclass(type(value)):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value) if field.init)
        held = ((field.name, _held(field, each, field.name), each) for field, each in fields)
        changes = {name: made for name, made, each in held if made is not each}
        return dataclasses.replace(value, **changes) if changes else value
    if type(value) in (int, float) or not _is_number(value):
        return value
    try:
        return int(value) if isinstance(value, int) else float(value)
    except (TypeError, ValueError, OverflowError):
        return value  # which a check of the field refuses
