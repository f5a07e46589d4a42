"""What the recipes of PrivacyFace share: what a backbone gains from other clients' clusters.

A recipe gives people, how a network begins, and rows; `main` trains each with `PrivacyFace` and measures it on
identities that no one trained on; `cells` has the options. A recipe fails if no private cluster was released.
"""

import hashlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cells
import numpy as np
import public_features
import torch
from torch import nn

from sfumato import data, metrics
from sfumato._files import read_json, write_json
from sfumato.data import UserDataset
from sfumato.federated.losses import CosFace
from sfumato.federated.privacyface import PrivacyFace

FAR, FOLDS = 1e-3, 10
ALL, CONTROL = "all", "FedAvg"
INSIDE = {"loss_radius": 0.0}
"""Negatives push pictures away inside the cap, too; the paper's term is a constant there."""

DIMENSIONS = 128
"""Of the embeddings of `network`."""

_BATCH, _PARTS = 64, 16
_QUICK_EPSILON = 100.0  # for clusters of a sixth of the identities


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is trained.

    Attributes:
        start: how the network begins.
        method: in the table.
        plan: settings of `PrivacyFace`; None for the start.
        epsilon: of the whole run; None where the backbone has no noise.
        control: the method, of the same start, that this one is compared with.
    """

    start: str
    method: str
    plan: dict[str, Any] | None
    epsilon: float | None = None
    control: str = CONTROL

    @property
    def releases(self) -> bool:
        """Whether private clusters are released."""
        return self.plan is not None and self.plan.get("sharing", {}).get("kind") == "private"


@dataclass(frozen=True, kw_only=True)
class People:
    """What a row needs.

    Attributes:
        silos: identities that clients train on, by client.
        public: people who are not covered.
        unseen: identities on whom no one trains, by column of the table.
    """

    silos: dict[str, UserDataset]
    public: UserDataset
    unseen: dict[str, UserDataset]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table.

    Attributes:
        folder: where the script and its results lie.
        dataset: its name in the table.
        rows: by the name of their runs.
        people: from the path in --data, and whether it is quick.
        started: gives the network of a row and seed before the clients train, from these and what `people` takes.
        settings: fields of all plans, by start.
        quick: fields of plans that end within a minute or so, for rows that have them.
        lone: names of rows with one seed, for the time they take.
        data: whether --data may name where the data lies.
        results: the file that is written.
    """

    folder: Path
    dataset: str
    rows: Mapping[str, Row]
    people: Callable[[Path | None, bool], People]
    started: Callable[[Row, int, Path | None, bool], nn.Module]
    settings: Mapping[str, Mapping[str, Any]]
    quick: Mapping[str, Any]
    lone: Collection[str] = ()
    data: cells.Data = "optional"
    results: str = "results.json"


