"""Backbones that map images to embeddings, their weights, and checks of any module before training."""

from sfumato.models.catalogue import NAMES, create
from sfumato.models.check import coupled_layers, refuse_batch_norm, refuse_coupling, replace_batch_norm
from sfumato.models.freeze import freeze, trainable_parameters
from sfumato.models.lenet import LeNet, lenet
from sfumato.models.mobilenet import MobileNetV2, mobilenet_v2
from sfumato.models.pretrained import LoadReport, load_pretrained
from sfumato.models.public_batch_norm import PublicBatchNorm, refresh_statistics, use_public_batch
from sfumato.models.resnet import ResNet, resnet18, resnet20, resnet50
from sfumato.models.weights import load_weights, read_metadata, save_weights
from sfumato.models.ws_conv import WSConv2d

__all__ = [
    "NAMES",
    "LeNet",
    "LoadReport",
    "MobileNetV2",
    "PublicBatchNorm",
    "ResNet",
    "WSConv2d",
    "coupled_layers",
    "create",
    "freeze",
    "lenet",
    "load_pretrained",
    "load_weights",
    "mobilenet_v2",
    "read_metadata",
    "refresh_statistics",
    "refuse_batch_norm",
    "refuse_coupling",
    "replace_batch_norm",
    "resnet18",
    "resnet20",
    "resnet50",
    "save_weights",
    "trainable_parameters",
    "use_public_batch",
]
