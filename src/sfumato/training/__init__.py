"""The private-sum loop: plans, local training, checkpoints, several processes."""

from sfumato.training.contribution import Contribution, Share
from sfumato.training.flat_parameters import FlatParameters
from sfumato.training.loop import Cadence, Loop, PrivateSum, Progress
from sfumato.training.moving_average import MovingAverage
from sfumato.training.plan import ContributionFactory, Measure, Plan, Rounds
from sfumato.training.private_plan import PrivatePlan
from sfumato.training.run import Result
from sfumato.training.schedule import Schedule
from sfumato.training.server import Server, ServerOptimizer

__all__ = [
    "Cadence",
    "Contribution",
    "ContributionFactory",
    "FlatParameters",
    "Loop",
    "Measure",
    "MovingAverage",
    "Plan",
    "PrivatePlan",
    "PrivateSum",
    "Progress",
    "Result",
    "Rounds",
    "Schedule",
    "Server",
    "ServerOptimizer",
    "Share",
]
