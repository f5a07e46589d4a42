"""`sfumato dplc`: from two tables of embeddings to a run with directions, a ledger and a statement."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file


def table(path: Path, people: int, seed: int, *, pictures: int = 2, dimensions: int = 16) -> Path:
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(people), pictures)
    rows = rng.normal(size=(people, dimensions)) + 2 * np.eye(dimensions)[0] * (np.arange(people) % 3 == 0)[:, None]
    rows = (rows[owners] + 0.3 * rng.normal(size=(len(owners), dimensions))).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), dimensions)
    pq.write_table(pa.table({"user": [f"{seed}-{each}" for each in owners], "embedding": lists}), path)
    return path


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    private, public = table(tmp_path / "private.parquet", 600, 1), table(tmp_path / "public.parquet", 100, 2)
    return ["dplc", str(private), "--candidates", str(public), "--epsilon", "4", "--groups", "8", "--threshold", "80"]


def test_directions_are_released_and_everything_fits_together(sfumato, words, tmp_path) -> None:
    run = tmp_path / "run"
    done = sfumato(*words, "--releases", "2", "--dimensions", "8", "--out", str(run), "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["clusters"] == 2
    directions = load_file(run / "model.safetensors")["directions"]
    assert directions.shape == (2, 16)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1, atol=1e-3)
    assert told["statement"]["unit"] == "identity"
    assert told["statement"]["population"] == 600
    assert sfumato("ledger", "verify", str(run)).code == 0
    assert sfumato("report", str(run)).code == 0


def test_a_dry_run_says_how_large_a_group_must_be_and_writes_nothing(sfumato, words, tmp_path) -> None:
    done = sfumato(*words, "--dry-run")
    assert done.code == 0, done.err
    assert "a group needs about" in done.out
    assert "at its end the run would state" in done.out
    tiny = sfumato(*[word if word != "4" else "0.01" for word in words], "--dry-run")
    assert "more than all 600" in tiny.out
    assert "raise --epsilon, or take fewer --dimensions" in " ".join(tiny.out.split())
    assert {each.name for each in tmp_path.iterdir()} == {"private.parquet", "public.parquet"}


def test_a_run_without_a_large_group_says_what_to_change(sfumato, words, tmp_path) -> None:
    done = sfumato(*words[:-1], "599", "--out", str(tmp_path / "run"))
    assert done.code == 0, done.err
    assert "no group reached 599 identities" in done.out
    kept = load_file(tmp_path / "run" / "model.safetensors")
    assert (kept["directions"].shape, kept["unused"].shape) == ((0, 16), (1, 16))
    released = json.loads((tmp_path / "run" / "statement.json").read_text())["disclosure"]["released"]
    assert "also of those that are not used" in released
    again = sfumato(*words[:-1], "599", "--out", str(tmp_path / "run"), "--resume", "--json")
    assert json.loads(again.out)["already"]


REFUSED = {
    "no folder": ([], "give --out FOLDER"),
    "threshold": (["--threshold", "601", "--out", "run"], "needs as many identities, got 600"),
    "radius": (["--radius", "3.2", "--out", "run"], "radius must be in"),
    "groups": (["--groups", "101", "--out", "run"], "101 groups need as many public embeddings, got 100"),
    "other dimensions": (["--candidates", "wide.parquet", "--dry-run"], "centres have 16 dimensions and candidates 24"),
    "dimensions": (
        ["--dimensions", "17", "--out", "run"],
        "dimensions is 17, and there are 100 public embeddings of 16 dimensions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(sfumato, words, name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "wide.parquet", 100, 3, dimensions=24)
    more, said = REFUSED[name]
    done = sfumato(*words, *more)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") <= 2  # a warning on the model, and the refusal
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("more", [["--groups", "0"], [], ["--dimensions", "8"], ["--dry-run"]])
def test_the_same_people_in_both_tables_are_refused(sfumato, words, more, tmp_path) -> None:
    done = sfumato(*words[:3], words[1], *words[4:], *more, "--out", str(tmp_path / "run"))
    assert done.code == 2
    assert "is the centre of a private identity" in done.err
    assert "600 users have the same name in both files" in done.err
    assert not (tmp_path / "run").exists()


def test_a_row_without_a_user_is_refused(sfumato, words, tmp_path) -> None:
    rows = pq.read_table(words[1])
    users = [None if row == 7 else user for row, user in enumerate(rows["user"].to_pylist())]
    pq.write_table(rows.set_column(0, "user", pa.array(users, pa.string())), words[1])
    done = sfumato(*words, "--out", str(tmp_path / "run"))
    assert done.code == 2
    assert "row 7 has no user" in done.err


def test_a_dry_run_says_nothing_that_a_run_would_not_do(sfumato, words) -> None:
    assert "needs as many identities, got 600" in sfumato(*words[:-1], "601", "--dry-run").err
    wide = sfumato(*words, "--radius", "1.8", "--dry-run").out
    assert "cancel each other out" in wide
    assert "a group needs" not in wide
    printed = sfumato(*words, "--as-printed", "--dry-run").out
    assert "noise on a sum" not in printed
    assert "epsilon is infinite" in printed
    assert sfumato(*words, "--dimensions", "1", "--dry-run").code == 0
