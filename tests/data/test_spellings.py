"""Answers that are written in several ways are counted, whichever reader has met them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sfumato._check import InputError
from sfumato.data import ehr_from_events, ehr_from_tables, from_arrays, open_examples, open_users
from sfumato.data.safeguards import odd_values
from sfumato.labels.files import open_label_file
from sfumato.labels.table import LabelSettings, TableWork
from slow import by_profile

SAID = "values differ from another one only in case, blanks or Unicode form"
ANSWERS = {False: ["yes", "no", "no", "yes"] * 3, True: ["yes", "No", "no", "YES "] * 3}


def _frame(odd: bool) -> pd.DataFrame:
    rows = range(12)
    answers = ANSWERS[odd]
    return pd.DataFrame({"who": [f"p{row // 3}" for row in rows], "day": [row % 3 for row in rows], "smokes": answers})


def _parquet(odd: bool, folder: Path) -> Path:
    _frame(odd).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def _pictures(odd: bool, folder: Path) -> list[str]:
    for row, answer in enumerate(ANSWERS[odd]):
        (folder / "album" / f"p{row}" / answer).mkdir(parents=True)
        Image.fromarray(np.full((4, 4), row, np.uint8)).save(folder / "album" / f"p{row}" / answer / "1.png")
    return open_users(folder / "album").summary()


def _events(odd: bool, folder: Path) -> list[str]:
    frame = _frame(odd).rename(columns={"smokes": "value"}).assign(code="smokes")
    return list(ehr_from_events(frame, id="who", time="day").notes)


SCHEMA = {"who": "drop", "day": {"kind": "numeric", "low": 0, "high": 9}, "smokes": "label"}
READERS: dict[str, Callable[[bool, Path], list[str]]] = {
    "ehr_from_tables": lambda odd, folder: list(ehr_from_tables(_frame(odd), id="who", time="day").notes),
    "ehr_from_events": _events,
    "from_table": lambda odd, at: open_users(_frame(odd), user="who", input="day", label="smokes").summary(),
    "examples_from_table": lambda odd, at: open_examples(_frame(odd), input="day", label="smokes").summary(),
    "table": lambda odd, folder: open_examples(_parquet(odd, folder), schema=SCHEMA).summary(),
    "from_arrays": lambda odd, folder: from_arrays(np.zeros((12, 2)), ANSWERS[odd], list("abcd") * 3).summary(),
    "pictures": _pictures,
}


@pytest.mark.parametrize("reader", READERS)
def test_answers_in_several_spellings_are_counted_in_one_line(reader: str, tmp_path: Path):
    (tmp_path / "odd").mkdir()
    assert [SAID in line for line in READERS[reader](True, tmp_path / "odd")].count(True) == 1
    assert not any(SAID in line for line in READERS[reader](False, tmp_path))


def test_labels_that_are_to_be_randomised_must_be_declared_or_written_in_one_way(tmp_path: Path):
    for odd in (False, True):
        (path := tmp_path / "t.csv").write_text(_frame(odd).to_csv(index=False))
        declared = LabelSettings(label="smokes", classes=("No", "YES", "no", "yes"), epsilon=1.0)
        assert TableWork.of(open_label_file(path), declared).rows == 12
        if not odd:
            assert TableWork.of(open_label_file(path), LabelSettings(label="smokes", epsilon=1.0)).class_count == 2
            continue
        with pytest.raises(InputError, match=f"{SAID}.*or declare the classes: --classes"):
            TableWork.of(open_label_file(path), LabelSettings(label="smokes", epsilon=1.0))


def test_users_that_are_classes_are_counted_as_users():
    people = open_users(pd.DataFrame({"who": ["Ann", "ann"], "day": [1.0, 2.0]}), user="who", input="day")
    assert sum("differ" in line for line in people.summary()) == 1


@settings(max_examples=by_profile(30), deadline=None)
@given(st.lists(st.text(min_size=1), unique_by=lambda each: each.casefold(), min_size=1))
def test_a_value_that_is_written_once_is_not_counted_and_one_in_two_cases_is(values: list[str]):
    plain = [f"a{number}" for number, _ in enumerate(values)]
    assert odd_values("x", plain) == []
    assert SAID in odd_values("x", [*plain, plain[-1].upper()])[0]
    assert SAID in odd_values("x", [*plain, f" {plain[0]}"])[0]
