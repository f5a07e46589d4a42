"""Which models commands train: those of the catalogue, a user's own, and layers that would stay at random values."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sfumato import data, models
from sfumato.cli.models import ClassifierOptions, ModelOptions, _usual_model, reads, with_usual_model
from sfumato.models import BACKBONES, CLASSIFIERS, LANGUAGE_MODELS, RECOMMENDERS
from slow import slow_but

# The help of --model lists the networks of the catalogue.


NAMES = {ModelOptions: BACKBONES + LANGUAGE_MODELS + RECOMMENDERS, ClassifierOptions: CLASSIFIERS + RECOMMENDERS}


@pytest.mark.parametrize("options", NAMES, ids=lambda options: options.__name__)
def test_the_help_names_every_network(options):
    assert set(NAMES[options]) <= set(re.findall(r"\w+", options.__doc__))


def test_pictures_are_those_classifiers_that_read_nothing_else():
    of_pictures = {name for name in CLASSIFIERS if (reads(name) or "").startswith("pictures")}
    assert of_pictures == {"lenet5", "resnet18", "resnet20", "wrn16_4", "scatternet"}
    assert reads("networks:mine") is None


# Layers that published weights do not have: trained, or refused; never random and frozen.


SMALL = ("--noise", 1, "--rounds", 1, "--cohort", 2, "--cohort.users-per-client", 2)
SQUEEZENET = ("--model", "squeezenet", "--channels", 3)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SqueezeNet's features and classifier, under torchvision's names."""
    model = models.squeezenet(None, 3, generator=torch.Generator().manual_seed(0))
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    tensors |= {"classifier.1.weight": torch.zeros(10, 512, 1, 1), "classifier.1.bias": torch.zeros(10)}
    file = tmp_path_factory.mktemp("weights") / "squeezenet.safetensors"
    save_file(tensors, file)
    return file


def words(people: Path, published: Path, *more: object) -> tuple[object, ...]:
    return ("fedemb", "--data", people, *SMALL, *SQUEEZENET, "--weights", published, "--dry-run", *more)


@pytest.mark.parametrize(
    ("trainable", "named", "remedy"),
    [
        ("last", "features.0.weight", "--trainable 'last+first'"),
        ("first", "embedding.weight", "--trainable 'first+last'"),
        ("last_blocks:2", "features.0.weight, embedding.weight", "--trainable 'last_blocks:2+first+last'"),
        ("features.12", "features.0.weight, embedding.weight", "--trainable 'features.12+first+last'"),
    ],
)
def test_a_new_layer_that_no_one_trains_is_refused_with_what_trains_it(
    sfumato, people: Path, published: Path, trainable: str, named: str, remedy: str
):
    line = sfumato(*words(people, published, "--trainable", trainable)).line
    assert f"has nothing for {named}, which --trainable {trainable} would leave frozen at random values" in line
    assert remedy in line
    assert ("--size 64" in line) == ("features.0" in named)
    told = sfumato(*words(people, published, "--trainable", remedy.split("'")[1]))
    assert told.code == 0, told.err


def test_larger_pictures_have_the_first_layer_of_the_file(sfumato, people: Path, published: Path):
    assert sfumato(*words(people, published, "--trainable", "last", "--size", 64)).code == 0


def test_a_random_embedding_before_a_projection_is_refused(sfumato, people: Path, published: Path):
    given = ("--size", 64, "--projection", 8, "--trainable")
    line = sfumato(*words(people, published, *given, "projection")).line
    assert "has nothing for backbone.embedding.weight" in line
    assert r"--trainable 'projection|backbone\.embedding\.'" in line
    assert "leave out --projection" in line
    assert sfumato(*words(people, published, *given, r"projection|backbone\.embedding\.")).code == 0
    assert "projection.weight" in sfumato(*words(people, published, *given, "last_blocks:1")).line


def test_a_random_layer_under_an_adapter_is_refused(sfumato, people: Path, published: Path):
    given = ("--size", 64, "--lora-rank", 2, "--trainable", "lora+last")
    line = sfumato(*words(people, published, *given)).line
    assert "has nothing for embedding.weight" in line
    assert "adapt the other layers only (--lora-layers '^(?!(embedding)$)') and train it whole" in line
    assert sfumato(*words(people, published, *given, "--lora-layers", "^(?!(embedding)$)")).code == 0


def test_nothing_is_refused_where_all_is_trained_or_nothing_was_loaded(sfumato, people: Path, published: Path):
    assert sfumato(*words(people, published)).code == 0
    assert sfumato("fedemb", "--data", people, *SMALL, "--trainable", "last", "--dry-run").code == 0


