"""A moving average of the parameters: it is made of released models, so it costs no privacy.

Noise in the last steps averages out. In round t the decay is min(d, (1 + t)/(10 + t)), so that the first models do not
weigh on the average for long (De, Berrada, Hayes, Smith and Balle 2022, appendix C).

>>> theta = torch.tensor([1.0])
>>> average = MovingAverage(theta, decay=0.5)
>>> _ = theta.copy_(torch.tensor([3.0])); average.add(0); round(average.vector.item(), 3)  # 0.1·1 + 0.9·3
2.8
"""

import torch
from torch import Tensor

from sfumato import _check


class MovingAverage:
    """Follows a parameter vector.

    Args:
        theta: float [size], the vector that the server writes to.
        decay: d, in [0, 1).

    Attributes:
        vector: float [size], the average.
    """

    def __init__(self, theta: Tensor, *, decay: float) -> None:
        _check.between(0.0, 1.0, ends="[)", ema_decay=decay)
        self._theta = theta
        self._decay = decay
        self.vector = theta.clone()

    def add(self, round_index: int) -> None:
        """Take in the vector as it is after this round, from 0."""
        decay = min(self._decay, (1 + round_index) / (10 + round_index))
        torch.lerp(self._theta, self.vector, decay, out=self.vector)
