"""Random numbers of a patient's own: they do not depend on who else is drawn for a round."""

import numpy as np
import torch
from torch import Tensor


def own_draws(words: np.ndarray, width: int) -> tuple[Tensor, Tensor]:
    """Normal numbers [n, width] and one uniform number [n, 1] for each patient.

    Args:
        words: uint64 [n], of a stream at the patients' own places.
        width: of the normal numbers.
    """
    normal, uniform = torch.empty(len(words), width), torch.empty(len(words), 1)
    generator = torch.Generator()
    for place, word in enumerate(words.tolist()):
        generator.manual_seed(word >> 1)
        torch.randn(width, generator=generator, out=normal[place])
        torch.rand(1, generator=generator, out=uniform[place])
    return normal, uniform
