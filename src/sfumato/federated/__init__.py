"""Federated algorithms: what users contribute to the private sum."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.federated.fedavg import Centralized, FedAvg, FederatedPlan, FedSGD
    from sfumato.federated.fedemb import FedEmb
    from sfumato.federated.fedrecon import FedRecon, Personal
    from sfumato.federated.tasks.outputs import NextToken
    from sfumato.federated.tasks.personalised import Personalised
    from sfumato.federated.tasks.verification import Verification
    from sfumato.federated.vocabulary import PrivateVocabulary

__all__ = [
    "Centralized",
    "FedAvg",
    "FedEmb",
    "FedRecon",
    "FedSGD",
    "FederatedPlan",
    "NextToken",
    "Personal",
    "Personalised",
    "PrivateVocabulary",
    "Verification",
]
__getattr__, __dir__ = lazily(__name__)
