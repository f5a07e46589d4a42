"""Before the first step: what the model, the data and the loss say to some examples.

Shapes, targets, coupling, and the engine against autograd; whatever does not fit is refused by name.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato._check import InputError, first_line
from sfumato.central.augment import Augmentation, refuse_unfit
from sfumato.central.inputs import call
from sfumato.central.losses import LossPerExample, refuse_outputs
from sfumato.data import ExampleDataset, to_tensor
from sfumato.guard import Findings, SelfCheck, examples_first, self_check
from sfumato.models.check import failing_layer
from sfumato.per_example import Recording
from sfumato.training import Trainable

_POOL = 128  # examples of which the self-check chooses some
_USUAL = 1e12  # of targets in the first look: beyond it a loss of a power of them may leave single precision

Losses = Callable[[tuple[Tensor, ...], Tensor | None], Tensor]
"""From inputs and targets (None where there are none) to one loss an example, as the contribution computes it."""


def tensors(
    data: ExampleDataset, examples: np.ndarray, device: torch.device
) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """Inputs and targets of some examples, for the model and the loss."""
    inputs, targets = data.examples(examples)
    read = tuple(to_tensor(each).to(device) for each in inputs)
    return read, None if targets is None else torch.from_numpy(targets).to(device)


def placeholders_first(trained: Trainable, data: ExampleDataset, losses: Losses, device: torch.device) -> Findings:
    """Compare examples in two orders in fresh processes, and let placeholders be the first that go through here."""
    return examples_first(trained.model, _afresh(trained, losses), tensors(data, spread(data, _POOL), device))


def _afresh(trained: Trainable, losses: Losses) -> Callable[[Any], Tensor]:
    """The losses of a pool's rows, as the contribution computes them."""

    def afresh(rows: Any) -> Tensor:
        trained.forget()  # as before each micro-batch of a step
        # each pass gets inputs of its own: a model may work on them in place
        return losses(tuple(each.clone() for each in rows[0]), rows[1])

    return afresh


def first_look(
    trained: Trainable,
    data: ExampleDataset,
    loss: LossPerExample,
    losses: Losses,
    augmentation: Augmentation,
    device: torch.device,
    findings: Findings,
) -> SelfCheck:
    """What the self-check found when examples from all over the data went through the model.

    Raises:
        InputError: inputs that the model does not take, targets that its outputs do not fit, examples that are coupled,
            a parameter that no layer covers, a gradient that autograd finds otherwise.
    """
    model = trained.model
    pool = tensors(data, spread(data, _POOL), device)
    inputs = tuple(each[:2] for each in pool[0])
    refuse_unfit(augmentation, inputs)
    was_training = model.training
    shape = " and ".join(f"{tuple(x.shape[1:])} {str(x.dtype).removeprefix('torch.')}" for x in inputs)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            with failing_layer(model, shape):
                outputs = call(model, [each.clone() for each in inputs], data.input_names)
            with failing_layer(model, f"{shape} of a single example"):  # a step may draw one
                call(model, [each[:1].clone() for each in inputs], data.input_names)
    finally:
        model.train(was_training)
    refuse_outputs(loss, outputs, data, len(inputs[0]))
    return looked_at(trained, _afresh(trained, losses), pool, findings)


def looked_at(
    trained: Trainable, losses: Callable[[Any], Tensor], pool: Any, findings: Findings, *, double: bool = True
) -> SelfCheck:
    """The self-check on some examples, and what else has to be known of the parameters.

    Args:
        trained: the model.
        losses: from rows of the pool to one loss an example; begins as a micro-batch of a step does.
        pool: examples, as `self_check` takes them.
        findings: of `examples_first`.
        double: whether to try the model in double precision.

    Raises:
        InputError: coupled examples, a parameter that no layer covers, a gradient that autograd finds otherwise.
    """
    try:
        check = self_check(trained.model, losses, pool, double=double, findings=findings)
    except RuntimeError as error:
        in_place = "inplace" in str(error)
        remedy = "work on a copy there (x = x + 1, not x += 1)" if in_place else "see that it trains without privacy"
        raise InputError(f"the backward pass of the model fails ({first_line(error)}); {remedy}") from error
    if check.unused:
        warnings.warn(
            f"{len(check.unused)} trained parameters have no gradient and only collect noise ({check.unused[0]}); "
            "freeze them",
            stacklevel=3,
        )
    seen = {id(parameter) for parameter in Recording(check.layers).parameters}
    for name, parameter in zip(trained.layout.names, trained.parameters, strict=True):
        if id(parameter) not in seen:
            raise InputError(f"parameter {name} belongs to no layer that is covered; freeze it")
    return check


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many of the places 0 … count − 1 at equal distances, int64."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))


def spread(data: ExampleDataset, count: int) -> np.ndarray:
    """Places of at most so many examples at equal distances, those without wild numbers if there are any."""
    places = evenly(len(data), count)
    inputs, targets = data.examples(places)
    usable = np.logical_and.reduce([np.isfinite(each.reshape(len(each), -1)).all(axis=1) for each in inputs])
    if targets is not None:
        usable &= (np.abs(targets.reshape(len(places), -1)) <= _USUAL).all(axis=1)
    return places[usable] if usable.any() else places
