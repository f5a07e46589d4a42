"""Made-up health records, as functions and as a fixture."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Column, Schema, categorical, numeric

# Made-up ragged health records, in which columns hang together, and generators that are good or bad on purpose.

SCHEMA = Schema(
    id="patient",
    time="day",
    time_unit="days",
    static=(
        numeric("age"),
        categorical("sex", ["f", "m"]),
        categorical("died", ["no", "yes"]),
        categorical("clinic", ["north", "south", "west"]),
    ),
    temporal=(numeric("bili"), numeric("albumin"), numeric("weight"), categorical("stage", ["1", "2", "3", "4"])),
    outcome="died",
)


def records(n: int, seed: int) -> EHRDataset:
    """Fresh patients: the sicker, the older, the more visits, the higher bili and the lower albumin."""
    rng = np.random.default_rng(seed)
    sick = rng.normal(size=n)
    age = 50 + 6 * sick + 9 * rng.normal(size=n)
    male = rng.random(n) < 0.5
    died = sick + 0.6 * rng.normal(size=n) > 0.5
    lengths = 1 + rng.poisson(np.exp(1 + 0.3 * np.clip(sick, -2, 2)))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    owners = np.repeat(np.arange(n), lengths)
    gaps = rng.exponential(60, len(owners)) + 0.1
    gaps[offsets[:-1]] = 0
    times = np.cumsum(gaps)
    times -= np.repeat(times[offsets[:-1]], lengths)
    level = sick[owners]
    bili = np.exp(level + 0.3 * rng.normal(size=len(owners)))
    albumin = 3.5 - 0.4 * level + 0.2 * rng.normal(size=len(owners))
    weight = 70 + 12 * male[owners] + 5 * rng.normal(size=n)[owners] + rng.normal(size=len(owners))
    numbers = np.stack([bili, albumin, weight], 1)
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    stage = np.clip(np.round(2.5 + level + 0.5 * rng.normal(size=len(owners))), 1, 4).astype(int) - 1
    stage[rng.random(len(owners)) < 0.1] = -1
    age[rng.random(n) < 0.05] = np.nan
    return EHRDataset(
        schema=SCHEMA,
        ids=tuple(f"{seed}-{i}" for i in range(n)),
        static_numbers=age[:, None],
        static_codes=np.stack([male, died, rng.integers(0, 3, n)], 1).astype(int),
        offsets=offsets,
        times=times,
        numbers=numbers,
        codes=stage[:, None],
    )


def copied(data: EHRDataset, n: int, seed: int, noise: float = 0.0) -> EHRDataset:
    """A generator that memorises: training patients at random, with a little noise on every number."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(np.arange(n) % len(data))
    made = [one for start in range(0, n, len(data)) for one in rows[start : start + len(data)]]
    parts = [data.take([row]) for row in made]
    lengths = data.lengths[made]

    def blurred(values: np.ndarray, columns: tuple[Column, ...]) -> np.ndarray:
        found = values + noise * np.nanstd(values, 0) * rng.normal(size=values.shape)
        return np.where([column.whole for column in columns], np.round(found), found)

    return EHRDataset(
        schema=data.schema,
        ids=tuple(f"synthetic-{i:06}" for i in range(n)),
        static_numbers=blurred(np.concatenate([part.static_numbers for part in parts]), data.schema.static_numeric),
        static_codes=np.concatenate([part.static_codes for part in parts]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=np.concatenate([part.times * (1 + noise) for part in parts]),
        numbers=blurred(np.concatenate([part.numbers for part in parts]), data.schema.temporal_numeric),
        codes=np.concatenate([part.codes for part in parts]),
    )


def shuffled(data: EHRDataset, seed: int) -> EHRDataset:
    """A generator that draws each column by itself: every marginal is exact, and nothing hangs together."""
    rng = np.random.default_rng(seed)

    def apart(values: np.ndarray) -> np.ndarray:
        return np.stack([rng.permutation(column) for column in values.T], 1)

    return replace(
        data,
        ids=tuple(f"synthetic-{i:06}" for i in range(len(data))),
        static_numbers=apart(data.static_numbers),
        static_codes=apart(data.static_codes),
        numbers=apart(data.numbers),
        codes=apart(data.codes),
    )


# A fixture of small random health records, for several folders of tests: `from made_up_patients import patients`.

RANDOM_SCHEMA = Schema(
    id="patient",
    time="day",
    time_unit="days",
    static=(numeric("age"), categorical("sex", ["f", "m"]), categorical("died", ["no", "yes"])),
    temporal=(numeric("bili"), numeric("pulse", whole=True), categorical("stage", ["1", "2", "3"])),
    outcome="died",
)


@pytest.fixture(scope="session")
def patients() -> Callable[..., EHRDataset]:
    """Random patients: `patients(count, seed=0)`; values are missing at random, more so for the last column."""

    def make(count: int, seed: int = 0) -> EHRDataset:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, 9, count)
        visits, owners = int(lengths.sum()), np.repeat(np.arange(count), lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        steps = rng.choice([7.0, 14.0, 30.0], visits)
        times = np.cumsum(steps)
        times -= times[offsets[:-1]][owners]
        ill = rng.random(count)
        bili = np.round(np.exp(ill[owners] + 0.2 * rng.standard_normal(visits)), 1)
        pulse = np.round(70 + 20 * ill[owners] + 3 * rng.standard_normal(visits))
        numbers = np.where(rng.random((visits, 2)) < [0.1, 0.3], np.nan, np.column_stack([bili, pulse]))
        age = np.where(rng.random(count) < 0.1, np.nan, np.round(40 + 30 * ill))
        return EHRDataset(
            schema=RANDOM_SCHEMA,
            ids=tuple(f"p{place}" for place in range(count)),
            static_numbers=age[:, None],
            static_codes=np.column_stack([rng.integers(0, 2, count), (rng.random(count) < ill).astype(int)]),
            offsets=offsets,
            times=times,
            numbers=numbers,
            codes=np.where(rng.random(visits) < 0.5, -1, rng.integers(0, 3, visits))[:, None],
        )

    return make
