"""What the tests of samplers with limits share: whole runs, and in which rounds a unit was."""

from collections.abc import Sequence

import numpy as np

from sfumato._random import RandomSource
from sfumato.sampling import CyclicPoissonSampling, MinSeparationSampling, ShuffledEpochs

Limited = CyclicPoissonSampling | MinSeparationSampling | ShuffledEpochs


def drawn(sampler: Limited, source: RandomSource) -> list[np.ndarray]:
    """The cohorts of all rounds, in order."""
    return [sampler.draw(sampler.population, index, source) for index in range(sampler.rounds)]


def patterns(cohorts: Sequence[np.ndarray], population: int) -> list[list[int]]:
    """The rounds of each unit, ascending."""
    found: list[list[int]] = [[] for _ in range(population)]
    for index, cohort in enumerate(cohorts):
        assert cohort.dtype == np.int64
        assert (np.diff(cohort) > 0).all()
        for unit in cohort.tolist():
            found[unit].append(index)
    return found


def keeps_its_promise(sampler: Limited, source: RandomSource) -> bool:
    """Whether every unit's rounds are allowed, in the whole run and in each beginning of it."""
    rounds_of = patterns(drawn(sampler, source), sampler.population)
    for rounds in range(1, sampler.rounds + 1):
        limits = sampler.participation(rounds)
        assert limits is not None
        if not all(limits.allows([index for index in each if index < rounds]) for each in rounds_of):
            return False
    return True
