"""The Gaussian sum: add independent normal noise to a sum whose contributions are bounded.

Unit: whatever contributes at most `clip_norm` to the sum. Noise of standard deviation z·C on a sum of L2 sensitivity
C is a Gaussian mechanism of noise multiplier z (Dwork et al. 2006; Balle and Wang 2018). The noise is drawn whether
or not anybody took part: an empty cohort releases pure noise.

>>> GaussianMechanism(noise_multiplier=0.62).noise_std(clip_norm=2.0)
1.24
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato import _check
from sfumato._random import Stream
from sfumato.accounting import Event, Gaussian, NonPrivate

_PIECE = 1 << 24  # numbers on their way to another device at a time


@dataclass(frozen=True, kw_only=True)
class GaussianMechanism:
    """Independent Gaussian noise.

    Attributes:
        noise_multiplier: std of the noise divided by the sensitivity, >= 0; 0 adds nothing and protects nobody.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _check.non_negative(noise_multiplier=self.noise_multiplier)

    def noise_std(self, clip_norm: float) -> float:
        """Standard deviation of the noise on each coordinate of the sum."""
        return self.noise_multiplier * clip_norm

    def release(self, total: Tensor, clip_norm: float, stream: Stream) -> Tensor:
        """The noisy sum; `total` (float [parameters], contiguous) is overwritten.

        Args:
            total: sum of contributions, each of norm at most `clip_norm`.
            clip_norm: the bound that was enforced.
            stream: this round's noise, used for nothing else.
        """
        if self.noise_multiplier > 0:
            _check.positive(clip_norm=clip_norm, remedy="noise on an unbounded sum protects nobody")
            std, threads, flat = self.noise_std(clip_norm), torch.get_num_threads(), total.view(-1)
            if total.device.type == "cpu":
                stream.add_normal(flat.numpy(), std=std, threads=threads)
            else:
                for piece in flat.split(_PIECE):  # no second vector of the model's size
                    noise = stream.normal(len(piece), threads=threads)
                    piece.add_(torch.from_numpy(noise).to(piece.device), alpha=std)
        return total

    def event(self, contributions_moved: float = 1.0) -> Event:
        """The event of one release, for a unit that moves the sum by so many clip norms."""
        if self.noise_multiplier == 0:
            return NonPrivate()
        return Gaussian(self.noise_multiplier / contributions_moved)
