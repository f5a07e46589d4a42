"""A step of DP-SGD with sfumato's engine: micro-batches, clipped sums into running totals, noise, SGD.

The totals start as the noise, so that the sum, the noise and the gradient are one piece of memory.
"""

from __future__ import annotations

import dpsgd_models as models
import torch
from workload import Gate, config

from sfumato.clipping.per_example import Recording, covered


def main() -> None:
    """Steps until the input ends."""
    given = config()
    name = given["setting"]
    model = models.model(name)
    inputs, targets = models.batch(name)
    micro = given.get("micro", models.SETTINGS[name].micro)
    noise = models.NOISE_MULTIPLIER * models.CLIP_NORM if given["noise"] else 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=models.LEARNING_RATE / len(inputs))
    layers = covered(model)
    parameters = Recording(layers).parameters
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    totals = [parameter.grad for parameter in parameters]
    gate = Gate(lambda: models.losses(name, model(inputs), targets).mean().item())
    while gate.wait():
        for total in totals:
            if noise:
                total.normal_(0.0, noise)
            else:
                total.zero_()
        for start in range(0, len(inputs), micro):
            part, wanted = inputs[start : start + micro], targets[start : start + micro]
            with Recording(layers, len(part)) as recording:
                recording.backward(models.losses(name, model(part), wanted))
            norms = recording.squared_norms().sqrt()
            recording.add_to(totals, (models.CLIP_NORM / norms).clamp(max=1.0))
        optimizer.step()


if __name__ == "__main__":
    main()
