"""The recipe of faces: nobody is in two parts, a model begins as the public backbone, and rows meet their budgets."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sfumato import accounting as acc
from sfumato import data

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "fedemb_lfw" / "run.py"


@pytest.fixture
def recipe(script):
    """The script as a module."""
    return script("fedemb_lfw")


def named(count: int) -> data.UserDataset:
    names = np.array([f"person {number}" for number in range(count)])
    return data.from_arrays(np.zeros((count, 1), np.float32), names, names)


def parts_of(recipe, people: data.UserDataset) -> list[set[str]]:
    return [set(part.user_ids) for part in sys.modules["faces"].split(people)]


def test_everybody_is_in_one_part_and_stays_there_when_others_come(recipe) -> None:
    """2,000 people: shares of 0.72, 0.08, 0.08 and 0.12 with stds of 0.0100 and below; 5 stds allowed."""
    parts, more = parts_of(recipe, named(2000)), parts_of(recipe, named(2500))
    assert sum(map(len, parts)) == len(set().union(*parts)) == 2000
    for part, share in zip(parts, (0.72, 0.08, 0.08, 0.12), strict=True):
        assert abs(len(part) / 2000 - share) < 0.05
    assert all(few <= many for few, many in zip(parts, more, strict=True))


def test_a_model_begins_as_what_it_is_given(recipe) -> None:
    rows = torch.randn(3, 128)
    assert torch.equal(recipe.Residual()(rows), rows)


def test_private_rows_cost_one_person_what_their_names_say(recipe) -> None:
    for name, row in recipe.rows().items():
        if row.epsilon is None:
            continue
        plan = recipe.prepared(row, 4124, quick=False)
        told = plan.private_sum(4124)
        assert told.contributions_moved == (2 if plan.users_per_client > 1 else 1), name
        epsilon = acc.guarantee(told.event(plan.rounds)).epsilon(recipe.DELTA)
        assert 0.99 * row.epsilon < epsilon <= row.epsilon * (1 + 1e-9), name
        assert recipe.DELTA < 1 / 4124 / 10


def test_private_rows_of_what_is_trained_cost_the_same(script) -> None:
    """And they clip and noise as the main table's row of that ε, whatever moves."""
    script("fedemb_lfw")
    trained = script("fedemb_lfw", "trained")
    private = {name: row for name, row in trained.ROWS.items() if row.epsilon is not None}
    assert len(private) == len(trained.TRAINED) - 1
    for name, row in private.items():
        plan = trained.plan_of(row, 4124, quick=False)
        assert plan.private_sum(4124).contributions_moved == 1, name
        epsilon = acc.guarantee(plan.private_sum(4124).event(plan.rounds)).epsilon(trained.DELTA)
        assert 0.99 * row.epsilon < epsilon <= row.epsilon * (1 + 1e-9), name
        assert plan.trainable == trained.TRAINED[row.trained][0]


def test_more_people_with_the_same_noise_pay_less(recipe) -> None:
    plan = recipe.prepared(recipe.rows()["DP-FedEmb, m = 1, ε = 8"], 4124, quick=False)
    found = recipe.among_more(plan)
    assert 0 < found["epsilon_1000000"] < found["epsilon_100000"] < 8


@pytest.mark.shared
def test_lfw_is_read_in_the_order_of_names_and_numbers(recipe, shared) -> None:
    names = sys.modules["faces"].names_of(shared / "lfw_112.parquet")
    assert len(names) == 13_233
    assert (names[:-1] <= names[1:]).all()
    assert len(np.unique(names)) == 5_749
