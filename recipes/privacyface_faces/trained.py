"""PrivacyFace on real faces, trained: what a backbone gains from the clusters of other clients.

    trained.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT] [--data FOLDER]

It writes trained.json, for the page trained.md. The clients are those of run.py without some people, whom no one trains
on. One linear layer behind MobileFaceNet's frozen features is trained. Fails if no private cluster was released.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import clients
import figures
import numpy as np
import torch
from clients import CLIENTS, PUBLIC, Client
from torch import nn

from sfumato import data, metrics
from sfumato._files import read_json, write_json
from sfumato.data import UserDataset
from sfumato.federated.losses import CosFace
from sfumato.federated.privacyface import PrivacyFace

FOLDER = Path(__file__).resolve().parent
FAR, FOLDS = 1e-3, 10
ALL = "all"
TEST_SHARE = 30
"""Of 100 identities with two pictures or more, by a hash of their names, no one trains on so many."""

ROUNDS = 5
RATES = {"strong": 0.003, "weak": 0.01}
"""The rate of the clients' steps, by the start."""

PRIVATE = {
    "rounds": 10,
    "cohort": {"size": 60, "users_per_client": 8},
    "clipping": {"norm": 0.3},
    "noise": 1.0,  # before it is calibrated
    "server": {"learning_rate": 0.1},
}
"""A backbone that is trained under noise."""

CLUSTERS = {
    "radius": figures.PLAN.radius,
    "threshold": figures.PLAN.threshold,
    "groups": figures.GROUPS,
    "dimensions": figures.DIMENSIONS,
}
NOISY = {"kind": "private", "epsilon": figures.PLAN.epsilon, **CLUSTERS}
INSIDE = {"loss_radius": 0.0}
"""Negatives push pictures away inside the cap, too; the paper's term is a constant there."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is trained.

    Attributes:
        start: "strong" is the published layer, "weak" one that public people alone have trained.
        method: in the table.
        plan: settings of `PrivacyFace`; None for the start.
        epsilon: of the whole run; None where the backbone has no noise.
    """

    start: str
    method: str
    plan: dict[str, Any] | None
    epsilon: float | None = None

    @property
    def releases(self) -> bool:
        """Whether private clusters are released."""
        return self.plan is not None and self.plan.get("sharing", {}).get("kind") == "private"


METHODS: dict[str, dict[str, Any] | None] = {
    "start": None,
    "FedAvg": {"sharing": {"kind": "backbone"}},
    "+ p̂, ε = 2": {"sharing": NOISY},
    "+ p": {"sharing": {"kind": "exact", **CLUSTERS}},
    "global": {"sharing": {"kind": "pooled"}},
    "+ p̂, ε = 2, ρ = 0 in the loss": {"sharing": {**NOISY, **INSIDE}},
    "+ p, ρ = 0 in the loss": {"sharing": {"kind": "exact", **CLUSTERS, **INSIDE}},
    "naive: noise on every centre, ε = 2": {"sharing": {"kind": "naive", "epsilon": figures.PLAN.epsilon}},
    "FedFace": {"sharing": {"kind": "fedface"}},
    **{f"expert: {name}": {"sharing": {"kind": "expert", "silo": n}} for n, name in enumerate(CLIENTS)},
}
SOME = ("start", "FedAvg", "+ p̂, ε = 2", "+ p", "global")
"""Methods of the strong start."""


def _rows() -> list[Row]:
    rows = [Row(start="strong", method=method, plan=METHODS[method]) for method in SOME]
    rows += [Row(start="weak", method=method, plan=plan) for method, plan in METHODS.items()]
    for percent in (25, 50, 75, 100):
        for method in ("FedAvg", "+ p̂, ε = 2", "+ p̂, ε = 2, ρ = 0 in the loss"):
            plan = {**(METHODS[method] or {}), "drop_out": percent / 100}
            rows.append(Row(start="weak", method=f"drop-out {percent} %: {method}", plan=plan))
    for epsilon in (8.0, 2.0):
        plan = {"sharing": {**NOISY, **INSIDE, "epsilon": epsilon / 2}, **PRIVATE}
        name = f"private backbone and p̂, ε = {epsilon:g} for both"
        rows.append(Row(start="weak", method=name, plan=plan, epsilon=epsilon))
    return rows


