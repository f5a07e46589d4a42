"""What examples contribute: their gradients, each clipped, added up in micro-batches.

Unit: an example. Each adds a vector of L2 norm at most the bound's sensitivity to the sum, whatever it holds; one with
a gradient that is not finite adds nothing. A model that lets one example change another one's gradient is refused
before the first step, by its layers and by experiment. The sum of a batch of any size takes the memory of one
micro-batch, and is the same for every size of the micro-batch up to float round-off.

Dropout and other draws of the model are independent from row to row; what rows share is refused, since who shares it
changes when an example comes or goes. Who else is present decides which draw an example meets, and not how it is
distributed: the bound holds for each outcome of the draws, which are not released.

An example may count by several augmentations: its gradient is that of the mean of their losses, and is clipped as one.
"""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central.augment import Augmentation, augmented
from sfumato.central.first_look import LossPerExample, first_look, spread, tensors
from sfumato.central.losses import cross_entropy
from sfumato.central.micro_batch import default_budget, measured, suggested
from sfumato.clipping import ClippedSum, NormBound
from sfumato.data import ExampleDataset
from sfumato.models import add_statistics_gradient, refuse_lazy
from sfumato.per_example import Recheck, Recording, covered
from sfumato.per_example.memory import out_of_memory
from sfumato.sampling import Cohort
from sfumato.training import Contribution, Trainable
from sfumato.training.behaviour import ROWS, Behaviour, behaviour_of, made_up
from sfumato.training.dropout import seed_dropout
from sfumato.training.public_inputs import refuse_private_as_public

_BLOCK = 1 << 12