def methods(clusters: Mapping[str, Any], epsilon: float, silos: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    """Settings of the methods that are compared.

    Args:
        clusters: fields of `sharing` that decide which caps are released.
        epsilon: of one identity's clusters.
        silos: names of the clients, for an expert each.
    """
    noisy = {"kind": "private", "epsilon": epsilon, **clusters}
    return {
        "start": None,
        CONTROL: {"sharing": {"kind": "backbone"}},
        f"+ p̂, ε = {epsilon:g}": {"sharing": noisy},
        "+ p": {"sharing": {"kind": "exact", **clusters}},
        "global": {"sharing": {"kind": "pooled"}},
        f"+ p̂, ε = {epsilon:g}, ρ = 0 in the loss": {"sharing": {**noisy, **INSIDE}},
        "+ p, ρ = 0 in the loss": {"sharing": {"kind": "exact", **clusters, **INSIDE}},
        f"naive: noise on every centre, ε = {epsilon:g}": {"sharing": {"kind": "naive", "epsilon": epsilon}},
        "FedFace": {"sharing": {"kind": "fedface"}},
        **{f"expert: {name}": {"sharing": {"kind": "expert", "silo": n}} for n, name in enumerate(silos)},
    }


def rows(
    clusters: Mapping[str, Any], epsilon: float, silos: Sequence[str], private: Mapping[str, Any]
) -> dict[str, Row]:
    """Some methods from a strong start; from a weak one all, with drop-out, and a private backbone.

    Args:
        clusters, epsilon, silos: as for `methods`.
        private: fields of a plan whose backbone has noise, calibrated to ε = 8 and 2; clusters get half of it.
    """
    found = methods(clusters, epsilon, silos)
    noisy = f"+ p̂, ε = {epsilon:g}"
    made = [Row(start="strong", method=name, plan=found[name]) for name in tuple(found)[:5]]
    made += [Row(start="weak", method=name, plan=settings) for name, settings in found.items()]
    for percent in (25, 50, 75, 100):
        for name in (CONTROL, noisy, f"{noisy}, ρ = 0 in the loss"):
            settings = {**(found[name] or {}), "drop_out": percent / 100}
            made.append(Row(start="weak", method=f"drop-out {percent} %: {name}", plan=settings))
    for both in (8.0, 2.0):
        sharing = {"kind": "private", **clusters, **INSIDE, "epsilon": both / 2}
        name = f"private backbone and p̂, ε = {both:g} for both"
        made.append(Row(start="weak", method=name, plan={"sharing": sharing, **private}, epsilon=both))
    return by_name(made)


def lone(all_rows: Mapping[str, Row]) -> list[str]:
    """Those of `rows` with one seed, for the time they take: all but the first methods of the weak start."""
    several = [row.method for row in all_rows.values() if row.start == "weak"][:7]
    return [key for key, row in all_rows.items() if row.start == "strong" or row.method not in several]


def by_name(made: Sequence[Row]) -> dict[str, Row]:
    """Rows by the name of their runs."""
    return {f"{row.start}: {row.method}": row for row in made}


def main(recipe: Recipe) -> None:
    """Run the table, or one cell of it."""
    cells.main(
        recipe.folder,
        list(recipe.rows),
        partial(cell, recipe),
        partial(table, recipe),
        data=recipe.data,
        results=recipe.results,
        lone=recipe.lone,
    )


def network() -> nn.Sequential:
    """Two strided convolutions and a dense layer, for grey pictures of 28 × 28: small, for the time that rows take."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, DIMENSIONS),
    )


def begun(public: UserDataset, seed: int, epochs: int) -> nn.Module:
    """A network that only public identities have trained, and whose mean embedding of them is zero; kept in .cache."""
    torch.manual_seed(seed)
    model = network()
    key = hashlib.sha256(repr((seed, epochs, str(network()), public.fingerprint())).encode()).hexdigest()[:16]

    def train() -> np.ndarray:
        pictures, labels, _ = public.examples_of(np.arange(len(public)))
        rows, targets = torch.from_numpy(np.asarray(pictures)), torch.from_numpy(np.asarray(labels))
        head = nn.Parameter(torch.randn(public.num_classes, DIMENSIONS))
        optimizer = torch.optim.SGD([*model.parameters(), head], lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(rows) // _BATCH))
        loss = CosFace(scale=20.0, margin=0.2)
        for _ in range(epochs):
            for some in torch.randperm(len(rows)).split(_BATCH):
                optimizer.zero_grad()
                loss.mean(model(data.to_tensor(rows[some].numpy())), head, targets[some]).backward()
                optimizer.step()
                schedule.step()
        return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()

    weights = torch.from_numpy(np.array(public_features.cached(f"strided-network-{key}", train)))
    nn.utils.vector_to_parameters(weights, model.parameters())
    pictures = public.examples_of(np.arange(len(public)))[0]
    with torch.no_grad():  # embeddings have a common direction otherwise, and all centres lie in one cap
        total = sum(model(data.to_tensor(np.asarray(some))).sum(dim=0) for some in np.array_split(pictures, _PARTS))
        model[-1].bias -= total / len(pictures)  # pyright: ignore
    return model.eval()


def planned(recipe: Recipe, row: Row, seed: int, sizes: list[int], quick: bool) -> PrivacyFace:
    """The plan that runs."""
    assert row.plan is not None
    base = {**recipe.settings[row.start], "delta": sum(sizes) ** -1.1}
    plan = PrivacyFace(seed=seed, drop_out_seed=seed, **{**base, **row.plan})
    if quick:
        fields = dict(recipe.quick)
        if row.epsilon is None:
            fields.pop("cohort", None)
        if not row.releases and row.plan["sharing"]["kind"] != "exact":
            fields.pop("sharing.threshold", None)
        if row.releases:
            fields["sharing.epsilon"] = _QUICK_EPSILON
        plan = plan.replace(**fields)
    if row.epsilon is None:
        return plan
    return plan.calibrate(epsilon=2 * _QUICK_EPSILON if quick else row.epsilon, sizes=sizes)


def cell(recipe: Recipe, method: str, seed: int, run: Path, quick: bool, folder: Path | None) -> None:
    """Train and measure one row with one seed; one that is done is not repeated, one that was stopped goes on."""
    if (run / "measured.json").exists():
        return
    run.mkdir(parents=True, exist_ok=True)
    row, parts = recipe.rows[method], recipe.people(folder, quick)
    model = recipe.started(row, seed, folder, quick)
    found: dict[str, Any] = {"clusters": 0, "kilobytes": None, "epsilon": None, "delta": None}
    if row.plan is not None:
        sizes = [len(each) for each in parts.silos.values()]
        plan = planned(recipe, row, seed, sizes, quick)
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


def measure(model: nn.Module, people: Mapping[str, UserDataset], folds: int) -> dict[str, Any]:
    """Recall over all pairs of the unseen people, of all and of each client; accuracy in folds with its interval."""
    vectors, names, client = [], [], {}
    for title, users in people.items():
        for user in range(len(users)):
            rows, _ = users.examples(user)
            with torch.inference_mode():
                made = nn.functional.normalize(model(data.to_tensor(np.asarray(rows))), dim=1)
            vectors.append(made.numpy())
            names += [str(users.user_ids[user])] * len(made)
            client[names[-1]] = title
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


def table(recipe: Recipe, place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Rows of all methods: recall, how far it is above FedAvg's with the same seed, accuracy, and what is sent.

    A row is of the seeds that have run; one of which none has run is left out.
    """
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for key in recipe.rows:
        files = {seed: place(key, seed) / "measured.json" for seed in range(1 if key in recipe.lone else seeds)}
        if there := {seed: read_json(file) for seed, file in files.items() if file.exists()}:
            found[key] = there
    if not any(each["clusters"] for key in found if recipe.rows[key].releases for each in found[key].values()):
        sys.exit("no private cluster was released: take a larger radius, a lower threshold or a larger epsilon")
    made: list[dict[str, Any]] = []

    def add(key: str, metric: str, column: str, values: list[float]) -> None:
        row, first = recipe.rows[key], next(iter(found[key].values()))
        made.append(
            {
                "method": row.method,
                "dataset": f"{recipe.dataset}, {row.start} start",
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

    columns = list(next(iter(next(iter(found.values())).values()))["accuracy"])
    for start in recipe.settings:
        own = {key: recipe.rows[key] for key in found if recipe.rows[key].start == start}
        for key in own:
            for column in (ALL, *columns):
                add(key, f"recall@FAR={FAR:g}", column, [each["recall"][column] for each in found[key].values()])
        for control in dict.fromkeys(row.control for row in own.values()):
            others = found.get(f"{start}: {control}", {})
            for key, row in own.items():
                if row.control != control or row.method == control:
                    continue
                for column in (ALL, *columns):
                    gains = [
                        100 * (each["recall"][column] - others[seed]["recall"][column])
                        for seed, each in found[key].items()
                        if seed in others
                    ]
                    if gains:
                        add(key, f"points of recall above {control} with the same seed", column, gains)
        for key in own:
            for column in columns:
                add(key, "accuracy in ten folds", column, [each["accuracy"][column][0] for each in found[key].values()])
        for key in own:
            values = [each["kilobytes"] or 0.0 for each in found[key].values()]
            if any(values):
                add(key, "kB that clients send besides the backbone", "all rounds", values)
    return made
