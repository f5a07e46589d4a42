"""The measure of memory sees what was held for a moment only, and not what was held before."""

import numpy as np
import pytest
from memory import MOST, within_memory


def test_a_moment_beyond_the_limit_is_seen():
    with pytest.raises(AssertionError, match="MB before"), within_memory("a moment"):
        np.ones(MOST // 8 + 1_000_000)


def test_what_was_held_before_is_not_counted(capsys: pytest.CaptureFixture[str]):
    np.ones(MOST // 8 + 1_000_000)
    with within_memory("nothing"):
        pass
    assert "nothing: peak of resident memory" in capsys.readouterr().out
