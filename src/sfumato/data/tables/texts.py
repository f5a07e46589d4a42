"""Texts of a table as token ids, by `Tokenizer` or by a function such as a Hugging Face tokenizer's.

>>> import pyarrow as pa
>>> Texts(Tokenizer(vocabulary=1000, length=4), "column note").ids(pa.array(["it rains", "no"]), 0).tolist()
[[935, 304, 0, 0], [988, 0, 0, 0]]
>>> Texts(lambda texts: [[1] * len(text) for text in texts], "column note").ids(pa.array(["it", "rains"]), 0)
Traceback (most recent call last):
...
sfumato._check.InputError: column note: tokenize gave 2 ids at position 0 and 5 at position 1; pad or cut to one ...
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.examples.tokens import Tokenizer
from sfumato.data.tables.cells import refuse_missing
from sfumato.data.tables.source import position

Tokenize = Tokenizer | Callable[[list[str]], Any]
"""A `Tokenizer`, or a function from texts to equally many lists of ids, all of one length."""

PAD = "pad or cut to one length, as tokenizer(texts, padding='max_length', truncation=True, max_length=128) does"


class Texts:
    """Turns the texts of a column into ids.

    Args:
        tokenize: the rule; it must look at each text by itself.
        told: what messages call the column.
        place: what messages call a row.

    Raises:
        InputError: `tokenize` is no such thing.
    """

    def __init__(self, tokenize: Tokenize, told: str, place: Callable[[int], str] = position) -> None:
        self._rule = tokenize.ids if isinstance(tokenize, Tokenizer) else tokenize
        if not callable(self._rule):
            raise InputError(
                f"tokenize must be a data.Tokenizer or a function from texts to ids, got {type(tokenize).__name__}"
            )
        self._told, self._place = told, place

    def ids(self, array: pa.Array, start: int) -> np.ndarray:
        """The ids of some rows, integers [rows, length].

        Args:
            array: the rows.
            start: the number of the first one in the table.

        Raises:
            InputError: a text is missing, or the rule gave no ids, or not equally many for each.
        """
        refuse_missing(array, self._told, start, place=self._place)
        given = self._rule(array.to_pylist())
        if len(given) != len(array):
            raise InputError(
                f"{self._told}: tokenize gave {len(given)} lists of ids for {len(array)} texts; give one a text "
                "(of a Hugging Face tokenizer's answer, its 'input_ids')"
            )
        self._refuse_ragged(given, start)
        ids = np.asarray(given)
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise InputError(f"{self._told}: tokenize must give whole numbers [texts, length], got {_kind(ids)}")
        return ids.astype(np.int64, copy=False)

    def _refuse_ragged(self, given: Any, start: int) -> None:
        lengths = [len(one) for one in given if hasattr(one, "__len__")]
        odd = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
        if odd is not None:
            raise InputError(
                f"{self._told}: tokenize gave {lengths[0]} ids at {self._place(start)} and {lengths[odd]} at "
                f"{self._place(start + odd)}; {PAD}"
            )


def assumptions(tokenize: Tokenize) -> tuple[str, ...]:
    """What a guarantee rests on where texts were turned into ids so."""
    if isinstance(tokenize, Tokenizer):
        return tokenize.assumptions
    return ("The tokenizer that was given is assumed to be public, and to look at one text at a time.",)


def _kind(ids: np.ndarray) -> str:
    return f"{ids.dtype} {ids.shape}"
