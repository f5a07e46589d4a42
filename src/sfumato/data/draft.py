"""A draft of a table's schema, for a person to complete: kinds of columns, and no range or category of the records.

What the draft says comes from the types of columns and from which cells are numbers, missing or all different. Ranges
and categories of private records are not public, so they stay empty unless the records are public (`ranges=True`).

>>> import pyarrow as pa
>>> bank = pa.table({"age": [31, None], "job": ["cook", "clerk"], "loan": [True, False], "y": [0, 1]})
>>> print(draft_text(draft_schema(bank, label="y"), "bank.csv").split("\\n\\n")[1])
age: {kind: numeric, low: null, high: null, fill: null}
job: {kind: category, buckets: 100}
loan: {kind: category, values: ['False', 'True']}
y: {kind: label, values: null}
<BLANKLINE>
>>> draft_schema(bank, label="y", drop=["age", "loan"], ranges=True)["job"]
{'kind': 'category', 'values': ['clerk', 'cook']}
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from sfumato._check import InputError
from sfumato.data.columns import as_number, is_missing, is_number_text, refuse_stray_text
from sfumato.data.readers.tables import open_rows
from sfumato.data.records import Records, is_date, is_nested, is_number
from sfumato.data.schema import FLAGS, as_text

BUCKETS = 100
"""Into which a draft hashes a column of categories."""

_FEW = 20  # different values, up to which no column is one of names or ids
_MOST = 1 << 17  # different values of a column that are counted
_LISTED = 100  # categories that a draft lists, where records are public
_SAMPLE = 1000  # values that messages and kinds go by
_PREDICTED = ("label", "class", "target", "y")
_ABOUT = """\
# Draft of the columns of {title}. Complete it by public knowledge, not by a look at private records.
#   numeric    low, high: numbers beyond them are clipped; fill: stands for a missing number; log: true
#   category   buckets: values are hashed into so many; or values: [...], all that there are
#   label      values: the classes in the order of their numbers
#   target     a number to predict; drop: not read
"""


def draft_schema(
    source: Any,
    *,
    label: str | None = None,
    targets: Sequence[str] = (),
    drop: Sequence[str] = (),
    numeric: Sequence[str] = (),
    ranges: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The columns of a table as `read_schema` takes them, once a person has completed them.

    Args:
        source: a table, as for `open_examples`: a path to .csv, .tsv, .parquet or .jsonl, or one in memory.
        label: the column of classes; None takes one named label, class, target or y, unless there are targets.
        targets: columns of numbers to predict.
        drop: columns that are not read.
        numeric: columns of whole numbers that differ in every row and are no ids.
        ranges: whether ranges and categories are read from the records, which must then be public.
        progress: called with (rows read, 0).

    Raises:
        InputError: the table is missing, damaged or empty, a column is not there, nothing is to be predicted, or a
            column is nearly unique, as names and ids are.
    """
    table = open_rows(source)
    given = {"label": [] if label is None else [label], "target": targets, "drop": drop, "numeric": numeric}
    for role, columns_of_role in given.items():
        for column in columns_of_role:
            table.refuse_absent(role, column)
    if label is None and not targets:
        label = next((name for name in table.names if name.lower() in _PREDICTED and name not in drop), None)
    if label is None and not targets:
        raise InputError(f"{table.title}: which column is predicted? give --label or --target; it has {table.has}")
    read = [name for name in table.names if name not in drop]
    columns = {name: _Column(table, name) for name in read}
    rows = 0
    for block, _ in table.located([name for name in read if not _unread(table.kind(name))]):
        for name, cells in block.items():
            columns[name].add(cells)
        rows += len(next(iter(block.values())))
        if progress is not None:
            progress(rows, 0)
    if not rows:
        raise InputError(f"{table.title} has no rows; needed are a header and a row an example")
    facts: dict[str, Any] = dict.fromkeys(table.names, "drop")
    for name, seen in columns.items():
        if name == label:
            facts[name] = {"kind": "label", "values": seen.categories(_SAMPLE) if ranges else seen.flags}
        elif name in targets:
            facts[name] = {"kind": "target"}
        else:
            facts[name] = seen.declaration(ranges, name in numeric)
    return facts


