"""Baselines are what they say, and their intervals hold as often as they say."""

import numpy as np
import pytest
import torch

from sfumato.data.text import PADDING
from sfumato.federated.tasks import Classes, NextToken, Values
from sfumato.metrics import ClassificationCounts, CountsSums, RegressionSums
from sfumato.metrics.baselines import area_gain, error_gain, mean_gain, root_gain, standard_error, untrained_gain

TRIALS = 600


def held(intervals: list, truth: float) -> float:
    return float(np.mean([low <= truth <= high for _, low, high in intervals]))


def test_the_interval_of_a_mean_gain_holds_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(0)
    found = [mean_gain(rng.normal(0.3, 1.0, 25)) for _ in range(TRIALS)]
    assert 0.92 < held(found, 0.3) < 0.98


def test_users_count_as_one_unit_each() -> None:
    # Records of a user go up and down together: over records the interval would be much too short.
    rng, by_user, by_record = np.random.default_rng(1), [], []
    for _ in range(TRIALS):
        sizes = rng.integers(1, 20, 60)
        own = rng.normal(0.3, 1.0, 60)
        by_user.append(mean_gain(own * sizes, sizes))
        by_record.append(mean_gain(np.repeat(own, sizes)))
    assert held(by_user, 0.3) > 0.92
    assert held(by_record, 0.3) < 0.6


def test_an_area_without_information_is_inside_its_interval() -> None:
    rng, found = np.random.default_rng(2), []
    for _ in range(TRIALS):
        counts = ClassificationCounts(2, compare=True)
        counts.add(rng.normal(size=(80, 2)), (np.arange(80) % 4 == 0).astype(int))
        found.append(counts.baselines()["constant"]["gain"]["auc"])
    assert 0.92 < held(found, 0.0) < 0.98


@pytest.mark.parametrize("sums", [[1.0], [np.inf, 1.0], [np.nan, 1.0]])
def test_there_is_no_interval_of_one_unit_or_of_what_is_not_finite(sums) -> None:
    assert mean_gain(np.array(sums)) is None
    assert standard_error(np.array(sums), np.ones(len(sums))) is None
    assert mean_gain(np.array([1.0, 0.0]), np.array([3, 0])) is None
    assert root_gain(None, 1.0, 1.0) is None
    assert error_gain(0.1, None) is None
    assert area_gain(None, 3, 3) is None
    assert area_gain(0.7, 0, 3) is None


def test_the_constant_of_classes_knows_the_frequencies_of_the_test_data() -> None:
    labels = np.array([0, 0, 0, 1, 2, 0])
    counts = ClassificationCounts(3, compare=True)
    counts.add(np.log([[0.6, 0.2, 0.2]] * 6), labels)
    found = counts.baselines()["constant"]
    share = np.array([4, 1, 1]) / 6
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["log_loss"] == pytest.approx(-(share * np.log(share)).sum())
    assert found["gain"]["accuracy"] == [0.0, 0.0, 0.0]
    assert found["gain"]["log_loss"][0] == pytest.approx(found["log_loss"] - counts.report().log_loss)
    assert "auc" not in found


def test_an_output_that_is_not_finite_leaves_no_gain_in_loss() -> None:
    counts = ClassificationCounts(2, compare=True)
    counts.add(np.array([[0.0, np.nan], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 0, 1]))
    assert set(counts.baselines()["constant"]["gain"]) == {"accuracy"}
    sums = RegressionSums(compare=True)
    sums.add(np.array([np.inf, 1.0, 2.0]), np.array([0.0, 1.0, 2.0]))
    assert sums.baselines()["constant"]["gain"] == {}
    rates = CountsSums(compare=True)
    rates.add(np.array([np.nan, 0.0, 0.0]), np.array([0, 1, 2]))
    assert rates.baselines()["constant"]["gain"] == {}


