"""Backbones that map images to embeddings, their weights, and checks of any module before training."""

from sfumato.models.catalogue import NAMES, create
from sfumato.models.lenet import LeNet, lenet
from sfumato.models.mobilenet import MobileNetV2, mobilenet_v2
from sfumato.models.resnet import ResNet, resnet18, resnet20, resnet50

__all__ = [
    "NAMES",
    "LeNet",
    "MobileNetV2",
    "ResNet",
    "create",
    "lenet",
    "mobilenet_v2",
    "resnet18",
    "resnet20",
    "resnet50",
]
