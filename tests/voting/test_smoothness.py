"""Rows without labels move boundaries to where no rows are."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.training.supervised import Supervised, outputs
from sfumato.voting import student as module
from sfumato.voting.student import smoothness

OPTIONS = {"weight": 1.0, "radius": 0.2, "batch_size": 64, "attributes": False}


def network(outputs: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, outputs))


@pytest.mark.slow
def test_eight_labels_and_many_rows_tell_two_moons_apart_better_than_eight_labels():
    plain, smooth = [], []
    for seed in range(4):
        rows, classes = make_moons(400, noise=0.08, random_state=seed)
        rows, classes = rows.astype(np.float32), classes.astype(np.int64)
        known = np.concatenate([np.flatnonzero(classes == c)[:4] for c in (0, 1)])
        settings = Supervised(steps=600, learning_rate=0.05, batch_size=8)
        for added, found in ((None, plain), (smoothness(rows, **OPTIONS), smooth)):
            source = RandomSource.from_seed(seed)
            model = settings.fit(network(), rows[known], classes[known], source=source, added=added)
            found.append((outputs(model, rows).argmax(1) == classes).mean())
    assert np.mean(smooth) > np.mean(plain) + 0.03


def test_the_worst_neighbour_of_a_linear_model_lies_along_the_gradient():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    double = nn.Sequential(model, nn.Linear(1, 2))
    inputs = torch.randn(5, 3)
    logits = double(inputs).detach()
    move = module._worst(double, inputs, logits, torch.Generator().manual_seed(1), 0.1, module._class_divergence)
    torch.testing.assert_close(move.norm(dim=1), torch.full((5,), 0.1))
    along = functional.cosine_similarity(move, model.weight.expand(5, 3)).abs()
    torch.testing.assert_close(along, torch.ones(5))


def test_the_divergence_and_the_entropy_are_those_of_the_distributions():
    torch.manual_seed(0)
    before, after = torch.randn(4, 3), torch.randn(4, 3)
    p, q = torch.softmax(before, 1), torch.softmax(after, 1)
    torch.testing.assert_close(module._class_divergence(before, after), (p * (p / q).log()).sum(1).mean())
    torch.testing.assert_close(module._class_entropy(before), -(p * p.log()).sum(1).mean())
    p, q = torch.sigmoid(before), torch.sigmoid(after)
    each = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    torch.testing.assert_close(module._attribute_divergence(before, after), each.mean())
    entropy = -(p * p.log() + (1 - p) * (1 - p).log())
    torch.testing.assert_close(module._attribute_entropy(before), entropy.mean())


@pytest.mark.parametrize("attributes", [False, True])
def test_the_same_source_learns_the_same(attributes):
    rows, classes = make_moons(60, noise=0.1, random_state=0)
    rows = rows.astype(np.float32)
    targets = rows > 0 if attributes else classes.astype(np.int64)

    def once(seed: int) -> np.ndarray:
        added = smoothness(rows, **{**OPTIONS, "attributes": attributes})
        source = RandomSource.from_seed(seed)
        return outputs(Supervised(epochs=2).fit(network(), rows, targets, source=source, added=added), rows)

    assert np.array_equal(once(1), once(1))
    assert not np.array_equal(once(1), once(2))


def test_the_directions_are_drawn_anew_for_each_source():
    rows, losses = np.eye(2, dtype=np.float32), set()
    for seed in range(6):
        with smoothness(rows, **OPTIONS)(network(), RandomSource.from_seed(seed), torch.device("cpu")) as term:
            losses.add(term.loss(0.0).item())
    assert len(losses) > 2  # two rows have two orders


def test_a_model_that_starts_with_equal_outputs_meets_no_division_by_zero():
    rows = np.zeros((4, 2), np.float32)
    start = nn.Linear(2, 2)
    nn.init.zeros_(start.weight)
    nn.init.zeros_(start.bias)
    settings, source = Supervised(epochs=2), RandomSource.from_seed(1)
    model = settings.fit(start, rows, np.array([0, 1, 0, 1]), source=source, added=smoothness(rows, **OPTIONS))
    assert np.isfinite(outputs(model, rows)).all()


@pytest.mark.parametrize(
    ("rows", "told"), [(np.zeros((9, 2), np.int64), "int64 cannot be"), (np.zeros((1, 2), np.float32), "at least 2")]
)
def test_rows_that_have_no_neighbours_are_refused(rows, told):
    with pytest.raises(InputError, match=told):
        smoothness(rows, **OPTIONS)
