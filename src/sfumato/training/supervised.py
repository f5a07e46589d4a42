"""Plain training of a module on arrays, without any privacy: of an agent's model, of a student on released labels.

What comes out is a function of the module, the arrays and the source alone. Orders are drawn from the source's streams,
and what the model draws itself (dropout) from torch's one generator, which is seeded for the time of the training and
then put back. Such models are trained one at a time even when several threads ask; all others side by side.

>>> from torch import nn
>>> from sfumato._random import RandomSource
>>> inputs = np.array([[-2.0], [-1.0], [1.0], [2.0]], np.float32)
>>> settings = Supervised(epochs=20, batch_size=2, learning_rate=0.5)
>>> start = nn.Linear(1, 2)
>>> model = settings.fit(start, inputs, np.array([0, 0, 1, 1]), source=RandomSource.from_seed(1))
>>> outputs(model, inputs).argmax(1).tolist()
[0, 0, 1, 1]

No task measures such a model: `require_outputs` says whether it fits, and `measure` how good it is.

>>> from sfumato.data import examples_from_arrays
>>> data = examples_from_arrays(np.zeros((4, 2), np.float32), np.array([0, 1, 2, 0]), num_classes=3)
>>> require_outputs(nn.Linear(2, 3), data, classes=3, whose="model", device="cpu")
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np

from sfumato import _check
from sfumato._check import InputError, first_line
from sfumato._lazy import scipy, torch
from sfumato._parts import Kinds, set_by_run
from sfumato.training.server import Optimizer, OptimizerName, Schedule

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato._random import RandomSource
    from sfumato.data import ExampleDataset

_AT_ONCE = 512  # rows of which outputs are computed together
_OFF_ONE = 1e-4  # by which a row of soft labels may miss the sum of 1, which single precision does
Loss = Literal["cross_entropy", "likelihood", "squared", "absolute", "poisson"]
_OF_NUMBERS = {
    "squared": "mse_loss",
    "absolute": "l1_loss",
    "poisson": "poisson_nll_loss",  # of logarithms, without log y!
}
"""Losses of numbers, and what torch.nn.functional calls them."""
_GENERATOR = threading.Lock()
"""Held by any thread that draws from torch's generator, of which a process has one."""


@dataclass(frozen=True)
class AddedLoss:
    """A term of the loss in addition to that of the labels.

    Attributes:
        parameters: trained with those of the model.
        loss: what is added to a step's loss, from how much of the training is done, in [0, 1); it is called after
            the labelled examples have gone through the model.
    """

    parameters: Sequence[nn.Parameter]
    loss: Callable[[float], Tensor]


Inputs = np.ndarray | tuple[np.ndarray, ...]
"""Rows [n, …] of what a model is called with: one array, or one for each of its arguments."""


class LossAdder(Protocol):
    """Builds a term for the copy that is trained; what it hung into the copy is gone when it is left."""

    def __call__(
        self, model: nn.Module, source: RandomSource, device: torch.device, /
    ) -> AbstractContextManager[AddedLoss]: ...


