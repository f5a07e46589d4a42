"""Callbacks that log a run to TensorBoard, Weights & Biases or MLflow."""

from sfumato.logs.log import Log
from sfumato.logs.to_mlflow import MLflow
from sfumato.logs.to_tensorboard import TensorBoard
from sfumato.logs.to_wandb import WandB

__all__ = ["Log", "MLflow", "TensorBoard", "WandB"]
