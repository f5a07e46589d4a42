"""Whoever adds up the ballots, adds the noise and opens the answers."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from sfumato._random import RandomSource
from sfumato.voting.question import Answers, Question


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
            token: a name of this question with these ballots that tells nothing of them. Asked again under the same
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

    def assumptions(self) -> list[str]:
        """What a guarantee rests on with this tally, a sentence each."""
        ...