@dataclass(frozen=True, kw_only=True)
class Supervised:
    """How a module is trained.

    Attributes:
        epochs: passes over the examples, >= 1.
        steps: so many steps instead, >= 1; None trains for `epochs`.
        batch_size: examples a step at most, >= 1; an epoch is cut into batches of as equal size as can be.
        learning_rate: of the optimiser, > 0.
        optimizer: as for the server of a private plan: "sgd", "adam", …
        momentum: SGD's momentum, the first beta of Adam's kin; in [0, 1).
        weight_decay: of the optimiser, >= 0.
        schedule: of the learning rate: "constant", or "cosine" down to zero at the last step.
        label_smoothing: the share of each class label that goes to all classes evenly, in [0, 1); no matter for
            attributes.
        mixup: alpha > 0 mixes each batch with itself in another order, inputs and losses, by a share from
            Beta(alpha, alpha) (Zhang et al. 2018, arXiv 1710.09412); 0 does not.
        loss: what a step lowers, which plans set: the cross-entropy of classes, soft labels or attributes; or of
            numbers, for which the model has one output: the squared or the absolute error, or Poisson's exp(s) - y s
            with an output s that is the logarithm of a rate. Or the likelihood of what was seen in place of a class,
            with targets float [n, 2, C]: the probability of what was seen for each class, and a weight >= 0 of each
            class's logarithm.
    """

    epochs: int = 20
    steps: int | None = None
    batch_size: int = 32
    learning_rate: float = 0.02
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    label_smoothing: float = 0.0
    mixup: float = 0.0
    loss: Loss = set_by_run("cross_entropy")

    def __post_init__(self) -> None:
        _check.whole(epochs=self.epochs, batch_size=self.batch_size)
        if self.steps is not None:
            _check.whole(steps=self.steps)
        _check.between(0.0, 1.0, ends="[)", label_smoothing=self.label_smoothing)
        _check.non_negative(mixup=self.mixup)
        _check.one_of(get_args(Loss), loss=self.loss)
        if self.label_smoothing and self.loss in (*_OF_NUMBERS, "likelihood"):
            raise InputError(f"label_smoothing is for classes, got loss={self.loss}; leave it out")
        _ = self._optimizer, self._schedule(1)  # both check their fields

    def fit(
        self,
        model: nn.Module,
        inputs: Inputs,
        targets: np.ndarray,
        *,
        source: RandomSource,
        device: str = "cpu",
        added: LossAdder | None = None,
        watch: Callable[[int, int], None] | None = None,
    ) -> nn.Module:
        """Train a copy of a module.

        A batch of one example takes the running statistics of batch norm layers, as it has none of its own.

        Args:
            model: where the training starts; it stays as it is. Parameters without `requires_grad` stay, too.
            inputs: rows [n, …] as a data set stores them, of each of the model's arguments; `to_tensor` turns them into
                what the model takes.
            targets: classes, int64 [n]; or soft labels, float [n, C], each row a distribution; or attributes,
                bool [n, A]; with a loss of numbers, numbers [n]; with that of likelihoods, float [n, 2, C].
            source: of the order and of what the model draws; it must be of this training alone.
            device: where to train.
            added: a term of the loss in addition to that of the targets; None for none.
            watch: gets after each step how many are done, and of how many; what it raises ends the training.

        Returns:
            the trained copy on that device, in evaluation mode.

        Raises:
            InputError: no examples, or targets that fit neither these kinds nor the model.
        """
        from sfumato.models import refuse_no_values
        from sfumato.training.trainable import copied

        refuse_no_values(model)
        given = each_of(inputs)
        targets = checked_targets(targets, len(given[0]), self.loss)
        trained = copied(model).to(device).train()
        where, few = torch.device(device), tuple(rows[:2] for rows in given)
        with ExitStack() as stack:
            if _draws(model, few, where):
                stack.enter_context(_drawing(source.seed64("supervised draws"), where))
            term = None if added is None else stack.enter_context(added(trained, source, where))
            self._steps(trained, given, targets, source, where, term, watch)
        return trained.eval()

    def _steps(
        self,
        trained: nn.Module,
        inputs: tuple[np.ndarray, ...],
        targets: np.ndarray,
        source: RandomSource,
        device: torch.device,
        added: AddedLoss | None,
        watch: Callable[[int, int], None] | None,
    ) -> None:
        """All steps, in place."""
        from torch.nn.modules.batchnorm import _BatchNorm

        from sfumato.data import to_tensor

        loss_of = loss_for(targets, self.label_smoothing, self.loss)
        parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
        optimizer = self._optimizer([*parameters, *(() if added is None else added.parameters)])
        batches = self._batches(len(targets))
        steps = self.steps_for(len(targets))
        schedule = self._schedule(steps)
        norms = [layer for layer in trained.modules() if isinstance(layer, _BatchNorm) and layer.training]
        order = batches_in_order(source, "supervised", len(targets), batches)
        for step in range(steps):
            rows = next(order)
            for norm in norms:
                norm.train(len(rows) > 1)
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * schedule.factor(step)
            given = [to_tensor(each[rows]).to(device) for each in inputs]
            wanted = torch.from_numpy(targets[rows]).to(device)
            mixed = self._mixed(len(rows), source, step) if self.mixup else None
            if mixed is not None:
                share, other = mixed
                given = [share * each + (1 - share) * each[other] for each in given]
            outputs = trained(*given)
            if not step:
                _refuse_outputs(outputs, targets)
            loss = loss_of(outputs, wanted)
            if mixed is not None:
                loss = share * loss + (1 - share) * loss_of(outputs, wanted[other])
            if added is not None:
                loss = loss + added.loss(step / steps)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if watch is not None:
                watch(step + 1, steps)

    def steps_for(self, examples: int) -> int:
        """How many steps the training of so many examples takes."""
        return self.steps or self.epochs * self._batches(examples)

    def _batches(self, examples: int) -> int:
        """Into which an epoch is cut."""
        return -(-examples // self.batch_size)

    def _mixed(self, count: int, source: RandomSource, step: int) -> tuple[float, Tensor]:
        """The share of a batch's own inputs, and the order of those that are mixed in."""
        stream = source.stream("mixup", step)
        share = float(scipy.special.betaincinv(self.mixup, self.mixup, stream.uniform(1)[0]))
        return share, torch.from_numpy(stream.permutation(count))

    def refuse_loss(self, loss: Loss) -> None:
        """Refuse a loss that is neither the usual one nor that of the plan."""
        if self.loss not in ("cross_entropy", loss):
            raise InputError(f"the plan's own loss is {loss}, got training.loss={self.loss}; leave that out")

    @property
    def _optimizer(self) -> Optimizer:
        return Optimizer(
            name=self.optimizer,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )

    def _schedule(self, steps: int) -> Schedule:
        return Schedule(kind=self.schedule, rounds=steps)


FLAT = ("epochs", "batch_size", "learning_rate", "optimizer", "momentum", "weight_decay", "schedule")
"""Fields that were fields of plans themselves in earlier versions."""

TRAININGS = Kinds({"supervised": Supervised})
"""What is short for a training: a mapping of its fields."""


def batches_in_order(source: RandomSource, name: str, examples: int, batches: int) -> Iterator[np.ndarray]:
    """Rows of one batch after the other, without end, int64 [n]; each epoch has an order of its own.

    Args:
        source: of the orders.
        name: distinguishes several of one training.
        examples: how many there are, >= 1.
        batches: into which an epoch is cut; their sizes differ by one at most.
    """
    epoch = 0
    while True:
        yield from np.array_split(source.stream("supervised order", name, epoch).permutation(examples), batches)
        epoch += 1


def each_of(inputs: Inputs) -> tuple[np.ndarray, ...]:
    """The rows of each of the model's arguments."""
    return inputs if isinstance(inputs, tuple) else (inputs,)


def outputs(model: nn.Module, inputs: Inputs, *, device: str = "cpu") -> np.ndarray:
    """What a module in evaluation mode gives for rows as a data set stores them, float32 [n, …], in bounded memory."""
    from sfumato.data import to_tensor

    was_training, rows = model.training, each_of(inputs)
    model.eval()
    found = []
    try:
        with torch.inference_mode():
            for start in range(0, max(1, len(rows[0])), _AT_ONCE):
                batch = [to_tensor(each[start : start + _AT_ONCE]).to(device) for each in rows]
                found.append(model(*batch).float().cpu().numpy())
    finally:
        model.train(was_training)
    return np.concatenate(found)


def checked_targets(targets: np.ndarray, examples: int, loss: Loss = "cross_entropy") -> np.ndarray:
    """Targets as `Supervised.fit` takes them: int64 [n], float32 [n, C] or bool [n, A]; numbers float32 [n], or
    likelihoods float32 [n, 2, C].

    Raises:
        InputError: they are of another kind, not one for each example, no distributions, or not finite.
    """
    from sfumato.data.inputs import to_float32

    if not examples or len(targets) != examples:
        raise InputError(f"training needs examples with a target each, got {examples} and {len(targets)} targets")
    if loss in _OF_NUMBERS:
        if targets.ndim != 1 or targets.dtype.kind not in "iuf":
            raise InputError(f"loss={loss} needs a number [n] for each example, got {targets.dtype} {targets.shape}")
        if loss == "poisson" and (targets < 0).any():
            raise InputError(f"loss=poisson needs numbers >= 0, got {targets[targets < 0][0]:g}; take another loss")
        return to_float32(targets, "targets")
    if loss == "likelihood":
        if targets.ndim != 3 or targets.shape[1] != 2 or targets.dtype.kind != "f":
            raise InputError(f"loss=likelihood needs floats [n, 2, classes], got {targets.dtype} {targets.shape}")
        if not (np.isfinite(targets).all() and (targets >= 0).all() and targets[:, 0].any(axis=1).all()):
            raise InputError("likelihoods must be finite and >= 0, and one of each row above 0")
        return targets.astype(np.float32, copy=False)
    if targets.ndim == 1 and targets.dtype.kind in "iu":
        return targets.astype(np.int64, copy=False)
    if targets.ndim == 2 and targets.dtype.kind == "b":
        return targets
    if targets.ndim != 2 or targets.dtype.kind != "f":
        raise InputError(
            "targets must be classes (int64 [n]), soft labels (float [n, classes]) or attributes (bool [n, attributes])"
            f", got {targets.dtype} {targets.shape}"
        )
    if not (targets >= 0).all() or not (abs(targets.sum(1, dtype=np.float64) - 1) <= _OFF_ONE).all():
        raise InputError("each row of soft labels must be >= 0 and add up to 1; divide the rows by their sums")
    return targets.astype(np.float32, copy=False)


def loss_for(
    targets: np.ndarray, label_smoothing: float = 0.0, loss: Loss = "cross_entropy"
) -> Callable[[Tensor, Tensor], Tensor]:
    """The mean loss that goes with targets of this kind; cross-entropy is binary for attributes."""
    functional = torch.nn.functional
    if loss in _OF_NUMBERS:
        error = getattr(functional, _OF_NUMBERS[loss])
        return lambda outputs, wanted: error(outputs.reshape(wanted.shape), wanted)
    if loss == "likelihood":
        return _likelihood_loss
    if targets.dtype.kind == "b":
        return lambda logits, wanted: functional.binary_cross_entropy_with_logits(logits, wanted.to(logits.dtype))
    return lambda logits, wanted: functional.cross_entropy(logits, wanted, label_smoothing=label_smoothing)


def _likelihood_loss(logits: Tensor, wanted: Tensor) -> Tensor:
    logs = torch.log_softmax(logits, dim=1)
    seen = torch.logsumexp(logs + wanted[:, 0].log(), dim=1)
    return -(seen + (wanted[:, 1] * logs).sum(dim=1)).mean()


def _refuse_outputs(outputs: Tensor, targets: np.ndarray) -> None:
    if targets.ndim == 3:
        targets = targets[:, 0]
    if targets.dtype.kind == "f" and targets.ndim == 1:
        if outputs.shape[1:].numel() != 1:
            raise InputError(f"numbers need one output an example, the model gives {tuple(outputs.shape[1:])}")
        return
    if targets.ndim == 2 and outputs.dim() == 2 and outputs.shape[1] == targets.shape[1]:
        return
    needed = targets.shape[1] if targets.ndim == 2 else int(targets.max()) + 1
    if outputs.dim() != 2 or targets.ndim == 2 or outputs.shape[1] < needed:
        given = tuple(outputs.shape[1:])
        raise InputError(f"the targets need {needed} outputs an example, the model gives {given}; build it for as many")
    if targets.min() < 0:
        raise InputError(f"classes must be >= 0, got {int(targets.min())}; number them from 0")


def _draws(model: nn.Module, inputs: tuple[np.ndarray, ...], device: torch.device) -> bool:
    """Whether the model takes random numbers, tried with a copy: a pass may write into batch norm and the like."""
    from torch.nn.modules.batchnorm import _BatchNorm

    from sfumato.data import to_tensor
    from sfumato.guard.trial import draws_random
    from sfumato.training.trainable import copied

    tried = copied(model).to(device).train()
    for layer in tried.modules():
        if isinstance(layer, _BatchNorm):
            layer.eval()  # a single row has no statistics
    with _GENERATOR:
        return draws_random(tried, *(to_tensor(rows).to(device) for rows in inputs))


@contextmanager
def _drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's generators for one training, seeded, and afterwards as they were."""
    from sfumato.guard.trial import seed_dropout

    with _GENERATOR, torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
        seed_dropout(seed, device)
        yield


def measure(model: nn.Module, data: ExampleDataset, *, log_rates: bool = False, device: str = "cpu") -> dict[str, Any]:
    """Accuracy and log loss of a model of classes; of attributes micro and macro F1 and mean average precision; of
    numbers the errors. With classes and numbers also trivial baselines, see `sfumato.metrics.baselines`.

    Args:
        model: with one output a class or an attribute, or one for a number.
        data: labelled.
        log_rates: the outputs for numbers are logarithms of rates, which are measured as counts are.
        device: where to compute.
    """
    from sfumato.metrics import ClassificationCounts, CountsSums, RegressionSums
    from sfumato.metrics.classification import attribute_scores

    inputs, targets = data.examples(np.arange(len(data)))
    assert targets is not None
    logits = outputs(model, inputs, device=device)
    if targets.ndim == 1 and data.num_classes is None:
        sums = CountsSums(compare=True) if log_rates else RegressionSums(compare=True)
        sums.add(logits, targets)
        return {**sums.report().summary(), "baselines": sums.baselines()}
    if targets.ndim == 2:
        return dict(attribute_scores(targets > 0, logits))
    counts = ClassificationCounts(logits.shape[1], compare=True)
    counts.add(logits, targets)
    return {**counts.report().summary(), "baselines": counts.baselines()}


def require_outputs(
    model: nn.Module, data: ExampleDataset, *, classes: int | None, whose: str, device: str, where: str = "the data"
) -> None:
    """Refuse a model that does not give one output a class for an example, or one number.

    Args:
        model: it stays as it is.
        data: examples, of which it is given the first.
        classes: how many there are; None for a number.
        whose: what messages call the model.
        device: where it is going to train.
        where: what messages call the data.

    Raises:
        InputError: it is no module, cannot read the example, or gives something else.
    """
    from sfumato.training.trainable import copied

    if not isinstance(model, torch.nn.Module):
        raise InputError(f"the {whose} must be a torch module, got {type(model).__name__}")
    inputs, _ = data.examples(np.arange(1))
    try:
        given = outputs(copied(model).to(device), inputs, device=device)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"the {whose} cannot read an example of {where}: {first_line(error)}") from None
    if classes is None and given.shape not in ((1,), (1, 1)):
        raise InputError(f"the {whose} must give one output for an example, a number, got {given.shape[1:]}")
    if classes is not None and given.shape != (1, classes):
        raise InputError(f"the {whose} must give {classes} outputs for an example, one a class, got {given.shape[1:]}")
