"""What a patient's visits come to: numbers that are generated with the static ones, and that visits are told by.

A decoder that tells visit after visit drifts: each visit goes with the one before, and the record as a whole goes with
nothing. So the record's mean, last, smallest and largest value of each column, and how often it is there, are drawn
first, all in one row, and each visit is told given them, and given what is still `needed` to come to them.
"""

import numpy as np
import torch
from torch import Tensor

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema

OF_NUMBERS = 5
"""Numbers that a numeric column is summed up by; a categorical one has one."""


def summary_width(schema: Schema) -> int:
    """How many numbers sum up a record."""
    return OF_NUMBERS * len(schema.temporal_numeric) + len(schema.temporal_categorical)


_FARTHEST = 4.0  # mean scores that are needed end here


def summaries(data: EHRDataset, scores: np.ndarray) -> np.ndarray:
    """Numbers that sum up each record, float64 [n, width]; NaN where a column is never there.

    Of each numeric column the share of visits that have a value, the mean score, and the last, the smallest and the
    largest value; of each categorical column that share.

    Args:
        data: the records.
        scores: float [visits, numeric columns], what stands for each value; anything where it is missing.
    """
    starts, found = data.offsets[:-1], []
    numbers = zip(data.numbers.T, scores.T, strict=True)
    for values, score in [*numbers, *((each, None) for each in data.codes.T)]:
        numeric = score is not None
        there = ~np.isnan(values) if numeric else values >= 0
        count = np.add.reduceat(there.astype(np.float64), starts)
        parts = [count / data.lengths]
        if numeric:
            last = np.maximum.reduceat(np.where(there, np.arange(len(there)), 0), starts)
            parts += [
                np.add.reduceat(np.where(there, score, 0.0), starts) / np.maximum(count, 1),
                values[last],
                np.minimum.reduceat(np.where(there, values, np.inf), starts),
                np.maximum.reduceat(np.where(there, values, -np.inf), starts),
            ]
        found += [np.where(count > 0, part, np.nan) for part in parts]
    return np.column_stack(found)


def aims(values: np.ndarray, schema: Schema, visits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What summaries ask for.

    Args:
        values: float64 [n, width], summaries.
        schema: of the records.
        visits: [n], how many there are.

    Returns:
        How often each column is to be there, float64 [n, numbers + categories], and the mean scores of numbers, float64
        [n, numbers]; 0 for a column that is never there.
    """
    numeric = OF_NUMBERS * len(schema.temporal_numeric)
    shares = np.concatenate([values[:, :numeric:OF_NUMBERS], values[:, numeric:]], axis=1)
    counts = np.round(np.nan_to_num(shares) * visits[:, None])
    return counts, np.nan_to_num(values[:, 1:numeric:OF_NUMBERS])


def needed(counts: Tensor, means: Tensor, told: Tensor, sums: Tensor, left: Tensor) -> Tensor:
    """What the visits that are left have to be like for a record to come to its summary, [..., numbers + columns].

    Args:
        counts, means: of `aims`, [..., columns] and [..., numbers].
        told: [..., columns], how often each was there so far.
        sums: [..., numbers], of the scores so far, 0 where there was none.
        left: [...], visits from here on, >= 1.

    Returns:
        The mean score of numbers that are still to come, then the share of visits at which each column is there.
    """
    rest = (counts - told).clamp_min(0.0)
    numbers = rest[..., : means.shape[-1]]
    mean = (counts[..., : means.shape[-1]] * means - sums) / numbers.clamp_min(1.0)
    mean = torch.where(numbers > 0, mean.clamp(-_FARTHEST, _FARTHEST), 0.0)
    return torch.cat([mean, (rest / left.clamp_min(1.0)[..., None]).clamp_max(1.0)], dim=-1)
