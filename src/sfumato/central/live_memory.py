"""How much memory the tensors of a computation take at their peak, whoever holds them.

Tensors that are made within the context count from the operation that makes them until they are freed; scratch memory
inside an operation does not.

>>> with LiveMemory() as seen:
...     total = (torch.ones(1000) * 2).sum()
>>> seen.peak
8000
"""

from typing import Any

import torch  # noqa: F401  # for the doctest
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):
    """A context around a computation.

    Attributes:
        peak: bytes, the most at one time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at what is alive behind it."""
        outputs = func(*args, **(kwargs or {}))
        self._live = {key: held for key, held in self._live.items() if not held[0].expired()}
        for output in tree_leaves(outputs):
            if isinstance(output, Tensor):
                storage = output.untyped_storage()
                self._live.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.peak = max(self.peak, sum(size for _, size in self._live.values()))
        return outputs
