"""Releases with noise that is correlated over time: trees, matrices, cyclic sampling, minimum separation.

Tree aggregation (DP-FTRL): sums over time, released from binary trees of noisy partial sums.

Unit: one that contributes at most one clipped vector a round, in the rounds that the participation limits allow; the
sampler must enforce the limits. Every node of a tree is a sum with its own Gaussian noise, so all nodes together are
one Gaussian release of sensitivity S clip norms, S^2 = max over participation patterns of sum_nodes (participations
below the node)^2, also when later contributions depend on earlier releases (Kairouz et al. 2021, Theorem 4.1 and
Appendix D; Denisov et al. 2022, Theorem 2.1). Its cost is rho = S^2 / (2 z^2).

- zero_out: a unit's contributions become zero and everybody else takes part as before. Sensitivity S.
- replace: two sequences of contributions, perhaps in different rounds, each of norm at most S. Sensitivity 2 S.
- add_remove: refused. One unit more would shift the others to other rounds, by an amount that nothing bounds. Where
  each unit's rounds do not depend on the others, zero_out says the same.

What is computed from the noisy nodes costs nothing more: prefix sums, their residuals, Honaker's efficient estimator.

>>> run = TreeAggregation(noise_multiplier=7.0, steps=2000, max_participations=6, min_separation=313)
>>> run.squared_sensitivity, round(run.rho("zero_out"), 3)
(79, 0.806)

Matrix mechanisms (DP-FTRL with correlated noise): banded, Toeplitz, buffered Toeplitz (BLT) and general strategies.

The noise of round t is row t of C^-1 z with z ~ N(0, (z C_clip)^2) in each coordinate and a lower-triangular strategy
C; the whole run is then a post-processing of the one Gaussian release C x + z.

Unit: one that contributes at most one clipped vector a round, in the rounds that the participation limits allow; the
sampler must enforce the limits. Its sensitivity is S clip norms, the most that C x moves
(`streams.matrix_sensitivity`), also when later contributions depend on earlier releases (Denisov et al. 2022, Theorem
2.1).

- zero_out: a unit's contributions become zero and everybody else takes part as before. Sensitivity S.
- replace: two sequences of contributions, perhaps in different rounds, each moving C x by at most S. Sensitivity 2 S.
- add_remove: refused. One unit more would shift the others to other rounds, by an amount that nothing bounds.

Noise multipliers count the clip norm, not S: a strategy whose columns have norm 1 costs S^2 = participations. Banded
strategies with cyclic Poisson sampling cost less: see `cyclic_poisson`.

>>> limits = Participation(rounds=2000, max_participations=2, min_separation=1427)
>>> run = MatrixMechanism.banded(noise_multiplier=8.35, participation=limits, bands=1000)
>>> round(run.rho("zero_out"), 12)            # Gboard, Brazilian Portuguese
0.01434257234

Rounds with a minimum distance between two participations of the same unit, and noise of its own in each round.

A unit takes part in at most min(k, ceil(rounds / (separation + 1))) rounds, so the whole run costs that many releases
of the event, and the other rounds reveal nothing about it. No sampling amplifies: anybody may know who took part when.

The sampler must enforce it. The bound holds for a unit whose rounds do not depend on any record; they may be fixed,
drawn at random or chosen among those that are online. It is false for a sampler that only aims at the separation.

Sensitivity: in each of its rounds the unit moves the sum as `event` says; added, removed, replaced or blanked, it does
so in the same rounds.

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> run = MinSeparation(Gaussian(7.0), rounds=2000, separation=313, max_participations=6)
>>> run.participations, round(run.rho("add_remove"), 4)
(6, 0.0612)

Banded matrix mechanisms with cyclic Poisson sampling: correlated noise that is amplified as in DP-SGD.

Unit: one that contributes at most one clipped vector in a round it is drawn for, and lies in one part of the data.

>>> from sfumato.accounting.guarantees import guarantee
>>> run = cyclic_poisson(noise_multiplier=4.0, steps=2000, parts=8, sampling_rate=0.08)
>>> round(guarantee(run).epsilon(1e-6), 2)          # 8 bands, 1 % of the units a round
1.44
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from sfumato._check import InputError, between, non_negative, one_of, positive, whole
from sfumato._types import Adjacency
from sfumato.accounting.events import sensitivity
from sfumato.accounting.events.event import Event, Unknown, derivation, event_kind, terms
from sfumato.accounting.events.gaussian import Gaussian, GaussianEvent, combined_shift
from sfumato.accounting.events.sensitivity import Forest, Participation, Squared, squared_sensitivity
from sfumato.accounting.numerics import divided, total
from sfumato.accounting.pair import Pair
from sfumato.accounting.sampled_pair import SampledGaussian

# What releases with noise that is correlated over time have in common: participation limits and one sensitivity.
#
# Unit: one that contributes at most one clipped vector a round, in the rounds that the limits allow. The stream is one
# Gaussian release, N(S, z^2) against N(0, z^2) at worst, where S is the most that one unit's contributions can move
# it. See `tree` and `matrix` for S, and docs/explanation/trees-and-matrices.md.


MOST_STEPS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent(GaussianEvent):
    """A stream of releases that together are one Gaussian release."""

    noise_multiplier: float
    steps: int
    max_participations: int | None = 1
    min_separation: int = 0

    unsampled: ClassVar[str] = (
        "its noise is shared between rounds, so the rounds are not independent samples; "
        "for banded strategies use cyclic_poisson"
    )

    @property
    def participation(self) -> Participation:
        """The rounds in which one unit may take part."""
        return Participation(
            rounds=self.steps, max_participations=self.max_participations, min_separation=self.min_separation
        )

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        """S / z, twice that for replacement.

        Raises:
            Unknown: the adjacency is add_remove.
        """
        if adjacency == "add_remove":
            raise Unknown(
                f"{type(self).__name__} is not known under add_remove, because one unit more would shift the others "
                'to other rounds; use adjacency="zero_out"'
            )
        shift = math.sqrt(self.known_sensitivity()) / self.noise_multiplier
        return 2 * shift if adjacency == "replace" else shift

    def _of_group(self, units: int) -> Event:
        return replace(self, noise_multiplier=divided(self.noise_multiplier, units))

    def known_sensitivity(self) -> float:
        """S^2 in squared clip norms.

        Raises:
            Unknown: nothing proves it.
        """
        raise NotImplementedError

    def _check_stream(self) -> None:
        positive(noise_multiplier=self.noise_multiplier, remedy="for a run without noise use NonPrivate()")
        between(1, MOST_STEPS, steps=self.steps)
        _ = self.participation  # refuses what is no limit


@event_kind("tree_aggregation")
@dataclass(frozen=True, slots=True, kw_only=True)
class TreeAggregation(StreamEvent):
    """All nodes of one tree, or of several one after another.

    One participation in a tree of T rounds costs S^2 = ceil(log2(T + 1)). A tree for each epoch of n rounds with one
    participation an epoch is `TreeAggregation(noise_multiplier=z, steps=n) * epochs`, in any order within the epochs.

    Attributes:
        noise_multiplier: std of the noise of a node divided by the clip norm, > 0.
        steps: rounds in total, 1 to 10^12. Rounds without participants count.
        max_participations: most rounds with one unit, in the whole run, >= 1; None where only `min_separation` limits
            it.
        min_separation: least number of rounds between two of them, >= 0 (y - x - 1 for rounds x < y), also across
            the start of a new tree.
        restart_every: rounds after which a new tree starts, >= 1; the last tree may be shorter. None: one tree.
        completion: whether a tree that is followed by another one is first filled up with empty rounds, so that its
            root is released ("tree completion"). The last tree is not.
        max_per_tree: most rounds with one unit in one tree, >= 1; None for no such limit.

    Raises:
        InputError: a value is out of range, or speaks of several trees where there is one.
    """

    restart_every: int | None = None
    completion: bool = False
    max_per_tree: int | None = None

    def __post_init__(self) -> None:
        self._check_stream()
        if not isinstance(self.completion, bool):
            raise InputError(f"completion must be True or False, got {self.completion!r}")
        if self.restart_every is None:
            if self.completion or self.max_per_tree is not None:
                raise InputError("completion and max_per_tree need restart_every; a single tree is never completed")
            return
        whole(restart_every=self.restart_every, remedy="None for a single tree")
        if self.max_per_tree is not None:
            whole(max_per_tree=self.max_per_tree, remedy="None for no limit")

    @property
    def squared_sensitivity(self) -> float:
        """S^2 in squared clip norms: the maximum, or an upper bound within some percent where `exact` is false."""
        return squared_sensitivity(self._forest()).value

    @property
    def exact(self) -> bool:
        """Whether `squared_sensitivity` is the maximum. It is, but for hundreds of participations."""
        return squared_sensitivity(self._forest()).exact

    def known_sensitivity(self) -> float:
        return self.squared_sensitivity

    def attained(self, adjacency: Adjacency) -> bool:
        return self.exact

    def _forest(self) -> Forest:
        return Forest(self.participation, self.restart_every, self.completion, self.max_per_tree)


Form = Literal["banded", "toeplitz", "blt", "matrix"]
_MOST_KEPT = 4096  # parameters that an event carries with it
_MOST_COLUMNS = 10**8  # steps whose coefficients are added up, in about ten seconds
_Numbers = Sequence[float] | np.ndarray


@event_kind("matrix_mechanism")
@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixMechanism(StreamEvent):
    """A whole run with the noise C^-1 z; made by `banded`, `toeplitz`, `blt` and `from_matrix`.

    Every reader of the event in a ledger can check it: up to 4096 parameters are kept and the sensitivity is computed
    from them again. Of a larger strategy it keeps the SHA-256 digest. A digest proves nothing about the sensitivity, so
    such an event costs nothing known until its parameters were seen in the same process: by making the event from them,
    or by `verify`.

    Attributes:
        noise_multiplier: std of a coordinate of z divided by the clip norm, > 0.
        steps: rounds, the rows of C. Rounds without participants count.
        max_participations: most rounds with one unit, >= 1; None where only `min_separation` limits it.
        min_separation: least number of rounds between two of them, >= 0: y - x - 1 for rounds x < y. What papers
            on matrix mechanisms call b is min_separation + 1.
        strategy: the form of C.
        parameters: its numbers: bands and column norms; coefficients; output scales and decays; or the lower triangle
            row by row. Empty where there are too many.
        digest: SHA-256 of the parameters as little-endian doubles; empty where they are kept.
        squared_sensitivity: S^2 in squared clip norms, rounded up.
        exact: whether S^2 is the maximum over all patterns; otherwise it is an upper bound.
    """

    strategy: Form
    parameters: tuple[float, ...]
    squared_sensitivity: float
    exact: bool
    digest: str = ""

    def __post_init__(self) -> None:
        self._check_stream()
        one_of(get_args(Form), strategy=self.strategy)
        positive(squared_sensitivity=self.squared_sensitivity)
        one_of((True, False), exact=self.exact)
        if not isinstance(self.parameters, tuple) or not isinstance(self.digest, str):
            raise InputError(f"parameters must be a tuple and digest a text, got {self.parameters!r}, {self.digest!r}")
        if bool(self.parameters) == bool(self.digest):
            raise InputError("an event has either parameters or a digest; make it with MatrixMechanism.toeplitz(...)")
        if self.parameters:
            kept = tuple(_numbers("parameters", self.parameters).tolist())
            object.__setattr__(self, "parameters", kept)
            self._compare(_squared_sensitivity(self.strategy, np.asarray(kept), self.participation))

    @classmethod
    def banded(
        cls, noise_multiplier: float, participation: Participation, bands: int, column_norms: float | _Numbers = 1.0
    ) -> "MatrixMechanism":
        """C has `bands` diagonals, at most min_separation + 1, so that the columns of one unit do not overlap.

        Args:
            noise_multiplier: std of z divided by the clip norm, > 0.
            participation: the rounds of the run, and what one unit may do.
            bands: diagonals of C that are not zero, the main one included; more than that may be zero.
            column_norms: L2 norm of each column, [rounds], > 0; or one number where they are equal.

        Raises:
            InputError: there are more bands than min_separation + 1, while a unit may take part twice.
        """
        whole(bands=bands)
        norms = _numbers("column_norms", [column_norms] if isinstance(column_norms, int | float) else column_norms)
        return cls._of("banded", [float(bands), *norms], noise_multiplier, participation)

    @classmethod
    def toeplitz(
        cls, noise_multiplier: float, participation: Participation, coefficients: _Numbers
    ) -> "MatrixMechanism":
        """C[t, j] = coefficients[t - j].

        Args:
            noise_multiplier: std of z divided by the clip norm, > 0.
            participation: the rounds of the run, and what one unit may do.
            coefficients: the first column from its diagonal on, not all zero; zero where they end. S^2 is exact where
                they are non-increasing and >= 0 or no longer than min_separation + 1, an upper bound elsewhere.

        Raises:
            InputError: no coefficient, one that is not a number, or the first one is zero.
        """
        return cls._of("toeplitz", _numbers("coefficients", coefficients), noise_multiplier, participation)

    @classmethod
    def blt(
        cls, noise_multiplier: float, participation: Participation, output_scales: _Numbers, buffer_decays: _Numbers
    ) -> "MatrixMechanism":
        """Toeplitz with the coefficients 1 and sum_p output_scales[p] * buffer_decays[p]^(t-1) for t >= 1.

        Args:
            noise_multiplier: std of z divided by the clip norm, > 0.
            participation: the rounds of the run, and what one unit may do.
            output_scales: omega of C (not of its inverse), one for each buffer, >= 0. S^2 is exact where they sum to
                at most 1, and an upper bound elsewhere.
            buffer_decays: theta of C, one for each buffer, in [0, 1].

        Raises:
            InputError: scales and decays differ in number or are out of range.
        """
        scales, decays = _numbers("output_scales", output_scales), _numbers("buffer_decays", buffer_decays)
        if len(scales) != len(decays):
            raise InputError(f"output_scales and buffer_decays must be as many, got {len(scales)} and {len(decays)}")
        return cls._of("blt", [*scales, *decays], noise_multiplier, participation)

    @classmethod
    def from_matrix(
        cls, noise_multiplier: float, participation: Participation, matrix: np.ndarray
    ) -> "MatrixMechanism":
        """Any lower-triangular C.

        Args:
            noise_multiplier: std of z divided by the clip norm, > 0.
            participation: the rounds of the run, and what one unit may do.
            matrix: float [rounds, rounds], zero above the diagonal and not zero on it, rounds <= 4096.

        Raises:
            InputError: the matrix is not square, not lower triangular, singular or too large.
        """
        try:
            values = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"matrix must be numbers [rounds, rounds], got {type(matrix).__name__}") from None
        if values.ndim != 2 or values.shape[0] != values.shape[1] or not 1 <= len(values) <= sensitivity.MOST_ROWS:
            raise InputError(
                f"matrix must be square with 1 to {sensitivity.MOST_ROWS} rows, got shape {values.shape}; "
                "use banded, toeplitz or blt for longer runs"
            )
        if np.any(np.triu(values, 1)):
            raise InputError("matrix must be zero above the diagonal; a later round cannot change an earlier release")
        return cls._of("matrix", values[np.tril_indices(len(values))], noise_multiplier, participation)

    def verify(self, parameters: _Numbers) -> None:
        """Check that the event was made from these numbers, in the order of `parameters`.

        Raises:
            InputError: the digest or the sensitivity differs.
        """
        values = _numbers("parameters", parameters)
        if self.digest and _digest(values) != self.digest:
            raise InputError(f"the parameters have digest {_digest(values)}, the event has {self.digest}")
        if self.parameters and tuple(values.tolist()) != self.parameters:
            raise InputError("the parameters differ from those of the event")
        self._compare(_squared_sensitivity(self.strategy, values, self.participation))

    @classmethod
    def _of(
        cls, strategy: Form, parameters: _Numbers, noise_multiplier: float, participation: Participation
    ) -> "MatrixMechanism":
        between(1, MOST_STEPS, steps=participation.rounds)
        values = np.asarray(parameters, dtype=np.float64)
        kept = tuple(values.tolist()) if len(values) <= _MOST_KEPT else ()
        value, exact = _squared_sensitivity(strategy, values, participation)
        return cls(
            noise_multiplier=noise_multiplier,
            steps=participation.rounds,
            max_participations=participation.max_participations,
            min_separation=participation.min_separation,
            strategy=strategy,
            parameters=kept,
            digest="" if kept else _digest(values),
            squared_sensitivity=value,
            exact=exact,
        )

    def known_sensitivity(self) -> float:
        if self.digest:
            known = _SEEN.get((self.strategy, self.digest, self.participation))
            if known is None:
                raise Unknown(
                    f"the {self.strategy} strategy is known by its digest only, which proves no sensitivity; "
                    "call event.verify(parameters) first"
                )
            self._compare(known)
        return self.squared_sensitivity

    def attained(self, adjacency: Adjacency) -> bool:
        return self.exact

    def _compare(self, computed: Squared) -> None:
        fits = math.isclose(computed.value, self.squared_sensitivity, rel_tol=1e-9) and computed.exact == self.exact
        if not fits:
            raise InputError(
                f"squared_sensitivity {self.squared_sensitivity} (exact: {self.exact}) does not follow from the "
                f"parameters, {computed.value} (exact: {computed.exact}) does; the event was changed"
            )


def _squared(strategy: Form, parameters: np.ndarray, limits: Participation) -> Squared:
    """S^2 of the strategy with these parameters."""
    if np.max(np.abs(parameters)) > 1e60:
        raise InputError(f"the strategy's largest entry is {np.max(np.abs(parameters)):g}; scale it down to about 1")
    if strategy in ("toeplitz", "blt"):
        between(1, _MOST_COLUMNS, steps=limits.rounds)
    match strategy:
        case "banded":
            return _squared_of_banded(parameters, limits)
        case "toeplitz":
            if parameters[0] == 0:
                raise InputError("the first coefficient must not be zero, as C must have an inverse")
            return sensitivity.toeplitz(parameters, limits)
        case "blt":
            scales, decays = np.split(parameters, [len(parameters) // 2])
            for scale, decay in zip(scales, decays):
                non_negative(output_scales=scale, remedy="use toeplitz(coefficients=...) for negative ones")
                between(0, 1, buffer_decays=decay)
            return sensitivity.buffered(scales, decays, limits)
        case "matrix":
            if len(parameters) != limits.rounds * (limits.rounds + 1) // 2 or limits.rounds > sensitivity.MOST_ROWS:
                raise InputError(f"{len(parameters)} parameters are no lower triangle of {limits.rounds} rows")
            matrix = np.zeros((limits.rounds, limits.rounds))
            matrix[np.tril_indices(limits.rounds)] = parameters
            if not np.all(np.diagonal(matrix)):
                raise InputError("matrix must not be zero on the diagonal, as C must have an inverse")
            return sensitivity.general(matrix, limits)


def _squared_of_banded(parameters: np.ndarray, limits: Participation) -> Squared:
    bands, norms = float(parameters[0]), parameters[1:]
    whole(bands=bands)
    if bands > limits.period and limits.most > 1:
        raise InputError(
            f"bands must be <= min_separation + 1 = {limits.period}, got {bands:g}; "
            "a unit's columns overlap otherwise: use toeplitz or from_matrix"
        )
    if len(norms) not in (1, limits.rounds):
        raise InputError(f"column_norms must be one number or {limits.rounds}, one for each step; got {len(norms)}")
    for norm in (norms.min(), norms.max()):
        positive(column_norms=float(norm))
    return sensitivity.banded(norms**2, limits)


_SEEN: dict[tuple[str, str, Participation], Squared] = {}
"""Sensitivities that were computed from parameters in this process, by the digest of these; some hundred bytes each."""


def _squared_sensitivity(strategy: Form, parameters: np.ndarray, limits: Participation) -> Squared:
    """S^2 of the strategy; remembered."""
    key = (strategy, _digest(parameters), limits)
    if key not in _SEEN:
        _SEEN[key] = _squared(strategy, parameters, limits)
    return _SEEN[key]


def _numbers(name: str, values: _Numbers) -> np.ndarray:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be numbers, got {values!r:.80}") from None
    if numbers.ndim != 1 or not len(numbers) or not np.all(np.isfinite(numbers)):
        raise InputError(f"{name} must be a list of at least one finite number, got {values!r:.80}")
    return numbers


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.asarray(values, dtype="<f8").tobytes()).hexdigest()


@derivation("min_separation")
@event_kind("min_separation")
@dataclass(frozen=True, slots=True)
class MinSeparation(Event):
    """A run of `rounds` releases of `event`, of which a unit is in few; made by `Event.min_separation`.

    Attributes:
        event: what one round releases, without sampling.
        rounds: rounds of the run, >= 1.
        separation: rounds that lie at least between two participations of a unit, >= 0; 0 allows all rounds.
        max_participations: rounds that a unit takes part in at most, >= 1; None for as many as the separation allows.
    """

    event: Event
    rounds: int
    separation: int
    max_participations: int | None = None

    unsampled = "its units take part at distances, which no sampling theorem covers"

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise InputError(f"MinSeparation takes events such as Gaussian(1.0), got {self.event!r}")
        members = list(terms(self.event))
        if not members:
            raise InputError("MinSeparation takes an event that releases something, got an empty composition")
        for single, _ in members:
            if single.unsampled:
                raise Unknown(f"min-separation of {type(single).__name__} is not known: {single.unsampled}")
        whole(at_least=0, separation=self.separation)
        self._pattern()  # refuses what is no limit

    @property
    def participations(self) -> int:
        """The most rounds that a unit can be in."""
        return self._pattern().most

    def gaussian_shift(self, adjacency: Adjacency) -> float | None:
        return combined_shift(self.event * self.participations, adjacency)

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        shift = self.gaussian_shift(adjacency)
        if shift is not None:
            return (SampledGaussian("remove", 1.0, shift),)
        members = list(terms(self.event * self.participations))
        if len(members) == 1 and members[0][1] == 1:
            return members[0][0].pairs(adjacency)
        name = type(members[0][0]).__name__
        raise Unknown(
            f'no single pair is known for {self.participations} participations in {name}; use method="rdp", or account '
            f"for event * {self.participations}"
        )

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        return sum(
            (count * single.renyi(orders, adjacency) for single, count in terms(self.event * self.participations)),
            start=np.zeros(len(orders)),
        )

    def rho(self, adjacency: Adjacency) -> float:
        return total(count * single.rho(adjacency) for single, count in terms(self.event * self.participations))

    def largest_loss(self, adjacency: Adjacency) -> float:
        members = terms(self.event * self.participations)
        return total(count * single.largest_loss(adjacency) for single, count in members)

    def attained(self, adjacency: Adjacency) -> bool:
        return all(single.attained(adjacency) for single, _ in terms(self.event))

    def _pattern(self) -> Participation:
        return Participation(
            rounds=self.rounds, max_participations=self.max_participations, min_separation=self.separation
        )


def cyclic_poisson(
    *, noise_multiplier: float, steps: int, parts: int, sampling_rate: float, column_norm: float = 1.0
) -> Event:
    """The cost of a banded strategy with cyclic Poisson sampling, which amplifies as in DP-SGD.

    The units are dealt into `parts` parts, once and for all. Round t draws from part t mod `parts`, each unit of it by
    its own coin. As C has at most `parts` bands, what a unit does in one of its rounds is over before its next one:
    each turn is a Gaussian release of the column, with the unit in it with probability `sampling_rate`, and the turns
    compose (Choquette-Choo et al. 2023; derived in docs/explanation/trees-and-matrices.md).

    It holds for a unit that lies in one part, whose coins are fresh in every turn. Under add_remove its part must not
    depend on the others (a random part for each unit); for parts of a fixed size the statement must say zero_out.

    Args:
        noise_multiplier: std of z divided by the clip norm, > 0.
        steps: rounds, >= 1.
        parts: number of parts, >= 1 and at least the bands of C.
        sampling_rate: probability that a unit is drawn in a round of its part, in [0, 1]. For B of n units a round
            on average that is parts * B / n.
        column_norm: largest L2 norm of a column of C, > 0.

    Returns:
        ceil(steps / parts) Poisson-sampled Gaussian events.

    Raises:
        InputError: a value is out of range.

    >>> cyclic_poisson(noise_multiplier=1.0, steps=2000, parts=8, sampling_rate=0.04)
    Repeated(event=Poisson(event=Gaussian(noise_multiplier=1.0), sampling_rate=0.04), count=250)
    """
    positive(noise_multiplier=noise_multiplier, column_norm=column_norm)
    between(0, 1, sampling_rate=sampling_rate)
    whole(steps=steps, parts=parts)
    ratio = noise_multiplier / column_norm
    effective = ratio if column_norm == 1 else math.nextafter(ratio, 0.0)
    return Gaussian(effective).poisson(sampling_rate) * -(-int(steps) // int(parts))
