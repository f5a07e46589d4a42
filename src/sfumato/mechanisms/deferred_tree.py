"""Deferred noise of a binary tree over the steps: a row that is read needs the noise of O(log t) nodes.

With the plain estimator the sum of the noise so far is that of the nodes on the stack, one for each 1 in the binary
length, and the noise of step j is

    n[j] = s (z[j] - Σ z[k]),   k: the nodes that the node of step j takes off the stack

so each node's z comes once and goes once. With r[j] for what a unit of noise in step j has become in the state by step
t, a row that was last known at step p is owed

    Σ r[k] z[k]                     nodes that came since p and are on the stack at t
  - Σ r[left[k]] z[k]               nodes that were on the stack at p and have gone since
  + Σ (r[k] - r[left[k]]) z[k]      nodes that came and went since p

Other reads may need the nodes of the first two lines, too. So each of these is a function of the run's key, the table,
the row and the step in which the node came. The nodes of the last line are never needed again: one normal number has
the sum of their variances. In plain SGD at one rate they cancel. So all that is read or released has the law of dense
noise, under every optimiser that `deferred` takes.

A node of the efficient estimator holds a share of every node below it, so that a row would need O(t) numbers; and a new
tree makes the server forget its momentum. Both are refused.

>>> history = TreeHistory(Tree(estimator="plain", rounds=8, noise_multiplier=1.0))
>>> for _ in range(6): history.append(rate=1.0, noise_std=1.0)
>>> [(node, weight.item()) for node, _, weight in history.shared(np.array([0]))]  # six steps: of four and of two
[(3, -1.0), (5, -1.0)]
>>> [(node, weight.item()) for node, _, weight in history.shared(np.array([3]))]  # and two that were there and went
[(1, 1.0), (2, 1.0), (3, -1.0), (5, -1.0)]

References:
    Kairouz et al.: Practical and Private (Deep) Learning without Sampling or Shuffling. ICML 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sfumato.mechanisms.deferred import History, grown
from sfumato.mechanisms.tree import Tree

_STAYS = -1


class TreeHistory(History):
    """The steps so far where their noise is that of one tree with the plain estimator.

    Args:
        tree: planned.
        optimiser: as for `History`.
    """

    def __init__(self, tree: Tree, **optimiser: Any) -> None:
        super().__init__(**optimiser)
        self.plain, self._tree = False, tree
        self._forget()

    def append(self, *, rate: float, noise_std: float, average: float = 0.0) -> None:
        """One more step, whose node takes others off the stack; `noise_std` is that of a node."""
        at = self.steps
        super().append(rate=rate, noise_std=noise_std, average=average)
        through, inwards = self._matrices(rate, average)
        self._reach = grown(self._reach, at)
        self._reach[:at] = self._reach[:at] @ through.T
        self._reach[at] = inwards * noise_std
        self._left = grown(self._left, at)
        self._left[at] = _STAYS
        self._left[list({*self._tree.needed(at)} - {*self._tree.needed(at + 1)})] = at
        self._gone = None

    def between(
        self, starts: np.ndarray, end: int, *, noise_before: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Φ and the covariance of the nodes that came and went since, from each of some steps to the present one."""
        assert end == self.steps, "nodes are weighed for the present step"
        phi, _ = super().between(starts, end)
        if self._gone is None:
            reach, left = self._reach[:end], self._left[:end]
            moved = np.where((left != _STAYS)[:, None], reach - reach[left], 0.0)
            squares = np.zeros((end + 1, self.size, self.size))
            squares[:end] = moved[:, :, None] * moved[:, None, :]
            self._gone = np.cumsum(squares[::-1], axis=0)[::-1]
        return phi, self._gone[starts if noise_before is None else starts - noise_before]

    def shared(self, starts: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The nodes on the stack at some steps and now, in order."""
        order = np.argsort(starts, kind="stable")
        rising = starts[order]
        nodes = set[int]().union(*(self._tree.needed(step) for step in {self.steps, *rising.tolist()}))
        for node in sorted(nodes):
            left = int(self._left[node])
            if left == _STAYS:
                first, last, weight = 0, np.searchsorted(rising, node, "right"), self._reach[node]
            else:
                first, last = np.searchsorted(rising, (node, left), "right")
                weight = -self._reach[left]
            if first < last:
                yield node, order[first:last], weight

    def load(self, settings: np.ndarray) -> None:
        """Go on after the steps of a checkpoint."""
        self._forget()
        super().load(settings)

    def _forget(self) -> None:
        self._reach, self._left = np.zeros((0, self.size)), np.zeros(0, np.int64)
        self._gone: np.ndarray | None = None
