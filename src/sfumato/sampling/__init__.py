"""Who takes part: cohorts of users, and virtual clients made of them."""

from sfumato.sampling.fixed_size import FixedSizeSampling
from sfumato.sampling.poisson import PoissonSampling
from sfumato.sampling.sampler import Sampler
from sfumato.sampling.virtual_clients import Group, OwnClients, VirtualClients

__all__ = ["FixedSizeSampling", "Group", "OwnClients", "PoissonSampling", "Sampler", "VirtualClients"]
