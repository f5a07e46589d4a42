"""Voting: agents with private records answer public queries together, and a student learns from the answers.

Each name is imported when it is first asked for: a tallier imports from here, and starts without torch.
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
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
    from sfumato.voting.plan import AEDPFL, KNNDPFL
    from sfumato.voting.question import Answers, Question
    from sfumato.voting.run import VotingResult
    from sfumato.voting.student import StudentTraining
    from sfumato.voting.tally import ClearTally, Tally
    from sfumato.voting.trained import DANN

__all__ = [
    "AEDPFL",
    "DANN",
    "KNNDPFL",
    "Answers",
    "ClearTally",
    "DataDependentCost",
    "NotPrivate",
    "Question",
    "ReleasedCost",
    "StudentTraining",
    "Tally",
    "VoteSensitivity",
    "VotingResult",
    "release_cost",
    "release_renyi",
    "threshold_cost",
    "vote_cost",
]
__getattr__, __dir__ = lazily(__name__)
