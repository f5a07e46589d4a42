"""Numbers and counts on held-out examples: how far predictions are from the truth.

These numbers are computed from the data without noise: they are not private.

Batches are added as they come; memory is a few sums for each of the k numbers of an example.

**Regression:** how far numbers are from the truth, and how much of its spread they explain. An example whose outputs
are not finite makes the errors infinite, and is counted in `not_finite`: a model that diverged does not look better
for it.

>>> report = regression_report(np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 5.0]))
>>> round(report.rmse, 6), round(report.mae, 6), report.r2
(0.816497, 0.666667, 0.75)

**Counts:** how well predicted rates fit them, by the Poisson likelihood. A rate that is not finite
makes the loss infinite, and is counted in `not_finite`.

With rates μ = exp(s) and counts y, the log loss is the mean of μ − y·s, the negative log-likelihood without log y!,
which no model changes. Its smallest value depends on the data, so `explained` compares: 1 − D(μ) / D(ȳ), where
D(μ) = 2 Σ (y log(y/μ) − y + μ) is the deviance and ȳ the mean count, the best constant rate. 1 is perfect, 0 no better
than that constant, below 0 worse.

>>> report = counts_report(np.log([1.0, 2.0, 3.0]), np.array([0, 2, 4]))
>>> round(report.log_loss, 6), round(report.explained, 6), report.mean_rate, report.mean_count
(0.073085, 0.584963, 2.0, 2.0)

**Names** of the measures are the same on the terminal and on the page.

>>> list(REGRESSION.values())
['RMSE', 'MAE', 'R²']

References:
    Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances. 1979.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._lazy import scipy
from sfumato.metrics.baselines import CONSTANT, compared, mean_gain, root_gain

_ROUND_OFF = 1e-28  # of a variance, relative to the mean's square


@dataclass(frozen=True, kw_only=True)
class RegressionReport:
    """How far off a model is. Not private."""

    rmse: float
    """Root of the mean squared error over all examples and numbers, >= 0; infinite where an output is not finite."""
    mae: float
    """Mean absolute error, >= 0; infinite where an output is not finite."""
    r2: float | None
    """1 - squared error / squared distance of the targets from their mean, <= 1; with several numbers the mean of each
    one's. None where a number does not vary."""
    examples: int
    not_finite: int
    """Examples whose outputs hold NaN or infinity."""

    def summary(self) -> dict[str, float | int]:
        """The numbers alone, finite ones, for a log."""
        return finite({"rmse": self.rmse, "mae": self.mae, "r2": self.r2, "not_finite": self.not_finite})


class RegressionSums:
    """Adds up batches of outputs and targets.

    Args:
        compare: keep the outputs and targets, for `baselines`.
    """

    def __init__(self, *, compare: bool = False) -> None:
        self._examples = self._not_finite = 0
        self._compare = compare
        self._each: list[tuple[np.ndarray, np.ndarray]] = []  # outputs and targets of batches
        # Of each number: squared and absolute errors, and the targets' mean and squared distances from it.
        self._squares = self._absolutes = self._mean = self._spread = np.zeros(0)

    def add(self, outputs: Any, targets: Any) -> None:
        """Add a batch.

        Args:
            outputs: numbers [n, k], or [n] or [n, 1] for one each.
            targets: the same, finite.

        Raises:
            InputError: shapes that do not fit, or what are no numbers.
        """
        given, true = paired(outputs, targets)
        if not len(true):
            return
        if not self._examples:
            self._squares, self._absolutes, self._mean, self._spread = (np.zeros(true.shape[1]) for _ in range(4))
        usable = np.all(np.isfinite(given), axis=1)
        errors = given - true
        errors[~usable] = np.inf
        self._squares = self._squares + (errors**2).sum(axis=0)
        self._absolutes = self._absolutes + np.abs(errors).sum(axis=0)
        mean, count, before = true.mean(axis=0), len(true), self._examples
        shift = mean - self._mean
        self._spread = self._spread + ((true - mean) ** 2).sum(axis=0) + shift**2 * before * count / (before + count)
        self._mean = self._mean + shift * count / (before + count)
        self._examples += count
        self._not_finite += int((~usable).sum())
        if self._compare:
            self._each.append((given, true))

    def baselines(self) -> dict[str, dict[str, Any]]:
        """The model next to a constant, the mean of each number.

        Returns:
            baseline → its errors, and the model's gain in RMSE, see `sfumato.metrics.baselines`.
        """
        outputs, targets = (np.concatenate(column) for column in zip(*self._each, strict=True))
        with np.errstate(over="ignore", invalid="ignore"):
            errors, constant = ((targets - each) for each in (outputs, targets.mean(axis=0)))
            gain = mean_gain((constant**2 - errors**2).mean(axis=1))
            roots = [float(np.sqrt((each**2).mean())) for each in (errors, constant)]
        return {
            CONSTANT: compared(
                {"rmse": roots[1], "mae": float(np.abs(constant).mean()), "r2": 0.0}, {"rmse": root_gain(gain, *roots)}
            )
        }

    def report(self) -> RegressionReport:
        """The numbers of all batches so far.

        Raises:
            InputError: there were no examples.
        """
        refuse_none(self._examples)
        # Equal numbers differ from their mean by round-off.
        varied = bool((self._spread > _ROUND_OFF * self._examples * self._mean**2).all())
        with np.errstate(divide="ignore", invalid="ignore"):
            explained = 1 - self._squares / self._spread
        return RegressionReport(
            rmse=float(np.sqrt(self._squares.mean() / self._examples)),
            mae=float(self._absolutes.mean() / self._examples),
            r2=float(explained.mean()) if varied else None,
            examples=self._examples,
            not_finite=self._not_finite,
        )


