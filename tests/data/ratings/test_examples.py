"""Ratings as single examples: who rated what goes in, and the value is the label, as a number or a class."""

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.data import examples_from_ratings, from_arrays, open_examples, open_users, split_users
from sfumato.labels import LPMST, RROnBins
from sfumato.models import matrix_factorization
from sfumato.training.supervised import Supervised, measure

HALVES = [count / 2 for count in range(1, 11)]
STARS = [1, 2, 3, 4, 5]


@pytest.fixture
def folder(tmp_path):
    """Sixty people, of whom each even one likes the even films."""
    rng = np.random.default_rng(0)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(60):
        for film in rng.choice(20, 12, replace=False).tolist():
            stars = 4.5 if (user + film) % 2 == 0 else 1.5
            lines.append(f"{user + 1},{film + 1},{stars},0")
    (tmp_path / "ratings.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_every_rating_is_an_example_of_item_and_user(folder):
    people = open_users(folder)
    data = examples_from_ratings(people)
    (inputs,), values = data.examples(np.arange(len(data)))
    rows = [(item, user, value) for user in range(60) for (item,), value in zip(*people.examples(user), strict=True)]
    assert [(item, user, value) for (item, user), value in zip(inputs.tolist(), values, strict=True)] == rows
    assert data.vocabulary_sizes == (20, 60)
    assert data.num_classes is None
    assert Assumption("ratings_public") in data.assumptions


def test_people_keep_their_numbers_in_a_part(folder):
    people = split_users(open_users(folder), test=0.5).test
    part = examples_from_ratings(people)
    assert part.vocabulary_sizes == (20, 60)
    assert len(part) == sum(len(people.examples(user)[1]) for user in range(len(people)))
    assert len(np.unique(part.examples(np.arange(len(part)))[0][0][:, 1])) == len(people)


def test_values_become_the_nearest_class_and_the_upper_one_of_two():
    values = [0.5, 1.0, 2.5, 3.4, 4.5, 5.0]
    people = from_arrays([[item] for item in range(6)], labels=values, users=["al"] * 6)
    as_stars = examples_from_ratings(people, classes=STARS)
    assert as_stars.targets.tolist() == [0, 0, 2, 2, 4, 4]
    assert list(as_stars.label_names) == ["1", "2", "3", "4", "5"]
    as_halves = examples_from_ratings(people, classes=HALVES)
    assert as_halves.targets.tolist() == [0, 1, 4, 6, 8, 9]
    assert (as_halves.num_classes, as_halves.label_names[3]) == (10, "2")


def test_the_one_door_opens_them_as_numbers_or_classes(folder):
    numbers, stars = open_examples(folder), open_examples(folder / "ratings.csv", rating_classes=["1", "2.5", "4"])
    assert (numbers.num_classes, stars.num_classes) == (None, 3)
    assert sorted(set(stars.targets.tolist())) == [0, 2]
    assert np.array_equal(numbers.inputs[0], stars.inputs[0])


@pytest.mark.parametrize("classes", [[1], [2, 1], [1, 1], [1, float("inf")], ["one", "two"], []])
def test_classes_that_are_no_ascending_numbers_are_refused_in_one_line(classes, folder):
    with pytest.raises(InputError, match="classes of ratings must be") as refusal:
        open_examples(folder, rating_classes=classes)
    assert "\n" not in str(refusal.value)


def test_what_are_no_ratings_is_refused():
    with pytest.raises(InputError, match="needed are ratings"):
        examples_from_ratings(from_arrays(np.zeros((2, 3)), labels=[0, 1], users=["al", "bo"]))


@pytest.mark.parametrize(
    ("line", "told"),
    [("61,1,good,0", "'good'"), ("61,1,,0", "line 722"), ("1,1,3.0,0\n1,1,3.0,0", "two ratings"), (",1,3.0,0", "user")],
)
def test_bad_rows_are_refused_in_one_line_that_names_them(line, told, folder):
    path = folder / "ratings.csv"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InputError, match=told) as refusal:
        open_examples(path)
    assert "\n" not in str(refusal.value)


def test_a_model_of_both_ids_learns_whose_taste_it_is(folder):
    data = open_examples(folder)
    items, users = data.vocabulary_sizes
    start = matrix_factorization(items, users=users, factors=4, biases=True, offset=3.0)
    settings = Supervised(epochs=60, batch_size=64, learning_rate=0.05, optimizer="adam", loss="squared")
    (inputs,), values = data.examples(np.arange(len(data)))
    model = settings.fit(start, inputs, values, source=RandomSource.from_seed(0))
    assert measure(model, data)["rmse"] < 0.5 < measure(start, data)["rmse"]


def test_stages_and_bins_take_ratings(folder):
    numbers, stars = open_examples(folder), open_examples(folder, rating_classes=STARS)
    items, users = numbers.vocabulary_sizes
    steps = {"epochs": 2, "batch_size": 64, "seed": 0}
    model = matrix_factorization(items, users=users, factors=4, biases=True, classes=5)
    found = LPMST(epsilon=8.0, stages=(0.5, 0.5), **steps).fit(model, stars)
    assert (found.reports == stars.targets).mean() > 0.95
    model = matrix_factorization(items, users=users, factors=4, biases=True, offset=3.0)
    found = RROnBins(epsilon=8.0, low=0.5, high=5.0, values=10, **steps).fit(model, numbers)
    assert abs(found.reports - np.asarray(numbers.targets)).mean() < 0.3
    assert any("Who rated which item is public" in sentence for sentence in found.statement.assumptions)
