"""What the recipes of PrivacyFace share: what a backbone gains from other clients' clusters.

A recipe gives people, how a network begins, and rows; `main` trains each with `PrivacyFace` and measures it on
identities that no one trained on, after every round, too; `cells` has the options. Where rows are swept, accuracy.svg
shows recall by round, by ε and by ρ. A recipe fails if no private cluster was released.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from sfumato.report.plots import COLOURS, save

FAR, FOLDS = 1e-3, 10
ALL, CONTROL = "all", "FedAvg"
INSIDE = {"loss_radius": 0.0}
"""Negatives push pictures away inside the cap, too; the paper's term is a constant there."""

INSIDE_TITLE = ", ρ = 0 in the loss"

LINES = (CONTROL, "+ p̂", f"+ p̂{INSIDE_TITLE}", "+ p", f"+ p{INSIDE_TITLE}", "global")
"""Methods in the figure, without their ε."""

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
        swept: what is varied, and its value: the row is in the table and the figure of that alone.
    """

    start: str
    method: str
    plan: dict[str, Any] | None
    epsilon: float | None = None
    control: str = CONTROL
    swept: tuple[str, float] | None = None

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
        base: of clusters where they are not varied, "ε" and "ρ"; none where accuracy.svg is not drawn.
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
    base: Mapping[str, float] = field(default_factory=dict[str, float])
    data: cells.Data = "optional"
    results: str = "results.json"

    def plain(self, method: str) -> str:
        """A method's name in the figure."""
        return without_epsilon(method, self.base["ε"]) if self.base else method

    def drawn(self, row: Row) -> bool:
        """Whether the row is measured after every round."""
        return bool(self.base) and row.swept is None and self.plain(row.method) in LINES


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
        f"+ p̂, ε = {epsilon:g}{INSIDE_TITLE}": {"sharing": {**noisy, **INSIDE}},
        f"+ p{INSIDE_TITLE}": {"sharing": {"kind": "exact", **clusters, **INSIDE}},
        f"naive: noise on every centre, ε = {epsilon:g}": {"sharing": {"kind": "naive", "epsilon": epsilon}},
        "FedFace": {"sharing": {"kind": "fedface"}},
        **{f"expert: {name}": {"sharing": {"kind": "expert", "silo": n}} for n, name in enumerate(silos)},
    }


def rows(
    clusters: Mapping[str, Any],
    epsilon: float,
    silos: Sequence[str],
    private: Mapping[str, Any],
    *,
    epsilons: Sequence[float],
    radii: Sequence[float],
) -> dict[str, Row]:
    """All methods but experts from a strong start; from a weak one also these, drop-out, a private backbone, and
    ε and ρ of clusters varied.

    Args:
        clusters, epsilon, silos: as for `methods`.
        private: fields of a plan whose backbone has noise, calibrated to ε = 8 and 2; clusters get half of it.
        epsilons, radii: other values for clusters, one varied at a time.
    """
    found = methods(clusters, epsilon, silos)
    noisy = f"+ p̂, ε = {epsilon:g}"
    made = [
        Row(start="strong", method=name, plan=plan) for name, plan in found.items() if not name.startswith("expert")
    ]
    made += [Row(start="weak", method=name, plan=settings) for name, settings in found.items()]
    for percent in (25, 50, 75, 100):
        for name in (CONTROL, noisy, f"{noisy}{INSIDE_TITLE}"):
            settings = {**(found[name] or {}), "drop_out": percent / 100}
            made.append(Row(start="weak", method=f"drop-out {percent} %: {name}", plan=settings))
    for both in (8.0, 2.0):
        sharing = {"kind": "private", **clusters, **INSIDE, "epsilon": both / 2}
        name = f"private backbone and p̂, ε = {both:g} for both"
        made.append(Row(start="weak", method=name, plan={"sharing": sharing, **private}, epsilon=both))
    for axis, name_of, values in (("ε", "epsilon", epsilons), ("ρ", "radius", radii)):
        for value in values:
            for name in (noisy, f"{noisy}{INSIDE_TITLE}"):
                sharing = {**(found[name] or {})["sharing"], name_of: value}
                title = without_epsilon(name, epsilon)
                made.append(Row(start="weak", method=title, plan={"sharing": sharing}, swept=(axis, value)))
    return by_name(made)


def without_epsilon(method: str, epsilon: float) -> str:
    """What rows over ε or ρ are called."""
    return method.replace(f", ε = {epsilon:g}", "")


def by_name(made: Sequence[Row]) -> dict[str, Row]:
    """Rows by the name of their runs."""
    return {f"{row.start}: {row.method}{_at(row)}": row for row in made}


def _at(row: Row) -> str:
    return "" if row.swept is None else " at {} = {:g}".format(*row.swept)


