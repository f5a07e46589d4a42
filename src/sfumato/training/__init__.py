"""The private-sum loop, plans of it, and what they are made of; knows neither users nor labels."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.training.cadence import Cadence, RunSettings
    from sfumato.training.contribution import Contribution, RoundContext, Task
    from sfumato.training.fit import ContributionFactory, ModelBuilder, Result, RunOptions
    from sfumato.training.loop import InitialRelease, Loop
    from sfumato.training.monitoring import Callback, Stop
    from sfumato.training.plan import NoiseCost, Plan
    from sfumato.training.private_sum import PrivateSum
    from sfumato.training.server import MovingAverage, NoiseLimited, Optimizer, OptimizerName, Schedule, Server
    from sfumato.training.supervised import Supervised, outputs
    from sfumato.training.trainable import HEAD, Trainable

__all__ = [
    "HEAD",
    "Cadence",
    "Callback",
    "Contribution",
    "ContributionFactory",
    "InitialRelease",
    "Loop",
    "ModelBuilder",
    "MovingAverage",
    "NoiseCost",
    "NoiseLimited",
    "Optimizer",
    "OptimizerName",
    "Plan",
    "PrivateSum",
    "Result",
    "RoundContext",
    "RunOptions",
    "RunSettings",
    "Schedule",
    "Server",
    "Stop",
    "Supervised",
    "Task",
    "Trainable",
    "outputs",
]
__getattr__, __dir__ = lazily(__name__)
