"""Conditions on the static columns of new records: a category, or a range of numbers.

A record that does not meet them is dropped before its visits are told. So what is left follows the model's own
conditional distribution, and any set of conditions can be asked for; a generator that takes conditions would have to be
trained for those that were thought of before.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from sfumato._check import InputError, guess
from sfumato.data.ehr.schema import Schema

_SHOWN = 10  # categories in a message
_RAREST = 1_000  # a record is drawn at most so many times to meet conditions
_FEWEST = 256  # records that are drawn at once

T = TypeVar("T")


class Given:
    """Conditions on the static columns, all of which a record has to meet.

    Args:
        schema: of the records.
        conditions: from a column's name to a category, or to (lowest, highest) of a numeric column.

    Raises:
        InputError: there is no such column or category, or a range is none.
    """

    def __init__(self, schema: Schema, conditions: Mapping[str, Any]) -> None:
        self.words = ", ".join(f"{name}={value}" for name, value in conditions.items())
        self._codes: list[tuple[int, int]] = []
        self._ranges: list[tuple[int, float, float]] = []
        numeric = [column.name for column in schema.static_numeric]
        categorical = {column.name: place for place, column in enumerate(schema.static_categorical)}
        for name, value in conditions.items():
            if name in categorical:
                column = schema.static_categorical[categorical[name]]
                code = column.code(str(value))
                if code is None:
                    known = ", ".join(column.categories[:_SHOWN])
                    more = f" … ({len(column.categories)} in all)" if len(column.categories) > _SHOWN else ""
                    hint = guess(value, column.categories)
                    raise InputError(f"given {name} must be one of {known}{more}, got {value}{hint}")
                self._codes.append((categorical[name], code))
            elif name in numeric:
                self._ranges.append((numeric.index(name), *_range(name, value)))
            else:
                known = ", ".join([*categorical, *numeric]) or "none"
                hint = guess(name, [*categorical, *numeric])
                raise InputError(f"given must name static columns ({known}), got {name}{hint}")

    def met(self, numbers: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Which records meet all of them.

        Args:
            numbers: float64 [n, numeric static columns], NaN for missing, which meets nothing.
            codes: int [n, categorical static columns].

        Returns:
            bool [n].
        """
        found = np.ones(len(codes), bool)
        for place, code in self._codes:
            found &= codes[:, place] == code
        for place, low, high in self._ranges:
            found &= (numbers[:, place] >= low) & (numbers[:, place] <= high)
        return found

    def kept(self, count: int, draw: Callable[[int], tuple[T, np.ndarray, np.ndarray]]) -> list[tuple[T, np.ndarray]]:
        """Draw until enough records meet the conditions.

        Args:
            count: of records.
            draw: from how many to draw to what was drawn, and its static numbers and codes, as for `met`.

        Returns:
            What was drawn each time, and the places in it of those that meet the conditions, int64; `count` in all.

        Raises:
            InputError: next to none meets them.
        """
        found: list[tuple[T, np.ndarray]] = []
        tried = met = 0
        while met < count:
            drawn, numbers, codes = draw(max(count, _FEWEST))
            places = np.flatnonzero(self.met(numbers, codes))[: count - met]
            found.append((drawn, places))
            tried, met = tried + len(codes), met + len(places)
            if met < count and tried > _RAREST * (count + 1) and met * _RAREST < tried:
                raise InputError(
                    f"{met} of {tried:,} generated records meet {self.words}: too few to draw {count:,} of them; "
                    "ask for something more common, or drop a condition"
                )
        return found


def _range(name: str, value: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not low <= high:
        raise InputError(f"given {name} must be a range (lowest, highest), got {value}")
    return low, high
