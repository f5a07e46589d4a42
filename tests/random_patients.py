"""A fixture of small random health records, for several folders of tests: `from random_patients import patients`."""

from collections.abc import Callable

import numpy as np
import pytest

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema, categorical, numeric

SCHEMA = Schema(
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
            schema=SCHEMA,
            ids=tuple(f"p{place}" for place in range(count)),
            static_numbers=age[:, None],
            static_codes=np.column_stack([rng.integers(0, 2, count), (rng.random(count) < ill).astype(int)]),
            offsets=offsets,
            times=times,
            numbers=numbers,
            codes=np.where(rng.random(visits) < 0.5, -1, rng.integers(0, 3, visits))[:, None],
        )

    return make
