"""Voting: agents with private records answer public queries together, and a student learns from the answers.

Each name is imported when it is first asked for: what a tallier needs lies in this room, and it starts without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    "Question",
    "StudentTraining",
    "Tally",
    "VotingResult",
]


def __getattr__(name: str) -> Any:
    """What this room makes public under this name."""
    if name in __all__:
        for module in ("question", "tally", "plan", "run", "student", "trained"):
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
