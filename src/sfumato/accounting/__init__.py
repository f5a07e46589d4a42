"""Accounting: what a run cost each unit. NumPy and SciPy only; useful without the rest of sfumato."""

from sfumato._check import InputError
from sfumato.accounting.calibrate import calibrate
from sfumato.accounting.events import (
    ClipCount,
    Composition,
    Event,
    Gaussian,
    Joint,
    MinSeparation,
    MixtureOfGaussians,
    NonPrivate,
    Poisson,
    Repeated,
    TruncatedPoisson,
    Unknown,
    WithoutReplacement,
    compose,
    event_from_json,
    joint,
    terms,
)
from sfumato.accounting.extrapolate import ExtrapolationRow, extrapolate
from sfumato.accounting.guarantee import Guarantee, guarantee
from sfumato.accounting.ledger import Budget, BudgetExceeded, Ledger, Totals
from sfumato.accounting.statement import Statement
from sfumato.accounting.tradeoff import GaussianEquivalent

__all__ = [
    "Budget",
    "BudgetExceeded",
    "ClipCount",
    "Composition",
    "Event",
    "ExtrapolationRow",
    "Gaussian",
    "GaussianEquivalent",
    "Guarantee",
    "InputError",
    "Joint",
    "Ledger",
    "MinSeparation",
    "MixtureOfGaussians",
    "NonPrivate",
    "Poisson",
    "Repeated",
    "Statement",
    "Totals",
    "TruncatedPoisson",
    "Unknown",
    "WithoutReplacement",
    "calibrate",
    "compose",
    "event_from_json",
    "extrapolate",
    "guarantee",
    "joint",
    "terms",
]
