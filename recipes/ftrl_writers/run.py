"""Digits of 539 real writers, learned under user-level privacy with noise that is correlated over the rounds.

DP-FedAvg; a user is a writer. At equal (ε, δ): correlated noise (DP-FTRL) and independent noise under limited
participation, where no sampling is trusted; and independent and banded noise that Poisson sampling amplifies, where it
is. The same model, clients and rounds for all. One row loses 30 % of every cohort at random; its statement has to be
the same to the byte as that of the full cohort. Measured on writers whom nobody trained on. See README.md.

Draws accuracy.svg: accuracy against ε, and the noise on the sums of all means so far, which public numbers predict.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from cells import SHARED

from sfumato._files import read_json, write_json
from sfumato.central.classification import Classification
from sfumato.cli.accounting.figure import save
from sfumato.data import UserDataset, examples_from_users, from_arrays
from sfumato.federated import FedAvg
from sfumato.report.chart import COLOURS
from sfumato.training import Cadence, Result
from sfumato.training.plans.noise_comparison import prefix_error

FOLDER = Path(__file__).resolve().parent
EPSILONS = (1.0, 2.0, 8.0, 20.0)
PREDICTED = (0.5, 1.0, 2.0, 4.0, 8.0, 20.0)
"""Budgets at which the noise is predicted; nobody trains for that."""
DROPPED = ("banded", 8.0)
"""The row that is run a second time with a part of each cohort missing."""
DROP_OUT = 0.3

# Chosen on writers of the training part, held out; see README.md.
PLAN = FedAvg(
    rounds=60,
    clients_per_round=49,
    max_examples=64,
    batch_size=32,
    learning_rate=0.3,
    momentum=0.0,
    clients_at_once=25,
    server_momentum=0.9,
    clip_norm=0.3,
)
HIGHEST_RATE = 0.8
RATE_TIMES_ERROR = 0.04
"""The server's rate is this divided by the predicted error, so one number is chosen for all kinds of noise."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A kind of noise and the sampling that it is accounted with.

    Attributes:
        title: what the table calls it.
        fields: of the plan.
        parts: of cyclic sampling, to choose from by the predicted error; (None,) for other sampling.
    """

    title: str
    fields: dict[str, Any]
    parts: tuple[int | None, ...] = (None,)


_APART = {"sampling": "min_separation"}
NOISES = {
    "banded": Noise(title="banded", fields={**_APART, "noise": "banded"}),
    "blt": Noise(title="BLT", fields={**_APART, "noise": "blt"}),
    "bisr": Noise(title="BISR", fields={**_APART, "noise": "bisr"}),
    "tree": Noise(title="tree", fields={**_APART, "noise": "tree"}),
    "independent": Noise(title="independent", fields=_APART),
    "poisson": Noise(title="independent, Poisson sampling", fields={"sampling": "poisson"}),
    "cyclic": Noise(
        title="banded, cyclic Poisson sampling",
        fields={"sampling": "cyclic", "noise": "banded"},
        parts=(2, 4, 6, 8, 11),
    ),
}
WITHOUT = "not private"


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row.

    Attributes:
        noise: key of `NOISES`; None for a run without noise.
        epsilon: budget of one writer; None likewise.
        drop_out: share of each cohort that is missing, at random.
    """

    noise: str | None = None
    epsilon: float | None = None
    drop_out: float | None = None

    @property
    def title(self) -> str:
        """What the table calls it."""
        if self.noise is None:
            return WITHOUT
        missing = f", {self.drop_out:.0%} of each cohort missing" if self.drop_out else ""
        return f"{NOISES[self.noise].title}, ε {self.epsilon:g}{missing}"


def methods() -> dict[str, Method]:
    """The rows, in the order of the table."""
    full = [Method(noise=noise, epsilon=epsilon) for epsilon in EPSILONS for noise in NOISES]
    rows = [Method(), *full, dataclasses.replace(_dropped(), drop_out=DROP_OUT)]
    return {row.title: row for row in rows}


def _dropped() -> Method:
    noise, epsilon = DROPPED
    return Method(noise=noise, epsilon=epsilon)


def planned(method: Method, base: FedAvg, population: int) -> FedAvg:
    """The plan of a row: noise that meets its budget, and the server's rate that this noise allows.

    Args:
        method: the row.
        base: what all rows share.
        population: the public number of writers.
    """
    if method.noise is None or method.epsilon is None:
        return dataclasses.replace(
            base, sampling="min_separation", noise_multiplier=0, server_learning_rate=HIGHEST_RATE
        )
    noise = NOISES[method.noise]
    choices = [dataclasses.replace(base, **noise.fields, parts=parts) for parts in noise.parts]
    met = [plan.calibrate(epsilon=method.epsilon, population=population) for plan in choices]
    best = min(met, key=partial(predicted_error, population=population))
    rate = min(HIGHEST_RATE, round(RATE_TIMES_ERROR / predicted_error(best, population), 3))
    return dataclasses.replace(best, server_learning_rate=rate, drop_out=method.drop_out)


def predicted_error(plan: FedAvg, population: int) -> float:
    """Root mean square, over the rounds, of the noise on a coordinate of the sum of all means so far; in clip norms."""
    error = prefix_error(plan.strategy_for(population), plan.noise_multiplier or 0.0, plan.rounds, "mean")
    return error / plan.clients_per_round


