"""DP-FedEmb on faces of LFW: users are people, most of them with a single picture. See README.md.

run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--data FOLDER], and `--choose` to print recall on the people whom
settings were chosen by.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import numpy as np
import torch
from faces import Faces, Residual, faces
from safetensors.torch import load_file
from torch import nn

from sfumato._files import read_json, write_json
from sfumato.data import UserDataset
from sfumato.federated import Centralized, FedAvg, FedEmb, FederatedPlan, Verification
from sfumato.federated.tasks import embed
from sfumato.metrics import pair_accuracy, recall_at_far
from sfumato.report import extrapolate
from sfumato.training import RunOptions

FOLDER = Path(__file__).resolve().parent
FAR = 1e-3
DELTA = 1e-5
EPSILONS = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
BEGUN_EPSILONS = (0.25, 0.5, 1, 2, 8)
"""Of rows that begin as the public people's layer."""
POPULATIONS = (100_000, 1_000_000)
COSINES = {"client.loss": "cosine", "client.loss.scale": 20.0}

GROUPS = FedEmb(
    rounds=30,
    cohort={"size": 64, "users_per_client": 16},
    client={
        "epochs": 1,
        "batch_size": 64,
        "learning_rate": 0.05,
        "momentum": 0.0,
        "head_lr_scale": 0.1,
        "head": {"start": "means"},
    },
    clipping=0.02,
    server={"learning_rate": 10.0},
    noise=0,
    delta=DELTA,
    **COSINES,
)
ALONE = GROUPS.replace(
    rounds=10,
    cohort={"size": 1024, "users_per_client": 1},
    client={"negatives": 16, "at_once": 256},
    clipping=0.01,
    server={"learning_rate": 100.0},
)
FEDAVG = FedAvg(
    rounds=20,
    cohort=256,
    client={"epochs": 1, "batch_size": 64, "learning_rate": 0.05, "momentum": 0.0},
    clipping=1.0,
    server={"learning_rate": 1.0},
    noise=0,
    delta=DELTA,
    **COSINES,
)

CONTROL = Centralized(rounds=200, cohort=256, server={"learning_rate": 0.01}, **COSINES)
"""What public people alone are trained by."""
FROM_PUBLIC = ALONE.replace(server={"learning_rate": 30.0})
"""Of rows that begin as the public people's layer."""

WITHOUT_NOISE = "FedEmb, m = 1, negatives: public people"
"""The row whose plan all rows of `at` have, but for its noise."""
LEARNED = 10
"""Directions of the trained layer that hold nearly all of what is learned without noise."""

Negatives = Literal["friends", "friends_views", "strangers"]
IN_VIEWS, BEGUN = "four views", "four views, from public people"


def at(epsilon: float) -> str:
    """The private row with this ε for one person."""
    return f"DP-FedEmb, m = 1, ε = {epsilon:g}"


def begun_at(epsilon: float) -> str:
    """The same of those that begin as the public people's layer, with four views of each picture."""
    return f"{at(epsilon)}, {BEGUN}"


@dataclass(frozen=True)
class Row:
    """A method: its plan, what its clients draw negatives from, the ε for one person that its noise is for, who is
    trained on, and whether it begins as the layer that public people alone have trained, in four views."""

    plan: FederatedPlan
    negatives: Negatives | None = None
    epsilon: float | None = None
    people: Literal["train", "train_views", "friends", "friends_views"] = "train"
    begun: bool = False


