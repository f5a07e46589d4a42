"""A schema: what is known in public about the columns of a table, so that reading it learns nothing from the records.

Each column is one of

    {"kind": "numeric", "low": 17, "high": 90}             clipped to public bounds and scaled to [−1, 1]
    {"kind": "numeric", "low": 0, "high": 1e5, "log": True, "fill": 0}
    {"kind": "category", "buckets": 100}                   hashed; id 0 is a missing value
    {"kind": "category", "buckets": 100, "hex": True}      the same, of at most 8 hexadecimal digits
    {"kind": "category", "buckets": 100, "most": 5}        several values a row, divided by "|", or a list
    {"kind": "category", "values": ["Male", "Female"]}     ids 2, 3, …; 0 is a missing value and 1 every other one
    {"kind": "label", "values": ["<=50K", ">50K"]}         the class; without values they are taken from the records
    {"kind": "target"}                                     a number to predict, as it stands; any finite one
    {"kind": "count"}                                      a whole number >= 0 to predict
    "user"                                                 whose the row is, a text; at most one such column
    "drop"                                                 not read

What is predicted is one label, or one or more targets, or one or more counts. Targets are not scaled: divide them by a
public number beforehand where they are far from 1, since gradients are clipped.

A category of which a row may have several values becomes as many ids as `most` says, a public number: the first ones of
a row, then 0. `separator` is another mark between them.

`log` scales log(1 + x − low). `fill` is the public value of a missing number; the column then gets an indicator, 1
where the value is missing and else −1. Bounds, values, buckets, fills and `most` must come from public knowledge, never
from a look at the table: minima, maxima, means and frequencies of private records are not public.

>>> age = column("age", {"kind": "numeric", "low": 20, "high": 60})
>>> age.numbers(["20", "50", "99"], str)[:, 0].tolist()
[-1.0, 0.5, 1.0]
>>> sex = column("sex", {"kind": "category", "values": ["Female", "Male"]})
>>> sex.size, sex.ids(["Male", "", "?x"]).tolist()
(4, [3, 0, 1])
>>> column("price", {"kind": "target"}).numbers(["-3.5", "1e6"], str).tolist()
[-3.5, 1000000.0]
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data.labels import CLIPPED, CUT, FILLED, UNDECLARED, Repairs
from sfumato.data.records import position
from sfumato.data.safeguards import MISSING, Where
from sfumato.data.text import hashed_id

KINDS = (
    "numeric (low, high, log, fill), category (buckets or values, hex, most, separator), label (values), target, "
    "count, user, drop"
)
FLAGS = ("False", "True")
"""Booleans as texts: those of typed files, and of text that writes them in any case."""

_LARGEST_COUNT = 2.0**53  # beyond it doubles skip whole numbers
_HEX = re.compile(r"[0-9a-fA-F]{1,8}")
_REMEMBERED = 1 << 15  # values of a column whose ids are kept while a table is read
_FIELDS = {
    "numeric": {"low", "high", "log", "fill"},
    "category": {"buckets", "values", "hex", "most", "separator"},
    "label": {"values"},
    "target": set(),
    "count": set(),
    "user": set(),
    "drop": set(),
}


@dataclass(frozen=True, kw_only=True)
class NumericColumn:
    """Numbers within declared bounds.

    Attributes:
        name: the column.
        low, high: the public bounds, finite, low < high; what lies outside is clipped.
        log: whether log(1 + x − low) is scaled in place of x.
        fill: the public value of a missing number, within the bounds; None refuses one.
    """

    name: str
    low: float
    high: float
    log: bool = False
    fill: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that it becomes."""
        return (self.name,) if self.fill is None else (self.name, f"{self.name} is missing")

    def numbers(self, values: Sequence[str], where: Where, repairs: Repairs | None = None) -> np.ndarray:
        """The column scaled to [−1, 1], float32 [n, 1], or [n, 2] with the indicator.

        Args:
            values: as text.
            where: describes a row, for a message.
            repairs: counts what is filled and clipped.

        Raises:
            InputError: a value is no number, or is missing and there is no fill.
        """
        raw = np.empty(len(values))
        for i, value in enumerate(values):
            try:
                raw[i] = math.nan if value in MISSING else float(value)
            except ValueError:
                raise InputError(
                    f"{where(i)}: {self.name!r} is numeric, got {value!r}; correct it, or declare it as a category"
                ) from None
        missing = np.isnan(raw)
        if missing.any() and self.fill is None:
            at = int(np.flatnonzero(missing)[0])
            raise InputError(
                f"{where(at)}: {self.name!r} is missing; declare a public fill, for example "
                f'"fill": {self.low:g}, which also adds an indicator column'
            )
        if repairs is not None:
            repairs[FILLED, self.name] += int(missing.sum())
            repairs[CLIPPED, self.name] += int(((raw < self.low) | (raw > self.high)).sum())
        x = np.clip(np.where(missing, self.low if self.fill is None else self.fill, raw), self.low, self.high)
        if self.log:
            share = np.log1p(x - self.low) / math.log1p(self.high - self.low)
        else:
            share = x / (self.high - self.low) - self.low / (self.high - self.low)
        scaled = np.clip(2 * share - 1, -1, 1)
        columns = [scaled] if self.fill is None else [scaled, np.where(missing, 1.0, -1.0)]
        return np.stack(columns, 1).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class CategoryColumn:
    """Categories as ids.

    Attributes:
        name: the column.
        values: the declared values; () hashes.
        buckets: number of hash buckets, ≥ 1; 0 with values.
        hex: whether every value that is not missing must be a number of 32 bits in hexadecimal digits.
        most: ids a row, >= 1; of more values the first ones are read.
        separator: between the values of a row; not empty, and None where it has one.
    """

    name: str
    values: tuple[str, ...] = ()
    buckets: int = 0
    hex: bool = False
    most: int = 1
    separator: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of ids that it becomes."""
        return (self.name, *(f"{self.name} {i}" for i in range(2, self.most + 1)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of each of these, as in `ExampleDataset.vocabulary_sizes`: 0 for a further id of the same category."""
        return (self.size, *[0] * (self.most - 1))

    @property
    def size(self) -> int:
        """Number of ids, with 0 for a missing value and, with declared values, 1 for every other one."""
        return len(self.values) + 2 if self.values else self.buckets + 1

    def ids(
        self,
        values: Sequence[str],
        known_ids: dict[str, int] | None = None,
        repairs: Repairs | None = None,
        where: Where = position,
    ) -> np.ndarray:
        """The ids of some values, int64 [n].

        Args:
            values: as text.
            known_ids: ids of earlier values, kept between calls for speed; bounded, and never a part of the result.
            repairs: counts what is none of the declared values.
            where: describes a row, for a message.

        Raises:
            InputError: a value has other than hexadecimal digits, or too many, where it must not.
        """
        known_ids = {} if known_ids is None else known_ids
        known = {value: 2 + place for value, place in places_of(self.values).items()}
        size = self.size
        numbers = np.empty(len(values), np.int64)
        for i, value in enumerate(values):
            number = known_ids.get(value)
            if number is None:
                if value in known:  # a declared value may look like a missing one
                    number = known[value]
                elif value in MISSING:
                    number = 0
                elif self.hex and not _HEX.fullmatch(value):
                    raise InputError(
                        f"{where(i)}: {self.name!r} must be at most 8 hexadecimal digits, got {value[:40]!r}; correct "
                        "it or remove the row"
                    )
                else:
                    number = 1 if known else hashed_id(value, size)
                if len(known_ids) >= _REMEMBERED:
                    known_ids.clear()
                known_ids[value] = number
            numbers[i] = number
        if repairs is not None and known:
            repairs[UNDECLARED, self.name] += int((numbers == 1).sum())
        return numbers

    def bags(
        self,
        cells: Sequence[Any],
        known_ids: dict[str, int] | None = None,
        repairs: Repairs | None = None,
        where: Where = position,
    ) -> np.ndarray:
        """The ids of some rows, int64 [n, most], 0 behind the last one.

        Args:
            cells: texts, or lists of values where a row may have several.
            known_ids, repairs, where: as for `ids`.

        Raises:
            InputError: as for `ids`.
        """
        if self.separator is None:
            return self.ids(cells, known_ids, repairs, where)[:, None]
        bags = [self._values(cell) for cell in cells]
        if repairs is not None:
            repairs[CUT, self.name] += sum(len(bag) > self.most for bag in bags)
        bags = [bag[: self.most] for bag in bags]
        lengths = np.array([len(bag) for bag in bags], np.int64)
        rows = np.repeat(np.arange(len(bags)), lengths)
        result = np.zeros((len(bags), self.most), np.int64)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        values = [value for bag in bags for value in bag]
        result[rows, places] = self.ids(values, known_ids, repairs, lambda i: where(int(rows[i])))
        return result

    def _values(self, cell: Any) -> list[str]:
        """The values of a row that are not missing."""
        given = cell.split(self.separator) if isinstance(cell, str) else map(as_text, cell or ())
        return [value for value in map(str.strip, given) if value not in MISSING or value in self.values]


