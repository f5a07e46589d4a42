"""Readers of texts and whose they are."""

import gzip
import json
from pathlib import Path

import pytest

from sfumato._check import InputError
from sfumato.data.text_users import records


def read(path: Path, user: str | None = None, text: str | None = None) -> list[tuple[str, str]]:
    return list(records(path, user=user, text=text))


def test_a_speech_belongs_to_the_role_above_it(tmp_path: Path):
    play = tmp_path / "play.txt"
    play.write_text("A LORD:\nGood morrow.\nTo thee: well met.\n\n\nAll:\nHail!\n\nA LORD:\nAgain,\n\nand on.\n")
    assert read(play) == [
        ("A LORD", "Good morrow.\nTo thee: well met."),
        ("All", "Hail!"),
        ("A LORD", "Again,\nand on."),
    ]


def test_a_role_that_says_nothing_is_no_record(tmp_path: Path):
    play = tmp_path / "play.txt"
    play.write_text("Ghost of GREY:\n\nGhost of RIVERS:\n\nAll:\nAwake!")
    assert read(play) == [("All", "Awake!")]


def test_a_line_that_ends_with_a_colon_within_a_speech_is_no_role(tmp_path: Path):
    play = tmp_path / "play.txt"
    play.write_text("MARCIUS:\nHang ye! Trust Ye?\nAnd say:\nnobody.\n")
    assert read(play) == [("MARCIUS", "Hang ye! Trust Ye?\nAnd say:\nnobody.")]


@pytest.mark.parametrize("name", ["posts.jsonl", "posts.ndjson", "posts.jsonl.gz"])
def test_json_lines_are_read_packed_or_not(tmp_path: Path, name: str):
    lines = [{"user": "bo", "text": "one"}, {"user": 7, "text": "two", "title": None}]
    content = "\n\n".join(map(json.dumps, lines)).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert read(tmp_path / name) == [("bo", "one"), ("7", "two")]


def test_fields_of_other_names_are_read(tmp_path: Path):
    (tmp_path / "posts.jsonl").write_text('{"who": "bo", "said": "one"}')
    assert read(tmp_path / "posts.jsonl", user="who", text="said") == [("bo", "one")]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", "\n\nTo be, or not to be", r"line 3 has no speaker.*'Role:'"),
        ("a.jsonl", '{"user": "a", "text": "b"}\n[1]', "line 2 is a list, not an object with user and text"),
        ("a.jsonl", '{"user": "a", "text": "b"}\n\n{"user"', "line 3 is not JSON"),
        ("a.jsonl", '{"user": "a", "body": "b"}', r"line 1 has no field 'text'; it has user, body; .*--input"),
        ("a.jsonl", '{"text": "b"}', r"line 1 has no field 'user'; it has text; .*--user"),
        ("a.jsonl", '{"user": null, "text": "b"}', "line 1: user must be a text or a whole number, got None"),
        ("a.jsonl", '{"user": "a", "text": 3}', "line 1: text must be a text, got 3"),
        (
            "a.jsonl",
            '{"user": "a\\ud800", "text": "b"}',
            r"line 1: the name of the user 'a\\ud800' is no valid UTF-8",
        ),
        # two halves that are the bytes of another name: both would be read back as "é"
        ("a.jsonl", '{"user": "\\udcc3\\udca9", "text": "b"}', r"the user '\\udcc3\\udca9' is no valid UTF-8"),
        ("a.csv", "user,text", "cannot be read as texts of users; give JSON lines"),
    ],
)
def test_what_is_not_as_it_should_be_is_named_with_its_line(tmp_path: Path, name: str, content: str, told: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=told):
        read(tmp_path / name)


def test_fields_are_for_json_lines_only(tmp_path: Path):
    (tmp_path / "a.txt").write_text("All:\nHail!")
    with pytest.raises(InputError, match="user='who' is a field of JSON lines"):
        read(tmp_path / "a.txt", user="who")


def test_a_file_that_is_cut_off_is_refused_in_one_line(tmp_path: Path):
    whole = gzip.compress(b'{"user": "a", "text": "b"}\n' * 5000)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be read behind line"):
        read(tmp_path / "a.jsonl.gz")
    (tmp_path / "b.txt").write_bytes(b"All:\n\xff\xfe")
    with pytest.raises(InputError, match=r"is not UTF-8 behind line 0 .*convert it"):
        read(tmp_path / "b.txt")
    (tmp_path / "c.jsonl.gz").write_text('{"user": "a", "text": "b"}')
    with pytest.raises(InputError, match=r"not compressed by gzip.*leave \.gz out"):
        read(tmp_path / "c.jsonl.gz")
