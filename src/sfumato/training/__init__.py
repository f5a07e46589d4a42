"""The private-sum loop: plans, local training, checkpoints, several processes."""

from sfumato.training.average import MovingAverage
from sfumato.training.batched import BatchedTrainer
from sfumato.training.client import ClientData, LocalTraining, gather
from sfumato.training.contribution import Contribution, Share
from sfumato.training.distributed import Team
from sfumato.training.embedding_plan import EmbeddingPlan
from sfumato.training.evaluate import embed, evaluate
from sfumato.training.heads import HeadLoss, Loss, glorot_head
from sfumato.training.local import HEAD, ClientTrainer
from sfumato.training.loop import Cadence, Loop, PrivateSum, Progress
from sfumato.training.parameters import FlatParameters
from sfumato.training.plan import ContributionFactory, Measure, Plan, Rounds, default_delta
from sfumato.training.private_plan import PrivatePlan
from sfumato.training.run import Result
from sfumato.training.run_folder import RunFolder
from sfumato.training.schedule import Schedule
from sfumato.training.server import Server, ServerOptimizer

__all__ = [
    "HEAD",
    "BatchedTrainer",
    "Cadence",
    "ClientData",
    "ClientTrainer",
    "Contribution",
    "ContributionFactory",
    "EmbeddingPlan",
    "FlatParameters",
    "HeadLoss",
    "LocalTraining",
    "Loop",
    "Loss",
    "Measure",
    "MovingAverage",
    "Plan",
    "PrivatePlan",
    "PrivateSum",
    "Progress",
    "Result",
    "Rounds",
    "RunFolder",
    "Schedule",
    "Server",
    "ServerOptimizer",
    "Share",
    "Team",
    "default_delta",
    "embed",
    "evaluate",
    "gather",
    "glorot_head",
]
