"""Plain training: a function of module, arrays and source, whatever the threads and the kind of targets."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.training.supervised import Supervised, batches_in_order, outputs

SETTINGS = Supervised(epochs=8, batch_size=16, learning_rate=0.1)


def source(seed: int = 1) -> RandomSource:
    return RandomSource.from_seed(seed)


def blobs(examples: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, two steps apart."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, examples)
    return rng.normal(size=(examples, 4)).astype(np.float32) + 3 * np.eye(3, 4, dtype=np.float32)[classes], classes


def network(*, dropout: float = 0.0, norm: bool = False, classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(8) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(4, 8), middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, classes))


def weights(model: nn.Module) -> bytes:
    return b"".join(value.numpy().tobytes() for value in model.state_dict().values())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_it_learns_what_can_be_told_apart(optimizer, schedule):
    settings = Supervised(epochs=20, batch_size=16, learning_rate=0.03, optimizer=optimizer, schedule=schedule)
    inputs, classes = blobs()
    model = settings.fit(network(), inputs, classes, source=source())
    assert (outputs(model, inputs).argmax(1) == classes).mean() > 0.9


def test_the_module_that_was_given_stays_as_it_is_and_the_copy_is_in_evaluation_mode():
    start = network(norm=True)
    before = weights(start)
    model = SETTINGS.fit(start, *blobs(), source=source())
    assert weights(start) == before != weights(model)
    assert start.training
    assert not any(part.training for part in model.modules())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_threads_side_by_side_train_what_one_alone_trains(dropout):
    inputs, classes = blobs()
    start = network(dropout=dropout)

    def trained(seed: int) -> bytes:
        return weights(SETTINGS.fit(start, inputs, classes, source=source(seed)))

    alone = [trained(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(trained, range(8))) == alone
    assert len(set(alone)) == 8


def test_torchs_generator_is_as_it_was():
    start = network(dropout=0.5)
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    SETTINGS.fit(start, *blobs(), source=source())
    assert torch.equal(torch.rand(1), expected)


def test_steps_take_the_place_of_epochs():
    inputs, classes = blobs(32)
    by_epochs = Supervised(epochs=3, batch_size=16).fit(network(), inputs, classes, source=source())
    by_steps = Supervised(steps=6, batch_size=16).fit(network(), inputs, classes, source=source())
    fewer = Supervised(steps=5, batch_size=16).fit(network(), inputs, classes, source=source())
    assert weights(by_epochs) == weights(by_steps) != weights(fewer)


def test_one_step_of_sgd_is_the_gradient_of_the_mean_loss():
    inputs, classes = blobs(8)
    start = network()
    model = Supervised(steps=1, batch_size=8, learning_rate=0.5, momentum=0).fit(
        start, inputs, classes, source=source()
    )
    nn.functional.cross_entropy(start(torch.from_numpy(inputs)), torch.from_numpy(classes)).backward()
    for after, before in zip(model.parameters(), start.parameters()):
        torch.testing.assert_close(after, before - 0.5 * before.grad)


def test_soft_labels_that_are_certain_teach_as_classes_do():
    inputs, classes = blobs()
    hard = SETTINGS.fit(network(), inputs, classes, source=source())
    soft = SETTINGS.fit(network(), inputs, np.eye(3, dtype=np.float32)[classes], source=source())
    np.testing.assert_allclose(outputs(soft, inputs), outputs(hard, inputs), rtol=1e-3, atol=1e-4)


def test_soft_labels_are_learned_as_the_probabilities_that_they_are():
    inputs, soft = np.ones((64, 4), np.float32), np.tile(np.float32([0.7, 0.2, 0.1]), (64, 1))
    model = Supervised(epochs=100, learning_rate=0.1).fit(network(), inputs, soft, source=source())
    found = torch.softmax(torch.from_numpy(outputs(model, inputs[:1])), 1)[0]
    np.testing.assert_allclose(found, [0.7, 0.2, 0.1], atol=0.01)


def test_attributes_are_learned_each_on_its_own():
    inputs, _ = blobs(200)
    attributes = inputs[:, :3] > 1
    model = Supervised(epochs=40, learning_rate=0.1).fit(network(), inputs, attributes, source=source())
    assert ((outputs(model, inputs) > 0) == attributes).mean() > 0.95


def skewed(examples: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of one kind of example, whose mean and median lie apart."""
    return np.ones((examples, 1), np.float32), np.random.default_rng(0).exponential(2.0, examples)