@dataclass(frozen=True, kw_only=True)
class LabelColumn:
    """The class.

    Attributes:
        name: the column.
        values: the classes in the order of their numbers; None takes them from the records.
    """

    name: str
    values: tuple[str, ...] | None = None

    def texts(self, values: Sequence[str]) -> list[str]:
        """Values as they were declared, where they are booleans in another case."""
        declared = self.values or ()
        places = places_of(declared)
        return [declared[places[value]] if value in places else value for value in values]


@dataclass(frozen=True, kw_only=True)
class TargetColumn:
    """A number to predict.

    Attributes:
        name: the column.
        count: whether it is a whole number >= 0.
    """

    name: str
    count: bool = False

    def numbers(self, values: Sequence[str], where: Where) -> np.ndarray:
        """The column as it stands, float32 [n], or int64 [n] for counts.

        Args:
            values: as text.
            where: describes a row, for a message.

        Raises:
            InputError: a value is missing, no number, or not finite in single precision; or no whole number >= 0.
        """
        raw = np.empty(len(values))
        for i, value in enumerate(values):
            try:
                raw[i] = float(value)
            except ValueError:
                raw[i] = math.nan
        with np.errstate(over="ignore"):
            wrong = ~np.isfinite(raw.astype(np.float32))
        wanted = "a finite number"
        if self.count:
            wanted = "a whole number >= 0 and below 2^53"
            wrong |= (raw < 0) | (raw != np.floor(raw)) | (raw >= _LARGEST_COUNT)
        if wrong.any():
            at = int(wrong.argmax())
            given = "it is missing" if values[at] in MISSING else f"got {values[at]!r}"
            raise InputError(f"{where(at)}: {self.name!r} must be {wanted}, {given}; correct it or remove the row")
        return raw.astype(np.int64 if self.count else np.float32)


