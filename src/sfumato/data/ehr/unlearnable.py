"""Records that can be read but of which a column is of no use: nothing can be learned from it, or it names people."""

import numpy as np

from sfumato._check import InputError
from sfumato.data.ehr.dataset import EHRDataset

FEW = 20
"""Categories, up to which a column is not taken for one of names, ids or free text."""


def refuse_unlearnable(records: EHRDataset) -> None:
    """Refuse a single patient, a column without a value, one with the same in every row, an outcome with one class.

    A column with one value that is missing in some rows passes: whether it is there tells something.

    Raises:
        InputError: with the column and the remedy.
    """
    if len(records) < 2:
        raise InputError(f"there is one patient, {records.ids[0]!r}; what several have in common needs at least two")
    schema = records.schema
    for part, columns, values in (
        ("patients", schema.static_numeric, records.static_numbers),
        ("patients", schema.static_categorical, records.static_codes),
        ("visits", schema.temporal_numeric, records.numbers),
        ("visits", schema.temporal_categorical, records.codes),
    ):
        for place, column in enumerate(columns):
            cells = values[:, place]
            present = cells[~np.isnan(cells)] if cells.dtype.kind == "f" else cells[cells >= 0]
            if not len(present):
                raise InputError(f"{column.name!r} has no value in {len(cells):,} {part}; leave the column out")
            if (present != present[0]).any():
                continue
            told = column.categories[int(present[0])] if column.kind == "categorical" else f"{present[0]:g}"
            if column.name == schema.outcome:
                raise InputError(
                    f"the outcome {column.name!r} is {told!r} for all {len(present):,} patients; take records with "
                    "both outcomes, or name no outcome"
                )
            if len(present) == len(cells) > 1:
                raise InputError(
                    f"{column.name!r} is {told!r} in all {len(cells):,} {part}, of which there is nothing to learn; "
                    "leave the column out"
                )


def refuse_nearly_unique(records: EHRDataset) -> None:
    """Refuse a column of names, ids or free text: one in which most categories are of one patient each.

    Raises:
        InputError: with the column and the remedy.
    """
    names = records.ids if records.subjects is None else records.subjects
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    whose = np.array([number[name] for name in names], np.int64)
    schema = records.schema
    for columns, codes, people in (
        (schema.static_categorical, records.static_codes, whose),
        (schema.temporal_categorical, records.codes, whose[records.owners]),
    ):
        for place, column in enumerate(columns):
            there = codes[:, place] >= 0
            pairs = np.unique(np.stack([codes[there, place], people[there]]), axis=1)
            single = int((np.bincount(pairs[0]) == 1).sum()) if pairs.size else 0
            if len(column.categories) > FEW and 2 * single > len(column.categories):
                raise InputError(
                    f"{column.name!r} has {len(column.categories):,} different texts, of which {single:,} are of one "
                    "patient each, as names, ids and free text are; name it in drop=, or group the texts"
                )