@pytest.mark.slow
def test_a_classifier_whose_classes_are_new_trains_its_last_layer(sfumato, people: Path, tmp_path: Path):
    model = models.classifier("lenet300_100", 3, [(12, 12, 1)])
    file = tmp_path / "other.safetensors"
    models.save_weights(model, file)
    given = ("dpsgd", "--data", people, "--model", "lenet300_100", "--pretrained", file, "--noise", 1)
    steps = ("--steps", 1, "--cohort", 2, "--public-classes", "--dry-run", "--trainable")
    assert "has nothing for" in sfumato(*given, *steps, "first").line
    assert sfumato(*given, *steps, "first+last").code == 0


# A network of one's own by the name of its module and class, in every command that takes a model.


NETWORKS = '''
import torch
from torch import nn


class Digits(nn.Module):
    """Logits of three classes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, pictures):
        return self.layers(pictures)


class Coupled(Digits):
    """The same with batch norm."""

    def __init__(self):
        super().__init__()
        self.layers.insert(2, nn.BatchNorm1d(8))


class Ranks(Digits):
    """Approved by its layers, and it mixes examples all the same."""

    def forward(self, pictures):
        found = super().forward(pictures)
        return found - found.mean(dim=0)


class Faces(nn.Module):
    """Embeddings of four numbers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.out = nn.Linear(16, 4)

    def forward(self, pictures):
        return self.out(self.layers(pictures))
'''
STEPS = ("--steps", 2, "--cohort", 8, "--noise", 1, "--delta", 1e-3, "--seed", 1, "--test-share", 0)
STEPS += ("--public-classes",)


