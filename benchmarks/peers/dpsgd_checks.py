"""What the checks of a run of 1,000 steps cost: a round is all of them, on the same model and data as the steps.

Before the first step, the self-check with 128 examples and a full micro-batch next to several others; while training,
at the steps that a run's key draws, one example of a real micro-batch by itself, and at half of them what a micro-batch
leaves behind, in two fresh processes. What it is compared with, the steps have.
"""

from __future__ import annotations

from collections.abc import Sequence

import dpsgd_models as models
import torch
import torch._dynamo  # two seconds, which every optimiser of torch takes, too
from torch import Tensor
from workload import Gate, config

from sfumato._random import RandomSource
from sfumato.guard import Recheck, due, self_check
from sfumato.per_example import Recording, covered

POOL, STEPS = 128, 1000
FEW = 4  # micro-batches of a step that are looked at, at most; of the first and the last step all


def main() -> None:
    """All checks of a run, until the input ends."""
    given = config()
    name, device = given["setting"], given["device"]
    model = models.model(name, device)
    inputs, targets = models.batch(name, device, given["times"])
    micro = min(models.SETTINGS[name].micro * given["times"], len(inputs))

    def losses(rows: tuple[Tensor, Tensor]) -> Tensor:
        return models.losses(name, model(rows[0]), rows[1])

    with Recording(covered(model), micro) as recording:
        found = losses((inputs[:micro], targets[:micro]))
        recording.backward(found)
    had = found.detach(), recording.squared_norms()
    gate = Gate(lambda: losses((inputs, targets)).mean().item())
    source, batches = RandomSource.from_seed(0), -(-len(inputs) // micro)
    while gate.wait():
        check = self_check(model, losses, (inputs[:POOL], targets[:POOL]))

        def measure(places: Sequence[int], check=check) -> tuple[Tensor, Tensor]:
            at = torch.tensor(list(places))
            with Recording(check.layers, len(at)) as recording:
                found = losses((inputs[at], targets[at]))
                recording.backward(found)
            return found.detach(), recording.squared_norms()

        recheck = Recheck(model, check)
        recheck.at_start(micro, measure)
        for step in range(STEPS):
            if not due(step, STEPS, source):
                continue
            if due(step, STEPS, source, seldom=True):
                recheck.refuse_memory(micro, measure, micro_batch=micro)
            for _ in range(batches if step in (0, STEPS - 1) else min(batches, FEW)):
                recheck.while_training(step, had, measure)


if __name__ == "__main__":
    main()
