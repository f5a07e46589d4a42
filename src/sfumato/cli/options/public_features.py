"""Public features by what an option says of them: a name, a network with public weights, or a module of one's own."""

from pathlib import Path

from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.cli.own_model import is_own, own_model
from sfumato.models import imagenet_features

IMAGENET = "squeezenet"


def public_features(name: str, weights: Path | None, seed: int, *, flag: str) -> str | nn.Module:
    """A name of ours, or a frozen module with public weights.

    Args:
        name: as `features_of` knows it, squeezenet, or package.module:factory.
        weights: of squeezenet.
        seed: public, for what a factory draws.
        flag: the option of the weights, for messages.

    Raises:
        InputError: weights are missing, given for something else, or the factory is of no use.
    """
    if name == IMAGENET:
        if weights is None:
            raise InputError(f"--features {IMAGENET} needs public weights: give {flag} FILE")
        return imagenet_features(weights)
    if weights is not None:
        raise InputError(f"{flag} is for --features {IMAGENET}, got {name}; leave it out")
    if is_own(name):
        return own_model(name, RandomSource.from_seed(seed))
    return name
