"""Whether memory ran out: then the same is tried with fewer examples.

>>> out_of_memory(RuntimeError("CUDA out of memory")), out_of_memory(RuntimeError("shapes differ"))
(True, False)
"""

import torch


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    told = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in told or "out of memory" in told)
