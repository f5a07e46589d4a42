"""Networks whose weights are noise around what was learned: w = μ + σ n, with and without norm layers.

    noisy_weights.py [--quick] [--seeds N] [--jobs N] [--out DIR]

In every training step a fresh n ~ N(0, 1) is drawn for each noisy parameter; forward and backward pass use w, and the
gradient updates μ (the gradient by w is that by μ). After training, the test examples are classified twice: with
weights drawn afresh for each test batch, and with the means μ. Noisy are the weights and biases of all linear,
convolutional and recurrent layers, the last one included; exact are the scales and shifts of norm layers and the
embedding table. Norms stand after every trainable layer but the last one, or after that, too. Nothing here is private:
this experiment shows how much noise a network can bear.

Batch norm is torch's, with the statistics of the batch at hand, in training and in testing: running averages would be
those of other weights. A step whose gradient is not finite is left out; a prediction that is not a number is wrong.

noisy_weights.json and the table in noisy_weights.md (by recipes/tables.py) hold the results. A cell that is finished is
not repeated.

References:
    Davody, Adelani, Kleinbauer, Klakow: On the effect of normalization layers on Differentially Private training of
    deep Neural networks (2020), arXiv 2006.10919. The authors' code for the paper's first version draws weights and
    biases in each forward pass of training, and gives the gradient to the means.
"""

import argparse
import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from ag_news import ag_news
from cells import SHARED, mean_and_std
from vgg import vgg

from sfumato import models
from sfumato._files import write_json
from sfumato.data import ExampleDataset, open_examples, to_tensor

FOLDER = Path(__file__).resolve().parent
Norm = Literal["none", "layer", "public_batch"]
Place = Literal["inside", "last"]
SIGMAS = (0.0, 0.01, 0.1, 1.0, 2.0)
NORMS: dict[Norm, str] = {"none": "no norm", "layer": "layer norm", "public_batch": "batch norm"}
PLACES: dict[Place, str] = {"inside": "", "last": ", after the last layer too"}
MEASURES = {"drawn": "accuracy with drawn weights", "means": "accuracy with the means of the weights"}
NOISY = (nn.Linear, nn.Conv2d, nn.RNNBase)
TEST_BATCH = 250
VOCABULARY, LENGTH = 8192, 32


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How one architecture is trained, whatever the norm and σ.

    Attributes:
        dataset: its name in the table.
        data: gives training and test examples.
        model: gives a fresh model for a norm; torch's generator is seeded before.
        rates: for each norm that the model has, Adam's rate at the start; it falls to zero along a cosine.
        steps: of Adam.
        seeds: at most so many.
        test: test examples, at equal distances in the test part.
    """

    dataset: str
    data: Callable[[], tuple[ExampleDataset, ExampleDataset]]
    model: Callable[[Norm], nn.Module]
    rates: dict[Norm, float]
    steps: int
    batch: int = 64
    seeds: int = 3
    test: int = 10_000


@cache
def mnist() -> tuple[ExampleDataset, ExampleDataset]:
    """All digits."""
    return open_examples(SHARED / "mnist.npz"), open_examples(SHARED / "mnist.npz", part="test")


def news() -> tuple[ExampleDataset, ExampleDataset]:
    """The split of the other recipe for texts."""
    parts = ag_news(VOCABULARY, LENGTH)
    return parts.train, parts.test


def bilstm(norm: Norm) -> nn.Module:
    """A small BiLSTM; the model has no batch norm."""
    return models.bilstm_classifier(
        4,
        vocabulary_size=VOCABULARY,
        embedding_dim=64,
        hidden=32,
        normalisation="layer" if norm == "layer" else "none",
    )


def resnet18(norm: Norm) -> nn.Module:
    """With the stem for photographs, which shrinks a digit at once: ten times cheaper."""
    return models.resnet18_classifier(10, 1, stem="imagenet", normalisation=norm)


def _rates(none: float, layer: float, batch: float) -> dict[Norm, float]:
    return {"none": none, "layer": layer, "public_batch": batch}


digits = partial(Setting, dataset="MNIST", data=mnist)
SETTINGS = {
    "LeNet-300-100": digits(
        model=lambda norm: models.lenet300_100(normalisation=norm), rates=_rates(0.01, 0.03, 0.1), steps=500, batch=128
    ),
    "LeNet-5": digits(model=lambda norm: models.lenet5(normalisation=norm), rates=_rates(0.01, 0.03, 0.3), steps=500),
    "BiLSTM": Setting(
        dataset="AG News", data=news, model=bilstm, rates={"none": 0.01, "layer": 0.01}, steps=150, test=1200
    ),
    "VGG": digits(
        model=lambda norm: vgg(10, 1, 28, normalisation=norm),
        rates=_rates(0.003, 0.003, 0.1),
        steps=100,
        batch=48,
        seeds=1,
        test=2000,
    ),
    "ResNet-18": digits(model=resnet18, rates=_rates(0.001, 0.0003, 0.005), steps=120, batch=32, seeds=1, test=2000),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training run."""

    model: str
    norm: Norm
    sigma: float
    seed: int
    place: Place = "inside"

    @property
    def method(self) -> str:
        """Its row."""
        return f"{self.model}, {NORMS[self.norm]}{PLACES[self.place]}"

    def file(self, out: Path) -> Path:
        """Where its figures lie."""
        end = "" if self.place == "inside" else f"-{self.place}"
        return out / f"{self.model.lower()}-{self.norm}-{self.sigma:g}-{self.seed}{end}.json"


