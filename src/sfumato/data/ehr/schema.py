"""The schema of health records: which columns there are, what they hold, and where patients and times stand.

A schema is public: its categories are released with every synthetic data set. It can be written down as YAML, edited by
hand and given to a reader in place of what that would infer. One that was inferred from the records is not public, and
refused under a guarantee; a person reviews it, and gives the file.

>>> sex = Column(name="sex", kind="categorical", categories=("f", "m"))
>>> schema = Schema(id="patient", time="day", time_unit="days", static=(sex,), temporal=(numeric("bili"),))
>>> print("\\n".join(line for line in schema.to_yaml().splitlines() if line[:1] != "#"))
id: patient
unit: patient
subject: null
time: day
time_unit: days
outcome: null
static:
- {name: sex, kind: categorical, categories: [f, m]}
temporal:
- {name: bili, kind: numeric, whole: false}
>>> Schema.from_yaml(schema.to_yaml()) == schema
True
>>> sex.code("m"), sex.code("x")
(1, None)
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from sfumato._check import InputError, one_of
from sfumato._files import write_atomic
from sfumato._types import RecordUnit
from sfumato.data.columns import canonical, is_missing
from sfumato.data.schema import as_text, load_yaml, places_of

TimeUnit = Literal["minutes", "hours", "days"]

MICROSECONDS: dict[str, int] = {"minutes": 60_000_000, "hours": 3_600_000_000, "days": 86_400_000_000}
"""What a unit of time lasts."""

_OPTIONAL = ("outcome", "unit", "subject")  # fields that a file may leave out

MOST_CATEGORIES = 1000
"""What a column may have: a model has a row of weights for each, and each is released."""

_ABOUT = """\
# The columns of health records. Edit by hand and give the file to a reader as its schema.
#   id, time     the columns of patients (or stays) and of times; time_unit: minutes, hours or days
#   unit         what an id is of: patient, stay, admission or record; a guarantee protects one of these
#   subject      where that is no patient: the static column that names the patient of each id, or null. It is never
#                learned from; all records of a subject go to one side of a split
#   outcome      a static categorical column with two categories, or null
#   static       columns with one value a patient; temporal: columns with a value a visit
#   kind         numeric (whole: true where all values are whole numbers) or categorical (categories: all that there
#                are; every other value is refused). Categories are public: they are released with synthetic records.
#   range        of a numeric column, for records that are learned from with a guarantee: [lowest, highest] value to
#                expect, written down without looking at the records; values beyond it count as the nearer end
# A column that is left out here is not read.
"""
_REVIEW = """\
# TO REVIEW: these columns and categories were found in the records. To give this file to a reader is to declare them
# public: take out columns of names, ids and free text, and categories that only a few patients have, and write down a
# range for each number without looking at the records."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of values.

    Attributes:
        name: as tables have it.
        kind: what its values are.
        categories: of a categorical column: all that there are, in the order of their codes; public.
        whole: of a numeric column: all values are whole numbers.
        range: of a numeric column: the lowest and the highest value to expect, public; values beyond it stay as they
            are. None where it is not given.

    Raises:
        InputError: a name or a category cannot be distinguished from another one, or from a missing value; or the range
            is none.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    categories: tuple[str, ...] = ()
    whole: bool = False
    range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        refuse_name(self.name)
        one_of(("numeric", "categorical"), **{f"the kind of column {self.name!r}": self.kind})
        if self.kind == "numeric":
            if self.categories:
                raise InputError(f"column {self.name!r} is numeric and has categories; make it categorical")
            if self.range is not None:
                self._refuse_range(*self.range)
            return
        if self.range is not None:
            raise InputError(f"column {self.name!r} is categorical, of which a range says nothing; drop it there")
        if self.whole:
            raise InputError(f"column {self.name!r} is categorical, of which whole says nothing; drop it there")
        if not 1 <= len(self.categories) <= MOST_CATEGORIES:
            raise InputError(
                f"column {self.name!r} must have 1 to {MOST_CATEGORIES:,} categories, got {len(self.categories):,}; "
                "group them, make it numeric or leave it out"
            )
        for category in self.categories:
            if is_missing(category) or category != category.strip():
                raise InputError(
                    f"column {self.name!r} has the category {category!r}, which a file shows as a missing value or "
                    "with blanks around it; rename it"
                )
        counts = Counter(map(canonical, self.categories))
        if len(counts) < len(self.categories):
            twice = next(category for category in self.categories if counts[canonical(category)] > 1)
            raise InputError(
                f"column {self.name!r} has the category {twice!r} twice, perhaps as a number; name it once"
            )

    def _refuse_range(self, low: float, high: float) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InputError(
                f"the range of column {self.name!r} must be two finite numbers, the lower one first, got {low:g}, "
                f"{high:g}"
            )
        if self.whole and (low != math.floor(low) or high != math.floor(high)):
            raise InputError(
                f"column {self.name!r} has whole numbers, so its range must, too, got {low:g}, {high:g}; round it"
            )

    @cached_property
    def _codes(self) -> dict[str, int]:
        codes = {canonical(category): code for code, category in enumerate(self.categories)}
        return codes | places_of(self.categories)

    def code(self, value: str) -> int | None:
        """The place of a value among the categories, None if it is none of them; 1.0 is 1."""
        found = self._codes.get(value)
        return self._codes.get(canonical(value)) if found is None else found


