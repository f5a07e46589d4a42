"""FedAvg and DP-FedAvg: backbone and head are both shared, clipped and noised.

Unit: one user (or, with users_per_client > 1, one user inside a virtual client). The head has a row for every label,
so the label space must be public; the statement lists that.

References:
    McMahan, Ramage, Talwar, Zhang: Learning Differentially Private Recurrent Language Models. ICLR 2018.
"""

from dataclasses import dataclass
from typing import ClassVar

from sfumato.federated.local_steps import LocalStepsPlan


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalStepsPlan):
    """Federated averaging with a shared head."""

    name: ClassVar[str] = "fedavg"
