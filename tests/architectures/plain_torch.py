"""Networks of torch's own layers."""

from typing import Any

import torch
from torch import Tensor, nn

from architectures.architecture import CLASSES, COUPLED, LENGTH, WORDS, Architecture, classes, ids, numbers, pictures
from sfumato.central import squared_error

_WIDTH = 8


class _Mean(nn.Module):
    """The mean over time."""

    def forward(self, values: Tensor) -> Tensor:
        return values.mean(dim=1)


class _Outputs(nn.Module):
    """What a recurrent layer gives at each time."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(values)[0]


class _Seq2Seq(nn.Module):
    """`nn.Transformer` from one text to another, whose mean is classified; positions are looked up by arange."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, _WIDTH), nn.Embedding(LENGTH, _WIDTH)
        self.transformer = nn.Transformer(_WIDTH, 2, 1, 1, 2 * _WIDTH, batch_first=True)
        self.head = nn.Linear(_WIDTH, CLASSES)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        places = self.places(torch.arange(source.shape[1], device=source.device))
        mixed = self.transformer(self.words(source) + places, self.words(target) + places)
        return self.head(mixed.mean(dim=1))


class _TiedAutoencoder(nn.Module):
    """The decoder is the encoder's weight again."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.decode.weight = self.encode.weight

    def forward(self, values: Tensor) -> Tensor:
        return self.decode(self.encode(values).tanh())


def _recurrent(kind: Any) -> nn.Module:
    return nn.Sequential(
        nn.Embedding(WORDS, _WIDTH),
        _Outputs(kind(_WIDTH, _WIDTH, batch_first=True)),
        _Mean(),
        nn.Linear(_WIDTH, CLASSES),
    )


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(_WIDTH, 2, 2 * _WIDTH, batch_first=True)
    return nn.Sequential(
        nn.Embedding(WORDS, _WIDTH), nn.TransformerEncoder(layer, 2), _Mean(), nn.Linear(_WIDTH, CLASSES)
    )


def _cnn(norm: type[nn.Module]) -> nn.Module:
    flat = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * _WIDTH, CLASSES))
    return nn.Sequential(nn.Conv2d(3, _WIDTH, 3, padding=1), norm(_WIDTH), nn.ReLU(), nn.MaxPool2d(2), flat)


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(4, channels)


def _texts(name: str, build: Any, **more: Any) -> Architecture:
    return Architecture(name=name, library="torch", build=build, inputs=(ids(),), targets=classes(), **more)


def _pictures(name: str, build: Any, **more: Any) -> Architecture:
    return Architecture(name=name, library="torch", build=build, inputs=(pictures(),), targets=classes(), **more)


ARCHITECTURES = (
    Architecture(
        name="MLP",
        library="torch",
        build=lambda: nn.Sequential(nn.Linear(6, _WIDTH), nn.Tanh(), nn.Dropout(0.1), nn.Linear(_WIDTH, CLASSES)),
        inputs=(numbers(6),),
        targets=classes(),
    ),
    Architecture(
        name="tied autoencoder",
        library="torch",
        build=_TiedAutoencoder,
        inputs=(numbers(6),),
        targets=numbers(6),
        loss=squared_error,
        task="regression",
    ),
    _pictures("CNN, group norm", lambda: _cnn(_group_norm)),
    _pictures("CNN, batch norm", lambda: _cnn(nn.BatchNorm2d), refused=COUPLED),
    _pictures(
        "CNN, instance norm with statistics",
        lambda: _cnn(lambda channels: nn.InstanceNorm2d(channels, affine=True, track_running_stats=True)),
        refused="keeps running statistics",
    ),
    _texts("LSTM", lambda: _recurrent(nn.LSTM)),
    _texts("GRU", lambda: _recurrent(nn.GRU)),
    _texts("RNN", lambda: _recurrent(nn.RNN)),
    _texts("EmbeddingBag", lambda: nn.Sequential(nn.EmbeddingBag(WORDS, _WIDTH), nn.Linear(_WIDTH, CLASSES))),
    _texts("nn.TransformerEncoder", _encoder),
    Architecture(
        name="nn.Transformer",
        library="torch",
        build=_Seq2Seq,
        inputs=(ids(), ids(shift=1)),
        targets=classes(),
    ),
)
"""In the order of the table."""
