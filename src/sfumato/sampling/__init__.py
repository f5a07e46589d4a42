"""Who takes part: cohorts of units, and virtual clients made of them."""

from sfumato._parts import Kinds
from sfumato.sampling.independent import CyclicPoisson, FixedSize, Poisson
from sfumato.sampling.limited import MinSeparation, ParticipationLog, Shuffled
from sfumato.sampling.sampler import Cohort, OwnClients, Sampler, VirtualClients

COHORTS = Kinds[Sampler](
    {
        "poisson": Poisson,
        "fixed_size": FixedSize,
        "shuffled": Shuffled,
        "cyclic_poisson": CyclicPoisson,
        "min_separation": MinSeparation,
    },
    number="size",
)
"""By the word that a plan's cohort may be given as; a new sampler is its class and its line here."""

__all__ = [
    "COHORTS",
    "Cohort",
    "CyclicPoisson",
    "FixedSize",
    "MinSeparation",
    "OwnClients",
    "ParticipationLog",
    "Poisson",
    "Sampler",
    "Shuffled",
    "VirtualClients",
]
