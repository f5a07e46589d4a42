"""Matrix mechanisms (DP-FTRL with correlated noise): banded, Toeplitz, buffered Toeplitz (BLT) and general strategies.

The noise of round t is row t of C^-1 z with z ~ N(0, (z C_clip)^2) in each coordinate and a lower-triangular strategy
C; the whole run is then a post-processing of the one Gaussian release C x + z.

Unit: whoever contributes at most one clipped vector a round, in the rounds that the participation limits allow; the
sampler must enforce the limits. Its sensitivity is S clip norms, the most that C x moves
(`streams.matrix_sensitivity`), also when later contributions depend on earlier releases (Denisov et al. 2022, Theorem
2.1).

- zero_out: a unit's contributions become zero and everybody else takes part as before. Sensitivity S.
- replace: two sequences of contributions, perhaps in different rounds, each moving C x by at most S. Sensitivity 2 S.
- add_remove: refused. One unit more would shift the others to other rounds, by an amount that nothing bounds.

Noise multipliers count the clip norm, not S: a strategy whose columns have norm 1 costs S^2 = participations. Banded
strategies with cyclic Poisson sampling cost less: see `cyclic_poisson`.

>>> run = MatrixMechanism.banded(
...     noise_multiplier=8.35, steps=2000, bands=1000, max_participations=2, min_separation=1427
... )
>>> round(run.rho("zero_out"), 12)            # Gboard, Brazilian Portuguese
0.01434257234
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from sfumato._check import InputError, between, non_negative, one_of, positive, whole
from sfumato.accounting.events.event import Unknown, event_kind
from sfumato.accounting.events.stream import MOST_STEPS, StreamEvent
from sfumato.accounting.streams import matrix_sensitivity
from sfumato.accounting.streams.participation import Participation
from sfumato.accounting.streams.tree_sensitivity import Squared

Strategy = Literal["banded", "toeplitz", "blt", "matrix"]

_MOST_KEPT = 4096  # parameters that an event carries with it
_MOST_COLUMNS = 10**8  # steps whose coefficients are added up, in about ten seconds
_Numbers = Sequence[float] | np.ndarray


@event_kind("matrix_mechanism")
@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixMechanism(StreamEvent):
    """A whole run with the noise C^-1 z; made by `banded`, `toeplitz`, `blt` and `from_matrix`.

    Whoever reads the event in a ledger can check it: up to 4096 parameters are kept and the sensitivity is computed
    from them again. Of a larger strategy it keeps the SHA-256 digest. A digest proves nothing about the sensitivity, so
    such an event costs nothing known until its parameters were seen in the same process: by making the event from them,
    or by `verify`.

    Attributes:
        noise_multiplier: std of a coordinate of z divided by the clip norm, > 0.
        steps: rounds, the rows of C. Rounds in which nobody took part count.
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

    strategy: Strategy
    parameters: tuple[float, ...]
    squared_sensitivity: float
    exact: bool
    digest: str = ""

    def __post_init__(self) -> None:
        self._check_stream()
        one_of(get_args(Strategy), strategy=self.strategy)
        positive(squared_sensitivity=self.squared_sensitivity)
        object.__setattr__(self, "squared_sensitivity", float(self.squared_sensitivity))
        one_of((True, False), exact=self.exact)
        if not isinstance(self.parameters, tuple) or not isinstance(self.digest, str):
            raise InputError(f"parameters must be a tuple and digest a text, got {self.parameters!r}, {self.digest!r}")
        if bool(self.parameters) == bool(self.digest):
            raise InputError("an event has either parameters or a digest; make it with MatrixMechanism.toeplitz(...)")
        if self.parameters:
            kept = tuple(_numbers("parameters", self.parameters).tolist())
            object.__setattr__(self, "parameters", kept)
            self._compare(_seen(self.strategy, np.asarray(kept), self.participation))

    @classmethod
    def banded(
        cls,
        *,
        noise_multiplier: float,
        steps: int,
        bands: int,
        column_norms: float | _Numbers = 1.0,
        max_participations: int | None = 1,
        min_separation: int = 0,
    ) -> "MatrixMechanism":
        """C has `bands` diagonals, at most min_separation + 1, so that the columns of one unit do not overlap.

        Args:
            noise_multiplier: std of z divided by the clip norm, > 0.
            steps: rounds, >= 1.
            bands: diagonals of C that are not zero, the main one included; more than that may be zero.
            column_norms: L2 norm of each column, [steps], > 0; or one number where they are equal.
            max_participations: most rounds with one unit; None where only the separation limits it.
            min_separation: least number of rounds between two of them.

        Raises:
            InputError: there are more bands than min_separation + 1, while a unit may take part twice.
        """
        whole(bands=bands)
        norms = _numbers("column_norms", [column_norms] if isinstance(column_norms, int | float) else column_norms)
        return cls._of("banded", [float(bands), *norms], noise_multiplier, steps, max_participations, min_separation)

    @classmethod
    def toeplitz(
        cls,
        *,
        noise_multiplier: float,
        coefficients: _Numbers,
        steps: int | None = None,
        max_participations: int | None = 1,
        min_separation: int = 0,
    ) -> "MatrixMechanism":
        """C[t, j] = coefficients[t - j].

        Args:
            noise_multiplier: std of z divided by the clip norm, > 0.
            coefficients: the first column from its diagonal on, not all zero; zero where they end. S^2 is exact where
                they are non-increasing and >= 0 or no longer than min_separation + 1, an upper bound elsewhere.
            steps: rounds, >= 1; as many as there are coefficients if None.
            max_participations: most rounds with one unit; None where only the separation limits it.
            min_separation: least number of rounds between two of them.

        Raises:
            InputError: no coefficient, one that is not a number, or the first one is zero.
        """
        values = _numbers("coefficients", coefficients)
        rounds = len(values) if steps is None else steps
        return cls._of("toeplitz", values, noise_multiplier, rounds, max_participations, min_separation)

    @classmethod
    def blt(
        cls,
        *,
        noise_multiplier: float,
        steps: int,
        output_scales: _Numbers,
        buffer_decays: _Numbers,
        max_participations: int | None = 1,
        min_separation: int = 0,
    ) -> "MatrixMechanism":
        """Toeplitz with the coefficients 1 and sum_p output_scales[p] * buffer_decays[p]^(t-1) for t >= 1.

        Args:
            noise_multiplier: std of z divided by the clip norm, > 0.
            steps: rounds, >= 1.
            output_scales: omega of C (not of its inverse), one for each buffer, >= 0. S^2 is exact where they sum to
                at most 1, and an upper bound elsewhere.
            buffer_decays: theta of C, one for each buffer, in [0, 1].
            max_participations: most rounds with one unit; None where only the separation limits it.
            min_separation: least number of rounds between two of them.

        Raises:
            InputError: scales and decays differ in number or are out of range.
        """
        scales, decays = _numbers("output_scales", output_scales), _numbers("buffer_decays", buffer_decays)
        if len(scales) != len(decays):
            raise InputError(f"output_scales and buffer_decays must be as many, got {len(scales)} and {len(decays)}")
        parameters = [*scales, *decays]
        return cls._of("blt", parameters, noise_multiplier, steps, max_participations, min_separation)

    @classmethod
    def from_matrix(
        cls,
        *,
        noise_multiplier: float,
        matrix: np.ndarray,
        max_participations: int | None = 1,
        min_separation: int = 0,
    ) -> "MatrixMechanism":
        """Any lower-triangular C.

        Args:
            noise_multiplier: std of z divided by the clip norm, > 0.
            matrix: float [steps, steps], zero above the diagonal and not zero on it, steps <= 4096.
            max_participations: most rounds with one unit; None where only the separation limits it.
            min_separation: least number of rounds between two of them.

        Raises:
            InputError: the matrix is not square, not lower triangular, singular or too large.
        """
        try:
            values = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"matrix must be numbers [steps, steps], got {type(matrix).__name__}") from None
        if (
            values.ndim != 2
            or values.shape[0] != values.shape[1]
            or not 1 <= len(values) <= matrix_sensitivity.MOST_ROWS
        ):
            raise InputError(
                f"matrix must be square with 1 to {matrix_sensitivity.MOST_ROWS} rows, got shape {values.shape}; "
                "use banded, toeplitz or blt for longer runs"
            )
        if np.any(np.triu(values, 1)):
            raise InputError("matrix must be zero above the diagonal; a later round cannot change an earlier release")
        parameters = values[np.tril_indices(len(values))]
        return cls._of("matrix", parameters, noise_multiplier, len(values), max_participations, min_separation)

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
        self._compare(_seen(self.strategy, values, self.participation))

    @classmethod
    def _of(
        cls,
        strategy: Strategy,
        parameters: _Numbers,
        noise_multiplier: float,
        steps: int,
        max_participations: int | None,
        min_separation: int,
    ) -> "MatrixMechanism":
        between(1, MOST_STEPS, steps=steps)
        limits = Participation(rounds=steps, max_participations=max_participations, min_separation=min_separation)
        values = np.asarray(parameters, dtype=np.float64)
        kept = tuple(values.tolist()) if len(values) <= _MOST_KEPT else ()
        value, exact = _seen(strategy, values, limits)
        return cls(
            noise_multiplier=noise_multiplier,
            steps=steps,
            max_participations=max_participations,
            min_separation=min_separation,
            strategy=strategy,
            parameters=kept,
            digest="" if kept else _digest(values),
            squared_sensitivity=value,
            exact=exact,
        )

    def _squared(self) -> float:
        if self.digest:
            known = _SEEN.get((self.strategy, self.digest, self.participation))
            if known is None:
                raise Unknown(
                    f"the {self.strategy} strategy is known by its digest only, which proves no sensitivity; "
                    "call event.verify(parameters) first"
                )
            self._compare(known)
        return self.squared_sensitivity

    def _is_exact(self) -> bool:
        return self.exact

    def _compare(self, computed: Squared) -> None:
        fits = math.isclose(computed.value, self.squared_sensitivity, rel_tol=1e-9) and computed.exact == self.exact
        if not fits:
            raise InputError(
                f"squared_sensitivity {self.squared_sensitivity} (exact: {self.exact}) does not follow from the "
                f"parameters, {computed.value} (exact: {computed.exact}) does; the event was changed"
            )


