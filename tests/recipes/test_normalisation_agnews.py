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


def _rows(part) -> np.ndarray:
    return part.examples(np.arange(len(part)))[0][0]
