"""A tally in this process: it sees every ballot, as whoever runs it does.

The noise is whole numbers (`mechanisms.discrete_gaussian`), as the ballots are, so the counts that are opened hide what
they should to the last digit.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from sfumato._random import RandomSource, Stream
from sfumato.mechanisms.discrete_gaussian import discrete_gaussian, lattice_variance
from sfumato.voting.question import Answers, Question, added, decide


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

    def assumptions(self) -> list[str]:
        return [
            "The votes are counted in the clear: whoever runs the tally sees each of them, and is trusted with them."
        ]


def _noise(stream: Stream, std_units: float, count: int) -> np.ndarray:
    return discrete_gaussian(stream, lattice_variance(std_units), count)
