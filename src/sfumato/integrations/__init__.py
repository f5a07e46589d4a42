"""Logs in TensorBoard, Weights & Biases and MLflow, and private training by Lightning's Trainer.

Each has to be installed, and importing sfumato does not import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sfumato.integrations.loggers import Log, MLflow, TensorBoard, WandB

if TYPE_CHECKING:
    from sfumato.integrations.lightning import PrivateModule

__all__ = ["Log", "MLflow", "PrivateModule", "TensorBoard", "WandB"]


def __getattr__(name: str) -> Any:
    """`PrivateModule`, which imports Lightning."""
    if name == "PrivateModule":
        return import_module("sfumato.integrations.lightning").PrivateModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
