"""From an agent's votes to its ballot: whole numbers of lattice units, with a weight that is bounded here.

Unit: the agent; or one of its examples, which may change all of an agent's ballot (AE-DPFL), or 1/k of its weight for
each query (kNN-DPFL, whose units are a multiple of k, so that nothing is rounded).
Sensitivity: entries in [0, 1] that add up to at most 1 have an L2 norm of at most 1, and two such ballots lie at most
sqrt(2) apart. Votes for several attributes are scaled down to add up to tau at most, so both grow by sqrt(tau); those
of neighbours come with each neighbour's row scaled by itself, as one example needs. Votes are rounded down to units,
which keeps every one of these bounds.

>>> question = Question(queries=1, classes=3, agents=4, units=10, opens="counts", noise_std=1.0, attributes=2)
>>> ballot_of(question, "ward 3", np.array([[1.0, 1.0, 1.0]]))           # three attributes, of which two are paid for
array([[6, 6, 6]])
"""

import numpy as np

from sfumato._check import InputError
from sfumato.voting.question import Question

_SLACK = 1e-5  # of rounding in single precision, above a whole vote
_NUDGE = 1e-6  # of a unit: what is a whole number of units but for rounding stays one


def ballot_of(question: Question, agent: str, votes: np.ndarray) -> np.ndarray:
    """The ballot of an agent.

    Args:
        question: what is asked.
        agent: its name, for messages.
        votes: float [queries, classes].

    Returns:
        int64 [queries, classes].

    Raises:
        InputError: the votes have another shape, are not finite, or out of range.
    """
    votes = np.asarray(votes, dtype=np.float64)
    if votes.shape != (question.queries, question.classes):
        raise InputError(
            f"agent {agent!r}: votes must be [{question.queries}, {question.classes}], got {list(votes.shape)}"
        )
    wrong = ~((votes >= 0.0) & (votes <= 1.0 + _SLACK))
    if wrong.any():
        query, place = np.argwhere(wrong)[0].tolist()
        value = votes[query, place]
        what = "is not finite; does its model diverge? lower the learning rate" if not np.isfinite(value) else "is none"
        raise InputError(f"agent {agent!r}: its vote for query {query} must be in [0, 1], and {value:g} {what}")
    weight = votes.sum(axis=1)
    most = float(question.attributes or 1)
    heavy = weight > most * (1.0 + _SLACK)
    if question.attributes is None and heavy.any():
        query = int(np.flatnonzero(heavy)[0])
        raise InputError(
            f"agent {agent!r}: its vote for query {query} adds up to {weight[query]:g}, more than 1; divide by the sum"
        )
    scale = np.minimum(1.0, most / np.maximum(weight, most))[:, None]
    ballot = np.floor(np.minimum(votes * scale, 1.0) * question.units + _NUDGE).astype(np.int64)
    return _within(ballot, question.most_units)


def _within(ballot: np.ndarray, most: int) -> np.ndarray:
    """Take off what rounding may have put above the bound, from the largest entry."""
    over = ballot.sum(axis=1) - most
    rows = np.flatnonzero(over > 0)
    ballot[rows, ballot[rows].argmax(axis=1)] -= over[rows]
    return ballot
