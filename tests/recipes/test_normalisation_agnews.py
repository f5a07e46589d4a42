"""The AG News recipe never tests on what it was trained or tuned on."""

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.shared
def test_the_parts_are_disjoint_and_a_held_out_part_is_taken_from_training(shared, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from ag_news import TEST, TRAIN, ag_news

    whole = ag_news(1 << 20, 64)
    assert (len(whole.train), len(whole.validation), len(whole.test)) == (TRAIN, 0, TEST)
    tuned = ag_news(1 << 20, 64, 800)
    texts = {part: _rows(getattr(tuned, part)) for part in ("train", "validation", "test")}
    assert np.array_equal(texts["test"], _rows(whole.test))
    assert sorted(map(bytes, np.concatenate([texts["train"], texts["validation"]]))) == sorted(
        map(bytes, _rows(whole.train))
    )
    assert len(texts["validation"]) == 800


def _rows(part) -> np.ndarray:
    return part.examples(np.arange(len(part)))[0][0]
