"""A long count off a terminal: a line now and then, none for what is short."""

import time

import pytest

from sfumato.training.told.counting import counting


def counted(every: float, **given: bool) -> None:
    with counting("records", every=every, **given) as show:
        for done in range(1, 5):
            time.sleep(0.01)
            show(done * 1000, 4000)


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]):
    counted(0.001, visible=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sfumato: 1,000 of 4,000 records"
    assert lines[-1] == "sfumato: 4,000 of 4,000 records"


def test_what_is_short_or_not_to_be_shown_prints_nothing(capsys: pytest.CaptureFixture[str]):
    counted(30.0, visible=True)
    counted(0.001, visible=False)
    assert capsys.readouterr().err == ""
