"""LeNet-5 with the paper's batch norm, which no clipping bounds: statistics of private and public pictures together.

    joint.py [--seeds N]

**Nothing here is private.** Each step has the batch, the clip norm and the noise of a row of run.py; but through the
statistics each example moves the gradients of all others, so the noise gives no ε. It shows how much of the paper's
accuracy comes from that.

The gradient of the summed loss runs through the statistics. It is split by the picture through whose activations it
flows, as libraries do that read activations and their gradients from hooks, and each part is clipped; those of the 128
public pictures, which have no loss of their own, are parts as well. Without clipping and noise the sum is the whole
gradient. To split it by the example whose loss it is takes a backward pass for each of the 452 statistics of a step.

Pictures are measured one by one, each normalised with the public ones, as in the paper; then 1,000 and the public ones
together, as many as a step has. Rates are chosen by every tenth of the held-out digits, with two seeds; these rows
stand in choice.json, which choose.py writes, too. Then the best rate of each ε trains on all digits and is measured on
the test: joint.json, for the page joint.md. A run that is done is not repeated.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from choose import FILE, FIRST_SEED, HELD_OUT
from classifier_recipe import DELTA
from run import STEPS, mnist, public_pictures

from sfumato import models
from sfumato._files import read_json, write_json
from sfumato.central import DPSGD
from sfumato.data import to_tensor

CLIP_NORM = 0.5
NORM = "joint"
EPSILONS = (0.1, 0.05)
"""Of the rows whose steps and noise are taken."""
CANDIDATES = (2.0, 4.0, 8.0)
EVERY = 10  # one held-out picture of so many
TOGETHER = 1000
MEASURES = {"alone": "each with the public pictures, as in the paper", "together": "1,000 at a time"}
RESULTS = Path(__file__).resolve().parent / "joint.json"
Part = tuple[nn.Module, Tensor, Tensor]
"""A layer with its inputs and the gradients of the summed loss by its outputs, a row for each picture."""


@contextmanager
def hooked(model: nn.Module) -> Iterator[list[Part]]:
    """Collect the parts of a forward and a backward pass, of all layers that have parameters."""
    found: list[Part] = []

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor) -> None:
        outputs.register_hook(lambda gradient: found.append((layer, inputs[0].detach(), gradient)))

    layers = [layer for layer in model.modules() if list(layer.parameters(recurse=False))]
    handles = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def factors(layer: nn.Module, inputs: Tensor, gradient: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Of each parameter two tensors, a row for each picture, whose part of the gradient is the outer product."""
    ones = torch.ones(len(gradient), 1)
    if isinstance(layer, nn.Linear):
        found = {"weight": (gradient, inputs), "bias": (gradient, ones)}
    elif isinstance(layer, nn.Conv2d):
        patches = functional.unfold(inputs, layer.kernel_size, padding=layer.padding)  # type: ignore[arg-type]
        found = {"weight": (torch.bmm(gradient.flatten(2), patches.mT).flatten(1), ones)}
    else:  # a norm layer's scale and shift
        places = [0, *range(2, inputs.ndim)]
        variance, mean = torch.var_mean(inputs, places, correction=0, keepdim=True)
        scaled = gradient * (inputs - mean) * torch.rsqrt(variance + layer.eps)  # type: ignore[operator]
        summed = (each.view(*each.shape[:2], -1).sum(2) for each in (scaled, gradient))
        found = {name: (each, ones) for name, each in zip(("weight", "bias"), summed, strict=True)}
    return {name: found[name] for name, _ in layer.named_parameters(recurse=False)}


def step(model: nn.Module, inputs: Tensor, labels: Tensor, *, rate: float, batch: int, noise: float) -> None:
    """One step: clip the parts, add them and noise, divide by the expected size of the batch."""
    with hooked(model) as parts:
        functional.cross_entropy(model(inputs), labels, reduction="sum").backward()
    split = [(layer, factors(layer, *tensors)) for layer, *tensors in parts]
    squares = [a.square().sum(1) * b.square().sum(1) for _, named in split for a, b in named.values()]
    weights = (CLIP_NORM / torch.stack(squares).sum(0).sqrt().clamp_min(1e-12)).clamp_max(1.0)
    with torch.no_grad():
        for layer, named in split:
            for name, (a, b) in named.items():
                weight = getattr(layer, name)
                total = ((a * weights[:, None]).mT @ b).view_as(weight)
                weight.sub_(total + noise * CLIP_NORM * torch.randn_like(total), alpha=rate / batch)
    model.zero_grad()


