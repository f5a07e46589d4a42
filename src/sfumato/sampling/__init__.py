"""Who takes part: cohorts of units, and virtual clients made of them."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.sampling.independent import CyclicPoissonSampling, FixedSizeSampling, PoissonSampling
    from sfumato.sampling.limited import MinSeparationSampling, ParticipationLog, ShuffledEpochs
    from sfumato.sampling.sampler import Cohort, OwnClients, Sampler, VirtualClients

__all__ = [
    "Cohort",
    "CyclicPoissonSampling",
    "FixedSizeSampling",
    "MinSeparationSampling",
    "OwnClients",
    "ParticipationLog",
    "PoissonSampling",
    "Sampler",
    "ShuffledEpochs",
    "VirtualClients",
]
__getattr__, __dir__ = lazily(__name__)
