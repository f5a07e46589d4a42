"""Features by name or by module, computed in batches: one row for each input, each by itself.

| name       | of                                        | features                                              |
| ---------- | ----------------------------------------- | ----------------------------------------------------- |
| pixels     | anything                                  | the numbers as they are, in one row                   |
| hog        | pictures                                  | 36 for each block of 2x2 cells, see `HOG`             |
| scattering | pictures                                  | 81 a channel for each 4x4 pixels, see `Scattering`    |

With `batch_size=1` a row is the same to the last bit whatever else is computed: matrix products and convolutions may
round differently by the size of a batch and the place in it.

>>> features_of("pixels", torch.tensor([[[0.5, 1.0]], [[2.0, 3.0]]])).tolist()
[[0.5, 1.0], [2.0, 3.0]]
>>> features_of("hog", torch.zeros(3, 1, 28, 28)).shape
(3, 1296)
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError, one_of, whole
from sfumato.models.features.hog import HOG
from sfumato.models.layers.scattering import Scattering

FEATURES = ("pixels", "hog", "scattering")
"""The names that `feature_extractor` knows."""


def feature_extractor(name: str, input_shape: Sequence[int]) -> nn.Module:
    """A fixed module that maps inputs to features.

    Args:
        name: one of `FEATURES`.
        input_shape: of one input as a model gets it: (channels, height, width) of pictures.

    Raises:
        InputError: the name is unknown, or the shape is not that of a picture, or too small.
    """
    one_of(FEATURES, features=name, remedy="or give a module whose weights are public")
    if name == "pixels":
        return nn.Flatten()
    if len(input_shape) != 3:
        raise InputError(
            f"features={name!r} are of pictures (channels, height, width), got inputs of shape {tuple(input_shape)}; "
            "take features='pixels', or a module of your own"
        )
    channels, height, width = input_shape
    if name == "hog":
        return HOG((channels, height, width))
    return nn.Sequential(Scattering(channels, (height, width)), nn.Flatten())


def features_of(
    features: str | nn.Module, inputs: Tensor, *, batch_size: int = 1, device: torch.device | str = "cpu"
) -> np.ndarray:
    """Features of all inputs, without a graph, of the module in evaluation mode.

    Args:
        features: a name of `FEATURES`, or a module that maps [n, *input_shape] to [n, …].
        inputs: [n, *input_shape], as `sfumato.data.to_tensor` gives them.
        batch_size: inputs at once, >= 1.
        device: where the module lies.

    Returns:
        float32 [n, features].

    Raises:
        InputError: an unknown name, or a module that does not give a row an input.
    """
    whole(batch_size=batch_size)
    module = feature_extractor(features, inputs.shape[1:]) if isinstance(features, str) else features
    was_training = module.training
    module.eval()
    found = None
    try:
        with torch.inference_mode():
            for start in range(0, len(inputs), batch_size):
                batch = inputs[start : start + batch_size].to(device)
                rows = module(batch)
                if not isinstance(rows, Tensor) or rows.ndim < 1 or len(rows) != len(batch):
                    given = list(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
                    raise InputError(f"features must be one row an input, [{len(batch)}, features], got {given}")
                rows = rows.reshape(len(batch), -1).float().cpu()
                if found is None:
                    found = torch.empty(len(inputs), rows.shape[1])
                found[start : start + len(batch)] = rows
    finally:
        module.train(was_training)
    return np.zeros((0, 0), np.float32) if found is None else found.numpy()
