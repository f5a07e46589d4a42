"""Rerun one cheap cell of each recipe by today's code, and compare it with the row of results.json that it belongs to.

    python recipes/check.py [--only NAME …] [--all] [--seeds N] [--again] [--out DIR]

A cell is run by the recipe's own functions with its full settings. Seeds are those of the table, from its first on. A
line a recipe: the cell, the committed mean, today's figure, whether it is within the tolerance, and processor seconds.
Recipes whose cell takes more than `MOST_MINUTES` are listed; --all, or their name under --only, runs them. The exit
code is 1 where a cell is outside or failed.

check.json has all lines. A cell that is in it for the same code, seeds and committed row is not run again, unless it
failed or under --again. The code is the last commit that changed src, the recipe, or what recipes share; with changes
that are not committed it counts as none that was checked.

**Tolerance.** The half-width of the interval of 95 % for the mean of k new seeds, predicted from the n committed ones:
t(n−1, .975) · s · √(1/n + 1/k), for their standard deviation s. Half of the last digit in results.json is added to s
and to the width. It follows from results.json alone. Where code changed no random draw, today's figure is one of the n
and well within; where it did, a figure of the same law is outside once in twenty times. More seeds decide then: with
--seeds 3 the width is .71 of that. A row of one seed has no spread, so only the same figure is within.
"""

import argparse
import functools
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cells import loaded, place_in

from sfumato._files import read_json, write_json

RECIPES = Path(__file__).resolve().parent
LEVEL = 0.95
MOST_MINUTES = 5.0
HALF_DIGIT = 5e-5  # of the four digits that means and standard deviations have in results.json