def _squared(strategy: Strategy, parameters: np.ndarray, limits: Participation) -> Squared:
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
            return matrix_sensitivity.toeplitz(parameters, limits)
        case "blt":
            scales, decays = np.split(parameters, [len(parameters) // 2])
            for scale, decay in zip(scales, decays):
                non_negative(output_scales=scale, remedy="use toeplitz(coefficients=...) for negative ones")
                between(0, 1, buffer_decays=decay)
            return matrix_sensitivity.buffered(scales, decays, limits)
        case "matrix":
            if (
                len(parameters) != limits.rounds * (limits.rounds + 1) // 2
                or limits.rounds > matrix_sensitivity.MOST_ROWS
            ):
                raise InputError(f"{len(parameters)} parameters are no lower triangle of {limits.rounds} rows")
            matrix = np.zeros((limits.rounds, limits.rounds))
            matrix[np.tril_indices(limits.rounds)] = parameters
            if not np.all(np.diagonal(matrix)):
                raise InputError("matrix must not be zero on the diagonal, as C must have an inverse")
            return matrix_sensitivity.general(matrix, limits)


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
    return matrix_sensitivity.banded(norms**2, limits)


_SEEN: dict[tuple[str, str, Participation], Squared] = {}
"""Sensitivities that were computed from parameters in this process, by the digest of these; some hundred bytes each."""


def _seen(strategy: Strategy, parameters: np.ndarray, limits: Participation) -> Squared:
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
