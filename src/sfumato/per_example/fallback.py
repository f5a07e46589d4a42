"""Layers without a rule of their own: the module is run again for each example by itself, vectorised.

Exact for any module that treats examples independently; slower and larger than a rule, because the gradients of its
own parameters are materialised. Only the module itself is run again, never the network around it. Layers within it
keep their own rules; but they are run again with it, so a parameter of a module with many layers is better moved into a
small module of its own. A module that draws random numbers cannot be run again with the same ones, and is refused.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sfumato._check import InputError, first_line
from sfumato._torch import at_least_single
from sfumato.per_example.rule import Dense, Factors, Layer, Rule, Tap, each_of, rows_of
from sfumato.per_example.workspace import ONCE, Shared


class FallbackRule(Rule):
    """Any module whose inputs and outputs have the examples in dimension 0."""

    path: ClassVar[str] = "vectorised per-example gradients of the module"

    def attach(self, layer: Layer[nn.Module], tap: Tap) -> Callable[[], None]:
        calls = count()

        def watch(module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
            if not tap.listening:
                return output
            call = next(calls)

            def marked(value: Any, index: int | None) -> Any:
                if not isinstance(value, Tensor) or not value.is_floating_point():
                    return value
                examples = tap.examples
                once = rows_of(layer, call, (inputs, keywords), value, examples) == ONCE
                # a copy: the module's own backward pass may need its output, and the next layer may work in place
                copy = (each_of(value, examples) if once else value).clone()
                seen = tap(copy, lambda gradient: _factors(layer, inputs, keywords, index, gradient, once=once))
                return Shared(seen, layer.workspace.decisions) if once else seen

            if isinstance(output, tuple):
                return tuple(marked(value, index) for index, value in enumerate(output))
            return marked(output, None)

        return layer.module.register_forward_hook(watch, with_kwargs=True).remove


class AroundFallbackRule(FallbackRule):
    """The same for a parameter of a module with layers. They are run again with the module but keep their own rules."""

    path: ClassVar[str] = (
        "the module and all layers within it run again, vectorised; a small module of its own is cheaper"
    )


class WholeFallbackRule(FallbackRule):
    """The same for a module and everything within it."""

    whole: ClassVar[bool] = True


def _factors(
    layer: Layer[nn.Module],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    index: int | None,
    gradient: Tensor,
    *,
    once: bool,
) -> Factors:
    """Gradients of the wanted parameters through one output; `once` if it is computed once for all examples."""
    module, examples = layer.module, len(gradient)
    trained = {name: module.get_parameter(name).detach() for name in sorted(layer.wanted)}
    fixed = {name: value.detach() for name, value in module.named_parameters() if name not in trained}
    fixed |= dict(module.named_buffers())
    values = [_without_autocast(value, trained) for value in inputs]
    named = {name: _without_autocast(value, trained) for name, value in keywords.items()}

    def of_one(parameters: dict[str, Tensor], one: tuple[Any, ...], cotangent: Tensor) -> dict[str, Tensor]:
        def run(chosen: dict[str, Tensor]) -> Tensor:
            words = dict(zip(named, one[len(values) :]))
            output = torch.func.functional_call(module, (chosen, fixed), one[: len(values)], words)
            return (output if index is None else output[index]).to(cotangent.dtype)

        return torch.func.vjp(run, parameters)[1](cotangent)[0]

    batched = [_copies(value) if once else _with_batch(value, examples) for value in (*values, *named.values())]
    dimensions = tuple(
        0 if isinstance(value, Tensor) and value is not other else None
        for value, other in zip(batched, (*values, *named.values()))
    )
    vectorised = torch.vmap(of_one, in_dims=(None, dimensions, 0), randomness="error")
    try:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            gradients = vectorised(trained, tuple(batched), gradient if once else gradient.unsqueeze(1))
    except RuntimeError as error:
        reason = first_line(error)
        if "randomness" in str(error):
            reason = "it draws random numbers, such as dropout's"
        raise InputError(
            f"layer {layer.name or type(module).__name__!r} cannot be run again for each example by itself: {reason}; "
            f"move {', '.join(sorted(layer.wanted))} into a module of its own, or freeze it"
        ) from error
    return {name: Dense(at_least_single(value)) for name, value in gradients.items()}


def _without_autocast(value: Any, parameters: dict[str, Tensor]) -> Any:
    """An input as the module can take it without autocast: in single precision where its parameters are."""
    if not isinstance(value, Tensor):
        return value
    single = any(parameter.dtype == torch.float32 for parameter in parameters.values())
    return at_least_single(value.detach()) if single else value.detach()


def _copies(value: Any) -> Any:
    """What an output that is computed once was computed from: each example's copy, or what all have."""
    return value.each if isinstance(value, Shared) else value


def _with_batch(value: Any, examples: int) -> Any:
    """One example as a batch of one, [B, 1, …]; what has no dimension of B examples is shared by all."""
    if isinstance(value, Tensor) and value.dim() and len(value) == examples:
        return value.unsqueeze(1)
    return value
