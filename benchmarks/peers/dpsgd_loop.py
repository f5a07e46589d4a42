"""A step of a training loop of one's own (`DPSGD.open`), over a data set of torch.

Every example is in every batch, so that the work is that of the other contenders. A step is all that a run does: the
draw, reading and putting together the examples, the engine, noise, the ledger, now and then a check, the optimiser.
"""

from __future__ import annotations

import os

import dpsgd_models as models
import torch
from torch.utils.data import Dataset
from workload import Gate, config

from sfumato.central import DPSGD

STEPS = 100_000  # more than are asked for


class Arrays(Dataset):
    """Examples of arrays, read by several places at once."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[place], self.targets[place]


def main() -> None:
    """Steps until the input ends."""
    given = config()
    name, device = given["setting"], given["device"]
    model = models.model(name, device)
    inputs, targets = models.batch(name, device, given["times"])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=models.LEARNING_RATE)
    plan = DPSGD(
        steps=STEPS,
        cohort=len(inputs),
        clipping=models.CLIP_NORM,
        noise=models.NOISE_MULTIPLIER if given["noise"] else 0.0,
        examples={"micro_batch": models.SETTINGS[name].micro * given["times"]},
    )

    def loss() -> float:
        with torch.no_grad():
            return models.losses(name, model(inputs), targets).mean().item()

    dataset = Arrays(*models.batch(name, "cpu", given["times"]))
    with plan.open(model, optimizer, dataset, workers=given.get("workers", 0)) as private:
        gate, process = None, os.getpid()
        for step in private.steps():
            for some, wanted in step:
                # All trials before the first step are over; those of steps to come are in processes of their own.
                if not private.trying and gate is None and os.getpid() == process:
                    gate = Gate(loss)
                    if not gate.wait():
                        return
                private.backward(models.losses(name, model(some.to(device)), wanted.to(device)))
            if gate is not None and not gate.wait():
                break


if __name__ == "__main__":
    main()
