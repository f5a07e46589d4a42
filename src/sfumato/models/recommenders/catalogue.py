"""Recommenders by name, for configuration files and the command line.

>>> recommender("matrix_factorization", 100, factors=8)(torch.zeros(2, 1, dtype=torch.int64)).shape
torch.Size([2])
>>> recommender("svd", 100)
Traceback (most recent call last):
...
sfumato._check.InputError: model must be one of matrix_factorization, neural, got svd; or package.module:factory for a \
torch module of your own, which gives values [n] of items [n, 1]
"""

import inspect
from typing import Any

import torch

from sfumato._check import InputError, one_of
from sfumato.models.recommenders.base import Recommender
from sfumato.models.recommenders.matrix_factorization import matrix_factorization
from sfumato.models.recommenders.neural import neural_collaborative_filtering

_BUILDERS = {"matrix_factorization": matrix_factorization, "neural": neural_collaborative_filtering}

RECOMMENDERS = tuple(_BUILDERS)
"""The names that `recommender` knows."""


def recommender(name: str, items: int, *, generator: torch.Generator | None = None, **options: Any) -> Recommender:
    """Build a recommender for a data set of values.

    Args:
        name: one of `RECOMMENDERS`.
        items: how many can be rated; public.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.
        options: keyword arguments of the model's own function (`matrix_factorization`,
            `neural_collaborative_filtering`), such as factors.

    Raises:
        InputError: the name or an option is unknown, or its value is out of range.
    """
    own = "or package.module:factory for a torch module of your own, which gives values [n] of items [n, 1]"
    one_of(RECOMMENDERS, model=name, remedy=own)
    build = _BUILDERS[name]
    known = set(inspect.signature(build).parameters) - {"generator", "items"}
    for option in options:
        if option not in known:
            raise InputError(f"{name} has no option {option}; it has {', '.join(sorted(known))}")
    return build(items, generator=generator, **options)