Run = Callable[[ModuleType, int, Path], float]
"""Gives the figure of a cell, from the recipe's run.py as a module, the seed, and the folder of the run."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is rerun of a recipe.

    Attributes:
        row: fields that one row of results.json alone has.
        run: trains and measures.
        minutes: about how long that takes on one core, with what is computed once and then kept in .cache; cells run in
            this order.
    """

    row: Mapping[str, Any]
    run: Run
    minutes: float

    @property
    def name(self) -> str:
        """What a line calls it."""
        shown = [f"ε {value:g}" if "epsilon" in key else str(value) for key, value in self.row.items()]
        return ", ".join(shown)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A cell of `cells.main`, whose figure is in a file of its run folder.

    Attributes:
        method: of the cell.
        file: that has the figure.
        keys: where in it; a mapping stands for the first of a list that has these fields.
        narrowed: what constants of run.py become, so that only this cell runs.
    """

    method: str
    file: str
    keys: Sequence[str | Mapping[str, Any]]
    narrowed: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, recipe: ModuleType, seed: int, folder: Path) -> float:
        """Run it, or go on there."""
        for path, value in self.narrowed.items():
            *owners, name = path.split(".")
            setattr(functools.reduce(getattr, owners, recipe), name, value)
        run = place_in(folder, self.method, seed)
        _cell_of(recipe)(self.method, seed, run, False, None)
        found: Any = read_json(run / self.file)
        for key in self.keys:
            if isinstance(key, str):
                found = found[key]
            else:
                found = next(each for each in found if key.items() <= each.items())
        return float(found)


def _cell_of(recipe: ModuleType) -> Callable[..., None]:
    """The function that the recipe hands to `cells.main`."""
    if hasattr(recipe, "cell"):
        return recipe.cell
    shared = sys.modules[recipe.main.__module__]
    return functools.partial(shared.cell, recipe.RECIPE if hasattr(recipe, "RECIPE") else recipe.methods())


def label(dataset: str, method: str, epsilon: float) -> Run:
    """The accuracy of a method of private labels."""

    def run(recipe: ModuleType, seed: int, _: Path) -> float:
        shared, table = sys.modules[recipe.main.__module__], recipe.RECIPE
        chosen = table.methods[dataset][method]
        settings = shared.chosen(table, dataset, method, epsilon)
        return shared.measured(chosen, settings, epsilon, seed, table.parts(chosen.inputs, False, False))["accuracy"]

    return run


def patients(method: str, part: str, measure: str) -> Run:
    """A measure of generated health records."""

    def run(recipe: ModuleType, seed: int, folder: Path) -> float:
        table = recipe.RECIPE
        run = place_in(folder, method, seed)
        return recipe.ehr_recipe.cell(table, method, seed, table.parts(), run, quick=False)[part][measure]["found"]

    return run


def accuracy(method: str, row: Mapping[str, Any] | None = None, *, minutes: float) -> Cell:
    """A cell of classifiers."""
    return Cell(
        row=row or {"method": method},
        run=Kept(method=method, file="evaluation.json", keys=("trained", "accuracy")),
        minutes=minutes,
    )


def recall(method: str, row: Mapping[str, Any] | None = None, *, minutes: float) -> Cell:
    """A cell of embeddings."""
    return Cell(
        row=row or {"method": method},
        run=Kept(method=method, file="evaluation.json", keys=("trained", "recall_at_far", "0.001")),
        minutes=minutes,
    )


def measured(
    method: str, *keys: str | Mapping[str, Any], row: Mapping[str, Any] | None = None, minutes: float, **narrowed: Any
) -> Cell:
    """A cell that writes measured.json."""
    return Cell(
        row={"method": method, **(row or {})},
        run=Kept(method=method, file="measured.json", keys=keys, narrowed=narrowed),
        minutes=minutes,
    )


LETTERS, DIGITS = "MNIST → ten alphabets of Omniglot", "Omniglot → 6,000 digits of MNIST"
HOG, MNIST_LABELS = "MNIST-M, HOG", "MNIST, 60,000 private labels"
AT_ONE: dict[str, Any] = {"wanted": 1.0}
CELLS: dict[str, Cell] = {
    "ads_counts": measured(
        "DP-SGD, deferred noise",
        *(AT_ONE, "deviance"),
        row={"metric": "mean Poisson deviance", "epsilon_wanted": 1.0},
        minutes=0.6,
        EPSILONS=(1.0,),
    ),
    "ads_criteo": measured(
        "DP-SGD, deferred noise",
        *(AT_ONE, "log_loss"),
        row={"metric": "log loss", "epsilon_wanted": 1.0},
        minutes=2,
        **{"clicks.EPSILONS": (1.0,)},
    ),
    "ads_zipf": measured(
        "DP-SGD, deferred noise",
        *(AT_ONE, "log_loss"),
        row={"metric": "log loss", "epsilon_wanted": 1.0},
        minutes=0.3,
        **{"clicks.EPSILONS": (1.0,)},
    ),
    "ehr_pbcseq": Cell(
        row={"method": "EHR-Safe", "metric": "AUC on held-out patients", "measure": "the best of them"},
        run=patients("EHR-Safe", "utility", "the best of them"),
        minutes=5,
    ),
    "ehr_physionet2012": Cell(
        row={"method": "EHR-Safe", "metric": "AUC on held-out patients", "measure": "the best of them"},
        run=patients("EHR-Safe", "utility", "the best of them"),
        minutes=30,
    ),
    "ehr_private": Cell(
        row={"method": "EHR-Safe, ε = 8", "metric": "AUC on held-out patients", "measure": "the best of them"},
        run=patients("EHR-Safe, ε = 8", "utility", "the best of them"),
        minutes=6,
    ),
    "fedemb_glyphs": recall("DP-FedEmb", minutes=2),
    "fedemb_lfw": Cell(
        row={"method": "DP-FedEmb, m = 1, ε = 8", "metric": "recall@FAR=0.001"},
        run=Kept(method="DP-FedEmb, m = 1, ε = 8", file="faces.json", keys=("test",)),
        minutes=11,
    ),
    "fedemb_omniglot": recall("DP-FedEmb", minutes=5),
    "fedemb_writers": recall(
        "FedAvg with 100,000 writers, epsilon 8",
        {"method": "FedAvg with 100,000 writers", "epsilon_wanted": 8.0},
        minutes=4,
    ),
    "fedrecon_likes": measured("FedRecon, trained with 1 step", "unseen", "1", "accuracy", minutes=5),
    "fedrecon_movielens": measured("DP-FedRecon, noise 0.3", "unseen", "50", "rmse", minutes=2),
    "fedrecon_shakespeare": measured(
        *("FedYogi", "FedYogi", "accuracy"),
        row={"dataset": "next character of Shakespeare's roles, half of each role's sequences"},
        minutes=5,
    ),
    "ftrl_shakespeare": measured("independent, Poisson sampling, ε 8", "accuracy", minutes=3),
    "ftrl_writers": measured("independent, Poisson sampling, ε 2", "accuracy", minutes=0.3),
    "imagenet_transfer": accuracy(f"{DIGITS}: from scratch", {"dataset": DIGITS, "method": "from scratch"}, minutes=3),
    "labeldp_ads": measured(
        "DP-SGD",
        *({"table": "Adult", **AT_ONE}, "log_loss"),
        row={"dataset": "Adult, a fifth of the rows", "metric": "log loss", "epsilon_wanted": 1.0},
        minutes=0.2,
        EPSILONS=(1.0,),
        TABLES=("Adult",),
    ),
    "labeldp_mnist": Cell(
        row={"method": "LP-2ST", "label_epsilon": 1.0}, run=label(MNIST_LABELS, "LP-2ST", 1.0), minutes=5
    ),
    "labeldp_mnist_m": Cell(
        row={"dataset": HOG, "method": "clusters, LP-2ST", "label_epsilon": 2.0},
        run=label(HOG, "clusters, LP-2ST", 2.0),
        minutes=0.5,
    ),
    "labeldp_ratings": measured(
        "RR on bins", *(AT_ONE, "rmse"), row={"epsilon_wanted": 1.0}, minutes=0.2, EPSILONS=(1.0,)
    ),
    "normalisation_agnews": accuracy("BiLSTM, layer norm, ε 1", minutes=0.3),
    "normalisation_mnist": accuracy("LeNet-5, layer norm, ε 0.1", minutes=0.5),
    "privacyface_faces": measured(
        "cosines",
        *("ρ = 1.4, ε = 2, Q = 1", "LFW women", "cosine"),
        row={
            "method": "clusters, ρ = 1.4, ε = 2, Q = 1",
            "measure": "LFW women",
            "metric": "cosine of p and p̂, in the noise's 32 dimensions",
        },
        minutes=20,
    ),
    "privacyface_glyphs": measured(
        "releases",
        *("turned", "ρ = 1.3, ε = 1, 32 dimensions", "cosine"),
        row={
            "method": "ρ = 1.3, ε = 1, 32 dimensions",
            "measure": "turned",
            "metric": "cosine of p and p̂, in the noise's dimensions",
        },
        minutes=10,
    ),
    "privacyface_omniglot": measured(
        "strong: FedAvg",
        *("recall", "all"),
        row={
            "method": "FedAvg",
            "dataset": "four groups of Omniglot's alphabets, strong start",
            "metric": "recall@FAR=0.001",
            "measure": "all",
        },
        minutes=2,
    ),
    "voting_attributes": Cell(
        row={"dataset": "census, kNN-DPFL", "method": "τ 3, ε 8"},
        run=Kept(
            method="kNN-DPFL",
            file="bound-3-epsilon-8/evaluation.json",
            keys=("trained", "micro_f1"),
            narrowed={"EPSILONS": (8.0,), "BOUNDS": (3,)},
        ),
        minutes=0.2,
    ),
    "voting_digits": measured("AE-DPFL", "accuracy", minutes=4),
    "voting_mnist": measured("AE-DPFL", "accuracy", minutes=5),
    "voting_office": Cell(
        row={"dataset": "Office-Caltech10, the server has webcam", "method": "DP-SGD, records pooled, ε 8"},
        run=Kept(
            method="DP-SGD, records pooled, ε 8",
            file="webcam/evaluation.json",
            keys=("trained", "accuracy"),
            narrowed={"OFFICE": ("webcam",), "DIGITS": ()},
        ),
        minutes=0.2,
    ),
}


def tolerance(row: Mapping[str, Any], seeds: int) -> float:
    """By how much the mean of so many seeds may differ from the row's; see the module's docstring."""
    from scipy import stats

    if row["seeds"] == 1:
        return HALF_DIGIT
    quantile = float(stats.t.ppf(0.5 + LEVEL / 2, row["seeds"] - 1))
    return quantile * (row["std"] + HALF_DIGIT) * math.sqrt(1 / row["seeds"] + 1 / seeds) + HALF_DIGIT


def row_of(recipe: str, cell: Cell) -> dict[str, Any]:
    """The committed row.

    Raises:
        KeyError: there is none, or several.
    """
    rows = read_json(RECIPES / recipe / "results.json")
    found = [row for row in rows if all(row.get(key) == value for key, value in cell.row.items())]
    if len(found) != 1:
        raise KeyError(f"{recipe}: {len(found)} rows of results.json are {dict(cell.row)}")
    return found[0]


def code_of(recipe: str) -> str:
    """The last commit of what decides a recipe's figures; with a "+" where something of it is not committed."""
    paths = ("src", ":(glob)recipes/*.py", f"recipes/{recipe}", "recipes/ehr_baselines")
    paths = (*paths, ":!recipes/check.py", ":!recipes/**/*.md")

    def git(*words: str) -> str:
        command = ["git", *words, "--", *paths]
        return subprocess.run(command, cwd=RECIPES.parent, capture_output=True, text=True, check=True).stdout.strip()

    return git("log", "-1", "--format=%h") + ("+" if git("status", "--porcelain") else "")


