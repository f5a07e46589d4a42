"""Public priors: both shapes of a table, smoothing, and one line for whatever is no prior."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.labels.priors import PublicPrior, smoothed


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_one_prior_stands_in_rows_of_any_order(tmp_path: Path):
    file = written(tmp_path / "p.csv", "class,probability", "b,0.25", "a,0.75")
    prior = PublicPrior(file, ["a", "b"])
    assert prior.one is not None
    assert prior.one.tolist() == [0.75, 0.25]
    prior.require_rows(7)


def test_priors_of_rows_are_taken_in_order_whatever_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sfumato.labels.priors._ROWS", 3)
    file = written(tmp_path / "p.csv", "b,a,more", *(f"{i / 10},{1 - i / 10},x" for i in range(1, 8)))
    prior = PublicPrior(file, ["a", "b"])
    assert prior.one is None
    rows = prior.rows()
    taken = np.concatenate([rows.take(n) for n in (2, 0, 4, 1)])
    assert taken[:, 1] == pytest.approx(np.arange(1, 8) / 10)
    assert taken.sum(axis=1) == pytest.approx(1.0)
    with pytest.raises(InputError, match="7 rows for 8 labels"):
        prior.require_rows(8)


def test_smoothing_spreads_a_share_evenly(tmp_path: Path):
    file = written(tmp_path / "p.csv", "class,probability", "a,1", "b,0")
    prior = PublicPrior(file, ["a", "b"], smoothing=0.2)
    assert prior.one is not None
    assert prior.one.tolist() == [0.9, 0.1]
    rows = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert smoothed(rows, 0.5).tolist() == [[0.75, 0.25], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ("class,probability", "a,1", "b,0"),
            "is 0 for the class 'b', so it is hardly ever reported; give a smoo",
        ),
        (("class,probability", "a,0.5", "b,0.4"), "must sum to 1, got 0.9"),
        (("class,probability", "a,1.5", "b,-0.5"), r"must hold numbers in \[0, 1\], got -0.5"),
        (("class,probability", "a,1"), "the class 'b' has no probability there"),
        (("class,probability", "a,.5", "b,.3", "c,.2"), "the class 'c' is none of the classes"),
        (("class,probability", "a,.5", "b,.3", "a,.2"), "has the class 'a' twice"),
        (("class,probability", "a,.5", "b,much"), "must be numbers"),
        (("a,c", "1,0"), "has no column 'b'; a prior has the columns class and probability"),
    ],
)
def test_what_is_no_prior_is_refused(tmp_path: Path, lines, told):
    with pytest.raises(InputError, match=told):
        PublicPrior(written(tmp_path / "p.csv", *lines), ["a", "b"])


def test_a_row_that_is_no_prior_is_refused_when_it_is_read(tmp_path: Path):
    rows = PublicPrior(written(tmp_path / "p.csv", "a,b", "0.5,0.5", "0.5,0.6"), ["a", "b"]).rows()
    with pytest.raises(InputError, match=r"of row 1 must sum to 1, got 1\.1"):
        rows.take(2)
