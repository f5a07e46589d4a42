"""Placeholders and batches as rows: taken out, put together, made, and the really different ones chosen.

Batches as rows: taken out, put together, and the really different ones chosen to try a model with.

A batch is any tuples, lists and dictionaries of tensors with the examples in dimension 0; what is no tensor is shared.
Coupling shows where rows differ in what it looks at: class, length, size, zeros. `probe_rows` takes from a pool of the
user's data the rows that are extreme in one of these, one for each of some values of labels, and others at equal
distances. `made_rows` adds what the pool may lack: zeros, a hundred times a row, a sequence of one element and one
without padding, and rows that are put together from the values of others.

>>> batch = (torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]]), torch.tensor([0, 1, 1]))
>>> probe_rows(batch, 2), rows_at(batch, [1])
([1, 2], (tensor([[3., 4.]]), tensor([1])))
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

_VALUES = 6  # of a label, each of which gets a row


def tensors_of(batch: Any) -> list[Tensor]:
    """The tensors that hold the examples."""
    return [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()]


def count_of(batch: Any) -> int:
    """How many examples there are."""
    return len(tensors_of(batch)[0])


def rows_at(batch: Any, places: Sequence[int]) -> Any:
    """The batch of these rows, in this order; a row may come twice."""
    return _mapped(lambda leaf: leaf[list(places)], batch)


def stacked(batches: Sequence[Any]) -> Any:
    """One batch of the rows of all; what is no tensor is taken from the first."""
    first, *others = batches
    parts = [tree_leaves(batch) for batch in others]
    number = iter(range(len(tree_leaves(first))))

    def joined(leaf: Any) -> Any:
        index = next(number)
        if not isinstance(leaf, Tensor) or not leaf.dim():
            return leaf
        return torch.cat([leaf, *(part[index] for part in parts)])

    return tree_map(joined, first)


def probe_rows(pool: Any, most: int) -> list[int]:
    """Places of at most so many rows of a pool that differ most, at least one."""
    count = count_of(pool)
    chosen: dict[int, None] = {}
    for leaf in tensors_of(pool):
        flat = leaf.reshape(count, -1)
        if leaf.dim() == 1 and not leaf.is_floating_point():
            for value in torch.unique(leaf)[:_VALUES]:
                chosen.setdefault(int((leaf == value).nonzero()[0]))
        if not flat.shape[1]:
            continue
        sizes = flat.double().nan_to_num()
        for measure in (sizes.norm(dim=1), _padding(leaf), (flat == 0).sum(dim=1)):
            chosen.setdefault(int(measure.argmax()))
            chosen.setdefault(int(measure.argmin()))
    for place in torch.linspace(0, count - 1, most).long().tolist():
        chosen.setdefault(place)
    return sorted(list(chosen)[:most])


def made_rows(pool: Any) -> list[Any]:
    """Batches of one row each that the pool may lack. A model need not take them: what it cannot read is left out."""
    count = count_of(pool)
    changes: list[Callable[[Tensor], Tensor]] = [
        lambda leaf: torch.zeros_like(leaf[:1]) if leaf.dim() > 1 else leaf[:1],
        lambda leaf: leaf[:1] * 100 if leaf.is_floating_point() else leaf[:1],
        lambda leaf: -leaf[-1:] if leaf.is_floating_point() else leaf[-1:],
        _shortened,
        _filled,
        _combined,
    ]
    made = [_mapped(change, pool) for change in changes]
    if count > 1:  # the targets of other rows
        exchanged = [_with_targets_of(rows_at(pool, [0]), rows_at(pool, [place])) for place in (1, count - 1)]
        made += [row for row in exchanged if row is not None]
    return made


def with_nan(batch: Any) -> Any:
    """A row whose real numbers are all NaN: what it holds must not reach another one."""
    return _mapped(lambda leaf: torch.full_like(leaf[:1], torch.nan) if leaf.is_floating_point() else leaf[:1], batch)


def _mapped(change: Callable[[Tensor], Tensor], batch: Any) -> Any:
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) and leaf.dim() else leaf, batch)


def _padding(leaf: Tensor) -> Tensor:
    """For each row, how many of its last elements along dimension 1 are equal."""
    if leaf.dim() < 2 or leaf.shape[1] < 2:
        return torch.zeros(len(leaf), device=leaf.device)
    same = (leaf[:, 1:] == leaf[:, :-1]).flatten(2).all(dim=2) if leaf.dim() > 2 else leaf[:, 1:] == leaf[:, :-1]
    return same.flip(1).long().cumprod(dim=1).sum(dim=1)


def _shortened(leaf: Tensor) -> Tensor:
    """The first row with one element, and what the most padded row ends with behind it."""
    row = leaf[:1].clone()
    if leaf.dim() > 1 and leaf.shape[1] > 1:
        padded = int(_padding(leaf).argmax())
        row[:, 1:] = leaf[padded, -1] if int(_padding(leaf).max()) else 0
    return row


def _filled(leaf: Tensor) -> Tensor:
    """The last row with its first elements again and again where its padding was."""
    row = leaf[-1:].clone()
    padding = int(_padding(row))
    length = row.shape[1] - padding if row.dim() > 1 else 0
    if padding and length:
        again = torch.arange(row.shape[1], device=row.device) % length
        row = row[:, again]
    return row


def _combined(leaf: Tensor) -> Tensor:
    """A row of which every number is that of another row at the same place."""
    flat = leaf.reshape(len(leaf), -1)
    at = (torch.arange(flat.shape[1], device=leaf.device) * 7 + 1) % len(leaf)
    return flat.gather(0, at[None]).view(1, *leaf.shape[1:])


def _with_targets_of(row: Any, other: Any) -> Any:
    """A row with the numbers of another one wherever a row has a single number; None if it has none."""
    found = [leaf for leaf in tensors_of(row) if leaf.dim() == 1]
    if not found or len(tensors_of(row)) == len(found):
        return None
    values = iter(tree_leaves(other))

    def chosen(leaf: Any) -> Any:
        value = next(values)
        return value if isinstance(leaf, Tensor) and leaf.dim() == 1 else leaf

    return tree_map(chosen, row)


# Placeholders: what has the shape and type of records and holds none of their values.


def placeholder(like: Tensor, seed: int = 0) -> Tensor:
    """A tensor of the shape and type of another one, of which no value is read.

    Real numbers are normal; whole numbers and truth values are mostly 1 and sometimes 0, which ids, masks and lengths
    may be.
    """
    if like.is_floating_point():
        return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like)
    places = torch.arange(like.numel()).view(like.shape)
    return (places % 3 != 2).to(like) if like.dim() > 1 else torch.ones_like(like)


def placeholder_rows(like: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """As `placeholder`, so many rows in the form in which inputs are stored: pictures are of bytes."""
    shape = (count, *like.shape[1:])
    if like.dtype == np.uint8 and like.ndim == 4:
        return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return placeholder(torch.from_numpy(np.zeros(shape, like.dtype)), seed).numpy()


def placeholder_targets(like: Tensor) -> Tensor:
    """Targets of the shape and type of others, of which no value is read: of both signs and of very different sizes."""
    sizes = torch.tensor([1.0, -1.0, 100.0, -100.0]).repeat(len(like))[: len(like)]
    values = torch.ones(like.shape) * sizes.view(-1, *[1] * (like.dim() - 1))
    return (values if like.is_floating_point() else values.abs()).to(like)


def placeholder_batch(like: Any, rows: int, *, zeros: bool = False) -> Any:
    """A batch of so many rows, like a batch of tensors with the examples in dimension 0; what is no tensor is shared.

    Args:
        like: tensors in any tuples, lists and dictionaries; at least one row.
        rows: how many, >= 1.
        zeros: whole numbers and truth values are all 0, which every class and table has.
    """

    def row(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim():
            return leaf
        wanted = leaf.new_empty((rows, *leaf.shape[1:]), device="cpu")
        values = placeholder(wanted) if leaf.is_floating_point() or not zeros else torch.zeros_like(wanted)
        return values.to(leaf.device)

    return tree_map(row, like)


def placeholder_sample(like: Any, *, zeros: bool = False) -> Any:
    """One example of a user's data set, of the same structure, whose numbers, text and pictures are placeholders.

    Args:
        like: tensors, arrays, numbers, text and pictures in any tuples, lists and dictionaries.
        zeros: whole numbers are 0.

    Raises:
        TypeError: it holds something else.
    """

    def leaf(value: Any) -> Any:
        if type(value).__module__.partition(".")[0] == "PIL":
            from PIL import Image  # late: only where a data set holds pictures

            return Image.new(value.mode, value.size)
        if isinstance(value, Tensor):
            whole = zeros and not value.is_floating_point()
            return torch.zeros_like(value) if whole else placeholder(value.cpu()).to(value.device)
        if isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "fiub":
            made = leaf(torch.from_numpy(np.array(value))).numpy()
            return made if isinstance(value, np.ndarray) else made[()]
        if isinstance(value, bool):
            return not zeros
        if isinstance(value, int | float | str | bytes):
            one = {int: 0 if zeros else 1, float: 0.5, str: "a", bytes: b"a"}
            return one[next(kind for kind in one if isinstance(value, kind))]
        if value is None:
            return None
        raise TypeError(f"no placeholder for {type(value).__name__}")

    return tree_map(leaf, like)
