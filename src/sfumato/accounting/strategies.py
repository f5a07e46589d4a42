"""Strategies of correlated noise: a lower-triangular C, and what its noise does to prefix sums.

**Independent** noise in each round: C is the identity.

>>> Independent().prefix_variance(3)
array([1., 2., 3.])

**Binary trees:** prefix sums are put together from partial sums, with noise in the nodes. A node is a block of 2^m
rounds that starts at a multiple of 2^m. The plain estimator of a prefix sum adds the fewest nodes that make it up, one
for each binary digit of the number of rounds. The efficient one (Honaker 2015, bottom-up) first replaces each node by
the average of itself and its two children's estimates, weighted by inverse variances; at height m that has variance 1 /
(2 - 2^-m) instead of 1.

After a restart the model keeps the last released prefix sum of the tree before and goes on from there, so the variances
add up over the trees. A tree that another one follows may be completed by empty rounds: its last prefix sum is then its
root's, and the efficient estimator takes blocks without a real round for what they are, zero without any noise.

>>> BinaryTree("plain").prefix_variance(7)
array([1., 1., 2., 1., 2., 2., 3.])
>>> BinaryTree("efficient").prefix_variance(4).round(4)
array([1.    , 0.6667, 1.6667, 0.5714])

**Banded inverse:** the noise of a round is a moving average of a few z. C^-1 is Toeplitz with few coefficients, so
drawing the noise takes no recursion: round t gets sum_i d_i z_{t-i}, which can be drawn again for any round. C itself
has all coefficients (Kalinin, McKenna, Upadhyay and Lampert 2025).

>>> strategy = InverseBanded((1.0, -0.5))
>>> strategy.coefficients(4)
array([1.   , 0.5  , 0.25 , 0.125])
>>> strategy.prefix_variance(3)
array([1.  , 1.25, 1.5 ])

**Buffered Toeplitz** (BLT): the coefficients of C are sums of geometric series, the noise needs few buffers. C has the
coefficients 1 and sum_p scale_p decay_p^(t-1) for t >= 1. Its inverse is of the same form with other decays, the
eigenvalues of diag(decays) - sqrt(scales) sqrt(scales)^T (Dvijotham et al. 2024, Section 5).

>>> strategy = BufferedToeplitz(output_scales=(0.5,), buffer_decays=(0.75,))
>>> strategy.coefficients(4), strategy.inverse_column(4)
(array([1.     , 0.5    , 0.375  , 0.28125]), array([ 1.     , -0.5    , -0.125  , -0.03125]))

**Banded:** C = T(c) diag(d), a lower-triangular Toeplitz matrix of few diagonals with scaled columns. The noise of
round t is (T^-1 z)_t / d_t, which takes the last `bands` - 1 rounds of T^-1 z. Scales let the rounds that matter more
have more of the sensitivity: docs/explanation/strategies.md.

>>> strategy = BandedToeplitz((1.0, 0.5), column_scales=(1.0, 0.8, 0.5))
>>> strategy.prefix_variance(3)
array([1.      , 1.703125, 4.828125])
>>> limits = Participation(rounds=3, max_participations=2, min_separation=1)
>>> round(strategy.squared_sensitivity(limits), 12)              # columns 0 and 2: 1.25 + 0.25
1.5
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np

from sfumato._check import InputError, between, non_negative, one_of, positive, whole
from sfumato._lazy import scipy
from sfumato.accounting import events
from sfumato.accounting.events.sensitivity import Participation
from sfumato.accounting.numerics import EPS, dot

if TYPE_CHECKING:
    from sfumato.accounting.events import Event, MatrixMechanism, TreeAggregation

# Lists of numbers that a strategy is made of, checked.


MOST_ROUNDS = 10**7
"""Rounds whose variances are held one by one."""


def numbers(name: str, values: object, remedy: str) -> tuple[float, ...]:
    """The values as a tuple of finite floats, at least one.

    Raises:
        InputError: there is none, or one is no finite number.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be numbers, got {values!r:.80}; {remedy}") from None
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be a list of at least one number, got {values!r:.80}; {remedy}")
    if not np.all(np.isfinite(array)):
        wrong = int(np.flatnonzero(~np.isfinite(array))[0])
        raise InputError(f"{name} must be finite, got {array[wrong]} at place {wrong}; {remedy}")
    return tuple(array.tolist())


def in_rounds(rounds: int) -> int:
    """The number of rounds, whose variances can be computed.

    Raises:
        InputError: it is not whole, or out of range.
    """
    whole(rounds=rounds)
    between(1, MOST_ROUNDS, rounds=rounds, remedy="variances of so many rounds are not held; take a shorter run")
    return int(rounds)


