"""Parameters that a module uses beside its layers, such as class tokens, tables of positions and scales.

While the module runs in a recording, each is replaced by one copy for every example (see `shared`), a view without
memory of its own, and the gradient of the copies is the gradient of each example. The module's layers keep their own
rules, and nothing is run twice. A module that uses such a parameter in another way is found out by the self-check.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sfumato.per_example.factor import Dense
from sfumato.per_example.rule import Factors, Layer, Rule, Tap
from sfumato.per_example.shared import Shared


class ExpandRule(Rule):
    """Own parameters of a module with layers."""

    path: ClassVar[str] = "one backward pass, one copy of the parameter for each example"

    def attach(self, layer: Layer[nn.Module], tap: Tap) -> Callable[[], None]:
        module = layer.module
        held: dict[str, nn.Parameter] = {}

        def restore() -> None:
            for name, parameter in held.items():
                module._parameters[name] = parameter  # in its old place: the order is the optimiser's
            held.clear()

        def before(_: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            if not tap.listening or held:
                return
            examples = tap.examples or _first_size((inputs, keywords))
            if examples is None:
                return
            for name in sorted(layer.wanted):
                parameter = held[name] = module.get_parameter(name)
                copies = tap(parameter.expand(examples, *parameter.shape), _factors(name), (name,))
                module._parameters[name] = Shared(copies, layer.workspace.decisions)  # type: ignore[assignment]

        def after(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            restore()

        handles = [
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after, always_call=True),
        ]

        def detach() -> None:
            for handle in handles:
                handle.remove()
            restore()

        return detach


def _factors(name: str) -> Callable[[Tensor], Factors]:
    return lambda gradient: {name: Dense(gradient)}


def _first_size(values: Any) -> int | None:
    sizes = [len(value) for value in tree_leaves(values) if isinstance(value, torch.Tensor) and value.dim()]
    return sizes[0] if sizes else None