ROWS = {f"{row.start}: {row.method}": row for row in _rows()}
LONE = [key for key, row in ROWS.items() if row.start == "strong" or row.method not in tuple(METHODS)[:7]]
"""Rows with one seed, for the time they take."""


@dataclass(frozen=True, kw_only=True)
class Faces:
    """What a row needs.

    Attributes:
        silos: identities that clients train on, by client.
        public: people who are not covered.
        unseen: identities of each client on whom no one trains.
    """

    silos: dict[str, UserDataset]
    public: UserDataset
    unseen: dict[str, UserDataset]


@cache
def faces(folder: Path | None, quick: bool) -> Faces:
    """The clients' identities in two parts, and the public people, as features."""
    everyone = clients.clients(folder, quick)
    held = {name: unseen(everyone[name]) for name in CLIENTS}
    return Faces(
        silos={name: _users(everyone[name], ~held[name]) for name in CLIENTS},
        public=_users(everyone[PUBLIC], np.ones(len(everyone[PUBLIC].identities), bool)),
        unseen={name: _users(everyone[name], held[name]) for name in CLIENTS},
    )


def unseen(client: Client) -> np.ndarray:
    """The identities on whom no one trains, bool [identities]: some of those with two pictures or more."""
    drawn = np.array([clients.draw("unseen", name) % 100 < TEST_SHARE for name in client.identities.tolist()])
    return drawn & (np.bincount(client.owners) > 1)


def _users(client: Client, kept: np.ndarray) -> UserDataset:
    rows = kept[client.owners]
    names = client.identities[client.owners[rows]]
    return data.from_arrays(client.features[rows], names, names)


def started(row: Row, seed: int, folder: Path | None, quick: bool) -> nn.Linear:
    """The layer before the clients train."""
    if row.start == "strong":
        return clients.network(folder).embedding
    torch.manual_seed(seed)
    layer = nn.Linear(512, 128)
    public = clients.clients(folder, quick)[PUBLIC]
    rows, owners = torch.from_numpy(public.features), torch.from_numpy(public.owners)
    head = nn.Parameter(torch.randn(len(public.identities), 128))
    optimizer = torch.optim.SGD([*layer.parameters(), head], lr=0.02, momentum=0.9)
    for _ in range(2 if quick else 20):
        for some in torch.randperm(len(rows)).split(32):
            optimizer.zero_grad()
            CosFace().mean(layer(rows[some]), head, owners[some]).backward()
            optimizer.step()
    return layer


