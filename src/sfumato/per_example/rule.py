"""What the engine has to know about a kind of layer, in one contract.

A rule turns what a layer saw (its input) and the gradient of its output into per-example gradients of its parameters,
each held as a `Factor`. A layer is never changed: its rule looks at a call from outside, or, for the few kinds whose
inside must be seen (recurrent layers, attention), computes the call itself while a backward pass is recorded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from inspect import signature
from itertools import count
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from sfumato._check import InputError
from sfumato.per_example.factor import Factor
from sfumato.per_example.workspace import ONCE, Shared, Workspace

Factors = dict[str, Factor]
"""Per-example gradients by the parameter's name within its module."""


class Tap(Protocol):
    """What a rule is given to see gradients with."""

    @property
    def examples(self) -> int | None:
        """How many examples there are, once that is known."""
        ...

    @property
    def listening(self) -> bool:
        """Whether calls count: not without gradients, and not while a layer is run again."""
        ...

    def __call__(
        self, output: Tensor, factors: Callable[[Tensor], Factors], names: Collection[str] | None = None
    ) -> Tensor:
        """Mark a tensor of the graph: gives it back, and later hands its gradient to the function.

        Args:
            output: [B, ...].
            factors: from the gradient of the output.
            names: the parameters that it tells of; None for all of the layer.
        """
        ...


AnyModule = TypeVar("AnyModule", bound=nn.Module)


@dataclass(frozen=True)
class Layer(Generic[AnyModule]):
    """A module whose own parameters are trained, and how it is covered.

    Attributes:
        name: within the model.
        module: the user's module.
        rule: its rule.
        wanted: names of the trained parameters, within the module.
        workspace: memory that the layers of a model share.
    """

    name: str
    module: AnyModule
    rule: "Rule"
    wanted: frozenset[str]
    workspace: Workspace = field(default_factory=Workspace, repr=False, compare=False)


class Rule(ABC):
    """How one kind of layer is covered.

    Attributes:
        path: what `check-model` calls it.
        whole: whether it covers the parameters of the module's children too.
    """

    path: ClassVar[str] = "one backward pass"
    whole: ClassVar[bool] = False

    def refusal(self, module: Any) -> str:
        """Why this module cannot be covered, with the remedy; empty if it can."""
        return ""

    @abstractmethod
    def attach(self, layer: Layer[Any], tap: Tap) -> Callable[[], None]:
        """Watch the layer's calls until the returned function is called.

        The examples are dimension 0 of every input and output.
        """


class OutputRule(Rule):
    """A rule that needs no more than a call's input and the gradient of its output.

    Attributes:
        leading: whether it takes any number of dimensions between the examples and its own.
    """

    leading: ClassVar[bool] = False

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
        calls = count()

        def watch(module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Tensor) -> Tensor:
            if not tap.listening:
                return output
            if keywords:  # all in the order of the layer's own forward
                given = signature(module.forward).bind(*inputs, **keywords)
                given.apply_defaults()
                inputs = tuple(given.arguments.values())
            rows = rows_of(layer, next(calls), inputs, output, tap.examples) if self.leading else 1
            examples = tap.examples
            if rows == ONCE:
                inputs, output = each_of(inputs, examples), each_of(output, examples)
            elif rows > 1:
                inputs, output = _unjoined(inputs, rows), _unjoined(output, rows)
            elif examples is not None and examples > 1 and output.dim() and len(output) == 1:
                inputs = tuple(for_every_example(value, examples) for value in inputs)
                output = for_every_example(output, examples).clone()
            saved = self.save(module, inputs, output)
            seen = tap(output, lambda gradient: self.factors(layer, saved, gradient))
            if rows == ONCE:
                return Shared(seen, layer.workspace.decisions)
            return seen.flatten(0, 1) if rows > 1 else seen

        return layer.module.register_forward_hook(watch, with_kwargs=True).remove


def rows_of(layer: Layer[Any], call: int, inputs: Any, output: Tensor, examples: int | None) -> int:
    """How many rows in dimension 0 of a call's output belong to each example; `ONCE` where none of them does.

    A constant may have as many rows as there are examples, by chance: what was seen with other batches decides.

    Raises:
        InputError: another number than with other batches.
    """
    if isinstance(output, Shared):
        return ONCE
    if examples is None or not output.dim():
        return 1
    known, place = layer.workspace.rows, (layer.name, call)
    if examples > 1 and known.get(place) == ONCE:
        return ONCE
    size = len(output)
    computed = any(leaf.requires_grad for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor))
    if size != examples and not computed and examples > 1:
        known[place] = ONCE
        return ONCE
    rows, rest = divmod(size, examples)
    if rest or not rows:
        return 1  # refused where the gradient is seen
    before = known.get(place) or rows
    if examples > 1:
        known[place] = rows
    if before != rows:
        raise InputError(
            f"layer {layer.name!r} has {rows} rows in dimension 0 for each example, and had {before} with another "
            "batch; give it the examples as dimension 0 (batch_first=True), not joined with another dimension"
        )
    return rows


def each_of(values: Any, examples: int | None) -> Any:
    """What all examples share, held once for each: [B, *shape]; what is no tensor as it is."""

    def copies(leaf: Any) -> Any:
        if isinstance(leaf, Shared):
            return leaf.each
        return leaf.expand(examples or 1, *leaf.shape) if isinstance(leaf, Tensor) else leaf

    return tree_map(copies, values)


def _unjoined(values: Any, rows: int) -> Any:
    """Examples that were joined with the dimension behind them, apart again: [B R, …] as [B, R, …]."""
    return tree_map(
        lambda leaf: leaf.unflatten(0, (-1, rows)) if isinstance(leaf, Tensor) and leaf.dim() else leaf, values
    )


def for_every_example(value: Any, examples: int) -> Any:
    """A tensor with dimension 0 of size one, repeated for every example; anything else as it is."""
    if isinstance(value, Tensor) and value.dim() and len(value) == 1:
        return value.expand(examples, *value.shape[1:])
    return value