@dataclass(frozen=True, kw_only=True)
class UserColumn:
    """Whose a row is.

    Attributes:
        name: the column.
    """

    name: str


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of a table.

    Attributes:
        numeric: the numbers, in the order of the schema.
        categories: the categories.
        label: the class, or None.
        targets: the numbers to predict; () where there is a class.
        dropped: columns that are not read.
        user: the column that says whose each row is, or None.
        order: all columns in the order of a table without a header; () where its first row names them.
    """

    numeric: tuple[NumericColumn, ...]
    categories: tuple[CategoryColumn, ...]
    label: LabelColumn | None = None
    targets: tuple[TargetColumn, ...] = ()
    dropped: tuple[str, ...] = ()
    user: str | None = None
    order: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that the table must have."""
        read = (*self.numeric, *self.categories, *([self.label] if self.label else []), *self.targets)
        return (*(one.name for one in read), *([self.user] if self.user is not None else []), *self.dropped)

    def assumptions(self) -> tuple[Assumption, ...]:
        """What it means that the schema is public, in one sentence."""
        parts = ["bounds and fills"] * bool(self.numeric) + ["categories and numbers of buckets"] * bool(
            self.categories
        )
        parts += ["numbers of values a row"] * any(one.separator is not None for one in self.categories)
        parts += ["classes"] * (self.label is not None and self.label.values is not None)
        return (Assumption("schema_public", {"parts": ", ".join(parts)}),)


