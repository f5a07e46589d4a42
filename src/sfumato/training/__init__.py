"""The private-sum loop, plans of it, and what they are made of; knows neither users nor labels."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.training.contribution import Contribution, Task
    from sfumato.training.fit import ModelBuilder, Result, TrainingPlan
    from sfumato.training.initial_release import Opening
    from sfumato.training.loop import Cadence, Loop
    from sfumato.training.monitoring import Callback, Stop
    from sfumato.training.plan import ContributionFactory, Plan, Rounds
    from sfumato.training.private_plan import NoiseCost, PrivatePlan
    from sfumato.training.private_sum import PrivateSum
    from sfumato.training.server import MovingAverage, Optimizer, OptimizerName, Schedule, Server
    from sfumato.training.supervised import Supervised, outputs
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
__getattr__, __dir__ = lazily(__name__)
