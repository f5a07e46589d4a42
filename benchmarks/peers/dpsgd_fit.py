"""A step of `DPSGD.fit` on arrays: what a run does, with nothing of the user's in between.

Every example is in every batch, so that the work is that of the other contenders.
"""

from __future__ import annotations

from typing import Any

import dpsgd_models as models
import torch
from dpsgd_loop import STEPS
from workload import Gate, config

from sfumato.central import DPSGD
from sfumato.data import examples_from_arrays
from sfumato.training import Callback, RunOptions, Stop


class Turns(Callback):
    """Waits between two steps for the order to go on."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def _wait(self) -> None:
        if not self.gate.wait():
            raise Stop

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """All trials before the first step are over."""
        self._wait()

    def on_round(self, row: dict[str, Any]) -> None:
        """A step is done."""
        self._wait()


def main() -> None:
    """Steps until the input ends."""
    given = config()
    name, device = given["setting"], given["device"]
    model = models.model(name, device)
    inputs, targets = models.batch(name, "cpu", given["times"])
    plan = DPSGD(
        task="own",
        steps=STEPS,
        cohort=len(inputs),
        clipping=models.CLIP_NORM,
        noise=models.NOISE_MULTIPLIER if given["noise"] else 0.0,
        server={"learning_rate": models.LEARNING_RATE},
        examples={"micro_batch": models.SETTINGS[name].micro * given["times"]},
    )

    def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return models.losses(name, outputs, targets)

    data = examples_from_arrays(inputs.numpy(), targets.numpy())
    plan.fit(model, data, loss=losses, options=RunOptions(callbacks=[Turns(Gate())], device=device))


if __name__ == "__main__":
    main()
