"""Who takes part in a plan's rounds: fields, and the sampler that they name."""

import dataclasses
from dataclasses import dataclass
from typing import Literal, Self, get_args

from sfumato import _check
from sfumato.sampling import (
    CyclicPoissonSampling,
    FixedSizeSampling,
    MinSeparationSampling,
    PoissonSampling,
    Sampler,
    ShuffledEpochs,
)
from sfumato.training.plans.unused import refuse_unused

SamplingName = Literal["poisson", "fixed", "shuffled", "cyclic", "min_separation"]

_ONLY_FOR: dict[str, tuple[str, ...]] = {
    "reshuffle": ("shuffled",),
    "parts": ("cyclic",),
    **dict.fromkeys(("min_separation", "max_participations", "availability", "drop_out"), ("min_separation",)),
}
"""Fields that one kind of sampling reads."""


@dataclass(frozen=True, kw_only=True)
class Participants:
    """Fields that decide who takes part in a round.

    Attributes:
        sampling: "poisson" (independent coins), "fixed" (a cohort of exactly the planned size), "shuffled" (epochs in
            random order), "cyclic" (Poisson coins within parts that take turns) or "min_separation" (whoever has
            checked in and has not taken part for a while). Correlated noise needs one of the last three.
        reshuffle: shuffled: a new order for each epoch. One order for all keeps a unit's rounds an epoch
            apart, which costs less with correlated noise.
        parts: cyclic: how many parts take turns; None for as many as the noise has bands.
        min_separation: rounds between two participations of a unit, at least; None for as many as keep cohorts full.
        max_participations: rounds that a unit takes part in, at most; None for what the separation allows.
        availability: simulated probability that a unit has checked in; None for 1.
        drop_out: simulated probability that one that was chosen does not report; None for 0.
    """

    sampling: SamplingName = "poisson"
    reshuffle: bool = True
    parts: int | None = None
    min_separation: int | None = None
    max_participations: int | None = None
    availability: float | None = None
    drop_out: float | None = None

    def check_participants(self) -> None:
        """Refuse values of no use, and settings of another sampling than the chosen one.

        Raises:
            InputError: there is one.
        """
        _check.one_of(get_args(SamplingName), sampling=self.sampling)
        refuse_unused(self, "sampling", _ONLY_FOR)
        for name, least in {"parts": 1, "min_separation": 0, "max_participations": 1}.items():
            if getattr(self, name) is not None:
                _check.whole(at_least=least, **{name: getattr(self, name)})
        if self.availability is not None:
            _check.between(0.0, 1.0, ends="(]", availability=self.availability)
        if self.drop_out is not None:
            _check.between(0.0, 1.0, ends="[)", drop_out=self.drop_out)

    def with_participants(self, *, size: int, population: int, bands: int) -> Self:
        """The same with open limits decided: the widest separation that keeps cohorts full, a part for each band."""
        if self.sampling == "min_separation" and self.min_separation is None:
            return dataclasses.replace(self, min_separation=max(0, population // size - 1))
        if self.sampling == "cyclic" and self.parts is None:
            return dataclasses.replace(self, parts=bands)
        return self

    def participants(self, *, size: int, population: int, rounds: int) -> Sampler:
        """The sampler.

        Args:
            size: planned units a round.
            population: the public number of units.
            rounds: of the run.

        Raises:
            InputError: there is no such sampler.
        """
        match self.sampling:
            case "poisson":
                return PoissonSampling(sampling_rate=size / population, population=population)
            case "fixed":
                return FixedSizeSampling(size=size, population=population)
            case "shuffled":
                return ShuffledEpochs(size=size, population=population, rounds=rounds, reshuffle=self.reshuffle)
            case "cyclic":
                return CyclicPoissonSampling(size=size, population=population, parts=self.parts or 1, rounds=rounds)
            case "min_separation":
                return MinSeparationSampling(
                    size=size,
                    population=population,
                    min_separation=self.min_separation or 0,
                    max_participations=self.max_participations,
                    rounds=rounds,
                    availability=1.0 if self.availability is None else self.availability,
                    drop_out=self.drop_out or 0.0,
                )
