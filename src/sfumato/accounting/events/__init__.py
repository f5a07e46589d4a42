"""What can be released, one kind of event a file."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.accounting.events.claims import ZCDP, ApproximateDP, NonPrivate, PureDP
    from sfumato.accounting.events.correlated import MatrixMechanism, MinSeparation, TreeAggregation, cyclic_poisson
    from sfumato.accounting.events.discrete_gaussian import DiscreteGaussian
    from sfumato.accounting.events.event import Composition, Event, Repeated, Unknown, compose, event_from_json, terms
    from sfumato.accounting.events.gaussian import ClipCount, Gaussian, Joint, combined_shift, joint
    from sfumato.accounting.events.laplace import DiscreteLaplace, ExponentialMechanism, Laplace
    from sfumato.accounting.events.mixture import MixtureOfGaussians
    from sfumato.accounting.events.randomized_response import RandomizedResponse
    from sfumato.accounting.events.sampled import Poisson, TruncatedPoisson, WithoutReplacement
    from sfumato.accounting.events.selection import PrivateSelection
    from sfumato.accounting.events.votes import NoisyVote, VoteCostRelease, VoteThreshold, honest_noise_std

__all__ = [
    "ZCDP",
    "ApproximateDP",
    "ClipCount",
    "Composition",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "ExponentialMechanism",
    "Gaussian",
    "Joint",
    "Laplace",
    "MatrixMechanism",
    "MinSeparation",
    "MixtureOfGaussians",
    "NoisyVote",
    "NonPrivate",
    "Poisson",
    "PrivateSelection",
    "PureDP",
    "RandomizedResponse",
    "Repeated",
    "TreeAggregation",
    "TruncatedPoisson",
    "Unknown",
    "VoteCostRelease",
    "VoteThreshold",
    "WithoutReplacement",
    "combined_shift",
    "compose",
    "cyclic_poisson",
    "event_from_json",
    "honest_noise_std",
    "joint",
    "terms",
]
__getattr__, __dir__ = lazily(__name__)
