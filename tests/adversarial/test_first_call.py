"""What the first call leaves behind moves no sum by more than the plan accounts; the page's table is as measured."""

import re

import pytest

from adversarial import table
from adversarial.first_call.specimen import SPECIMENS
from adversarial.first_call.ways import CASES, WAYS, outcome
from sfumato.guard import examples_tried
from sfumato.statement import render
from slow import slow_but

# What the first call leaves behind, and what couples at some steps only, moves no sum by more than the plan accounts.
#
# Each specimen is trained by a public way that it is for, with and without one unit: `first_call/ways.py`. Either it is
# refused, and has no statement, or what it releases keeps the bound; what no look can be counted on to meet stands in
# the statement. Its sound sibling, code of the same shape, trains.


IN_TURN = [(name, its.ways[place % len(its.ways)]) for place, (name, its) in enumerate(SPECIMENS.items())]
"""Each specimen by one of its ways, in turn, as ways share the guard; `first_call/ways.py` tries all of them."""

REFUSED = {way: (name, way) for name, way in CASES if SPECIMENS[name].expected == "refused"}
"""One that is refused for each way; these are quick, and every twentieth."""

SOUND = {way: (name, way) for name, way in CASES if SPECIMENS[name].expected == "harmless"}

TRIED = list(dict.fromkeys([*IN_TURN, *REFUSED.values(), *SOUND.values()]))


@pytest.mark.parametrize(("name", "way"), slow_but(TRIED, *REFUSED.values(), *IN_TURN[::20]))
def test_it_is_refused_or_keeps_the_bound(name: str, way: str) -> None:
    specimen = SPECIMENS[name]
    found = outcome(specimen, way)
    assert found.error is None
    if specimen.expected == "harmless":
        assert found.refusal is None
    if specimen.expected == "stated":  # no look can be counted on to meet it, and the statement says so
        assert "begins only with untried data, in an untried batch or at an untried step" in render(
            examples_tried(found.steps)
        )
        return
    if found.refusal is None:
        assert found.kept, f"moved {found.moved:.2f} times the sensitivity, by {specimen.couples}"


def test_what_is_compared_moves_by_the_whole_sensitivity_of_a_sound_model() -> None:
    """So the measurement sees the unit: clipped gradients of an example are of the length of the bound."""
    for way in ("fit", "loop", "lightning"):
        assert outcome(SPECIMENS["forward: lru_cache on shapes"], way).moved == pytest.approx(1, rel=1e-3)


def test_every_way_has_a_coupled_specimen_and_a_sound_one() -> None:
    for way in WAYS:
        assert {SPECIMENS[name].expected for name, its_way in TRIED if its_way == way} >= {"refused", "harmless"}


def test_most_kinds_have_a_sound_sibling() -> None:
    """A check that refuses everything would pass otherwise."""
    sound = sum(specimen.expected == "harmless" for specimen in SPECIMENS.values())
    assert sound >= 0.4 * len(SPECIMENS)


# The table of the documentation is what is measured now.

_NUMBER = re.compile(r"\d+\.\d+")
_REFUSAL = re.compile(r"refused: [^|]*")  # which check comes first, and so its words, may follow from random draws


@pytest.mark.slow
def test_a_part_of_the_table_of_the_page_is_as_measured():
    """One row in four; `python tests/adversarial/table.py` measures all."""
    cells = [line.strip("| ").split(" | ")[:2] for line in table.shown().splitlines()]
    rows = dict(zip(map(tuple, cells), _REFUSAL.sub("refused ", table.shown()).splitlines(), strict=True))
    now = [_REFUSAL.sub("refused ", line) for line in table.table(every=4).splitlines()[2:]]
    assert len(now) >= 20
    for line in now:
        shown = rows[tuple(line.strip("| ").split(" | ")[:2])]
        assert _NUMBER.sub("…", line).split() == _NUMBER.sub("…", shown).split(), (
            "python tests/adversarial/table.py --update writes it anew"
        )
        found, told = ([float(number) for number in _NUMBER.findall(text)] for text in (line, shown))
        assert found == pytest.approx(told, rel=0.02, abs=0.011)


def test_nothing_in_the_table_is_accepted_but_what_moves_by_one_clip_norm():
    rows = [line.strip("| ").split(" | ") for line in table.shown().splitlines()[2:]]
    assert {item for item, *_ in rows} == {"A1", "A2", "A3", "A4", "A5", "A6", "B1", "B2", "B3"}
    for *_, now in rows:
        assert now.startswith("refused: ") or float(_NUMBER.findall(now)[-1]) <= 1.0
