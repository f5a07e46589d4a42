"""How far a model's predictions of values, such as ratings, are from them."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.federated.tasks.outputs import OutputTask
from sfumato.metrics.shown import NUMBERS

_HALF = 0.5


class Values(OutputTask):
    """A model maps inputs [n, …] to values [n]."""

    columns: ClassVar = {name: NUMBERS[name] for name in ("rmse", "within_half", "mae")}
    things: ClassVar = "values"

    def refuse_other(self, data: UserDataset) -> None:
        """Refuse data of classes or sequences."""
        if not data.of_values:
            raise InputError(
                "loss=squared needs a value for each record, and the data have classes; read ratings with "
                "data.ratings, or a table with --item and --value"
            )

    def sums(self, outputs: Tensor, targets: Tensor, known: Any) -> Tensor:
        """Their number, the squared errors, those of at most ½, and the absolute errors."""
        errors = (outputs - targets).double().abs()
        count = torch.full_like(errors.sum(), len(errors))
        return torch.stack([count, (errors**2).sum(), (errors <= _HALF).sum().double(), errors.sum()])

    def row(self, sums: list[float]) -> dict[str, Any]:
        """Root mean squared error, the share of errors of at most ½, and the mean absolute error."""
        count, squared, close, absolute = sums
        row: dict[str, Any] = {"values": int(count)}
        if math.isfinite(squared):
            row |= {"rmse": math.sqrt(squared / count), "within_half": close / count, "mae": absolute / count}
        return row