def multiplier(epsilon: float, population: int) -> float:
    """The noise of the row of this ε."""
    batch, steps = STEPS[epsilon]
    plan = DPSGD(steps=steps, cohort=batch, clipping=CLIP_NORM)
    found = plan.calibrate(epsilon=epsilon, delta=DELTA, population=population).noise.noise_multiplier
    assert found is not None
    return found


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor, *, together: bool) -> float:
    """Each picture is normalised with the public ones, or `together` with as many others as there are in a step."""
    model.train(together)
    with torch.no_grad():
        found = torch.cat([model(few).argmax(1) for few in inputs.split(TOGETHER if together else 10)])
    return round(float((found == labels).float().mean()), 4)


def measured(epsilon: float, rate: float, seed: int, *, held_out: int) -> dict[str, float]:
    """Accuracies with the batches, steps and noise of the row of an ε: "alone" as in the paper, and "together".

    Measured on every tenth of so many training digits that are held out, or on the test.
    """
    torch.manual_seed(seed)
    train, test = mnist(None)
    count = len(train) - held_out
    other = train.subset(range(count, len(train), EVERY)) if held_out else test
    model = models.lenet5(normalisation="public_batch", public_inputs=public_pictures())
    models.use_public_batch(model, public_pictures(), statistics="joint")
    batch, steps = STEPS[epsilon]
    noise = multiplier(epsilon, count)
    for _ in range(steps):
        drawn = torch.nonzero(torch.rand(count) < batch / count)[:, 0].numpy()
        (inputs,), labels = train.examples(drawn)
        step(model, to_tensor(inputs), torch.as_tensor(labels), rate=rate, batch=batch, noise=noise)
    (inputs,), labels = other.examples(np.arange(len(other)))
    shown = to_tensor(inputs), torch.as_tensor(labels)
    return {name: accuracy(model, *shown, together=name == "together") for name in ("alone", "together")}


def choose() -> dict[float, float]:
    """The best rate of each ε; measures the candidates that are not in choice.json yet, with two seeds."""
    best: dict[float, tuple[float, float]] = {}
    rows: list[dict[str, Any]] = read_json(FILE)
    for epsilon in EPSILONS:
        for rate in CANDIDATES:
            for seed in (FIRST_SEED, FIRST_SEED + 1):
                row = {"norm": NORM, "epsilon": epsilon, "rate": rate, "seed": seed}
                if not any(row.items() <= known.items() for known in rows):
                    found = measured(epsilon, rate, seed, held_out=HELD_OUT)
                    rows.append({**row, "accuracy": found["together"], "alone": found["alone"]})
                    write_json(FILE, rows)
            mine = [row for row in rows if (row["norm"], row["epsilon"], row["rate"]) == (NORM, epsilon, rate)]
            means = [round(float(np.mean([row[key] for row in mine])), 4) for key in ("accuracy", "alone")]
            print(f"ε {epsilon:g}, rate {rate:g}: {means[0]} together, {means[1]} alone", flush=True)
            best[epsilon] = max(best.get(epsilon, (0.0, 0.0)), (means[0], rate))
    return {epsilon: rate for epsilon, (_, rate) in best.items()}


def table(rates: dict[float, float], seeds: int) -> None:
    """Train on all digits at these rates, measure on the test, and write joint.json."""
    runs = Path("runs") / "normalisation_mnist" / "joint"
    runs.mkdir(parents=True, exist_ok=True)
    rows = []
    for epsilon, rate in rates.items():
        for seed in range(seeds):
            if not (file := runs / f"{epsilon:g}-{seed}.json").exists():
                write_json(file, measured(epsilon, rate, seed, held_out=0))
                print(f"noise of ε {epsilon:g}, seed {seed}: {read_json(file)}", flush=True)
        found = [read_json(runs / f"{epsilon:g}-{seed}.json") for seed in range(seeds)]
        for key, measure in MEASURES.items():
            rows.append(
                {
                    "method": f"LeNet-5, joint statistics, the noise of ε {epsilon:g}, not private",
                    "dataset": "MNIST",
                    "metric": "accuracy",
                    "measure": measure,
                    **cells.mean_and_std([each[key] for each in found]),
                    "seeds": seeds,
                    **dict.fromkeys(("epsilon", "delta", "unit", "noise_multiplier", "paper")),
                }
            )
    write_json(RESULTS, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The paper's batch norm, which is not private.")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of joint.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table(choose(), options.seeds)
