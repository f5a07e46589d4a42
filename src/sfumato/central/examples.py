"""Examples of a data set under a model and a loss, as `DPSGD.fit` trains them.

Random flips and crops of pictures, each drawn for its example alone.

What an example gets is a function of a key, its place in the data set and the number of the copy: neither the size of
a micro-batch nor the number of processes nor anybody else's presence changes it. Shapes stay as they are.

>>> images = torch.arange(8.0).view(1, 1, 1, 8).expand(2, 1, 8, 8)
>>> both = augmented(images, np.array([3, 4]), kind="flip", key=1, copy=0)
>>> both[:, 0, 0].tolist()
[[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]]
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import torch  # for the doctest
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from sfumato._check import InputError, first_line
from sfumato._random import mixed_bits
from sfumato._types import Assumption, Stated
from sfumato.central.example_training import ExampleTraining
from sfumato.central.gradients import GradientSum
from sfumato.central.tasks import (
    LossPerExample,
    call,
    cross_entropy,
    in_order,
    refuse_names,
    refuse_outputs,
    values_of,
)
from sfumato.data import ExampleDataset, to_tensor
from sfumato.guard import Findings, SelfCheck, examples_first, self_check
from sfumato.guard.placeholders import placeholder, placeholder_targets
from sfumato.models import refuse_no_values
from sfumato.models.check import failing_layer
from sfumato.per_example import Recording, covered
from sfumato.training import Trainable
from sfumato.training.contribution import ROWS, ModelFingerprint, fingerprint_of, refuse_private_as_public
from sfumato.training.row_tables import tables_of
from sfumato.training.table_training import DenseTables, TableTraining

Augmentation = Literal["none", "flip", "crop_flip"]
_MARGIN = 4  # pixels that a crop may move by, as for CIFAR-10 (De et al. 2022)


def refuse_unfit(kind: Augmentation, inputs: tuple[Tensor, ...]) -> None:
    """Refuse to augment what are no pictures.

    Raises:
        InputError: with what to use.
    """
    if kind == "none":
        return
    if len(inputs) != 1 or inputs[0].dim() != 4 or not inputs[0].is_floating_point():
        shapes = " and ".join(str(tuple(each.shape[1:])) for each in inputs)
        raise InputError(
            f"augmentation {kind} is for pictures, got inputs of shape {shapes}; use examples.augmentation=none"
        )
    if kind == "crop_flip" and min(inputs[0].shape[2:]) <= _MARGIN:
        height, width = inputs[0].shape[2:]
        raise InputError(f"pictures of {height}×{width} are too small to crop; use augmentation=flip")


def augmented(images: Tensor, examples: np.ndarray, *, kind: Augmentation, key: int, copy: int) -> Tensor:
    """One augmentation of each picture.

    Args:
        images: float [n, C, H, W].
        examples: int64 [n], places in the data set.
        kind: "flip" left and right with probability ½; "crop_flip" also moves by up to 4 pixels, edges mirrored.
        key: of the round.
        copy: which of several augmentations.
    """
    if kind == "none":
        return images
    bits = mixed_bits(examples, key, copy)
    device, (height, width) = images.device, images.shape[2:]
    flip = torch.from_numpy((bits & np.uint64(1)).astype(bool)).to(device)
    columns = torch.arange(width, device=device)
    columns = torch.where(flip[:, None], columns.flip(0), columns)
    rows = torch.arange(height, device=device).expand(len(images), height)
    if kind == "crop_flip":
        moves = np.uint64(2 * _MARGIN + 1)
        down = torch.from_numpy(((bits >> np.uint64(1)) % moves).astype(np.int64)).to(device)
        right = torch.from_numpy(((bits >> np.uint64(32)) % moves).astype(np.int64)).to(device)
        images = functional.pad(images, [_MARGIN] * 4, mode="reflect")
        rows, columns = rows + down[:, None], columns + right[:, None]
    each = torch.arange(len(images), device=device)
    # Indices on both sides of a slice put it last: [n, H, W, C], which is torch's channels_last.
    return images[each[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


# Before the first step: what the model, the data and the loss say to some examples.
#
# Shapes, targets, coupling, and the engine against autograd; whatever does not fit is refused by name.


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


def first_batch_check(
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


# Examples of a data set under a model and a loss, as `DPSGD.fit` trains them.
#
# An example may count by several augmentations: its gradient is that of the mean of their losses, and is clipped as
# one.


_BLOCK = 1 << 12
_BACK = 4  # examples that are looked at again and again
_MOST_CLASSES = 1 << 8  # placeholder examples for a resume; with more classes, some of them
_AS_USUAL, _DENSE = ExampleTraining(), DenseTables()


class ExampleContribution(GradientSum):
    """Gradients of a data set's examples.

    Args:
        model: the user's module; a copy of it is trained.
        data: the records.
        loss: one loss an example.
        trainable: which parameters are trained; see `sfumato.models.trainable_parameters`.
        examples: how examples go through the model.
        tables: how embeddings train.
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
        examples: ExampleTraining = _AS_USUAL,
        tables: TableTraining = _DENSE,
        device: str = "cpu",
    ) -> None:
        refuse_no_values(model)
        row_tables = tables_of(model, trainable, tables)
        trained = Trainable(model, trainable, device=device, tables=row_tables)
        super().__init__(trained, self.units_in(data), torch.device(device))
        self.data = data
        self.copies = examples.copies
        self._loss = loss
        self._augmentation: Augmentation = examples.augmentation
        self._bfloat16 = examples.precision == "bfloat16"
        refuse_names(self.model, data.input_names)
        refuse_private_as_public(self.trained, self._inputs())
        covered(self.model)  # refuses layers by their kind, before anything runs
        findings = placeholders_first(self.trained, data, self._losses, self._device)
        self._take_reference(self.units_of(spread(data, _BACK)))
        check = first_batch_check(self.trained, data, loss, self._losses, examples.augmentation, self._device, findings)
        self._begin(
            check,
            micro_batch=examples.micro_batch,
            memory_budget=examples.memory_budget,
            first=lambda most: self.units_of(spread(data, most)),
        )
        self.trained.tables.live()

    def units_in(self, data: ExampleDataset) -> int:
        """How many units there are."""
        return len(data)

    def units_of(self, examples: np.ndarray) -> np.ndarray:
        """The units that have these examples, int64."""
        return examples

    def read(self, examples: np.ndarray, key: int) -> Any:
        """The inputs, augmented, and the targets."""
        inputs, targets = tensors(self.data, examples, self._device)
        return [self._augmented(inputs, examples, key, number) for number in range(self.copies)], targets

    def losses_of(self, rows: Any) -> Tensor:
        """The mean of an example's augmentations: several uses of each weight, whose gradients a recording adds up."""
        views: Sequence[tuple[Tensor, ...]]
        views, targets = rows
        losses = []
        for number, inputs in enumerate(views):
            if number:
                self.trained.forget()
            losses.append(self._losses(inputs, targets))
        return losses[0] if self.copies == 1 else torch.stack(losses).mean(dim=0)

    def assumptions(self) -> list[Stated]:
        """What could not be tried; and that users with several examples are covered for each by itself."""
        return [*super().assumptions(), *([] if self.data.owners is None else [Assumption("examples_of_users")])]

    def fingerprint(self) -> str:
        """Digest of the parameters' shapes, the loss and the data."""
        loss = getattr(self._loss, "__qualname__", type(self._loss).__qualname__)
        return f"{self.trained.shapes()} {loss} {values_of(self._loss)} {self.data.fingerprint()}"

    def model_fingerprint(self) -> ModelFingerprint:
        """Losses of placeholder examples, one or more of every class: a loss may weigh one class, or leave one out."""
        classes = self.data.num_classes
        rows = ROWS if classes is None else max(ROWS, min(classes, _MOST_CLASSES))
        inputs, targets = tensors(self.data, np.zeros(rows, np.int64), self._device)  # for their shapes and types
        inputs = tuple(placeholder(each) for each in inputs)
        if classes is not None:
            targets = torch.linspace(0, max(classes, rows) - 1, rows, device=self._device).long() % classes
        elif targets is not None:
            targets = placeholder_targets(targets)
        return fingerprint_of(self.trained, lambda model: self._losses(inputs, targets, model))

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


