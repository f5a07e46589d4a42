"""What a training run leaves."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sfumato.accounting import Statement


@dataclass(frozen=True)
class Result:
    """What a run leaves.

    Attributes:
        model: the trained copy of the user's module, in evaluation mode.
        statement: what it cost whom.
        history: rows of metrics.jsonl; what is private in them is under "not_private".
        head: the shared head [classes, d] where the plan has one.
        evaluation: of the untrained and the trained model on the test data, if any was given.
        finished: False if the run was asked to stop before its last round.
        folder: the run's folder, or None.
        trouble: why the model is of no use, a sentence; "" where nothing speaks against it. Not private: it follows
            from losses and counts without noise.
    """

    model: nn.Module
    statement: Statement
    history: list[dict[str, Any]]
    head: Tensor | None
    evaluation: dict[str, Any]
    finished: bool
    folder: Path | None
    trouble: str = ""
