"""What `--dry-run` and `check-model` approve, the run trains; what they refuse, it refuses, in the same words."""

import re
from pathlib import Path

import numpy as np
import pytest

from slow import one_in, slow_but

RUN = ("--public-classes", "--steps", 1, "--cohort", 4, "--noise", 1, "--threads", 1)

CLASSIFIERS = [
    ("pictures", "lenet5", ()),
    ("colours", "lenet5", ()),
    ("tiny", "lenet5", ()),
    ("floats", "lenet5", ()),
    ("floats", "lenet300_100", ()),
    ("numbers", "lenet300_100", ()),
    ("whole", "lenet300_100", ()),
    ("numbers", "lenet5", ()),
    ("numbers", "ctr", ()),
    ("pictures", "lenet5", ("--num-classes", 2)),
    ("pictures", "lenet5", ("--num-classes", 5)),
    ("pictures", "lenet5", ("--normalisation", "group")),
    ("pictures", "lenet5", ("--normalisation", "public_batch")),
    ("pictures", "lenet5", ("--model-options", "nothing=3")),
    ("pictures", "lenet5", ("--trainable", "norm")),
    ("pictures", "lenet5", ("--size", 9)),
    ("pictures", "lenet5", ("--pretrained", "none.safetensors")),
    ("few", "lenet5", ("--test-share", 0)),
    ("texts", "bilstm", ("--vocabulary", 50, "--length", 6, "--model-options", "hidden=4")),
    ("texts", "lenet5", ("--vocabulary", 50, "--length", 6)),
    ("pictures", "bilstm", ()),
]
BACKBONES = [
    (),
    ("--model", "resnet20"),
    ("--model", "resnet2"),
    ("--embedding-dim", 0),
    ("--trainable", "nothing"),
    ("--size", 2),
    ("--weights", "none.safetensors"),
    ("--clipping", "per_layer", "--clipping.shares", 1, 2),
    ("--test-share", 1),
    ("--validation-share", 0.1),
    ("--server", "rmsprop"),
]


@pytest.fixture
def records(tmp_path: Path):
    """Data of many kinds by name: `records("pictures")`."""
    rng = np.random.default_rng(0)

    def make(kind: str) -> Path:
        path = tmp_path / f"{kind}.npz"
        labels = np.arange(60) % 3
        if kind == "texts":
            path = tmp_path / "texts.csv"
            path.write_text("label,text\n" + "".join(f"{i % 3},this is text {i}\n" for i in range(60)))
            return path
        inputs = {
            "pictures": rng.integers(0, 256, (60, 16, 16, 1), np.uint8),
            "colours": rng.integers(0, 256, (60, 16, 16, 3), np.uint8),
            "tiny": rng.integers(0, 256, (60, 2, 2, 1), np.uint8),
            "floats": rng.random((60, 16, 16), np.float32),
            "numbers": rng.random((60, 7), np.float32),
            "whole": rng.integers(0, 9, (60, 7)),
            "few": rng.integers(0, 256, (2, 16, 16, 1), np.uint8),
        }[kind]
        np.savez(path, x=inputs, y=labels[: len(inputs)])
        return path

    return make


@pytest.mark.parametrize(("kind", "model", "more"), slow_but(CLASSIFIERS, *CLASSIFIERS[::3]), ids=str)
def test_a_classifier_is_checked_tried_and_trained_alike(sfumato, records, tmp_path: Path, kind, model, more):
    data = ("--data", records(kind), *more)
    checked = sfumato("check-model", model, *data)
    tried = sfumato("dpsgd", "--model", model, *data, *RUN, "--cohort", 2, "--dry-run")
    trained = sfumato("dpsgd", "--model", model, *data, *RUN, "--cohort", 2, "--out", tmp_path / "run")
    assert checked.code == tried.code == trained.code, (checked.err, tried.err, trained.err)
    assert tried.err == trained.err
    if trained.code:
        assert checked.line == trained.line


@pytest.mark.parametrize("more", one_in(3, BACKBONES), ids=str)
def test_a_backbone_is_tried_and_trained_alike(sfumato, people: Path, small, tmp_path: Path, more):
    words = ("fedemb", "--data", people, *small, "--rounds", 1, "--noise", 1, *more)
    tried, trained = sfumato(*words, "--dry-run"), sfumato(*words, "--out", tmp_path / "run")
    assert (tried.code, tried.err) == (trained.code, trained.err)
    if not tried.code:
        assert "dry run: model and data were tried out; nothing was trained or written" in tried.out
        assert not re.search(r"^\w+ +None$", tried.out, re.MULTILINE)


def test_trying_out_writes_nothing(sfumato, people: Path, small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert sfumato("fedemb", "--data", people, *small, "--noise", 1, "--dry-run").code == 0
    assert sfumato("check-model", "lenet300_100", "--data", people).code == 0
    assert list(tmp_path.iterdir()) == []


def test_without_records_nothing_is_said_to_have_been_tried(sfumato):
    shown = sfumato("fedemb", "--epsilon", 8, "--population", 100_000, "--dry-run")
    assert shown.out.endswith("\ndry run: nothing was trained or written\n")


def test_check_model_reads_the_shape_from_the_records(sfumato, people: Path):
    assert "leave them out" in sfumato("check-model", "lenet5", "--data", people, "--shape", 12, 12, 1).line
    assert "leave them out" in sfumato("check-model", "lenet5", "--data", people, "--kind", "ids").line