class ExampleContribution(Contribution):
    """The `Contribution` of DP-SGD.

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

    Attributes:
        micro_batch: examples at once.

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
        self.data = data
        self.population = len(data)
        refuse_lazy(model)
        self._device = torch.device(device)
        self._loss = loss
        self._augmentation: Augmentation = augmentation
        self._copies = copies
        self._bfloat16 = bfloat16
        self.trained = Trainable(model, trainable, device=device)
        self.model = self.trained.model
        blocks = (slice(start, start + _BLOCK) for start in range(0, len(data), _BLOCK))
        refuse_private_as_public(
            self.trained, (tensors(data, np.arange(len(data))[block], torch.device("cpu"))[0] for block in blocks)
        )
        covered(self.model)  # refuses layers by their kind, before anything runs
        check = first_look(self.trained, data, loss, self._losses, augmentation, self._device)
        self._layers = check.layers
        budget = default_budget(self._device) if memory_budget is None else memory_budget
        self.bytes_per_example = measured(self._try, self._device)
        self.micro_batch = suggested(self.bytes_per_example, budget) if micro_batch is None else micro_batch
        self._recheck = Recheck(self.model, check)
        first = spread(data, self.micro_batch)
        self._recheck.at_start(len(first), lambda places: self._measured(first[list(places)], 0))
        self.trained.refuse_changed()

    def clipped_sum(
        self,
        theta: Tensor,
        cohort: Cohort,
        round: int,
        bound: NormBound,
        clip_norm: float | None,
        source: RandomSource,
        out: Tensor | None,
    ) -> ClippedSum:
        """The sum of the examples' bounded gradients; each contributor is one example."""
        self.trained.load(theta)
        self.model.train()
        share = ClippedSum(bound, clip_norm, self.trained.layout, device=theta.device, out=out)
        examples, key = cohort.units, source.seed64("augmentation", round)
        start = 0
        while start < len(examples):
            part = examples[start : start + self.micro_batch]
            seed_dropout(source.seed64("dropout", round, int(part[0])), self._device)
            added = self._micro_batch(part, key, share)
            self.trained.put_back(theta)
            if added is None:
                self._shrink(len(part))
                continue
            if not start and self._recheck.due(round):
                self._recheck.while_training(
                    round, added, lambda places, at=part: self._measured(at[list(places)], key)
                )
                self.trained.put_back(theta)
            start += len(part)
        share.tally.add(examples=len(examples) * self._copies)
        return share

    def after_noise(self, mean: Tensor, round: int, source: RandomSource) -> None:
        """What runs through the statistics of public batch norm, from the noisy gradient and the public inputs."""
        parts = self.trained.with_public_inputs()
        if not parts:
            return
        seed_dropout(source.seed64("statistics", round), self._device)  # the same in every process
        views = self.trained.views(mean)
        for parameter, view in zip(self.trained.parameters, views, strict=True):
            parameter.grad = view.to(parameter.dtype)
        for part in parts:
            add_statistics_gradient(part)
        for parameter, view in zip(self.trained.parameters, views, strict=True):
            assert parameter.grad is not None
            view.copy_(parameter.grad)
            parameter.grad = None

    def settings(self) -> dict[str, int | float]:
        """The micro-batch decides the last bits of a sum."""
        return {"micro_batch": self.micro_batch}

    def restore_settings(self, settings: dict[str, int | float]) -> None:
        """The micro-batch of the run that goes on."""
        self.micro_batch = int(settings.get("micro_batch", self.micro_batch))

    def fingerprint(self) -> str:
        """Digest of the parameters' shapes, the loss and the data."""
        loss = getattr(self._loss, "__qualname__", type(self._loss).__qualname__)
        return f"{self.trained.shapes()} {loss} {self.data.fingerprint()}"

    def behaviour(self) -> Behaviour:
        """Losses of made-up examples."""
        inputs, targets = tensors(self.data, np.zeros(ROWS, np.int64), self._device)  # for their shapes and types
        inputs = tuple(made_up(each) for each in inputs)
        if self.data.num_classes is not None:
            targets = torch.arange(ROWS, device=self._device) % self.data.num_classes
        elif targets is not None:
            targets = made_up(targets)
        return behaviour_of(self.trained, lambda model: self._losses(inputs, targets, model))

    def _micro_batch(self, examples: np.ndarray, key: int, share: ClippedSum) -> tuple[Tensor, Tensor] | None:
        """Add some examples' bounded gradients to the sum.

        Returns:
            their losses and squared norms, [n] each; None if memory ran out before anything was added.
        """
        parameters = [[self.trained.parameters[i] for i in group] for group in share.groups]
        try:
            recording, losses = self._recorded(examples, key)
            # One group is the whole model, whose norm is cheaper to find at once.
            chosen = parameters if len(parameters) > 1 else [None]
            squares = torch.stack([recording.squared_norms(group) for group in chosen])
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                return None
            raise
        weights, parts = share.weigh(squares.sqrt()), share.parts()
        # From here on nothing is tried again: a part of the sum must not be added twice.
        try:
            for weight, group, its_parameters in zip(weights, share.groups, parameters, strict=True):
                recording.add_to([parts[i] for i in group], weight, its_parameters)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise InputError(
                f"memory ran out while {len(examples)} gradients were added up; set micro_batch to less than that"
            ) from None
        share.tally.add(loss=torch.where(torch.isfinite(losses), losses, 0.0).sum(dtype=torch.float64))
        return losses, squares.sum(dim=0)

    def _recorded(
        self, examples: np.ndarray, key: int, watch: AbstractContextManager[Any] | None = None
    ) -> tuple[Recording, Tensor]:
        """A recorded forward pass, within `watch` if that is given, and backward pass; and the losses [n]."""
        inputs, targets = tensors(self.data, examples, self._device)
        with Recording(self._layers, len(examples)) as recording:
            # Several augmentations are several uses of each weight, whose gradients the recording adds up.
            with watch or nullcontext():
                losses = [
                    self._losses(self._augmented(inputs, examples, key, number), targets)
                    for number in range(self._copies)
                ]
                mean = losses[0] if self._copies == 1 else torch.stack(losses).mean(dim=0)
            recording.backward(mean)
        return recording, mean.detach()

    def _measured(self, examples: np.ndarray, key: int) -> tuple[Tensor, Tensor]:
        """Losses and squared norms of some examples, [n] each."""
        recording, losses = self._recorded(examples, key)
        return losses, recording.squared_norms()

    def _augmented(self, inputs: tuple[Tensor, ...], examples: np.ndarray, key: int, number: int) -> tuple[Tensor, ...]:
        if self._augmentation == "none":
            return inputs
        return (augmented(inputs[0], examples, kind=self._augmentation, key=key, copy=number),)

    def _losses(self, inputs: tuple[Tensor, ...], targets: Tensor | None, model: nn.Module | None = None) -> Tensor:
        half = torch.autocast(self._device.type, torch.bfloat16) if self._bfloat16 else nullcontext()
        try:
            with half:
                outputs = (model or self.model)(*inputs)
        except IndexError as error:
            raise InputError(
                f"an example holds an id that the model has no row for ({error}); build the model for all ids"
            ) from None
        losses = self._loss(tree_map(_single, outputs) if self._bfloat16 else outputs, targets)
        if losses.shape != inputs[0].shape[:1]:
            raise InputError(
                f"the loss must give one number for each of {len(inputs[0])} examples, got shape "
                f"{tuple(losses.shape)}; use reduction='none'"
            )
        return losses

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


def _single(value: Any) -> Any:
    """A tensor of half precision in single precision; anything else as it is."""
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value