def test_the_constant_of_numbers_and_of_counts_is_their_mean() -> None:
    targets = np.array([[1.0, 0.0], [3.0, 2.0], [5.0, 1.0]])
    sums = RegressionSums(compare=True)
    sums.add(np.tile(targets.mean(axis=0), (3, 1)), targets)
    found = sums.baselines()["constant"]
    assert found["rmse"] == pytest.approx(sums.report().rmse)
    assert found["gain"]["rmse"] == pytest.approx([0.0, 0.0, 0.0])
    counts = CountsSums(compare=True)
    counts.add(np.full(3, np.log(2.0)), np.array([1, 2, 3]))
    found = counts.baselines()["constant"]
    assert found["poisson_log_loss"] == pytest.approx(counts.report().log_loss)
    assert found["gain"]["poisson_log_loss"] == pytest.approx([0.0, 0.0, 0.0])


def test_users_baselines_are_what_a_constant_model_measures() -> None:
    rng = np.random.default_rng(3)
    classes = [rng.choice(4, 5, p=[0.4, 0.3, 0.2, 0.1]) for _ in range(7)]
    task, labels = Classes(), np.concatenate(classes)
    logits = torch.from_numpy(np.log(np.bincount(labels, minlength=4) / len(labels)))
    wanted = task.sums(logits.expand(len(labels), 4), torch.from_numpy(labels), None).numpy()
    np.testing.assert_allclose(task.baselines(lambda: iter(classes), None)["constant"].sum(axis=0), wanted, rtol=1e-6)
    values = [rng.normal(size=size) for size in (3, 1, 6)]
    every = np.concatenate(values)
    wanted = Values().sums(torch.full((10,), every.mean()), torch.from_numpy(every), None).numpy()
    np.testing.assert_allclose(Values().baselines(lambda: iter(values), None)["constant"].sum(axis=0), wanted)


@pytest.mark.parametrize("waiting", [1 << 22, 5])
def test_pairs_of_tokens_are_counted_in_one_half_and_measured_on_the_other(waiting: int, monkeypatch) -> None:
    monkeypatch.setattr("sfumato.federated.tasks._MOST_WAITING", waiting)
    rng = np.random.default_rng(4)
    users = [rng.choice([1, 2, 3, 4], (3, 6), p=[0.5, 0.2, 0.2, 0.1]) for _ in range(6)]
    for user in users:
        user[0, 4:] = PADDING
    start, size = 5, 6
    single = np.bincount(np.concatenate(users).ravel(), minlength=size) * (np.arange(size) != PADDING)
    single = single / single.sum()
    for half in (0, 1):
        pairs = np.zeros((size, size))
        for sequence in np.concatenate(users[1 - half :: 2]):
            for before, token in zip([start, *sequence], sequence, strict=False):
                pairs[before, token] += token != PADDING
        tokens = right = loss = 0.0
        for sequence in np.concatenate(users[half::2]):
            for before, token in zip([start, *sequence], sequence, strict=False):
                if token != PADDING:
                    chance = (pairs[before] + 5 * single) / (pairs[before].sum() + 5)
                    tokens, right, loss = tokens + 1, right + (chance.argmax() == token), loss - np.log(chance[token])
        found = NextToken().baselines(lambda: iter(users), torch.tensor([1]))["bigram"][half::2].sum(axis=0)
        assert found[:3] == pytest.approx([tokens, right, loss])


def test_the_gain_over_the_untrained_model_adds_both_errors() -> None:
    rows = [{"loss": value, "standard_error": {"loss": error}} for value, error in ((0.5, 0.03), (0.8, 0.04))]
    mean, low, high = untrained_gain(*rows, "loss", -1)
    assert mean == pytest.approx(0.3)
    assert high - mean == pytest.approx(1.959964 * 0.05)
    assert mean - low == pytest.approx(1.959964 * 0.05)
    assert untrained_gain(rows[0], {"loss": 0.5}, "loss", -1) is None
