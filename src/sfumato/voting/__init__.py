"""Voting: agents with private records answer public queries together, and a student learns from the answers.

Each name is imported when it is first asked for: a tallier imports from here, and starts without torch.
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.voting.adaptation import DANN
    from sfumato.voting.data_dependent import (
        DataDependentCost,
        NotPrivate,
        ReleasedCost,
        VoteSensitivity,
        release_cost,
        release_renyi,
        threshold_cost,
        vote_cost,
    )
    from sfumato.voting.plan import AEDPFL, KNNDPFL, PublishedCost, Threshold
    from sfumato.voting.question import Answers, Question
    from sfumato.voting.run import VotingResult
    from sfumato.voting.student import StudentTraining
    from sfumato.voting.tally import ClearTally, Tally

__all__ = [
    "AEDPFL",
    "DANN",
    "KNNDPFL",
    "Answers",
    "ClearTally",
    "DataDependentCost",
    "NotPrivate",
    "PublishedCost",
    "Question",
    "ReleasedCost",
    "StudentTraining",
    "Tally",
    "Threshold",
    "VoteSensitivity",
    "VotingResult",
    "release_cost",
    "release_renyi",
    "threshold_cost",
    "vote_cost",
]
__getattr__, __dir__ = lazily(__name__)
