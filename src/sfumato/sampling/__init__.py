"""Who takes part: cohorts of units, and virtual clients made of them."""

from sfumato.sampling.cohort import Cohort
from sfumato.sampling.fixed_size import FixedSizeSampling
from sfumato.sampling.poisson import PoissonSampling
from sfumato.sampling.sampler import Sampler
from sfumato.sampling.virtual_clients import OwnClients, VirtualClients

__all__ = ["Cohort", "FixedSizeSampling", "OwnClients", "PoissonSampling", "Sampler", "VirtualClients"]
