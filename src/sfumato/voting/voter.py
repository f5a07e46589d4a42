"""Who votes: what an agent says of the public queries, made of its own records alone."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sfumato.guard.guard import at
from sfumato.guard.trial import Tolerance


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

    def trial(self, agent: int | None) -> np.ndarray:
        """What the user's module makes of one agent's records in a brief trial, before it becomes a vote.

        Args:
            agent: its position; None for public rows or placeholders in the place of an agent's records.

        Returns:
            float [k], the same k for all agents.
        """
        ...

    def fingerprint(self) -> str:
        """Digest of everything that decides the votes beside the agents' records, the queries and the settings."""
        ...


class Agents:
    """The guard's `Subject` of a vote: each agent's brief trial is its own.

    Args:
        voter: makes the votes.
    """

    kept = (
        "what an agent gives depends on which agents came before: the model keeps something of what it has seen (an "
        "attribute, a class, a list that all copies share, a count), so one agent could change the ballots of others; "
        "let forward depend on its inputs and the weights alone"
    )
    tolerance: Tolerance | None = None

    def __init__(self, voter: Voter) -> None:
        self._voter = voter

    def placeholders(self) -> None:
        """An agent of public rows or placeholders."""
        self._voter.trial(None)

    def outcomes(self, units: Sequence[int]) -> Tensor:
        """Trials of agents in turn, float64 [n, k]."""
        found = []
        for unit in units:
            at(unit)
            found.append(torch.from_numpy(self._voter.trial(unit)).double())
        at(None)
        return torch.stack(found)
