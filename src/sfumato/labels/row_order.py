"""Whether the order of the rows tells their labels: it is public, so no report would hide them.

Pictures in one folder a class, tables that were sorted and classes that were written one after the other have rows of
equal labels side by side. Whoever sees the reports in that order finds where they change, and knows every label.

Refused are labels that only go up or down, or of which each class is one block, where a random order of them would do
so by chance with less than one part in a million. An order that tells less is not noticed: that rows were ordered
without looking at their labels is an assumption of the statement.

>>> order = RowOrder(classes=2)
>>> order.add(np.array([0, 1, 1, 0] * 20))
>>> order.refuse_telling("the table")
>>> order = RowOrder(classes=2)
>>> order.add(np.repeat([1, 0], 20))
>>> order.refuse_telling("the table")
Traceback (most recent call last):
...
sfumato._check.InputError: the table: rows of one label stand side by side, and the order of rows is public, ...
"""

import math

import numpy as np

from sfumato._check import InputError

_CHANCE = 1e-6


class RowOrder:
    """What labels are beside each other, some rows at a time.

    Args:
        classes: how many a label may be of.
    """

    def __init__(self, classes: int) -> None:
        self._counts = np.zeros(classes, np.int64)
        self._last: np.ndarray = np.zeros(0, np.int64)
        self._rises = self._falls = 0

    def add(self, labels: np.ndarray) -> None:
        """Take in the labels of the next rows, int64 [n] in {0, …, classes-1}."""
        self._counts += np.bincount(labels, minlength=len(self._counts))
        steps = np.diff(np.concatenate([self._last, labels]))
        self._rises += int((steps > 0).sum())
        self._falls += int((steps < 0).sum())
        self._last = labels[-1:] if len(labels) else self._last

    def refuse_telling(self, told: str) -> None:
        """Refuse rows whose order tells their labels.

        Args:
            told: what messages call the rows.

        Raises:
            InputError: it does, and not by chance.
        """
        there = self._counts[self._counts > 0]
        orders = 0.0  # logarithm of how many orders of the classes would look like this
        if self._rises and self._falls:
            if self._rises + self._falls != len(there) - 1:
                return
            orders = math.lgamma(len(there) + 1)
        alike = sum(math.lgamma(count + 1) for count in there.tolist())
        if len(there) > 1 and orders + alike - math.lgamma(there.sum() + 1) < math.log(_CHANCE):
            raise InputError(
                f"{told}: rows of one label stand side by side, and the order of rows is public, so it would tell "
                "every label; shuffle the rows, or bring them into an order that does not follow from the labels"
            )