@cache
def data() -> tuple[UserDataset, UserDataset]:
    """The 539 writers of the training part, and the 297 others of the test part."""
    digits, writers = (np.load(SHARED / name) for name in ("mnist.npz", "mnist_writers.npz"))
    train, test = (
        from_arrays(digits[f"x_{part}"], digits[f"y_{part}"], writers[f"writer_{part}"]) for part in ("train", "test")
    )
    return train, test


def model() -> nn.Module:
    """Two convolutions, 3,424 parameters; the shared head has 2,560 more. Noise grows with the root of their number."""
    layers = [nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers)


def accuracy(result: Result, people: UserDataset) -> float:
    """Share of these people's digits that model and head together classify rightly."""
    assert result.head is not None
    head = nn.Linear(result.head.shape[1], result.head.shape[0], bias=False)
    head.load_state_dict({"weight": result.head})
    whole = nn.Sequential(result.model, head)
    return Classification().measure(whole, examples_from_users(people), curve=False, device="cpu")["accuracy"]


def cell(base: FedAvg, name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """Train one row with one seed, or go on with it."""
    if (folder / "accuracy.json").exists():
        return
    train, test = data()
    plan = planned(methods()[name], base, len(train))
    torch.manual_seed(seed)
    result = dataclasses.replace(plan, seed=seed).fit(
        model(),
        train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        cadence=Cadence(checkpoint_every=20),
    )
    if not result.finished:
        sys.exit(f"{name}, seed {seed} was stopped; start again to go on")
    write_json(folder / "accuracy.json", {"accuracy": accuracy(result, test)})


def table(base: FedAvg, place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of the accuracy on other writers; draws the figure."""
    rows: list[dict[str, Any]] = []
    for name, method in methods().items():
        folders = [place(name, seed) for seed in range(seeds)]
        statement, plan = (json.loads((folders[0] / file).read_text()) for file in ("statement.json", "plan.json"))
        private = method.noise is not None
        error = predicted_error(planned(method, base, statement["population"]), statement["population"])
        rows.append(
            {
                "method": name,
                "dataset": "MNIST by writer",
                "metric": "accuracy",
                **cells.mean_and_std([read_json(folder / "accuracy.json")["accuracy"] for folder in folders]),
                "seeds": seeds,
                "epsilon": statement["epsilon"] if private else None,
                "delta": statement["delta"] if private else None,
                "unit": statement["unit"] if private else None,
                "noise_multiplier": plan["noise_multiplier"] if private else None,
                "predicted_error": round(error, 4) if private else None,
                "server_learning_rate": plan["server_learning_rate"],
                "parts": plan["parts"],
                "paper": None,
            }
        )
    full = _dropped()
    missing = dataclasses.replace(full, drop_out=DROP_OUT)
    for seed in range(seeds):
        refuse_difference(place(full.title, seed), place(missing.title, seed))
    draw(rows, predictions(base), (place(WITHOUT, 0).parent if quick else FOLDER) / "accuracy.svg")
    return rows


def refuse_difference(full: Path, missing: Path) -> None:
    """Stop if two statements are not the same to the byte: who was missing must not show in what is promised."""
    one, other = ((folder / "statement.json").read_bytes() for folder in (full, missing))
    if one != other:
        raise SystemExit(f"the statements of {full} and {missing} differ")


def predictions(base: FedAvg) -> dict[str, list[float]]:
    """For each kind of noise the predicted errors at all of `PREDICTED`; printed as well."""
    population = len(data()[0])
    found = {
        key: [predicted_error(planned(Method(noise=key, epsilon=e), base, population), population) for e in PREDICTED]
        for key in NOISES
    }
    print(f"{'predicted error at ε':32}" + "".join(f"{epsilon:8g}" for epsilon in PREDICTED))
    for key, errors in found.items():
        print(f"{NOISES[key].title:32}" + "".join(f"{error:8.3f}" for error in errors))
    return found


def draw(rows: list[dict[str, Any]], predicted: dict[str, list[float]], path: Path) -> None:
    """Two panels against ε, a line for each kind of noise: accuracy, and the predicted error."""
    by_name = {row["method"]: row for row in rows}

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for index, (key, noise) in enumerate(NOISES.items()):
            told = [by_name[Method(noise=key, epsilon=epsilon).title] for epsilon in EPSILONS]
            dashes = "-" if noise.fields["sampling"] == "min_separation" else "--"
            style: Any = {"color": COLOURS[index], "linestyle": dashes, "marker": "o", "markersize": 3}
            means, spreads = ([row[field] for row in told] for field in ("mean", "std"))
            left.errorbar(EPSILONS, means, spreads, label=noise.title, capsize=2, **style)
            right.plot(PREDICTED, predicted[key], **style)
        left.axhline(by_name[WITHOUT]["mean"], color=COLOURS[6], linewidth=0.8, linestyle=":", label=WITHOUT)
        left.set_title("accuracy on other writers", loc="left", fontsize=10)
        right.set_title("predicted noise on sums of means, clip norms", loc="left", fontsize=10)
        right.set_yscale("log")
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        for axes, budgets in ((left, EPSILONS), (right, PREDICTED)):
            axes.set_xscale("log")
            axes.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
            axes.minorticks_off()
            axes.set_xlabel("ε for one writer")
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)

    save(path, (9.6, 4.6), fill)


def main() -> None:
    """Run the table, or one cell of it."""
    quick = {"rounds": 12, "max_examples": 8} if "--quick" in sys.argv else {}
    base = dataclasses.replace(PLAN, **quick)
    cells.main(FOLDER, list(methods()), partial(cell, base), partial(table, base))


if __name__ == "__main__":
    main()
