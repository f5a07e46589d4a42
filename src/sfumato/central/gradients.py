"""What examples contribute: their gradients, each clipped, added up in micro-batches.

Unit: an example. Each adds a vector of L2 norm at most the bound's sensitivity to the sum, whatever it holds; one with
a gradient that is not finite adds nothing. A model that lets one example change another one's gradient is refused
before the first step, by its layers and by experiment. The sum of a batch of any size takes the memory of one
micro-batch, and is the same for every size of the micro-batch up to float round-off.

Dropout and other draws of the model are independent from row to row, or the same for all rows. Who else is present
decides which draw an example meets, and not how it is distributed: the bound holds for each outcome of the draws, which
are not released.

An example may count by several augmentations: its gradient is that of the mean of their losses, and is clipped as one.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError, first_line
from sfumato._random import RandomSource
from sfumato.central.augment import Augmentation, augmented, refuse_unfit
from sfumato.central.micro_batch import default_budget, measured, suggested
from sfumato.clipping import ClippedSum, NormBound
from sfumato.data import ExampleDataset, to_tensor
from sfumato.models import (
    add_statistics_gradient,
    refresh_statistics,
    refuse_coupling,
    refuse_lazy,
    trainable_parameters,
)
from sfumato.models.layers.public_batch_norm import public_inputs_of
from sfumato.per_example import Recording, covered, self_check
from sfumato.per_example.memory import out_of_memory
from sfumato.per_example.rule import Layer
from sfumato.sampling import Group
from sfumato.training import FlatParameters, Share
from sfumato.training.dropout import seed_dropout

AnyItem = TypeVar("AnyItem")

LossPerExample = Callable[[Tensor, Tensor], Tensor]
"""From the model's outputs [n, …] and labels int64 [n] to one loss an example, [n]."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of classifiers: logits [n, classes], labels int64 [n] → [n]."""
    return functional.cross_entropy(logits, labels, reduction="none")


