"""The pictures held for the most alike: those of the nearest embeddings, never the one asked for itself."""

import base64
import io

import numpy as np
import torch
from PIL import Image
from torch import nn

from sfumato.data import UserDataset, from_arrays, split_labels
from sfumato.federated.tasks.verification import evaluate, nearest_pictures

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 1)).astype(np.uint8)


LABELS = np.arange(12) // 3


def people(inputs: np.ndarray = PIXELS, labels: np.ndarray = LABELS) -> UserDataset:
    return from_arrays(inputs, labels, np.arange(12) // 4)


def places(told: list[dict]) -> list[int]:
    """Where in `PIXELS` these pictures are."""
    read = [np.asarray(Image.open(io.BytesIO(base64.b64decode(each["picture"])))) for each in told]
    return [int(np.flatnonzero((PIXELS[..., 0] == picture).all((1, 2)))[0]) for picture in read]


def test_each_is_told_with_its_nearest_others_and_whether_they_are_the_same():
    turns = np.array([0, 0.1, 3, 1, 1.15, 1.3, 2, 2.1, 2.3, 2.9, 0.4, 2.84])  # angles; no two are equally far
    rows = nearest_pictures(people(), LABELS, np.stack([np.cos(turns), np.sin(turns)], 1).astype(np.float32))
    assert places(rows) == [0, 3, 6, 9]
    for row, asked in zip(rows, (0, 3, 6, 9), strict=True):
        order = [int(place) for place in np.argsort(np.abs(turns - turns[asked])) if place != asked][:5]
        assert places(row["nearest"]) == order
        assert [near["same"] for near in row["nearest"]] == [place // 3 == asked // 3 for place in order]


def test_pictures_are_found_in_a_view_that_leaves_classes_out():
    part = split_labels(people(), test=["1", "3"]).test
    labels = np.concatenate([part.examples(user)[1] for user in range(len(part))])
    rows = nearest_pictures(part, labels, np.eye(6, dtype=np.float32) + 0.5)
    assert places(rows) == [3, 9]


def test_inputs_that_are_no_pictures_have_none():
    vectors = np.eye(12, dtype=np.float32)
    assert nearest_pictures(people(PIXELS / np.float32(255)), LABELS, vectors) == []
    assert nearest_pictures(people(labels=np.arange(12)), np.arange(12), vectors) == []  # nobody has another


def test_they_come_with_the_curve_only():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    assert "nearest" not in evaluate(model, people())
    assert len(evaluate(model, people(), curve=True)["nearest"]) == 4
