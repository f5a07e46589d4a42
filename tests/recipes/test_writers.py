"""Synthetic writers: nothing stored, nothing that depends on who else is there, hands that differ."""

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import open_users, split_users


@pytest.fixture
def drawn(script):
    return script("fedemb_writers", "writers")


@pytest.fixture
def writers(drawn):
    return drawn.writers


@pytest.fixture
def some(writers):
    return writers(300, seed=4)


def test_each_writes_tens_of_characters_of_all_kinds(some, drawn):
    assert some.sizes.min() >= 20
    assert some.sizes.max() <= 60
    counts = np.bincount(np.concatenate([some.examples(user)[1] for user in range(60)]), minlength=62)
    assert counts.min() > 0
    assert some.label_names is not None
    assert "".join(some.label_names) == drawn.CHARACTERS
    assert some.groups == ("digits", "capitals", "small")


def test_a_picture_depends_on_the_seed_the_writer_and_the_place_alone(some, writers):
    more, other = writers(2000, seed=4), writers(300, seed=5)
    for user in (0, 1, 299):
        (pictures, labels), (again, same) = some.examples(user), more.examples(user)
        assert np.array_equal(pictures, again)
        assert np.array_equal(labels, same)
    start = int(some.offsets[7])
    whole = some.inputs[start - 30 : start + 25]
    assert np.array_equal(whole[30:], some.inputs[start : start + 25])
    assert np.array_equal(whole[::3], some.inputs[start - 30 : start + 25 : 3])
    assert not np.array_equal(some.inputs[0:20], other.inputs[0:20])


def test_a_hand_is_nearer_to_itself_than_to_others(some):
    def of(user):
        pictures, labels = some.examples(user)
        return {int(label): picture.astype(float).ravel() for label, picture in zip(labels, pictures)}, pictures, labels

    own, others = [], []
    for user in range(100):
        _, pictures, labels = of(user)
        neighbours, _, _ = of(user + 100)
        for place in range(1, len(labels)):
            twin = np.flatnonzero(labels[:place] == labels[place])
            label = int(labels[place])
            if len(twin) and label in neighbours:
                mine = pictures[place].astype(float).ravel()
                own.append(np.corrcoef(mine, pictures[twin[0]].astype(float).ravel())[0, 1])
                others.append(np.corrcoef(mine, neighbours[label])[0, 1])
    assert len(own) > 200
    assert np.mean(own) > np.mean(others) + 0.1


def test_a_hundred_thousand_writers_take_megabytes_and_split_as_collected_data(writers):
    many = writers(100_000)
    assert many.labels.nbytes + many.offsets.nbytes < 8e6
    split = split_users(many.subset(np.arange(2000)), test=0.25, shared_labels=True)
    train = split.train.select_classes(range(36))
    test = split.test.select_classes(range(36, 62))
    assert train.groups == ("digits", "capitals")
    assert set(train.user_ids).isdisjoint(test.user_ids)
    assert test.examples(0)[0].shape[1:] == (28, 28, 1)


def test_the_digest_tells_populations_apart_without_drawing_them(some, writers):
    found = {data.contents() for data in (some, writers(300, seed=5), writers(301, seed=4))}
    assert len(found) == 3
    assert some.contents() == writers(300, seed=4).contents()


def test_a_population_out_of_range_is_refused(writers):
    for wrong, told in ((0, "population"), (2.5, "population")):
        with pytest.raises(InputError, match=told):
            writers(wrong)


def test_writers_are_no_source_of_commands():
    with pytest.raises(InputError, match="there is nothing at writers:12; give a packed store"):
        open_users("writers:12")
