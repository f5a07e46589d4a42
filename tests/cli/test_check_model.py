"""`sfumato check-model`: which layers take which path, what is refused and what to use instead, and what it costs."""

import json
from pathlib import Path

import pytest

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
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with networks of one's own, in the folder that the command runs in."""
    (tmp_path / "my_resnets.py").write_text(RESNET)
    monkeypatch.chdir(tmp_path)
    return "my_resnets"


def test_a_resnet_with_batch_norm_is_refused_layer_by_layer_with_the_replacement(sfumato, mine: str):
    shown = sfumato("check-model", f"{mine}:resnet18", *PICTURE)
    assert shown.code == 2
    assert shown.line.startswith("20 layers cannot be trained privately; replace what is refused (models.fix_model")
    lines = {line.split()[0]: line for line in shown.out.splitlines() if line.strip()}
    for name in BATCH_NORMS:
        channels = 8 * 2 ** max(0, int(name[5]) - 1) if name.startswith("layer") else 8
        assert f"  nn.GroupNorm({min(32, channels)}, {channels}) or models.PublicBatchNorm" in lines[name], name
    for name in ("conv1", "layer2.0.downsample.0", "fc"):
        assert lines[name].strip().endswith("one backward pass"), name
    told = json.loads(sfumato("check-model", f"{mine}:resnet18", *PICTURE, "--json").out)
    assert sorted(told["refused"]) == sorted(BATCH_NORMS)
    assert "micro_batch" not in told


def test_with_the_replacement_every_layer_is_covered(sfumato, mine: str):
    told = json.loads(sfumato("check-model", f"{mine}:replaced", *PICTURE, "--json").out)
    assert told["refused"] == {}
    assert {layer["name"] for layer in told["layers"]} >= {*BATCH_NORMS, "conv1", "fc"}
    assert sum(layer["parameters"] for layer in told["layers"]) == told["parameters"]
    assert told["micro_batch"] == told["memory_budget"] // told["bytes_per_example"]


def test_a_slow_path_is_told_in_words(sfumato, mine: str):
    shown = sfumato("check-model", f"{mine}:words", "--kind", "ids", "--shape", 6)
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
def test_a_mistake_is_one_line(sfumato, mine: str, words: tuple[object, ...], named: str):
    assert named in sfumato("check-model", *words).line
