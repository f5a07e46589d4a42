"""What is learned of single examples: losses, the outputs that they read, and how a model is measured.

A loss is one number an example. Outputs are [n, k], or [n] or [n, 1] for one each, as the targets are; a loss of
several numbers is the mean of theirs. An object with `logits`, as models of transformers give it, stands for these, and
so does one that holds one tensor.

>>> [round(loss, 4) for loss in cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()]
[1.3863, 1.3863]
>>> squared_error(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 2.5])).tolist()
[4.0, 0.25]
>>> [round(loss, 4) for loss in poisson_loss(torch.tensor([[0.0], [1.0]]), torch.tensor([3, 2])).tolist()]
[1.0, 0.7183]
>>> [round(loss, 4) for loss in multi_label_loss(torch.zeros(2, 3), torch.tensor([[0, 1, 1], [0, 0, 0]])).tolist()]
[2.0794, 2.0794]
>>> words = torch.tensor([[3, 2, 1], [3, 2, IGNORED]])
>>> [round(loss, 4) for loss in language_model_loss(torch.zeros(2, 3, 4), words).tolist()]
[1.3863, 1.3863]

What is measured are classes, numbers, counts, or what a custom loss reads. A model gets the inputs of a data set by
position, or by the names that the data set gives them:

>>> class Scaled(nn.Module):
...     def forward(self, x, *, factor):
...         return factor * x
>>> call(Scaled(), (torch.ones(1), torch.tensor(3.0)), ("x", "factor"))
tensor([3.])
>>> refuse_names(Scaled(), ("x", "faktor"))
Traceback (most recent call last):
...
sfumato._check.InputError: the model takes no input 'faktor'; its forward takes x, factor: name the inputs so
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import Parameter, signature
from types import FunctionType
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.loss import _Loss
from torch.utils._pytree import tree_leaves

from sfumato._check import InputError
from sfumato.data import ExampleDataset, UserDataset, to_tensor
from sfumato.data.inputs import refuse_not_finite
from sfumato.guard.trial import held_by
from sfumato.metrics import ClassificationCounts, CountsSums, RegressionSums
from sfumato.metrics.regression import COUNTS, CUSTOM_LOSS, REGRESSION
from sfumato.training.contribution import Task

# The digest of one value, as examples and losses hold them.


def value_digest(value: Any) -> bytes | None:
    """SHA-256 of a tensor, an array, a number, text, bytes or None; None for anything else.

    >>> value_digest(1.0) == value_digest(1.0), value_digest(1.0) == value_digest(2.0), value_digest(object())
    (True, False, None)
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    elif hasattr(value, "__array__"):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        whole = hashlib.sha256(f"{value.dtype.str}{value.shape}".encode())
        whole.update(np.ascontiguousarray(value).data)
        return whole.digest()
    if isinstance(value, bool | int | float | complex | str | bytes | type(None)):
        return hashlib.sha256(repr(value).encode()).digest()
    return None


# The values that a loss carries with it (weights of classes, a threshold), by which one differs from another.


def values_of(loss: Any) -> str:
    """SHA-256 of what a loss holds in closures, defaults, arguments, attributes and buffers; "" for nothing.

    What is not a number, text, an array or a tensor counts by its type alone, and so does a network that a loss uses:
    its first weights may be others in each process.

    >>> def weighted(weight):
    ...     return lambda outputs, targets: weight * outputs
    >>> values_of(weighted(1.0)) == values_of(weighted(2.0)), values_of(len)
    (False, '')
    """
    found: list[bytes] = []
    _collect(loss, found, 0)
    return hashlib.sha256(b"|".join(found)).hexdigest() if found else ""


def _collect(value: Any, found: list[bytes], depth: int) -> None:
    if depth > 4:
        return
    if isinstance(value, partial):
        parts = [value.func, *value.args, *(each for item in sorted(value.keywords.items()) for each in item)]
    elif isinstance(value, nn.Module) and (not depth or isinstance(value, _Loss)):
        own = {name: each for name, each in vars(value).items() if not name.startswith("_")}
        parts = [each for item in sorted({**own, **value.state_dict()}.items()) for each in item]
    elif isinstance(value, FunctionType):
        parts = held_by(value)
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, dict):
        parts = [each for item in value.items() for each in item]
    else:
        if depth:
            found.append(value_digest(value) or type(value).__qualname__.encode())
        return
    for part in parts:
        _collect(part, found, depth + 1)


