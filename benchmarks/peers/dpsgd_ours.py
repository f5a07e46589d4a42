"""A step of DP-SGD with sfumato's engine: micro-batches, clipped sums into running totals, noise, SGD.

The totals start as the noise, so that the sum, the noise and the gradient are one piece of memory. The noise is that of
a run: AES-256, on as many threads as torch uses.
"""

from __future__ import annotations

import itertools

import dpsgd_models as models
import torch
from workload import Gate, config

from sfumato._random import RandomSource
from sfumato.mechanisms import Gaussian
from sfumato.per_example import Recording, covered


def main() -> None:
    """Steps until the input ends."""
    given = config()
    name, device = given["setting"], given["device"]
    model = models.model(name, device)
    inputs, targets = models.batch(name, device, given["times"])
    micro = models.SETTINGS[name].micro * given["times"]
    mechanism = Gaussian(noise_multiplier=models.NOISE_MULTIPLIER if given["noise"] else 0.0)
    source = RandomSource.from_os()
    optimizer = torch.optim.SGD(model.parameters(), lr=models.LEARNING_RATE / len(inputs))
    layers = covered(model)
    parameters = Recording(layers).parameters
    total = torch.zeros(sum(parameter.numel() for parameter in parameters), device=device)
    totals = [
        part.view_as(parameter)
        for part, parameter in zip(
            total.split([parameter.numel() for parameter in parameters]), parameters, strict=True
        )
    ]
    for parameter, part in zip(parameters, totals, strict=True):
        parameter.grad = part
    gate = Gate(lambda: models.losses(name, model(inputs), targets).mean().item())
    for step in itertools.count():
        if not gate.wait():
            break
        mechanism.release(total.zero_(), scale=models.CLIP_NORM, round=step, source=source)
        for start in range(0, len(inputs), micro):
            part, wanted = inputs[start : start + micro], targets[start : start + micro]
            with Recording(layers, len(part)) as recording:
                recording.backward(models.losses(name, model(part), wanted))
            norms = recording.squared_norms().sqrt()
            recording.add_to(totals, (models.CLIP_NORM / norms).clamp(max=1.0))
        optimizer.step()


if __name__ == "__main__":
    main()
