"""The page about synthetic health records: honest, self-contained, and readable in a browser."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from made_up_patients import SCHEMA, copied, records
from report.browser import assert_silent_and_readable
from sfumato._check import InputError
from sfumato.audit.ehr import evaluate
from sfumato.metrics.tabular import Interval
from sfumato.report.charts import BarGroup, bar_chart
from sfumato.report.ehr_page import (
    attacks_verdict,
    fidelity_verdict,
    render,
    utility_verdict,
    write_ehr_page,
)
from slow import slow_but


@pytest.fixture(scope="module")
def memorised():
    train = records(60, 1)
    return evaluate(train, records(60, 2), copied(train, 60, 3), seed=0)


@pytest.fixture(scope="module")
def bare():
    """Without an outcome, and without columns that an attacker may ask for."""
    schema = replace(SCHEMA, outcome=None)
    sides = [replace(records(25, seed), schema=schema) for seed in (1, 2, 3)]
    return evaluate(*sides, seed=0, sensitive=[])


def words_of(text: str) -> str:
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL).split())


def test_the_page_says_what_was_found_and_that_it_is_no_guarantee(memorised):
    text = words_of(render(memorised, about="A folder of copies."))
    assert "no differential privacy guarantee follows: the attacks are examples, not a bound" in text
    assert "3 of 3 found something" in text
    assert "copies of real patients" in text
    assert "A folder of copies." in text
    for column in ("age", "sex", "bili", "stage", "visits", "days between visits"):
        assert column in text
    for attack in memorised.attacks:
        for measure in attack.measures:
            assert f"{attack.name}: {measure.name}" in text
    assert text.count("above the ideal") >= 3
    assert all(each.model in text for each in memorised.utility.models)


def test_the_page_loads_nothing(memorised):
    text = render(memorised)
    assert not re.search(r"https?://|url\(|@import|<script|\son\w+=|src=", text)
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert {name for names in re.findall(r'aria-labelledby="([^"]*)"', text) for name in names.split()} <= set(ids)
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(ids)


def test_the_same_evaluation_gives_the_same_bytes(memorised):
    assert render(memorised) == render(memorised)


def test_what_was_not_measured_is_left_out_or_said(bare):
    text = words_of(render(bare))
    assert "The schema names no outcome" in text
    assert "None of 2 attacks" in text


def test_a_name_from_the_data_is_no_markup(memorised):
    first = memorised.fidelity.columns[0]
    columns = (replace(first, name="<script>alert(1)</script>"), *memorised.fidelity.columns[1:])
    text = render(replace(memorised, fidelity=replace(memorised.fidelity, columns=columns)))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_the_page_is_for_its_owner_alone_and_a_folder_is_refused(memorised, tmp_path):
    page = write_ehr_page(memorised, tmp_path / "page.html")
    assert page.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match=r"is a folder; give a file name, .*records\.html"):
        write_ehr_page(memorised, tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        write_ehr_page(memorised, tmp_path / "nowhere" / "page.html")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("width", "scheme"), slow_but([(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")], (390, "light"))
)
def test_the_page_is_silent_and_readable(chromium, memorised, bare, tmp_path, width, scheme):
    """Pictures to look at are kept in the folder of SFUMATO_SCREENSHOTS, if it is set."""
    for name, evaluation in (("memorised", memorised), ("bare", bare)):
        page = write_ehr_page(evaluation, tmp_path / f"{name}.html")
        assert_silent_and_readable(chromium, page, width, scheme)
        folder = Path(os.environ.get("SFUMATO_SCREENSHOTS", tmp_path))
        folder.mkdir(parents=True, exist_ok=True)
        chromium.screenshot(folder / f"ehr-{name}-{width}-{scheme}.png")


@pytest.mark.browser
def test_the_three_verdicts_are_on_the_first_screen(chromium, memorised, tmp_path):
    chromium.open(write_ehr_page(memorised, tmp_path / "page.html"), 1280, 800)
    low = "[...document.querySelectorAll('.verdict .word')].map(e => e.getBoundingClientRect().bottom)"
    found = chromium.evaluate(low)
    assert len(found) == 3
    assert all(0 < bottom <= 800 for bottom in found)


def test_a_bar_ends_at_its_value_and_its_interval_at_its_ends():
    chart = bar_chart("b", "AUC", [BarGroup("GRU", (Interval(0.75, 0.5, 1.0), None))], ("real", "made"), (0.5, 1.0))
    assert 'width="157.0"' in chart  # half of the room between 2 and 316
    assert "M2.0 25.0H316.0" in chart
    assert "not measured" in chart
    assert "GRU: real 0.75 (0.5 to 1), made not measured." in chart


def test_verdicts_follow_their_rules(memorised):
    assert [fidelity_verdict(auc, 0.5).good for auc in (0.39, 0.6, 0.8, 0.81)] == [False, True, None, False]
    assert fidelity_verdict(None, None).word == "not judged"
    assert attacks_verdict(memorised.attacks).good is False

    def judged(gap):
        return utility_verdict(replace(memorised.utility, gap=gap)).word

    assert judged(Interval(0.02, -0.01, 0.05)) == "as useful as real"
    assert judged(Interval(0.02, 0.01, 0.05)) == "nearly as useful as real"
    assert judged(Interval(0.1, 0.05, 0.2)) == "less useful than real"
    assert judged(None) == "none"
    assert utility_verdict(None).word == "not judged"