def draft_text(facts: Mapping[str, Any], title: str) -> str:
    """A draft as YAML, one column a line, with a comment on what to complete."""
    lines = [f"{_inline(name)}: {_inline(declared)}" for name, declared in facts.items()]
    return _ABOUT.format(title=" ".join(title.split())) + "\n" + "\n".join(lines) + "\n"


def _inline(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=sys.maxsize, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _unread(kind: pa.DataType) -> bool:
    """Whether no schema reads a column of this type."""
    return is_nested(kind) or is_date(kind) or pa.types.is_null(kind) or pa.types.is_time(kind)


class _Column:
    """What cells of a column are, block by block, in memory for a bounded number of values."""

    def __init__(self, table: Records, name: str) -> None:
        self._table, self._name, self._kind = table, name, table.kind(name)
        self._numbers = self._texts = self._missing = 0
        self._whole, self._low, self._high = True, math.inf, -math.inf
        self._counts: Counter[str] = Counter()

    @property
    def flags(self) -> list[str] | None:
        """The two values of a column of booleans; None of any other one."""
        words = {word.lower() for word in self._counts}
        return list(FLAGS) if pa.types.is_boolean(self._kind) or words == {"false", "true"} else None

    def add(self, cells: pa.Array) -> None:
        """Look at a block."""
        counted = cells.value_counts()
        values, counts = counted.field(0).to_pylist(), counted.field(1).to_pylist()
        typed = is_number(self._kind) and not pa.types.is_boolean(self._kind)
        for value, count in zip(values, counts, strict=True):
            text = as_text(value)
            if is_missing(text):
                self._missing += count
                continue
            number = float(value) if typed else as_number(text) if is_number_text(text) else math.nan
            if math.isfinite(number):
                self._numbers += count
                self._whole &= number == math.floor(number)
                self._low, self._high = min(self._low, number), max(self._high, number)
            else:
                self._texts += count
            if text in self._counts or len(self._counts) < _MOST:
                self._counts[text] += count

    def declaration(self, ranges: bool, kept: bool) -> Any:
        """The column as a schema declares it, if it is one to learn from.

        Args:
            ranges: whether range and categories are those of the records.
            kept: whether whole numbers that all differ stay.
        """
        if not self._counts:
            return "drop"
        if self._numbers and not self._texts and self.flags is None:
            if self._whole and not kept:
                refuse_ids(self._name, max(self._counts.values()) == 1, self._numbers)
            ends = {"low": self._low, "high": self._high} if ranges and self._low < self._high else {}
            missing = {"fill": None} if self._missing else {}
            return {"kind": "numeric", "low": None, "high": None} | ends | missing
        if self._numbers > self._texts:
            refuse_stray_text(self._table, "column", self._name)
        self._refuse_names()
        if values := self.flags or (self.categories(_LISTED) if ranges else None):
            return {"kind": "category", "values": values}
        return {"kind": "category", "buckets": BUCKETS}

    def categories(self, most: int) -> list[str] | None:
        """All values in order, numbers by their size; None where there are more than `most`."""
        if self.flags is not None or len(self._counts) > most:
            return self.flags
        numbers = np.array([as_number(text) for text in self._counts])
        key = None if np.isnan(numbers).any() else as_number
        return sorted(self._counts, key=key)  # type: ignore[arg-type]  # of texts without a key

    def _refuse_names(self) -> None:
        present, single = self._numbers + self._texts, sum(count == 1 for count in self._counts.values())
        counted = sum(self._counts.values())
        if len(self._counts) > _FEW and 2 * single > counted:
            raise InputError(
                f"{self._name!r} has a value of its own in {single:,} of {present:,} rows, as names, ids and free text "
                f"have; leave it out with --drop {self._name}, or group it"
            )


def refuse_ids(name: str, different: bool, present: int) -> None:
    """Refuse a column of whole numbers that is likely to hold ids.

    Args:
        name: of the column.
        different: whether each row has another number.
        present: how many rows have one.

    Raises:
        InputError: they differ, in more than a few rows.
    """
    if different and present > _FEW:
        raise InputError(
            f"{name!r} has another whole number in each of {present:,} rows, as ids have; leave it out with --drop "
            f"{name}, or keep it with --numeric {name}"
        )
