"""Federated algorithms: what users contribute to the private sum."""

from sfumato.federated.fedavg import Centralized, FedAvg, FederatedPlan, FedSGD
from sfumato.federated.fedemb import FedEmb
from sfumato.federated.fedrecon import FedRecon, Personal
from sfumato.federated.local_training import (
    Client,
    ClientTraining,
    LocalHead,
    PartlyLocalTraining,
    Reconstruction,
    SharedHead,
)
from sfumato.federated.losses import ArcFace, CosFace, Cosine, Softmax
from sfumato.federated.tasks.outputs import NextToken
from sfumato.federated.tasks.personalised import Personalised
from sfumato.federated.tasks.verification import Verification
from sfumato.federated.vocabulary import PrivateVocabulary

__all__ = [
    "ArcFace",
    "Centralized",
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
    "PartlyLocalTraining",
    "Personal",
    "Personalised",
    "PrivateVocabulary",
    "Reconstruction",
    "SharedHead",
    "Softmax",
    "Verification",
]
