"""Every reader × every safeguard: refused or counted by one rule, in the same words; a reader without them fails here.

A reader is written down once (`safeguard_readers`), with what it reads three users from; a safeguard that cannot apply
to it has a reason.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from safeguard_files import csv_file, from_table, linked_folder, parquet, pictures, shards
from safeguard_readers import NAMES, NO_READER, READERS, REFUSED, WORDS
from sfumato import data
from sfumato._check import InputError
from sfumato.data.readers import USERS


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