@pytest.fixture
def my_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package of networks, in which the commands run, and records for them."""
    package = tmp_path / "own_networks"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "small.py").write_text(NETWORKS)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (32, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "digits.npz", images=pictures, labels=np.arange(32) % 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_check_model_approves_the_run_and_its_dry_run_take(sfumato, my_models: Path) -> None:
    model, data = "own_networks.small:Digits", my_models / "digits.npz"
    assert sfumato("check-model", model, "--data", data).code == 0
    words = ("dpsgd", "--data", data, "--model", model, *STEPS)
    assert "model and data were tried out" in sfumato(*words, "--dry-run").out
    assert not (my_models / "runs").exists()
    assert sfumato(*words, "--out", my_models / "run").code == 0
    assert json.loads((my_models / "run" / "plan.json").read_text())["about"]["model"] == model


@pytest.mark.parametrize(("kind", "said"), [("Coupled", "fix_model|BatchNorm1d"), ("Ranks", "mixes them|coupled")])
def test_what_check_model_refuses_the_run_and_its_dry_run_refuse(
    sfumato, my_models: Path, kind: str, said: str
) -> None:
    model, data = f"own_networks.small:{kind}", my_models / "digits.npz"
    for words in (
        ("check-model", model, "--data", data),
        ("dpsgd", "--data", data, "--model", model, *STEPS, "--dry-run"),
        ("dpsgd", "--data", data, "--model", model, *STEPS, "--out", my_models / "run"),
    ):
        shown = sfumato(*words)
        assert shown.code == 2, words
        assert re.search(said, shown.line), words


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_start(sfumato, my_models: Path) -> None:
    words = ("dpsgd", "--data", my_models / "digits.npz", "--model", "own_networks.small:Digits", *STEPS)
    for name in ("one", "two"):
        assert sfumato(*words, "--out", my_models / name).code == 0
    assert (my_models / "one" / "model.safetensors").read_bytes() == (
        my_models / "two" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("command", slow_but(["fedemb", "fedavg", "fedsgd", "centralized"], "fedemb"))
def test_plans_of_users_take_it_and_embed_finds_it_again(sfumato, my_models: Path, people: Path, command: str) -> None:
    words = [command, "--data", people, "--model", "own_networks.small:Faces", "--rounds", 1]
    if command == "fedemb":
        words += ["--cohort.users-per-client", 2]
    if command != "centralized":
        words += ["--cohort", 3, "--noise", 1, "--delta", 1e-3, "--public-classes"]
    assert sfumato(*words, "--dry-run").code == 0, command
    shown = sfumato(*words, "--embedding-dim", 9, "--out", my_models / "run")
    assert shown.code == 2
    assert "own_networks.small:Faces decides it itself: leave it out" in shown.line
    shown = sfumato(*words, "--out", my_models / "run")
    assert shown.code == 0, shown.err
    assert sfumato("embed", my_models / "run", people, "--out", my_models / "people.parquet").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("dpsgd", "--model", "own_networks.small:Nobody", "--noise", 1, "--delta", 1e-3),
        ("fedemb", "--model", "own_networks.small:Nobody", "--noise", 1, "--population", 99),
    ],
)
def test_a_dry_run_finds_what_is_not_there(sfumato, my_models: Path, words: tuple[object, ...]) -> None:
    given = (*words, *(("--data", my_models / "digits.npz") if words[0] == "dpsgd" else ()), "--dry-run")
    shown = sfumato(*given)
    assert shown.code == 2
    assert "own_networks.small has no Nobody" in shown.line


def test_settings_of_our_models_are_refused_next_to_it(sfumato, my_models: Path) -> None:
    words = ("dpsgd", "--data", my_models / "digits.npz", "--model", "own_networks.small:Digits", *STEPS, "--dry-run")
    shown = sfumato(*words, "--model-options", "hidden=3")
    assert shown.code == 2
    assert "--model-options is for the models of this package" in shown.line


# `sfumato check-model`: which layers take which path, what is refused and what to use instead, and what it costs.


RESNET = '''
from torch import nn
from torch.nn import functional as F


def conv3x3(planes_in, planes, stride=1):
    return nn.Conv2d(planes_in, planes, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """Two convolutions with batch norm and a shortcut, under torchvision's names."""

    def __init__(self, planes_in, planes, stride=1):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(planes_in, planes, stride), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3x3(planes, planes), nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or planes_in != planes:
            shortcut = nn.Conv2d(planes_in, planes, kernel_size=1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """Four stages of blocks behind a stem, as torchvision's, with fewer channels."""

    def __init__(self, classes=7, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        for place in range(1, 5):
            first = BasicBlock(sizes[place - 1], sizes[place], stride=1 if place == 1 else 2)
            setattr(self, f"layer{place}", nn.Sequential(first, BasicBlock(sizes[place], sizes[place])))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18():
    return ResNet()


def replaced():
    from sfumato.models import fix_model

    return fix_model(ResNet())[0]


class Words(nn.Module):
    """Recurrent layers of all kinds."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1 << 15, 4)
        self.lstm, self.gru = nn.LSTM(4, 4, batch_first=True), nn.GRU(4, 4, batch_first=True)
        self.rnn = nn.RNN(4, 4, batch_first=True)
        self.out = nn.Linear(4, 2)

    def forward(self, ids):
        return self.out(self.rnn(self.gru(self.lstm(self.table(ids))[0])[0])[0][:, -1])


def words():
    return Words()


def number():
    return 3


def broken():
    return 1 / 0


def leaves():
    raise SystemExit(3)
'''

BATCH_NORMS = [
    "bn1",
    *(f"layer{stage}.{block}.bn{place}" for stage in range(1, 5) for block in range(2) for place in (1, 2)),
    *(f"layer{stage}.0.downsample.1" for stage in range(2, 5)),
]
PICTURE = ("--shape", 64, 64, 3)


@pytest.fixture
def my_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with networks of one's own, in the folder that the command runs in."""
    (tmp_path / "my_resnets.py").write_text(RESNET)
    monkeypatch.chdir(tmp_path)
    return "my_resnets"


def test_a_resnet_with_batch_norm_is_refused_layer_by_layer_with_the_replacement(sfumato, my_module: str):
    shown = sfumato("check-model", f"{my_module}:resnet18", *PICTURE)
    assert shown.code == 2
    assert shown.line.startswith("20 layers cannot be trained privately; replace what is refused (models.fix_model")
    lines = {line.split()[0]: line for line in shown.out.splitlines() if line.strip()}
    for name in BATCH_NORMS:
        channels = 8 * 2 ** max(0, int(name[5]) - 1) if name.startswith("layer") else 8
        assert f"  nn.GroupNorm({min(32, channels)}, {channels}) or models.PublicBatchNorm" in lines[name], name
    for name in ("conv1", "layer2.0.downsample.0", "fc"):
        assert lines[name].strip().endswith("one backward pass"), name
    told = json.loads(sfumato("check-model", f"{my_module}:resnet18", *PICTURE, "--json").out)
    assert sorted(told["refused"]) == sorted(BATCH_NORMS)
    assert "micro_batch" not in told


def test_with_the_replacement_every_layer_is_covered(sfumato, my_module: str):
    told = json.loads(sfumato("check-model", f"{my_module}:replaced", *PICTURE, "--json").out)
    assert told["refused"] == {}
    assert {layer["name"] for layer in told["layers"]} >= {*BATCH_NORMS, "conv1", "fc"}
    assert sum(layer["parameters"] for layer in told["layers"]) == told["parameters"]
    assert told["micro_batch"] == told["memory_budget"] // told["bytes_per_example"]


def test_a_slow_path_is_reported_in_words(sfumato, my_module: str):
    shown = sfumato("check-model", f"{my_module}:words", "--kind", "ids", "--shape", 6)
    lines = {line.split()[0]: line for line in shown.out.splitlines() if line.strip()}
    assert "slower for packed sequences and under bfloat16" in lines["lstm"]
    for name in ("gru", "rnn"):
        assert "each step through autograd, slower than an LSTM" in lines[name]


def test_a_row_of_a_table_can_be_checked(sfumato):
    told = json.loads(
        sfumato("check-model", "ctr", "--kind", "table", "--shape", 3, 4, "--vocabulary", 50, "--json").out
    )
    assert sum(layer["kind"] == "Embedding" for layer in told["layers"]) == 4


def test_a_budget_below_one_example_is_said(sfumato):
    shown = sfumato("check-model", "lenet5", "--memory-budget", 0.01)
    assert shown.code == 0
    assert "more than 0.01 MiB, so examples go through one by one" in shown.out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "missing: MODEL"),
        (("lenet7",), "model must be one of"),
        (("bilstm",), "give --kind ids --shape 128"),
        (("ctr",), "give --kind table --shape 13 26"),
        (("lenet5", "--kind", "numbers"), "give --kind picture --shape 28 28 1"),
        (("lenet5", "--shape", 28), "shape must be like 28 28 1 for --kind picture, got 28"),
        (("lenet5", "--shape"), "got nothing"),
        (("lenet5", "--shape", -1, 28, 1), "shape must be a whole number >= 1, got -1"),
        (("lenet5", "--num-classes", "nan"), "--num-classes must be a whole number, got nan"),
        (("lenet5", "--memory-budget", "nan"), "--memory-budget must be a number, got nan"),
        (("lenet5", "--device", "meta"), "device must be cpu, cuda or cuda:<number>, got meta"),
        (("lenet5", "--trainable", "nothing"), "names no parameter to train"),
        (("my_resnets:replaced", *PICTURE, "--num-classes", 10), "10 classes but the model gives 7 logits"),
        (("my_resnets:replaced",), "fails on inputs of shape (1, 28, 28) float32"),
        (("my_resnets:number",), "gave a int, not a torch module"),
        (("my_resnets:broken",), "failed (ZeroDivisionError: division by zero)"),
        (("my_resnets:leaves",), "failed (SystemExit: 3)"),
        (("my_resnets:ResNetXT",), "my_resnets has no ResNetXT"),
        (("my_resnets:",), "must be module:factory"),
        (("nowhere:net",), "No module named 'nowhere'"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(sfumato, my_module: str, words: tuple[object, ...], named: str):
    assert named in sfumato("check-model", *words).line


def a_data_set(kind: str):
    """Four records of two people."""
    users = ["a", "a", "b", "b"]
    if kind.startswith("people"):
        size, channels = {"people": (28, 1), "people in colour": (32, 3), "people, large": (112, 3)}[kind]
        return data.from_arrays(np.zeros((4, size, size, channels), np.uint8), [0, 1, 0, 1], users)
    if kind == "texts by user":
        ids = np.ones((4, 5), np.int64)
        return data.from_arrays(ids, ids, users, label_names=["padding", "word"])
    inputs = {
        "pictures": np.zeros((4, 28, 28, 1), np.uint8),
        "pictures in colour": np.zeros((4, 32, 32, 3), np.uint8),
        "numbers": np.zeros((4, 7), np.float32),
        "texts": np.ones((4, 5), np.int64),
        "table": (np.zeros((4, 3), np.float32), np.ones((4, 2), np.int64)),
    }[kind]
    sizes = {"texts": (9,), "table": (4, 6)}.get(kind, ())
    return data.examples_from_arrays(inputs, np.array([0, 1, 0, 1]), num_classes=2, vocabulary_sizes=sizes)


@pytest.mark.parametrize(
    ("kind", "name"),
    {
        "people": "lenet",
        "people in colour": "resnet20",
        "people, large": "mobilenet_v2",
        "texts by user": "lstm",
        "pictures": "lenet5",
        "pictures in colour": "resnet20",
        "numbers": "lenet300_100",
        "texts": "bilstm",
        "table": "ctr",
    }.items(),
)
def test_the_kind_of_data_chooses_the_model(kind: str, name: str) -> None:
    assert _usual_model(a_data_set(kind)) == name


def test_a_model_that_was_chosen_or_has_weights_stays() -> None:
    weights = ClassifierOptions(pretrained=Path("model.safetensors"))
    for chosen, model in ((frozenset({"model"}), ClassifierOptions()), (frozenset(), weights)):
        options = SimpleNamespace(model=model, run=SimpleNamespace(chosen=chosen, json=True))
        assert with_usual_model(options, a_data_set("table")) is options


@pytest.mark.slow
def test_a_table_is_trained_without_a_word_on_the_model(sfumato, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "bank.npz", x_train=rng.normal(size=(60, 5)).astype(np.float32), y_train=rng.integers(0, 2, 60))
    more = ("--num-classes", 2, "--dry-run")
    shown = sfumato("dpsgd", "--data", tmp_path / "bank.npz", "--noise", 1, "--steps", 2, "--cohort", 8, *more)
    assert shown.code == 0, shown.err
    assert "model: lenet300_100, as is usual for such data; --model chooses another" in shown.out
