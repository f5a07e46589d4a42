"""Domain adaptation helps where the pool looks unlike the records, and changes nothing that it should not."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.training.supervised import Supervised, outputs
from sfumato.voting.trained import DANN, _Reversed

SETTINGS = Supervised(epochs=60, learning_rate=0.05)


def moons(seed: int, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Two half-moons, turned: the toy problem of Ganin et al."""
    rows, classes = make_moons(300, noise=0.05, random_state=seed)
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return ((rows - rows.mean(0)) @ np.array([[c, s], [-s, c]])).astype(np.float32), classes.astype(np.int64)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 15), nn.Sigmoid(), nn.Linear(15, 2))


@pytest.mark.slow
def test_adapted_models_are_right_more_often_on_turned_moons():
    plain, adapted = [], []
    for seed in range(6):
        inputs, classes = moons(seed, 0)
        pool, truth = moons(100 + seed, 35)
        for adaptation, found in ((None, plain), (DANN().towards(pool), adapted)):
            source = RandomSource.from_seed(seed)
            model = SETTINGS.fit(network(seed), inputs, classes, source=source, added=adaptation)
            found.append((outputs(model, pool).argmax(1) == truth).mean())
    assert np.mean(adapted) > np.mean(plain) + 0.08  # 0.88 against 0.75, each within 0.08
    assert all(after >= before for before, after in zip(plain, adapted))


def test_the_gradient_is_reversed_and_weighted_and_the_value_is_not():
    features = torch.randn(3, 2, requires_grad=True)
    out = _Reversed.apply(features, 0.25)
    assert torch.equal(out, features)
    (out * torch.arange(6.0).view(3, 2)).sum().backward()
    assert torch.equal(features.grad, -0.25 * torch.arange(6.0).view(3, 2))


def test_nothing_hangs_in_the_model_after_training():
    inputs, classes = moons(0, 0)
    start = network()
    model = SETTINGS.fit(start, inputs, classes, source=RandomSource.from_seed(0), added=DANN().towards(inputs))
    assert not any(layer._forward_pre_hooks for each in (start, model) for layer in each.modules())
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in start.named_parameters()]


def test_the_same_source_adapts_in_the_same_way():
    inputs, classes = moons(0, 0)
    pool, _ = moons(1, 35)

    def once() -> np.ndarray:
        source = RandomSource.from_seed(3)
        model = Supervised(epochs=2).fit(network(), inputs, classes, source=source, added=DANN().towards(pool))
        return outputs(model, pool)

    assert np.array_equal(once(), once())


def test_batch_norm_meets_no_batch_of_one():
    inputs, classes = moons(0, 0)
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    settings, source = Supervised(epochs=3, batch_size=2), RandomSource.from_seed(0)
    adapted = settings.fit(model, inputs[:5], classes[:5], source=source, added=DANN(batch_size=2).towards(inputs[:3]))
    assert np.isfinite(outputs(adapted, inputs)).all()


def test_the_features_are_the_input_of_the_last_linear_layer_or_of_the_one_that_is_named():
    model = network()
    assert DANN().feature_layer(model) == ("4", model[4])
    assert DANN(layer="2").feature_layer(model) == ("2", model[2])


@pytest.mark.parametrize(
    ("adaptation", "model", "told"),
    [
        (DANN(layer="clasifier"), nn.Sequential(nn.Linear(2, 2)), "no layer clasifier"),
        (DANN(), nn.Sequential(nn.Unflatten(1, (2, 1)), nn.Conv1d(2, 2, 1), nn.Flatten()), "no linear layer"),
    ],
)
def test_a_model_without_such_a_layer_is_refused(adaptation, model, told):
    with pytest.raises(InputError, match=told):
        SETTINGS.fit(model, *moons(0, 0), source=RandomSource.from_seed(0), added=adaptation.towards(moons(0, 0)[0]))


def test_a_layer_that_is_never_used_is_refused():
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.used(rows)

    rows, classes = moons(0, 0)
    with pytest.raises(InputError, match="does not use its layer idle"):
        SETTINGS.fit(Idle(), rows, classes, source=RandomSource.from_seed(0), added=DANN().towards(rows))


@pytest.mark.parametrize("field", [{"weight": 0}, {"hidden": 0}, {"batch_size": 1}])
def test_settings_out_of_range_are_refused_by_name(field):
    with pytest.raises(InputError, match=f"adaptation_{next(iter(field))}"):
        DANN(**field)


def test_a_pool_of_one_row_is_refused():
    with pytest.raises(InputError, match="at least 2 public rows"):
        DANN().towards(np.zeros((1, 2), np.float32))
