"""Embeddings of users' records, measured by pairs of records: do two of them show the same class?"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.federated.tasks.divided import refuse_few, refuse_undivided
from sfumato.federated.tasks.recall import evaluate


@dataclass(frozen=True, kw_only=True)
class Verification:
    """A model maps inputs to embeddings [n, d]; data sets are `UserDataset`s.

    Attributes:
        fars: false accept rates to report recall at, each in (0, 1).
    """

    fars: tuple[float, ...] = (1e-3,)

    def __post_init__(self) -> None:
        for far in self.fars:
            _check.between(0, 1, ends="()", far=far)

    def check(self, data: UserDataset) -> None:
        """Refuse data that are not divided by user, or in which nobody can hide among others."""
        refuse_undivided(data)
        data.refuse_values("be measured by pairs of classes")
        data.refuse_attributes("be measured by pairs of classes")
        if data.of_sequences:
            raise InputError("the data are sequences of tokens, not of classes; train with loss=next_token (--loss)")
        refuse_few(data)

    def measure(self, model: nn.Module, data: UserDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Recall at the false accept rates, over all pairs.

        Raises:
            InputError: no two examples are of one class.
        """
        if data.classes_present().sum() == data.num_examples:
            raise InputError(
                f"no two of the {data.num_examples:,} examples to measure on are of one class, so nothing can be "
                "recognised again; take users with several (--test-names, --test), or measure nothing (--test-share 0)"
            )
        return evaluate(model, data, fars=self.fars, curve=curve, device=device)

    def about_test(self, data: UserDataset, row: dict[str, Any]) -> dict[str, Any]:
        """Counts of images, users and pairs."""
        return {
            "data": "test",
            "images": int(data.sizes.sum()),
            "users": len(data),
            "genuine_pairs": row["genuine_pairs"],
            "impostor_pairs": row["impostor_pairs"],
        }

    def headline(self, row: dict[str, Any]) -> str:
        """Recall at every rate."""
        return ", ".join(f"recall@FAR={far} {v:.3f}" for far, v in row.get("recall_at_far", {}).items())

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """Recall at every rate that was measured, and the area under the ROC curve."""
        first = evaluation.get("untrained") or evaluation["trained"]
        fars = list(first["recall_at_far"])
        told = (
            f"on {evaluation['images']:,} test images of {evaluation['users']:,} users: "
            f"{evaluation['genuine_pairs']:,} genuine and {evaluation['impostor_pairs']:,} impostor pairs"
        )
        names = [*(f"recall@FAR={far}" for far in fars), "AUC"]
        return names, [*(f"recall_at_far/{far}" for far in fars), "auc"], told

    def assumptions(self, data: UserDataset) -> list[str]:
        """What the data say themselves, for example how they were split."""
        return list(data.assumptions)
