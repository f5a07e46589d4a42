"""Words and files that nobody should give: each is one line that is true, names it and tells what to do."""

import errno
from pathlib import Path

import pytest

from sfumato.cli import main as cli

HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("account", "--steps", "it's"), "--steps must be a whole number, got it's;"),
        (("account", "--steps", "0x10"), "--steps must be a whole number, got 0x10;"),
        (("account", "--steps", ""), "--steps must be a whole number, got '';"),
        (("account", "--steps", HUGE), "--steps must be a whole number, got 99999"),
        (("account", "--steps=1e-3"), "--steps must be a whole number, got 1e-3;"),
        (("account", "--steps", "1e400"), "--steps must be a whole number, got 1e400;"),
        (("account", "--steps", "1.5e0"), "--steps must be a whole number, got 1.5e0;"),
        (("account", "--noise-multiplier", "१.५.१"), "--noise-multiplier must be a number, got १.५.१;"),
        (("account", "--noise-multiplier", "1e400"), "--noise-multiplier must be >= 0 and finite, got inf"),
        (("account", "--noise-multiplier", "nan"), "--noise-multiplier must be a number, got nan"),
        (("extrapolate", "--populations", "3e6", "many"), "--populations must be a number, got many;"),
        (("account", "--event", "a\0b"), "must be text in UTF-8"),
        (("ledger", "show", "a\0b"), "must be text in UTF-8"),
        (("data", "glyphs", "caf\udce9"), "word 3 of the command, 'caf\\udce9', must be text in UTF-8"),
        (("account", "@file"), "@file"),
        (("account", "--=3"), "there is no option --;"),
        (("dpsgd", "--data", ".", "--epsilon", 3), "has no classes"),
        (("fedemb", "--data", ".", "--epsilon", 3), "is none of: a packed store"),
        (("embed", ".", "x", "--out", "."), "."),
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_a_wild_word_is_named(sfumato, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words, named: str):
    monkeypatch.chdir(tmp_path)
    assert named in sfumato(*words).line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("account", "x" * 200_000), ("x" * 200_000,), ("account", "--event", "x" * 200_000)])
def test_a_very_long_word_is_told_by_its_ends(sfumato, words):
    assert len(sfumato(*words).line) < 700


def test_of_an_option_that_is_given_twice_the_last_counts(sfumato):
    words = ("account", "--noise-multiplier", 1, "--noise-multiplier", 2, "--json")
    assert '"noise_multiplier": 2.0' in sfumato(*words).out


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.yaml", b"[" * 1000, "nested too deep"),
        ("a.yaml", b"{a: " * 5000, "nested too deep"),
        ("a.json", b'{"a":' * 100_000, "nested too deep"),
        ("a.yaml", b"steps:\t3\n\tdelta: 1\n", "cannot be read as yaml"),
        ("a.yaml", b"plot: caf\xe9.svg\n", "is no text in UTF-8; save it so"),
        ("a.json", b'{"plot": "caf\xe9.svg"}', "is no text in UTF-8; save it so"),
        ("a.json", b'{"steps": ' + HUGE.encode() + b"}", "cannot be read as json"),
        ("a.yaml", b'"": 3\n', "there is no option ''"),
        ("a.yaml", b"stepps: 3\n", "there is no option stepps (did you mean steps?)"),
        ("a.yaml", b'plot: "a\\0b"\n', "plot"),
    ],
)
def test_a_settings_file_that_is_none(sfumato, tmp_path: Path, name: str, content: bytes, named: str):
    (tmp_path / name).write_bytes(content)
    line = sfumato("account", "--noise-multiplier", 1, "--config", tmp_path / name).line
    assert line.startswith(str(tmp_path / name))
    assert named in line


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOENT, "No such file", "a/b"), "a/b: No such file; give a path that exists"),
        (OSError(errno.EACCES, "Permission denied", "a"), "a: Permission denied; give a path that you may use"),
        (OSError(errno.ENOSPC, "No space left", "a"), "a: No space left; make room on the disk and run it again"),
        (OSError("something else"), "something else"),
        (MemoryError("Unable to allocate 3.5 GiB for an array"), "memory ran out (3.5 GiB were asked for); lower"),
        (MemoryError(), "memory ran out; lower the sizes and counts that were given, or make room"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "(9 bytes were"),
    ],
)
def test_what_ran_out_is_told_and_nothing_else(sfumato, monkeypatch: pytest.MonkeyPatch, error, expected: str):
    def fails(words: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_dispatch", fails)
    line = sfumato("account").line
    assert expected in line
    assert ("memory" in line) == ("memory" in expected or "bytes" in expected)
    assert ("disk" in line) == ("disk" in expected)


def test_an_error_of_ours_is_not_dressed_up_as_memory(sfumato, monkeypatch: pytest.MonkeyPatch):
    def fails(words: object) -> int:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(cli, "_dispatch", fails)
    with pytest.raises(RuntimeError, match="shapes differ"):
        sfumato("account")
