"""Who counts the votes: the contract of a tally, and the one in this process."""

import math
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from sfumato._random import RandomSource, Stream
from sfumato._types import Assumption
from sfumato.mechanisms.discrete import discrete_gaussian, lattice_variance
from sfumato.voting.question import Answers, Question, added, decide

# The party that adds up the ballots, adds the noise and opens the answers.


class Tally(Protocol):
    """A tally: sees ballots, adds noise, opens what the question asks for and nothing else."""

    def open(
        self, question: Question, ballots: Iterable[tuple[str, np.ndarray]], *, source: RandomSource, token: str
    ) -> Answers:
        """Add up the ballots, and answer.

        Args:
            question: what is asked.
            ballots: each agent's name and its ballot, int64 [queries, classes] in units; one at a time.
            source: randomness of this question alone, for a tally in this process.
            token: a name of this question with these ballots that reveals nothing of them. Asked again under the same
                name, a tally gives the same answers and draws no fresh noise.

        Raises:
            InputError: a ballot is refused, or talliers cannot be reached or died; nothing was opened.
        """
        ...

    def added_noise(self, std_units: float) -> float:
        """The noise on a number that is opened, where this one is accounted for; std, both in units."""
        ...

    @property
    def seeded(self) -> bool:
        """Whether the noise that it added can be repeated by others than this run's own seed: simulation only."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Which one it is, for plan.json; public."""
        ...

    def assumptions(self) -> list[Assumption]:
        """What a guarantee rests on with this tally, a sentence each."""
        ...


# A tally in this process: it sees every ballot, as the one who runs it does.
#
# The noise is whole numbers (`mechanisms.discrete_gaussian`), as the ballots are, so the counts that are opened hide
# what they should to the last digit.


class ClearTally:
    """Adds up the ballots in the clear, one at a time; memory does not grow with the agents.

    >>> question = Question(queries=1, classes=3, agents=3, units=16, noise_std=0.5)
    >>> ballots = [(name, np.array([[0, 16, 0]])) for name in ("east", "west", "north")]
    >>> ClearTally().open(question, ballots, source=RandomSource.from_seed(0), token="a").labels.tolist()
    [1]
    """

    def open(
        self, question: Question, ballots: Iterable[tuple[str, np.ndarray]], *, source: RandomSource, token: str
    ) -> Answers:
        """See `Tally.open`; the same source gives the same noise."""
        sums = added(question, ballots)
        noise = _noise(source.stream("tally noise"), question.noise_units, sums.size).reshape(sums.shape)
        if question.threshold is None:
            return decide(question, sums, noise)
        of_threshold = _noise(source.stream("threshold noise"), question.threshold_noise_units, question.queries)
        return decide(question, sums, noise, of_threshold)

    def added_noise(self, std_units: float) -> float:
        return math.sqrt(lattice_variance(std_units))

    @property
    def seeded(self) -> bool:
        return False  # its noise is the run's, which knows

    def to_json(self) -> dict[str, Any]:
        return {"kind": "clear"}

    def assumptions(self) -> list[Assumption]:
        return [Assumption("clear_tally")]


def _noise(stream: Stream, std_units: float, count: int) -> np.ndarray:
    return discrete_gaussian(stream, lattice_variance(std_units), count)