def rows() -> dict[str, Row]:
    """The table, in its order."""
    found = {
        "centralized": Row(Centralized(rounds=600, cohort=256, server={"learning_rate": 0.05}, **COSINES)),
        "centralized, four views": Row(
            Centralized(rounds=600, cohort=256, server={"learning_rate": 0.05}, **COSINES), people="train_views"
        ),
        "public people alone, centralized": Row(CONTROL, people="friends"),
        f"public people alone, centralized, {IN_VIEWS}": Row(CONTROL, people="friends_views"),
        "FedAvg": Row(FEDAVG),
        "FedEmb, heads from chance": Row(GROUPS.replace(client={"head_lr_scale": 20.0, "head": {"start": "glorot"}})),
        "FedEmb": Row(GROUPS),
        "FedEmb, m = 4": Row(GROUPS.replace(cohort={"users_per_client": 4, "size": 256})),
        "FedEmb, m = 64": Row(GROUPS.replace(cohort={"users_per_client": 64, "size": 16})),
        "FedEmb, server without momentum": Row(GROUPS.replace(server={"momentum": 0.0, "learning_rate": 100.0})),
        "FedEmb, Adam on the server": Row(GROUPS.replace(server={"name": "adam", "learning_rate": 0.01})),
        "FedEmb, moving average": Row(GROUPS.replace(server={"ema_decay": 0.9})),
        "FedEmb, m = 1, negatives: other faces": Row(ALONE, "strangers"),
        WITHOUT_NOISE: Row(ALONE, "friends"),
        "DP-FedAvg": Row(FEDAVG, epsilon=8),
        "DP-FedEmb, m = 16": Row(GROUPS, epsilon=8),
    }
    for epsilon in EPSILONS:
        found[at(epsilon)] = Row(ALONE, "friends", epsilon)
    found["DP-FedEmb, m = 1, ε = 8, moving average"] = Row(ALONE.replace(server={"ema_decay": 0.9}), "friends", 8)
    found[f"{at(8)}, {IN_VIEWS}"] = Row(ALONE, "friends_views", 8, "train_views")
    found[f"{at(8)}, from public people"] = Row(FROM_PUBLIC, "friends", 8, begun=True)
    found[f"{WITHOUT_NOISE}, {BEGUN}"] = Row(FROM_PUBLIC, "friends_views", None, "train_views", begun=True)
    for epsilon in BEGUN_EPSILONS:
        found[begun_at(epsilon)] = Row(FROM_PUBLIC, "friends_views", epsilon, "train_views", begun=True)
    return found


def prepared(row: Row, population: int, *, quick: bool) -> FederatedPlan:
    """The plan that runs: with its noise, and two rounds of it where it is quick."""
    plan = row.plan.replace(rounds=2) if quick else row.plan
    if row.epsilon is None:
        return plan
    return plan.calibrate(epsilon=row.epsilon, delta=DELTA, population=population)


def cell(method: str, seed: int, folder: Path, quick: bool, path: Path | None) -> None:
    """Train one method with one seed, or go on with it, and measure it."""
    row, parts = rows()[method], faces(path)
    plan = dataclasses.replace(prepared(row, len(parts.train), quick=quick), seed=seed)
    result = plan.fit(
        begun(parts, seed, quick=quick) if row.begun else Residual(),
        getattr(parts, row.people),
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        options=RunOptions(
            task=Verification(fars=(FAR,)),
            negatives=None if row.negatives is None else getattr(parts, row.negatives),
            evaluate_every=0,
            checkpoint_every=10,
        ),
    )
    cells.refuse_stopped(result.finished)
    write_json(folder / "faces.json", measured(result.model, parts))


def begun(parts: Faces, seed: int, *, quick: bool) -> nn.Module:
    """The layer that public people alone have trained."""
    plan = dataclasses.replace(CONTROL.replace(rounds=2) if quick else CONTROL, seed=seed)
    options = RunOptions(task=Verification(fars=(FAR,)), evaluate_every=0, progress=False)
    return plan.fit(Residual(), parts.friends_views, options=options).model


def measured(model: nn.Module, parts: Faces) -> dict[str, float]:
    """Recall on unseen people, and how often pairs are judged right."""
    found = {"validation": recall(model, parts.validation), "test": recall(model, parts.test)}
    return {**found, "pairs": pairs_right(model, parts.test, parts)}


def recall(model: nn.Module, people: UserDataset) -> float:
    """Over all pairs."""
    vectors, labels = embedded(model, people)
    return recall_at_far(vectors, labels, (FAR,)).recall[FAR]


def pairs_right(model: nn.Module, people: UserDataset, parts: Faces) -> float:
    """On those of LFW's pairs both of whose people are in the test."""
    vectors, _ = embedded(model, people)
    first, second = (vectors[places] for places in parts.pairs.rows(people).T)
    return pair_accuracy((first * second).sum(axis=1), parts.pairs.same, parts.pairs.folds).accuracy


def embedded(model: nn.Module, people: UserDataset) -> tuple[np.ndarray, np.ndarray]:
    """Of length 1, user by user, with labels."""
    found = list(embed(model, people))
    return np.concatenate([vectors for _, _, vectors in found]), np.concatenate([labels for _, labels, _ in found])


