"""What a bound for each example rests on, tried out: whoever else is in the batch, an example's gradient is the same.

The clipped sum moves by no more than the clip norm when an example comes or goes if the gradient of every other one
stays. Two batches of eight share three rows and differ in all others; the gradients of the three must be equal (to
0.001 %, plus as much of the length of all gradients together; 5 % and 1 % in half precision). Equal shapes are computed
in the same way, so round-off hides little. Where eight do not fit into memory, it is four or two.

Layers that start at zero (a last layer, the scale of a residual block) stop every gradient before them, and would hide
what happens there. So weights are `shaken` for the time of the check: each gets Gaussian noise of a tenth of the
parameter's own size, and 0.01.

Not seen: coupling that needs more than eight examples or other data, such as a branch on the size of the batch; parts
that neither example reaches at such weights, as behind a ReLU that nothing passes; state in plain attributes that shows
only after many calls; random draws that depend on the size of the batch, such as dropping exactly half of it.

>>> layer = nn.Linear(2, 1)
>>> before = layer.weight.detach().clone()
>>> with shaken([layer.weight]):
...     torch.equal(before, layer.weight)
False
>>> torch.equal(before, layer.weight)
True
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sfumato._check import InputError
from sfumato.per_example.checks.same_noise import Losses, losses_of
from sfumato.per_example.coverage import name_of
from sfumato.per_example.engine import Recording
from sfumato.per_example.memory import out_of_memory
from sfumato.per_example.rule import Layer

COUPLED = (
    "the examples of a batch are coupled there, and no bound on one example's gradient would hold; "
    "let it work on each example by itself (attention, statistics and ranks over dimension 0 do not)"
)

_KEPT = {8: (0, 3, 7), 4: (0, 2), 2: (0,)}  # rows that stay, by the size: of each usual pairing a partner changes
_SHARE, _LEAST = 0.1, 0.01  # of the noise on a weight
_CHUNK = 1 << 22  # numbers of noise at a time


@contextmanager
def shaken(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Parameters with some noise; on leaving they are as they were. No generator but its own is used."""
    before = [parameter.detach().clone() for parameter in parameters]
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for parameter in parameters:
                size = _SHARE * float(torch.linalg.vector_norm(parameter)) / parameter.numel() ** 0.5 + _LEAST
                noise = torch.randn(min(_CHUNK, parameter.numel()), generator=generator).to(parameter)
                for piece in parameter.view(-1).split(_CHUNK):
                    piece.add_(noise[: len(piece)], alpha=size)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Refuse a model of which a parameter or a buffer, trained or not, changes while examples go through.

    Raises:
        InputError: names it.
    """
    versions = {name: parameter._version for name, parameter in model.named_parameters()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    yield
    changed = [name for name, parameter in model.named_parameters() if parameter._version != versions.get(name)]
    changed += [name for name, buffer in model.named_buffers() if not _same(buffers.get(name), buffer)]
    if changed:
        raise InputError(
            f"{changed[0]!r} changes when examples go through the model: it would be released without noise, and the "
            "gradients of later examples depend on it; keep no statistics, counts or other state of the examples"
        )


def refuse_neighbours(layers: Sequence[Layer[Any]], losses: Losses, pair: Any, tolerance: tuple[float, float]) -> None:
    """Refuse a model in which an example's gradient depends on who else is in the batch.

    Args:
        layers: how the model is covered.
        losses: gives float [B], one loss for each example of a batch.
        pair: two examples, in any tuples, lists and dictionaries of tensors.
        tolerance: relative to a parameter's gradient, and to the length of all of them.

    Raises:
        InputError: names a parameter whose gradient changed.
    """
    pair = tree_map(_two_that_differ, pair)
    for own in (0, 1):
        for rows, kept in _KEPT.items():
            try:
                _refuse_change(layers, losses, pair, tolerance, rows=rows, kept=kept, own=own)
            except (RuntimeError, MemoryError) as error:
                if rows > 2 and out_of_memory(error):
                    continue
                raise
            break


def _refuse_change(
    layers: Sequence[Layer[Any]],
    losses: Losses,
    pair: Any,
    tolerance: tuple[float, float],
    *,
    rows: int,
    kept: tuple[int, ...],
    own: int,
) -> None:
    """Compare the gradients of one of the two examples, `own`, among copies of the other one and among its own."""
    found: list[list[Tensor]] = []
    for other in (1 - own, own):
        places = [own if row in kept else other for row in range(rows)]
        with Recording(layers, examples=rows) as recording:
            recording.backward(losses_of(losses, tree_map(lambda value, at=places: _at(value, at), pair), rows))
        weights = torch.zeros(rows, dtype=torch.float64, device=recording.parameters[0].device)
        for row in kept:
            weights[row] = 1.0 / (1 + row)  # different ones, so that changes do not cancel
        found.append(recording.weighted_sum(weights))
    lengths = [float(torch.linalg.vector_norm(gradient)) for gradient in found[1]]
    whole = torch.tensor(lengths, dtype=torch.float64).norm().item()
    relative, floor = tolerance
    for parameter, one, two, length in zip(recording.parameters, *found, lengths, strict=True):
        if not float(torch.linalg.vector_norm(one - two)) <= relative * length + floor * whole:
            raise InputError(
                f"parameter {name_of(layers, parameter)!r}: an example's gradient changes with the rest of the batch; "
                f"something in the model or the loss mixes them: {COUPLED}"
            )


def _at(value: Any, places: list[int]) -> Any:
    return value[places] if isinstance(value, Tensor) and value.dim() else value


def _two_that_differ(value: Any) -> Any:
    """Two rows; where they are equal numbers on a scale, the second one becomes half of it."""
    if not isinstance(value, Tensor) or not value.dim() or not value.is_floating_point():
        return value
    return torch.stack([value[0], value[1] / 2]) if torch.equal(value[0], value[1]) else value


def _same(before: Tensor | None, now: Tensor) -> bool:
    """Whether a buffer holds what it held, NaN included."""
    if before is None or before.shape != now.shape or before.dtype != now.dtype:
        return False
    return bool(((before == now) | ((before != before) & (now != now))).all())
