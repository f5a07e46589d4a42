"""What noisy votes cost on the votes that were cast: not for publishing, unless released with noise."""

from sfumato.accounting.votes.cost import DataDependentCost, NotPrivate, threshold_cost, vote_cost
from sfumato.accounting.votes.release import ReleasedCost, release_cost, release_renyi
from sfumato.accounting.votes.smooth_sensitivity import VoteSensitivity

__all__ = [
    "DataDependentCost",
    "NotPrivate",
    "ReleasedCost",
    "VoteSensitivity",
    "release_cost",
    "release_renyi",
    "threshold_cost",
    "vote_cost",
]
