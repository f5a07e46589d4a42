"""A step of a click model on batches of a table: plain with sparse gradients, or private, ours or Opacus's.

Every contender reads the same batches in the same order: ids follow Zipf's law, as in real columns.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from workload import Gate, config

COLUMNS, NUMBERS, RATE, CLIP_NORM, NOISE = 26, 13, 0.1, 1.0, 1.0


class Clicks(nn.Module):
    """26 columns of ids, 13 numbers, 4 × 598 ReLU, one output."""

    def __init__(self, rows: int, width: int, *, sparse: bool = False) -> None:
        super().__init__()
        each = rows // COLUMNS
        self.tables = nn.ModuleList(nn.Embedding(each, width, sparse=sparse) for _ in range(COLUMNS))
        steps: list[nn.Module] = []
        inputs = NUMBERS + COLUMNS * width
        for outputs in (598,) * 4:
            steps += [nn.Linear(inputs, outputs), nn.ReLU()]
            inputs = outputs
        self.network = nn.Sequential(*steps, nn.Linear(inputs, 1))

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """float [B, 13], int64 [B, 26] → [B]."""
        parts = [table(ids[:, column]) for column, table in enumerate(self.tables)]
        return self.network(torch.cat([numbers, *parts], dim=1)).squeeze(1)


def records(count: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, ids and clicks."""
    rng = np.random.default_rng(0)
    ids = np.minimum(rng.zipf(1.2, (count, COLUMNS)) - 1, 1 << 40) % (rows // COLUMNS)
    numbers = rng.normal(size=(count, NUMBERS)).astype(np.float32)
    return numbers, ids.astype(np.int64), (rng.random(count) < 0.3).astype(np.float32)


def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One an example."""
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def batches(held: tuple[np.ndarray, ...], size: int) -> Iterator[list[torch.Tensor]]:
    """Random ones, without end."""
    rng = np.random.default_rng(1)
    while True:
        places = rng.integers(0, len(held[0]), size)
        yield [torch.from_numpy(each[places]) for each in held]


def plain(model: Clicks, held: tuple[np.ndarray, ...], size: int) -> Callable[[], None]:
    """SGD on the mean loss, with sparse gradients of the tables."""
    optimizer, order = torch.optim.SGD(model.parameters(), RATE), batches(held, size)

    def step() -> None:
        numbers, ids, targets = next(order)
        optimizer.zero_grad()
        losses(model(numbers, ids), targets).mean().backward()
        optimizer.step()

    return step


def opacus(model: Clicks, held: tuple[np.ndarray, ...], size: int, *, ghost: bool) -> Callable[[], None]:
    """Opacus with per-example gradients, or with ghost clipping."""
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    sizes = {"noise_multiplier": NOISE, "max_grad_norm": CLIP_NORM, "expected_batch_size": size}
    sgd, order = torch.optim.SGD(model.parameters(), RATE), batches(held, size)

    class Mean(nn.Module):
        reduction = "mean"

        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            each = losses(outputs, targets)
            return each.mean() if self.reduction == "mean" else each

    criterion: Any = Mean()
    if ghost:
        wrapped: Any = GradSampleModuleFastGradientClipping(model, max_grad_norm=CLIP_NORM, use_ghost_clipping=True)
        optimizer: Any = DPOptimizerFastGradientClipping(sgd, **sizes)
        criterion = DPLossFastGradientClipping(wrapped, optimizer, criterion)
    else:
        wrapped, optimizer = GradSampleModule(model), DPOptimizer(sgd, **sizes)

    def step() -> None:
        numbers, ids, targets = next(order)
        optimizer.zero_grad()
        criterion(wrapped(numbers, ids), targets).backward()
        optimizer.step()

    return step


def ours(model: Clicks, held: tuple[np.ndarray, ...], size: int, tables: str, gate: Gate, micro: int | None) -> None:
    """`DPSGD.fit`, a step an order."""
    from sfumato.central import DPSGD
    from sfumato.data import examples_from_arrays
    from sfumato.training import Callback, RunOptions, Stop
    from sfumato.training.table_training import DeferredTables, DenseTables, SelectedTables

    kinds: dict[str, Any] = {
        "dense": DenseTables(),
        "deferred": DeferredTables(in_place=True),
        "adafest": SelectedTables(in_place=True),
    }

    class Turns(Callback):
        def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
            self.on_round({})

        def on_round(self, row: dict[str, Any]) -> None:
            if not gate.wait():
                raise Stop

    numbers, ids, targets = held
    plan = DPSGD(
        task="own",
        steps=100_000,
        cohort=size,
        clipping=CLIP_NORM,
        noise=NOISE,
        server={"learning_rate": RATE},
        tables=kinds[tables],
        examples={"micro_batch": micro},
    )
    plan.fit(model, examples_from_arrays((numbers, ids), targets), loss=losses, options=RunOptions(callbacks=[Turns()]))


def peak() -> float:
    """MiB of this process, at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Steps until the input ends."""
    given = config()
    mode, rows, size = given["mode"], given["rows"], given["batch"]
    torch.manual_seed(0)
    held = records(given["records"], rows)
    model = Clicks(rows, given["width"], sparse=mode == "plain")
    gate = Gate(peak)
    if mode in ("dense", "deferred", "adafest"):
        ours(model, held, size, mode, gate, given.get("micro"))
        os._exit(0)  # the end of the run would draw the noise of all rows
    step = plain(model, held, size) if mode == "plain" else opacus(model, held, size, ghost=mode == "opacus ghost")
    while gate.wait():
        step()


if __name__ == "__main__":
    main()
