"""What the engine has to know about a kind of layer: its rule, and the factors that hold per-example gradients.

A rule turns what a layer saw (its input) and the gradient of its output into per-example gradients of its parameters,
each held as a `Factor`. A layer is never changed: its rule looks at a call from outside, or, for the few kinds whose
inside must be seen (recurrent layers, attention), computes the call itself while a backward pass is recorded.

A factor holds the per-example gradients of one parameter in the form in which they are cheap. Every form answers the
same two questions: the squared norm of each example's gradient, and the weighted sum of the gradients. The norms are
never below the truth by more than a few units in the last place, whatever an example holds: long sums go on in double
precision, so do products of which one factor is too small for single precision, and where terms may cancel (Gram
matrices) a bound on their round-off is added.

| form   | one example's gradient                     | held as                          | from                      |
| ------ | ------------------------------------------ | -------------------------------- | ------------------------- |
| Dense  | any tensor                                 | [B, *shape]                      | norm layers, biases       |
| Outer  | sum over T positions of outer products     | [B, T, p] and [B, T, d]          | linear, conv, recurrent   |
| Rows   | T rows of a table with V rows              | ids [B, T] and [B, T, d]         | embeddings                |

An `Outer` is materialised (p d numbers an example) or left as it is (Gram matrices, 2 T^2 numbers an example),
whichever costs less (Goodfellow 2015; Li, Tramer, Liang and Hashimoto 2022, Section 4).

>>> outer = Outer(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 4.0, 0.0]]]))
>>> outer.squared_norms().round(decimals=3).tolist(), outer.weighted_sum(torch.tensor([0.5])).tolist()
([125.0], [[1.5, 2.0, 0.0], [3.0, 4.0, 0.0]])
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import count
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from sfumato._check import InputError
from sfumato.per_example.workspace import ONCE, Shared, Workspace

Keep = Callable[[Tensor, tuple[int, ...]], Tensor]
"""Uninitialised memory that stays as it is until the results have been read: (like, shape) → tensor."""


_BANDWIDTH = 4  # what reading and writing a materialised number costs, in multiplications
ROUNDINGS = 8  # of a product of two Gram entries, relative to the lengths of the four vectors
_BLOCK = 4096  # squares that are added up in single precision before the sum goes on in double
_TINY = 1e-10  # a sum of squares that reach this far is not made of numbers whose squares underflow
_MOST_DENSE = 1 << 26  # materialised numbers of one parameter in one micro-batch (256 MiB)


class Factor(ABC):
    """Gradients of one parameter, one for each of B examples."""

    def settled(self, keep: Keep = torch.Tensor.new_empty) -> "Factor":
        """The form that is cheapest to keep and to ask.

        Args:
            keep: gives memory for a materialised result, of the type and on the device of a tensor.
        """
        return self

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """float64 [B], >= 0."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Sum over examples of weight times gradient, in the shape of the parameter.

        Args:
            weights: float [B].
        """

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """Add the weighted sum to `total`, in the shape of the parameter and of any floating type."""
        total.add_(self.weighted_sum(weights).view(total.shape))

    @abstractmethod
    def dense(self) -> Tensor:
        """The gradients themselves, float [B, *shape]."""

    @abstractmethod
    def without(self, examples: Tensor) -> "Factor":
        """The same with zeros for the examples that are marked; bool [B]."""


class Dense(Factor):
    """Gradients as they are.

    Args:
        gradients: float [B, *shape].
    """

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients

    def squared_norms(self) -> Tensor:
        return _squares(self.gradients.reshape(len(self.gradients), -1))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        flat = self.gradients.reshape(len(self.gradients), -1)
        return (weights.to(flat.dtype) @ flat).view(self.gradients.shape[1:])

    def dense(self) -> Tensor:
        return self.gradients

    def without(self, examples: Tensor) -> "Dense":
        return Dense(_zeroed(self.gradients, examples))


class Outer(Factor):
    """Sums of outer products: gradient = left^T right.

    Args:
        left: float [B, T, p], the gradient of the output at each position.
        right: float [B, T, d], the input at each position.
        shape: of the parameter; None for (p, d).
    """

    def __init__(self, left: Tensor, right: Tensor, shape: torch.Size | None = None) -> None:
        self.left = left
        self.right = right
        self.shape = shape if shape is not None else torch.Size((left.shape[2], right.shape[2]))

    @property
    def materialises(self) -> bool:
        """Whether the gradients themselves are cheaper than Gram matrices."""
        examples, positions, p = self.left.shape
        d = self.right.shape[2]
        if positions == 1 or examples * p * d > _MOST_DENSE:
            return False
        return _BANDWIDTH * p * d < positions * positions * (p + d)

    def settled(self, keep: Keep = torch.Tensor.new_empty) -> Factor:
        if not self.materialises:
            return self
        examples, _, p = self.left.shape
        result = keep(self.left, (examples, p, self.right.shape[2]))
        return Dense(torch.bmm(self.left.mT, self.right, out=result).view(-1, *self.shape))

    def squared_norms(self) -> Tensor:
        """Sum over pairs of positions of <left, left'> <right, right'>, rounded up."""
        if self.left.shape[1] == 1:  # each in double: a tiny gradient may meet a huge input
            return lengths_of(self.left[:, 0]).square() * lengths_of(self.right[:, 0]).square()
        products = self.left @ self.left.mT
        products *= self.right @ self.right.mT
        return products.sum(dim=(1, 2), dtype=torch.float64).clamp_min_(0.0) + self._slack()

    def _slack(self) -> Tensor:
        """What round-off may have taken from the sum over pairs, float64 [B].

        Equal positions are rounded in the same way, so the errors of T^2 products may all point to one side: they are
        bounded together, by the square of the sum of the lengths |left| |right|. Numbers below the smallest normal one
        may count as zero, which the products with the other side's length cover.
        """
        left, right = _lengths_at_most(self.left), _lengths_at_most(self.right)  # [B, T]
        number = torch.finfo(self.left.dtype)
        rounded = ROUNDINGS * number.eps * (left * right).sum(dim=1).square()
        left, right = left.square().sum(dim=1), right.square().sum(dim=1)
        lost = number.tiny * (self.left[0].numel() * right + self.right[0].numel() * left)
        return torch.where((left == 0) | (right == 0), left * right, rounded + lost)  # nothing from nothing

    def weighted_sum(self, weights: Tensor) -> Tensor:
        left, right = self.left, self.right
        weights = weights.to(left.dtype)[:, None, None]
        if left.shape[2] < right.shape[2]:  # the narrower side: a vocabulary's logits are the largest of all tensors
            left = left * weights
        else:
            right = right * weights
        return (left.flatten(0, 1).T @ right.flatten(0, 1)).view(self.shape)

    def dense(self) -> Tensor:
        return (self.left.mT @ self.right).view(-1, *self.shape)

    def without(self, examples: Tensor) -> "Outer":
        return Outer(_zeroed(self.left, examples), _zeroed(self.right, examples), self.shape)


class Rows(Factor):
    """Rows of a table: gradient[ids[t]] += rows[t]. Never held as a table for each example.

    Args:
        ids: int64 [B, T].
        rows: float [B, T, d].
        table: rows of the whole table, V.
    """

    def __init__(self, ids: Tensor, rows: Tensor, table: int) -> None:
        self.ids = ids
        self.rows = rows
        self.table = table

    def squared_norms(self) -> Tensor:
        if self.ids.shape[1] == 1:
            return _squares(self.rows[:, 0])
        merged, owner = self._rows_added_up()
        squares = _squares(merged)
        return torch.zeros(len(self.ids), dtype=squares.dtype, device=squares.device).index_add_(0, owner, squares)

    def _rows_added_up(self) -> tuple[Tensor, Tensor]:
        """Rows of equal id within an example added up in double precision, and the example that each belongs to."""
        examples = torch.arange(len(self.ids), device=self.ids.device)
        keys = (examples[:, None] * self.table + self.ids).flatten()
        unique, place = torch.unique(keys, return_inverse=True)
        merged = self.rows.new_zeros(len(unique), self.rows.shape[2], dtype=torch.float64)
        merged.index_add_(0, place, self.rows.flatten(0, 1).double())
        return merged, unique // self.table

    def weighted_sum(self, weights: Tensor) -> Tensor:
        result = self.rows.new_zeros(self.table, self.rows.shape[2])
        self.add_to(result, weights)
        return result

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        rows = self.rows.to(total.dtype) * weights.to(total.dtype)[:, None, None]  # rows of one id may cancel
        total.index_add_(0, self.ids.flatten(), rows.flatten(0, 1))

    def dense(self) -> Tensor:
        examples, positions, width = self.rows.shape
        result = self.rows.new_zeros(examples, self.table, width)
        return result.scatter_add_(1, self.ids[:, :, None].expand(examples, positions, width), self.rows)

    def without(self, examples: Tensor) -> "Rows":
        return Rows(self.ids, _zeroed(self.rows, examples), self.table)


def _squares(vectors: Tensor) -> Tensor:
    """Squared norms of float [n, d], float64 [n]; a long sum in single precision falls short by parts in a thousand."""
    size = vectors.shape[1]
    if size <= _BLOCK or vectors.dtype == torch.float64:
        return torch.linalg.vector_norm(vectors, dim=1).double().square()
    whole = size - size % _BLOCK
    blocks = torch.linalg.vector_norm(vectors[:, :whole].unflatten(1, (-1, _BLOCK)), dim=2)
    rest = torch.linalg.vector_norm(vectors[:, whole:], dim=1)
    return blocks.double().square().sum(dim=1) + rest.double().square()


def lengths_of(vectors: Tensor) -> Tensor:
    """Norms over the last dimension, float64, whatever the size of the numbers: their squares may underflow."""
    return torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float64)


def _lengths_at_most(vectors: Tensor) -> Tensor:
    """Upper bounds of the norms over the last dimension, float64, at most a thousandth above them; 0 for zeros alone.

    On a processor, turning all numbers into double precision takes twice as long as multiplying them. A short sum in
    single precision is right to parts in a million, and what underflows in it counts for nothing where it is not tiny
    altogether.
    """
    if vectors.device.type != "cpu" or vectors.dtype == torch.float64:
        return lengths_of(vectors)
    lengths = _squares(vectors.flatten(0, -2)).sqrt_().mul_(1.0005)
    tiny = lengths < _TINY
    if bool(tiny.any()):
        lengths[tiny] = lengths_of(vectors.flatten(0, -2)[tiny])
    return lengths.view(vectors.shape[:-1])


def _zeroed(values: Tensor, examples: Tensor) -> Tensor:
    return values.masked_fill(examples.view(-1, *[1] * (values.dim() - 1)), 0.0)


# Parameters that are used more than once: one layer called twice, or one tensor in two layers (tied weights).
#
# The gradient is the sum over uses, so norms do not add up. Uses of one form are joined along the positions; a table
# that is also a linear map (tied input and output embeddings) keeps both forms and their inner products, without a
# table for each example; blocks of rows that do not overlap stay separate; anything else is materialised and added.


def joined(uses: Sequence[Factor], keep: Keep = torch.Tensor.new_empty) -> Factor:
    """One factor for all uses of a parameter."""
    if len(uses) == 1:
        return uses[0].settled(keep)
    blocks = [use for use in uses if isinstance(use, Blocks)]
    if len(blocks) == len(uses):
        places = sorted({place for use in blocks for place in use.parts})
        found = {place: [use.parts[place] for use in blocks if place in use.parts] for place in places}
        return Blocks({place: joined(parts, keep) for place, parts in found.items()}, blocks[0].shape)
    outers = [use for use in uses if isinstance(use, Outer)]
    rows = [use for use in uses if isinstance(use, Rows)]
    if len(outers) == len(uses):
        return _outers_joined(outers).settled(keep)
    if len(rows) == len(uses):
        return _rows_joined(rows)
    if len(outers) + len(rows) == len(uses):
        return TiedTable(_rows_joined(rows), _outers_joined(outers))
    total = uses[0].dense()
    for use in uses[1:]:
        total = total + use.dense().view_as(total)
    return Dense(total)


class TiedTable(Factor):
    """Rows of a table plus a linear map with the same weight.

    Args:
        rows: from the embedding.
        outer: from the linear map, with p = V outputs.
    """

    def __init__(self, rows: Rows, outer: Outer) -> None:
        self.rows = rows
        self.outer = outer

    def squared_norms(self) -> Tensor:
        """|R|^2 + |O|^2 + 2 <R, O>, the last one from the columns of the outer product that the rows touch."""
        ids, vectors = self.rows.ids, self.rows.rows
        positions = self.outer.left.shape[1]
        index = ids[:, None, :].expand(-1, positions, -1)
        touched = self.outer.left.gather(2, index)  # [B, S, T]
        inner = (touched * (self.outer.right @ vectors.mT)).sum(dim=(1, 2), dtype=torch.float64)
        lengths = lengths_of(self.outer.right)[:, :, None] * lengths_of(vectors)[:, None, :]
        slack = ROUNDINGS * torch.finfo(vectors.dtype).eps * (touched.abs() * lengths).sum(dim=(1, 2))
        total = self.rows.squared_norms() + self.outer.squared_norms() + 2 * (inner + slack)
        return total.clamp_min(0.0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self.rows.weighted_sum(weights) + self.outer.weighted_sum(weights)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        self.rows.add_to(total, weights)
        self.outer.add_to(total, weights)

    def dense(self) -> Tensor:
        return self.rows.dense() + self.outer.dense()

    def without(self, examples: Tensor) -> "TiedTable":
        return TiedTable(self.rows.without(examples), self.outer.without(examples))


class Blocks(Factor):
    """Gradients of a parameter of which each use sees one block of rows, such as a joint projection of q, k and v.

    Args:
        parts: by the block's place; a block that is missing has gradient zero.
        shape: of the whole parameter, whose blocks are equal.
    """

    def __init__(self, parts: Mapping[int, Factor], shape: torch.Size) -> None:
        self.parts = dict(parts)
        self.shape = shape

    def settled(self, keep: Keep = torch.Tensor.new_empty) -> "Blocks":
        return Blocks({place: part.settled(keep) for place, part in self.parts.items()}, self.shape)

    def squared_norms(self) -> Tensor:
        return torch.stack([part.squared_norms() for part in self.parts.values()]).sum(dim=0)

    def _assembled(self, parts: Mapping[int, Tensor], dim: int) -> Tensor:
        some = next(iter(parts.values()))
        rows = some.shape[dim]
        whole = some.new_zeros(*some.shape[:dim], *self.shape)
        for place, part in parts.items():
            whole.narrow(dim, place * rows, rows).copy_(part)
        return whole

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self._assembled({place: part.weighted_sum(weights) for place, part in self.parts.items()}, 0)

    def dense(self) -> Tensor:
        return self._assembled({place: part.dense() for place, part in self.parts.items()}, 1)

    def without(self, examples: Tensor) -> "Blocks":
        return Blocks({place: part.without(examples) for place, part in self.parts.items()}, self.shape)


def _outers_joined(uses: Sequence[Outer]) -> Outer:
    return Outer(
        torch.cat([use.left for use in uses], dim=1), torch.cat([use.right for use in uses], dim=1), uses[0].shape
    )


def _rows_joined(uses: Sequence[Rows]) -> Rows:
    return Rows(
        torch.cat([use.ids for use in uses], dim=1), torch.cat([use.rows for use in uses], dim=1), uses[0].table
    )


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
            names: the parameters whose gradients it has; None for all of the layer.
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
            f"layer {layer.name!r} has {rows} rows in dimension 0 for each example, and {before} with another "
            "batch; give it the examples alone as dimension 0 (batch_first=True)"
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
    """Examples that were joined with the dimension after them, split again: [B R, …] as [B, R, …]."""
    return tree_map(
        lambda leaf: leaf.unflatten(0, (-1, rows)) if isinstance(leaf, Tensor) and leaf.dim() else leaf, values
    )


def for_every_example(value: Any, examples: int) -> Any:
    """A tensor with dimension 0 of size one, repeated for every example; anything else as it is."""
    if isinstance(value, Tensor) and value.dim() and len(value) == 1:
        return value.expand(examples, *value.shape[1:])
    return value
