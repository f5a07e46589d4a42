"""Public negatives on the command line: pictures of others join every client, who may then hold a single class."""

import json
from pathlib import Path

import pytest

ROUNDS = ("--rounds", 3, "--client.epochs", 1, "--embedding-dim", 8, "--cohort", 3, "--seed", 1)
ALONE = ("--cohort.users-per-client", 1, "--noise", 1)


@pytest.fixture
def strangers(photos) -> Path:
    """Public pictures of another size, of six people who are nobody's."""
    return photos(6, 2, side=20)


def test_people_of_one_class_are_clients_of_their_own(sfumato, people: Path, strangers: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "run", ("--negatives", strangers, "--client.negatives", 4)
    assert "--client.negatives" in sfumato("fedemb", "--data", people, *ROUNDS, *ALONE).line
    tried = sfumato("fedemb", "--data", people, *ROUNDS, *ALONE, *words, "--dry-run")
    assert tried.code == 0
    assert "12 examples of 6 classes" in tried.out
    assert sfumato("fedemb", "--data", people, *ROUNDS, *ALONE, *words, "--out", out).code == 0
    statement = json.loads((out / "statement.json").read_text())
    assert any("12 examples of 6 classes" in line["text"] for line in statement["assumptions"])
    assert "virtual_clients" not in [line.get("id") for line in statement["assumptions"]]
    told = (out / "model.safetensors").read_bytes()
    assert sfumato("fedemb", "--resume", out).code == 0
    assert (out / "model.safetensors").read_bytes() == told


def test_negatives_of_no_use_are_refused_in_one_line(sfumato, people: Path, strangers: Path, tmp_path: Path) -> None:
    words = ("--data", people, *ROUNDS, "--noise", 1, "--cohort.users-per-client", 2)
    assert "takes none of them" in sfumato("fedemb", *words, "--negatives", strangers).line
    four = ("--client.negatives", 4)
    assert "give negatives (--negatives)" in sfumato("fedemb", *words, *four).line
    nowhere = sfumato("fedemb", *words, *four, "--negatives", tmp_path / "none").line
    assert nowhere.startswith(f"--negatives: there is nothing at {tmp_path / 'none'}")
    assert "are training records" in sfumato("fedemb", *words, *four, "--negatives", people).line
    many = ("--client.negatives", 7, "--negatives", strangers)
    assert "6 classes" in sfumato("fedemb", *words, *many).line
    plain = ("--data", people, "--rounds", 3, "--cohort", 3, "--noise", 0)
    assert "fedavg takes no public negatives" in sfumato("fedavg", *plain, "--negatives", strangers).line


@pytest.mark.parametrize("cached", [False, True])
def test_a_run_goes_on_beside_the_same_negatives_only(
    sfumato, people: Path, photos, strangers: Path, tmp_path: Path, cached: bool
) -> None:
    out = tmp_path / "run"
    given = ("--negatives", strangers, "--client.negatives", 4)
    more = ("--prefix-cache", tmp_path / "cache", "--trainable", "last") if cached else ()
    assert sfumato("fedemb", "--data", people, *ROUNDS, *ALONE, *given, *more, "--out", out).code == 0
    others = photos(6, 3, side=20)
    line = sfumato("fedemb", "--resume", out, "--negatives", others).line
    assert f"the negatives differ from those of the run in {out}" in line
    assert "--negatives" in line
    assert "another plan" not in line
    assert sfumato("fedemb", "--resume", out).code == 0