# Power series of Toeplitz matrices: inverses, and the sums that their noise adds up to.
#
# A lower-triangular Toeplitz matrix of `rounds` rows is its first column, a power series; a product of matrices is a
# product of series.


_MOST_DIRECT = 50_000_000  # multiplications of the recursion, up to which it is quicker than transforms


def padded(values: np.ndarray, rounds: int) -> np.ndarray:
    """The first `rounds` numbers, zeros where there are fewer."""
    return np.concatenate([values[:rounds], np.zeros(max(0, rounds - len(values)))])


def reciprocal(values: np.ndarray, rounds: int) -> np.ndarray:
    """The first `rounds` coefficients of 1 / series.

    >>> reciprocal(np.array([1.0, -0.5]), 4)
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    values = values[:rounds]
    if len(values) * rounds <= _MOST_DIRECT:
        return scipy.signal.lfilter([1.0], values, padded(np.ones(1), rounds))
    found = np.array([1.0 / values[0]])
    while len(found) < rounds:  # Newton: 1/c = y (2 - c y), twice as many coefficients each time
        size = min(2 * len(found), rounds)
        left = -scipy.signal.fftconvolve(padded(values, size), found)[:size]
        left[0] += 2.0
        found = scipy.signal.fftconvolve(found, left)[:size]
    return found


def binomial_series(power: float, rounds: int) -> np.ndarray:
    """The first `rounds` coefficients of (1 - x)^power.

    >>> binomial_series(-0.5, 4), binomial_series(0.5, 4)
    (array([1.    , 0.5   , 0.375 , 0.3125]), array([ 1.    , -0.5   , -0.125 , -0.0625]))
    """
    places = np.arange(1, rounds)
    return np.cumprod(np.concatenate([[1.0], (places - 1 - power) / places]))


# Strategies of correlated noise: a lower-triangular C, what its noise does to prefix sums, and what a run of it costs.
#
# The noise of round t is row t of C^-1 z, with z ~ N(0, (noise_multiplier * clip_norm)^2) in each coordinate. What
# models feel is the sum of the noise so far, row t of A C^-1 z where A sums prefixes; what a unit can see is C x. A
# strategy is good where the product of the two is small:
#
#     root error = sqrt(mean or max over rounds of ||row t of A C^-1||^2) * S
#
# It is the noise of prefix sums, in clip norms, of a run that costs as much as one Gaussian release with noise
# multiplier 1. The participation limits that a strategy is asked about must hold; the sampler enforces them.
#
# References: Denisov et al. 2022; docs/explanation/strategies.md.


Error = Literal["mean", "max"]


class Strategy(ABC):
    """A lower-triangular C. All are frozen dataclasses: immutable, hashable, equal where their numbers are."""

    name: ClassVar[str]

    @abstractmethod
    def event(self, noise_multiplier: float, participation: Participation) -> Event:
        """What `participation.rounds` rounds with this noise cost a unit within these limits.

        Args:
            noise_multiplier: std of a coordinate of z divided by the clip norm, > 0.
            participation: what one unit may do.
        """

    def squared_sensitivity(self, participation: Participation) -> float:
        """S^2 in squared clip norms, that of the event: the most that one unit moves C x, rounded up."""
        from sfumato.accounting.events.correlated import StreamEvent

        event = self.event(1.0, participation)
        assert isinstance(event, StreamEvent)
        return float(event.known_sensitivity())

    @abstractmethod
    def prefix_variance(self, rounds: int) -> np.ndarray:
        """float [rounds], variance of the noise in the sum of rounds 0 to t, at noise multiplier and clip norm 1."""


def root_error(strategy: Strategy, participation: Participation, error: Error) -> float:
    """Noise of prefix sums, in clip norms, of a run that costs what one Gaussian of noise multiplier 1 costs.

    Args:
        strategy: the strategy.
        participation: what one unit may do.
        error: "mean", the root of the mean squared error over the prefix sums, or "max", that of the worst one.

    >>> from sfumato.accounting.strategies import Independent
    >>> root_error(Independent(), Participation(rounds=64, max_participations=4), "max")
    16.0
    """
    one_of(get_args(Error), error=error)
    variance = strategy.prefix_variance(participation.rounds)
    worst = float(np.max(variance)) if error == "max" else float(np.mean(variance))
    return math.sqrt(worst * strategy.squared_sensitivity(participation))


@dataclass(frozen=True)
class Independent(Strategy):
    """C is the identity; a unit costs one release for each of its rounds."""

    name: ClassVar[str] = "gaussian"

    def event(self, noise_multiplier: float, participation: Participation) -> Event:
        return events.Gaussian(noise_multiplier).min_separation(
            participation.rounds, participation.min_separation, participation.max_participations
        )

    def squared_sensitivity(self, participation: Participation) -> float:
        return float(participation.most)

    def prefix_variance(self, rounds: int) -> np.ndarray:
        return np.arange(1.0, in_rounds(rounds) + 1)


Estimator = Literal["plain", "efficient"]


@dataclass(frozen=True)
class BinaryTree(Strategy):
    """One tree, or one after another; what it costs is `TreeAggregation`'s.

    Attributes:
        estimator: how prefix sums are made from nodes: "plain" or "efficient". Both cost the same.
        restart_every: rounds after which a new tree starts, >= 1; None for a single tree.
        completion: whether a tree that another one follows is filled up with empty rounds; needs `restart_every`.

    Raises:
        InputError: a value is out of range, or completion is asked of a single tree.
    """

    estimator: Estimator = "efficient"
    restart_every: int | None = None
    completion: bool = False

    name: ClassVar[str] = "tree"

    def __post_init__(self) -> None:
        one_of(get_args(Estimator), estimator=self.estimator)
        trees = self.event(1.0, Participation(rounds=1))  # the event says what trees there can be
        object.__setattr__(self, "restart_every", trees.restart_every)

    def event(self, noise_multiplier: float, participation: Participation) -> TreeAggregation:
        return events.TreeAggregation(
            noise_multiplier=noise_multiplier,
            steps=participation.rounds,
            max_participations=participation.max_participations,
            min_separation=participation.min_separation,
            restart_every=self.restart_every,
            completion=self.completion,
        )

    def prefix_variance(self, rounds: int) -> np.ndarray:
        length = min(self.restart_every or in_rounds(rounds), in_rounds(rounds))
        within = self._within_a_tree(length)
        followed = within.copy()
        if self.completion:
            followed[-1] = 1.0 if self.estimator == "plain" else _root_variance(length, (length - 1).bit_length())
        trees = (rounds - 1) // length
        before = np.repeat(followed[-1] * np.arange(trees + 1), length)[:rounds]
        return before + np.concatenate([np.tile(followed, trees), within[: rounds - trees * length]])

    def _within_a_tree(self, rounds: int) -> np.ndarray:
        ends = np.arange(1, rounds + 1)
        variance = np.zeros(rounds)
        for height in range(rounds.bit_length()):
            of_node = 1.0 if self.estimator == "plain" else 1.0 / (2.0 - 2.0**-height)
            variance += of_node * (ends >> height & 1)
        return variance


def _root_variance(rounds: int, height: int) -> float:
    """Variance of the efficient estimate of a block of 2^height rounds, of which the first `rounds` are real."""
    if rounds == 0:
        return 0.0
    if rounds == 1 << height:
        return 1.0 / (2.0 - 2.0**-height)
    half = 1 << (height - 1)
    below = _root_variance(min(rounds, half), height - 1) + _root_variance(max(0, rounds - half), height - 1)
    return 1.0 / (1.0 + 1.0 / below)


class Toeplitz(Strategy):
    """C = T diag(d) for a lower-triangular Toeplitz T."""

    @abstractmethod
    def inverse_column(self, rounds: int) -> np.ndarray:
        """float [rounds], first column of T^-1."""

    def prefix_variance(self, rounds: int) -> np.ndarray:
        return np.cumsum(np.cumsum(self.inverse_column(in_rounds(rounds))) ** 2)


@dataclass(frozen=True)
class InverseBanded(Toeplitz):
    """C^-1[t, j] = inverse_coefficients[t - j].

    Attributes:
        inverse_coefficients: d, first column of C^-1 from the diagonal on; the first one is 1.

    Raises:
        InputError: there are none, one is not finite, or the first is not 1.
    """

    inverse_coefficients: tuple[float, ...]

    name: ClassVar[str] = "bisr"

    def __post_init__(self) -> None:
        kept = numbers("inverse_coefficients", self.inverse_coefficients, "InverseBanded((1.0,)) is independent noise")
        if kept[0] != 1.0:
            raise InputError(
                f"the first of inverse_coefficients must be 1, got {kept[0]}; divide all by it, "
                "which changes neither noise nor cost"
            )
        object.__setattr__(self, "inverse_coefficients", kept)

    def event(self, noise_multiplier: float, participation: Participation) -> MatrixMechanism:
        column = _bounding_column(self.inverse_coefficients, participation.rounds)
        return events.MatrixMechanism.toeplitz(noise_multiplier, participation, column)

    def inverse_column(self, rounds: int) -> np.ndarray:
        return padded(np.array(self.inverse_coefficients), rounds)

    def coefficients(self, rounds: int) -> np.ndarray:
        """float [rounds], first column of C."""
        return reciprocal(np.array(self.inverse_coefficients), in_rounds(rounds))


@lru_cache(maxsize=16)
def _bounding_column(inverse: tuple[float, ...], rounds: int) -> np.ndarray:
    """First column of C, times what makes up for its rounding.

    With the residual r = d * c - 1 of what was computed, C = (I + R)^-1 of it, and a vector grows by at most
    1 / (1 - ||r||_1) when (I + R)^-1 is applied.
    """
    d = np.array(inverse[: in_rounds(rounds)])
    with np.errstate(over="ignore", invalid="ignore"):
        column = reciprocal(d, rounds)
        residual = scipy.signal.oaconvolve(d, column)[:rounds]
        residual[0] -= 1.0
        in_residual = 8 * EPS * np.log2(rounds + 2) * np.linalg.norm(d) * np.linalg.norm(column)
        off = float(np.abs(residual).sum() + rounds * in_residual)
    if not off < 1e-3:
        raise InputError(
            f"inverse_coefficients {inverse!r:.60} have an inverse that grows beyond what can be computed over "
            f"{rounds} rounds; take smaller ones, or fewer rounds"
        )
    return column / (1.0 - off)


@dataclass(frozen=True)
class BufferedToeplitz(Toeplitz):
    """C of a BLT, as in `MatrixMechanism.blt`.

    Attributes:
        output_scales: omega of C, one for each buffer, >= 0. S^2 is exact where they add up to at most 1.
        buffer_decays: theta of C, one for each buffer, in [0, 1].

    Raises:
        InputError: there are none, they differ in number, or one is out of range.
    """

    output_scales: tuple[float, ...]
    buffer_decays: tuple[float, ...]

    name: ClassVar[str] = "blt"

    def __post_init__(self) -> None:
        scales = numbers("output_scales", self.output_scales, "Independent() is noise without buffers")
        decays = numbers("buffer_decays", self.buffer_decays, "Independent() is noise without buffers")
        if len(scales) != len(decays):
            raise InputError(
                f"output_scales and buffer_decays must be as many, got {len(scales)} and {len(decays)}; "
                "each buffer has one of both"
            )
        non_negative(**{"the least of output_scales": min(scales)}, remedy="use BandedToeplitz for negative ones")
        for decay in (min(decays), max(decays)):
            between(0, 1, buffer_decays=decay, remedy="a buffer forgets, at most nothing")
        object.__setattr__(self, "output_scales", scales)
        object.__setattr__(self, "buffer_decays", decays)

    def event(self, noise_multiplier: float, participation: Participation) -> MatrixMechanism:
        return events.MatrixMechanism.blt(noise_multiplier, participation, self.output_scales, self.buffer_decays)

    def coefficients(self, rounds: int) -> np.ndarray:
        """float [rounds], first column of C."""
        return geometric_series(np.array(self.output_scales), np.array(self.buffer_decays), rounds)

    def inverse_column(self, rounds: int) -> np.ndarray:
        scales, decays = inverse(np.array(self.output_scales), np.array(self.buffer_decays))
        return geometric_series(-scales, decays, rounds)


def inverse(scales: np.ndarray, decays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and decays of the inverse: C^-1 has the coefficients 1 and -sum_p scales_p decays_p^(t-1).

    The buffers of C^-1 follow the matrix diag(decays) - 1 scales^T; the diagonal similarity that makes it symmetric
    makes its decays real, and keeps them accurate where decays of C coincide.
    """
    root = np.sqrt(scales)
    values, vectors = np.linalg.eigh(np.diag(decays) - np.outer(root, root))
    return (vectors.T @ root) ** 2, values