def regression_report(outputs: Any, targets: Any) -> RegressionReport:
    """Everything about one array of outputs, see `RegressionSums.add`.

    Raises:
        InputError: no examples, or arrays that do not fit.
    """
    sums = RegressionSums()
    sums.add(outputs, targets)
    return sums.report()


def paired(outputs: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and targets as float64 [n, k].

    Raises:
        InputError: they are no numbers, or of shapes that do not fit.
    """
    arrays = [np.asarray(outputs), np.asarray(targets)]
    for name, array in zip(("outputs", "targets"), arrays):
        if array.dtype.kind not in "fiu" or array.ndim not in (1, 2):
            raise InputError(f"{name} must be numbers [examples] or [examples, k], got {array.dtype} {array.shape}")
    given, true = (array.astype(np.float64).reshape(len(array), -1 if array.size else 1) for array in arrays)
    if given.shape != true.shape:
        raise InputError(
            f"outputs {arrays[0].shape} do not fit targets {arrays[1].shape}; the model needs one output a number"
        )
    return given, true


def finite(numbers: dict[str, float | int | None]) -> dict[str, float | int]:
    """Those of some numbers that are known and finite."""
    return {name: value for name, value in numbers.items() if value is not None and np.isfinite(value)}


def refuse_none(examples: int) -> None:
    """Raise InputError if there was nothing to measure on."""
    if examples == 0:
        raise InputError("there are no examples to measure on; add a batch first, or keep a larger test part")


@dataclass(frozen=True, kw_only=True)
class CountsReport:
    """How well rates fit counts. Not private."""

    log_loss: float
    """Mean of μ − y log μ over all examples and counts, in nats; infinite where a rate is not finite."""
    explained: float | None
    """Share of the constant rate's deviance that the model explains, <= 1; with several counts the mean of each one's.
    None where a count does not vary."""
    mean_rate: float
    """Mean of the predicted rates, to compare with `mean_count`."""
    mean_count: float
    """Mean of the counts."""
    examples: int
    not_finite: int
    """Examples with a rate that is NaN, infinite, or 0 by a logarithm of minus infinity."""
    deviance: float
    """Mean of 2 (y log(y / μ) − y + μ), ≥ 0; infinite where a rate is not finite."""
    constant_deviance: float
    """That of the best constant rate."""

    def summary(self) -> dict[str, float | int]:
        """The numbers alone, finite ones, for a log."""
        return finite(
            {
                "poisson_log_loss": self.log_loss,
                "deviance_explained": self.explained,
                "mean_rate": self.mean_rate,
                "mean_count": self.mean_count,
                "not_finite": self.not_finite,
            }
        )


class CountsSums:
    """Adds up batches of logarithms of rates, and counts.

    Args:
        compare: keep the losses and counts, for `baselines`.
    """

    def __init__(self, *, compare: bool = False) -> None:
        self._examples = self._not_finite = 0
        self._compare = compare
        self._each: list[tuple[np.ndarray, np.ndarray]] = []  # losses and counts of batches
        # Of each count: the loss, the rates, the counts, and y log y.
        self._loss = self._rates = self._counts = self._count_logs = np.zeros(0)

    def add(self, log_rates: Any, counts: Any) -> None:
        """Add a batch.

        Args:
            log_rates: numbers [n, k], or [n] or [n, 1] for one each.
            counts: the same, finite and >= 0, whole or not.

        Raises:
            InputError: shapes that do not fit, what are no numbers, or a negative count.
        """
        logs, true = paired(log_rates, counts)
        if not len(true):
            return
        if (true < 0).any():
            raise InputError(f"counts must be >= 0, got {true[true < 0][0]:g}; correct it or drop the record")
        if not self._examples:
            self._loss, self._rates, self._counts, self._count_logs = (np.zeros(true.shape[1]) for _ in range(4))
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, and counted
            rates = np.exp(logs)
            usable = np.all(np.isfinite(logs) & np.isfinite(rates), axis=1)
            losses = rates - true * logs
        losses[~usable] = rates[~usable] = np.inf
        self._loss = self._loss + losses.sum(axis=0)
        self._rates = self._rates + rates.sum(axis=0)
        self._counts = self._counts + true.sum(axis=0)
        self._count_logs = self._count_logs + scipy.special.xlogy(true, true).sum(axis=0)
        self._examples += len(true)
        self._not_finite += int((~usable).sum())
        if self._compare:
            self._each.append((losses, true))

    def baselines(self) -> dict[str, dict[str, Any]]:
        """The model next to a constant, the mean rate.

        Returns:
            baseline → its Poisson log loss and rate, and the model's gain in the former, see
            `sfumato.metrics.baselines`.
        """
        losses, counts = (np.concatenate(column) for column in zip(*self._each, strict=True))
        rates = counts.mean(axis=0)
        constant = rates - scipy.special.xlogy(counts, rates)
        measures = {
            "poisson_log_loss": float(constant.mean()),
            "deviance_explained": 0.0,
            "mean_rate": float(rates.mean()),
            "mean_count": float(rates.mean()),
        }
        with np.errstate(invalid="ignore"):
            gain = mean_gain((constant - losses).mean(axis=1))
        return {CONSTANT: compared(measures, {"poisson_log_loss": gain})}

    def report(self) -> CountsReport:
        """The numbers of all batches so far.

        Raises:
            InputError: there were no examples.
        """
        refuse_none(self._examples)
        mean = self._counts / self._examples
        deviance = self._loss + self._count_logs - self._counts
        constant = self._count_logs - scipy.special.xlogy(self._counts, mean)
        # Equal counts have no deviance but round-off.
        varied = bool((constant > 1e-12 * (1 + np.abs(self._count_logs))).all())
        return CountsReport(
            log_loss=float(self._loss.mean() / self._examples),
            explained=float((1 - deviance / constant).mean()) if varied else None,
            mean_rate=float(self._rates.mean() / self._examples),
            mean_count=float(mean.mean()),
            examples=self._examples,
            not_finite=self._not_finite,
            deviance=2 * max(float(deviance.mean() / self._examples), 0.0),
            constant_deviance=2 * max(float(constant.mean() / self._examples), 0.0),
        )


def counts_report(log_rates: Any, counts: Any) -> CountsReport:
    """Everything about one array of logarithms of rates, see `CountsSums.add`.

    Raises:
        InputError: no examples, or arrays that do not fit.
    """
    sums = CountsSums()
    sums.add(log_rates, counts)
    return sums.report()


REGRESSION = {"rmse": "RMSE", "mae": "MAE", "r2": "R²"}
RATINGS = {"within_half": "within ½"}
COUNTS = {
    "poisson_log_loss": "Poisson log loss",
    "deviance_explained": "deviance explained",
    "mean_rate": "mean rate",
    "mean_count": "mean count",
}
CUSTOM_LOSS = {"loss": "loss"}
TOKENS = {"accuracy_no_oov_no_eos": "accuracy without oov and eos", "perplexity": "perplexity"}
ATTRIBUTES = {"micro_f1": "micro F1", "macro_f1": "macro F1", "mean_average_precision": "mean average precision"}
NUMBERS = {**REGRESSION, **RATINGS, **COUNTS, **CUSTOM_LOSS, **TOKENS, **ATTRIBUTES}
"""All of them: key of a row → name."""


FIRST = tuple(next(iter(measures)) for measures in (REGRESSION, COUNTS, CUSTOM_LOSS))
"""Of each kind the one that comes first; the smaller the better."""