def unit_of(id: str) -> RecordUnit:
    """What ids in a column of this name are of, where it is not given.

    >>> unit_of("stay_id"), unit_of("hadm_id"), unit_of("EncounterID"), unit_of("who")
    ('stay', 'admission', 'record', 'patient')
    """
    words: dict[str, RecordUnit] = {"stay": "stay", "hadm": "admission", "admission": "admission"}
    words |= {"encounter": "record", "record": "record", "visit": "record"}
    found: list[RecordUnit] = [unit for word, unit in words.items() if word in id.lower()]
    return found[0] if found else "patient"


def numeric(name: str, *, whole: bool = False, range: tuple[float, float] | None = None) -> Column:
    """A numeric column."""
    return Column(name=name, kind="numeric", whole=whole, range=range)


def categorical(name: str, categories: Iterable[str]) -> Column:
    """A categorical column."""
    return Column(name=name, kind="categorical", categories=tuple(categories))


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of health records.

    Attributes:
        id: the column of patients, or of stays: whose a row is.
        unit: what an id is of, and so what a guarantee protects.
        subject: the static column that names the patient behind each id, where one may have several; never learned
            from. None where the id is that of the patient, or it is not known.
        time: the column of times.
        time_unit: what times are counted in.
        static: columns with one value a patient.
        temporal: columns with a value a visit; at least one.
        outcome: the name of a static categorical column with two categories; the second is the event.
        inferred: whether a reader took columns and categories from the records. A file is a declaration: it says no.

    Raises:
        InputError: a name is there twice, or the outcome is no such column.
    """

    id: str
    time: str
    time_unit: TimeUnit
    static: tuple[Column, ...]
    temporal: tuple[Column, ...]
    outcome: str | None = None
    unit: RecordUnit = field(default="patient", repr=False)  # a digest of records has both where they say something
    subject: str | None = field(default=None, repr=False)
    inferred: bool = field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        refuse_name(self.id)
        one_of(get_args(RecordUnit), unit=self.unit)
        refuse_name(self.time)
        one_of(tuple(MICROSECONDS), time_unit=self.time_unit)
        if not self.temporal:
            raise InputError("a schema needs at least one temporal column, got none; name one that changes with time")
        if self.subject is not None:
            refuse_name(self.subject)
            if self.unit == "patient":
                raise InputError(
                    f"the subject {self.subject!r} gives a patient several ids, so the unit cannot be patient; set "
                    "unit to stay, admission or record, or leave subject out"
                )
        counts = Counter(filter(None, [self.id, self.subject, self.time, *(column.name for column in self.columns)]))
        if twice := [name for name, count in counts.items() if count > 1]:
            raise InputError(f"the schema has the column {twice[0]!r} twice; rename one or leave it out")
        if self.outcome is not None:
            found = [column for column in self.static if column.name == self.outcome]
            if not found or len(found[0].categories) != 2:
                given = f"it has {len(found[0].categories)}" if found else "there is no such static column"
                raise InputError(
                    f"the outcome {self.outcome!r} must be a static categorical column with two categories, {given}; "
                    "name another, or none"
                )

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of values, static ones first."""
        return (*self.static, *self.temporal)

    @property
    def static_numeric(self) -> tuple[Column, ...]:
        """The columns of `EHRDataset.static_numbers`."""
        return tuple(column for column in self.static if column.kind == "numeric")

    @property
    def static_categorical(self) -> tuple[Column, ...]:
        """The columns of `EHRDataset.static_codes`."""
        return tuple(column for column in self.static if column.kind == "categorical")

    @property
    def temporal_numeric(self) -> tuple[Column, ...]:
        """The columns of `EHRDataset.numbers`."""
        return tuple(column for column in self.temporal if column.kind == "numeric")

    @property
    def temporal_categorical(self) -> tuple[Column, ...]:
        """The columns of `EHRDataset.codes`."""
        return tuple(column for column in self.temporal if column.kind == "categorical")

    def to_yaml(self) -> str:
        """The schema as text to edit, a line a column."""
        lines = [_ABOUT.rstrip("\n"), *([_REVIEW] if self.inferred else [])]
        lines += [
            f"{name}: {_inline(getattr(self, name))}"
            for name in ("id", "unit", "subject", "time", "time_unit", "outcome")
        ]
        for part, columns in (("static", self.static), ("temporal", self.temporal)):
            lines.append(f"{part}:" if columns else f"{part}: []")
            lines += [f"- {_inline(_facts(column))}" for column in columns]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_yaml(cls, text: str) -> "Schema":
        """The schema that a text of YAML states.

        Raises:
            InputError: it is not YAML, or a field is unknown, missing or of another kind.
        """
        try:
            content = load_yaml(text)
        except yaml.YAMLError as error:
            raise InputError(f"the schema is not YAML: {' '.join(str(error).split())[:300]}") from None
        facts = _fields("the schema", content, {"id", "time", "time_unit", "static", "temporal"}, set(_OPTIONAL))
        parts = {}
        for part in ("static", "temporal"):
            listed = facts[part] or []
            if not isinstance(listed, list):
                raise InputError(f"{part} in the schema must be a list of columns, got {type(listed).__name__}")
            parts[part] = tuple(_column(part, each) for each in listed)
        given = {name: facts[name] for name in _OPTIONAL if facts.get(name) is not None}
        for name in ("id", "time", "time_unit", *given):
            if not isinstance(facts[name], str):
                raise InputError(f"{name} in the schema must be text, got {facts[name]!r}; put it in quotes")
        return cls(id=facts["id"], time=facts["time"], time_unit=facts["time_unit"], **given, **parts)

    def save(self, path: Path | str) -> None:
        """Write the schema to a file of YAML."""
        write_atomic(Path(path), self.to_yaml().encode("utf-8"))

    @classmethod
    def load(cls, path: Path | str) -> "Schema":
        """The schema in a file of YAML.

        Raises:
            InputError: the file is not there, or holds no schema.
        """
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"the schema {path} cannot be read: {' '.join(str(error).split())}") from None
        try:
            return cls.from_yaml(text)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def declared(schema: "Schema | Path | str | None", **inferring: object) -> "Schema | None":
    """The schema that was given, itself or as a file, next to none of the options that infer one.

    Raises:
        InputError: both were given, or the file holds no schema.
    """
    if schema is None:
        return None
    if any(value not in (None, (), []) for value in inferring.values()):
        *names, last = inferring
        raise InputError(f"the schema says what {', '.join(names)} and {last} would; give one of both")
    return schema if isinstance(schema, Schema) else Schema.load(schema)


