"""Messages on the command line name options, propose what helps, and know what a user may have meant."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

NOISE = ("--noise", 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--cohort", 10, "--cohort.users-per-client", 2, *NOISE),
            "lower --cohort.size or --cohort.users-per-client",
        ),
        (
            ("--cohort.users-per-client", 1, "--cohort", 2, *NOISE),
            "--cohort.users-per-client > 1, or --client.head.classes global",
        ),
        (("--clipping", "None", *NOISE), "or use --noise 0 for a run without privacy"),
        (
            ("--trainable", "all", "--cohort", 2, "--cohort.users-per-client", 2, "--prefix-cache", "c", *NOISE),
            "or leave out --prefix-cache",
        ),
    ],
)
def test_fields_are_told_as_options(sfumato, people: Path, tmp_path: Path, monkeypatch, words, told: str):
    monkeypatch.chdir(tmp_path)
    line = sfumato("fedemb", "--data", people, *words).line
    assert told in line
    assert "(--prefix-cache)" not in line


def test_a_settings_file_is_told_by_its_own_names(sfumato, people: Path, tmp_path: Path):
    file = tmp_path / "plan.yaml"
    file.write_text("roundz: 2\n")
    line = sfumato("fedemb", "--data", people, "--config", file).line
    assert "there is no option roundz (did you mean rounds?)" in line


@pytest.mark.parametrize("name", ["--dash", "-dash"])
def test_a_user_whose_name_begins_with_a_dash_is_found(sfumato, photos, finished: Path, tmp_path: Path, name: str):
    people, out = photos(2, 2), tmp_path / "e.parquet"
    (people / "p00").rename(people / name)
    assert sfumato("embed", finished, people, "--out", out).code == 0
    assert f"for a value of --user, write --user={name}" in sfumato("search", out, "--user", name).line
    told = sfumato("search", out, f"--user={name}", "--neighbours", 1)
    assert told.code == 0, told.err
    assert name in told.out
    assert "write" not in sfumato("search", out, "--itself", name).line


def test_pictures_of_two_sizes_are_told_a_size_that_they_have(sfumato, photos):
    people = photos(3, 2, side=112)
    Image.fromarray(np.zeros((100, 112), np.uint8)).save(people / "p01" / "0.png")
    assert "--size 112," in sfumato("fedemb", "--data", people, *NOISE).line
    Image.fromarray(np.zeros((100, 112), np.uint8)).save(people / "p00" / "0.png")
    line = sfumato("fedemb", "--data", people, *NOISE).line
    assert "--size 100 112," in line
    words = ("--size", 100, 112, "--rounds", 1, "--cohort", 1, "--cohort.users-per-client", 1)
    assert "brought" in sfumato("fedemb", "--data", people, *NOISE, *words, "--test-share", 0, "--dry-run").out


@pytest.mark.parametrize("more", [(), ("--input", "picture")])
def test_a_table_of_addresses_is_told_what_is_read(sfumato, tmp_path: Path, more):
    file = tmp_path / "faces.csv"
    file.write_text("who,picture\nbo,https://x.org/1.jpg\nal,https://x.org/2.jpg\n")
    line = sfumato("fedemb", "--data", file, "--user", "who", *more, *NOISE).line
    assert "'picture' holds addresses, and pictures are read from files; download them" in line