def geometric_series(scales: np.ndarray, decays: np.ndarray, rounds: int) -> np.ndarray:
    """float [rounds], 1 and sum_p scales_p decays_p^(t-1)."""
    series = np.ones(rounds)
    series[1:] = sum(scale * powers(decay, rounds - 1) for scale, decay in zip(scales, decays))
    return series


def powers(decay: float, count: int) -> np.ndarray:
    """float [count], decay^0, decay^1, ..."""
    return np.power(decay, np.arange(count))


@dataclass(frozen=True)
class BandedToeplitz(Toeplitz):
    """C[t, j] = coefficients[t - j] * column_scales[j].

    Attributes:
        coefficients: first column of T(c) from the diagonal on; the first one > 0. What is beyond the run counts
            nothing.
        column_scales: d, each > 0, one for each round of the longest run; None where all are 1. A run may be shorter.

    Raises:
        InputError: there are no coefficients, one is not finite, the first or a scale is not > 0.
    """

    coefficients: tuple[float, ...]
    column_scales: tuple[float, ...] | None = None

    name: ClassVar[str] = "banded"

    def __post_init__(self) -> None:
        kept = numbers("coefficients", self.coefficients, "BandedToeplitz((1.0,)) is independent noise")
        positive(**{"the first of coefficients": kept[0]}, remedy="C has no inverse otherwise")
        object.__setattr__(self, "coefficients", kept)
        if self.column_scales is None:
            return
        scales = numbers("column_scales", self.column_scales, "None where all are 1")
        positive(**{"the least of column_scales": min(scales)}, remedy="C has no inverse otherwise")
        object.__setattr__(self, "column_scales", scales)

    def event(self, noise_multiplier: float, participation: Participation) -> MatrixMechanism:
        rounds = participation.rounds
        if self.column_scales is None:
            return events.MatrixMechanism.toeplitz(noise_multiplier, participation, self.coefficients[:rounds])
        bands = min(len(self.coefficients), rounds)
        check_bands(bands, participation)
        return events.MatrixMechanism.banded(noise_multiplier, participation, bands, self.column_norms(rounds))

    def inverse_column(self, rounds: int) -> np.ndarray:
        return reciprocal(np.array(self.coefficients), rounds)

    def prefix_variance(self, rounds: int) -> np.ndarray:
        if self.column_scales is None:
            return super().prefix_variance(rounds)
        inverse, scales = self.inverse_column(in_rounds(rounds)), self._scales(rounds)
        variance, row = np.empty(rounds), np.zeros(rounds)
        for t in range(rounds):  # row t of A C^-1 is the one before and round t's noise
            row[: t + 1] += inverse[t::-1] / scales[t]
            variance[t] = dot(row[: t + 1], row[: t + 1])
        return variance

    def column_norms(self, rounds: int) -> np.ndarray:
        """float [rounds], ||C_j||, rounded up."""
        squares = np.cumsum(np.array(self.coefficients[:rounds]) ** 2)
        left = np.minimum(np.arange(rounds, 0, -1), len(squares))
        return np.sqrt(squares[left - 1]) * (1 + (len(squares) + 4) * EPS) * self._scales(rounds)

    def unit_columns(self, participation: Participation) -> BandedToeplitz:
        """The same coefficients with every column of norm 1: then S^2 is the number of participations.

        Papers on banded matrices count noise this way.

        Raises:
            InputError: columns of one unit overlap.
        """
        check_bands(min(len(self.coefficients), participation.rounds), participation)
        norms = replace(self, column_scales=None).column_norms(in_rounds(participation.rounds))
        return replace(self, column_scales=tuple((1 / norms).tolist()))

    def _scales(self, rounds: int) -> np.ndarray:
        if self.column_scales is None:
            return np.ones(rounds)
        if rounds > len(self.column_scales):
            raise InputError(
                f"column_scales are for {len(self.column_scales)} rounds, the run has {rounds}; "
                "optimise for as many rounds as there are"
            )
        return np.array(self.column_scales[:rounds])


def check_bands(bands: int, participation: Participation) -> None:
    """Refuse bands that let two columns of one unit overlap.

    Raises:
        InputError: there are more bands than rounds from one participation to the next.
    """
    if participation.most > 1 and bands > participation.period:
        raise InputError(
            f"bands must be <= min_separation + 1 = {participation.period} where columns are scaled, got "
            f"{bands}; take fewer bands, or a BLT"
        )


def square_root(rounds: int) -> BandedToeplitz:
    """The square root of the prefix sums: all diagonals, the coefficients of (1 - x)^(-1/2), binom(2j, j) / 4^j.

    C = C^-1 A, so that sensitivity and error are equal for one participation; the baseline of those without
    optimisation (Fichtenberger, Henzinger and Upadhyay 2023).

    >>> square_root(4).coefficients
    (1.0, 0.5, 0.375, 0.3125)
    """
    return BandedToeplitz(tuple(binomial_series(-0.5, in_rounds(rounds)).tolist()))
