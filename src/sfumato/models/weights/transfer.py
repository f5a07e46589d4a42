"""Start a classifier from another one's weights: everything but the last layer, where the classes differ.

What the file was trained on is not covered by the guarantee of what follows: it must be public, or have a statement of
its own.

>>> import tempfile
>>> from sfumato.models.weights.files import save_weights
>>> path = Path(tempfile.mkdtemp()) / "digits.safetensors"
>>> save_weights(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 10)), path)
>>> letters = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 26))
>>> transfer_weights(letters, path)
('1.weight', '1.bias')
"""

from pathlib import Path

import torch
from torch import nn

from sfumato._check import InputError
from sfumato.models.weights.files import read_tensors


def transfer_weights(model: nn.Module, path: str | Path) -> tuple[str, ...]:
    """Fill a module, in place, from a file of weights of the same network for other classes.

    Args:
        model: any torch module.
        path: safetensors, or torch's own format with tensors alone.

    Returns:
        names of the tensors that keep their initial values: those of the last layer, or none.

    Raises:
        InputError: the file is missing or damaged, or differs in more than the last layer; the module is unchanged.
    """
    found, own = read_tensors(path), dict(model.state_dict())
    names = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
    last = names[-1].rpartition(".")[0] if names else ""
    fresh = tuple(name for name in own if name not in found or found[name].shape != own[name].shape)
    for name in fresh:
        if name.rpartition(".")[0] != last:
            given = list(found[name].shape) if name in found else "nothing"
            raise InputError(
                f"{path} has {given} for {name} of shape {list(own[name].shape)}; only the last layer ({last}) may "
                "differ: take weights of the same network"
            )
    with torch.no_grad():
        for name, value in own.items():
            if name not in fresh:
                value.copy_(found[name])
    return fresh
