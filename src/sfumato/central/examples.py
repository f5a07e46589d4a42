"""Examples of a data set under a model and a loss, as `DPSGD.fit` trains them.

An example may count by several augmentations: its gradient is that of the mean of their losses, and is clipped as one.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sfumato._check import InputError
from sfumato.central.augment import Augmentation, augmented
from sfumato.central.first_look import LossPerExample, first_look, placeholders_first, spread, tensors
from sfumato.central.gradients import GradientSum
from sfumato.central.inputs import call, in_order, refuse_names
from sfumato.central.loss_values import values_of
from sfumato.central.losses import cross_entropy
from sfumato.data import ExampleDataset
from sfumato.guard.placeholders import placeholder, placeholder_targets
from sfumato.models import refuse_no_values
from sfumato.per_example import covered
from sfumato.training import Trainable
from sfumato.training.behaviour import ROWS, Behaviour, behaviour_of
from sfumato.training.public_inputs import refuse_private_as_public

_BLOCK = 1 << 12
_BACK = 4  # examples that are looked at again and again
_MOST_CLASSES = 1 << 8  # made-up examples for a resume; with more classes, some of them

Rows = tuple[list[tuple[Tensor, ...]], Tensor | None]
"""The inputs of each augmentation, and the targets."""


class ExampleContribution(GradientSum):
    """Gradients of a data set's examples.

    Args:
        model: the user's module; a copy of it is trained.
        data: the records.
        loss: one loss an example.
        trainable: which parameters are trained; see `sfumato.models.trainable_parameters`.
        augmentation, copies: of pictures, and how many of each.
        micro_batch: examples at once; None measures how many fit into the memory budget.
        memory_budget: bytes; None for half of the free memory of a GPU, 512 MiB on a CPU.
        bfloat16: run the model's own arithmetic in that precision, by autocast.
        device: where to train.

    Raises:
        InputError: a layer that couples examples or cannot be covered, nothing to train, inputs that the model does
            not take, targets that its outputs do not fit.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        data: ExampleDataset,
        loss: LossPerExample = cross_entropy,
        trainable: str = "all",
        augmentation: Augmentation = "none",
        copies: int = 1,
        micro_batch: int | None = None,
        memory_budget: int | None = None,
        bfloat16: bool = False,
        device: str = "cpu",
    ) -> None:
        refuse_no_values(model)
        super().__init__(Trainable(model, trainable, device=device), len(data), torch.device(device))
        self.data = data
        self.copies = copies
        self._loss = loss
        self._augmentation: Augmentation = augmentation
        self._bfloat16 = bfloat16
        refuse_names(self.model, data.input_names)
        refuse_private_as_public(self.trained, self._inputs())
        covered(self.model)  # refuses layers by their kind, before anything runs
        findings = placeholders_first(self.trained, data, self._losses, self._device)
        self._take_reference(spread(data, _BACK))
        check = first_look(self.trained, data, loss, self._losses, augmentation, self._device, findings)
        self._begin(check, micro_batch=micro_batch, memory_budget=memory_budget, first=lambda most: spread(data, most))

    def read(self, examples: np.ndarray, key: int) -> Rows:
        """The inputs, augmented, and the targets."""
        inputs, targets = tensors(self.data, examples, self._device)
        return [self._augmented(inputs, examples, key, number) for number in range(self.copies)], targets

    def losses_of(self, rows: Rows) -> Tensor:
        """The mean of an example's augmentations: several uses of each weight, whose gradients a recording adds up."""
        views, targets = rows
        losses = []
        for number, inputs in enumerate(views):
            if number:
                self.trained.forget()
            losses.append(self._losses(inputs, targets))
        return losses[0] if self.copies == 1 else torch.stack(losses).mean(dim=0)

    def fingerprint(self) -> str:
        """Digest of the parameters' shapes, the loss and the data."""
        loss = getattr(self._loss, "__qualname__", type(self._loss).__qualname__)
        return f"{self.trained.shapes()} {loss} {values_of(self._loss)} {self.data.fingerprint()}"

    def behaviour(self) -> Behaviour:
        """Losses of made-up examples, one or more of every class: a loss may weigh one class, or leave one out."""
        classes = self.data.num_classes
        rows = ROWS if classes is None else max(ROWS, min(classes, _MOST_CLASSES))
        inputs, targets = tensors(self.data, np.zeros(rows, np.int64), self._device)  # for their shapes and types
        inputs = tuple(placeholder(each) for each in inputs)
        if classes is not None:
            targets = torch.linspace(0, max(classes, rows) - 1, rows, device=self._device).long() % classes
        elif targets is not None:
            targets = placeholder_targets(targets)
        return behaviour_of(self.trained, lambda model: self._losses(inputs, targets, model))

    def _inputs(self) -> Iterator[tuple[Tensor, ...]]:
        """All inputs, as the model gets them by position."""
        data, cpu = self.data, torch.device("cpu")
        for start in range(0, len(data), _BLOCK):
            examples = np.arange(start, min(start + _BLOCK, len(data)))
            yield in_order(self.model, tensors(data, examples, cpu)[0], data.input_names)

    def _augmented(self, inputs: tuple[Tensor, ...], examples: np.ndarray, key: int, number: int) -> tuple[Tensor, ...]:
        if self._augmentation == "none":
            return inputs
        return (augmented(inputs[0], examples, kind=self._augmentation, key=key, copy=number),)

    def _losses(self, inputs: tuple[Tensor, ...], targets: Tensor | None, model: nn.Module | None = None) -> Tensor:
        losses = self._loss(self._outputs(inputs, model), targets)
        if losses.shape != inputs[0].shape[:1]:
            raise InputError(
                f"the loss must give one number for each of {len(inputs[0])} examples, got shape "
                f"{tuple(losses.shape)}; use reduction='none'"
            )
        return losses

    def _outputs(self, inputs: tuple[Tensor, ...], model: nn.Module | None = None) -> Any:
        """What the model gives, in single precision or more."""
        half = torch.autocast(self._device.type, torch.bfloat16) if self._bfloat16 else nullcontext()
        try:
            with half:
                outputs = call(model or self.model, inputs, self.data.input_names)
        except IndexError as error:
            raise InputError(
                f"an example holds an id that the model has no row for ({error}); build the model for all ids"
            ) from None
        return tree_map(_single, outputs) if self._bfloat16 else outputs


def _single(value: Any) -> Any:
    """A tensor of half precision in single precision; anything else as it is."""
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value
