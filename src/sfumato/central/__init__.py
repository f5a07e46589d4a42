"""Algorithms of one holder of the data: what examples contribute to the private sum."""

from sfumato.central.dpsgd import DPSGD
from sfumato.central.gradients import ExampleContribution, LossPerExample, cross_entropy
from sfumato.central.measure import predict
from sfumato.central.optimizer import Optimizer

__all__ = ["DPSGD", "ExampleContribution", "LossPerExample", "Optimizer", "cross_entropy", "predict"]
