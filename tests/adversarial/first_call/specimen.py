"""What a user writes, and the table of specimens of it; models and values that they share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from adversarial.specimens import CLASSES, Loss, each

FEATURES = 6

Make = Callable[[], Tensor]
Kept = Callable[[Make], Tensor]
"""Gives what the first call made, or, of siblings, what every call would make."""

Value = Callable[[Tensor], Tensor]


@dataclass(kw_only=True)
class Turn:
    """What a custom loop has in hand for a micro-batch."""

    private: Any
    model: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer
    scheduler: Any
    index: int


def plain(turn: Turn, batch: tuple[Tensor, Tensor]) -> Tensor:
    return turn.loss(turn.model(batch[0]), batch[1])


@dataclass(kw_only=True)
class Code:
    """A user's objects, new for every training.

    Attributes:
        model: from [n, 6] to [n, 3].
        loss: one loss an example; for `fit` and the loop.
        collate, dataset: of the custom loop; the data set is made from inputs [n, 6] and labels [n].
        body: the inside of the custom loop: the losses of a micro-batch.
        rate: of the custom loop's scheduler, by the step.
    """

    model: nn.Module
    loss: Loss = each
    collate: Callable[[list[Any]], Any] | None = None
    dataset: Callable[[Tensor, Tensor], Any] = TensorDataset
    body: Callable[[Turn, Any], Tensor] = plain
    rate: Callable[[int], float] = lambda step: 1.0


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """One entry of the table.

    Attributes:
        name: what it keeps and where.
        ways: names of `adversarial.first_call.ways.WAYS`.
        build: makes the user's objects.
        couples: by what.
        expected: "refused"; "harmless", which must be accepted; or "stated": no look can be counted on to meet it.
        steps: of the training.
        micro_batch: of DP-SGD; None for all records at once.
        grows: what the weights are multiplied with after each step.
        measured: whether two trainings can be compared; not where each unit's own random numbers follow from its
            position.
    """

    name: str
    ways: tuple[str, ...]
    build: Callable[[], Code]
    couples: str
    expected: Literal["refused", "harmless", "stated"] = "refused"
    steps: int = 2
    micro_batch: int | None = None
    grows: float = 1.02
    measured: bool = True


SPECIMENS: dict[str, Specimen] = {}


def add(name: str, ways: tuple[str, ...], build: Callable[[], Code], couples: str, **options: Any) -> None:
    assert name not in SPECIMENS, name
    SPECIMENS[name] = Specimen(name=name, ways=ways, build=build, couples=couples, **options)


# What is kept: of records, or of shapes alone.


def mean(values: Tensor) -> Tensor:
    """Couples."""
    return values.detach().mean(dim=0)


def table(values: Tensor) -> Tensor:
    """Follows from the shape of one record."""
    return torch.linspace(-1, 1, values.shape[-1], dtype=values.dtype)


VALUES: dict[str, Value] = {"mean of the first call": mean, "table of shapes": table}


# Models.


def shifted(values: Tensor, by: Tensor) -> Tensor:
    return values + 3 * by.to(values.dtype).tanh()


class Model(nn.Module):
    """Two layers; what `kept` gives shifts the inputs.

    Args:
        value: what is kept, from the inputs.
        kept: the memory.
        when: the call is one that looks into the memory; other calls go on without.
    """

    def __init__(self, value: Value, kept: Kept, when: Callable[["Model", Tensor], bool] = lambda *_: True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.value, self.kept, self.when = value, kept, when

    def forward(self, values: Tensor) -> Tensor:
        if self.when(self, values):
            values = shifted(values, self.kept(lambda: self.value(values)))
        return self.two(self.one(values).tanh())


class Dense(nn.Module):
    """Two layers and something done to the inputs."""

    def __init__(self, before: Callable[[Any, Tensor], Tensor] = lambda model, values: values) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.before = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES), before

    def forward(self, values: Tensor) -> Tensor:
        return self.two(self.one(self.before(self, values)).tanh())


CENTRAL = ("fit", "loop")
LOOPS = ("loop", "lightning")
SOME = ("fit", "loop", "fedavg", "fedavg at once", "votes")
FEDERATED = ("fedavg", "fedavg at once", "fedsgd", "fedemb", "fedrecon", "fedrecon at once")
MANY = ("fit", "loop", "lightning", "frozen", *FEDERATED, "votes", "neighbours")
"""Ways of training."""
