"""A check at the start: the engine against autograd, on two examples of the user's own model and loss.

Six things are held, in this order, and a model that breaks one is refused with the name of the place:

1. An example's outputs are the same by itself and beside another one (to 0.1 %, for each module that is called).
2. No trained parameter is used outside its layer's forward pass (exactly: no path of the graph leads to one).
3. The gradient of one example's loss is zero at the other example, in every layer (exactly).
4. Each parameter's per-example gradients, in a batch of two and of one, are those of autograd: |engine - autograd| <=
   0.1 % of |autograd|, plus 1e-5 of the length of all gradients together (5 % and 1 % in half precision).
5. An example's gradient is the same whoever else is in a batch of eight; see `neighbours`, which also says what no such
   check can see.
6. No parameter and no buffer changes while examples go through.

All of it at weights that are shaken a little, since a layer that starts at zero would hide what is before it; where the
loss is not finite at such weights, at the weights as they are.

Random parts such as dropout stay at work: both passes meet the same numbers (`SameNoise`); the inner dropout of
recurrent layers and of attention is set to zero for the check. Weights and buffers are restored.

>>> model = nn.Linear(2, 1)
>>> check = self_check(model, lambda values: model(values).square().squeeze(1), torch.ones(2, 2))
>>> [layer.name for layer in check.layers], check.unused
([''], [])
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from sfumato._check import InputError
from sfumato.per_example.checks.neighbours import COUPLED, refuse_neighbours, shaken, unchanged
from sfumato.per_example.checks.same_noise import Losses, losses_of
from sfumato.per_example.coverage import covered, name_of, place_of
from sfumato.per_example.engine import Recording
from sfumato.per_example.expand import ExpandRule
from sfumato.per_example.rule import Layer

_ROUND_OFF = (1e-3, 1e-5)  # relative to the parameter's own gradient, and to all of them
_ROUND_OFF_HALF = (5e-2, 1e-2)
_ROUND_OFF_SAME_SHAPE = (1e-5, 1e-5)


@dataclass(frozen=True)
class SelfCheck:
    """What was found.

    Attributes:
        layers: how the model is covered, for `Recording`.
        unused: names of trained parameters that the losses do not depend on; their gradients are zero.
        largest_difference: between the engine and autograd, relative to a parameter's gradient.
    """

    layers: list[Layer[nn.Module]]
    unused: list[str]
    largest_difference: float


def self_check(model: nn.Module, losses: Losses, batch: Any) -> SelfCheck:
    """Check the engine on the first two examples of a batch.

    Args:
        model: the user's module, in the mode in which it is trained.
        losses: gives float [B], one loss for each example of a batch; calls the model.
        batch: tensors with the examples in dimension 0, in any tuples, lists and dictionaries; what is no tensor is
            shared. One example is enough, and is then taken twice.

    Raises:
        InputError: the model cannot be covered, couples examples, or uses a parameter where it cannot be seen.
    """
    if not any(isinstance(leaf, Tensor) and leaf.dim() and len(leaf) for leaf in tree_leaves(batch)):
        raise InputError("the self-check needs an example, got an empty batch; give it any two training examples")
    pair = tree_map(_two, batch)
    layers = covered(model)
    parameters = Recording(layers).parameters
    with _as_it_was(model):
        if not _all_finite(losses, pair):
            raise InputError("the loss of the first examples is not finite; look at the inputs and the initial weights")
        with shaken(parameters):
            if _all_finite(losses, pair):
                return _checked(model, layers, losses, pair)
        return _checked(model, layers, losses, pair)


def _checked(model: nn.Module, layers: list[Layer[nn.Module]], losses: Losses, pair: Any) -> SelfCheck:
    """The checks at the weights as they are."""
    half = _couplings(model, losses, pair)
    with unchanged(model):
        _outside_uses(layers, losses, pair)
        try:
            found = _compared(model, layers, losses, pair, half)
        except (InputError, RuntimeError):
            if not any(isinstance(layer.rule, ExpandRule) for layer in layers):
                raise
            found = _compared(model, covered(model, expand=False), losses, pair, half)
        refuse_neighbours(found.layers, losses, pair, _ROUND_OFF_HALF if half else _ROUND_OFF_SAME_SHAPE)
    return found


def _all_finite(losses: Losses, pair: Any) -> bool:
    with torch.no_grad():
        return bool(losses_of(losses, pair, 2).isfinite().all())


def _two(value: Any) -> Any:
    if not isinstance(value, Tensor) or not value.dim():
        return value
    return value[:2] if len(value) > 1 else torch.cat([value, value])


def _alone(pair: Any, index: int) -> Any:
    """One of the two as a batch of one."""
    return tree_map(lambda each: each[index : index + 1] if isinstance(each, Tensor) and each.dim() else each, pair)


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Buffers are put back, and so is the dropout within recurrent layers and attention."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    inner = [(part, part.dropout) for part in model.modules() if isinstance(part, (nn.RNNBase, nn.MultiheadAttention))]
    for part, _ in inner:
        part.dropout = 0.0
    try:
        yield
    finally:
        for part, dropout in inner:
            part.dropout = dropout
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _couplings(model: nn.Module, losses: Losses, pair: Any) -> bool:
    """Refuse a module whose outputs depend on who else is in the batch; tell whether half precision is at work."""
    together, both = _watched(model, losses, pair, 2)
    half = any(output.dtype in (torch.float16, torch.bfloat16) for _, output in together)
    relative = 50e-3 if half else 1e-3
    for index in range(2):
        alone, own = _watched(model, losses, _alone(pair, index), 1)
        names = [name for name, _ in together]
        if names == [name for name, _ in alone]:
            for (name, output), (_, other) in zip(together, alone, strict=True):
                if not _alike(output, other, index, relative):
                    raise InputError(f"layer {name!r}: its output for an example changes with the batch: {COUPLED}")
        if not _alike(both, own, index, relative):
            raise InputError(
                f"the loss of an example changes with the batch, and no layer's output does: {COUPLED} "
                "(look at the loss and at the model's own forward)"
            )
    return half


def _watched(model: nn.Module, losses: Losses, batch: Any, examples: int) -> tuple[list[tuple[str, Tensor]], Tensor]:
    """Every module's outputs in the order in which they are ready, inner modules first."""
    seen: list[tuple[str, Tensor]] = []
    handles = []
    for name, module in model.named_modules():

        def watch(part: nn.Module, inputs: Any, output: Any, name: str = name or type(module).__name__) -> None:
            if any(isinstance(each, PackedSequence) for each in (output if type(output) is tuple else (output,))):
                return  # its rows are time steps of both examples in turn: the next layers, and the gradients, tell
            seen.extend((name, leaf.detach().clone()) for leaf in tree_leaves(output) if isinstance(leaf, Tensor))

        handles.append(module.register_forward_hook(watch))
    try:
        with torch.no_grad():
            found = losses_of(losses, batch, examples)
    finally:
        for handle in handles:
            handle.remove()
    return seen, found


