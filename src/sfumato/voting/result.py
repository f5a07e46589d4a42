"""What a vote leaves, and what it cost on the votes that were cast, for the eyes of their owner."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sfumato._check import InputError
from sfumato.accounting import ReleasedCost, Statement
from sfumato.accounting.votes import DataDependentCost, threshold_cost, vote_cost
from sfumato.voting.plan import VotingSettings
from sfumato.voting.question import Added, Answers


@dataclass(frozen=True, eq=False)
class VotingResult:
    """What a vote leaves.

    Attributes:
        statement: what it cost whom.
        queries: int64 [queries], their positions in the pool; public.
        answers: what was opened for each of them; None where the run was stopped before.
        model: the student, in evaluation mode; None where none was trained.
        evaluation: of the answers and of the student, where the pool or a test has labels.
        finished: False if the run was asked to stop before its end.
        folder: the run's, or None.
        published: what the vote cost for the votes as they were cast, where the plan released it.
    """

    statement: Statement
    queries: np.ndarray
    answers: Answers | None
    model: nn.Module | None
    evaluation: dict[str, Any]
    finished: bool
    folder: Path | None
    published: ReleasedCost | None
    _plan: VotingSettings = field(repr=False)
    _sums: np.ndarray | None = field(repr=False)
    _added: Added = field(repr=False)

    def cost(self) -> DataDependentCost:
        """What the vote cost for the votes as they were cast: private itself, and never a statement's epsilon.

        Raises:
            InputError: the votes are no longer known, or all noisy counts were opened, whose cost is the same for all
                votes.
            Unknown: votes for several attributes have no such cost.
        """
        return cost_of(self._plan, self._sums, self.answers, self._added)


def cost_of(plan: VotingSettings, sums: np.ndarray | None, answers: Answers | None, added: Added) -> DataDependentCost:
    """The data-dependent cost of a vote.

    Args:
        plan: that ran.
        sums: float [queries, classes], the counts in votes before noise; private.
        answers: what was opened.
        added: the noise in it.

    Raises:
        InputError: as for `VotingResult.cost`.
    """
    if sums is None or answers is None:
        raise InputError(
            "the votes are known only to the process that counted them, and are deleted when the run ends; ask the "
            "result of the first fit"
        )
    if plan.opens == "counts":
        raise InputError("all noisy counts were opened, which costs the same for all votes; read the statement")
    threshold = plan.threshold_event()
    if threshold is None:
        return vote_cost(sums, plan.answer_event(), plan.adjacency, noise_std=added.counts, step=added.step)
    assert plan.threshold is not None
    asked = threshold_cost(sums, plan.threshold, threshold, plan.adjacency, noise_std=added.threshold, step=added.step)
    if not answers.answered.any():
        return asked
    return asked + vote_cost(
        sums[answers.answered], plan.answer_event(), plan.adjacency, noise_std=added.counts, step=added.step
    )
