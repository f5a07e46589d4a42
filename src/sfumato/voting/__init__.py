"""Voting: agents with private records answer public queries together, and a student learns from the answers."""

from sfumato.voting.ae_dpfl import AEDPFL
from sfumato.voting.knn_dpfl import KNNDPFL
from sfumato.voting.question import Answers, Question
from sfumato.voting.result import VotingResult
from sfumato.voting.student import StudentTraining
from sfumato.voting.tally import ClearTally, Tally
from sfumato.voting.voters.dann import DANN

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
