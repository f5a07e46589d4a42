"""Conditions on new records as a command takes them: sex=f, age=60..80.

>>> from sfumato.data.ehr.schema import Schema, categorical, numeric
>>> schema = Schema(
...     id="patient", time="day", time_unit="days", static=(categorical("sex", ["f", "m"]), numeric("age")),
...     temporal=(numeric("bili"),))
>>> conditions(["sex=f", "age=60..80"], schema)
{'sex': 'f', 'age': (60.0, 80.0)}
>>> conditions(["age=60.."], schema)
{'age': (60.0, inf)}
"""

import math
from collections.abc import Sequence
from typing import Any

from sfumato._check import InputError
from sfumato.data.ehr.schema import Schema


def conditions(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """What `Synthesizer.sample` takes as given.

    Args:
        words: NAME=CATEGORY, or for a numeric column NAME=LOWEST..HIGHEST, either end of which may be left out, or
            NAME=NUMBER.
        schema: of the records. Names and categories that it does not have are refused by `sample`.

    Raises:
        InputError: a word is no condition, a range is none, or a column has two.
    """
    numeric = {column.name for column in schema.static_numeric}
    found: dict[str, Any] = {}
    for word in words:
        name, value = _parted(word, [column.name for column in schema.columns])
        if name in found:
            raise InputError(f"--given {name} is there twice; a column has one condition")
        found[name] = _range(name, value) if name in numeric else value
    return found


def _parted(word: str, names: Sequence[str]) -> tuple[str, str]:
    """Name and value; the name of a column may have the sign between them in it."""
    known = max((name for name in names if word.startswith(f"{name}=")), key=len, default=None)
    name, sign, value = (known, "=", word[len(known) + 1 :]) if known is not None else word.partition("=")
    if not (name and sign and value):
        raise InputError(f"--given must be NAME=CATEGORY or NAME=LOWEST..HIGHEST, got {word!r}; such as sex=f")
    return name, value


def _range(name: str, value: str) -> tuple[float, float]:
    low, dots, high = value.partition("..")
    try:
        ends = (
            float(low) if low or not dots else -math.inf,
            float(high) if high else math.inf if dots else float(low),
        )
    except ValueError:
        ends = (math.nan, math.nan)
    if not ends[0] <= ends[1]:
        raise InputError(
            f"--given {name} must be a number or LOWEST..HIGHEST, the lowest first, got {value!r}; such as 60..80"
        )
    return ends
