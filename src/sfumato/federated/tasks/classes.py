"""How often a model that gives logits tells the class of users' records."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.federated.tasks.outputs import OutputTask


class Classes(OutputTask):
    """A model maps inputs [n, …] to logits [n, classes]."""

    columns: ClassVar = {"accuracy": "accuracy", "log_loss": "log loss"}
    things: ClassVar = "records"

    def refuse_other(self, data: UserDataset) -> None:
        """Refuse sequences, values and attributes."""
        data.refuse_attributes("be learned by loss=cross_entropy")
        if data.of_sequences or data.of_values:
            what = "sequences of tokens (loss=next_token)" if data.of_sequences else "values (loss=squared)"
            raise InputError(f"loss=cross_entropy needs a class for each record, and the data are {what}")

    def sums(self, outputs: Tensor, targets: Tensor, known: Any) -> Tensor:
        """Their number, told right, and log loss."""
        losses = functional.cross_entropy(outputs.float(), targets, reduction="none").double()
        right = (outputs.argmax(1) == targets).sum().double()
        return torch.stack([torch.full_like(right, len(targets)), right, losses.sum()])

    def row(self, sums: list[float]) -> dict[str, Any]:
        """Accuracy and mean log loss."""
        count, right, loss = sums
        row: dict[str, Any] = {"records": int(count), "accuracy": right / count}
        return {**row, "log_loss": loss / count} if math.isfinite(loss) else row
