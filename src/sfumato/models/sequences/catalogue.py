"""Language models by name, for configuration files and the command line.

>>> language_model("lstm", 100, 80, hidden=32)(torch.zeros(2, 80, dtype=torch.int64)).shape
torch.Size([2, 80, 100])
>>> language_model("lenet", 100, 80)
Traceback (most recent call last):
...
sfumato._check.InputError: model must be one of lstm, transformer, got lenet; or package.module:factory for a torch \
module of your own, which gives logits [n, T, 100] of token ids [n, T]
"""

import inspect
from typing import Any

import torch
from torch import nn

from sfumato._check import InputError, one_of
from sfumato.models.sequences.lstm import lstm
from sfumato.models.sequences.transformer import transformer

_BUILDERS = {"lstm": lstm, "transformer": transformer}

LANGUAGE_MODELS = tuple(_BUILDERS)
"""The names that `language_model` knows."""


def language_model(
    name: str, vocabulary_size: int, length: int, *, generator: torch.Generator | None = None, **options: Any
) -> nn.Module:
    """Build a language model for a data set of sequences.

    Args:
        name: one of `LANGUAGE_MODELS`.
        vocabulary_size: ids, with padding; public.
        length: tokens in the longest sequence.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.
        options: keyword arguments of the model's own function (`lstm`, `transformer`), such as hidden.

    Raises:
        InputError: the name or an option is unknown, or its value is out of range.
    """
    own = f"or package.module:factory for a torch module of your own, which gives logits [n, T, {vocabulary_size}]"
    one_of(LANGUAGE_MODELS, model=name, remedy=f"{own} of token ids [n, T]")
    build = _BUILDERS[name]
    known = set(inspect.signature(build).parameters) - {"generator", "vocabulary_size", "max_length"}
    for option in options:
        if option not in known:
            raise InputError(f"{name} has no option {option}; it has {', '.join(sorted(known))}")
    lengths = {"max_length": length} if name == "transformer" else {}
    return build(vocabulary_size=vocabulary_size, **lengths, generator=generator, **options)
