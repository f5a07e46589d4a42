"""Plain training: a function of module, arrays and source; a model as one vector."""

import dataclasses
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.models import BACKBONES, backbone
from sfumato.training import HEAD, Trainable
from sfumato.training.supervised import Supervised, batches_in_order, outputs
from slow import one_in

# Plain training: a function of module, arrays and source, whatever the threads and the kind of targets.


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


@pytest.mark.parametrize(("optimizer", "schedule"), one_in(4, ["sgd", "adam"], ["constant", "cosine"]))
def test_it_learns_what_can_be_distinguished(optimizer, schedule):
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


def test_anyone_who_watches_is_reported_every_step_and_can_end_the_training():
    inputs, classes = blobs()
    seen = []
    SETTINGS.fit(network(), inputs, classes, source=source(), watch=lambda *step: seen.append(step))
    assert seen == [(step + 1, 48) for step in range(48)]

    def stop(step: int, steps: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SETTINGS.fit(network(), inputs, classes, source=source(), watch=stop)


# A model as one vector: what is trained, what is frozen, what is released.


class Buffered(nn.Module):
    """Two layers, a buffer that is saved and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("mean", torch.full((3,), 0.5))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.scale = nn.Parameter(torch.tensor(2.0))


def test_parameters_are_views_of_the_vector_in_the_models_order():
    trained = Trainable(Buffered())
    assert trained.layout.names == [name for name, _ in Buffered().named_parameters()]
    assert trained.vector.numel() == trained.layout.size == 12 + 4 + 8 + 2 + 1
    trained.vector.fill_(3.0)
    assert all((parameter == 3.0).all() for parameter in trained.model.parameters())
    assert not (trained.initial == 3.0).any()


def test_a_loaded_vector_is_what_the_model_computes_with_and_what_is_released():
    trained = Trainable(Buffered())
    theta = torch.arange(27.0)
    trained.load(theta)
    assert torch.equal(trained.vector, theta)
    released = trained.released(trained.vector)
    flat = torch.cat([released[name].reshape(-1) for name in trained.layout.names])
    assert torch.equal(flat, theta)
    trained.vector.zero_()
    assert torch.equal(released["first.weight"].reshape(-1), theta[1:13])  # no view of what goes on training


def test_the_users_module_is_never_touched():
    model = Buffered()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained = Trainable(model, "last.*")
    trained.load(trained.initial + 1)
    trained.model.mean.add_(1.0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_what_is_not_trained_is_frozen_and_both_together_are_the_model():
    trained = Trainable(Buffered(), r"last\..*")
    assert trained.layout.names == ["last.weight", "last.bias"]
    chosen = [name for name, parameter in trained.model.named_parameters() if parameter.requires_grad]
    assert chosen == trained.layout.names
    assert set(trained.frozen()) == {"first.weight", "first.bias", "mean", "scale"}
    assert set(trained.frozen()) | set(trained.layout.names) == set(trained.released(trained.vector))


def test_frozen_tensors_that_are_put_back_stay_when_buffers_are_restored():
    source, trained = Trainable(Buffered(), r"last\..*"), Trainable(Buffered(), r"last\..*")
    source.load_frozen({name: torch.full_like(value, 9.0) for name, value in source.frozen().items()})
    trained.load_frozen(source.frozen())
    trained.put_back()
    assert all((value == 9.0).all() for value in trained.frozen().values())
    assert torch.equal(trained.vector, trained.initial)


def test_buffers_that_training_moved_are_restored():
    trained = Trainable(Buffered())
    trained.model.mean.add_(1.0)
    trained.model.scratch.add_(1.0)
    trained.put_back()
    assert trained.model.mean.tolist() == [0.5] * 3
    assert trained.model.scratch.tolist() == [0.0] * 2


def test_a_head_is_trained_last_and_released_by_its_name():
    head = torch.arange(6.0).view(3, 2)
    trained = Trainable(Buffered(), head=head)
    assert trained.layout.names[-1] == HEAD
    assert torch.equal(trained.parameters[-1], head)
    trained.load(trained.initial * 2)
    assert torch.equal(trained.released(trained.vector)[HEAD], head * 2)
    assert torch.equal(head, torch.arange(6.0).view(3, 2))
    assert HEAD not in trained.frozen()


def test_a_head_can_be_all_that_there_is_to_train():
    trained = Trainable(nn.Flatten(), head=torch.ones(2, 3))
    assert trained.layout.names == [HEAD]
    with pytest.raises(InputError, match="parameter"):
        Trainable(nn.Flatten())


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda: nn.Linear(2, 2, dtype=torch.complex64), r"parameter weight is torch\.complex64; use real numbers"),
        (
            lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).half()),
            r"0\.weight is torch\.float32 and 1\.weight is",
        ),
        (lambda: nn.Linear(2, 2).requires_grad_(False), "names no parameter to train"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(model, named):
    with pytest.raises(InputError, match=named):
        Trainable(model())


def test_a_module_that_cannot_be_copied_is_refused():
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(InputError, match="the model cannot be copied"):
        Trainable(model)


def test_parameters_that_share_memory_stay_one():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    trained = Trainable(model)
    assert trained.vector.numel() == 9
    trained.load(torch.arange(9.0))
    assert torch.equal(trained.model[1].weight, torch.arange(9.0).view(3, 3))


def test_a_layer_that_is_called_as_the_shared_head_is_refused_and_of_ours_none_is():
    """In the released file one would take the other's place."""
    own = nn.Sequential(OrderedDict(body=nn.Linear(3, 4), head=nn.Linear(4, 2)))
    assert "head.weight" in Trainable(own).released(Trainable(own).initial)
    with pytest.raises(InputError, match=r"tensor head\.weight, and so is called the shared head.*another name"):
        Trainable(own, head=torch.zeros(5, 2))
    for name in BACKBONES:
        assert HEAD not in backbone(name, embedding_dim=8, input_shape=(112, 112, 3)).state_dict()
