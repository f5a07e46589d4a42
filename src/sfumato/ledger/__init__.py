"""The ledger: what was released, on the disk, in a chain of hashes, within a budget."""

from sfumato.ledger.budget import Budget, BudgetExceeded
from sfumato.ledger.ledger import Ledger, Totals

__all__ = ["Budget", "BudgetExceeded", "Ledger", "Totals"]
