"""Plans that train embeddings of users' records: checked, counted and measured by pairs of records."""

from typing import Any, ClassVar

from torch import nn

from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.federated.recall import evaluate
from sfumato.training.plan import Measure, Plan
from sfumato.training.run import Result


class EmbeddingPlan(Plan):
    """A plan whose model maps inputs to embeddings [n, d]; data sets are `UserDataset`s."""

    model_fields: ClassVar[tuple[str, ...]] = ("model", "embedding_dim", "input_shape", "version")

    def fit(self, model: nn.Module, data: UserDataset, *, fars: tuple[float, ...] = (1e-3,), **options: Any) -> Result:
        """Train, and say what it cost.

        Args:
            model: maps inputs to embeddings [n, d]; it is copied, never changed.
            data: the private records.
            fars: false accept rates to report recall at.
            options: as for `Plan.fit`.

        Raises:
            InputError: a mistake in the plan, the data or the folder; nothing is lost.
        """
        return super().fit(model, data, **{"measure": recall_measure(fars), **options})

    def check_data(self, data: UserDataset) -> None:
        """Refuse data in which nobody can hide among others."""
        if len(data) == 0:
            raise InputError("the data set has no users; point to a folder with one sub-folder a user")
        if len(data) == 1:
            raise InputError("the data set has one user; a private sum needs at least 2")

    def measure(
        self, model: nn.Module, data: UserDataset, *, curve: bool = False, device: str = "cpu"
    ) -> dict[str, Any]:
        """Recall at a false accept rate of 0.001."""
        return evaluate(model, data, curve=curve, device=device)

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


def recall_measure(fars: tuple[float, ...]) -> Measure:
    """Recall at these false accept rates."""

    def measure(model: nn.Module, data: UserDataset, *, curve: bool, device: str) -> dict[str, Any]:
        return evaluate(model, data, fars=fars, curve=curve, device=device)

    return measure
