"""What norms and products are computed in.

>>> at_least_single(torch.ones(1, dtype=torch.bfloat16)).dtype, at_least_single(torch.ones(1).double()).dtype
(torch.float32, torch.float64)
"""

import torch
from torch import Tensor


def at_least_single(values: Tensor) -> Tensor:
    """At least single precision: what autocast or the model made half goes back to single."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
