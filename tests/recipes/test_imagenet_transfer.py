"""The recipe of transfer: public weights are trained once, the first layers stay, the statement says what is public."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "recipes" / "imagenet_transfer" / "run.py"
SHARED = ROOT.parent / "shared" / "data"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

WAIT = """
import sys, time
sys.path[:0] = [{recipes!r}, {recipe!r}]
import numpy as np
import public_weights
from run import public_plan
from sfumato.data import examples_from_arrays

def train(data, plan, folder, file, source):
    with open(folder.parent / "trainings", "a") as log:
        log.write("one\\n")
    time.sleep(2)
    public_weights.save_weights(public_weights.network(data), file, metadata=source)

public_weights._train = train
data = examples_from_arrays(np.arange(10 * 8 * 8, dtype=np.uint8).reshape(10, 8, 8), [0, 1] * 5, num_classes=2)
print(public_weights.public_weights(data, public_plan(10, 1, 0.1, {steps}), public_weights.Path({folder!r})))
"""


def _waiting(folder: Path, steps: int) -> subprocess.CompletedProcess:
    """A process that needs public weights; training them takes two seconds."""
    recipe = SCRIPT.parent
    code = WAIT.format(recipes=str(recipe.parent), recipe=str(recipe), folder=str(folder), steps=steps)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)


def test_processes_that_start_together_train_public_weights_once(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: _waiting(tmp_path / "public", 1), range(2)))
    assert [each.returncode for each in done] == [0, 0], done
    assert (tmp_path / "public" / "trainings").read_text() == "one\n"
    assert load_file(tmp_path / "public" / "public.safetensors")
    other = _waiting(tmp_path / "public", 2)
    assert other.returncode != 0
    assert "choose another --out" in other.stderr


@pytest.fixture
def recipe(script):
    """The names of run.py."""
    return vars(script("imagenet_transfer"))


def test_the_rule_of_the_rate_and_the_frozen_layers_are_the_papers(recipe):
    from sfumato import models

    large = models.resnet18_classifier(10, 3, stem="imagenet")
    population = 1_281_167
    row = recipe["Row"](
        dataset="ImageNet", pretrained=True, trained="last stage", epsilon=10.0, batch=65_536, epochs=70
    )
    plan = recipe["plan_of"](row, large, population)
    assert plan.learning_rate == pytest.approx(0.03 * 65_536 / 256)
    assert (plan.momentum, plan.nesterov, plan.schedule, plan.clip_norm) == (0.9, True, "cosine", 1.0)
    assert (plan.steps, plan.warm_up) == (1368, 19)  # 70 epochs, of which one warms up
    assert plan.delta < 1 / population
    trained = {name.split(".")[0] for name, _ in models.trainable_parameters(large, plan.trainable)}
    assert trained == {"layer4", "embedding"}
    small = models.resnet20_classifier(10, 1, stem="imagenet")
    trained = models.trainable_parameters(small, recipe["last_stage"](small))
    assert {name.split(".")[0] for name, _ in trained} == {"layer3", "embedding"}


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is missing")
def test_nobody_who_draws_for_the_test_draws_for_training(recipe):
    task = recipe["letters"]()
    assert task.train.label_names == task.test.label_names
    assert (task.train.class_counts() == 4 * task.test.class_counts()).all()
    seen = {row.tobytes() for row in np.asarray(task.train.examples(range(len(task.train)))[0][0])}
    tested = [row.tobytes() for row in np.asarray(task.test.examples(range(len(task.test)))[0][0])]
    assert sum(row in seen for row in tested) < 0.01 * len(tested)
    ours, public = (data.examples(range(100))[0][0].mean() for data in (task.train, task.public))
    assert max(ours, public) < 128  # both bright on dark


@pytest.fixture
def pictures(tmp_path) -> Path:
    """Two public and three private classes of coloured pictures."""
    rng = np.random.default_rng(0)
    for part, classes in (("public", 2), ("private", 3)):
        for number in range(classes):
            folder = tmp_path / "pictures" / part / f"class{number}"
            folder.mkdir(parents=True)
            for index in range(12):
                Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8)).save(folder / f"{index}.png")
    return tmp_path / "pictures"


@pytest.mark.slow
def test_every_row_runs_on_folders_of_pictures_and_says_what_is_public(pictures, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--data", str(pictures), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out" / "quick"
    rows = {row["method"]: row for row in json.loads((out / "results.json").read_text())}
    assert len(rows) == 6
    assert [name for name, row in rows.items() if row["epsilon"] is None] == ["not private, from scratch"]
    public = load_file(out / "public-folders" / "public.safetensors")
    moved = {}
    for run in out.glob("folders*"):
        said = any(
            "pictures/public" in line["text"]
            for line in json.loads((run / "statement.json").read_text())["assumptions"]
        )
        assert said == ("pretrained" in run.name)
        model = load_file(run / "model.safetensors")
        assert model["embedding.weight"].shape[0] == 3
        moved[run.name] = {
            name.split(".")[0]
            for name in public
            if not name.startswith("embedding") and not torch.equal(public[name], model[name])
        }
    assert moved["folders--pretrained--first-layers-frozen-0"] == {"layer3"}
    assert moved["folders--pretrained--last-layer-0"] == set()
    assert {"conv1", "layer1"} <= moved["folders--pretrained--all-layers-0"]
    assert (
        not (SCRIPT.parent / "results.json").exists() or "folders" not in (SCRIPT.parent / "results.json").read_text()
    )