def table(place: Callable[[str, int], Path], seeds: int, quick: bool, path: Path | None = None) -> list[dict[str, Any]]:
    """Means and standard deviations over seeds of both measures; what is not trained has no seed."""
    parts, found = faces(path), []
    start, as_is = measured(Residual(), parts), parts.test_as_is
    raw = {"test": recall(nn.Identity(), as_is), "pairs": pairs_right(nn.Identity(), as_is, parts)}
    fixed = {"public backbone as it is": raw, "whitened by public faces": start}
    for method, row in rows().items():
        seen = [place(method, seed) for seed in range(seeds) if (place(method, seed) / "faces.json").exists()]
        if not seen:
            continue
        plan, statement = prepared(row, len(parts.train), quick=quick), read_json(seen[0] / "statement.json")
        private = row.epsilon is not None
        found.append(
            {
                "method": method,
                "figures": {name: [read_json(run / "faces.json")[name] for run in seen] for name in ("test", "pairs")},
                "epsilon": statement["epsilon"] if private else None,
                "delta": statement["delta"] if private else None,
                "unit": statement["unit"] if private else None,
                "noise_multiplier": plan.noise.noise_multiplier if private else None,
                **(among_more(plan) if private else {}),
                **(by_noise(method, place, len(seen)) if method in map(at, EPSILONS) else {}),
            }
        )
    blank = dict.fromkeys(("epsilon", "delta", "unit", "noise_multiplier"))
    both = [{"method": name, "figures": {k: [v] for k, v in row.items()}, **blank} for name, row in fixed.items()]
    metrics = {"test": f"recall@FAR={FAR:g}", "pairs": "LFW's pairs right"}
    return [
        {
            "method": row["method"],
            "dataset": reported(parts, name),
            "metric": metric,
            **cells.mean_and_std(row["figures"][name]),
            "seeds": len(row["figures"][name]),
            **{key: value for key, value in row.items() if key not in ("method", "figures")},
            "paper": None,
        }
        for name, metric in metrics.items()
        for row in [*both, *found]
    ]


def by_noise(method: str, place: Callable[[str, int], Path], seeds: int) -> dict[str, float]:
    """How far noise took the trained layer W from W∞, in lengths of W∞, over seeds: in all, and in the `LEARNED`
    directions in which W∞ is longest. W∞ has the same seed, so the same people in each round, and no noise."""
    found = []
    for seed in range(seeds):
        noisy, learned = (
            load_file(place(name, seed) / "model.safetensors")["turn.weight"] for name in (method, WITHOUT_NOISE)
        )
        out, _, into = torch.linalg.svd(learned)
        noise, length = noisy - learned, learned.norm()
        along = out[:, :LEARNED].T @ noise @ into[:LEARNED].T
        found.append([float(noise.norm() / length), float(along.norm() / length)])
    whole, along = np.mean(found, axis=0).round(4).tolist()
    return {"noise_in_layer": whole, "noise_in_learned": along}


def reported(parts: Faces, name: str) -> str:
    """What a table is over."""
    if name == "pairs":
        same = int(parts.pairs.same.sum())
        return f"LFW, {same} genuine and {len(parts.pairs) - same} impostor pairs of view 2 among unseen people"
    sizes = parts.test.sizes
    return (
        f"LFW, {len(parts.test)} unseen people with {int(sizes.sum()):,} pictures, of whom {int((sizes == 1).sum())} "
        f"have one and so no genuine pair; {len(parts.train):,} people to train on"
    )


def among_more(plan: FederatedPlan) -> dict[str, float]:
    """ε for one person with the same noise, rounds and cohort among more people, at δ = N^-1.1."""
    found = extrapolate(
        noise_multiplier=plan.noise.multiplier,
        rounds=plan.rounds,
        clients_per_round=plan.cohort.size,
        users_per_client=plan.cohort.users_per_client,
        populations=POPULATIONS,
        multipliers=[1],
        methods=["pld"],
    )
    return {f"epsilon_{row.population}": row.epsilon_user["pld"] for row in found}


def choose() -> None:
    """Print recall on the people whom settings are chosen by, for the runs that are there."""
    parts = faces()
    print(f"start {recall(Residual(), parts.validation):.4f}")
    for file in sorted(Path("runs/fedemb_lfw/full").glob("*/faces.json")):
        print(f"{file.parent.name} {json.loads(file.read_text())['validation']:.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--choose" in sys.argv:
        choose()
    else:
        cells.main(FOLDER, list(rows()), cell, table, data="optional")