@pytest.mark.parametrize(
    ("loss", "best"), [("squared", np.mean), ("absolute", np.median), ("poisson", lambda y: np.log(y.mean()))]
)
def test_numbers_are_learned_as_what_their_loss_is_lowest_for(loss, best):
    inputs, numbers = skewed()
    settings = Supervised(epochs=60, batch_size=100, learning_rate=0.1, schedule="cosine", loss=loss)
    model = settings.fit(nn.Linear(1, 1), inputs, numbers, source=source())
    np.testing.assert_allclose(outputs(model, inputs[:1])[0, 0], best(numbers), atol=0.03)


def test_one_step_on_numbers_is_the_gradient_of_the_mean_squared_error_whatever_the_outputs_shape():
    inputs, numbers = skewed(8)
    start = nn.Linear(1, 1)
    settings = Supervised(steps=1, batch_size=8, learning_rate=0.1, momentum=0, loss="squared")
    column = settings.fit(start, inputs, numbers, source=source())
    flat = settings.fit(nn.Sequential(start, nn.Flatten(0)), inputs, numbers, source=source())
    (start(torch.ones(8, 1))[:, 0] - torch.from_numpy(numbers).float()).square().mean().backward()
    torch.testing.assert_close(column.weight, start.weight - 0.1 * start.weight.grad)
    torch.testing.assert_close(flat[0].weight, column.weight)


