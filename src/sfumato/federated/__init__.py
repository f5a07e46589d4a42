"""Federated algorithms: what users contribute to the private sum."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.federated.client import (
        Client,
        ClientTraining,
        LocalHead,
        PartlyLocalTraining,
        Reconstruction,
        SharedHead,
    )
    from sfumato.federated.clustering import DPLC, class_centres
    from sfumato.federated.fedavg import Centralized, FedAvg, FederatedPlan, FedSGD
    from sfumato.federated.fedemb import FedEmb
    from sfumato.federated.fedrecon import FedRecon, Personal
    from sfumato.federated.losses import ArcFace, ClassLoss, CosFace, Cosine, NextTokenLoss, Softmax, SquaredLoss
    from sfumato.federated.privacyface import PrivacyFace
    from sfumato.federated.tasks import NextToken, Personalised, Verification
    from sfumato.federated.vocabulary import PrivateVocabulary

__all__ = [
    "DPLC",
    "ArcFace",
    "Centralized",
    "ClassLoss",
    "Client",
    "ClientTraining",
    "CosFace",
    "Cosine",
    "FedAvg",
    "FedEmb",
    "FedRecon",
    "FedSGD",
    "FederatedPlan",
    "LocalHead",
    "NextToken",
    "NextTokenLoss",
    "PartlyLocalTraining",
    "Personal",
    "Personalised",
    "PrivacyFace",
    "PrivateVocabulary",
    "Reconstruction",
    "SharedHead",
    "Softmax",
    "SquaredLoss",
    "Verification",
    "class_centres",
]
__getattr__, __dir__ = lazily(__name__)
