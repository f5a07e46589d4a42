"""sfumato: train models on records that belong to people, and say exactly what that cost each of them.

The plans, and what accounting is done with most, are found here too. Each is imported when it is first asked for, so
that accounting does not wait for torch:

>>> import sfumato
>>> round(sfumato.guarantee(sfumato.Gaussian(noise_multiplier=1.0)).epsilon(delta=1e-5), 3)
4.377
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

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
__getattr__, __dir__ = lazily(__name__)
