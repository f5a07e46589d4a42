"""sfumato: train models on records that belong to people, and say exactly what that cost each of them.

The plans, and what accounting is done with most, are found here too. Each is imported when it is first asked for, so
that whoever only accounts does not wait for torch:

>>> import sfumato
>>> round(sfumato.guarantee(sfumato.Gaussian(noise_multiplier=1.0)).epsilon(delta=1e-5), 3)
4.377
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.accounting import Gaussian, Guarantee, InputError, Laplace, calibrate, guarantee
    from sfumato.central import DPSGD
    from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD
    from sfumato.ledger import Budget
    from sfumato.statement import Statement
    from sfumato.voting import AEDPFL, KNNDPFL

__version__ = "0.1.0"

__all__ = [
    "AEDPFL",
    "DPSGD",
    "KNNDPFL",
    "Budget",
    "Centralized",
    "FedAvg",
    "FedEmb",
    "FedSGD",
    "Gaussian",
    "Guarantee",
    "InputError",
    "Laplace",
    "Statement",
    "calibrate",
    "guarantee",
]


def __getattr__(name: str) -> Any:
    """What a room makes public under this name; those are asked first that need no torch."""
    if name in __all__:
        for room in ("accounting", "ledger", "statement", "central", "federated", "voting"):
            try:
                found = getattr(import_module(f"sfumato.{room}"), name, None)
            except ModuleNotFoundError as error:
                from sfumato._extras import remedy  # late: what is imported above is public

                raise ImportError(remedy(error) or str(error), name=error.name) from error
            if found is not None:
                return found
    raise AttributeError(f"module 'sfumato' has no attribute {name!r}")


def __dir__() -> list[str]:
    """With the names that were not asked for yet."""
    return sorted({*globals(), *__all__})
