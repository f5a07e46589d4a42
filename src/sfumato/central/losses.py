"""Losses that are one number an example, the outputs that they read, and the values that they carry.

Losses that are one number an example, and the outputs that they read.

Outputs are [n, k], or [n] or [n, 1] for one each, as the targets are; a loss of several numbers is the mean of theirs.
An object with `logits`, as models of transformers give it, stands for these, and so does one that holds one tensor.

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
"""

import hashlib
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.loss import _Loss
from torch.utils._pytree import tree_leaves

from sfumato._check import InputError
from sfumato.data import ExampleDataset
from sfumato.guard.state import held_by

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


# The values that a loss carries with it (weights of classes, a threshold), by which one is told from another.


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
            f"the loss of documents needs logits [n, T, words] for targets [n, T], got {tuple(logits.shape)} and "
            f"{tuple(targets.shape)}; give a word, or {IGNORED} for none, at each place"
        )
    losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none", ignore_index=IGNORED)
    return losses.sum(dim=1) / (targets != IGNORED).sum(dim=1).clamp(min=1)


def language_model_loss(outputs: Any, targets: Tensor) -> Tensor:
    """The loss of language models, one a document: each place says the next word.

    Args:
        outputs: logits [n, T, words], those of place t from the words up to t.
        targets: int64 [n, T], the words that were read, `IGNORED` where they do not count.

    Returns:
        [n]: the mean over the document's own words that count, but the first. A decoder beside an encoder reads a start
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
        data: tells classes and targets.
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
