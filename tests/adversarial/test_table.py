"""The table of the documentation is what is measured now."""

import re

import pytest

from adversarial import table

_NUMBER = re.compile(r"\d+\.\d+")
_REFUSAL = re.compile(r"refused: [^|]*")  # which check comes first, and so its words, may follow from random draws


@pytest.mark.slow
def test_the_table_of_the_page_is_as_measured():
    now, shown = (_REFUSAL.sub("refused ", text) for text in (table.table(), table.shown()))
    assert _NUMBER.sub("…", now).split() == _NUMBER.sub("…", shown).split(), (
        "python tests/adversarial/table.py --update writes it anew"
    )
    found, told = ([float(number) for number in _NUMBER.findall(text)] for text in (now, shown))
    assert found == pytest.approx(told, rel=0.02, abs=0.011)


def test_nothing_in_the_table_is_accepted_but_what_moves_by_one_clip_norm():
    rows = [line.strip("| ").split(" | ") for line in table.shown().splitlines()[2:]]
    assert {item for item, *_ in rows} == {"A1", "A2", "A3", "A4", "A5", "A6", "B1", "B2", "B3"}
    for *_, now in rows:
        assert now.startswith("refused: ") or float(_NUMBER.findall(now)[-1]) <= 1.0
