"""Settings that are given as name=value, several in one option.

>>> named_values(["hidden=64", "normalisation=layer"])
{'hidden': 64, 'normalisation': 'layer'}
"""

import json
from collections.abc import Sequence
from typing import Any

from sfumato._check import InputError


def named_values(words: Sequence[str]) -> dict[str, Any]:
    """Names and their values; a value is JSON or a word.

    Raises:
        InputError: a word is not name=value.
    """
    chosen: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"model_options must be name=value, got {word!r}; for example hidden=64")
        try:
            chosen[name] = json.loads(value)
        except ValueError:
            chosen[name] = value
    return chosen
