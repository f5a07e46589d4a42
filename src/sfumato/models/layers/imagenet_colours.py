"""Pictures in the colours that networks trained on ImageNet expect.

>>> ImageNetColours()(torch.zeros(1, 3, 2, 2))[0, :, 0, 0]
tensor([0.0655, 0.1964, 0.4178])
"""

import torch
from torch import Tensor, nn

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageNetColours(nn.Module):
    """From [−1, 1), as `sfumato.data.to_tensor` gives pictures, to [0, 1] less ImageNet's mean, by its deviation.

    A fixed function of each picture, without parameters; its constants are not stored with a model's weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(_MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(_DEVIATION)[:, None, None], persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, float [n, 1 or 3, H, W] in [−1, 1), to float [n, 3, H, W]; grey ones to three channels."""
        return ((pictures + 1) / 2 - self.get_buffer("mean")) / self.get_buffer("deviation")