def main(recipe: Recipe) -> None:
    """Run the table, or one cell of it."""
    cells.main(
        recipe.folder,
        list(recipe.rows),
        partial(cell, recipe),
        partial(table, recipe),
        data=recipe.data,
        results=recipe.results,
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


def begun(public: UserDataset, seed: int, epochs: int, *, centred: UserDataset | None = None) -> nn.Module:
    """A network that only public identities have trained, kept in .cache; its mean embedding of `centred` is zero.

    Args:
        public: whose pictures train it.
        seed: of its weights and the order of pictures.
        epochs: passes over the pictures.
        centred: public identities whose mean is subtracted; None for those that trained it.
    """
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
    around = public if centred is None else centred
    pictures = around.examples_of(np.arange(len(around)))[0]
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
    found: dict[str, Any] = {"clusters": 0, "kilobytes": None, "epsilon": None, "delta": None, "by_round": []}
    if row.plan is not None:
        sizes = [len(each) for each in parts.silos.values()]
        plan = planned(recipe, row, seed, sizes, quick)
        begun = (run / "fit" / "checkpoint" / "state.safetensors").exists()
        result = plan.fit(
            model,
            parts.silos,
            public=parts.public,
            validation=_merged(parts.unseen) if recipe.drawn(row) else None,
            out=run / "fit",
            resume=begun,
        )
        model, delta = result.model, plan.delta_of(sizes)
        rounds = [each for each in result.history if "bytes_besides" in each]
        found = {
            "clusters": sum(map(len, result.directions.values())),
            "kilobytes": sum(each["bytes_besides"] for each in rounds) / 1000,
            "epsilon": result.statement.epsilon if plan.covered else None,
            "delta": delta if plan.covered else None,
            "by_round": [
                each["recall_at_far"][f"{FAR:g}"] for each in result.history if each.get("evaluation") == "validation"
            ],
        }
    write_json(run / "measured.json", {**found, **measure(model, parts.unseen, 2 if quick else FOLDS)})


def _merged(people: Mapping[str, UserDataset]) -> UserDataset:
    rows, names = [], []
    for users in people.values():
        values, _, counts = users.examples_of(np.arange(len(users)))
        rows.append(np.asarray(values))
        names.append(np.repeat([str(name) for name in users.user_ids], counts))
    owners = np.concatenate(names)
    return data.from_arrays(np.concatenate(rows), owners, owners)


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
    """Rows of all methods: recall, how far it is above FedAvg's with the same seed, accuracy, what is sent, recall by
    round, and over what is swept. Draws accuracy.svg of the last two.

    A row is of the seeds that have run; one of which none has run is left out.
    """
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for key in recipe.rows:
        files = {seed: place(key, seed) / "measured.json" for seed in range(seeds)}
        if there := {seed: read_json(file) for seed, file in files.items() if file.exists()}:
            found[key] = there
    if not any(each["clusters"] for key in found if recipe.rows[key].releases for each in found[key].values()):
        sys.exit("no private cluster was released: take a larger radius, a lower threshold or a larger epsilon")
    made: list[dict[str, Any]] = []

    def add(key: str, metric: str, column: str, values: Sequence[float]) -> None:
        row, first = recipe.rows[key], next(iter(found[key].values()))
        made.append(
            {
                "method": recipe.plain(row.method) if " over " in metric else row.method,
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
        both = {key: recipe.rows[key] for key in found if recipe.rows[key].start == start}
        own = {key: row for key, row in both.items() if row.swept is None}
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
        for key in own:
            for number, values in enumerate(zip(*(each["by_round"] for each in found[key].values()), strict=True), 1):
                add(key, f"recall@FAR={FAR:g} by round", f"round {number}", values)
        for axis, value, key in sorted(_swept(recipe, both)):
            recall = [each["recall"][ALL] for each in found[key].values()]
            add(key, f"recall@FAR={FAR:g} over {axis}", f"{axis} = {value:g}", recall)
    if recipe.base:
        draw(recipe, made, place("", 0).parent if quick else recipe.folder)
    return made


def _swept(recipe: Recipe, rows: Mapping[str, Row]) -> list[tuple[str, float, str]]:
    """What is varied, the value, and the row: those that are swept, and for each value of the plan that they vary."""
    found = [(*row.swept, key) for key, row in rows.items() if row.swept is not None]
    there = {row.method for row in rows.values() if row.swept is not None}
    plain = {key: recipe.plain(row.method) for key, row in rows.items() if row.swept is None}
    return found + [(axis, value, key) for axis, value in recipe.base.items() for key in plain if plain[key] in there]


def draw(recipe: Recipe, made: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Recall by round, over ε and over ρ; FedAvg and training in one place as lines, as nothing of theirs is varied."""
    start = next((row.start for row in recipe.rows.values() if row.swept is not None), "")
    own = [row for row in made if row["dataset"].endswith(f", {start} start")]
    ends = {
        row["method"]: row["mean"] for row in own if row["metric"] == f"recall@FAR={FAR:g}" and row["measure"] == ALL
    }

    def points(metric: str) -> dict[str, list[tuple[float, float]]]:
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in own:
            if row["metric"] == f"recall@FAR={FAR:g} {metric}":
                lines.setdefault(row["method"], []).append((float(row["measure"].split()[-1]), row["mean"]))
        return lines

    def fill(figure: Any) -> None:
        panels, colours = figure.subplots(1, 3, sharey=True), dict(zip(LINES, COLOURS, strict=False))
        for axes, (metric, name) in zip(panels, (("by round", "round"), ("over ε", "ε"), ("over ρ", "ρ")), strict=True):
            lines = {recipe.plain(method): each for method, each in points(metric).items()}
            for method, colour in colours.items():
                if method in lines:
                    axes.plot(*zip(*sorted(lines[method]), strict=True), marker="o", markersize=3, color=colour)
                elif method in ends and method in (CONTROL, "global"):
                    axes.axhline(ends[method], color=colour, linewidth=0.8, linestyle="--")
            axes.set_xlabel(name)
            axes.spines[["top", "right"]].set_visible(False)
        values = sorted({at for line in points("over ε").values() for at, _ in line})
        panels[1].set_xscale("log")
        panels[1].set_xticks(values, [f"{value:g}" for value in values])
        panels[1].minorticks_off()
        panels[0].set_ylabel(f"recall at FAR {FAR:g}")
        for method, colour in colours.items():
            panels[0].plot([], [], color=colour, label=method)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)

    save(folder / "accuracy.svg", (9.6, 3.8), fill)