def planned(row: Row, seed: int, sizes: list[int], quick: bool) -> PrivacyFace:
    """The plan that runs."""
    assert row.plan is not None
    base = {"rounds": ROUNDS, "client.learning_rate": RATES[row.start], "delta": sum(sizes) ** -1.1}
    plan = PrivacyFace(seed=seed, drop_out_seed=seed, **{**base, **row.plan})
    if quick:
        plan = plan.replace(rounds=2)
        if row.epsilon is not None:
            plan = plan.replace(cohort={"size": 4, "users_per_client": 8})
        if row.releases or "threshold" in row.plan["sharing"]:
            plan = plan.replace(**{"sharing.threshold": CLUSTERS["threshold"] // figures.QUICK})
        if row.releases:
            plan = plan.replace(**{"sharing.epsilon": 100.0})
    if row.epsilon is None:
        return plan
    return plan.calibrate(epsilon=200.0 if quick else row.epsilon, sizes=sizes)


def cell(method: str, seed: int, run: Path, quick: bool, folder: Path | None) -> None:
    """Train and measure one row with one seed; one that is done is not repeated, one that was stopped goes on."""
    if (run / "measured.json").exists():
        return
    run.mkdir(parents=True, exist_ok=True)
    row, parts = ROWS[method], faces(folder, quick)
    model: nn.Module = started(row, seed, folder, quick)
    found: dict[str, Any] = {"clusters": 0, "kilobytes": None, "epsilon": None, "delta": None}
    if row.plan is not None:
        sizes = [len(each) for each in parts.silos.values()]
        plan = planned(row, seed, sizes, quick)
        begun = (run / "fit" / "checkpoint" / "state.safetensors").exists()
        result = plan.fit(model, parts.silos, public=parts.public, out=run / "fit", resume=begun)
        model, delta = result.model, plan.delta_of(sizes)
        rounds = [each for each in result.history if "bytes_besides" in each]
        found = {
            "clusters": sum(map(len, result.directions.values())),
            "kilobytes": sum(each["bytes_besides"] for each in rounds) / 1000,
            "epsilon": result.statement.epsilon if plan.covered else None,
            "delta": delta if plan.covered else None,
        }
    write_json(run / "measured.json", {**found, **measure(model, parts.unseen, 2 if quick else FOLDS)})


def measure(model: nn.Module, people: dict[str, UserDataset], folds: int) -> dict[str, Any]:
    """Recall over all pairs of the unseen people, of all and of each client; accuracy in folds with its interval."""
    vectors, names, client = [], [], {}
    for title, users in people.items():
        for user in range(len(users)):
            rows, _ = users.examples(user)
            with torch.inference_mode():
                made = nn.functional.normalize(model(data.to_tensor(np.asarray(rows))), dim=1)
            vectors.append(made.numpy())
            names += [str(users.user_ids[user])] * len(made)
            client[str(users.user_ids[user])] = title
    rows, who = np.concatenate(vectors), np.array(names)
    of = np.array([client[name] for name in names])
    recall = {ALL: metrics.recall_at_far(rows, who, (FAR,)).recall[FAR]}
    pairs, numbers = [], []
    for title in people:
        inside = np.flatnonzero(of == title)
        recall[title] = metrics.recall_at_far(rows[inside], who[inside], (FAR,)).recall[FAR]
        drawn, _, fold = metrics.balanced_pairs(who[inside], folds=folds, seed=0)
        pairs.append(inside[drawn])
        numbers.append(fold)
    drawn = np.concatenate(pairs)
    similarity = np.einsum("pd,pd->p", rows[drawn[:, 0]], rows[drawn[:, 1]])
    same = who[drawn[:, 0]] == who[drawn[:, 1]]
    groups = metrics.pairs_by_group(similarity, same, np.concatenate(numbers), who[drawn], client, far=0.01, least=2)
    return {
        "recall": recall,
        "accuracy": {title: list(group.accuracy) for title, group in groups.groups.items()},
        "people": {title: group.identities for title, group in groups.groups.items()},
    }


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Rows of all methods: recall, how far it is above FedAvg's with the same seed, accuracy, and what is sent."""
    found = {
        key: [read_json(place(key, seed) / "measured.json") for seed in range(1 if key in LONE else seeds)]
        for key in ROWS
    }
    if not any(each["clusters"] for key, row in ROWS.items() if row.releases for each in found[key]):
        sys.exit("no private cluster was released: take a larger radius, a lower threshold or a larger epsilon")
    rows: list[dict[str, Any]] = []

    def add(row: Row, metric: str, column: str, values: list[float], first: dict[str, Any]) -> None:
        rows.append(
            {
                "method": row.method,
                "dataset": f"four clients of real faces, {row.start} start",
                "metric": metric,
                "measure": column,
                **cells.mean_and_std(values),
                "seeds": len(values),
                "epsilon": None if first["epsilon"] is None else row.epsilon,
                "delta": None if first["delta"] is None else float(f"{first['delta']:.3g}"),
                "unit": None if first["epsilon"] is None else "identity",
                "paper": None,
            }
        )

    for start in RATES:
        own = {key: row for key, row in ROWS.items() if row.start == start}
        control = found[f"{start}: FedAvg"]
        for key, row in own.items():
            for column in (ALL, *CLIENTS):
                values = [each["recall"][column] for each in found[key]]
                add(row, f"recall@FAR={FAR:g}", column, values, found[key][0])
        for key, row in own.items():
            for column in (ALL, *CLIENTS):
                gains = [
                    100 * (each["recall"][column] - other["recall"][column])
                    for each, other in zip(found[key], control, strict=False)  # a row of one seed has the first
                ]
                if row.method != "FedAvg":
                    add(row, "points of recall above FedAvg with the same seed", column, gains, found[key][0])
        for key, row in own.items():
            for column in CLIENTS:
                values = [each["accuracy"][column][0] for each in found[key]]
                add(row, "accuracy in ten folds", column, values, found[key][0])
        for key, row in own.items():
            values = [each["kilobytes"] or 0.0 for each in found[key]]
            if any(values):
                add(row, "kB that clients send besides the backbone", "all rounds", values, found[key][0])
    return rows


def main() -> None:
    """Run the table."""
    cells.main(FOLDER, list(ROWS), cell, table, data="optional", results="trained.json", lone=LONE)


if __name__ == "__main__":
    main()
