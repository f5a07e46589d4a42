"""Who takes part: cohorts of units, and virtual clients made of them."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.sampling.limited import COHORTS, MinSeparation, ParticipationLog, Shuffled
    from sfumato.sampling.sampler import (
        Cohort,
        CyclicPoisson,
        FixedSize,
        Poisson,
        Sampler,
        SingleUserClients,
        VirtualClients,
    )

__all__ = [
    "COHORTS",
    "Cohort",
    "CyclicPoisson",
    "FixedSize",
    "MinSeparation",
    "ParticipationLog",
    "Poisson",
    "Sampler",
    "Shuffled",
    "SingleUserClients",
    "VirtualClients",
]
__getattr__, __dir__ = lazily(__name__)
