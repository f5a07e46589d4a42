"""Accounting: what a run cost each unit. NumPy and SciPy only; useful without the rest of sfumato."""

from sfumato._check import InputError
from sfumato.accounting.calibrate import calibrate
from sfumato.accounting.events import (
    Composition,
    Event,
    Gaussian,
    NonPrivate,
    Poisson,
    Repeated,
    Unknown,
    WithoutReplacement,
    compose,
    event_from_json,
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
    "Composition",
    "Event",
    "ExtrapolationRow",
    "Gaussian",
    "GaussianEquivalent",
    "Guarantee",
    "InputError",
    "Ledger",
    "NonPrivate",
    "Poisson",
    "Repeated",
    "Statement",
    "Totals",
    "Unknown",
    "WithoutReplacement",
    "calibrate",
    "compose",
    "event_from_json",
    "extrapolate",
    "guarantee",
    "terms",
]
