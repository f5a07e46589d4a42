"""Trivial baselines, and how much better than one a model is, with the uncertainty of the test data.

A baseline reads no input: the most frequent class, the mean, the frequencies of tokens. It is computed from the test
data alone, so that it costs no one in the training data anything; a constant is the best one for these test data, which
no model can have known.

The gain is the mean difference on the same test data, positive where the model is better. Its interval holds 95 % of
the time for test data of which the units (examples, or users with all their records) are drawn independently:
Student's t over units, of a ratio of sums where units differ in size. It says nothing of another training run.

These numbers are computed from the test data without noise: they are not private.

References:
    Cochran: Sampling Techniques, chapter 6 (the variance of a ratio of sums). 1977.
    Hanley, McNeil: The Meaning and Use of the Area under a ROC Curve. 1982 (the variance of an area of ½).

>>> [round(end, 3) for end in mean_gain(np.array([1.0, 0.0, 2.0, 1.0]))]
[1.0, -0.299, 2.299]
>>> [round(end, 3) for end in mean_gain(np.array([3.0, 0.0, 2.0]), things=np.array([6, 2, 3]))]
[0.455, -0.093, 1.002]
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sfumato._lazy import scipy

CONSTANT = "constant"
RANDOM = "random"
UNTRAINED = "untrained"

DESCRIBED = {
    CONSTANT: "a constant prediction",
    RANDOM: "random answers",
    UNTRAINED: "the model before training",
    "unigram": "the frequencies of single tokens",
    "bigram": "the frequencies of pairs of tokens",
    "user mean": "the mean of each user's other records",
}
"""What sentences call a baseline: its name in evaluation.json → words."""

_UPPER = 0.975  # quantile of an interval of 95 %

Gain = tuple[float, float, float]
"""A gain, and the lower and the upper end of its interval."""


def mean_gain(gains: np.ndarray, things: np.ndarray | None = None) -> Gain | None:
    """The mean gain with its interval.

    Args:
        gains: how much better the model is on each unit, summed over the unit's things; float [units].
        things: how many things each unit has, [units]; None for one each.

    Returns:
        the gain a thing with its interval; None for fewer than two units, or where one of the three is not finite.
    """
    sizes = np.ones(len(gains)) if things is None else np.asarray(things, np.float64)
    units = int((sizes > 0).sum())
    error = standard_error(gains, sizes)
    if error is None:
        return None
    mean = float(np.sum(gains) / sizes.sum())
    return _finite(mean, t_quantile(units) * error)


def t_quantile(units: float) -> float:
    """How many standard errors an interval of 95 % reaches for so many units, more than one, by Student's t."""
    return float(scipy.special.stdtrit(units - 1, _UPPER))


def standard_error(sums: np.ndarray, things: np.ndarray) -> float | None:
    """The standard error of a mean over things that belong to units, `sums` [units] being those over a unit's things.

    Returns:
        None for fewer than two units that have things, or where it or a sum is not finite.
    """
    totals, sizes = np.asarray(sums, np.float64), np.asarray(things, np.float64)
    units = int((sizes > 0).sum())
    if units < 2 or not np.isfinite(totals).all():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float(((totals - totals.sum() / sizes.sum() * sizes) ** 2).sum()) * units / (units - 1)
    return math.sqrt(spread) / float(sizes.sum()) if math.isfinite(spread) else None


def root_gain(gain: Gain | None, model: float, baseline: float) -> Gain | None:
    """A gain of mean squares as one of their roots, which are the model's and the baseline's."""
    if gain is None or model + baseline == 0:
        return None
    mean, low, high = (end / (model + baseline) for end in gain)
    return mean, low, high


def area_gain(area: float | None, positive: int, negative: int) -> Gain | None:
    """An area under the ROC curve next to ½, with the interval that scores without information have."""
    if area is None or not positive or not negative:
        return None
    reach = float(scipy.special.ndtri(_UPPER)) * math.sqrt((positive + negative + 1) / (12 * positive * negative))
    return area - 0.5, area - 0.5 - reach, area - 0.5 + reach


def compared(measures: Mapping[str, float], gains: Mapping[str, Gain | None]) -> dict[str, Any]:
    """A baseline as a model's row in evaluation.json has it: its finite measures, and the model's "gain" by measure."""
    known = {name: value for name, value in measures.items() if not isinstance(value, float) or math.isfinite(value)}
    return {**known, "gain": {name: list(gain) for name, gain in gains.items() if gain is not None}}


def untrained_gain(trained: Mapping[str, Any], untrained: Mapping[str, Any], measure: str, better: int) -> Gain | None:
    """How much better a model is than before it was trained, where each row has a "standard_error" of the measure.

    The two are measured on the same data and taken as independent: errors of both that go together, as they mostly do,
    make the interval wider than it need be. It is Student's where both rows say how many units it rests on.

    Args:
        trained, untrained: their rows.
        measure: key of the rows; a slash leads into nested ones.
        better: 1 where more is better, -1 where less is.
    """
    values, errors = [], []
    for row in (trained, untrained):
        value: Any = row
        for part in measure.split("/"):
            value = value.get(part) if isinstance(value, Mapping) else None
        error = row.get("standard_error", {}).get(measure)
        if value is None or error is None:
            return None
        values.append(float(value))
        errors.append(float(error))
    units = [row.get("error_units") for row in (trained, untrained)]
    fewest = None if None in units else min(int(each or 0) for each in units)
    return error_gain(better * (values[0] - values[1]), math.hypot(*errors), fewest)


def error_gain(gain: float, error: float | None, units: int | None = None) -> Gain | None:
    """A gain of which the standard error is known, with Student's interval for so many units, or a normal one."""
    if error is None or (units is not None and units < 2):
        return None
    quantile = float(scipy.special.ndtri(_UPPER)) if units is None else t_quantile(units)
    return _finite(gain, quantile * error)


def _finite(mean: float, reach: float) -> Gain | None:
    """An interval, if it is one."""
    ends = mean, mean - reach, mean + reach
    return ends if all(map(math.isfinite, ends)) else None
