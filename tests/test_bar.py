"""A long count off a terminal: a line now and then, none for what is short."""

import time

import pytest

from sfumato._bar import bar


def counted(every: float, **given: bool) -> None:
    with bar("records", every=every, **given) as show:
        for done in range(1, 5):
            time.sleep(0.01)
            show(done * 1000, 4000)


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]):
    counted(0.001, visible=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sfumato: records: 1,000 of 4,000"
    assert lines[-1] == "sfumato: records: 4,000 of 4,000"


def test_a_count_without_an_end_is_told_so(capsys: pytest.CaptureFixture[str]):
    with bar("reading", visible=True, every=0.001) as show:
        time.sleep(0.01)
        show(1000, 0)
    assert capsys.readouterr().err == "sfumato: reading: 1,000\n"


def test_what_is_short_or_not_to_be_shown_prints_nothing(capsys: pytest.CaptureFixture[str]):
    counted(30.0, visible=True)
    counted(0.001, visible=False)
    assert capsys.readouterr().err == ""
