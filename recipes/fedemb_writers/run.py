"""DP-FedEmb and DP-FedAvg on synthetic writers: recall against ε, for a thousand to a hundred thousand of them.

In the shape of the paper's EMNIST run: trained on digits and capitals, measured on small letters of other hands. The
noise of each cell is calibrated, so populations differ in how many there are to hide among. See README.md.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
from writers import writers

from sfumato import models
from sfumato._files import read_json
from sfumato.data import UserDataset
from sfumato.federated import FedAvg, FedEmb, Verification
from sfumato.report.plots import save
from sfumato.training import RunOptions

FOLDER = Path(__file__).resolve().parent
FAR = 1e-3
SEEN, UNSEEN = range(36), range(36, 62)  # digits and capitals; small letters
TRAIN, VALIDATION, TEST = 0, 1, 2
"""Seeds of hands; no hand of one is in another."""
TESTED, QUICKLY_TESTED = 250, 8  # hands
POPULATIONS = (100_000, 10_000, 1_000)
EPSILONS = (8.0, None, 4.0, 1.0)  # None: without noise
COHORTS = (30, 60, 125, 250, 500, 1_000, 2_000)  # users a round, of the second panel
SHARED_SETTINGS: dict[str, Any] = {
    "rounds": 16,
    "cohort.size": 250,
    "client.epochs": 1,
    "client.batch_size": 8,
    "trainable": "conv.*",
    "clipping": 0.1,
    "server.learning_rate": 10,
    "server.momentum": 0.5,
    "noise": 0,
}
FEDEMB = FedEmb(
    cohort={"users_per_client": 1},
    client={
        "learning_rate": 0.05,
        "head_lr_scale": 1,
        "head": {"start": "means"},
        "loss": {"kind": "cosine", "scale": 20.0},
    },
    **SHARED_SETTINGS,
)
FEDAVG = FedAvg(client={"learning_rate": 0.2, "head_lr_scale": 5}, **SHARED_SETTINGS)
COLOURS = ("#1f5a7a", "#b4540a", "#2f7048")

Plan = FedEmb | FedAvg


@dataclasses.dataclass(frozen=True)
class Method:
    """A cell's plan, before its noise.

    Attributes:
        name: "FedEmb" or "FedAvg".
        population: writers to train on.
        epsilon: for one of them; None for a run without noise.
    """

    name: str
    population: int
    epsilon: float | None

    @property
    def row(self) -> str:
        """The table's row."""
        return f"{self.name} with {self.population:,} writers"

    @property
    def title(self) -> str:
        """The cell's name."""
        return f"{self.row}, {'without noise' if self.epsilon is None else f'epsilon {self.epsilon:g}'}"

    def plan(self, quick: bool) -> Plan:
        """With the noise that ε needs."""
        base = FEDEMB if self.name == "FedEmb" else FEDAVG
        plan = dataclasses.replace(base, delta=self.population**-1.1)
        if quick:
            plan = plan.replace(rounds=2, cohort=4)
        return plan if self.epsilon is None else calibrated(plan, self.epsilon, self.population)


METHODS = {
    method.title: method
    for population in POPULATIONS
    for epsilon in EPSILONS
    for name in ("FedEmb", "FedAvg")
    for method in [Method(name, population, epsilon)]
}
"""In the order in which they are trained: what the paper's claim is about first."""
LONE = [title for title, method in METHODS.items() if method.population < max(POPULATIONS)]
"""Cells with one seed."""


@cache
def calibrated(plan: Plan, epsilon: float, population: int) -> Plan:
    """The plan with the noise at which one writer gets ε."""
    assert plan.delta is not None
    return plan.calibrate(epsilon=epsilon, delta=plan.delta, population=population)


def data(population: int, others: int, seed: int = TEST) -> tuple[UserDataset, UserDataset]:
    """Digits and capitals of so many writers, and small letters of others."""
    train = writers(population, seed=TRAIN).select_classes(SEEN)
    return train, writers(others, seed=seed).select_classes(UNSEEN)


