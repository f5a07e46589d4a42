"""Who votes: what an agent says of the public queries, made of its own records alone."""

from typing import Protocol

import numpy as np


class Voter(Protocol):
    """Makes the vote of one agent at a time; agents do not see each other's records or votes."""

    def votes(self, agent: int) -> np.ndarray:
        """One agent's votes.

        Args:
            agent: its position among the agents.

        Returns:
            float [queries, classes], >= 0: a row adds up to at most 1. For several attributes: each in [0, 1].

        Raises:
            InputError: the agent's records are of no use; names the agent.
        """
        ...

    def fingerprint(self) -> str:
        """Digest of everything that decides the votes beside the agents' records, the queries and the settings."""
        ...
