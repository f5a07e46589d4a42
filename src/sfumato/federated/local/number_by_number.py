"""Whether all that is computed treats numbers one by one or adds them up in a row: no product of matrices.

How these round does not follow from where numbers lie in memory. Products of matrices, convolutions and whatever is not
known here may add up in an order that does.

>>> with NumberByNumber() as seen:
...     _ = torch.ones(2, 3).exp().sum(1)
>>> seen.only
True
>>> with NumberByNumber() as seen:
...     _ = torch.ones(2, 3) @ torch.ones(3)
>>> seen.only
False
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_MOVE = {
    *("_to_copy", "_unsafe_view", "alias", "arange", "cat", "clone", "copy_", "detach", "embedding", "empty"),
    *("empty_like", "expand", "fill_", "full", "full_like", "gather", "index", "lift_fresh", "new_zeros", "ones"),
    *("ones_like", "permute", "select", "select_backward", "slice", "slice_backward", "split", "split_with_sizes"),
    *("squeeze", "stack", "t", "transpose", "unbind", "unsqueeze", "view", "zero_", "zeros", "zeros_like"),
}
_ADD = {"embedding_dense_backward", "index_add_", "index_put_", "mean", "scatter_add_", "sum"}


class NumberByNumber(TorchDispatchMode):
    """Looks at the operations of torch within a `with` statement.

    Attributes:
        only: nothing else was met so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.only = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Let the operation run, and keep what kind it is."""
        name = func.overloadpacket.__name__
        self.only &= func.namespace == "aten" and (torch.Tag.pointwise in func.tags or name in _MOVE | _ADD)
        return func(*args, **(kwargs or {}))
