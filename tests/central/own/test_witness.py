"""The words by which a run knows the sums of its steps again."""

import pytest
import torch

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central.custom_loop.contribution import Witness


def test_a_word_behind_a_torn_line_is_known_after_the_next_crash(tmp_path):
    path, source, total = tmp_path / "sums", RandomSource.from_seed(1), torch.ones(3)
    first = Witness(path, goes_on=False)
    for step in (0, 1):
        first.see(step, total, source)
    path.write_text(path.read_text()[:-10])  # torn within the last word
    second = Witness(path, goes_on=True)
    second.see(1, 2 * total, source)  # step 1 had no noise yet
    second.see(2, total, source)
    third = Witness(path, goes_on=True)
    for step in range(3):
        with pytest.raises(InputError, match=f"step {step + 1} was released before with another sum"):
            third.see(step, 3 * total, source)
