"""What a run shows while it goes on, where no terminal watches."""

import time

import pytest

from sfumato.training.monitoring import Display

ROW = {"round": 3, "epsilon": 1.23456, "not_private": {"loss": 0.5}}


def test_a_long_run_tells_round_epsilon_rate_and_time_left_also_within_a_round(capsys: pytest.CaptureFixture[str]):
    with Display(10, 1, visible=True, every=0.05, planned=3.0) as display:
        display.show(ROW)
        time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("sfumato: round 3 of 10 · ε 1.24 of 3 · loss 0.5 (private) · ") for line in lines)
    assert all("rounds/s · 0 min" in line and line.endswith("left") for line in lines)


def test_before_the_first_round_nothing_is_said_of_the_time(capsys: pytest.CaptureFixture[str]):
    with Display(10, 0, visible=True, every=0.05):
        time.sleep(0.2)
    assert capsys.readouterr().err.splitlines()[0] == "sfumato: round 0 of 10"


@pytest.mark.parametrize(("visible", "every"), [(True, 30.0), (False, 0.01)])
def test_a_short_run_and_one_that_nobody_watches_print_no_line(
    capsys: pytest.CaptureFixture[str], visible: bool, every: float
):
    with Display(10, 0, visible=visible, every=every) as display:
        display.show(ROW)
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_nothing_is_printed_after_ctrl_c(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(KeyboardInterrupt), Display(10, 0, visible=True, every=0.05):
        raise KeyboardInterrupt
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == ""
