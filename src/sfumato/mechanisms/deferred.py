"""Deferred noise: the noise of rows that no batch reads is drawn once, when a row is next read, and exactly.

A table of embeddings has millions of rows, and a batch reads a few thousand. Noise on the sum falls on all of them in
every step. Until a row is read, its noise has no effect, so it may be drawn at that time, at once: the law of all
that is read or released is that of dense noise.

What the noise has become by then follows from the optimiser. A number of the table goes through the steps with what the
optimiser keeps of it, its momentum and its moving average, as a vector x of one, two or three numbers:

    x[t+1] = A[t] x[t] + b[t] (g[t] + n[t]),   n[t] ~ N(0, s[t]²),   s[t] = noise multiplier · clip norm / denominator

where g[t] is zero for a row that is not read. Plain SGD, weight decay, heavy-ball and Nesterov momentum, schedules of
rates and of clip norms and the moving average of the parameters are all of this form; they differ in A, b and s. So a
row that was last known at step p is, at step t, Gaussian around Φ x[p] with the covariance

    Φ = A[t-1] … A[p],   C = Σ_{p ≤ j < t} (A[t-1] … A[j+1] b[j]) (A[t-1] … A[j+1] b[j])ᵀ s[j]²

Steps are put together in blocks of 2, 4, 8 …, so that Φ and C of any interval take O(log t) products (`History`).
Optimisers that divide by a running norm of the gradients (Adam, Adagrad, Yogi, RMSprop) are not linear, and are
refused.

- **Unit and cost.** Those of the dense Gaussian sum: the same law, so the same event.
- **First and last.** A row that is read for the first time gets the noise of all steps so far. What is released is read
  in full before (`RowState.flush`): rows without noise would show who was never read, those with it who was.
- **Randomness.** The normal numbers of a row are a function of the run's key, the table, the row and the step in which
  it is read. A run that goes on reads the same rows in the same steps, and repeats them.
  Noise that steps share (`deferred_tree`) is one of the key, the table, the row and the step that it comes in.
- **Readers.** Every reader of a row catches up first, and what was drawn is kept: two reads never see two noises of one
  step. There is no other way to the numbers than `RowState.read` and `RowState.flush`.

>>> history = History(momentum=0.0)
>>> for rate in (0.5, 0.25): history.append(rate=rate, noise_std=2.0)
>>> _, covariance = history.between(np.array([0, 1]), 2)
>>> covariance[:, 0, 0].tolist()  # 0.5²·2² + 0.25²·2², and the second step's alone
[1.25, 0.25]

References:
    Lim, Kwon, Kim, Rhu: LazyDP. ASPLOS 2024, arXiv 2404.08847 (the idea, for plain SGD at one rate).
    Denison et al.: Private Ad Modeling with DP-SGD. arXiv 2211.11896 (the models that need it).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato import _check
from sfumato._check import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfumato._random import RandomSource

_LOST = 2.0**-20  # of a sum, below which differences of sums are taken again: their round-off would count
_ROWS = 1 << 14  # rows that are caught up with at a time: bounds the memory of a flush


class History:
    """The steps so far, as a linear recurrence of each number of a table.

    Args:
        momentum: of SGD, in [0, 1).
        nesterov: whether it is Nesterov's.
        weight_decay: added to the gradient times the weight, >= 0.
        averaged: whether a moving average of the weights is kept.

    Attributes:
        steps: how many there are.
        size: numbers of the state: the weight, then its momentum and its average where they are kept.
        averaged: whether a moving average is kept.
        plain: whether a step adds to the weight alone, and changes it by nothing else.
    """

    def __init__(
        self, *, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0, averaged: bool = False
    ) -> None:
        _check.between(0.0, 1.0, ends="[)", momentum=momentum)
        _check.non_negative(weight_decay=weight_decay)
        self._momentum, self._nesterov, self._decay, self.averaged = momentum, nesterov, weight_decay, averaged
        self.size = 1 + (momentum > 0) + averaged
        self.plain = self.size == 1 and not weight_decay
        self.steps = 0
        self._settings = np.zeros((0, 3))
        self._collected = np.zeros(1)  # variance of the noise of the first so many steps together, in plain SGD
        self._blocks: list[tuple[np.ndarray, np.ndarray]] = []  # of 2^k steps each: Φ and C, [blocks, size, size]

    def append(self, *, rate: float, noise_std: float, average: float = 0.0) -> None:
        """One more step.

        Args:
            rate: the optimiser's learning rate in this step.
            noise_std: of the noise on a number of the mean gradient, >= 0.
            average: the decay of the moving average in this step, in [0, 1].
        """
        _check.non_negative(noise_std=noise_std)
        self._settings = grown(self._settings, self.steps)
        self._settings[self.steps] = rate, noise_std, average
        through, inwards = self._matrices(rate, average)
        block = through, np.outer(inwards, inwards) * noise_std**2
        self._collected = grown(self._collected, self.steps + 1)
        self._collected[self.steps + 1] = self._collected[self.steps] + (rate * noise_std) ** 2
        place, level = self.steps, 0
        while True:
            if level == len(self._blocks):
                self._blocks.append((np.zeros((0, self.size, self.size)), np.zeros((0, self.size, self.size))))
            kept = tuple(grown(each, place) for each in self._blocks[level])
            for each, value in zip(kept, block, strict=True):
                each[place] = value
            self._blocks[level] = kept  # type: ignore[assignment]
            if place % 2 == 0:
                break
            block = _joined((kept[0][place - 1], kept[1][place - 1]), block)
            place, level = place // 2, level + 1
        self.steps += 1

    def step(self, values: np.ndarray, gradient: np.ndarray, at: int) -> np.ndarray:
        """The state after a step without its noise.

        Args:
            values: float64 [n, size, d], the state before.
            gradient: float64 [n, d], the mean of the clipped gradients, without noise.
            at: the step.
        """
        rate, _, average = self._settings[at]
        if self.plain:
            return values - rate * gradient[:, None, :]
        through, inwards = self._matrices(rate, average)
        return np.einsum("ij,njd->nid", through, values) + inwards[:, None] * gradient[:, None, :]

    def between(
        self, starts: np.ndarray, end: int, *, noise_before: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Φ and C from each of some steps to `end`, float64 [n, size, size] each.

        Args:
            starts: int64 [n], in 0 … end.
            end: at most `steps`.
            noise_before: bool [n], whether the noise of the step before the start is still owed, too.
        """
        reached, identity = starts.astype(np.int64), np.eye(self.size)
        phi = np.broadcast_to(identity, (len(starts), self.size, self.size)).copy()
        covariance = np.zeros_like(phi)
        if noise_before is not None and noise_before.any():
            covariance[noise_before] = self._blocks[0][1][reached[noise_before] - 1]
        levels = range(len(self._blocks))
        for level in levels:  # to ever longer blocks, as far as they end in time
            at_odd = (reached >> level) % 2 == 1
            self._go(phi, covariance, reached, np.flatnonzero(at_odd & (reached + (1 << level) <= end)), level)
        for level in reversed(levels):  # and by ever shorter ones to the end
            self._go(phi, covariance, reached, np.flatnonzero(reached + (1 << level) <= end), level)
        return phi, covariance

    def shared(self, starts: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Noises that steps share, which are a part of what is owed since each of some steps; here there are none.

        Args:
            starts: int64 [n], the first steps whose noise is owed.

        Yields:
            the step whose stream a noise is of, the places in `starts` that are owed it, and its weight in the state,
            float64 [size].
        """
        yield from ()

    def collected(self, starts: np.ndarray, end: int, *, noise_before: np.ndarray) -> np.ndarray:
        """The standard deviation of the noise from each of some steps to `end`, float64 [n], in plain SGD.

        Args:
            starts, end, noise_before: as for `between`.
        """
        sums, firsts = self._collected, starts - noise_before
        variances = sums[end] - sums[firsts]
        lost = variances < _LOST * sums[end]
        if lost.any():  # noise much smaller than earlier noise: take sums that hold none of the earlier steps
            known, which = np.unique(firsts[lost], return_inverse=True)
            variances[lost] = self.between(known, end)[1][which, 0, 0]
        return np.sqrt(variances)

    def _go(self, phi: np.ndarray, covariance: np.ndarray, reached: np.ndarray, chosen: np.ndarray, level: int) -> None:
        """Take some of the intervals one block further, in place."""
        if len(chosen):
            block = tuple(each[reached[chosen] >> level] for each in self._blocks[level])
            phi[chosen], covariance[chosen] = _joined((phi[chosen], covariance[chosen]), block)
            reached[chosen] += 1 << level

    def settings(self) -> np.ndarray:
        """Rate, noise and decay of the average of each step, float64 [steps, 3], for a checkpoint."""
        return self._settings[: self.steps].copy()

    def load(self, settings: np.ndarray) -> None:
        """Go on after the steps of a checkpoint."""
        self.steps, self._settings, self._blocks, self._collected = 0, np.zeros((0, 3)), [], np.zeros(1)
        for rate, noise_std, average in settings.tolist():
            self.append(rate=rate, noise_std=noise_std, average=average)

    def _matrices(self, rate: float, average: float) -> tuple[np.ndarray, np.ndarray]:
        """A and b of a step of torch's SGD, and of the average that follows it."""
        momentum, decay = self._momentum, self._decay
        # the gradient with its decay, and the momentum after it, by (weight, momentum) and by the gradient
        gradient, moved = np.array([decay, 0.0]), np.array([decay, momentum])
        taken, share = (gradient + momentum * moved, 1 + momentum) if self._nesterov else (moved, 1.0)
        through, inwards = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([-rate * share, 1.0])
        through[0] -= rate * taken
        through[1] = moved
        if not momentum:
            through, inwards = through[:1, :1], inwards[:1]
        if self.averaged:
            size = len(inwards)
            wider = np.zeros((size + 1, size + 1))
            wider[:size, :size] = through
            wider[size, :size], wider[size, size] = (1 - average) * through[0], average
            through, inwards = wider, np.append(inwards, (1 - average) * inwards[0])
        return through, inwards


class RowState:
    """The rows of a table with what the optimiser keeps of them, each as it was when it was last read.

    Args:
        name: of the table within the model; two tables of a run have different ones.
        weight: float [V, d], the first weights; taken over and written to. It may lie in a file.
        history: of the run's steps; one for all tables.

    Attributes:
        name: of the table.
        weight: float [V, d]; a row may lack noise, so only this class reads it before `flush`.
    """

    def __init__(self, name: str, weight: np.ndarray, history: History) -> None:
        self.name, self.weight, self._history = name, weight, history
        # what the optimiser keeps begins with zeros, of which no memory is taken before they are written to
        self._others = [np.zeros_like(weight) for _ in range(history.size - 1)]
        if history.size > 1 and history.averaged:
            self._others[-1] = weight.copy()
        # 2 p + (whether the noise of step p - 1 is owed): the row is known at step p
        self._known = np.zeros(len(weight), np.int32)

    def read(self, rows: np.ndarray, source: RandomSource | None, *, averaged: bool = False) -> np.ndarray:
        """Rows as they are at the present step, float [n, d]; later readers find the same noise.

        Args:
            rows: int64 [n], without repetition.
            source: the run's randomness; None once the run has ended, when nothing is owed any more.
            averaged: their moving average instead.
        """
        self._catch_up(rows, source)
        return (self._others[-1] if averaged else self.weight)[rows]

    def step(self, rows: np.ndarray, gradient: np.ndarray, at: int) -> bool:
        """Take the present step in rows that were read in it; its noise is owed from then on.

        Args:
            rows: int64 [n], without repetition, each read at this step.
            gradient: float64 [n, d], the mean of the clipped gradients, without noise.
            at: the step.

        Returns:
            whether all numbers are finite.
        """
        assert (self._known[rows] == 2 * at).all(), "a row takes a step that was not read in it"
        values = self._history.step(self._values(rows), gradient, at)
        self._write(rows, values)
        self._known[rows] = 2 * at + 3
        return bool(np.isfinite(values).all())

    def whole(self, *, averaged: bool = False) -> np.ndarray:
        """The table, or its moving average, float [V, d]; after `flush`.

        Raises:
            InputError: a row still lacks noise.
        """
        if (self._known != 2 * self._history.steps).any():
            raise InputError(f"rows of the table {self.name} still lack noise; flush it before it leaves")
        return self._others[-1] if averaged else self.weight

    def flush(self, source: RandomSource | None) -> None:
        """Catch up with all rows: only after this may the table leave."""
        for start in range(0, len(self.weight), _ROWS):
            self._catch_up(np.arange(start, min(start + _ROWS, len(self.weight))), source)

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps; private, as it shows who was read."""
        return {
            "weight": self.weight,
            **{f"kept.{i}": each for i, each in enumerate(self._others)},
            "known": self._known,
        }

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Go on from there.

        Raises:
            InputError: the checkpoint is of a table of another size.
        """
        for name, mine in self.state().items():
            if name not in state or state[name].shape != mine.shape:
                found = list(state[name].shape) if name in state else "none"
                raise InputError(
                    f"the checkpoint has a table {self.name} of {found}, the model one of {list(mine.shape)}; resume "
                    "with the same model"
                )
            mine[...] = state[name]

    def _catch_up(self, rows: np.ndarray, source: RandomSource | None) -> None:
        """Bring rows to the present step, with the noise that they are owed."""
        now = self._history.steps
        rows = rows[self._known[rows] != 2 * now]
        if not len(rows):
            return
        if source is None:
            raise InputError(f"rows of the table {self.name} lack noise whose key is gone; start a new run")
        codes = self._known[rows]
        self._known[rows] = 2 * now
        stream, width = source.stream("deferred noise", self.name, now), self.weight.shape[1]
        if self._history.plain:  # a weight only collects noise
            scales = self._history.collected(codes >> 1, now, noise_before=codes % 2)
            if scales.any():
                moved = stream.normals_of(rows, width)
                moved *= scales[:, None]
                self.weight[rows] += moved.astype(self.weight.dtype)
            return
        known, which = np.unique(codes, return_inverse=True)
        starts, before = known >> 1, known % 2 == 1
        through, covariance = self._history.between(starts, now, noise_before=before)
        values, factors, size = self._values(rows), cholesky(covariance), self._history.size
        moved = through[which] @ values
        if factors.any():
            moved += factors[which] @ stream.normals_of(rows, size * width).reshape(len(rows), size, width)
        for step, places, weight in self._history.shared(starts - before):
            owed = np.zeros(len(starts), bool)
            owed[places] = True
            chosen = np.flatnonzero(owed[which])
            noise = source.stream("tree noise of rows", self.name, step).normals_of(rows[chosen], width)
            moved[chosen] += weight[:, None] * noise[:, None, :]
        self._write(rows, moved)

    def _values(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([each[rows] for each in (self.weight, *self._others)], axis=1, dtype=np.float64)

    def _write(self, rows: np.ndarray, values: np.ndarray) -> None:
        for place, each in enumerate((self.weight, *self._others)):
            each[rows] = values[:, place]


def cholesky(covariance: np.ndarray) -> np.ndarray:
    """Lower factors L of positive semidefinite matrices, C = L Lᵀ, float64 [n, k, k]; k is 1, 2 or 3.

    A matrix of less than full rank is ordinary here: after one step weight and momentum have one noise.

    >>> cholesky(np.array([[[4.0, 2.0], [2.0, 1.0]]]))[0].tolist()
    [[2.0, 0.0], [1.0, 0.0]]
    """
    size, found = covariance.shape[1], np.zeros_like(covariance)
    for column in range(size):
        rest = covariance[:, column:, column] - np.einsum(
            "nik,nk->ni", found[:, column:, :column], found[:, column, :column]
        )
        pivot = rest[:, 0]
        # round-off of a matrix of lower rank must not become a direction of its own
        usable = pivot > 1e-14 * np.maximum(covariance[:, column, column], math.ulp(0.0))
        root = np.sqrt(np.where(usable, pivot, 1.0))
        found[:, column:, column] = np.where(usable[:, None], rest / root[:, None], 0.0)
    return found


def _joined(first: tuple[np.ndarray, ...], second: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Φ and C of one interval and the next one, [..., size, size] each."""
    (one, before), (other, added) = first, second
    return other @ one, other @ before @ np.swapaxes(other, -1, -2) + added


def grown(array: np.ndarray, place: int) -> np.ndarray:
    """The array with room for this place."""
    if place < len(array):
        return array
    return np.concatenate([array, np.zeros((max(8, len(array)), *array.shape[1:]), array.dtype)])
