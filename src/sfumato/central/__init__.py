"""Algorithms of one holder of the data: what examples contribute to the private sum."""

from sfumato.central.classification import Classification
from sfumato.central.dpsgd import DPSGD
from sfumato.central.gradients import ExampleContribution
from sfumato.central.losses import LossPerExample, cross_entropy
from sfumato.central.measure import predict

__all__ = ["DPSGD", "Classification", "ExampleContribution", "LossPerExample", "cross_entropy", "predict"]
