"""Ratings of films, from models of which a part never leaves, measured on people whom no one trained on. See README.md.

Matrix factorisation without biases, 50 factors, around the middle of the stars. Everybody's vector is either a row of
a table on the server (pooled SGD, FedAvg), one vector that all share (FedAvg), or each person's own, rebuilt from half
of their ratings by one step or by 50 (Federated Reconstruction). With noise there is a curve of the error against ε,
and what ε would be at the same error among more people.
"""

import math
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from fedrecon_recipe import Method, Study, after, measured

from sfumato._files import read_json
from sfumato.data import Split, UserDataset, open_users, split_users
from sfumato.data.readers.ratings import with_user_column
from sfumato.federated import Centralized, FedAvg, FedRecon
from sfumato.federated.tasks import Values
from sfumato.models import Recommender, recommender
from sfumato.report import extrapolate
from sfumato.report.plots import COLOURS, save

FOLDER = Path(__file__).resolve().parent
MIDDLE = 3.5
STEPS = (0, 1, 2, 5, 10, 25, 50, 100)
RATES = {0.1: 4.0, 0.3: 4.0, 1.0: 1.0, 3.0: 0.3}
NOISES = tuple(RATES)
POPULATIONS = (100_000, 1_000_000)
CONSTANT = "always the mean"
RECON, ONE_STEP = "FedRecon", "FedRecon, trained with 1 step"
LARGE_STEPS = "FedRecon, 10 steps of all ratings"

# Settings were chosen on the validation people; see README.md.
FEDRECON = FedRecon(
    rounds=200,
    cohort=100,
    clipping=None,
    noise=0.0,
    client={"learning_rate": 0.5, "batch_size": 5, "max_examples": 250, "local": {"learning_rate": 0.1}},
    server={"learning_rate": 4.0},
)
FEDAVG = FedAvg(
    client={
        "loss": "squared",
        "learning_rate": 0.2,
        "momentum": 0.0,
        "batch_size": 5,
        "max_examples": 500,
        "at_once": 64,
    },
    rounds=200,
    cohort=100,
    clipping=None,
    noise=0.0,
    server={"learning_rate": 4.0, "momentum": 0.0},
)
POOLED = Centralized(
    client={"loss": "squared"}, rounds=6000, cohort=500, server={"learning_rate": 4.0, "momentum": 0.0}
)


# All ratings of the half that a vector is rebuilt from in each step.
BY_ONE_STEP = FEDRECON.replace(client={"local": {"steps": 1, "batch_size": 1000, "learning_rate": 4.0}})
BY_LARGE_STEPS = FEDRECON.replace(
    client={"local": {"steps": 10, "epochs": None, "batch_size": 1000, "learning_rate": 1.0}}
)
FULL = FEDRECON.client.local.steps

METHODS = {
    "centralized": Method(plan=POOLED, rebuild=FEDRECON, table=True, steps=(0, FULL)),
    "FedAvg, vectors on the server": Method(plan=FEDAVG, rebuild=FEDRECON, table=True, steps=(0, FULL)),
    "FedAvg, one vector for all": Method(plan=FEDAVG, rebuild=FEDRECON, steps=(0, FULL)),
    RECON: Method(plan=FEDRECON, rebuild=FEDRECON, steps=STEPS, seen=True),
    LARGE_STEPS: Method(plan=BY_LARGE_STEPS, rebuild=BY_LARGE_STEPS, steps=(10,)),
    ONE_STEP: Method(plan=BY_ONE_STEP, rebuild=BY_ONE_STEP, steps=(0, 1, 2, 5)),
    **{
        f"DP-FedRecon, noise {noise:g}": Method(
            plan=FEDRECON.replace(clipping=1.0, noise=noise, server={"learning_rate": rate}),
            rebuild=FEDRECON,
            steps=(FULL,),
        )
        for noise, rate in RATES.items()
    },
}


@cache
def people(table: bool) -> Split:
    """80 % to train on, 10 % to choose settings by, 10 % to measure on; every person is in one part."""
    found = open_users(cells.SHARED / "movielens_latest_small")
    return split_users(with_user_column(found) if table else found, test=0.1, validation=0.1)


def model(data: UserDataset, seed: int, users: int | None) -> Recommender:
    """Fresh vectors."""
    assert data.item_names is not None
    generator = torch.Generator().manual_seed(seed)
    return recommender("matrix_factorization", len(data.item_names), offset=MIDDLE, users=users, generator=generator)


