"""sfumato as a user runs it: `FedAvg(...).fit(...)` with a run folder, so ledger and checkpoints are part of a round.

The data set holds bytes, which are converted for each client in each round, and clients shuffle their records; the
other contenders get converted tensors and keep the order. `at_once` clients train in one batched operation.

The gate stands in the server's optimiser, which a user may supply: a round is timed from one server step to the next.
The round before `ready` is spent on the start; after it the parameters are set to those that everybody starts from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from workload import EMBEDDING, SETTINGS, Gate, config, mean_loss, network, raw_data, tensors

from sfumato import data, models
from sfumato.federated import FedAvg
from sfumato.training import RunOptions


class EndOfInput(Exception):
    """No further round is wanted."""


class Stepped(torch.optim.SGD):
    """SGD that waits at the gate after its step."""

    def __init__(self, parameters: list[torch.nn.Parameter], gate: Gate, initial: list[torch.Tensor]) -> None:
        super().__init__(parameters, lr=1.0)
        self._gate = gate
        self._initial = initial
        self._ready = False

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One server step, then wait."""
        super().step(closure)
        if not self._ready:
            for parameter, value in zip(self.parameters, self._initial, strict=True):
                parameter.data.copy_(value)
            self._ready = True
        if not self._gate.wait():
            raise EndOfInput

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The released parameters."""
        return [p for group in self.param_groups for p in group["params"]]


def main() -> None:
    """Run one plan until the input ends."""
    given = config()
    name = given["setting"]
    setting = SETTINGS[name]
    inputs, labels = raw_data(name)
    if name == "features":  # rows of a kept prefix are float32
        rows = tensors(name)[0].numpy().reshape(-1, *setting.image)
    else:
        rows = inputs.reshape(-1, 28, 28, 1)
    users = data.from_arrays(rows, labels.reshape(-1), np.repeat(np.arange(setting.clients), setting.records))
    reference = network(name)
    initial = [p.detach().clone() for p in reference.parameters()]
    if name == "lenet":
        backbone = models.lenet()
        shapes = [p.shape for p in backbone.parameters()]
        assert shapes == [p.shape for p in initial[:-1]], "sfumato's LeNet is no longer the one of workload.py"
    elif name == "features":
        backbone = torch.nn.Linear(setting.image[0], EMBEDDING)
    else:
        backbone = torch.nn.Flatten()
    gate = Gate()
    plan = FedAvg(
        rounds=10**6,
        cohort=setting.clients,
        clipping=setting.clip_norm,
        noise=setting.noise_multiplier,
        client={
            "epochs": setting.epochs,
            "batch_size": setting.batch,
            "learning_rate": setting.learning_rate,
            "momentum": 0.0,
            "at_once": given.get("at_once", 1),
        },
    )
    if given.get("plan"):
        plan = dataclasses.replace(plan, **given["plan"])
    evaluation = tensors(name)

    def make(parameters: list[torch.nn.Parameter]) -> Stepped:
        optimizer = Stepped(parameters, gate, initial)

        def loss() -> float:
            with torch.no_grad():
                for own, released in zip(reference.parameters(), optimizer.parameters, strict=True):
                    own.copy_(released)
            return mean_loss(reference, *evaluation)

        gate.loss = loss
        return optimizer

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EndOfInput):
        plan.fit(backbone, users, out=Path(folder) / "run", options=RunOptions(optimizer=make))


if __name__ == "__main__":
    main()
