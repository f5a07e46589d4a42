"""Logs in TensorBoard, Weights & Biases and MLflow, and private training by Lightning's Trainer.

Each has to be installed, and importing sfumato does not import it.
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.integrations.lightning import PrivateModule
    from sfumato.integrations.loggers import Log, MLflow, TensorBoard, WandB

__all__ = ["Log", "MLflow", "PrivateModule", "TensorBoard", "WandB"]
__getattr__, __dir__ = lazily(__name__)