def checked(recipe: str, cell: Cell, *, seeds: int, out: Path, code: str) -> dict[str, Any]:
    """Run a cell, and say how it compares; a cell that fails is a line, too."""
    row, started = row_of(recipe, cell), process_time()
    line = {"recipe": recipe, "cell": cell.name, "code": code, "seeds": seeds, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    line |= {"committed": row["mean"], "std": row["std"], "committed_seeds": row["seeds"]}
    try:
        with loaded(RECIPES / recipe) as module:
            wanted = range(seeds)
            figures = [cell.run(module, seed, out / code / recipe) for seed in wanted]
    except Exception as error:
        line |= {"today": None, "tolerance": None, "verdict": "failed", "why": f"{type(error).__name__}: {error}"}
    else:
        today, wide = sum(figures) / len(figures), tolerance(row, seeds)
        within = abs(today - row["mean"]) <= wide
        line |= {"today": round(today, 5), "tolerance": round(wide, 5), "verdict": "within" if within else "outside"}
    return {**line, "seconds": round(process_time() - started, 1)}


def reported(line: Mapping[str, Any]) -> str:
    """A line as text."""
    committed = f"{line['committed']:.4f} ± {line['std']:.4f} over {line['committed_seeds']}"
    if line["today"] is None:
        compared = f"{line['verdict']}: {line['why']}"
    else:
        compared = f"today {line['today']:.4f} over {line['seeds']}, {line['verdict']} {line['tolerance']:.4f}"
    return f"{line['recipe']}: {line['cell']}: committed {committed}, {compared}; {line['seconds']:.0f} s"


def main() -> int:
    """Check what is asked for; return 1 where a cell is outside or failed."""
    parser = argparse.ArgumentParser(description="One cell of each recipe by today's code.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(CELLS), help="these recipes")
    parser.add_argument("--all", action="store_true", help=f"also cells of more than {MOST_MINUTES:g} minutes")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each cell")
    parser.add_argument("--again", action="store_true", help="also cells that were checked by this code")
    parser.add_argument("--out", type=Path, default=Path("runs") / "check", help="folder of the runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    file, worst = RECIPES / "check.json", 0
    for recipe, cell in sorted(CELLS.items(), key=lambda each: each[1].minutes):
        if recipe not in (options.only or CELLS):
            continue
        if cell.minutes > MOST_MINUTES and not (options.all or options.only):
            print(f"{recipe}: {cell.name}: not run, as it takes about {cell.minutes:g} minutes; --all runs it")
            continue
        lines: dict[str, dict[str, Any]] = read_json(file) if file.exists() else {}
        row, code, line = row_of(recipe, cell), code_of(recipe), lines.get(recipe, {"verdict": "failed"})
        same = {"cell": cell.name, "code": code, "seeds": options.seeds, "committed": row["mean"], "std": row["std"]}
        known = line["verdict"] != "failed" and same.items() <= line.items() and not code.endswith("+")
        if not known or options.again:
            line = checked(recipe, cell, seeds=options.seeds, out=options.out, code=code)
            write_json(file, dict(sorted({**lines, recipe: line}.items())))
        print(reported(line), flush=True)
        worst = max(worst, int(line["verdict"] != "within"))
    return worst


if __name__ == "__main__":
    sys.exit(main())