class ExampleContribution:
    """The `Contribution` of DP-SGD.

    Args:
        model: the user's module; a copy of it is trained.
        data: the records.
        bound: on each example's gradient.
        loss: one loss an example.
        trainable: which parameters are trained; see `sfumato.models.trainable_parameters`.
        augmentation, copies: of pictures, and how many of each.
        micro_batch: examples at once; None measures how many fit into the memory budget.
        memory_budget: bytes; None for half of the free memory of a GPU, 512 MiB on a CPU.
        bfloat16: run the model's own arithmetic in that precision, by autocast.
        device: where to train.

    Attributes:
        micro_batch: examples at once.

    Raises:
        InputError: a layer that couples examples or cannot be covered, nothing to train, inputs that the model does
            not take, labels that it has no logit for.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        data: ExampleDataset,
        bound: NormBound,
        loss: LossPerExample = cross_entropy,
        trainable: str = "all",
        augmentation: Augmentation = "none",
        copies: int = 1,
        micro_batch: int | None = None,
        memory_budget: int | None = None,
        bfloat16: bool = False,
        device: str = "cpu",
    ) -> None:
        self.data = data
        self.population = len(data)
        refuse_lazy(model)
        self.model = _copied(model).to(device).train()
        self._device = torch.device(device)
        self._bound, self._loss = bound, loss
        self._augmentation: Augmentation = augmentation
        self._copies = copies
        self._bfloat16 = bfloat16
        self.flat = FlatParameters(_trained(self.model, trainable))
        covered(self.model)  # refuses layers by their kind, before anything runs
        self._layers = self._checked_layers()
        self._groups = bound.groups(self.flat.names)
        self.initial = self.flat.vector.clone()
        self._memory: Tensor | None = None
        budget = default_budget(self._device) if memory_budget is None else memory_budget
        self.bytes_per_example = measured(self._try, self._device)
        self.micro_batch = suggested(self.bytes_per_example, budget) if micro_batch is None else micro_batch

    def views(self, vector: Tensor) -> list[Tensor]:
        """The vector in the shapes of the parameters."""
        return self.flat.views(vector)

    def clipped_sum(
        self, theta: Tensor, groups: Sequence[Group], round_index: int, clip_norm: float | None, source: RandomSource
    ) -> Share:
        """The sum of the examples' clipped gradients; each group is one example."""
        self.load(theta)
        self.model.train()
        memory, self._memory = self._memory, None
        share = Share(ClippedSum(theta.numel(), clip_norm=clip_norm, device=theta.device, memory=memory))
        examples = np.array([group.slot for group in groups], np.int64)
        key = source.seed64("augmentation", round_index)
        totals = share.clipped.parts([parameter.shape for parameter in self.flat.parameters])
        loss = torch.zeros((), dtype=torch.float64, device=self._device)
        start = 0
        while start < len(examples):
            part = examples[start : start + self.micro_batch]
            seed_dropout(source.seed64("dropout", round_index, int(part[0])), self._device)
            done = self._micro_batch(part, clip_norm, key, totals)
            if done is None:
                self._shrink(len(part))
                continue
            share.clipped.count(done[0])
            loss += done[1]
            start += len(part)
        share.loss = loss.item()
        share.examples = len(examples) * self._copies
        return share

    def complete(self, mean: Tensor, round_index: int, source: RandomSource) -> None:
        """What runs through the statistics of public batch norm, from the noisy gradient and the public inputs."""
        parts = self._with_public_inputs()
        if not parts:
            return
        seed_dropout(source.seed64("statistics", round_index), self._device)  # the same in every process
        views = self.views(mean)
        for parameter, view in zip(self.flat.parameters, views, strict=True):
            parameter.grad = view.to(parameter.dtype)
        for part in parts:
            add_statistics_gradient(part)
        for parameter, view in zip(self.flat.parameters, views, strict=True):
            assert parameter.grad is not None
            view.copy_(parameter.grad)
            parameter.grad = None

    def reuse(self, total: Tensor) -> None:
        """Fresh memory of a large model's size costs more than the step."""
        self._memory = total

    def load(self, theta: Tensor) -> None:
        """Put a parameter vector into the model."""
        # One by one, so that each parameter's version tells that it has changed.
        with torch.no_grad():
            for parameter, view in zip(self.flat.parameters, self.flat.views(theta), strict=True):
                parameter.copy_(view)

    def state_dict(self) -> dict[str, Tensor]:
        """The model's tensors, statistics of public inputs as of these weights."""
        self.model.eval()
        for part in self._with_public_inputs():
            refresh_statistics(part, *(public_inputs_of(part) or ()))
        return {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}

    def _with_public_inputs(self) -> list[nn.Module]:
        """The model, or the parts of it, that have public inputs for their norm layers."""
        return [part for part in self.model.modules() if public_inputs_of(part) is not None]

    def frozen(self) -> dict[str, Tensor]:
        """Tensors of the model that are not trained."""
        trained = set(self.flat.names)
        return {name: value for name, value in self.model.state_dict().items() if name not in trained}

    def load_frozen(self, tensors: dict[str, Tensor]) -> None:
        """Put them back."""
        self.model.load_state_dict(tensors, strict=False)

    def settings(self) -> dict[str, int | float]:
        """The micro-batch decides the last bits of a sum."""
        return {"micro_batch": self.micro_batch}

    def restore_settings(self, settings: dict[str, int | float]) -> None:
        """The micro-batch of the run that goes on."""
        self.micro_batch = int(settings.get("micro_batch", self.micro_batch))

    def fingerprint(self) -> str:
        """Digest of the parameters' shapes, the loss and the data."""
        shapes = [(n, tuple(p.shape)) for n, p in zip(self.flat.names, self.flat.parameters, strict=True)]
        loss = getattr(self._loss, "__qualname__", type(self._loss).__qualname__)
        return f"{shapes} {loss} {self.data.fingerprint()}"

    def _micro_batch(
        self, examples: np.ndarray, clip_norm: float | None, key: int, totals: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor] | None:
        """Add some examples' clipped gradients to the sum.

        Returns:
            the norms before clipping, float64 [n], and the sum of the losses; None if memory ran out before anything
            was added.
        """
        whole = len(self._groups) == 1
        try:
            recording, losses = self._recorded(examples, key)
            groups = [None] if whole else self._grouped(self.flat.parameters)
            squares = torch.stack([recording.squared_norms(group) for group in groups])
        except IndexError as error:
            raise InputError(
                f"an example holds an id that the model has no row for ({error}); build the model for all ids"
            ) from None
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                return None
            raise
        weights = self._bound.weights(squares.sqrt(), clip_norm)
        # From here on nothing is tried again: a part of the sum must not be added twice.
        try:
            for parts, weight, group in zip(
                self._grouped(totals), weights, self._grouped(self.flat.parameters), strict=True
            ):
                recording.add_to(parts, weight, group)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise InputError(
                f"memory ran out while {len(examples)} gradients were added up; set micro_batch to less than that"
            ) from None
        usable = torch.isfinite(losses)
        return squares.sum(dim=0).sqrt(), torch.where(usable, losses, 0.0).sum(dtype=torch.float64)

    def _grouped(self, items: Sequence[AnyItem]) -> list[list[AnyItem]]:
        """One item a parameter, put together as the bound does."""
        return [[items[index] for index in group] for group in self._groups]

    def _recorded(
        self, examples: np.ndarray, key: int, watch: AbstractContextManager[Any] | None = None
    ) -> tuple[Recording, Tensor]:
        """A recorded forward pass, within `watch` if that is given, and backward pass; and the losses [n]."""
        inputs, labels = self._tensors(examples)
        with Recording(self._layers, len(examples)) as recording:
            # Several augmentations are several uses of each weight, whose gradients the recording adds up.
            with watch or nullcontext():
                losses = [
                    self._losses(self._augmented(inputs, examples, key, number), labels)
                    for number in range(self._copies)
                ]
                mean = losses[0] if self._copies == 1 else torch.stack(losses).mean(dim=0)
            recording.backward(mean)
        return recording, mean.detach()

    def _augmented(self, inputs: tuple[Tensor, ...], examples: np.ndarray, key: int, number: int) -> tuple[Tensor, ...]:
        if self._augmentation == "none":
            return inputs
        return (augmented(inputs[0], examples, kind=self._augmentation, key=key, copy=number),)

    def _losses(self, inputs: tuple[Tensor, ...], labels: Tensor) -> Tensor:
        half = torch.autocast(self._device.type, torch.bfloat16) if self._bfloat16 else nullcontext()
        with half:
            outputs = self.model(*inputs)
        losses = self._loss(outputs.float() if self._bfloat16 else outputs, labels)
        if losses.shape != labels.shape:
            raise InputError(
                f"the loss must give one number for each of {len(labels)} examples, got shape {tuple(losses.shape)}; "
                "use reduction='none'"
            )
        return losses

    def _tensors(self, examples: np.ndarray) -> tuple[tuple[Tensor, ...], Tensor]:
        inputs, labels = self.data.examples(examples)
        return tuple(to_tensor(x).to(self._device) for x in inputs), torch.from_numpy(labels).to(self._device)

    def _try(self, count: int, watch: AbstractContextManager[Any]) -> int:
        """A pass of so many examples, the first one again and again; the bytes that are held for the sum."""
        with torch.random.fork_rng(devices=[]):
            return self._recorded(np.zeros(count, np.int64), 0, watch)[0].bytes_held()

    def _shrink(self, tried: int) -> None:
        if tried == 1:
            raise InputError(
                "memory runs out with a single example in a step; use a smaller model, train fewer of its parameters "
                "(trainable), or make room"
            )
        self.micro_batch = tried // 2
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(f"memory ran out with {tried} examples at once; going on with {self.micro_batch}", stacklevel=3)

    def _checked_layers(self) -> list[Layer[nn.Module]]:
        """Two examples go through the model: shapes, labels, coupling, and the engine against autograd."""
        inputs, labels = self._tensors(_two_that_differ(self.data))
        refuse_unfit(self._augmentation, inputs)
        was_training = self.model.training
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                outputs = self.model(*(each.clone() for each in inputs))
        except InputError:
            raise
        except Exception as error:  # whatever the user's own forward raises
            shapes = " and ".join(f"{tuple(x.shape[1:])} {str(x.dtype).removeprefix('torch.')}" for x in inputs)
            raise InputError(
                f"the model does not take inputs of shape {shapes} ({first_line(error)}); build it for them, or "
                "change the data"
            ) from error
        finally:
            self.model.train(was_training)
        if self._loss is cross_entropy:
            if not isinstance(outputs, Tensor) or outputs.dim() != 2 or len(outputs) != len(labels):
                shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
                raise InputError(
                    f"the model must give logits [n, classes] for n examples, got {shape}; flatten, or give a loss"
                )
            if outputs.shape[1] < self.data.num_classes:
                raise InputError(
                    f"the data has {self.data.num_classes} classes but the model gives {outputs.shape[1]} logits; "
                    "build it for that many classes"
                )
        if len(labels) > 1:
            _refuse_coupling(self.model, inputs)
        try:  # each pass gets inputs of its own: a model may work on them in place
            check = self_check(
                self.model,
                lambda pair: self._losses(tuple(each.clone() for each in pair[0]), pair[1]),
                (inputs, labels),
            )
        except RuntimeError as error:
            in_place = "inplace" in str(error)
            remedy = (
                "work on a copy there (x = x + 1, not x += 1)" if in_place else "see that it trains without privacy"
            )
            raise InputError(f"the backward pass of the model fails ({first_line(error)}); {remedy}") from error
        if check.unused:
            warnings.warn(
                f"{len(check.unused)} trained parameters have no gradient and only collect noise ({check.unused[0]}); "
                "freeze them",
                stacklevel=2,
            )
        seen = {id(parameter) for parameter in Recording(check.layers).parameters}
        for name, parameter in zip(self.flat.names, self.flat.parameters, strict=True):
            if id(parameter) not in seen:
                raise InputError(f"parameter {name} belongs to no layer that is covered; freeze it")
        return check.layers


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except (TypeError, RuntimeError) as error:
        raise InputError(
            f"the model cannot be copied ({first_line(error)}); keep generators, open files and computed tensors "
            "out of its attributes"
        ) from error