STUDY = Study(methods=METHODS, people=people, model=model, inner=Values())
cell = STUDY.cell


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Root mean squared error and accuracy on people whom no one trained on; draws the figure."""
    rows = [_row(CONSTANT, [_constant()] * seeds)]
    for name, method in METHODS.items():
        found, plan = measured(place, name, seeds), method.plan
        for title, steps in method.titled(name):
            rows.append(_row(title, [each["unseen"][str(steps)] for each in found], found[0]["kilobytes_sent"]))
        if isinstance(plan, FedRecon) and plan.noise.noise_multiplier:
            said = read_json(place(name, 0) / "statement.json")
            rows[-1].update({key: said[key] for key in ("epsilon", "delta", "unit")})
            rows[-1].update(noise_multiplier=plan.noise.noise_multiplier, **_among_more(plan))
        if method.seen:
            rows.append(_row(f"{name}, people it trained on", [each["seen"] for each in found]))
    draw(rows, place(RECON, 0).parent if quick else FOLDER)
    _print_groups(measured(place, RECON, seeds))
    return rows


def _row(name: str, found: list[dict[str, Any]], kilobytes: float | None = None) -> dict[str, Any]:
    paper = _PAPER.get(name, (None, None))
    return {
        "method": name,
        "dataset": "MovieLens latest-small, people no one trained on",
        "metric": "RMSE",
        **cells.mean_and_std([each["rmse"] for each in found]),
        "within_half": cells.mean_and_std([each["within_half"] for each in found])["mean"],
        "kilobytes_sent": kilobytes,
        "seeds": len(found),
        **dict.fromkeys(("epsilon", "delta", "unit", "noise_multiplier")),
        "paper": paper[0],
        "paper_within_half": paper[1],
    }


_PAPER = {
    "centralized, then rebuilt": (1.36, 0.408),
    "FedAvg, vectors on the server, then rebuilt": (0.934, 0.400),
    RECON: (0.907, 0.433),
}
"""Singhal et al. 2021, MovieLens-1M, people whom no one trained on, whose vectors were rebuilt: RMSE and accuracy."""


def _constant() -> dict[str, Any]:
    """What a single number reaches."""
    data = people(False)
    mean = float(np.mean(np.concatenate([data.train.examples(user)[1] for user in range(len(data.train))])))
    errors = np.concatenate([data.test.examples(user)[1] for user in range(len(data.test))]) - mean
    return {"rmse": math.sqrt(float(np.mean(errors**2))), "within_half": float(np.mean(np.abs(errors) <= 0.5))}


def _among_more(plan: FedRecon) -> dict[str, float]:
    """ε of one user at the same noise on the mean update, among more people with cohorts that grow in proportion."""
    found = {}
    for population in POPULATIONS:
        many = extrapolate(
            noise_multiplier=plan.noise.multiplier,
            rounds=plan.rounds,
            clients_per_round=plan.cohort.size,
            users_per_client=1,
            populations=[population],
            multipliers=[population / 2000],
            methods=["pld"],
        )
        found[f"epsilon_{population}"] = many[0].epsilon_user["pld"]
    return found


def _print_groups(found: list[dict[str, Any]]) -> None:
    """The error by the number of a person's ratings."""
    parts = {"unseen": [each["unseen"][str(FULL)] for each in found], "seen": [each["seen"] for each in found]}
    for who in parts:
        groups = [{row["records"]: row["rmse"] for row in each["by_records"]} for each in parts[who]]
        means = {name: np.mean([group[name] for group in groups]) for name in groups[0]}
        print(f"RMSE by number of ratings, {who}: " + ", ".join(f"{name}: {mean:.3f}" for name, mean in means.items()))


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """Two panels: the error against steps that rebuild a vector, and against ε."""
    by_name = {row["method"]: row for row in rows}

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        reported = [by_name[after(RECON, count)] for count in STEPS]
        left.errorbar(
            STEPS, [r["mean"] for r in reported], [r["std"] for r in reported], marker="o", markersize=3, capsize=2
        )
        left.set_xscale("symlog", linthresh=1)
        left.set_xticks(STEPS, [str(count) for count in STEPS])
        left.set_xlabel("steps that rebuild a person's vector")
        left.set_title("RMSE on others", loc="left", fontsize=10)
        private = [by_name[f"DP-FedRecon, noise {noise:g}"] for noise in NOISES]
        keys = {"epsilon": "500 people", **{f"epsilon_{n}": f"{n:,} people" for n in POPULATIONS}}
        for colour, (key, label) in enumerate(keys.items()):
            right.plot(
                [row[key] for row in private],
                [row["mean"] for row in private],
                color=COLOURS[colour],
                marker="o",
                markersize=3,
                label=label,
            )
        for axes in (left, right):
            axes.axhline(by_name[RECON]["mean"], color=COLOURS[6], linewidth=0.8, linestyle=":")
            axes.spines[["top", "right"]].set_visible(False)
        right.set_xscale("log")
        right.set_xlabel("ε for one user at this noise on the mean")
        right.legend(frameon=False, fontsize=8)

    save(folder / "error.svg", (9.6, 4.0), fill)


if __name__ == "__main__":
    cells.main(FOLDER, list(METHODS), cell, table)