@pytest.mark.parametrize(
    ("loss", "targets", "model", "told"),
    [
        ("squared", np.zeros((3, 1), np.float32), network(classes=1), "a number \\[n\\]"),
        ("squared", np.array([0.0, np.nan, 1.0]), network(classes=1), "finite"),
        ("poisson", np.array([0.0, -1.0, 1.0]), network(classes=1), ">= 0, got -1"),
        ("squared", np.zeros(3), network(classes=3), "one output"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(loss, targets, model, told):
    with pytest.raises(InputError, match=told):
        Supervised(loss=loss).fit(model, blobs(3)[0], targets, source=source())


def test_label_smoothing_keeps_a_model_from_being_certain():
    inputs, classes = blobs()
    plain, smooth = (
        Supervised(epochs=60, learning_rate=0.1, label_smoothing=share).fit(network(), inputs, classes, source=source())
        for share in (0.0, 0.3)
    )
    assert abs(outputs(smooth, inputs)).max() < 0.5 * abs(outputs(plain, inputs)).max()


@pytest.mark.parametrize("examples", [1, 3, 17])
def test_batches_of_one_example_pass_through_batch_norm(examples):
    inputs, classes = blobs(examples)
    model = Supervised(epochs=2, batch_size=2).fit(network(norm=True), inputs, classes, source=source())
    assert np.isfinite(outputs(model, inputs)).all()


def test_an_epoch_takes_each_example_once_in_batches_of_as_equal_size_as_can_be():
    order = batches_in_order(source(), "rows", 33, 2)
    epoch, again = [next(order) for _ in range(2)], [next(order) for _ in range(2)]
    assert sorted(map(len, epoch)) == [16, 17]
    assert sorted(np.concatenate(epoch).tolist()) == sorted(np.concatenate(again).tolist()) == list(range(33))
    assert np.concatenate(epoch).tolist() != np.concatenate(again).tolist()


def test_frozen_parameters_stay():
    start = network()
    start[0].requires_grad_(False)
    model = SETTINGS.fit(start, *blobs(), source=source())
    assert torch.equal(model[0].weight, start[0].weight)
    assert not torch.equal(model[4].weight, start[4].weight)


def test_outputs_are_those_of_evaluation_mode_whatever_the_mode():
    inputs, _ = blobs(1100)  # more than are computed at once
    model = network(dropout=0.5, norm=True).train()
    found = outputs(model, inputs)
    assert model.training
    assert found.dtype == np.float32
    with torch.no_grad():
        np.testing.assert_allclose(found, model.eval()(torch.from_numpy(inputs)), atol=1e-5)
    assert outputs(model, inputs[:0]).shape == (0, 3)


def test_pictures_come_scaled_as_data_sets_give_them():
    pictures = np.full((4, 2, 2, 1), 255, np.uint8)
    assert outputs(nn.Flatten(), pictures).tolist() == [[0.9921875] * 4] * 4


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        (np.array([0, 3, 1]), "4 outputs"),
        (np.array([0, -1, 1]), "got -1"),
        (np.zeros((3, 5), bool), "5 outputs"),
        (np.full((3, 3), 0.5, np.float32), "add up to 1"),
        (np.full((3, 3), np.nan, np.float32), "add up to 1"),
        (np.zeros(3, np.float32), "soft labels"),
        (np.zeros(2, np.int64), "3 and 2 targets"),
    ],
)
def test_targets_that_do_not_fit_are_refused(targets, told):
    with pytest.raises(InputError, match=told):
        SETTINGS.fit(network(), blobs(3)[0], targets, source=source())


@pytest.mark.parametrize(
    "field",
    [
        {"epochs": 0},
        {"steps": 0},
        {"batch_size": 0},
        {"learning_rate": 0},
        {"label_smoothing": 1},
        {"schedule": "up"},
        {"loss": "log"},
    ],
)
def test_settings_out_of_range_are_refused_by_name(field):
    with pytest.raises(InputError, match=next(iter(field))):
        Supervised(**field)


def test_a_batch_is_mixed_with_itself_by_shares_of_the_beta_distribution():
    settings, source = Supervised(mixup=0.4), RandomSource.from_seed(2)
    drawn = [settings._mixed(6, source, step) for step in range(2000)]
    assert stats.kstest([share for share, _ in drawn], stats.beta(0.4, 0.4).cdf).pvalue > 1e-4
    assert all(sorted(order.tolist()) == list(range(6)) for _, order in drawn)


def test_mixing_teaches_values_between_the_classes():
    """Between two points of different classes a model that saw mixtures is less certain than one that did not."""
    inputs, targets = np.array([[-1.0], [1.0]] * 32, np.float32), np.array([0, 1] * 32)
    plain = Supervised(epochs=60, batch_size=16, learning_rate=0.5)
    found = {}
    for mixup in (0.0, 1.0):
        settings = dataclasses.replace(plain, mixup=mixup)
        model = settings.fit(nn.Linear(1, 2), inputs, targets, source=RandomSource.from_seed(1))
        found[mixup] = torch.softmax(torch.from_numpy(outputs(model, np.array([[0.3]], np.float32))), 1)[0, 1].item()
    assert 0.5 < found[1.0] < found[0.0] - 0.05


class Joined(nn.Module):
    """A network that is called with its input in two parts."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.network(torch.cat([left, right], dim=1))


@pytest.mark.parametrize("settings", [SETTINGS, dataclasses.replace(SETTINGS, mixup=0.5)], ids=["plain", "mixup"])
def test_an_input_in_two_parts_trains_the_same_model(settings):
    inputs, classes = blobs()
    parts = inputs[:, :1], inputs[:, 1:]
    whole = settings.fit(network(dropout=0.2), inputs, classes, source=source())
    divided = settings.fit(Joined(network(dropout=0.2)), parts, classes, source=source())
    assert weights(divided) == weights(whole)
    assert np.array_equal(outputs(divided, parts), outputs(whole, inputs))


def test_whoever_watches_is_told_every_step_and_can_end_the_training():
    inputs, classes = blobs()
    seen = []
    SETTINGS.fit(network(), inputs, classes, source=source(), watch=lambda *step: seen.append(step))
    assert seen == [(step + 1, 48) for step in range(48)]

    def stop(step: int, steps: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SETTINGS.fit(network(), inputs, classes, source=source(), watch=stop)
