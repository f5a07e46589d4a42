"""A step of ordinary training: forward, backward, SGD."""

from __future__ import annotations

import dpsgd_models as models
import torch
from workload import Gate, config


def main() -> None:
    """Steps until the input ends."""
    given = config()
    name, device = given["setting"], given["device"]
    model = models.model(name, device)
    inputs, targets = models.batch(name, device, given["times"])
    optimizer = torch.optim.SGD(model.parameters(), lr=models.LEARNING_RATE)
    gate = Gate(lambda: models.losses(name, model(inputs), targets).mean().item())
    while gate.wait():
        optimizer.zero_grad()
        models.losses(name, model(inputs), targets).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
