"""Ratings of films, from models of which a part never leaves, measured on people whom no one trained on. See README.md.

Matrix factorisation without biases, 50 factors, around the middle of the stars. Everybody's vector is either a row of
a table on the server (pooled SGD, FedAvg), one vector that all share (FedAvg), or each person's own, rebuilt from half
of their ratings (Federated Reconstruction). With noise there is a curve of the error against ε, and what ε would be
at the same error among more people.
"""

import dataclasses
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells

from sfumato._files import read_json, write_json
from sfumato.data import Split, UserDataset, open_users, split_users
from sfumato.data.readers.ratings import with_user_column
from sfumato.federated import Centralized, FedAvg, FedRecon
from sfumato.federated.tasks import Personalised, Values
from sfumato.models import recommender
from sfumato.report import extrapolate
from sfumato.report.plots import COLOURS, save
from sfumato.training import RunOptions

FOLDER = Path(__file__).resolve().parent
MIDDLE = 3.5
STEPS = (0, 1, 2, 5, 10, 25, 50, 100)
RATES = {0.1: 4.0, 0.3: 4.0, 1.0: 1.0, 3.0: 0.3}
NOISES = tuple(RATES)
POPULATIONS = (100_000, 1_000_000)
_MEASURED = "measured.json"
CONSTANT = "always the mean"
RECON = "FedRecon"

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


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row.

    Attributes:
        plan: without seed.
        table: whether the server has a vector for each user.
        rebuilt: whether people are measured with a vector that is rebuilt from half of their ratings.
    """

    plan: Centralized | FedAvg | FedRecon
    table: bool = False
    rebuilt: bool = False


METHODS = {
    "centralized": Method(plan=POOLED, table=True),
    "FedAvg, vectors on the server": Method(plan=FEDAVG, table=True),
    "FedAvg, one vector for all": Method(plan=FEDAVG),
    "FedAvg, one vector for all, then rebuilt": Method(plan=FEDAVG, rebuilt=True),
    RECON: Method(plan=FEDRECON, rebuilt=True),
    **{
        f"DP-FedRecon, noise {noise:g}": Method(
            plan=FEDRECON.replace(clipping=1.0, noise=noise, server={"learning_rate": rate}),
            rebuilt=True,
        )
        for noise, rate in RATES.items()
    },
}


@cache
def people(table: bool) -> Split:
    """80 % to train on, 10 % to choose settings by, 10 % to measure on; every person is in one part."""
    found = open_users(cells.SHARED / "movielens_latest_small")
    return split_users(with_user_column(found) if table else found, test=0.1, validation=0.1)


def model(data: UserDataset, seed: int, table: bool) -> nn.Module:
    """Fresh vectors."""
    assert data.item_names is not None
    users = len(data.offsets) - 1 if table else None
    generator = torch.Generator().manual_seed(seed)
    return recommender("matrix_factorization", len(data.item_names), offset=MIDDLE, users=users, generator=generator)


def serving(steps: int) -> FedRecon:
    """How people's vectors are rebuilt to measure with; as in training but for the number of steps."""
    return FEDRECON.replace(
        client={"local": {"steps": steps, "epochs": 1 if steps == FEDRECON.client.local.steps else None}}
    )


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """Train one row with one seed, or go on with it."""
    if (folder / _MEASURED).exists():
        return
    method = METHODS[name]
    data = people(method.table)
    plan = method.plan
    if quick:
        plan = plan.replace(rounds=3)
    if plan.private:
        plan = dataclasses.replace(plan, delta=plan.public_population(data.train) ** -1.1)
    result = dataclasses.replace(plan, seed=seed).fit(
        model(data.train, seed, method.table),
        data.train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        validation=data.validation,
        options=RunOptions(evaluate_every=max(1, plan.rounds // 10), checkpoint_every=50),
    )
    if not result.finished:
        sys.exit(f"{name}, seed {seed} was stopped; start again to go on")
    if not method.rebuilt:  # on the same ratings as the others
        plain = Personalised(inner=Values(), client=serving(0).client, local_parameters="")
        write_json(folder / _MEASURED, {"unseen": plain.measure(result.model, data.test, curve=False, device="cpu")})
        return
    steps = STEPS if name == RECON else (FEDRECON.client.local.steps,)
    rows = {count: serving(count).default_task() for count in steps}
    reported: dict[str, Any] = {
        str(count): task.measure(result.model, data.test, curve=True, device="cpu") for count, task in rows.items()
    }
    standard = rows[FEDRECON.client.local.steps]
    seen = standard.measure(result.model, data.train, curve=True, device="cpu")
    write_json(
        folder / _MEASURED, {"unseen": reported[str(FEDRECON.client.local.steps)], "seen": seen, "steps": reported}
    )


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Root mean squared error and accuracy on people whom no one trained on; draws the figure."""
    found = {name: [read_json(place(name, seed) / _MEASURED) for seed in range(seeds)] for name in METHODS}
    rows = [_row(CONSTANT, [_constant()] * seeds, None)]
    for name, method in METHODS.items():
        statement = read_json(place(name, 0) / "statement.json")
        plan = method.plan
        private = plan if isinstance(plan, FedRecon) and plan.noise.noise_multiplier else None
        rows.append(_row(name, [each["unseen"] for each in found[name]], statement if private else None))
        if private:
            rows[-1].update(noise_multiplier=private.noise.noise_multiplier, **_among_more(private))
        if name == RECON:
            rows.append(_row("FedRecon, people it trained on", [each["seen"] for each in found[name]], None))
            rows += [_row(_after(count), [each["steps"][str(count)] for each in found[name]], None) for count in STEPS]
    draw(rows, place(RECON, 0).parent if quick else FOLDER)
    _print_groups(found[RECON])
    return rows


def _after(steps: int) -> str:
    return f"FedRecon, {steps} step{'s' * (steps != 1)}"


def _row(name: str, measured: list[dict[str, Any]], statement: dict[str, Any] | None) -> dict[str, Any]:
    reported = statement or {}
    return {
        "method": name,
        "dataset": "MovieLens latest-small, people no one trained on",
        "metric": "RMSE",
        **cells.mean_and_std([each["rmse"] for each in measured]),
        "within_half": cells.mean_and_std([each["within_half"] for each in measured])["mean"],
        "seeds": len(measured),
        "epsilon": reported.get("epsilon"),
        "delta": reported.get("delta"),
        "unit": reported.get("unit"),
        "noise_multiplier": None,
        "paper": _PAPER.get(name),
    }


_PAPER = {"centralized": 1.36, "FedAvg, one vector for all": 0.934, RECON: 0.907}
"""Singhal et al. 2021, MovieLens-1M, people whom no one trained on."""


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


def _print_groups(measured: list[dict[str, Any]]) -> None:
    """The error by the number of a person's ratings."""
    for who in ("unseen", "seen"):
        groups = [{row["records"]: row["rmse"] for row in each[who]["by_records"]} for each in measured]
        means = {name: np.mean([group[name] for group in groups]) for name in groups[0]}
        print(f"RMSE by number of ratings, {who}: " + ", ".join(f"{name}: {mean:.3f}" for name, mean in means.items()))


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """Two panels: the error against steps that rebuild a vector, and against ε."""
    by_name = {row["method"]: row for row in rows}

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        reported = [by_name[_after(count)] for count in STEPS]
        left.errorbar(
            STEPS, [r["mean"] for r in reported], [r["std"] for r in reported], marker="o", markersize=3, capsize=2
        )
        left.set_xscale("symlog", linthresh=1)
        left.set_xticks(STEPS, [str(count) for count in STEPS])
        left.set_xlabel("steps that rebuild a person's vector")
        left.set_title("RMSE on others", loc="left", fontsize=10)
        private = [by_name[f"DP-FedRecon, noise {noise:g}"] for noise in NOISES]
        keys = {"epsilon": "488 people", **{f"epsilon_{n}": f"{n:,} people" for n in POPULATIONS}}
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
