"""What is asked of a tally, what it answers, and an agent's ballot: whole numbers only.

What is asked of a tally, and what it answers: whole numbers only, so that every tally opens the same.

Counts, noise and thresholds are whole numbers of lattice units, `units` of which make one vote. So noise and sums are
exact, the answers are the same on every machine, and no digit of a float reveals anything.

>>> question = Question(queries=2, classes=3, agents=5, units=4, noise_std=1.0)
>>> sums = np.array([[16, 4, 0], [8, 8, 4]])
>>> decide(question, sums, noise=np.array([[0, 1, 0], [0, 1, 2]])).labels.tolist()
[0, 1]

From an agent's votes to its ballot: whole numbers of lattice units, with a weight that is bounded here.

Unit: the agent; or one of its examples, which may change all of an agent's ballot (AE-DPFL), or 1/k of its weight for
each query (kNN-DPFL, whose units are a multiple of k, so that nothing is rounded).
Sensitivity: entries in [0, 1] that add up to at most 1 have an L2 norm of at most 1, and two such ballots differ by
at most sqrt(2). Votes for several attributes are scaled down to add up to tau at most, so both grow by sqrt(tau); those
of neighbours come with each neighbour's row scaled by itself, as one example needs. Votes are rounded down to units,
which keeps every one of these bounds.

>>> question = Question(queries=1, classes=3, agents=4, units=10, opens="counts", noise_std=1.0, attributes=2)
>>> ballot_of(question, "ward 3", np.array([[1.0, 1.0, 1.0]]))           # three attributes, of which two are paid for
array([[6, 6, 6]])
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from sfumato._check import InputError, one_of, positive, whole

Opens = Literal["label", "attributes", "counts"]
"""What of the noisy counts is opened: the class with the most votes, which attributes reach the cut, or all of them."""


NOT_ANSWERED = -1
"""The label of a query whose votes did not reach the threshold."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a tally, the same for all talliers. All of it is public.

    Attributes:
        queries: how many, >= 1.
        classes: or attributes; how many counts each query has, >= 2 (attributes: >= 1).
        agents: how many ballots there are, >= 2.
        units: lattice units of one whole vote, >= 1.
        opens: see `Opens`.
        noise_std: standard deviation, in votes, of the noise on every count that is accounted for, > 0.
        threshold: Confident-GNMax: a query is answered where its highest count, with noise of its own, reaches this
            many votes; None answers all.
        threshold_noise_std: standard deviation of that noise, in votes.
        max_answers: the first so many queries that reach the threshold are answered, and no more.
        cut: for attributes: true where the noisy count is at least so many votes.
        attributes: most attributes that one vote may weigh, where several can hold; None for one class a vote.
        one_hot: every row of a ballot is `units` for one class and 0 for the others, or all 0.
    """

    queries: int
    classes: int
    agents: int
    units: int
    opens: Opens = "label"
    noise_std: float
    threshold: float | None = None
    threshold_noise_std: float | None = None
    max_answers: int | None = None
    cut: float | None = None
    attributes: int | None = None
    one_hot: bool = False

    def __post_init__(self) -> None:
        one_of(get_args(Opens), opens=self.opens)
        whole(queries=self.queries, units=self.units)
        if self.agents < 2:
            raise InputError(
                f"a vote needs at least 2 agents, got {self.agents}: the answer of one is its own; divide the records "
                "among more agents"
            )
        if self.attributes is not None:
            whole(classes=self.classes, attributes=self.attributes)
        elif self.classes < 2:
            raise InputError(f"a vote needs at least 2 classes, got {self.classes}; with one there is nothing to ask")
        positive(
            noise_std=self.noise_std, remedy="a vote without noise is no private one; use a small noise_std to try"
        )
        if (self.opens == "attributes") != (self.cut is not None):
            raise InputError(f"opens=attributes needs a cut and nothing else does, got {self.opens}, cut={self.cut}")
        if self.attributes is None and self.opens == "attributes":
            raise InputError("opens=attributes needs attributes, the most that one vote may weigh; give it")
        if self.attributes is not None and (self.opens == "label" or self.one_hot):
            raise InputError("a vote for several attributes has no single winner; open attributes or counts")
        confident = (self.threshold, self.threshold_noise_std, self.max_answers)
        if all(each is None for each in confident):
            return
        if self.threshold is None or self.threshold_noise_std is None or self.max_answers is None:
            raise InputError("a threshold needs threshold_noise_std and max_answers; give all three, or none")
        if self.opens != "label":
            raise InputError(f"a threshold is for opens=label, got {self.opens}; leave the threshold out")
        positive(threshold_noise_std=self.threshold_noise_std)
        whole(max_answers=self.max_answers)
        if self.max_answers > self.queries:
            raise InputError(f"max_answers must be <= queries ({self.queries}), got {self.max_answers}")

    @property
    def most_units(self) -> int:
        """What a ballot weighs at most for one query."""
        return self.units * (self.attributes or 1)

    @property
    def noise_units(self) -> float:
        """The accounted noise on a count, in units."""
        return self.noise_std * self.units

    @property
    def threshold_noise_units(self) -> float:
        """The accounted noise on a highest count, in units; 0 without a threshold."""
        return (self.threshold_noise_std or 0.0) * self.units

    @property
    def threshold_units(self) -> int:
        """The least noisy highest count that is answered, in units."""
        assert self.threshold is not None
        return math.ceil(self.threshold * self.units)

    @property
    def cut_units(self) -> int:
        """The least noisy count of an attribute that holds, in units."""
        assert self.cut is not None
        return math.ceil(self.cut * self.units)

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


@dataclass(frozen=True)
class Added:
    """The noise that answers hold, which is more than is accounted for; in votes.

    Attributes:
        counts: std of the noise on every count.
        threshold: std of the noise on a highest count; None without a threshold.
        step: what counts and noise are whole multiples of.
    """

    counts: float
    threshold: float | None
    step: float


@dataclass(frozen=True)
class Answers:
    """What a tally opened. Public.

    Attributes:
        answered: bool [queries].
        labels: int64 [queries], `NOT_ANSWERED` where that is so; or bool [queries, attributes]; None for counts.
        counts: int64 [queries, classes] in units, with noise; only where the question opens them.
    """

    answered: np.ndarray
    labels: np.ndarray | None
    counts: np.ndarray | None = None


def decide(
    question: Question, sums: np.ndarray, noise: np.ndarray, threshold_noise: np.ndarray | None = None
) -> Answers:
    """The answers for these counts and this noise: what every tally must open, and nothing else.

    Args:
        question: what is asked.
        sums: int64 [queries, classes], the ballots added up; private.
        noise: int64 [queries, classes].
        threshold_noise: int64 [queries], where there is a threshold.

    Returns:
        the answers; of equal noisy counts the lowest class wins.
    """
    noisy = sums + noise
    everything = np.ones(question.queries, dtype=bool)
    if question.opens == "counts":
        return Answers(everything, None, noisy)
    if question.opens == "attributes":
        return Answers(everything, noisy >= question.cut_units)
    labels = noisy.argmax(axis=1)
    if question.threshold is None:
        return Answers(everything, labels)
    assert threshold_noise is not None
    assert question.max_answers is not None
    reached = sums.max(axis=1) + threshold_noise >= question.threshold_units
    answered = reached & (np.cumsum(reached) <= question.max_answers)
    return Answers(answered, np.where(answered, labels, NOT_ANSWERED))


def added(question: Question, ballots: Iterable[tuple[str, np.ndarray]]) -> np.ndarray:
    """The sum of all ballots, one at a time in memory; int64 [queries, classes], private.

    Raises:
        InputError: a ballot is not one for this question, an agent votes twice, or not all of them vote.
    """
    sums = np.zeros((question.queries, question.classes), dtype=np.int64)
    seen: set[str] = set()
    for agent, ballot in ballots:
        if agent in seen:
            raise InputError(f"agent {agent!r} votes twice; one ballot an agent")
        seen.add(agent)
        refuse_ballot(question, agent, ballot)
        sums += ballot
    if len(seen) != question.agents:
        raise InputError(f"{len(seen)} agents voted where {question.agents} were asked; ask again with all of them")
    return sums


def refuse_ballot(question: Question, agent: str, ballot: np.ndarray) -> None:
    """Refuse a ballot that is out of range: nothing bounds what it would reveal.

    Raises:
        InputError: it has another shape, is not of whole numbers, or weighs more than a vote.
    """
    shape = (question.queries, question.classes)
    if ballot.shape != shape or ballot.dtype.kind not in "iu":
        raise InputError(f"agent {agent!r}: a ballot is whole numbers {shape}, got {ballot.dtype} {ballot.shape}")
    wrong = (ballot < 0) | (ballot > question.units)
    if wrong.any():
        query, place = np.argwhere(wrong)[0].tolist()
        raise InputError(
            f"agent {agent!r}: its ballot has {int(ballot[query, place])} units for query {query}, and a vote is 0 to "
            f"{question.units} of them; cast it anew"
        )
    heavy = ballot.sum(axis=1) > question.most_units
    if heavy.any():
        query = int(np.flatnonzero(heavy)[0])
        raise InputError(
            f"agent {agent!r}: its ballot weighs {int(ballot[query].sum())} units for query {query}, and a vote weighs "
            f"{question.most_units} at most; cast it anew"
        )


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