class BatchNorm(nn.Module):
    """Batch norm with the statistics of the batch at hand, also in evaluation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalise float [n, channels, ...] over all dimensions but the second."""
        return functional.batch_norm(inputs, None, None, self.weight, self.bias, training=True)


def with_batch_norm(model: nn.Module) -> nn.Module:
    """The model with ordinary batch norm in place of each `PublicBatchNorm`; changed in place."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, models.PublicBatchNorm):
                setattr(parent, name, BatchNorm(layer.channels))
    return model


def built(cell: Cell, setting: Setting, classes: int) -> nn.Module:
    """A fresh model; where its norm is last, too, logits are normalised."""
    model = with_batch_norm(setting.model(cell.norm))
    if cell.place == "inside":
        return model
    return nn.Sequential(model, nn.LayerNorm(classes) if cell.norm == "layer" else BatchNorm(classes))


def noisy_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Weights and biases of the layers in `NOISY`."""
    layers = [layer for layer in model.modules() if isinstance(layer, NOISY)]
    return [parameter for layer in layers for parameter in layer.parameters(recurse=False)]


@contextmanager
def drawn(parameters: list[nn.Parameter], sigma: float, noise: torch.Generator) -> Iterator[None]:
    """Within the block the parameters are μ + σ n with a fresh n; after it they are μ again."""
    if sigma == 0:
        yield
        return
    means = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter += sigma * torch.randn(parameter.shape, generator=noise)
    yield
    with torch.no_grad():
        for parameter, mean in zip(parameters, means, strict=True):
            parameter.copy_(mean)


