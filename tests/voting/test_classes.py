"""Classes of data sets that were read one by one."""

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import examples_from_arrays, from_arrays
from sfumato.voting import KNNDPFL
from sfumato.voting.public_pool import numbered_alike

ROWS = np.arange(6, dtype=np.float32)[:, None]
USERS = ["x", "x", "y", "y", "z", "z"]


def agents(labels, names=None):
    return from_arrays(ROWS, labels=labels, users=USERS, label_names=names)


def pool(labels, **more):
    return examples_from_arrays(ROWS[: len(labels)] + 0.25, labels, **more)


def test_a_pool_that_lacks_a_class_is_measured_by_names():
    """`eel` is number 2 among the agents and 1 in the pool: neighbours are right all the same."""
    plan = KNNDPFL(queries=3, neighbours=1, noise_std=1e-3, few_records="share", seed=0)
    kinds = np.repeat(["bee", "cat", "eel"], 5)
    voters = from_arrays(np.repeat(ROWS[:3], 5, axis=0), labels=kinds, users=[f"agent {i % 5}" for i in range(15)])
    voters = voters.with_classes(["bee", "cat", "eel"])
    asked = examples_from_arrays(np.array([[0.1], [2.1], [1.9]], np.float32), ["bee", "eel", "eel"])
    assert plan.fit(voters, asked, "pixels").evaluation["answers"]["accuracy"] == 1.0


@pytest.mark.parametrize("given", [[10, 2, 10], ["10", "2", "10"]])
def test_names_that_are_numbers_are_those_of_data_without_names(given):
    voters = agents(["1", "10", "2", "1", "10", "2"])  # in the order of words
    names = list(voters.label_names)
    found = numbered_alike(pool(given), voters, "the pool")
    assert [names[number] for number in found.targets] == ["10", "2", "10"]


def test_data_that_agree_or_have_no_classes_stay_as_they_are():
    for examples in (pool(["bee", "cat"]), examples_from_arrays(ROWS)):
        assert numbered_alike(examples, agents(["bee", "cat"] * 3), "the pool") is examples


@pytest.mark.parametrize(
    ("voters", "examples", "told"),
    [
        (agents(["bee", "cat"] * 3), pool(["bee", "dog"]), "'dog', the agents have bee, cat"),
        (agents([0, 1] * 3), pool([0, 2]), "class 2, the agents have the classes 0 … 1"),
        (agents([0, 1] * 3), pool(["bee", "cat"]), "nobody can tell which are the same"),
        (agents(["bee", "cat"] * 3), pool([0, 1]), "nobody can tell which are the same"),
    ],
)
def test_classes_that_do_not_match_are_refused(voters, examples, told):
    with pytest.raises(InputError, match=told):
        numbered_alike(examples, voters, "the pool")