def read_schema(schema: Mapping[str, Any] | Path | str) -> Schema:
    """A schema from a dictionary {column: declaration}, or from a YAML or JSON file that holds one.

    Raises:
        InputError: the file is missing or unreadable, a declaration is not understood, there is nothing to predict
            or too much, or no column to learn from.
    """
    if not isinstance(schema, Mapping):
        schema = _loaded(Path(schema))
    columns = [column(str(name), declared) for name, declared in schema.items()]
    labels = [one for one in columns if isinstance(one, LabelColumn)]
    targets = tuple(one for one in columns if isinstance(one, TargetColumn))
    if len(labels) > 1 or (labels and targets) or not (labels or targets) or len({one.count for one in targets}) > 1:
        counts = sum(one.count for one in targets)
        raise InputError(
            'a schema needs one column of {"kind": "label"}, or columns of {"kind": "target"}, or of '
            f'{{"kind": "count"}}; got {len(labels)} labels, {len(targets) - counts} targets and {counts} counts'
        )
    users = [one for one in columns if isinstance(one, UserColumn)]
    if len(users) > 1:
        raise InputError(f"a schema has at most one user, got {users[0].name!r} and {users[1].name!r}; drop one")
    numeric = tuple(one for one in columns if isinstance(one, NumericColumn))
    categories = tuple(one for one in columns if isinstance(one, CategoryColumn))
    if not numeric and not categories:
        raise InputError("a schema needs at least one numeric or category column to learn from, got none")
    return Schema(
        numeric=numeric,
        categories=categories,
        label=labels[0] if labels else None,
        targets=targets,
        dropped=tuple(one for one in columns if isinstance(one, str)),
        user=users[0].name if users else None,
    )


def column(name: str, declared: Any) -> NumericColumn | CategoryColumn | LabelColumn | TargetColumn | UserColumn | str:
    """One column from its declaration; a dropped one is its name.

    Raises:
        InputError: the declaration is not understood, or its numbers make no sense.
    """
    facts = {"kind": declared} if isinstance(declared, str) else declared
    kind = facts.get("kind") if isinstance(facts, Mapping) else None
    if not isinstance(facts, Mapping) or kind not in _FIELDS:
        raise InputError(f"column {name!r} must be one of {KINDS}, got {declared!r}")
    unknown = [field for field in facts if field != "kind" and field not in _FIELDS[kind]]
    if unknown:
        raise InputError(f"column {name!r} is {kind} and has no {unknown[0]!r}; understood are {KINDS}")
    if kind == "drop":
        return name
    if kind == "user":
        return UserColumn(name=name)
    if kind == "label":
        return LabelColumn(name=name, values=_values(name, facts))
    if kind in ("target", "count"):
        return TargetColumn(name=name, count=kind == "count")
    return _numeric(name, facts) if kind == "numeric" else _category(name, facts)


def places_of(values: Sequence[str]) -> dict[str, int]:
    """The place of each declared value; that of booleans in any usual case.

    >>> places_of(["no", "yes"]), places_of(["False", "True"])["TRUE"], places_of(["False", "True"])["false"]
    ({'no': 0, 'yes': 1}, 1, 0)
    """
    places = {value: place for place, value in enumerate(values)}
    if values and set(values) <= set(FLAGS):
        places |= {
            written: place for value, place in list(places.items()) for written in (value.lower(), value.upper())
        }
    return places


