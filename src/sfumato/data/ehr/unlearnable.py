"""Records that can be read but from which nothing can be learned; a fit refuses them before its first step."""

import numpy as np

from sfumato._check import InputError
from sfumato.data.ehr.dataset import EHRDataset


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
