"""Embeddings of users' records, measured by pairs of records: do two of them show the same class?"""

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import Stated
from sfumato.data import UserDataset, to_tensor
from sfumato.federated.tasks.outputs import refuse_few, refuse_undivided
from sfumato.metrics import nearest, similarity_histogram

# The pictures whose embeddings are nearest to some others, for people who would rather look than read a recall.
#
# Six pictures of six classes are asked for, evenly spaced over the data and not chosen by what comes out. The answer
# holds copies of pictures: it is as private as the records it was made from, and for their owner only.


ASKED = 6
"""Pictures that are asked for."""


SHOWN = 5
"""Nearest others of each."""


_SIDE = 64  # pixels of a copy, at most: to recognise it by, and some kilobytes


def nearest_pictures(data: UserDataset, labels: np.ndarray, vectors: np.ndarray) -> list[dict[str, Any]]:
    """What the embeddings hold for alike.

    Args:
        data: where the pictures are.
        labels: int64 [examples], in the order of the data.
        vectors: their embeddings of length 1, float32 [examples, dimensions].

    Returns:
        a row for each picture asked for: label, picture (PNG in base64) and nearest, a list of label, picture and same
        (whether the class is that of the one asked for), nearest first. No rows where inputs are no 8-bit pictures, or
        no picture has another of its class.
    """
    asked = _asked(labels)
    if not len(asked) or not _are_pictures(data):
        return []
    found = [
        [place for place in places if place != row][:SHOWN]
        for row, places in zip(asked, nearest(vectors[asked], [vectors], count=SHOWN + 1)[0], strict=True)
    ]
    ends = np.cumsum(data.sizes)

    def told(row: int) -> dict[str, Any]:
        user = int(np.searchsorted(ends, row, side="right"))
        picture = np.asarray(data.examples(user)[0])[row - (int(ends[user - 1]) if user else 0)]
        label = int(labels[row])
        return {
            "label": str(data.label_names[label] if data.label_names is not None else label),
            "picture": _png(picture),
        }

    return [
        {
            **told(int(row)),
            "nearest": [{**told(int(near)), "same": bool(labels[near] == labels[row])} for near in neighbours],
        }
        for row, neighbours in zip(asked, found, strict=True)
    ]


def _asked(labels: np.ndarray) -> np.ndarray:
    """The first picture of each of some classes that have two, evenly spaced."""
    _, first, count = np.unique(labels, return_index=True, return_counts=True)
    first = first[count > 1]
    if not len(first):
        return first
    return first[np.unique(np.linspace(0, len(first) - 1, ASKED).astype(np.int64))]


def _are_pictures(data: UserDataset) -> bool:
    return len(data.input_shape) == 3 and data.input_shape[2] in (1, 3) and data.dtype == np.uint8


def _png(picture: np.ndarray) -> str:
    image = Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)
    image.thumbnail((_SIDE, _SIDE))
    written = io.BytesIO()
    image.save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode("ascii")


# Embeddings of a data set, and how well they tell identities apart.
#
# Whatever is measured here on private records is private: only public or consented data belongs in an evaluation that
# is released.


_NUMBERS = 2**19  # of inputs that a CPU reads at a time: 13 pictures of 112×112 in colour, all of a batch of 28×28
_FEWEST = 8


def embed(
    model: nn.Module, data: UserDataset, *, batch_size: int = 256, device: torch.device | str = "cpu"
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Embeddings of all examples in bounded memory, user by user, in batches.

    Yields:
        users int64 [n], labels int64 [n], L2-normalised embeddings float32 [n, d]; n <= batch_size.
    """
    was_training = model.training
    model.eval()
    try:
        for users, inputs, labels in _batches(data, batch_size):
            with torch.inference_mode():
                read = to_tensor(inputs).to(device)
                raw = torch.cat([model(part) for part in read.split(_at_once(read))])
                yield users, labels, nn.functional.normalize(raw, dim=1).cpu().numpy()
    finally:
        model.train(was_training)


def evaluate(
    model: nn.Module,
    data: UserDataset,
    *,
    fars: tuple[float, ...] = (1e-3,),
    curve: bool = False,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """recall@FAR over all pairs of the data set, as plain numbers.

    Args:
        model: maps inputs to embeddings [n, d].
        data: the labels are the identities to tell apart.
        fars: false accept rates.
        curve: add the ROC curve and its area, and the pictures nearest to some (`nearest_pictures`), if there are any.
        device: where the model lies.
    """
    parts = [(labels, vectors) for _, labels, vectors in embed(model, data, device=device)]
    labels = np.concatenate([part[0] for part in parts])
    vectors = np.concatenate([part[1] for part in parts])
    similarities = similarity_histogram(vectors, labels)
    recall = similarities.recall_at_far(fars)
    row: dict[str, Any] = {
        "recall_at_far": {f"{far:g}": float(recall.recall[far]) for far in fars},
        "genuine_pairs": int(recall.genuine_pairs),
        "impostor_pairs": int(recall.impostor_pairs),
    }
    if curve:
        drawn = similarities.roc()
        row["auc"] = float(drawn.auc)
        row["roc"] = {"fpr": drawn.fpr.tolist(), "tpr": drawn.tpr.tolist()}
        if pictures := nearest_pictures(data, labels, vectors):
            row["nearest"] = pictures
    return row


def _at_once(inputs: torch.Tensor) -> int:
    """Examples that a model reads in one go: on a CPU what its layers make of them has to stay in the caches."""
    if inputs.device.type != "cpu":
        return len(inputs)
    return max(_FEWEST, _NUMBERS * len(inputs) // max(1, inputs.numel()))


def _batches(data: UserDataset, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    users: list[np.ndarray] = []
    inputs: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    waiting = 0
    for user in range(len(data)):
        x, y = data.examples(user)
        users.append(np.full(len(y), user, np.int64))
        inputs.append(np.asarray(x))
        labels.append(np.asarray(y))
        waiting += len(y)
        while waiting >= size or (waiting and user == len(data) - 1):
            u, x, y = (np.concatenate(part) for part in (users, inputs, labels))
            yield u[:size], x[:size], y[:size]
            users, inputs, labels = [u[size:]], [x[size:]], [y[size:]]
            waiting = len(u[size:])


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
            raise InputError(
                "the data are sequences of tokens, not of classes; train with client.loss=next_token (--client.loss)"
            )
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

    def assumptions(self, data: UserDataset) -> list[Stated]:
        """What the data say themselves, for example how they were split."""
        return list(data.assumptions)
