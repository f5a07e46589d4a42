"""What somebody does to the files of a run while it goes on: it stops with one line, and nothing is lost."""

import os
import shutil
from pathlib import Path

import pytest

from sfumato._check import InputError
from sfumato.ledger import Ledger
from small_run import work


def replace(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    os.replace(path.with_suffix(".copy"), path)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def delete(path: Path) -> None:
    path.unlink()


def rewrite(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"round":1', b'"round":7'))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize(
    ("disturb", "words"),
    [
        (replace, "was replaced by another file"),
        (delete, "was deleted"),
        (shorten, "was changed"),
        (rewrite, "was changed"),
    ],
)
def test_a_ledger_that_somebody_touches_stops_the_run_before_the_next_release(tmp_path, disturb, words):
    out = tmp_path / "run"
    whole: list[bytes] = []

    def each(index, run):
        if index == 3:
            whole.append((out / "ledger.jsonl").read_bytes())
            disturb(out / "ledger.jsonl")

    with pytest.raises(InputError, match=words) as caught:
        work(out, each=each)
    assert "\n" not in str(caught.value)
    if disturb in (replace, delete):  # what only the open file held is kept
        assert (out / "ledger.jsonl.kept").read_bytes() == whole[0]
        os.replace(out / "ledger.jsonl.kept", out / "ledger.jsonl")
        work(out, resume=True)
        assert Ledger.read(out / "ledger.jsonl").releases == 4


def test_a_folder_that_is_deleted_is_told_as_that(tmp_path):
    for index in range(4):
        out = tmp_path / f"run{index}"
        with pytest.raises(InputError, match="was deleted while the run went on") as caught:
            work(out, each=lambda at, run, index=index, out=out: shutil.rmtree(out) if at == index else None)
        assert "\n" not in str(caught.value)
        assert not out.exists()
