"""The private-sum loop, plans of it, and what they are made of; knows neither users nor labels."""

from sfumato.training.contribution import Contribution
from sfumato.training.course import ModelBuilder
from sfumato.training.fit import TrainingPlan
from sfumato.training.loop import Cadence, Loop
from sfumato.training.moving_average import MovingAverage
from sfumato.training.opening import Opening
from sfumato.training.optimizers.optimizer import Optimizer, OptimizerName
from sfumato.training.plan import ContributionFactory, Plan, Rounds
from sfumato.training.plans.noise_comparison import NoiseCost
from sfumato.training.plans.private_plan import PrivatePlan
from sfumato.training.private_sum import PrivateSum
from sfumato.training.result import Result
from sfumato.training.schedule import Schedule
from sfumato.training.server import Server
from sfumato.training.supervised import Supervised, outputs
from sfumato.training.task import Task
from sfumato.training.told.callback import Callback, Stop
from sfumato.training.trainable import HEAD, Trainable

__all__ = [
    "HEAD",
    "Cadence",
    "Callback",
    "Contribution",
    "ContributionFactory",
    "Loop",
    "ModelBuilder",
    "MovingAverage",
    "NoiseCost",
    "Opening",
    "Optimizer",
    "OptimizerName",
    "Plan",
    "PrivatePlan",
    "PrivateSum",
    "Result",
    "Rounds",
    "Schedule",
    "Server",
    "Stop",
    "Supervised",
    "Task",
    "Trainable",
    "TrainingPlan",
    "outputs",
]