# Users as units: a user's gradient is that of the mean loss of some of the user's examples, and is clipped as one.


class UserContribution(ExampleContribution):
    """Gradients of users, each by a bounded number of the user's examples, drawn anew in each step.

    Unit: a user with all examples. Whatever these are and however many, the user's gradient is one vector, clipped
    like that of an example. Which examples count follows from the step's key, the user's number and the examples'
    numbers within the user, and from no other user.

    Args:
        data: the records, with users.
        examples: how they go through the model, with `per_user`.
        settings: the other arguments of `ExampleContribution`.

    Raises:
        InputError: as for `ExampleContribution`; or the examples have no users.
    """

    def __init__(self, *, data: ExampleDataset, examples: ExampleTraining, **settings: Any) -> None:
        assert examples.per_user is not None
        users = data.num_users  # refuses data without
        assert data.owners is not None
        self._per_user = examples.per_user
        self._rows = np.argsort(data.owners, kind="stable")
        sizes = np.bincount(data.owners, minlength=users)
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._most = min(examples.per_user, int(sizes.max()))  # places beyond would count for no user
        super().__init__(data=data, examples=examples, **settings)
        self.copies = self._most

    def units_in(self, data: ExampleDataset) -> int:
        """How many users there are."""
        return data.num_users

    def units_of(self, examples: np.ndarray) -> np.ndarray:
        """The users who have these examples, each once."""
        assert self.data.owners is not None
        return np.unique(self.data.owners[examples])

    def chosen(self, users: np.ndarray, key: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples of some users that count in a step.

        Args:
            users: their numbers, int64 [n].
            key: of the step.

        Returns:
            places in the data, int64 [n, k], k being `per_user`, or the most examples that a user has if that is less;
            and whether a place counts, bool. A user with fewer examples has the first one again, which does not count.
        """
        sizes = np.diff(self._starts)[users]
        owner = np.repeat(np.arange(len(users)), sizes)
        number = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = np.lexsort((mixed_bits(number, key, users[owner] + 1), owner))
        rank = number  # of an example in its user's order: sorted by owner, numbers are again 0, 1, … within each
        kept = rank < self._most
        places = np.repeat(self._rows[self._starts[users]][:, None], self._most, axis=1)
        counts = np.zeros(places.shape, bool)
        rows = self._rows[self._starts[users][owner] + number]
        places[owner[kept], rank[kept]] = rows[order][kept]
        counts[owner[kept], rank[kept]] = True
        return places, counts

    def read(self, examples: np.ndarray, key: int) -> Any:
        """Inputs and targets of each of a user's places, and the weights of these, which add up to 1."""
        places, counts = self.chosen(examples, key)
        weights = torch.from_numpy(counts / counts.sum(axis=1, keepdims=True)).to(self._device)
        return [tensors(self.data, column, self._device) for column in places.T], weights

    def losses_of(self, rows: Any) -> Tensor:
        """The mean of the losses of a user's examples: several uses of each weight, as with augmentations."""
        views, weights = rows
        total: Tensor | float = 0.0
        for number, (inputs, targets) in enumerate(views):
            if number:
                self.trained.forget()
            losses = self._losses(inputs, targets)
            total = total + losses * weights[:, number].to(losses.dtype)
        assert isinstance(total, Tensor)
        return total

    def assumptions(self) -> list[Stated]:
        """How the examples of a user become one contribution."""
        said = [each for each in super().assumptions() if each != Assumption("examples_of_users")]
        return [*said, Assumption("rows_of_user", {"most": self._per_user})]

    def fingerprint(self) -> str:
        """That of examples, and the bound."""
        return f"{super().fingerprint()} per user {self._per_user}"


def _single(value: Any) -> Any:
    """A tensor of half precision in single precision; anything else as it is."""
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value
