"""What the engine has to know about a kind of layer, in one contract.

A rule turns what a layer saw (its input) and the gradient of its output into per-example gradients of its parameters,
each held as a `Factor`. A layer is never changed: its rule looks at a call from outside, or, for the few kinds whose
inside must be seen (recurrent layers, attention), computes the call itself while a backward pass is recorded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from sfumato.clipping.per_example.factor import Factor

Factors = dict[str, Factor]
"""Per-example gradients by the parameter's name within its module."""

Tap = Callable[[Tensor, Callable[[Tensor], Factors]], Tensor]
"""Marks a tensor of the graph: gives it back, and later hands its gradient to the function."""

AnyModule = TypeVar("AnyModule", bound=nn.Module)


@dataclass(frozen=True)
class Layer(Generic[AnyModule]):
    """A module whose own parameters are trained, and how it is covered.

    Attributes:
        name: within the model.
        module: the user's module.
        rule: its rule.
        wanted: names of the trained parameters, within the module.
    """

    name: str
    module: AnyModule
    rule: "Rule"
    wanted: frozenset[str]


class Rule(ABC):
    """How one kind of layer is covered.

    Attributes:
        path: what `check-model` calls it.
    """

    path: ClassVar[str] = "one backward pass"

    def refusal(self, module: Any) -> str:
        """Why this module cannot be covered, with the remedy; empty if it can."""
        return ""

    @abstractmethod
    def attach(self, layer: Layer[Any], tap: Tap) -> Callable[[], None]:
        """Watch the layer's calls until the returned function is called.

        The examples are dimension 0 of every input and output.
        """


class OutputRule(Rule):
    """A rule that needs no more than a call's input and the gradient of its output."""

    @abstractmethod
    def factors(self, layer: Layer[Any], saved: Any, gradient: Tensor) -> Factors:
        """Per-example gradients of the wanted parameters.

        Args:
            layer: the layer.
            saved: what `save` kept.
            gradient: of the loss with respect to the output, in its shape, in single or double precision.
        """

    def save(self, module: Any, inputs: tuple[Any, ...], output: Tensor) -> Any:
        """What is kept of a call; the first input by default."""
        return inputs[0].detach()

    def attach(self, layer: Layer[Any], tap: Tap) -> Callable[[], None]:
        def watch(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
            saved = self.save(module, inputs, output)
            return tap(output, lambda gradient: self.factors(layer, saved, gradient))

        return layer.module.register_forward_hook(watch).remove


def exact(values: Tensor) -> Tensor:
    """At least single precision: what autocast made half goes back to single."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
