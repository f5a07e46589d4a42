"""Which layer it is in which a row's output is another one in company than alone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves

from sfumato.per_example.checks.rows import rows_at
from sfumato.per_example.checks.trial import Tolerance, Trial


def changed_layer(trial: Trial, batch: Any, places: Sequence[int], index: int) -> str | None:
    """The name of the innermost such layer; None where no layer's output tells.

    Args:
        trial: the model and its loss.
        batch: rows.
        places: of the rows that go together.
        index: of the row among them.
    """
    together = _outputs(trial, rows_at(batch, places))
    alone = _outputs(trial, rows_at(batch, [places[index]]))
    if [name for name, _ in together] != [name for name, _ in alone]:
        return None
    for (name, output), (_, own) in zip(together, alone, strict=True):
        if not _alike(output, own, index, len(places), trial.tolerance):
            return name
    return None


def _outputs(trial: Trial, batch: Any) -> list[tuple[str, Tensor]]:
    """Every module's outputs in the order in which they are ready, inner modules first."""
    seen: list[tuple[str, Tensor]] = []
    handles = []
    for name, module in trial.model.named_modules():

        def watch(part: Any, inputs: Any, output: Any, name: str = name or type(module).__name__) -> None:
            if any(isinstance(each, PackedSequence) for each in (output if type(output) is tuple else (output,))):
                return  # its rows are time steps of all examples in turn: the next layers tell
            seen.extend((name, leaf.detach().clone()) for leaf in tree_leaves(output) if isinstance(leaf, Tensor))

        handles.append(module.register_forward_hook(watch))
    try:
        with torch.no_grad():
            trial.forward(batch)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _alike(together: Tensor, alone: Tensor, index: int, count: int, tolerance: Tolerance) -> bool:
    """Whether an example's part of an output is its output alone; its dimension is where the sizes differ."""
    if together.shape == alone.shape:  # shared by the examples
        part = together
    else:
        differ = [axis for axis, sizes in enumerate(zip(together.shape, alone.shape)) if sizes[0] != sizes[1]]
        if together.dim() != alone.dim() or len(differ) != 1:
            return True  # padded or packed to other sizes: a later layer tells
        axis = differ[0]
        rows = alone.shape[axis]
        if together.shape[axis] != count * rows:
            return True
        part = together.narrow(axis, index * rows, rows)
    if not alone.is_floating_point():
        return True
    part, alone = part.double().nan_to_num(), alone.double().nan_to_num()
    scale = alone.abs().max() if alone.numel() else 0.0
    return bool(((part - alone).abs() <= tolerance.relative * scale + 1e-30).all())
