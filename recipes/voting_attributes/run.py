"""Seven attributes of a person at once, from votes of which each may weigh a bounded number of them.

100 agents hold census rows. They vote on public rows for all attributes, by models of their own (AE-DPFL: an agent is
protected) or by their nearest records (kNN-DPFL: a record is). A vote that may weigh τ attributes needs noise in
proportion to √τ; a lower τ scales votes for more attributes down. Students are measured on rows that no setting was
chosen on. See README.md.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from census import world
from methods import AE, KNN, Method, network

from sfumato._files import read_json, write_json
from sfumato._random import RandomSource
from sfumato.metrics.classification import attribute_scores
from sfumato.report.plots import COLOURS, save
from sfumato.training.supervised import Supervised, measure

FOLDER = Path(__file__).resolve().parent
EPSILONS = (1.0, 2.0, 4.0, 8.0)
BOUNDS = (1, 2, 3, 7)
METRICS = {"micro_f1": "micro F1", "macro_f1": "macro F1", "mean_average_precision": "mean average precision"}
POOLED = "a model of all private rows, not private"
YES = "always yes"
_MEASURED = "measured.json"

# Chosen on validation rows, see choose.py.
CUTS = {1: 0.15, 2: 0.25, 3: 0.3, 7: 0.3}
"""By τ: of votes that are scaled down, fewer are asked for."""


def method(voter: str, bound: int, epsilon: float | None) -> Method:
    """A row; noise next to nothing where there is no budget."""
    few = voter == AE and epsilon is not None and epsilon < 8
    queries = 100 if few else 300 if voter == AE else 1000
    return Method(voter=voter, attributes=bound, epsilon=epsilon, queries=queries, cut=CUTS[bound])


def title(bound: int, epsilon: float | None) -> str:
    """What the table calls it."""
    reported = "no bound" if bound == max(BOUNDS) else f"τ {bound}"
    return f"{reported}, hardly any noise" if epsilon is None else f"{reported}, ε {epsilon:g}"


def budgets(quick: bool) -> tuple[float | None, ...]:
    """Of the rows of one way of voting."""
    return (None, 8.0) if quick else (None, *EPSILONS)


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """One way of voting with one seed, all bounds and budgets; or the model of all rows."""
    if name == POOLED:
        if not (folder / _MEASURED).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / _MEASURED, pooled(seed, epochs=1 if quick else 10))
        return
    for epsilon in budgets(quick):
        for bound in BOUNDS:
            place = folder / _name(bound, epsilon)
            if not (place / "evaluation.json").exists():
                method(name, bound, epsilon).fit(seed, part="test", out=place)


def pooled(seed: int, *, epochs: int) -> dict[str, Any]:
    """What the same network learns of all private rows."""
    here = world()
    inputs, labels, _ = here.agents.examples_of(np.arange(len(here.agents)))
    training = Supervised(epochs=epochs, batch_size=128, optimizer="adam", learning_rate=0.01)
    start, source = network(here, seed), RandomSource.from_seed(seed)
    return measure(training.fit(start, inputs, labels, source=source), here.test)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Rows of both ways of voting; draws the figure."""
    truth = np.asarray(world().test.targets) > 0
    yes = attribute_scores(truth, np.ones(truth.shape))
    reference = [read_json(place(POOLED, seed) / _MEASURED) for seed in range(seeds)]
    rows = []
    for voter in (AE, KNN):
        rows.append(_row(voter, POOLED, reference, seeds))
        rows.append(_row(voter, YES, [yes] * seeds, seeds))
        for epsilon in budgets(quick):
            for bound in BOUNDS:
                folders = [place(voter, seed) / _name(bound, epsilon) for seed in range(seeds)]
                found = [read_json(folder / "evaluation.json")["trained"] for folder in folders]
                row = _row(voter, title(bound, epsilon), found, seeds)
                row |= {"bound": bound, "budget": epsilon}
                if epsilon is not None:
                    statement = read_json(folders[0] / "statement.json")
                    row |= {name: statement[name] for name in ("epsilon", "delta", "unit")}
                    row["noise_std"] = read_json(folders[0] / "plan.json")["noise_std"]
                rows.append(row)
    draw(rows, place(POOLED, 0).parent if quick else FOLDER, quick)
    return rows


def _name(bound: int, epsilon: float | None) -> str:
    return f"bound-{bound}-" + ("hardly-any-noise" if epsilon is None else f"epsilon-{epsilon:g}")


def _row(voter: str, title: str, found: list[dict[str, Any]], seeds: int) -> dict[str, Any]:
    """A row with all three measures; the first is the row's own."""
    sums = {name: cells.mean_and_std([each[name] for each in found]) for name in METRICS}
    first, *others = METRICS
    more = {
        key: value for name in others for key, value in ((name, sums[name]["mean"]), (f"{name}_std", sums[name]["std"]))
    }
    unknown = dict.fromkeys(("epsilon", "delta", "unit", "noise_std", "bound", "budget", "paper"))
    reported = {"method": title, "dataset": f"census, {voter}", "metric": METRICS[first], **sums[first], **more}
    return {**reported, "seeds": seeds, **unknown}


def draw(rows: list[dict[str, Any]], folder: Path, quick: bool) -> None:
    """Macro F1 and mean average precision against ε, a line for each bound; both ways of voting."""
    measures = ("macro_f1", "mean_average_precision")
    points = [epsilon for epsilon in budgets(quick) if epsilon is not None]

    def fill(figure: Any) -> None:
        grid = figure.subplots(len(measures), 2, sharey="row", sharex=True)
        for line, measure_ in zip(grid, measures, strict=True):
            for axes, (voter, unit) in zip(line, ((AE, "agent"), (KNN, "record")), strict=True):
                mine = [row for row in rows if row["dataset"].endswith(voter)]
                for index, bound in enumerate(BOUNDS):
                    reported = [
                        row for epsilon in points for row in mine if (row["bound"], row["budget"]) == (bound, epsilon)
                    ]
                    means, spreads = ([row[key] for row in reported] for key in (measure_, f"{measure_}_std"))
                    label = title(bound, None).split(",")[0]
                    style: Any = {"color": COLOURS[index], "marker": "o", "markersize": 3, "capsize": 2}
                    axes.errorbar(points, means, spreads, label=label, **style)
                for name, look in ((POOLED, ":"), (YES, "-.")):
                    level = next(row[measure_] for row in mine if row["method"] == name)
                    axes.axhline(level, color=COLOURS[6], linewidth=0.8, linestyle=look, label=name)
                axes.set_title(f"{voter}: {METRICS[measure_]}", loc="left", fontsize=10)
                axes.set_xscale("log")
                axes.set_xticks(points, [f"{epsilon:g}" for epsilon in points])
                axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
                axes.spines[["top", "right"]].set_visible(False)
                if measure_ == measures[-1]:
                    axes.set_xlabel(f"ε for one {unit}")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)

    save(folder / "attributes.svg", (9.6, 6.4), fill)


if __name__ == "__main__":
    cells.main(FOLDER, [POOLED, AE, KNN], cell, table)
