"""Who takes part: cohorts of units, and virtual clients made of them."""

from sfumato.sampling.cohort import Cohort
from sfumato.sampling.cyclic_poisson import CyclicPoissonSampling
from sfumato.sampling.fixed_size import FixedSizeSampling
from sfumato.sampling.min_separation import MinSeparationSampling
from sfumato.sampling.participation_log import ParticipationLog
from sfumato.sampling.poisson import PoissonSampling
from sfumato.sampling.sampler import Sampler
from sfumato.sampling.shuffled import ShuffledEpochs
from sfumato.sampling.virtual_clients import OwnClients, VirtualClients

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