def _alike(pair: Tensor, alone: Tensor, index: int, relative: float) -> bool:
    """Whether an example's part of a pair's output is its output alone; the dimension is where the sizes differ."""
    if pair.shape == alone.shape:  # shared by the examples
        part = pair
    else:
        differ = [axis for axis, sizes in enumerate(zip(pair.shape, alone.shape, strict=False)) if sizes[0] != sizes[1]]
        if pair.dim() != alone.dim() or len(differ) != 1 or pair.shape[differ[0]] != 2 * alone.shape[differ[0]]:
            return True  # padded or packed to other sizes: the gradients will tell
        rows = alone.shape[differ[0]]
        part = pair.narrow(differ[0], index * rows, rows)
    if not alone.is_floating_point():
        return True
    part, alone = part.double().nan_to_num(), alone.double().nan_to_num()
    scale = alone.abs().max() if alone.numel() else 0.0
    return bool(((part - alone).abs() <= relative * scale + 1e-30).all())


def _outside_uses(layers: Sequence[Layer[Any]], losses: Losses, pair: Any) -> None:
    """Refuse parameters that the losses reach past their layers: each is switched off within its layer's forward."""
    names = {id(layer.module.get_parameter(name)): (layer, name) for layer in layers for name in sorted(layer.wanted)}
    parameters = [layer.module.get_parameter(name) for layer, name in names.values()]
    depth = dict.fromkeys(names, 0)
    handles = []
    for layer in layers:
        own = [layer.module.get_parameter(name) for name in layer.wanted]

        def switch(step: int, own: Sequence[nn.Parameter] = own) -> Callable[..., None]:
            def turn(*_: Any) -> None:
                for parameter in own:
                    depth[id(parameter)] += step
                    parameter.requires_grad_(depth[id(parameter)] == 0)

            return turn

        handles.append(layer.module.register_forward_pre_hook(switch(1)))
        handles.append(layer.module.register_forward_hook(switch(-1), always_call=True))
    try:
        found = losses_of(losses, pair, 2)
        if not found.requires_grad:
            return
        gradients = torch.autograd.grad(found.sum(), parameters, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
        for parameter in parameters:
            parameter.requires_grad_(True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            raise InputError(
                f"parameter {name_of(layers, parameter)!r} is used outside the forward pass of its layer, in the loss "
                "or by a function that takes the weight itself, where no example's share can be seen; call the layer, "
                "or take the term out of the loss (weight decay belongs to the optimiser)"
            )


def _compared(model: nn.Module, layers: list[Layer[nn.Module]], losses: Losses, pair: Any, half: bool) -> SelfCheck:
    """The engine's gradients of each example against autograd's, and nothing of one at the other."""
    other_norms, gradients = [], []
    for index in range(2):
        with Recording(layers, examples=2) as recording:
            both = losses_of(losses, pair, 2)
            recording.backward(both * torch.eye(2, dtype=both.dtype, device=both.device)[index])
        other_norms.append([recording.squared_norms([parameter])[1 - index] for parameter in recording.parameters])
        gradients.append((index, [gradient[index].clone() for gradient in recording.per_example()]))
    for parameter, *norms in zip(recording.parameters, *other_norms, strict=True):
        if any(norm != 0 for norm in norms):
            raise InputError(
                f"parameter {name_of(layers, parameter)!r}: the loss of one example has a gradient at another one's "
                f"input; something behind this layer mixes them: {COUPLED}"
            )
    for index in range(2):  # a batch of one is an ordinary case: sampling may leave one, and so may micro-batches
        with Recording(layers, examples=1) as recording:
            recording.backward(losses_of(losses, _alone(pair, index), 1))
        gradients.append((index, [gradient[0].clone() for gradient in recording.per_example()]))
    plain = losses_of(losses, pair, 2)
    expected = [
        torch.autograd.grad(plain[index], recording.parameters, allow_unused=True, retain_graph=index == 0)
        for index in range(2)
    ]
    relative, floor = _ROUND_OFF_HALF if half else _ROUND_OFF
    largest = 0.0
    for index, found in gradients:
        lengths = [0.0 if g is None else float(g.double().norm()) for g in expected[index]]
        whole = torch.tensor(lengths).norm().item()
        for parameter, own, given, length in zip(recording.parameters, found, expected[index], lengths, strict=True):
            difference = float((own if given is None else own - given.view_as(own)).double().norm())
            if not difference <= relative * length + floor * whole:
                layer, _ = place_of(layers, parameter)
                raise InputError(
                    f"parameter {name_of(layers, parameter)!r}: its per-example gradient differs from autograd's by "
                    f"{difference:.3g} of {length:.3g}; the layer {type(layer.module).__name__} does not do what its "
                    f"rule takes for granted ({layer.rule.path}); freeze it, or use a layer of torch.nn as it is"
                )
            if length > floor * whole:
                largest = max(largest, difference / length)
    return SelfCheck(layers, recording.unused(), largest)
