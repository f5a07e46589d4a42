"""data pack and data glyphs: stores from the command line."""

import json
from pathlib import Path

import pytest
from PIL import Image

from sfumato import data


@pytest.mark.parametrize("keep", ["decoded", "encoded"])
def test_a_packed_folder_opens_with_the_same_people(keep: str, sfumato, people: Path, tmp_path: Path):
    words = ("data", "pack", people, tmp_path / "store", "--size", 8, "--keep", keep, "--json")
    told = json.loads(sfumato(*words).out)
    assert (tmp_path / "store" / "pictures.bin").exists() == (keep == "encoded")
    assert (told["users"], told["examples"], told["input_shape"]) == (16, 64, [8, 8, 1])
    store = data.open_users(tmp_path / "store")
    folder = data.open_users(people, size=8)
    assert list(store.user_ids) == list(folder.user_ids)
    assert (store.examples(3)[0] == folder.examples(3)[0]).all()


def test_height_and_width_may_differ(sfumato, people: Path, tmp_path: Path):
    told = json.loads(sfumato("data", "pack", people, tmp_path / "s", "--size", 6, 9, "--channels", 3, "--json").out)
    assert told["input_shape"] == [6, 9, 3]


def test_colour_stays_colour_without_a_word_about_it(sfumato, photos, tmp_path: Path):
    folder = photos(3, 2)
    for file in folder.rglob("*.png"):
        Image.open(file).convert("RGB").save(file)
    told = json.loads(sfumato("data", "pack", folder, tmp_path / "s", "--json").out)
    assert told["input_shape"] == [12, 12, 3]
    assert told["notes"] == []


def test_packing_refuses_a_broken_picture_or_skips_and_counts_it(sfumato, photos, tmp_path: Path):
    folder = photos(3, 2)
    (folder / "p01" / "0.png").write_bytes(b"not a picture")
    words = ("data", "pack", folder, tmp_path / "store")
    line = sfumato(*words).line
    assert "p01/0.png is not a picture" in line
    assert "leave out such files with --on-error skip;" in line
    shown = sfumato(*words, "--on-error", "skip")
    assert shown.code == 0
    assert "skipped 1 file" in shown.out
    assert "p01/0.png" in shown.out


def test_copies_are_listed_and_removed(sfumato, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sfumato.data.gather.MEMORY", 1)
    (note,) = (line for line in data.open_users(people).summary() if "private copy" in line)
    key = note.split("--remove ")[1].split()[0]
    assert f"of {people}" in sfumato("data", "stores").out
    assert sfumato("data", "stores", "--remove", key).out.startswith(
        f"removed {tmp_path / 'cache' / 'data' / key}, a copy"
    )
    assert sfumato("data", "stores").out == f"0 in {tmp_path / 'cache' / 'data'}; --remove KEY removes one\n"
    assert f"there is no copy '{key}'" in sfumato("data", "stores", "--remove", key).line


def test_what_opens_at_once_needs_no_packing(sfumato, people: Path, tmp_path: Path):
    assert sfumato("data", "pack", people, tmp_path / "store").code == 0
    assert "is a packed store already" in sfumato("data", "pack", tmp_path / "store", tmp_path / "s").line


@pytest.mark.parametrize("command", ["pack", "glyphs"])
def test_a_folder_that_is_not_empty_is_left_alone(sfumato, people: Path, tmp_path: Path, contents, command):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    before = contents(tmp_path / "mine")
    words = ("data", "pack", people) if command == "pack" else ("data", "glyphs")
    more = () if command == "pack" else ("--identities", 3, "--images", 1)
    assert "not empty" in sfumato(*words, tmp_path / "mine", *more).line
    assert contents(tmp_path / "mine") == before


def test_glyphs_become_a_store(sfumato, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    told = json.loads(sfumato("data", "glyphs", tmp_path / "g", "--identities", 5, "--images", 2, "--json").out)
    assert (told["users"], told["examples"]) == (5, 10)
    drawn = data.glyphs(5, 2)
    assert (data.open_users(tmp_path / "g").examples(4)[0] == drawn.examples(4)[0]).all()
