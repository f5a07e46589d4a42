"""A step of DP-SGD with Opake: the clipped gradient of a function of one example (`torch.func`), noise, SGD."""

from __future__ import annotations

import dpsgd_models as models
import torch
from opake.dpsgd.clipping import clipped_grad
from opake.dpsgd.noise import gaussian_noise
from opake.random import key
from torch.func import functional_call
from workload import Gate, config


def main() -> None:
    """Steps until the input ends."""
    given = config()
    name, device = given["setting"], given["device"]
    model = models.model(name, device)
    inputs, targets = models.batch(name, device, given["times"])
    parameters = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}

    def loss_of_one(parameters: dict[str, torch.Tensor], one: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return models.losses(name, functional_call(model, parameters, (one[None],)), target[None])[0]

    gradient, clipping = clipped_grad(
        loss_of_one,
        clipping_norm=models.CLIP_NORM,
        normalize_by=float(len(inputs)),
        batch_argnums=(1, 2),
        microbatch_size=models.SETTINGS[name].micro * given["times"],
    )
    noise = models.NOISE_MULTIPLIER if given["noise"] else 0.0
    add_noise, noised = gaussian_noise(noise_multiplier=noise, key=key(0))

    def loss() -> float:
        with torch.no_grad():
            return models.losses(name, functional_call(model, parameters, (inputs,)), targets).mean().item()

    gate = Gate(loss)
    while gate.wait():
        found, clipping = gradient(parameters, inputs, targets, state=clipping)
        if noise:
            found, noised = add_noise(found, noised)
        for name_of, value in found.pytree.items():
            parameters[name_of].sub_(value, alpha=models.LEARNING_RATE)


if __name__ == "__main__":
    main()