def tensors(data: ExampleDataset, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of some examples; pictures from 0 for the paper to 1 for the ink, so that noise skips paper."""
    (inputs,), labels = data.examples(rows)
    read = to_tensor(inputs)
    return (read + 1) / 2 if read.is_floating_point() else read, torch.from_numpy(labels)


def train(model: nn.Module, data: ExampleDataset, setting: Setting, cell: Cell, noise: torch.Generator) -> int:
    """Train the means in place; how many steps were left out."""
    rng = np.random.default_rng(cell.seed)
    parameters = noisy_parameters(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=setting.rates[cell.norm])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, setting.steps)
    skipped = 0
    for _ in range(setting.steps):
        inputs, labels = tensors(data, rng.choice(len(data), setting.batch, replace=False))
        optimizer.zero_grad()
        with drawn(parameters, cell.sigma, noise):
            functional.cross_entropy(model(inputs), labels).backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        if all(bool(gradient.sum().isfinite()) for gradient in gradients):
            optimizer.step()
        else:
            skipped += 1
        schedule.step()
    return skipped


@torch.inference_mode()
def accuracy(model: nn.Module, data: ExampleDataset, rows: np.ndarray, sigma: float, noise: torch.Generator) -> float:
    """Share of the examples that are classified rightly, with weights drawn for each batch of `TEST_BATCH`."""
    parameters = noisy_parameters(model)
    right = 0
    for start in range(0, len(rows), TEST_BATCH):
        inputs, labels = tensors(data, rows[start : start + TEST_BATCH])
        with drawn(parameters, sigma, noise):
            logits = model(inputs)
        hits = (logits.argmax(1) == labels) & ~logits.isnan().any(1)
        right += int(hits.sum())
    return right / len(rows)


def run(cell: Cell, out: Path, quick: bool) -> str:
    """Train and measure one cell, unless that is done; one line about it."""
    file = cell.file(out)
    if not file.exists():
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        setting = quickened(SETTINGS[cell.model]) if quick else SETTINGS[cell.model]
        learned, tested = setting.data()
        torch.manual_seed(cell.seed)
        noise = torch.Generator().manual_seed(1000 + cell.seed)
        assert learned.num_classes is not None
        model = built(cell, setting, learned.num_classes)
        skipped = train(model, learned, setting, cell, noise)
        model.eval()
        rows = np.linspace(0, len(tested) - 1, min(setting.test, len(tested))).astype(int)
        sigmas = {"drawn": cell.sigma, "means": 0.0}
        found = {name: accuracy(model, tested, rows, sigma, noise) for name, sigma in sigmas.items()}
        write_json(file, {**found, "steps_left_out": skipped})
    figures = json.loads(file.read_text())
    return f"{cell.method}, σ {cell.sigma:g}, seed {cell.seed}: {figures}"


def quickened(setting: Setting) -> Setting:
    """Two small steps, to see that it runs."""
    return replace(setting, steps=2, batch=8, test=20)


def table(out: Path, cells: list[Cell]) -> list[dict[str, Any]]:
    """Rows of results, for both ways of testing: mean and standard deviation over the seeds."""
    rows = []
    for measure, metric in MEASURES.items():
        for first in (cell for cell in cells if cell.seed == 0):
            seeds = [cell for cell in cells if replace(cell, seed=0) == first]
            values = [json.loads(cell.file(out).read_text())[measure] for cell in seeds]
            rows.append(
                {
                    "method": first.method,
                    "dataset": SETTINGS[first.model].dataset,
                    "metric": metric,
                    "weight_noise": first.sigma,
                    **mean_and_std(values),
                    "seeds": len(seeds),
                    "epsilon": None,
                    "delta": None,
                    "unit": None,
                    "paper": None,
                }
            )
    return rows


def main() -> None:
    """Run what is not done yet, and write noisy_weights.json."""
    parser = argparse.ArgumentParser(description="Networks with noisy weights, with and without norm layers.")
    parser.add_argument("--quick", action="store_true", help="two steps of each for two σ, to see that it runs")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the small models; VGG and ResNet-18 have one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time, one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs") / "noisy_weights", help="folder of the runs")
    options = parser.parse_args()
    out = options.out / ("quick" if options.quick else "full")
    out.mkdir(parents=True, exist_ok=True)
    seeds = 1 if options.quick else options.seeds
    cells = [
        Cell(model=name, norm=norm, sigma=sigma, seed=seed, place=place)
        for name, setting in SETTINGS.items()
        for norm in setting.rates
        for place in (PLACES if norm != "none" else ("inside",))
        for sigma in (SIGMAS[::3] if options.quick else SIGMAS)
        for seed in range(min(seeds, setting.seeds))
    ]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
        for line in pool.map(partial(run, out=out, quick=options.quick), cells):
            print(line, flush=True)
    write_json((out if options.quick else FOLDER) / "noisy_weights.json", table(out, cells))


if __name__ == "__main__":
    main()
