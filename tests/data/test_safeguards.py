"""Every reader × every safeguard: refused or counted by one rule, in the same words; a reader without them fails here.

A reader is written down once (`safeguard_readers`), with what it reads three users from; a safeguard that cannot apply
to it has a reason."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from safeguard_files import csv_file, from_table, linked_folder, parquet, pictures, shards
from safeguard_readers import NAMES, NO_READER, READERS, REFUSED, WORDS
from sfumato import data
from sfumato._check import InputError
from sfumato.data import ehr_from_events, ehr_from_tables, from_arrays, open_examples, open_users
from sfumato.data.mapped import Strings
from sfumato.data.readers import USERS
from sfumato.data.safeguards import odd_values, refuse_undecodable
from sfumato.labels.files import open_label_file
from sfumato.labels.table import LabelSettings, TableWork
from slow import by_profile

# Every reader × every safeguard: refused or counted by one rule, in the same words; a reader without them fails here.


def test_every_public_reader_is_tried_or_has_a_reason():
    tried = {reader.of if isinstance(reader.of, str) else reader.of.__name__ for reader in READERS.values()}
    assert tried.isdisjoint(NO_READER)
    assert tried | set(NO_READER) == {*data.__all__, *(reader.name for reader in USERS)}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_tries_each_safeguard_or_has_one_reason(name: str):
    reader = READERS[name]
    tried = set(NAMES) - set(reader.but) | set(reader.cases)
    assert tried | set(reader.but) == set(WORDS)
    assert not set(reader.cases) & set(reader.but)


CASES = [(name, fault) for name, reader in READERS.items() for fault in WORDS if fault not in reader.but]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_it_is_refused_or_counted_in_the_same_words(name: str, fault: str, tmp_path: Path):
    reader = READERS[name]

    def read() -> Any:
        return reader.cases[fault](tmp_path) if fault in reader.cases else reader.read(tmp_path, NAMES[fault])

    if fault not in REFUSED:
        assert re.search(WORDS[fault], "\n".join(read().summary()))
        return
    with pytest.raises(InputError, match=WORDS[fault]) as refusal:
        read()
    assert "\n" not in str(refusal.value)
    str(refusal.value).encode()  # it can be printed


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.read is not None])
def test_what_is_as_it_should_be_has_no_note(name: str, tmp_path: Path):
    """So that no reader is right because it refuses or counts everything."""
    names = ["1", "2", "3"] if name == "mimic_iv" else ["ann", "bo", "cy"]
    found = READERS[name].read(tmp_path, names)
    assert len(found.blank if name == "uncounted_texts" else found) == (2 if name == "mimic_iv" else 3)
    assert not [line for line in found.summary() if "have names" in line or "same file" in line]


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("read", [data.open_users, lambda path: data.open_users(path, store=path.with_name("store"))])
def test_one_file_twice_for_one_user_is_counted(read: Callable, link: Callable, tmp_path: Path):
    root = pictures(tmp_path, ["ann", "bo"])
    link(root / "bo" / "1.png", root / "bo" / "2.png")
    told = "1 file names a file that a file before names, bo/2.png that of bo/1.png for example"
    assert read(root).notes == (f"{told}: each counts as a picture of that user",)


def test_a_folder_that_leads_to_another_one_s_is_refused_by_the_first_file(tmp_path: Path):
    root = linked_folder(tmp_path)
    for read in (data.open_users, lambda path: data.open_users(path, store=path.with_name("store"))):
        with pytest.raises(
            InputError, match=r"cy/1.png \(user 'cy'\) names the same file as .*ann/1.png \(user 'ann'\)"
        ):
            read(root)


def test_classes_and_files_of_examples_are_counted(tmp_path: Path):
    root = pictures(tmp_path, ["cat", "Cat", "dog"])
    os.link(root / "dog" / "1.png", root / "dog" / "2.png")
    notes = data.open_examples(root).notes
    assert notes[0].startswith("2 of 3 classes have names that differ only in case")
    assert notes[1].endswith("dog/2.png that of dog/1.png for example: each is an example of its own")
    words = data.examples_from_arrays(np.eye(3), ["cat", "Cat", "dog"])
    assert words.notes[0].startswith("2 of 3 classes have names that differ only in case")


def test_ids_of_a_file_of_text_or_of_names_of_folders_are_texts(tmp_path: Path):
    """A column of numbers and NA is one of names; the order of whole numbers is theirs."""
    for names, order in (
        (["10", "9", "NA"], ["10", "9", "NA"]),
        (["10", "9", "2"], ["2", "9", "10"]),
        (["1.0", "1", "x"], ["1", "1.0", "x"]),
        (["1e3", "1000", "NaN"], ["1000", "1e3", "NaN"]),
    ):
        rows = [(name, place + 0.5) for place, name in enumerate(names)]
        for name, place in rows:  # folders are named in text, too
            (folder := tmp_path / "-".join(names) / f"who={name}").mkdir(parents=True)
            parquet(folder / "part.parquet", pa.table({"x": [place]}))
        for source in (csv_file(tmp_path / "t.csv", "who,x", rows), tmp_path / "-".join(names)):
            found = from_table(source)
            assert list(found.user_ids) == order
            for user, name in enumerate(found.user_ids):
                assert found.examples(user)[0].tolist() == [[names.index(name) + 0.5]]


def test_whole_numbers_in_tars_are_names_as_they_are_written(tmp_path: Path):
    for names, order in ((["007", "7", "NA"], ["007", "7", "NA"]), (["10", "9", "2"], ["2", "9", "10"])):
        found = shards(tmp_path, names, user="id", ending="id")
        assert list(found.user_ids) == order
        for user, name in enumerate(found.user_ids):
            assert found.examples(user)[0].tolist() == [[names.index(name) + 0.5]]


def test_a_key_twice_far_down_in_a_file_has_no_wrong_row(tmp_path: Path):
    rows = '{"who": "ann", "x": 1.5}\n' * 200_000
    (tmp_path / "t.jsonl").write_text(rows + '{"who": "bo", "x": 2.5, "\\u0077ho": "cy"}\n')
    with pytest.raises(InputError, match=r"t.jsonl cannot be read as JSON lines: 'who' is there twice in an object$"):
        from_table(tmp_path / "t.jsonl")


# Answers that are written in several ways are counted, whichever reader has met them.

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
SPELLED: dict[str, Callable[[bool, Path], list[str]]] = {
    "ehr_from_tables": lambda odd, folder: list(ehr_from_tables(_frame(odd), id="who", time="day").notes),
    "ehr_from_events": _events,
    "from_table": lambda odd, at: open_users(_frame(odd), user="who", input="day", label="smokes").summary(),
    "examples_from_table": lambda odd, at: open_examples(_frame(odd), input="day", label="smokes").summary(),
    "table": lambda odd, folder: open_examples(_parquet(odd, folder), schema=SCHEMA).summary(),
    "from_arrays": lambda odd, folder: from_arrays(np.zeros((12, 2)), ANSWERS[odd], list("abcd") * 3).summary(),
    "pictures": _pictures,
}


@pytest.mark.parametrize("reader", SPELLED)
def test_answers_in_several_spellings_are_counted_in_one_line(reader: str, tmp_path: Path):
    (tmp_path / "odd").mkdir()
    assert [SAID in line for line in SPELLED[reader](True, tmp_path / "odd")].count(True) == 1
    assert not any(SAID in line for line in SPELLED[reader](False, tmp_path))


def test_labels_that_are_to_be_randomised_must_be_declared_or_written_in_one_way(tmp_path: Path):
    for odd in (False, True):
        (path := tmp_path / "t.csv").write_text(_frame(odd).to_csv(index=False))
        declared = LabelSettings(label="smokes", epsilon=1.0, **{"domain.names": ("No", "YES", "no", "yes")})
        assert TableWork.of(open_label_file(path), declared).rows == 12
        found = LabelSettings(label="smokes", epsilon=1.0, **{"domain.public": True})
        if not odd:
            assert TableWork.of(open_label_file(path), found).names == ("no", "yes")
            continue
        with pytest.raises(InputError, match=f"{SAID}.*or declare the classes: domain.names"):
            TableWork.of(open_label_file(path), found)


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


def test_two_halves_of_a_character_in_two_names_are_no_valid_names() -> None:
    whole = Strings(np.frombuffer("aé".encode(), np.uint8), np.array([0, 1, 3]))
    halves = Strings(np.frombuffer("aéb".encode(), np.uint8), np.array([0, 2, 4]))
    refuse_undecodable(whole)
    with pytest.raises(InputError, match=r"the name of the user 'a\\udcc3' is no valid UTF-8"):
        refuse_undecodable(halves)
