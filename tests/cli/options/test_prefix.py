"""--prefix-cache and adapters: commands that go on, and models that are built again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from sfumato import data, models
from sfumato.training.frozen_features import PrefixCache

FROZEN = ("--trainable", "last_blocks:1+last", "--noise", 1, "--seed", 1)


def embeddings(file: Path) -> np.ndarray:
    return np.array(pq.read_table(file)["embedding"].to_pylist(), np.float32)


def test_a_run_behind_a_cache_ends_as_the_run_without(sfumato, people: Path, small, tmp_path: Path):
    for name, more in {"with": ("--prefix-cache", tmp_path / "cache"), "without": ()}.items():
        run = sfumato("fedemb", "--data", people, *small, *FROZEN, *more, "--out", tmp_path / name)
        assert run.code == 0, run.err
        assert sfumato("embed", tmp_path / name, people, "--out", tmp_path / f"{name}.parquet").code == 0
        assert sfumato("report", tmp_path / name).code == 0
    ours, theirs = (embeddings(tmp_path / f"{name}.parquet") for name in ("with", "without"))
    assert np.abs(ours - theirs).max() < 1e-4  # of vectors of length one, after 3 rounds in single precision
    statements = [json.loads((tmp_path / name / "statement.json").read_text()) for name in ("with", "without")]
    assert statements[0]["epsilon"] == statements[1]["epsilon"]
    assert statements[0]["assumptions"] == statements[1]["assumptions"]
    about = json.loads((tmp_path / "with" / "plan.json").read_text())["about"]
    assert about["prefix_cache"] == str(tmp_path / "cache")


def test_a_run_of_frozen_layers_that_nobody_seeded_goes_on(sfumato, people: Path, small, tmp_path: Path):
    words = ("--data", people, *small, *FROZEN[:4], "--prefix-cache", tmp_path / "cache", "--out", tmp_path / "run")
    assert sfumato("fedemb", *words).code == 0
    again = sfumato("fedemb", "--resume", tmp_path / "run")
    assert again.code == 0, again.err
    assert "was finished before" in again.out


@pytest.mark.parametrize("command", ["fedavg", "fedsgd", "centralized"])
def test_other_commands_take_it_too(sfumato, people: Path, tmp_path: Path, command):
    noise = () if command == "centralized" else ("--noise", 1, "--cohort", 3, "--public-classes")
    words = ("--rounds", 2, "--embedding-dim", 8, "--trainable", "last", *noise, "--prefix-cache", tmp_path / "cache")
    done = sfumato(command, "--data", people, *words, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert (tmp_path / "cache" / "private-data" / "store.json").exists()
    assert sfumato("embed", tmp_path / "run", people, "--out", tmp_path / "e.parquet").code == 0


def test_test_pictures_from_elsewhere_have_rows_of_their_own(sfumato, people: Path, photos, small, tmp_path: Path):
    words = ("--test", photos(4, 3), "--prefix-cache", tmp_path / "cache", "--out", tmp_path / "run")
    done = sfumato("fedemb", "--data", people, *small, *FROZEN, *words)
    assert done.code == 0, done.err
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"README.txt", "private-data", "private-test"}


def test_adapters_are_built_again_and_the_frozen_layers_are_as_they_began(sfumato, people, small, tmp_path: Path):
    given = ("--lora-rank", 2, "--lora-layers", "conv2", "--projection", 4, "--trainable", "lora|projection")
    words = (*small, *given, "--noise", 1, "--seed", 1, "--prefix-cache", tmp_path / "cache")
    done = sfumato("fedemb", "--data", people, *words, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert sfumato("embed", tmp_path / "run", people, "--out", tmp_path / "e.parquet").code == 0
    assert embeddings(tmp_path / "e.parquet").shape[1] == 4
    file = tmp_path / "run" / "model.safetensors"
    told = models.read_metadata(file)
    assert (told["lora_rank"], told["lora_layers"], told["projection"]) == (2, "conv2", 4)
    model = models.lenet(8, 1, 12)
    models.add_lora(model, rank=2, layers="conv2")
    model = models.add_projection(model, 8, 4)
    models.load_weights(model, file)
    inputs = data.to_tensor(np.zeros((1, 12, 12, 1), np.uint8))
    with torch.no_grad():
        assert torch.allclose(models.merge_lora(model)(inputs), model(inputs), atol=1e-5)


def stopped_in_cache(monkeypatch, after: int):
    """Ctrl-C once so many rows are done."""
    before = PrefixCache._computed
    done = 0

    def computed(self: PrefixCache, rows: np.ndarray) -> np.ndarray:
        nonlocal done
        done += len(rows)
        if done > after:
            raise KeyboardInterrupt
        return before(self, rows)

    monkeypatch.setattr(PrefixCache, "_computed", computed)


def test_a_stop_while_the_cache_is_made_names_no_run_and_the_same_command_goes_on(
    sfumato, people: Path, small, tmp_path: Path, monkeypatch
):
    cache, out = tmp_path / "cache", tmp_path / "run"
    words = ("fedemb", "--data", people, *small, *FROZEN, "--prefix-cache", cache, "--out", out)
    with monkeypatch.context() as patched:
        stopped_in_cache(patched, after=32)
        told = sfumato(*words)
    assert told.code == 130
    assert told.err == (
        "sfumato: stopped while the records went through the frozen layers, and no run has begun; run the same command "
        f"again, and {cache} goes on where it stopped\n"
    )
    assert "--resume" not in told.out
    assert not out.exists()
    seen: list[int] = []
    before = PrefixCache._computed
    monkeypatch.setattr(PrefixCache, "_computed", lambda self, rows: (seen.append(len(rows)), before(self, rows))[1])
    again = sfumato(*words)
    assert again.code == 0, again.err
    assert f"go on after a stop with: sfumato fedemb --resume {out}" in again.out
    assert sum(size for size in seen if size > 1) == 64 - 32  # single rows are looked at again
    shutil.rmtree(cache)
    with monkeypatch.context() as patched:
        stopped_in_cache(patched, after=32)
        told = sfumato("fedemb", "--resume", out)
    assert "no run has begun" not in told.err
    assert "run the same command again" in told.err


def test_a_stop_with_layers_that_are_drawn_anew_each_time_says_so(sfumato, people, small, tmp_path, monkeypatch):
    words = ("fedemb", "--data", people, *small, *FROZEN[:4], "--prefix-cache", tmp_path / "cache", "--out")
    with monkeypatch.context() as patched:
        stopped_in_cache(patched, after=32)
        told = sfumato(*words, tmp_path / "run")
    assert "without --weights and --seed these layers are others each time" in told.err
    assert f"delete {tmp_path / 'cache'} and start again" in told.err
    assert "was begun with other options" in sfumato(*words, tmp_path / "run").line


REFUSED = {
    "everything": (
        ("--trainable", "all", "--prefix-cache", "cache"),
        "nothing is frozen before the first trained layer",
    ),
    "no rank": (("--lora-layers", "conv2"), "--lora-layers names layers for --lora-rank"),
    "no such layer": (
        ("--lora-rank", 2, "--lora-layers", "fire", "--trainable", "lora"),
        "--lora-rank 2 --lora-layers 'fire': layers='fire' names none to give an adapter of rank 2; the convolutions "
        "and dense layers of this LeNet are conv1, conv2, embedding",
    ),
    "too high": (
        ("--lora-rank", 99, "--lora-layers", "conv1", "--trainable", "lora"),
        "rank 99 must be below 25, that of layer conv1",
    ),
    "adapters that nobody trains": (("--lora-rank", 2), "give lora (adapters alone)"),
    "no adapters to train": (("--trainable", "lora+last"), "there are none; add --lora-rank 4"),
    "no projection to train": (("--trainable", "projection"), "there is none; add --projection 64"),
    "blocks": (("--trainable", "last_blocks:7"), "last_blocks must be from 1 to 2, the blocks of this LeNet, got 7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_line_and_leaves_nothing(sfumato, people, small, tmp_path: Path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    words, line = REFUSED[name]
    assert line in sfumato("fedemb", "--data", people, *small, "--noise", 1, *words, "--out", "run").line
    assert list(tmp_path.iterdir()) == []


def test_another_model_or_other_pictures_are_refused_with_the_remedy(sfumato, people, photos, small, tmp_path: Path):
    words = (*small, "--trainable", "last", "--noise", 1, "--prefix-cache", tmp_path / "cache")
    assert sfumato("fedemb", "--data", people, *words, "--seed", 1, "--out", tmp_path / "run").code == 0
    other = sfumato("fedemb", "--data", people, *words, "--seed", 2, "--out", tmp_path / "two").line
    assert "private-data was made of something else (layers" in other
    assert "delete this one and it is made again" in other
    others = sfumato("fedemb", "--data", photos(16, 4), *words, "--seed", 1, "--out", tmp_path / "two").line
    assert "private-data was made of something else (records" in others
    assert not (tmp_path / "two").exists()


def test_models_that_are_no_backbones_take_no_adapters(sfumato, tmp_path: Path):
    (tmp_path / "play.txt").write_text("ROMEO:\nIt is the east.\n\nJULIET:\nAy me.\n\n" * 4)
    words = ("--text", "characters", "--model", "lstm", "--noise", 1, "--cohort", 2)
    line = sfumato("fedavg", "--data", tmp_path / "play.txt", *words, "--lora-rank", 2, "--test-share", 0).line
    assert "--lora-rank is for backbones of embeddings" in line
