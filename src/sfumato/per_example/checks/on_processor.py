"""A model on the processor for a moment, where a row that it cannot read ends in an error that can be caught.

On a GPU a place outside an embedding's table ends the process's use of the GPU, and nothing catches that. So rows that
nobody gave go through the model here first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from sfumato.per_example.checks.restored import data_kept


@contextmanager
def on_processor(model: nn.Module) -> Iterator[None]:
    """Parameters and buffers on the processor; on leaving, all tensors are those that they were."""
    with data_kept(model) as tensors:
        for tensor in tensors:
            tensor.data = tensor.data.cpu()
        yield


def to_processor(batch: Any) -> Any:
    """The tensors of a batch on the processor."""
    return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, Tensor) else leaf, batch)


def elsewhere(batch: Any) -> bool:
    """Whether a batch is on a GPU. The places of examples that somebody else's loop reads are not: there every row was
    given, and that loop puts them where the model is."""
    return any(isinstance(leaf, Tensor) and leaf.is_cuda for leaf in tree_leaves(batch))


def other_device(error: Exception) -> bool:
    """Whether a pass failed since something, a loss's weights for example, stayed where the model was."""
    return isinstance(error, RuntimeError) and "device" in str(error) and not isinstance(error, torch.OutOfMemoryError)
