"""Health records in memory: patients, what does not change about them, and their visits one after the other.

The privacy unit is what an id is of, `Schema.unit`. Where that is a stay, an admission or a record, `subjects` names
the patient of each, and a split keeps all of a patient's on one side.

>>> from sfumato.data.ehr.schema import Schema, categorical, numeric
>>> schema = Schema(
...     id="patient", time="day", time_unit="days", static=(categorical("died", ["no", "yes"]),),
...     temporal=(numeric("bili"),), outcome="died",
... )
>>> data = EHRDataset(
...     schema=schema, ids=("a", "b"), static_numbers=np.empty((2, 0)), static_codes=np.array([[1], [0]]),
...     offsets=np.array([0, 2, 3]), times=np.array([0.0, 7.0, 0.0]), numbers=np.array([[1.5], [np.nan], [2.0]]),
...     codes=np.empty((3, 0)),
... )
>>> data, data.lengths.tolist(), data.outcome().tolist(), data.take([1]).ids
(EHRDataset(2 patients, 3 visits, 1 static and 1 temporal columns), [2, 1], [1, 0], ('b',))
>>> replace(data, times=np.array([0.0, 0.0, 0.0]))
Traceback (most recent call last):
...
sfumato._check.InputError: patient 'a' has two visits at 0 days; merge them, or drop one
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato._check import InputError, between, whole
from sfumato._types import Stated
from sfumato.data.digest import digest_of
from sfumato.data.ehr.schema import Column, Schema
from sfumato.data.examples import read_only
from sfumato.data.inputs import positions
from sfumato.data.safeguards import refuse_twice
from sfumato.data.split import name_keys

LARGEST_WHOLE = 2.0**53
"""Up to here doubles hold every whole number."""


@dataclass(frozen=True, eq=False, repr=False)
class EHRDataset:
    """Patients and their visits. Build one with `ehr_from_tables`, `ehr_from_events` or a reader of a format.

    Attributes:
        schema: the columns, public.
        ids: [n], a name for each patient, or for each stay, admission or record.
        static_numbers: float64 [n, a], the numeric static columns in the schema's order; NaN = missing.
        static_codes: int32 [n, b], the categorical ones: a place among `Column.categories`; -1 = missing.
        offsets: int64 [n + 1]; the visits of patient i are rows offsets[i] : offsets[i + 1], at least one.
        times: float64 [visits], in the schema's unit since the patient's origin, ≥ 0, ascending within a patient.
        numbers: float64 [visits, c], the numeric temporal columns; NaN = missing.
        codes: int32 [visits, d], the categorical ones; -1 = missing.
        subjects: [n], the name of the patient behind each id; None where the id is that of the patient, or it is not
            known. The schema of records without them has no subject.
        assumptions: sentences on what is taken to be public about the records, for the statement.
        notes: lines about what was sorted, merged or left out while reading; they depend on the records and are not
            private.

    Raises:
        InputError: arrays do not fit each other, or a patient breaks one of these rules; it names the first.
    """

    schema: Schema
    ids: tuple[str, ...]
    static_numbers: np.ndarray
    static_codes: np.ndarray
    offsets: np.ndarray
    times: np.ndarray
    numbers: np.ndarray
    codes: np.ndarray
    subjects: tuple[str, ...] | None = None
    assumptions: tuple[Stated, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(self.ids))
        self._settle_subjects()
        schema, visits = self.schema, len(self.times)
        for name, shape, dtype in (
            ("static_numbers", (len(self.ids), len(schema.static_numeric)), np.float64),
            ("static_codes", (len(self.ids), len(schema.static_categorical)), np.int32),
            ("offsets", (len(self.ids) + 1,), np.int64),
            ("times", (visits,), np.float64),
            ("numbers", (visits, len(schema.temporal_numeric)), np.float64),
            ("codes", (visits, len(schema.temporal_categorical)), np.int32),
        ):
            given = np.asarray(getattr(self, name))
            if given.shape != shape:
                raise InputError(
                    f"{name} must have the shape {shape} of the ids, the times and the schema, got {given.shape}"
                )
            object.__setattr__(self, name, read_only(np.ascontiguousarray(given, dtype)))
        refuse_twice(self.ids, "patient")
        self._refuse_visits()
        for columns, values, owners in (
            (schema.static_numeric, self.static_numbers, None),
            (schema.temporal_numeric, self.numbers, self.owners),
        ):
            for place, column in enumerate(columns):
                self._refuse_numbers(column, values[:, place], owners)
        for columns, codes in (
            (schema.static_categorical, self.static_codes),
            (schema.temporal_categorical, self.codes),
        ):
            for place, column in enumerate(columns):
                wrong = (codes[:, place] < -1) | (codes[:, place] >= len(column.categories))
                if wrong.any():
                    raise InputError(
                        f"codes of {column.name!r} must be 0 … {len(column.categories) - 1}, or -1 for a missing "
                        f"value, got {int(codes[int(wrong.argmax()), place])}"
                    )

    def _settle_subjects(self) -> None:
        """Subjects are one an id, and named by the schema; a schema without them names none."""
        if self.subjects is None:
            object.__setattr__(self, "schema", replace(self.schema, subject=None))
            return
        object.__setattr__(self, "subjects", tuple(self.subjects))
        if self.schema.subject is None or len(self.subjects) != len(self.ids):
            raise InputError(
                f"subjects must be one for each of the {len(self.ids):,} ids, got {len(self.subjects):,} for the "
                f"column {self.schema.subject!r}; set the schema's subject, or leave subjects out"
            )

    def _refuse_visits(self) -> None:
        """Refuse a patient without visits, and times that are negative, not finite or not ascending."""
        if not len(self.ids):
            raise InputError("there are no patients; health records need at least one with a visit")
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.times) or (self.lengths < 0).any():
            raise InputError(
                f"offsets must ascend from 0 to the number of visits, {len(self.times)}, got {self.offsets[0]} … "
                f"{self.offsets[-1]}"
            )
        if not self.lengths.all():
            name = self.ids[int(self.lengths.argmin())]
            raise InputError(f"patient {name!r} has no visit; leave the patient out, or add the visits")
        unit = self.schema.time_unit
        wrong = ~np.isfinite(self.times) | (self.times < 0)
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"patient {self.ids[self.owners[row]]!r} has a visit at {self.times[row]:g} {unit}; times count from "
                "the patient's origin, finite and ≥ 0"
            )
        same = self.owners[1:] == self.owners[:-1]
        wrong = same & (np.diff(self.times) <= 0)
        if wrong.any():
            row = int(wrong.argmax())
            before, after = self.times[row], self.times[row + 1]
            name = self.ids[self.owners[row]]
            if before == after:
                raise InputError(f"patient {name!r} has two visits at {after:g} {unit}; merge them, or drop one")
            raise InputError(
                f"patient {name!r} has a visit at {after:g} {unit} behind one at {before:g}; sort the visits by time"
            )

    def _refuse_numbers(self, column: Column, values: np.ndarray, owners: np.ndarray | None) -> None:
        """Refuse numbers that are not finite, or not whole where the schema says so."""
        finite = np.nan_to_num(values, nan=0.0, posinf=0.5, neginf=0.5)
        wrong = np.isinf(values)
        if column.whole:
            wrong |= (finite != np.floor(finite)) | (np.abs(finite) > LARGEST_WHOLE)
        if wrong.any():
            row = int(wrong.argmax())
            name = self.ids[row if owners is None else owners[row]]
            wanted = "whole, as the schema says (or say whole: false there)" if column.whole else "finite"
            raise InputError(
                f"patient {name!r} has {column.name!r} = {values[row]:g}; numbers must be {wanted}, NaN where they are "
                "missing"
            )

    def __len__(self) -> int:
        """Patients."""
        return len(self.ids)

    def __repr__(self) -> str:
        """One line: patients, visits, columns."""
        return (
            f"EHRDataset({self.describe()}, {len(self.times):,} visits, {len(self.schema.static)} static and "
            f"{len(self.schema.temporal)} temporal columns)"
        )

    def describe(self) -> str:
        """How many records there are, of what, and of how many patients where these have several."""
        units = f"{len(self):,} {'patients' if self.schema.unit == 'patient' else self.schema.unit + 's'}"
        return units if self.subjects is None else f"{units} of {len(set(self.subjects)):,} patients"

    @property
    def lengths(self) -> np.ndarray:
        """Visits of each patient, int64 [n]."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> np.ndarray:
        """Whose each visit is, int64 [visits]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, rows: Sequence[int] | np.ndarray) -> "EHRDataset":
        """Some patients in the given order, each at most once.

        Raises:
            InputError: a position does not exist, or is there twice.
        """
        places = positions(rows, len(self), "rows", "patient")
        lengths = self.lengths[places]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        visits = np.arange(offsets[-1]) + np.repeat(self.offsets[places] - offsets[:-1], lengths)
        return replace(
            self,
            ids=tuple(self.ids[place] for place in places.tolist()),
            subjects=None if self.subjects is None else tuple(self.subjects[place] for place in places.tolist()),
            static_numbers=self.static_numbers[places],
            static_codes=self.static_codes[places],
            offsets=offsets,
            times=self.times[visits],
            numbers=self.numbers[visits],
            codes=self.codes[visits],
        )

    def split(self, share: float, seed: int) -> "tuple[EHRDataset, EHRDataset]":
        """Divide the patients at random: a patient more or less moves no other one, and has all records on one side.

        Args:
            share: of the second part, in (0, 1): each patient goes there with that probability, by a hash of the
                subject, or of the id where there is none.
            seed: public; not the seed of the training.

        Returns:
            what may be learned from, and what is held out; both keep the order of the whole.

        Raises:
            InputError: the share is out of range, or one part would be empty.
        """
        between(0, 1, ends="()", share=share)
        whole(seed=seed, at_least=0)
        people = self.ids if self.subjects is None else self.subjects
        held_out = name_keys(people, "patient", seed) < share
        if held_out.all() or not held_out.any():
            raise InputError(
                f"{len(set(people)):,} patients cannot be split with share={share:g} into two parts that both have "
                "some; take another share or seed, or more patients"
            )
        return self.take(np.flatnonzero(~held_out)), self.take(np.flatnonzero(held_out))

    def outcome(self) -> np.ndarray:
        """Whether the outcome's second category came true for each patient, int64 [n] of 0 and 1.

        Raises:
            InputError: the schema names no outcome, or it is missing for a patient.
        """
        name = self.schema.outcome
        if name is None:
            raise InputError("the schema names no outcome; name a static categorical column with two categories")
        place = [column.name for column in self.schema.static_categorical].index(name)
        values = self.static_codes[:, place].astype(np.int64)
        if (values < 0).any():
            raise InputError(
                f"the outcome {name!r} of patient {self.ids[int(values.argmin())]!r} is missing; fill it in or "
                "drop the patient"
            )
        return values

    def fingerprint(self) -> str:
        """SHA-256 of the schema and of every id and value."""
        arrays: list[Any] = [self.static_numbers, self.static_codes, self.offsets, self.times, self.numbers, self.codes]
        whose = (self.schema.unit, self.schema.subject, self.subjects)
        whose = () if whose == ("patient", None, None) else whose
        return digest_of(("health records", self.schema, self.ids, *whose), *arrays)

    def summary(self) -> list[str]:
        """Lines for people: the size of the data and what reading noticed. Not private."""
        return [repr(self)[len("EHRDataset(") : -1], *self.notes]
