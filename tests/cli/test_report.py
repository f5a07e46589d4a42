"""report: the page of one run or several, from the command line."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.page


def test_several_runs_come_to_one_page(sfumato, finished: Path, tmp_path: Path):
    shutil.copytree(finished, tmp_path / "again")
    out = tmp_path / "both.html"
    told = json.loads(sfumato("report", finished, tmp_path / "again", "--out", out, "--json").out)
    assert told["report"] == str(out)
    page = out.read_text()
    assert "finished" in page
    assert "again" in page


def test_the_terminal_says_the_verdict_of_the_page_in_at_most_eight_lines(sfumato, finished: Path, tmp_path: Path):
    out = tmp_path / "page.html"
    lines = sfumato("report", finished, "--out", out).out.splitlines()
    page = out.read_text()
    assert 3 <= len(lines) <= 8
    assert any(line.startswith("No protection. Stated for one person") and "epsilon" in line for line in lines)
    (said,) = (line for line in lines if line.startswith("No one is protected: the run was seeded"))
    assert said in page
    assert lines[-1].endswith(f"statement.json, {out}")


def test_a_public_page_shows_no_loss(sfumato, finished: Path, tmp_path: Path):
    for name, words in (("own", ()), ("public", ("--public",))):
        assert sfumato("report", finished, "--out", tmp_path / f"{name}.html", *words).code == 0
    own, public = ((tmp_path / f"{name}.html").read_text() for name in ("own", "public"))
    assert len(public) < len(own)
    assert "loss" in own.lower()


def test_a_folder_that_is_no_run_is_one_line(sfumato, people: Path, tmp_path: Path):
    assert str(people) in sfumato("report", people).line
    assert "RUN" in sfumato("report").line
    assert not (people / "report.html").exists()


def test_the_figure_of_the_extrapolation_is_a_picture(sfumato, tmp_path: Path):
    out = tmp_path / "figure.png"
    words = ("extrapolate", "--populations", "3e6", "--multipliers", 1, 2, "--figure")
    assert f"figure: {out}" in sfumato(*words, out).out
    assert out.read_bytes().startswith(b"\x89PNG")
    assert ".png" in sfumato(*words, tmp_path / "figure.gif").line
    assert "no folder" in sfumato(*words, tmp_path / "a" / "figure.png").line
