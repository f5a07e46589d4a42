"""Counts on held-out examples: how well predicted rates fit them, by the Poisson likelihood.

Batches are added as they come; memory is a few sums for each of the k counts of an example. A rate that is not finite
makes the loss infinite, and is counted in `not_finite`.

With rates μ = exp(s) and counts y, the log loss is the mean of μ − y·s, the negative log-likelihood without log y!,
which no model changes. Its smallest value depends on the data, so `explained` compares: 1 − D(μ) / D(ȳ), where
D(μ) = 2 Σ (y log(y/μ) − y + μ) is the deviance and ȳ the mean count, the best constant rate. 1 is perfect, 0 no better
than that constant, below 0 worse.

These numbers are computed from the data without noise: they are not private.

>>> report = counts_report(np.log([1.0, 2.0, 3.0]), np.array([0, 2, 4]))
>>> round(report.log_loss, 6), round(report.explained, 6), report.mean_rate, report.mean_count
(0.073085, 0.584963, 2.0, 2.0)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy

from sfumato._check import InputError
from sfumato.metrics.regression import finite, paired, refuse_none


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
    """Adds up batches of logarithms of rates, and counts."""

    def __init__(self) -> None:
        self._examples = self._not_finite = 0
        # Of each count: the loss, the rates, the counts, and y log y.
        self._loss = self._rates = self._counts = self._own = np.zeros(0)

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
            self._loss, self._rates, self._counts, self._own = (np.zeros(true.shape[1]) for _ in range(4))
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, and counted
            rates = np.exp(logs)
            usable = np.all(np.isfinite(logs) & np.isfinite(rates), axis=1)
            losses = rates - true * logs
        losses[~usable] = rates[~usable] = np.inf
        self._loss = self._loss + losses.sum(axis=0)
        self._rates = self._rates + rates.sum(axis=0)
        self._counts = self._counts + true.sum(axis=0)
        self._own = self._own + xlogy(true, true).sum(axis=0)
        self._examples += len(true)
        self._not_finite += int((~usable).sum())

    def report(self) -> CountsReport:
        """The numbers of all batches so far.

        Raises:
            InputError: there were no examples.
        """
        refuse_none(self._examples)
        mean = self._counts / self._examples
        deviance = self._loss + self._own - self._counts
        constant = self._own - xlogy(self._counts, mean)
        # Equal counts have no deviance but round-off.
        varied = bool((constant > 1e-12 * (1 + np.abs(self._own))).all())
        return CountsReport(
            log_loss=float(self._loss.mean() / self._examples),
            explained=float((1 - deviance / constant).mean()) if varied else None,
            mean_rate=float(self._rates.mean() / self._examples),
            mean_count=float(mean.mean()),
            examples=self._examples,
            not_finite=self._not_finite,
        )


def counts_report(log_rates: Any, counts: Any) -> CountsReport:
    """Everything about one array of logarithms of rates, see `CountsSums.add`.

    Raises:
        InputError: no examples, or arrays that do not fit.
    """
    sums = CountsSums()
    sums.add(log_rates, counts)
    return sums.report()