def refuse_name(name: object) -> None:
    """Refuse the name of a column that a file cannot hold."""
    if not isinstance(name, str) or not name or name != name.strip() or any(sign in name for sign in "\r\n\0"):
        raise InputError(f"a column's name must be text of one line without blanks around it, got {name!r}; rename it")


def _inline(value: object) -> str:
    text = yaml.safe_dump(
        value, default_flow_style=True, width=sys.maxsize, allow_unicode=True, sort_keys=False, explicit_end=False
    )
    return text.removesuffix("...\n").strip()


def _facts(column: Column) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if column.kind == "numeric":
        return facts | {"whole": column.whole} | ({} if column.range is None else {"range": list(column.range)})
    return facts | {"categories": list(column.categories)}


def _column(part: str, content: object) -> Column:
    facts = _fields(f"a {part} column", content, {"name", "kind"}, {"categories", "whole", "range"})
    name, categories, whole = facts["name"], facts.get("categories", []), facts.get("whole", False)
    if not isinstance(whole, bool):
        raise InputError(f"column {name!r} needs whole to be true or false, got {whole!r}")
    if not isinstance(categories, list):
        raise InputError(f"column {name!r} needs a list of categories, got {categories!r}")
    for category in categories:
        if not isinstance(category, str | int | float):
            raise InputError(f"column {name!r} has the category {category!r}; write it in quotes, as the table has it")
    ends = facts.get("range")
    if ends is not None and not (isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends))):
        raise InputError(f"column {name!r} needs a range of two numbers, [lowest, highest], got {ends!r}")
    return Column(
        name=name,
        kind=facts["kind"],
        categories=tuple(map(as_text, categories)),
        whole=whole,
        range=None if ends is None else (float(ends[0]), float(ends[1])),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fields(title: str, content: object, needed: set[str], further: set[str]) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise InputError(f"{title} must be fields with values, got {type(content).__name__}; see Schema.to_yaml")
    if missing := sorted(needed - set(content)):
        raise InputError(f"{title} has no {missing[0]!r}; add it")
    if unknown := sorted(map(str, set(content) - needed - further)):
        raise InputError(
            f"{title} has the unknown field {unknown[0]!r}; understood are {', '.join(sorted(needed | further))}"
        )
    return content