def cell(title: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """Train one method with one seed, or go on with it."""
    method = METHODS[title]
    train, test = data(method.population, QUICKLY_TESTED if quick else TESTED)
    torch.manual_seed(seed)
    dataclasses.replace(method.plan(quick), seed=seed).fit(
        models.lenet(),
        train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        test=test,
        options=RunOptions(task=Verification(fars=(FAR,)), checkpoint_every=4),
    )


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of recall on letters that no one trained on; draws the figure."""
    untrained = [_recall(place(next(iter(METHODS)), seed), "untrained") for seed in range(seeds)]
    shared = {"dataset": f"synthetic writers, small letters of {TESTED} others", "metric": f"recall@FAR={FAR:g}"}
    rows: list[dict[str, Any]] = []
    for title, method in METHODS.items():
        folders = [place(title, seed) for seed in range(1 if title in LONE else seeds)]
        statement = read_json(folders[0] / "statement.json")
        private = method.epsilon is not None
        rows.append(
            {
                "method": method.row,
                **shared,
                **cells.mean_and_std([_recall(folder, "trained") for folder in folders]),
                "seeds": len(folders),
                "epsilon_wanted": method.epsilon,
                "epsilon": statement["epsilon"] if private else None,
                "delta": None,  # differs by population: N^-1.1
                "unit": statement["unit"] if private else None,
                "noise_multiplier": method.plan(quick).noise.noise_multiplier if private else None,
                "paper": None,
            }
        )
    nothing = dict.fromkeys(("epsilon_wanted", "epsilon", "delta", "unit", "noise_multiplier", "paper"))
    rows.append({"method": "untrained", **shared, **cells.mean_and_std(untrained), "seeds": seeds, **nothing})
    draw(rows, place(next(iter(METHODS)), 0).parent if quick else FOLDER)
    return rows


def _recall(folder: Path, which: str) -> float:
    return read_json(folder / "evaluation.json")[which]["recall_at_far"][f"{FAR:g}"]


def noise_on_mean(users: int, population: int) -> float:
    """Std of the noise on a coordinate of a round's mean at ε = 8, in clip norms: what more users a round buy."""
    plan = FEDEMB.replace(cohort=users, delta=population**-1.1)
    found = calibrated(plan, 8.0, population).noise.multiplier
    return found / users


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """Recall against ε, and against computation the noise that is left at ε = 8; a line for each population."""
    budgets = sorted(epsilon for epsilon in EPSILONS if epsilon is not None)
    places = [*budgets, 2 * budgets[-1]]  # the last one stands for no noise
    found = {(row["method"], row["epsilon_wanted"]): row for row in rows}

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for colour, population in zip(COLOURS, POPULATIONS, strict=True):
            for name, line in (("FedEmb", "-"), ("FedAvg", "--")):
                reported = [found[Method(name, population, None).row, epsilon] for epsilon in (*budgets, None)]
                means, spreads = ([row[key] for row in reported] for key in ("mean", "std"))
                label = f"DP-{name}, {population:,} writers"
                style: Any = {"color": colour, "linestyle": line, "marker": "o", "markersize": 3}
                left.errorbar(places, means, spreads, label=label, capsize=2, **style)
            users = [count for count in COHORTS if count <= population]
            left_over = [noise_on_mean(count, population) for count in users]
            right.plot(users, left_over, color=colour, marker="o", markersize=3)
        untrained = found["untrained", None]["mean"]
        left.axhline(untrained, color="#1d2329", linewidth=0.8, linestyle=":", label="untrained")
        left.set_title("recall at FAR = 0.001", loc="left", fontsize=10)
        left.set_xscale("log")
        left.set_xticks(places, [*(f"{epsilon:g}" for epsilon in budgets), "no noise"])
        left.set_xlabel("ε for one writer")
        right.set_title("noise on a round's mean at ε = 8, clip norms", loc="left", fontsize=10)
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xticks(COHORTS, [f"{count:,}" for count in COHORTS])
        right.set_xlabel("writers a round: computation")
        for axes in (left, right):
            axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)

    save(folder / "recall.svg", (9.6, 4.6), fill)


if __name__ == "__main__":
    cells.main(FOLDER, list(METHODS), cell, table, lone=LONE)
