"""Embeddings of a data set, and how well they tell identities apart.

Whatever is measured here on private records is private: only public or consented data belongs in an evaluation that
is released.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from sfumato.data import UserDataset, to_tensor
from sfumato.federated.tasks.nearest import nearest_pictures
from sfumato.metrics import similarity_histogram

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
