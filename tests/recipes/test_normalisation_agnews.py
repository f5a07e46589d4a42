"""The AG News recipe never tests on what it was trained on."""

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.shared
def test_the_parts_are_disjoint_and_never_change(shared, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from ag_news import TEST, TRAIN, ag_news

    whole = ag_news(1 << 20, 64)
    assert (len(whole.train), len(whole.validation), len(whole.test)) == (TRAIN, 0, TEST)
    train, test = (set(map(bytes, _rows(part))) for part in (whole.train, whole.test))
    assert not train & test
    again = ag_news.__wrapped__(1 << 20, 64)
    assert np.array_equal(_rows(again.test), _rows(whole.test))


@pytest.mark.shared
def test_more_texts_bring_none_that_is_tested_on(shared, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from ag_news import TEST, TRAIN, ag_news_by_vectors

    train, test, vectors = ag_news_by_vectors(64)
    assert TRAIN < len(train) <= TRAIN + 5000
    assert len(test) == TEST
    assert not set(map(bytes, _rows(train))) & set(map(bytes, _rows(test)))
    assert _rows(train).max() < len(vectors)


@pytest.mark.shared
def test_a_word_is_given_the_vector_that_was_published_for_it(shared, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from ag_news import ag_news_by_vectors

    published = np.load(shared / "glove_twitter_25d.npz")
    train, _, vectors = ag_news_by_vectors(8)
    assert not vectors[:2].any()  # padding, and words without a vector
    # A text of the 5,000 that begins "Storm shows Haiti ...": the file's third row.
    places = {word: place for place, word in enumerate(published["words"])}
    storm = np.flatnonzero((vectors[_rows(train)[:, 0]] == published["x"][places["storm"]]).all(axis=1))
    assert any(
        (vectors[_rows(train)[text, 1]] == published["x"][places["shows"]]).all()
        and (vectors[_rows(train)[text, 2]] == published["x"][places["haiti"]]).all()
        for text in storm
    )


def _rows(part) -> np.ndarray:
    return part.examples(np.arange(len(part)))[0][0]
