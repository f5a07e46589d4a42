"""Placeholders: what has the shape and type of records and holds none of their values."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map


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