def _trained(model: nn.Module, trainable: str) -> list[tuple[str, nn.Parameter]]:
    """The parameters to train; all others are frozen."""
    named = trainable_parameters(model, trainable)
    for name, parameter in named:
        if not parameter.is_floating_point():
            raise InputError(f"parameter {name} is {parameter.dtype}; use real numbers, or freeze it")
    chosen = {id(parameter) for _, parameter in named}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in chosen)
    return named


class _ByPlace(nn.Module):
    """A model of several inputs as a model of one: the places of the examples."""

    def __init__(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.model = model
        self._inputs = inputs

    def forward(self, places: Tensor) -> Tensor:
        return self.model(*(each[places] for each in self._inputs))


def _two_that_differ(data: ExampleDataset) -> np.ndarray:
    """Places of an example and of another one that is not its copy, among 64 at equal distances with finite inputs."""
    places = np.unique(np.linspace(0, len(data) - 1, 64).astype(np.int64))
    inputs, _ = data.examples(places)
    flat = [each.reshape(len(each), -1) for each in inputs]
    usable = np.logical_and.reduce([np.isfinite(each).all(axis=1) for each in flat])
    first = int(usable.argmax())
    differs = usable & np.logical_or.reduce([(each != each[first]).any(axis=1) for each in flat])
    return places[[first, int(differs.argmax())] if differs.any() else [first]]


def _refuse_coupling(model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if len(inputs) == 1:
        refuse_coupling(model, inputs[0])
    else:
        refuse_coupling(_ByPlace(model, inputs), torch.arange(2, device=inputs[0].device))
