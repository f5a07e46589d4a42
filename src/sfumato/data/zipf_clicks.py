"""Generated logs of advertisements: values of columns by Zipf's law, and clicks or counts by a truth that is known.

Column c has V_c ids, of which id i comes with a probability proportional to (i + 1)^-s. The truth is a score

    bias + strength · (Σ_c w_c[id_c] + Σ_j b_j · x_j) / √(columns) + taste · t_user

with standard normal weights w, b and t, and numbers x. Its logistic function is the probability of a click, its
exponential the expected count. A weight is a function of the seed, the column and the id, so no table of them is held
and V may be 10⁷ and more. Rows come in blocks that are functions of the seed and their place: memory does not grow with
their number where they go to a store, and more rows leave the first ones as they are. Users come by Zipf's law, too, so
that a few of them have many rows.

>>> log = ZipfClicks(vocabulary_sizes=(1000, 50), numeric=2, users=30, seed=1)
>>> data = log.examples(500)
>>> data
ExampleDataset(500 examples of 30 users of (2,) float32 + (2,) int64, 2 classes)
>>> bool((log.examples(100).inputs[1][:] == data.inputs[1][:100]).all())
True
>>> log.scores(*data.examples([0, 1])[0]).round(2).tolist()
[-1.73, -3.06]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato.data.examples import ExampleDataset
from sfumato.data.store.opened import ExampleWriter

_BLOCK = 1 << 13  # rows; a part of what a seed means


@dataclass(frozen=True, kw_only=True)
class ZipfClicks:
    """A log without end; `examples` gives its first rows.

    Attributes:
        vocabulary_sizes: ids of each column, each >= 1.
        numeric: standard normal numbers of a row, >= 0.
        exponent: s, > 0; larger ones make common values more common.
        strength: standard deviation of a score over rows, roughly; >= 0.
        bias: score of a row whose weights are all 0; log odds of a click, or logarithm of a count.
        users: how many users there are; None for rows that stand alone. Those that have no row are left out.
        user_exponent: the same for the rows of users.
        taste: standard deviation of what a user adds to the scores of all of their rows, >= 0.
        counts: whether targets are counts (Poisson) and not clicks.
        seed: of everything.
    """

    vocabulary_sizes: tuple[int, ...]
    numeric: int = 0
    exponent: float = 1.1
    strength: float = 1.0
    bias: float = -2.0
    users: int | None = None
    user_exponent: float = 1.0
    taste: float = 0.0
    counts: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for size in self.vocabulary_sizes:
            _check.whole(vocabulary_sizes=size)
        if not self.vocabulary_sizes:
            raise InputError("vocabulary_sizes needs a number of ids for each column, got none")
        _check.whole(at_least=0, numeric=self.numeric, seed=self.seed)
        _check.positive(exponent=self.exponent, user_exponent=self.user_exponent)
        _check.between(-float("inf"), float("inf"), ends="()", bias=self.bias)
        for name in ("strength", "taste"):
            _check.between(0.0, float("inf"), ends="[)", **{name: getattr(self, name)})
        if self.users is not None:
            _check.whole(users=self.users)
        if self.users is None and self.taste:
            raise InputError(f"taste={self.taste:g} is what users add; say how many users there are, or leave it out")

    def examples(self, count: int, *, store: Path | str | None = None) -> ExampleDataset:
        """The first rows.

        Args:
            count: how many, >= 1.
            store: a new folder to write them to, so that memory does not grow with their number; None keeps them in
                memory.

        Returns:
            inputs: numbers float32 [count, numeric] and ids int64 [count, columns]; targets: clicks as classes, or
            counts; owners, where there are users.

        Raises:
            InputError: the folder is not empty, or the disk is full.
        """
        _check.whole(count=count)
        kept = None if self.users is None else self._users_of(count)
        columns = len(self.vocabulary_sizes)
        with ExampleWriter([(self.numeric,), (columns,)], [np.float32, np.int64], store) as writer:
            for numbers, ids, users in self._blocks(count):
                targets = self._targets(writer.count // _BLOCK, self.scores(numbers, ids, users))
                owners = None if users is None or kept is None else np.searchsorted(kept, users)
                writer.add((numbers, ids), targets, owners)
            names = (tuple(f"x{i}" for i in range(self.numeric)), tuple(f"column {i}" for i in range(columns)))
            return writer.finish(
                num_classes=None if self.counts else 2, vocabulary_sizes=self.vocabulary_sizes, columns=names
            )

    def scores(self, numbers: np.ndarray, ids: np.ndarray, users: np.ndarray | None = None) -> np.ndarray:
        """The truth of some rows: log odds of a click or logarithms of expected counts, float64 [n].

        Args:
            numbers: [n, numeric].
            ids: int64 [n, columns].
            users: int64 [n], numbers of users in the log; None leaves out what users add.
        """
        total = numbers.astype(np.float64) @ self._truth("numbers").normal(self.numeric)
        for column in range(ids.shape[1]):
            total += _weights(self._truth(f"column {column}"), ids[:, column])
        total *= self.strength / np.sqrt(self.numeric + ids.shape[1])
        if users is not None and self.taste:
            total += self.taste * _weights(self._truth("users"), users)
        return self.bias + total

    def _blocks(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """Numbers, ids and users of the rows, a block at a time."""
        for block in range(-(-count // _BLOCK)):
            rows = min(_BLOCK, count - block * _BLOCK)
            numbers = self._draws(block, "numbers").normal(_BLOCK * self.numeric).reshape(_BLOCK, self.numeric)
            ids = [
                zipf(self._draws(block, f"column {column}"), size, self.exponent, _BLOCK)
                for column, size in enumerate(self.vocabulary_sizes)
            ]
            users = None if self.users is None else self._block_users(block)[:rows]
            yield numbers[:rows].astype(np.float32), np.stack(ids, 1)[:rows], users

    def _block_users(self, block: int) -> np.ndarray:
        assert self.users is not None
        return zipf(self._draws(block, "users"), self.users, self.user_exponent, _BLOCK)

    def _users_of(self, count: int) -> np.ndarray:
        """Those that the first rows are of, ascending."""
        held = np.zeros(self.users or 0, bool)
        for block in range(-(-count // _BLOCK)):
            held[self._block_users(block)[: count - block * _BLOCK]] = True
        return np.flatnonzero(held)

    def _targets(self, block: int, scores: np.ndarray) -> np.ndarray:
        stream = self._draws(block, "targets")
        if not self.counts:
            return (stream.uniform(_BLOCK)[: len(scores)] < 1 / (1 + np.exp(np.minimum(-scores, 700)))).astype(np.int64)
        generator = np.random.Generator(np.random.Philox(int(stream.uint64(1)[0])))
        return np.array([generator.poisson(rate) for rate in np.exp(np.minimum(scores, 20))], np.int64)

    def _truth(self, of: str) -> Stream:
        return RandomSource.from_seed(self.seed).stream("planted truth", of)

    def _draws(self, block: int, of: str) -> Stream:
        return RandomSource.from_seed(self.seed).stream("generated rows", block, of)


def zipf(stream: Stream, size: int, exponent: float, count: int) -> np.ndarray:
    """Numbers 0 … size − 1 of which i has a probability proportional to (i + 1)^−exponent, int64 [count].

    By rejection from a continuous power law, so that neither time nor memory grows with the size.

    Args:
        stream: of uniform numbers.
        size: >= 1.
        exponent: > 0.
        count: of draws.

    >>> zipf(RandomSource.from_seed(0).stream("doctest"), 10_000_000, 1.2, 8).tolist()
    [7, 5, 39, 8, 165, 0, 3, 3]
    """
    found = np.zeros(0, np.int64)
    power = 1 - exponent
    top = _share(np.ones(1), exponent)[0]
    while len(found) < count:
        u, v = stream.uniform(2 * count).reshape(2, count)
        if power:
            x = (1 + u * np.expm1(power * np.log(size + 1.0))) ** (1 / power)
        else:
            x = np.exp(u * np.log(size + 1.0))
        whole = np.clip(np.floor(x), 1, size)
        found = np.concatenate([found, whole[v * top < _share(whole, exponent)].astype(np.int64) - 1])
    return found[:count]


def _share(k: np.ndarray, exponent: float) -> np.ndarray:
    """k^−s divided by the integral of x^−s from k to k + 1; largest at k = 1."""
    step = np.log1p(1 / k)
    if exponent == 1:
        return 1 / (k * step)
    return (1 - exponent) / (k * np.expm1((1 - exponent) * step))


def _weights(stream: Stream, ids: np.ndarray) -> np.ndarray:
    """A standard normal number for each id, float64 [n]."""
    distinct, which = np.unique(ids, return_inverse=True)
    return stream.normals_of(distinct, 1)[:, 0][which.reshape(-1)]
