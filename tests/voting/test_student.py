"""A student learns from released answers and public rows, and from rows without answers by smoothness."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import ExampleDataset, examples_from_arrays
from sfumato.training.supervised import Supervised, outputs
from sfumato.voting import student as module
from sfumato.voting.question import NOT_ANSWERED, Answers
from sfumato.voting.student import StudentTraining, smoothness, soft_labels, targets_of, train_student

# A student learns from released answers and public rows: its targets, and what refuses to be learned.

PLAIN = StudentTraining(learning_rate=0.1, epochs=30)
SMOOTH = dataclasses.replace(PLAIN, method="smooth")


def public(rows: int = 120) -> tuple[ExampleDataset, np.ndarray]:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, rows)
    inputs = rng.normal(size=(rows, 4)).astype(np.float32) + 4 * np.eye(3, 4, dtype=np.float32)[classes]
    return examples_from_arrays(inputs), classes


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def learned(answers: Answers, queries: np.ndarray, training: StudentTraining, seed: int = 1) -> np.ndarray:
    pool, _ = public()
    model = train_student(network(), pool, queries, answers, training, source=RandomSource.from_seed(seed))
    assert not model.training
    return outputs(model, pool.inputs[0])


QUERIES = np.arange(0, 120, 3)
TRUTH = public()[1]
LABELS = Answers(np.ones(40, bool), TRUTH[QUERIES])
COUNTS = Answers(np.ones(40, bool), None, (np.eye(3)[TRUTH[QUERIES]] * 50 - 10).astype(np.int64))
ATTRIBUTES = Answers(np.ones(40, bool), np.eye(3, dtype=bool)[TRUTH[QUERIES]])


@pytest.mark.parametrize("answers", [LABELS, COUNTS, ATTRIBUTES], ids=["labels", "counts", "attributes"])
@pytest.mark.parametrize("training", [PLAIN, SMOOTH], ids=["supervised", "smooth"])
def test_it_learns_from_every_kind_of_answer(answers, training):
    assert (learned(answers, QUERIES, training).argmax(1) == TRUTH).mean() > 0.9


def test_what_was_not_answered_teaches_nothing():
    answered = np.arange(40) % 2 == 0
    some = Answers(answered, np.where(answered, TRUTH[QUERIES], NOT_ANSWERED))
    alone = Answers(np.ones(20, bool), TRUTH[QUERIES[answered]])
    assert np.array_equal(learned(some, QUERIES, PLAIN), learned(alone, QUERIES[answered], PLAIN))


def test_labels_of_the_pool_are_never_read():
    pool, classes = public()
    wrong = dataclasses.replace(pool, targets=(classes + 1) % 3, num_classes=3)
    for training in (PLAIN, SMOOTH):
        models = [
            train_student(network(), each, QUERIES, LABELS, training, source=RandomSource.from_seed(1))
            for each in (pool, wrong)
        ]
        assert np.array_equal(*(outputs(model, pool.inputs[0]) for model in models))


def test_the_supervised_student_sees_the_answered_rows_alone_and_the_smooth_one_the_whole_pool():
    pool, _ = public()
    other = examples_from_arrays(np.where(np.isin(np.arange(120), QUERIES)[:, None], pool.inputs[0], 0))
    for training, same in ((PLAIN, True), (SMOOTH, False)):
        models = [
            train_student(network(), each, QUERIES, LABELS, training, source=RandomSource.from_seed(1))
            for each in (pool, other)
        ]
        assert np.array_equal(*(outputs(model, pool.inputs[0]) for model in models)) == same


def test_the_same_source_gives_the_same_student():
    assert np.array_equal(learned(LABELS, QUERIES, SMOOTH), learned(LABELS, QUERIES, SMOOTH))
    assert not np.array_equal(learned(LABELS, QUERIES, SMOOTH), learned(LABELS, QUERIES, SMOOTH, seed=2))


def test_soft_labels_are_distributions_in_the_ratio_of_the_counts():
    found = soft_labels(np.array([[2**40, 3 * 2**40, 0], [-1, 5, 5], [0, 0, 0], [-1, -9, -3]]))
    np.testing.assert_allclose(found, [[0.25, 0.75, 0], [0, 0.5, 0.5], [1 / 3] * 3, [1 / 3] * 3], rtol=1e-6)


def test_targets_have_the_kind_of_the_answers():
    assert targets_of(LABELS).dtype == np.int64
    assert targets_of(COUNTS).dtype == np.float32
    assert targets_of(ATTRIBUTES).dtype == bool


def test_no_answer_at_all_is_refused():
    nothing = Answers(np.zeros(40, bool), np.full(40, NOT_ANSWERED))
    with pytest.raises(InputError, match="no query was answered"):
        learned(nothing, QUERIES, PLAIN)


@pytest.mark.parametrize(
    "field", [{"method": "mixmatch"}, {"smoothness": 0}, {"radius": 0}, {"unlabelled_batch_size": 1}, {"epochs": 0}]
)
def test_settings_out_of_range_are_refused_by_name(field):
    with pytest.raises(InputError, match=next(iter(field))):
        StudentTraining(**field)


def test_a_students_settings_are_those_of_any_plain_training_and_more():
    assert isinstance(PLAIN, Supervised)
    assert dataclasses.asdict(PLAIN).keys() > dataclasses.asdict(Supervised()).keys()


# Rows without labels move boundaries to where no rows are.

OPTIONS = {"weight": 1.0, "radius": 0.2, "batch_size": 64, "attributes": False}


def wide_network(outputs: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, outputs))


@pytest.mark.slow
def test_eight_labels_and_many_rows_report_two_moons_separate_better_than_eight_labels():
    plain, smooth = [], []
    for seed in range(4):
        rows, classes = make_moons(400, noise=0.08, random_state=seed)
        rows, classes = rows.astype(np.float32), classes.astype(np.int64)
        known = np.concatenate([np.flatnonzero(classes == c)[:4] for c in (0, 1)])
        settings = Supervised(steps=600, learning_rate=0.05, batch_size=8)
        for added, found in ((None, plain), (smoothness(rows, **OPTIONS), smooth)):
            source = RandomSource.from_seed(seed)
            model = settings.fit(wide_network(), rows[known], classes[known], source=source, added=added)
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


def test_the_classes_of_the_answers_shall_be_as_frequent_among_the_rows():
    rows, device = np.array(public()[0].inputs[0][:]), torch.device("cpu")
    answers, model = np.array([0, 0, 1, 2]), network().eval()

    def added(given: np.ndarray | None) -> float:
        terms = smoothness(rows, weight=2.0, radius=0.3, batch_size=120, attributes=False, answers=given)
        with terms(model, RandomSource.from_seed(1), device) as term:
            return float(term.loss(0.0).detach())

    shares = torch.softmax(model(torch.from_numpy(rows)), 1).mean(0).detach()
    prior = torch.tensor([3.0, 2.0, 2.0]) / 7  # as if each had been answered once more
    expected = -2.0 * float((prior * shares.log()).sum())
    assert added(answers) - added(None) == pytest.approx(expected, rel=1e-4)
    soft = np.eye(3, dtype=np.float32)[answers]
    assert added(soft) == pytest.approx(added(answers))


@pytest.mark.parametrize("attributes", [False, True])
def test_the_same_source_learns_the_same(attributes):
    rows, classes = make_moons(60, noise=0.1, random_state=0)
    rows = rows.astype(np.float32)
    targets = rows > 0 if attributes else classes.astype(np.int64)

    def once(seed: int) -> np.ndarray:
        added = smoothness(rows, **{**OPTIONS, "attributes": attributes})
        source = RandomSource.from_seed(seed)
        return outputs(Supervised(epochs=2).fit(wide_network(), rows, targets, source=source, added=added), rows)

    assert np.array_equal(once(1), once(1))
    assert not np.array_equal(once(1), once(2))


def test_the_directions_are_drawn_anew_for_each_source():
    rows, losses = np.eye(2, dtype=np.float32), set()
    for seed in range(6):
        with smoothness(rows, **OPTIONS)(wide_network(), RandomSource.from_seed(seed), torch.device("cpu")) as term:
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
