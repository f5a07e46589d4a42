"""What a patient's visits come to: numbers that are generated with the static ones, and that visits are told by.

A decoder that tells visit after visit drifts: each visit goes with the one before, and the record as a whole goes with
nothing. So the record's mean, last, smallest and largest value of each column, and how often it is there, are drawn
first, all in one row, and each visit is told given them.
"""

import numpy as np

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema

OF_NUMBERS = 5
"""Numbers that a numeric column is summed up by; a categorical one has one."""


def summary_width(schema: Schema) -> int:
    """How many numbers sum up a record."""
    return OF_NUMBERS * len(schema.temporal_numeric) + len(schema.temporal_categorical)


def summaries(data: EHRDataset) -> np.ndarray:
    """Numbers that sum up each record, float64 [n, width]; NaN where a column is never there.

    Of each numeric column the mean, the last, the smallest and the largest value, and the share of visits that have
    one; of each categorical column that share.
    """
    starts, found = data.offsets[:-1], []
    for values, numeric in [(each, True) for each in data.numbers.T] + [(each, False) for each in data.codes.T]:
        there = ~np.isnan(values) if numeric else values >= 0
        count = np.add.reduceat(there.astype(np.float64), starts)
        parts = [count / data.lengths]
        if numeric:
            last = np.maximum.reduceat(np.where(there, np.arange(len(there)), 0), starts)
            parts += [
                np.add.reduceat(np.where(there, values, 0.0), starts) / np.maximum(count, 1),
                values[last],
                np.minimum.reduceat(np.where(there, values, np.inf), starts),
                np.maximum.reduceat(np.where(there, values, -np.inf), starts),
            ]
        found += [np.where(count > 0, part, np.nan) for part in parts]
    return np.column_stack(found)
