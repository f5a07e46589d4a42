"""Algorithms of one holder of the data: what examples contribute to the private sum."""

from sfumato.central.classification import Classification
from sfumato.central.dpsgd import DPSGD
from sfumato.central.examples import ExampleContribution
from sfumato.central.losses import LossPerExample, cross_entropy, poisson_loss, squared_error
from sfumato.central.measure import predict
from sfumato.central.numbers import Counts, OwnLoss, Regression

__all__ = [
    "DPSGD",
    "Classification",
    "Counts",
    "ExampleContribution",
    "LossPerExample",
    "OwnLoss",
    "Regression",
    "cross_entropy",
    "poisson_loss",
    "predict",
    "squared_error",
]
