"""What silos show each other besides the backbone: parts of `PrivacyFace`.

Private clusters are the method; the others are what it is compared with.

>>> SHARING("private").threshold, SHARING("fedface").margin
(100, 0.9)

References:
    Meng, Zhou, Li, Wang, Cheng: Improving Federated Learning Face Recognition via Privacy-Agnostic Clusters. ICLR 2022.
    Aggarwal, Zhou, Jain: FedFace: Collaborative Learning of Face Recognition Model. IJCB 2021 (`SpreadOut`).
    Yu, Rawat, Menon, Kumar: Federated Learning with Only Positive Labels. ICML 2020 (its regulariser).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import Kinds


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """Silos share the backbone alone: federated averaging."""


@dataclass(frozen=True, kw_only=True)
class Directions:
    """Directions that the other silos take as negatives.

    Attributes:
        at: rounds in which they are released, from 1, before the silos train.
        loss_radius: angle around a negative within which it pushes no picture away (the paper's ρ); None takes the
            radius of a cap, 0 makes negatives classes like all others.
    """

    at: tuple[int, ...] = (1,)
    loss_radius: float | None = None

    def __post_init__(self) -> None:
        if not self.at or list(self.at) != sorted(set(self.at)):
            raise InputError(f"at must be rounds in ascending order, got {self.at}; for none take sharing=backbone")
        for each in self.at:
            _check.whole(at=each)
        if self.loss_radius is not None:
            _check.between(0.0, math.pi, ends="[)", loss_radius=self.loss_radius)


@dataclass(frozen=True, kw_only=True)
class ExactClusters(Directions):
    """Directions of dense caps without noise: no guarantee.

    Attributes:
        radius: of a cap, an angle in (0, π).
        threshold: centres from which on a direction is used, >= 1.
        releases: caps of each silo in each of the rounds `at`, >= 1.
        groups: k-means groups of the public people, whose directions are the candidates; 0 takes each person.
        dimensions: compare in so many principal directions of the public people; None compares in all.
    """

    radius: float = 1.4
    threshold: int = 100
    releases: int = 1
    groups: int = 16
    dimensions: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.between(0.0, math.pi, ends="()", radius=self.radius)
        _check.whole(threshold=self.threshold, releases=self.releases)
        _check.whole(at_least=0, groups=self.groups)
        if self.dimensions is not None:
            _check.whole(dimensions=self.dimensions)


@dataclass(frozen=True, kw_only=True)
class PrivateClusters(ExactClusters):
    """Directions of dense caps under a guarantee for each identity (`DPLC`).

    Attributes:
        epsilon: of one identity, what all clusters of the run cost, > 0.
        selection_share: of epsilon, what the choice of candidates costs, in (0, 1).
    """

    epsilon: float = 2.0
    selection_share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.positive(epsilon=self.epsilon)
        _check.between(0.0, 1.0, ends="()", selection_share=self.selection_share)


@dataclass(frozen=True, kw_only=True)
class NoisyCentres(Directions):
    """Every class centre with noise. How many there are shows who is there, so there is no guarantee for an identity.

    Attributes:
        epsilon: what it costs to exchange one identity's pictures for others, by which the noise is chosen; > 0.
    """

    epsilon: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.positive(epsilon=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class SpreadOut:
    """All class centres, which the server moves away from each other (FedFace): no guarantee.

    Attributes:
        weight: λ of the regulariser, > 0.
        margin: distance below which two centres are moved, in (0, 2].
        learning_rate: of the server's step on it, > 0.
    """

    weight: float = 10.0
    margin: float = 0.9
    learning_rate: float = 0.01

    def __post_init__(self) -> None:
        _check.positive(weight=self.weight, learning_rate=self.learning_rate)
        _check.between(0.0, 2.0, ends="(]", margin=self.margin)


@dataclass(frozen=True, kw_only=True)
class Expert:
    """One silo trains alone.

    Attributes:
        silo: which, from 0.
    """

    silo: int = 0

    def __post_init__(self) -> None:
        _check.whole(at_least=0, silo=self.silo)


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """All records in one place: what could be reached without silos."""


Sharing = PrivateClusters | Nothing | ExactClusters | NoisyCentres | SpreadOut | Expert | Pooled

SHARING = Kinds[Sharing](
    {
        "private": PrivateClusters,
        "backbone": Nothing,
        "exact": ExactClusters,
        "naive": NoisyCentres,
        "fedface": SpreadOut,
        "expert": Expert,
        "pooled": Pooled,
    }
)
"""What silos share besides the backbone, by its word."""