def as_text(value: object) -> str:
    """A typed value as it would stand in a CSV: 3.0 as 3, so that CSV and Parquet give the same ids."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value).strip()


def _numeric(name: str, facts: Mapping[str, Any]) -> NumericColumn:
    low, high = (_number(name, facts, bound) for bound in ("low", "high"))
    if not low < high or not math.isfinite(high - low):
        raise InputError(f"column {name!r} needs low < high, got low={low:g}, high={high:g}")
    fill = None if facts.get("fill") is None else _number(name, facts, "fill")
    if fill is not None and not low <= fill <= high:
        raise InputError(f"column {name!r} needs a fill between its bounds {low:g} and {high:g}, got {fill:g}")
    log = facts.get("log", False)
    if not isinstance(log, bool):
        raise InputError(f"column {name!r} needs log to be true or false, got {log!r}")
    return NumericColumn(name=name, low=low, high=high, log=log, fill=fill)


def _category(name: str, facts: Mapping[str, Any]) -> CategoryColumn:
    values, buckets = _values(name, facts), facts.get("buckets")
    if (values is None) == (buckets is None):
        raise InputError(f"column {name!r} is a category and needs either buckets or values; buckets hash any value")
    hexadecimal = facts.get("hex", False)
    if not isinstance(hexadecimal, bool) or (hexadecimal and values is not None):
        raise InputError(f"column {name!r} needs hex to be true or false, with buckets, got {hexadecimal!r}")
    several = _several(name, facts)
    if values is not None:
        return CategoryColumn(name=name, values=values, **several)
    if isinstance(buckets, bool) or not isinstance(buckets, int) or buckets < 1:
        raise InputError(f"column {name!r} needs buckets to be a whole number >= 1, got {buckets!r}")
    return CategoryColumn(name=name, buckets=buckets, hex=hexadecimal, **several)


def _several(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """How many values of a category a row may have, and what is between them."""
    most, separator = facts.get("most"), facts.get("separator")
    if most is None:
        if separator is not None:
            raise InputError(f"column {name!r} has a separator and needs most, a public number of ids a row")
        return {}
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"column {name!r} needs most to be a whole number >= 1, got {most!r}")
    if separator is not None and (not isinstance(separator, str) or not separator):
        raise InputError(f"column {name!r} needs separator to be a text, got {separator!r}")
    return {"most": most, "separator": separator or "|"}


def _values(name: str, facts: Mapping[str, Any]) -> tuple[str, ...] | None:
    values = facts.get("values")
    if values is None:
        return None
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence) or not values:
        raise InputError(f"column {name!r} needs a list of values, got {values!r}")
    for value in values:
        if value is None or not isinstance(value, str | int | float):
            raise InputError(f"column {name!r} declares the value {value!r}; write it in quotes, as it is in the table")
    texts = tuple(as_text(value) for value in values)
    twice = [text for i, text in enumerate(texts) if text in texts[:i]]
    if twice:
        raise InputError(f"column {name!r} declares the value {twice[0]!r} twice")
    return texts


def _number(name: str, facts: Mapping[str, Any], field: str) -> float:
    value = facts.get(field)
    try:
        number = math.nan if isinstance(value, bool | str) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        reason = "a public bound" if field != "fill" else "a public value"
        raise InputError(f"column {name!r} needs {field} to be a finite number ({reason}), got {value!r}")
    return number


class _Loader(yaml.SafeLoader):
    """YAML in which yes, no, on and off are texts, as in YAML 1.2 and in tables; true and false are booleans."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag != "tag:yaml.org,2002:bool"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_BOOLEAN = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))


def load_yaml(text: str) -> Any:
    """What a text of YAML holds.

    >>> load_yaml("{default: [no, yes], log: true}")
    {'default': ['no', 'yes'], 'log': True}

    Raises:
        yaml.YAMLError: it is none.
    """
    return yaml.load(text, _Loader)  # a loader without objects of Python


def _loaded(file: Path) -> Mapping[str, Any]:
    try:
        text = file.read_text("utf-8")
        content = json.loads(text) if file.suffix == ".json" else load_yaml(text)
    except FileNotFoundError:
        raise InputError(f"there is no schema {file}; write one: column: {{kind: …}} with {KINDS}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"the schema {file} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(content, Mapping):
        raise InputError(f"the schema {file} must map each column to its kind: {KINDS}")
    return content
