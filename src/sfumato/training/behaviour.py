"""What a model and its loss compute, in some numbers: so that a run goes on only as itself.

A round that is repeated after a crash meets the same noise. If the model computes something else by then (another loss
of the same name, another activation at equal shapes, another rate of dropout), two sums leave under one noise, and
their difference without any. Names and shapes do not tell; numbers do: the losses, and the norms of their gradients in
every trained parameter, for made-up inputs at made-up weights. No record is read.

The numbers are kept in the checkpoint and compared, not hashed, so that none of them can lie at the edge of a rounding.
They are computed in double precision wherever the model can be run in it. There, other numbers of threads or another
library for matrices move them by some 1e-13, and 1e-8 is taken to be another model; in single precision 1e-3.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.guard.draws import seed_dropout, states
from sfumato.guard.trial import in_double
from sfumato.training.trainable import Trainable

ROWS = 4
"""Made-up examples that go through the model."""

_DOUBLE, _SINGLE = 1e-8, 1e-3

Behaviour = dict[str, Any]
"""JSON: "numbers", their "precision", and whether the model "draws" random numbers."""


def behaviour_of(trained: Trainable, losses: Callable[[nn.Module], Tensor]) -> Behaviour:
    """The numbers of a model.

    Args:
        trained: the model; a fresh copy of it is tried.
        losses: float [n], of a model in training mode, from inputs that `placeholder` gives.
    """
    weights = placeholder_weights(trained)
    for precision in ("double", "single"):
        model = trained.released_model(weights).train()
        names = set(trained.layout.names)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in names)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        try:
            with in_double(model) if precision == "double" else nullcontext():
                numbers, draws = _measured(lambda: losses(model), parameters, weights.device)  # noqa: B023
        except Exception:  # whatever the user's own forward raises where it is given what nobody has
            continue
        return {"numbers": numbers, "precision": precision, "draws": draws}
    return {"numbers": [], "precision": "none", "draws": True}


def placeholder_weights(trained: Trainable) -> Tensor:
    """Values for what is trained, float [size]: the same ones for the same shapes."""
    parts = [_weights(view, place) for place, view in enumerate(trained.views(trained.initial))]
    return torch.cat(parts).to(trained.initial)


def refuse_other(then: Behaviour, now: Behaviour, *, processes_then: int, processes_now: int) -> None:
    """Refuse to go on with a run that began as something else.

    Raises:
        InputError: tells what differs.
    """
    share = _DOUBLE if now["precision"] == "double" else _SINGLE
    one, other = (np.array(each["numbers"], np.float64) for each in (then, now))
    alike = then["precision"] == now["precision"] and one.shape == other.shape
    if not alike or not np.allclose(one, other, rtol=share, atol=0.0, equal_nan=True):
        raise InputError(
            "the model or its loss computes something else than when this run began (on made-up inputs): the same "
            "noise would be added to another sum, and their difference would have none; resume with the same code, or "
            "start a new run in another folder"
        )
    if now["draws"] and processes_then != processes_now:
        raise InputError(
            f"the model draws random numbers, which {processes_now} processes divide in another way than the "
            f"{processes_then} of this run: the same noise would be added to another sum; resume with {processes_then}"
        )


def _weights(like: Tensor, seed: int) -> Tensor:
    """Made-up weights of a size that lets signals through."""
    values = torch.randn(like.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if like.dim() < 2:  # a bias, or the scale of a norm layer
        return (1 + 0.1 * values).reshape(-1)
    return (values * (len(like) / like.numel()) ** 0.5).reshape(-1)


def _measured(
    losses: Callable[[], Tensor], parameters: Sequence[nn.Parameter], device: torch.device
) -> tuple[list[float], bool]:
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
            seed_dropout(0, device)
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            before = _generators(device)
            found = losses()
            draws = before != _generators(device)
            weights = 1.0 / torch.arange(1, len(found) + 1, device=found.device)  # so that examples do not cancel
            gradients = torch.autograd.grad((found * weights.to(found)).sum(), parameters, allow_unused=True)
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
    norms = [0.0 if gradient is None else float(gradient.double().norm()) for gradient in gradients]
    return [*found.detach().double().tolist(), *norms], draws


def _generators(device: torch.device) -> tuple[list[bytes], str, str]:
    of_torch = [state.numpy().tobytes() for state in states(device)]
    return of_torch, str(random.getstate()), str(np.random.get_state())  # noqa: NPY002
