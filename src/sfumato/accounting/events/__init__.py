"""What can be released, one kind of event a file."""

from sfumato.accounting.events.claims import ZCDP, ApproximateDP, NonPrivate, PureDP
from sfumato.accounting.events.clip_count import ClipCount
from sfumato.accounting.events.discrete_gaussian import DiscreteGaussian
from sfumato.accounting.events.event import Composition, Event, Repeated, Unknown, compose, event_from_json, terms
from sfumato.accounting.events.exponential import ExponentialMechanism
from sfumato.accounting.events.gaussian import Gaussian, combined_shift
from sfumato.accounting.events.joint import Joint, joint
from sfumato.accounting.events.laplace import DiscreteLaplace, Laplace
from sfumato.accounting.events.matrix import MatrixMechanism
from sfumato.accounting.events.min_separation import MinSeparation
from sfumato.accounting.events.mixture import MixtureOfGaussians
from sfumato.accounting.events.randomized_response import RandomizedResponse
from sfumato.accounting.events.sampled.cyclic import cyclic_poisson
from sfumato.accounting.events.sampled.sampling import Poisson, WithoutReplacement
from sfumato.accounting.events.sampled.truncated_poisson import TruncatedPoisson
from sfumato.accounting.events.selection import PrivateSelection
from sfumato.accounting.events.tree import TreeAggregation
from sfumato.accounting.events.vote import NoisyVote, VoteThreshold, honest_noise_std
from sfumato.accounting.events.vote_cost import VoteCostRelease

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
