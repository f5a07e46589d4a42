"""The models of `dpsgd_step.py` and a batch for each: the same weights and data in every contender.

This file runs in the environment of each peer: it needs PyTorch, and transformers (with peft for LoRA) for the models
that come from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLIP_NORM = 1.0
NOISE_MULTIPLIER = 0.01  # small, so that the loss shows whether two contenders did the same work
LEARNING_RATE = 0.1


class LeNet(nn.Module):
    """conv 5x5-32, pool, conv 5x5-64, pool, dense 128, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.embedding = nn.Linear(64 * 7 * 7, 128)
        self.head = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        """float [B, 1, 28, 28] → [B, 10]."""
        hidden = F.relu(F.max_pool2d(self.conv1(images), 2))
        hidden = F.relu(F.max_pool2d(self.conv2(hidden), 2))
        return self.head(F.relu(self.embedding(hidden.flatten(1))))


class Block(nn.Module):
    """Two 3x3 convolutions with group norm, added to a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(8, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(8, width)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != width:
            shortcut = nn.Conv2d(inputs, width, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.GroupNorm(8, width))

    def forward(self, images: Tensor) -> Tensor:
        """float [B, inputs, H, W] → [B, width, H / stride, W / stride]."""
        hidden = F.relu(self.norm1(self.conv1(images)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(images))


def resnet20() -> nn.Module:
    """ResNet-20 for 32x32 images with group norm."""
    blocks, inputs = [], 16
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        for index in range(3):
            blocks.append(Block(inputs, width, stride if index == 0 else 1))
            inputs = width
    stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    return nn.Sequential(
        stem, nn.GroupNorm(8, 16), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )


class BiLstm(nn.Module):
    """Words → embedding → bidirectional LSTM → mean → class. `lstm` may be another library's."""

    def __init__(self, lstm: type[nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10_000, 100)
        self.lstm = lstm(100, 128, batch_first=True, bidirectional=True)
        self.head = nn.Linear(256, 4)

    def forward(self, words: Tensor) -> Tensor:
        """int64 [B, T] → [B, 4]."""
        states, _ = self.lstm(self.embedding(words))
        return self.head(states.mean(dim=1))


class Encoder(nn.Module):
    """Words → embedding → two encoder layers (d = 256, 8 heads, 1,024 inner) → mean → class."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10_000, 256)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(256, 4)

    def forward(self, words: Tensor) -> Tensor:
        """int64 [B, T] → [B, 4]."""
        hidden = self.embedding(words)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden.mean(dim=1))


class Ctr(nn.Module):
    """26 categorical columns → embeddings of int(2 V^0.25) numbers, 13 integers, 4 x 598 ReLU, one output."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [int(10 * 1.51**index) for index in range(26)]  # from 10 to 360,000 rows
        sizes[-1] += 1_000_000 - sum(sizes)
        self.tables = nn.ModuleList(nn.Embedding(size, int(2 * size**0.25)) for size in sizes)
        widths = [13 + sum(table.embedding_dim for table in self.tables), *[598] * 4]
        steps: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            steps += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.network = nn.Sequential(*steps, nn.Linear(598, 1))

    def forward(self, columns: Tensor) -> Tensor:
        """float [B, 13 + 26]: 13 numbers, then 26 ids → [B]."""
        ids = columns[:, 13:].long()
        parts = [table(ids[:, index]) for index, table in enumerate(self.tables)]
        return self.network(torch.cat([columns[:, :13], *parts], dim=1)).squeeze(1)


class BertTiny(nn.Module):
    """BERT with two layers of 128 and 30,522 words, for four classes; LoRA trains adapters in four layers of 512.

    Positions are given for each example, which Opacus asks for.
    """

    def __init__(self, lora: bool = False) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        layers, width = (4, 512) if lora else (2, 128)
        sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": width // 64}
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.bert: nn.Module = BertForSequenceClassification(
            BertConfig(num_hidden_layers=layers, num_labels=4, attn_implementation="eager", **sizes, **off)
        )
        if lora:
            from peft import LoraConfig, get_peft_model

            self.bert = get_peft_model(
                self.bert, LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["query", "value"])
            )

    def forward(self, words: Tensor) -> Tensor:
        """int64 [B, T] → [B, 4]."""
        places = torch.arange(words.shape[1], device=words.device).expand_as(words)
        return self.bert(input_ids=words, position_ids=places, token_type_ids=torch.zeros_like(words)).logits


class GptTiny(nn.Module):
    """GPT-2 with two layers of 128 and its own 50,257 words: the next word of a document. Embeddings are tied."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        self.gpt = GPT2LMHeadModel(
            GPT2Config(n_embd=128, n_layer=2, n_head=2, attn_implementation="eager", use_cache=False, **off)
        )

    def forward(self, words: Tensor) -> Tensor:
        """int64 [B, T] → [B, T, 50257]."""
        places = torch.arange(words.shape[1], device=words.device).expand_as(words)
        return self.gpt(input_ids=words, position_ids=places).logits


@dataclass(frozen=True)
class Setting:
    """A model, its batch and its loss; `micro` is the micro-batch of contenders that cut the batch."""

    batch: int
    micro: int


SETTINGS = {
    "lenet": Setting(128, 64),
    "resnet20": Setting(128, 64),
    "bilstm": Setting(64, 64),
    "encoder": Setting(32, 8),
    "bert-tiny": Setting(32, 32),
    "gpt2-tiny": Setting(16, 8),
    "lora": Setting(32, 16),
    "ctr-1024": Setting(1024, 1024),
    "ctr-16384": Setting(16384, 2048),
}


def model(name: str, device: str, lstm: type[nn.Module] = nn.LSTM) -> nn.Module:
    """The network, with the same weights each time."""
    torch.manual_seed(0)
    made: dict[str, Callable[[], nn.Module]] = {
        "lenet": LeNet,
        "resnet20": resnet20,
        "bilstm": lambda: BiLstm(lstm),
        "encoder": Encoder,
        "bert-tiny": BertTiny,
        "lora": lambda: BertTiny(lora=True),
        "gpt2-tiny": GptTiny,
        "ctr-1024": Ctr,
        "ctr-16384": Ctr,
    }
    return made[name]().to(device)


def batch(name: str, device: str, times: int = 1) -> tuple[Tensor, Tensor]:
    """Inputs and targets, the same each time; `times` as many as the setting has."""
    inputs, targets = _drawn(name, SETTINGS[name].batch * times)
    return inputs.to(device), targets.to(device)


def _drawn(name: str, size: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    if name in ("bilstm", "encoder", "bert-tiny", "lora"):
        words = torch.randint(10_000, (size, 64 if name == "bilstm" else 128), generator=random)
        return words, torch.randint(4, (size,), generator=random)
    if name == "gpt2-tiny":
        words = torch.randint(50_257, (size, 129), generator=random)
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()
    if name.startswith("ctr"):
        network = Ctr()
        # most ids are common ones, as in real columns
        columns = [(torch.rand(size, generator=random) ** 4 * table.num_embeddings).long() for table in network.tables]
        numbers = torch.randn(size, 13, generator=random)
        return torch.cat([numbers, torch.stack(columns, dim=1)], dim=1), torch.rand(size, generator=random).round()
    image = (1, 28, 28) if name == "lenet" else (3, 32, 32)
    return torch.randn(size, *image, generator=random), torch.randint(10, (size,), generator=random)


def losses(name: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss for each example, float [B]."""
    if name.startswith("ctr"):
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    if name == "gpt2-tiny":
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets).mean(dim=1)
    return F.cross_entropy(outputs, targets, reduction="none")
