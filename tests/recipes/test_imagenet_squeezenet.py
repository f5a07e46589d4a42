"""The recipe's second table: SqueezeNet with ImageNet's weights; what is frozen stays, the statement says so."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sfumato import models
from sfumato.data import to_tensor
from sfumato.models.trainable import Part

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "recipes" / "imagenet_transfer"
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture
def recipe(script):
    """The module squeezenet.py."""
    return script("imagenet_transfer", "squeezenet")


def test_the_stages_are_the_network_and_grey_is_three_equal_colours(recipe):
    torch.manual_seed(0)
    model = recipe.imagenet_classifier(10, recipe.SIDE, None)
    torch.nn.init.normal_(model.head.weight)
    grey = torch.rand(3, 1, 28, 28) * 2 - 1
    whole = model(grey)
    assert torch.equal(Part(model, model.stages())(grey), whole)
    assert torch.equal(model(grey.expand(-1, 3, -1, -1)), whole)
    each = torch.cat([model(picture[None]) for picture in grey])
    assert torch.allclose(each, whole, atol=1e-4)  # logits of some 20, in float32
    assert whole.std(0).max() > 1e-3  # pictures differ


def test_pictures_reach_the_network_as_its_weights_expect_them(recipe):
    white = to_tensor(torch.full((1, 8, 8, 3), 255, dtype=torch.uint8).numpy())
    seen = recipe.imagenet_classifier(10, recipe.SIDE, None).inputs(white)
    assert seen.shape == (1, 3, recipe.SIDE, recipe.SIDE)
    expected = torch.tensor([(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225])
    assert torch.allclose(seen[0, :, 0, 0], expected, atol=0.5 / 128 / 0.224)  # 255 is half a 128th below 1


def test_rows_have_each_method_at_each_budget_and_train_what_they_say(recipe):
    rows = recipe.ROWS.values()
    assert len(rows) == 2 * 5 * 3
    assert {row.epsilon for row in rows} == {1, 2, 8}
    assert all(row.batch is None or row.batch >= 1024 for row in rows)
    model = recipe.imagenet_classifier(10, recipe.SIDE, None)
    trained = {word: models.trainable_parameters(model, spec) for word, spec in recipe.TRAINED.items()}
    assert {name.rsplit(".", 1)[0] for name, _ in trained["head"]} == {"head"}
    assert {".".join(name.split(".")[:3]) for name, _ in trained["last blocks"]} == {
        "trunk.features.10",
        "trunk.features.12",
        "head.weight",
        "head.bias",
    }
    assert len(trained["all"]) == len(list(model.parameters()))


def test_more_budget_is_less_noise(recipe):
    rows = [recipe.ROWS[f"{recipe.COLOURS}: features + linear: ε = {e}"] for e in (1, 2, 8)]
    noises = [recipe.plan_of(row, 6_000).noise_multiplier for row in rows]
    assert noises == sorted(noises, reverse=True)
    assert noises[0] > noises[-1] > 0


def test_rows_with_one_seed_need_no_other_run(recipe, tmp_path):
    def place(name: str, seed: int) -> Path:
        return tmp_path / name / str(seed)

    for name in recipe.ROWS:
        for seed in range(1 if name in recipe.LONE else 2):
            run = place(name, seed)
            run.mkdir(parents=True)
            (run / "statement.json").write_text('{"epsilon": 1.0, "delta": 1e-05, "unit": "example"}')
            (run / "plan.json").write_text('{"noise_multiplier": 1.0}')
            (run / "evaluation.json").write_text(json.dumps({"trained": {"accuracy": 0.25 + 0.5 * seed}}))
    rows = recipe.table(place, 2, False)
    assert [(row["seeds"], row["mean"]) for row in rows] == [
        (1, 0.25) if row.trained == "all" else (2, 0.5) for row in recipe.ROWS.values()
    ]


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is missing")
def test_frozen_weights_are_the_published_ones_and_the_statement_names_them(recipe, tmp_path):
    published = load_file(recipe.WEIGHTS)
    for method in ("features + linear", "last blocks"):
        run = tmp_path / method
        recipe.cell(f"{recipe.COLOURS}: {method}: ε = 8", 0, run, True, None)
        model = load_file(run / "model.safetensors")
        frozen = model["trunk.features.0.weight"]
        assert torch.equal(frozen, published["features.0.weight"].to(frozen.dtype))
        assert model["head.weight"].abs().max() > 0
        last = model["trunk.features.12.squeeze.weight"]
        assert torch.equal(last, published["features.12.squeeze.weight"]) == (method == "features + linear")
        statement = json.loads((run / "statement.json").read_text())
        assert {"text": recipe.PUBLIC} in statement["assumptions"]
        assert list((tmp_path / "caches" / method).iterdir())


@pytest.mark.shared
def test_settings_are_chosen_on_training_pictures_alone(script):
    choose = script("imagenet_transfer", "choose_squeezenet")
    for name, sizes in ((choose.LETTERS, (455 * 14, 455 * 2)), (choose.COLOURS, (5_000, 1_000))):
        train, held = choose.parts(name)
        whole, _ = choose.DATA[name]()
        assert (len(train), len(held)) == sizes
        digests = [
            {picture.tobytes() for picture in each.examples(range(len(each)))[0][0]} for each in (train, held, whole)
        ]
        assert digests[0] | digests[1] == digests[2]
        assert len(digests[0] & digests[1]) <= len(held) // 100  # a letter of a few strokes can be drawn alike
