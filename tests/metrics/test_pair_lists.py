"""LFW's pairs: read line by line, found among people, and never about somebody who was trained on."""

import numpy as np
import pytest

from sfumato import data, metrics
from sfumato._check import InputError

LINES = ["2\t1", "al\t1\t2", "al\t2\tbo\t1", "cy\t1\t3", "cy\t2\tdi\t1"]


@pytest.fixture
def written(tmp_path):
    def write(lines: list[str]):
        path = tmp_path / "pairs.txt"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    return write


@pytest.fixture
def people() -> data.UserDataset:
    """bo has one picture, al two, cy three; di is not there."""
    names = np.array(["cy", "al", "cy", "bo", "al", "cy"])
    return data.from_arrays(np.arange(6, dtype=np.float32)[:, None], names, names)


def test_the_pairs_are_those_of_the_lines(written) -> None:
    pairs = metrics.lfw_pairs(written(LINES))
    assert pairs.names.tolist() == [["al", "al"], ["al", "bo"], ["cy", "cy"], ["cy", "di"]]
    assert pairs.numbers.tolist() == [[1, 2], [2, 1], [1, 3], [2, 1]]
    assert pairs.folds.tolist() == [0, 0, 1, 1]
    assert pairs.same.tolist() == [True, False, True, False]


def test_rows_are_where_the_pictures_lie_user_by_user(written, people) -> None:
    pairs = metrics.lfw_pairs(written(LINES)).among(people)
    assert pairs.folds.tolist() == [0, 0, 1]
    inputs = np.concatenate([people.examples(user)[0] for user in range(len(people))])[:, 0]
    assert inputs[pairs.rows(people)].tolist() == [[1, 4], [4, 3], [0, 5]]  # in the order in which they were given


def test_pictures_that_are_missing_are_told(written, people) -> None:
    pairs = metrics.lfw_pairs(written(LINES))
    with pytest.raises(InputError, match=r"1 people who are not in the data \(di\)"):
        pairs.rows(people)
    with pytest.raises(InputError, match="picture 4 of cy, who has 3"):
        metrics.lfw_pairs(written([*LINES[:3], "cy\t1\t4", LINES[4]])).among(people)


def test_somebody_who_was_trained_on_is_refused(written, people) -> None:
    pairs = metrics.lfw_pairs(written(LINES))
    pairs.refuse_trained_on(["ed"])
    with pytest.raises(InputError, match=r"2 people of the pairs are trained on \(bo\)"):
        pairs.refuse_trained_on(["cy", "ed", "bo"])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "must begin with"),
        (["10 300"], "must begin with"),
        (LINES[:-1], "has 3 pairs"),
        ([*LINES[:1], "al\t1", *LINES[2:]], "line 2: wanted name, number, number"),
        ([*LINES[:1], "al\t1\t0", *LINES[2:]], "line 2"),
        ([*LINES[:2], "al\t2\tal\t1", *LINES[3:]], "line 3: wanted name, number, another name"),
        ([*LINES[:2], "al\tx\tbo\t1", *LINES[3:]], "line 3"),
    ],
)
def test_lines_that_are_none_of_lfw_are_refused(written, lines, told) -> None:
    with pytest.raises(InputError, match=told) as caught:
        metrics.lfw_pairs(written(lines))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        metrics.lfw_pairs(tmp_path / "none.txt")


@pytest.mark.shared
def test_the_real_file_has_ten_folds_of_people_of_their_own(shared) -> None:
    pairs = metrics.lfw_pairs(shared / "lfw_pairs.txt")
    assert (len(pairs), int(pairs.same.sum())) == (6000, 3000)
    seen = [set(pairs.names[pairs.folds == fold].ravel().tolist()) for fold in range(10)]
    assert sum(map(len, seen)) == len(set().union(*seen))
