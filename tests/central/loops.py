"""Custom loops on made-up records."""

import os
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from fitting import run_options
from sfumato.central import DPSGD

# Runs of a loop of one's own on made-up records.

STEPS = 6


def inputs() -> torch.Tensor:
    return torch.randn(300, 8, generator=torch.Generator().manual_seed(0))


def labels() -> torch.Tensor:
    return (inputs()[:, 0] > 0).long()


def records() -> TensorDataset:
    return TensorDataset(inputs(), labels())


def net(*, dropout: float = 0.2) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(dropout), nn.ReLU(), nn.Linear(16, 2))


def plan(**fields) -> DPSGD:
    return DPSGD(
        **{"steps": STEPS, "cohort.size": 64, "examples.micro_batch": 16, "noise.noise_multiplier": 1.0, "seed": 3}
        | fields
    )


def sgd(model: nn.Module, rate: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


def losses_of(model: nn.Module, batch) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def train(model=None, data=None, *, of=plan, optimizer=sgd, **options):
    """The usual loop; the model and the loop."""
    model = net() if model is None else model
    given = run_options(options)
    with of().open(model, optimizer(model), records() if data is None else data, **given) as private:
        for batch in private:
            private.backward(losses_of(model, batch))
    return model, private


@cache
def usual():
    """That of `train()`, once for all tests, which only look at it."""
    return train()


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def by_steps(private, model: nn.Module, behind) -> None:
    """Goes through all steps, and calls `behind()` behind each; where that is true it leaves."""
    for step in private.steps():
        for batch in step:
            private.backward(losses_of(model, batch))
        if behind():
            break


# The loop of the tests, in the processes of one run: main([FOLDER]).


def main(words: list[str]) -> int:
    """Train; the first process keeps the model."""
    torch.set_num_threads(1)
    folder = Path(words[0])
    model, _ = train(net(dropout=0.0), of=lambda: plan(steps=3), out=folder / "run")
    if int(os.environ["RANK"]) == 0:
        torch.save(model.state_dict(), folder / "model.pt")
    return 0
