"""Backbones that map images to embeddings, their weights, and checks of any module before training."""

from sfumato.models.lenet import LeNet, lenet

__all__ = ["LeNet", "lenet"]
