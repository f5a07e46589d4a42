"""Whether an operation is mapped over a stack of models, where some of torch's fused operations are slow or missing."""

import torch


def is_mapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of many that `torch.func.vmap` goes through together.

    >>> is_mapped(torch.zeros(2)), torch.func.vmap(lambda row: row + is_mapped(row))(torch.zeros(2)).tolist()
    (False, [1.0, 1.0])
    """
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue]