LossPerExample = Callable[[Any, Any], Tensor]
"""From the model's outputs [n, …] and targets [n] or [n, k], or None without targets, to one loss an example, [n]."""


IGNORED = -100
"""The target of a place that does not count, such as padding; torch's and transformers' number for it."""


def logits_of(outputs: Any) -> Any:
    """The tensor of an object with `logits`, or the only one of an object or a tuple; anything else as it is.

    >>> logits_of((torch.ones(2),)).tolist(), logits_of("no tensor")
    ([1.0, 1.0], 'no tensor')
    """
    if isinstance(outputs, Tensor):
        return outputs
    logits = getattr(outputs, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    found = [each for each in tree_leaves(outputs) if isinstance(each, Tensor)]
    return found[0] if len(found) == 1 else outputs


def cross_entropy(outputs: Any, labels: Tensor) -> Tensor:
    """The loss of classifiers: logits [n, classes], labels int64 [n] → [n]."""
    return functional.cross_entropy(logits_of(outputs), labels, reduction="none")


def squared_error(outputs: Any, targets: Tensor) -> Tensor:
    """The loss of regression: (output − target)², the mean over an example's numbers → [n]."""
    return _mean((logits_of(outputs).reshape(targets.shape) - targets).square())


def multi_label_loss(outputs: Any, targets: Tensor) -> Tensor:
    """The loss of several labels each: logits [n, k], targets [n, k] of 0 and 1 → [n], the sum of k binary losses."""
    logits = logits_of(outputs)
    if logits.shape != targets.shape:
        raise InputError(
            f"multi-label targets must be 0 or 1 for each of the model's {tuple(logits.shape[1:])} outputs, got "
            f"targets {tuple(targets.shape)}; build the model for as many labels"
        )
    given = targets.to(logits.dtype)
    return functional.binary_cross_entropy_with_logits(logits, given, reduction="none").sum(dim=1)


def token_loss(outputs: Any, targets: Tensor) -> Tensor:
    """The loss of documents whose model says a word at each place: logits [n, T, words], int64 [n, T] → [n].

    It is the mean over the document's own places that count; a document without any has loss zero. Places with the
    target `IGNORED` do not count: padding, and what is given.
    """
    logits = logits_of(outputs)
    if logits.dim() != 3 or logits.shape[:2] != targets.shape:
        raise InputError(
            f"the loss of documents needs logits [n, T, words] and targets [n, T], got {tuple(logits.shape)} "
            f"and {tuple(targets.shape)}; give a word or {IGNORED} at each place"
        )
    losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none", ignore_index=IGNORED)
    return losses.sum(dim=1) / (targets != IGNORED).sum(dim=1).clamp(min=1)


def language_model_loss(outputs: Any, targets: Tensor) -> Tensor:
    """The loss of language models, one a document: each place says the next word.

    Args:
        outputs: logits [n, T, words], those of place t from the words up to t.
        targets: int64 [n, T], the words that were read, `IGNORED` where they do not count.

    Returns:
        [n]: the mean over the document's own words that count, but the first. A decoder with an encoder reads a start
        and then the words, whose targets are `IGNORED` and then the words.
    """
    logits = logits_of(outputs)
    return token_loss(logits[:, :-1], targets[:, 1:])


def poisson_loss(log_rates: Any, counts: Tensor) -> Tensor:
    """The loss of counts: exp(s) − y·s for the logarithm s of the rate, the mean over an example's counts → [n].

    The negative log-likelihood of Poisson counts without log y!, which no model changes.
    """
    rates = logits_of(log_rates).reshape(counts.shape)
    return _mean(functional.poisson_nll_loss(rates, counts.to(rates.dtype), log_input=True, reduction="none"))


def refuse_outputs(loss: LossPerExample, outputs: Any, data: ExampleDataset, examples: int) -> None:
    """Refuse outputs that a loss of this module cannot read; what another one reads is its own affair.

    Args:
        loss: of the model.
        outputs: of so many examples.
        data: has classes and targets.
        examples: how many.

    Raises:
        InputError: with the shape that is needed.
    """
    outputs = logits_of(outputs)
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if loss is cross_entropy:
        if not isinstance(outputs, Tensor) or outputs.dim() != 2 or len(outputs) != examples:
            raise InputError(
                f"the model must give logits [n, classes] for n examples, got {shape}; flatten, or give a loss"
            )
        if outputs.shape[1] < (data.num_classes or 1):
            raise InputError(
                f"the data has {data.num_classes} classes but the model gives {outputs.shape[1]} logits; "
                "build it for that many classes"
            )
    elif loss in (squared_error, poisson_loss) and data.targets is not None:
        wanted = (examples, *data.targets.shape[1:])
        each = 1 if len(wanted) == 1 else wanted[1]
        if shape not in ({(examples,), (examples, 1)} if each == 1 else {wanted}):
            raise InputError(
                f"the model gives outputs {shape} for {examples} examples with targets {wanted}; build it with "
                f"{each} output{'s' * (each != 1)}, or give a loss"
            )


def _mean(losses: Tensor) -> Tensor:
    """The mean over all dimensions but the first."""
    return losses if losses.dim() == 1 else losses.mean(dim=1)


def call(model: nn.Module, inputs: Sequence[Tensor], names: Sequence[str]) -> Any:
    """What the model gives.

    Args:
        model: any.
        inputs: one tensor each.
        names: the keyword of each; () for positions.
    """
    return model(**dict(zip(names, inputs, strict=True))) if names else model(*inputs)


def in_order(model: nn.Module, inputs: Sequence[Tensor], names: Sequence[str]) -> tuple[Tensor, ...]:
    """The inputs as a call by position would give them: public inputs of a model have no names.

    >>> class Both(nn.Module):
    ...     def forward(self, first, second): ...
    >>> in_order(Both(), (torch.tensor(2), torch.tensor(1)), ("second", "first"))
    (tensor(1), tensor(2))
    """
    taken, _ = _taken(model)
    place = {name: taken.index(name) if name in taken else len(taken) for name in names}
    return tuple(inputs[i] for i in sorted(range(len(inputs)), key=lambda i: place[names[i]] if names else i))


def refuse_names(model: nn.Module, names: Sequence[str]) -> None:
    """Refuse names that the model does not know.

    A forward with `**keywords` takes any, and would drop a misspelt mask without a word; so some part of the model has
    to take the name.

    Raises:
        InputError: it names those that it takes.
    """
    taken, open_ended = _taken(model)
    if open_ended:
        taken += [name for part in model.modules() for name in _taken(part)[0] if name not in taken]
    for name in names:
        if name not in taken:
            raise InputError(
                f"the model takes no input {name!r}; its forward takes {', '.join(_taken(model)[0] or taken)}: name "
                "the inputs so"
            )


def _taken(part: nn.Module) -> tuple[list[str], bool]:
    """Keywords of a forward, and whether it takes any other, too."""
    kinds = {name: each.kind for name, each in signature(part.forward).parameters.items()}
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [name for name, kind in kinds.items() if kind in named], Parameter.VAR_KEYWORD in kinds.values()


# What a model says of the examples of a data set, in bounded memory, and whether its task fits them.
#
# Whatever is measured on private records is private: only public or consented data belongs in an evaluation that is
# released.


_BATCH = 512


def outputs_of(model: nn.Module, data: ExampleDataset, *, device: str = "cpu") -> Iterator[tuple[Any, Tensor | None]]:
    """Outputs of all examples in bounded memory, of the model in evaluation mode.

    Yields:
        what the model gives, and targets [n] or [n, k] or None, on the device.
    """
    was_training = model.training
    model.eval()
    try:
        for inputs, targets in data.batches(_BATCH):
            with torch.inference_mode():
                outputs = call(model, [to_tensor(x).to(device) for x in inputs], data.input_names)
            yield outputs, None if targets is None else torch.from_numpy(targets).to(device)
    finally:
        model.train(was_training)


def predict(model: nn.Module, data: ExampleDataset, *, device: str = "cpu") -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Targets and predictions of all examples, for a model whose outputs `logits_of` can read.

    Yields:
        targets [n] or [n, k], outputs float32 [n, …].

    Raises:
        InputError: there are no targets.
    """
    for outputs, targets in outputs_of(model, data, device=device):
        if targets is None:
            raise InputError("the examples have no targets to measure against; give them, or task=own with a loss")
        yield targets.cpu().numpy(), logits_of(outputs).float().cpu().numpy()


def refuse_few(data: ExampleDataset) -> None:
    """Raise InputError if these are no single examples, or they are too few to protect anyone."""
    if not isinstance(data, ExampleDataset):
        remedy = "data.open_examples(table, input=…, label=…) makes one of a table"
        if isinstance(data, UserDataset):
            remedy = "data.examples_from_users(people) takes them one by one; to hide whole users take FedAvg or FedEmb"
        raise InputError(f"data must be single examples (ExampleDataset), got {type(data).__name__}; {remedy}")
    if len(data) < 2:
        raise InputError(f"the data set has {len(data)} examples; a private sum needs at least 2")


def refuse_targets(data: ExampleDataset, task: str, wanted: str, remedy: str) -> NoReturn:
    """Raise InputError about targets that are of another kind than a task's."""
    given = "none" if data.targets is None else f"{data.targets.dtype} {data.targets.shape}"
    if data.num_classes is not None:
        given = f"{data.num_classes:,} classes"
    raise InputError(f"task={task} needs {wanted} as targets, got {given}; {remedy}")


# Classifiers of single examples: targets are classes, and what counts is how often the model is right.


_BLOCK = 1 << 16


class Classification(Task):
    """A model maps inputs to logits [n, classes]; data sets are `ExampleDataset`s."""

    columns: ClassVar = {"accuracy": "accuracy", "log_loss": "log loss", "auc": "auc"}

    def check(self, data: ExampleDataset) -> None:
        """Refuse data that are too small to protect anyone, whose targets are no classes, or are out of range."""
        refuse_few(data)
        if data.targets is None or data.num_classes is None:
            remedy = "use task=own with a loss" if data.targets is None else "use task=regression or task=counts"
            refuse_targets(data, "classes", "class numbers", f"number the classes from 0, or {remedy}")
        for start in range(0, len(data), _BLOCK):
            labels = np.asarray(data.targets[start : start + _BLOCK])
            wrong = (labels < 0) | (labels >= data.num_classes)
            if wrong.any():
                raise InputError(
                    f"labels must be in 0 … {data.num_classes - 1}, got {int(labels[wrong.argmax()])} in example "
                    f"{start + int(wrong.argmax())}; number the classes from 0"
                )

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Accuracy, mean log loss and, for two classes, the area under the ROC curve; with `curve` the confusion, and a
        constant to compare with."""
        if data.num_classes is None:
            raise InputError(f"there are no classes to measure on: {data}; give test data like those of the training")
        counts = ClassificationCounts(data.num_classes, compare=curve)
        for labels, logits in predict(model, data, device=device):
            counts.add(logits[:, : data.num_classes], labels)
        report = counts.report()
        row: dict[str, Any] = report.summary()
        if curve:
            row["baselines"] = counts.baselines()
        if curve and report.confusion is not None:
            row["confusion"] = report.confusion.tolist()
        return row

    def about_test(self, data: ExampleDataset, row: dict[str, Any]) -> dict[str, Any]:
        """Counts of examples and classes."""
        return {"data": "test", "examples": len(data), "classes": data.num_classes}

    def line(self, evaluation: dict[str, Any]) -> str:
        """Examples and classes."""
        return f"on {evaluation['examples']:,} test examples of {evaluation['classes']:,} classes"


# Tasks whose targets are no classes: regression, counts, and whatever a loss of one's own reads.
#
# What their measures mean stands in `sfumato.metrics.regression` and `sfumato.metrics.regression`.


class _Numbers(Task):
    """What the tasks have in common."""

    digits: ClassVar[str] = ".4g"

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """All measures; one that is infinite or unknown is left out of its row."""
        return list(self.columns.values()), list(self.columns), self.line(evaluation)

    def _added(
        self, sums: RegressionSums | CountsSums, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str
    ) -> dict[str, Any]:
        for targets, outputs in predict(model, data, device=device):
            sums.add(outputs, targets)
        row: dict[str, Any] = sums.report().summary()
        return {**row, "baselines": sums.baselines()} if curve else row


class Regression(_Numbers):
    """A model maps inputs to numbers [n, k], or [n] or [n, 1] for one each; targets are of that shape."""

    columns: ClassVar = REGRESSION

    def check(self, data: ExampleDataset) -> None:
        """Refuse data that are too small to protect anyone, or whose targets are no numbers."""
        _refuse_no_numbers(data, "regression")

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Errors, and how much of the targets' spread is explained; with `curve` a constant to compare with."""
        return self._added(RegressionSums(compare=curve), model, data, curve=curve, device=device)


class Counts(_Numbers):
    """A model maps inputs to logarithms of rates [n, k], or [n] or [n, 1] for one each; targets are >= 0."""

    columns: ClassVar = COUNTS

    def check(self, data: ExampleDataset) -> None:
        """Refuse data that are too small to protect anyone, or whose targets are no counts."""
        targets = _refuse_no_numbers(data, "counts")
        for start in range(0, len(targets), _BLOCK):
            block = np.asarray(targets[start : start + _BLOCK])
            wrong = (block < 0).reshape(len(block), -1)
            if wrong.any():
                row = int(wrong.any(axis=1).argmax())
                value = block.reshape(len(block), -1)[row][wrong[row]][0]
                raise InputError(
                    f"task=counts needs targets >= 0, got {value:g} in example {start + row}; correct it, or use "
                    "task=regression"
                )

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """The Poisson log loss, also next to that of the best constant rate; and the mean of the rates."""
        return self._added(CountsSums(compare=curve), model, data, curve=curve, device=device)


class CustomLoss(_Numbers):
    """A model and a loss of one's own; targets are of any kind, or there are none.

    Args:
        loss: from the model's outputs and the targets to one loss an example, [n].
    """

    columns: ClassVar = CUSTOM_LOSS

    def __init__(self, loss: LossPerExample | None = None) -> None:
        self._loss = loss

    def check(self, data: ExampleDataset) -> None:
        """Refuse data that are too small to protect anyone, and a task without its loss."""
        refuse_few(data)
        self._required()

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """The mean loss with its standard error; left out where the loss of an example is not finite."""
        loss, total, mean, spread, count, wrong = self._required(), 0.0, 0.0, 0.0, 0, 0
        for outputs, targets in outputs_of(model, data, device=device):
            with torch.inference_mode():
                losses = loss(outputs, targets).double()
            good = torch.isfinite(losses)
            wrong += int((~good).sum())
            found = losses[good]
            if wrong or not len(found):
                continue
            total += float(found.sum())
            # Of the batches so far and this one together, as in `metrics.regression`: no difference of large numbers.
            shift, both = float(found.mean()) - mean, count + len(found)
            spread += float(((found - found.mean()) ** 2).sum()) + shift**2 * count * len(found) / both
            mean, count = mean + shift * len(found) / both, both
        if wrong or not math.isfinite(total):
            return {"not_finite": wrong}
        row: dict[str, Any] = {"loss": total / len(data), "not_finite": 0}
        if count < 2 or not math.isfinite(spread):
            return row
        return {**row, "standard_error": {"loss": math.sqrt(spread / (count - 1) / count)}, "error_units": count}

    def _required(self) -> LossPerExample:
        if self._loss is None:
            raise InputError(
                "task=own needs a loss: DPSGD(task='own', …).fit(model, data, loss=…) in Python; a command has "
                "classes, regression and counts"
            )
        return self._loss


def _refuse_no_numbers(data: ExampleDataset, task: str) -> np.ndarray:
    """The targets, if they are numbers."""
    refuse_few(data)
    if data.targets is None or data.num_classes is not None:
        remedy = "use task=own with a loss" if data.targets is None else "use task=classes, or read them as numbers"
        refuse_targets(data, task, "numbers", remedy)
    refuse_not_finite(data.targets, "targets")
    return data.targets


_TASKS: dict[str, tuple[type[Classification] | type[Regression] | type[Counts], LossPerExample]] = {
    "classes": (Classification, cross_entropy),
    "regression": (Regression, squared_error),
    "counts": (Counts, poisson_loss),
}
"""How a model is measured, and the loss that it is trained by."""


def task_named(name: str) -> Classification | Regression | Counts | CustomLoss:
    """What the targets must be, and the measures of them."""
    return CustomLoss() if name == "own" else _TASKS[name][0]()


def loss_named(name: str, data: ExampleDataset) -> LossPerExample:
    """The loss of a task.

    Raises:
        InputError: the loss has to be given.
    """
    if name == "own":
        CustomLoss().check(data)  # says what to do
    return _TASKS[name][1]
