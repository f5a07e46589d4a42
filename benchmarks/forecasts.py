"""Forecast against outcome on the committed recipes: nothing is trained.

    python benchmarks/forecasts.py [--json FILE] [--figure FILE] [--rows FILE]

The forecast is the ratio of noise to signal, from the plans of the recipes. The outcome is in their results.json: the
share of what training gains without noise that is left with noise, 0 for a model that learned nothing and 1 for one
that noise did not harm. Left out are recipes without rounds of noise, rows that have no counterpart of the same model
without noise, and counterparts that gain less than `LEAST`. `half` is the ratio that separates best the rows of which
half of the gain is left from the others. --rows takes the rows of an earlier --json.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from unseen import UNSEEN

from sfumato import models
from sfumato.cli.main import main as sfumato
from sfumato.report.plots import COLOURS, save
from sfumato.training.forecast import ALIGNMENT, forecast_of, trained_sizes

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
LEAST = 0.01  # of the measure


@dataclass(frozen=True)
class Case:
    """A row of a recipe.

    Attributes:
        recipe: its folder, or "defaults" for runs of `defaults.py`.
        method: of the row.
        ratio: of noise to signal, as forecast.
        untrained: the measure of what learned nothing.
        without: of the counterpart without noise.
        outcome: of the row.
    """

    recipe: str
    method: str
    ratio: float
    untrained: float
    without: float
    outcome: float

    @property
    def left(self) -> float:
        """The share of the gain that is left."""
        return (self.outcome - self.untrained) / (self.without - self.untrained)


def ratio(plan: Any, population: int, model: Any) -> float:
    """Noise to signal."""
    return forecast_of(plan, population, trained_sizes(plan, model)).ratio


def _run_of(name: str, script: str = "run.py") -> Any:
    """The module of a recipe."""
    folder = RECIPES / name
    sys.path[:0] = [str(RECIPES), str(folder)]
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", folder / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with contextlib.redirect_stdout(io.StringIO()):
        spec.loader.exec_module(module)
    del sys.path[1]
    for own in folder.glob("*.py"):  # another recipe has modules of the same names
        sys.modules.pop(own.stem, None)
    return module


def _rows(name: str) -> dict[tuple[str, Any], dict[str, Any]]:
    """Results by method and, where rows have it, wanted ε."""
    rows = json.loads((RECIPES / name / "results.json").read_text("utf-8"))
    return {(row["method"], row.get("epsilon_wanted")): row for row in rows}


def _with_noise(plan: Any, row: dict[str, Any], **more: Any) -> Any:
    """The plan with the noise of its row, which was calibrated then."""
    return plan.replace(**{"noise.noise_multiplier": row["noise_multiplier"], **more})


def _embeddings(name: str) -> Iterator[Case]:
    """Rows whose counterpart has the same name without DP."""
    run, found = _run_of(name), _rows(name)
    people = len(run.data(None)[0])
    for method, plan in run.PLANS.items():
        plain = method.removeprefix("DP-").partition(",")[0]
        if method.startswith("DP-") and "negatives" not in method:
            known = (found[each, None]["mean"] for each in ("untrained", plain, method))
            yield Case(name, method, ratio(plan, people, models.lenet()), *known)


def _writers(name: str = "fedemb_writers") -> Iterator[Case]:
    run, found = _run_of(name), _rows(name)
    for title, method in run.METHODS.items():
        if method.epsilon is not None:
            row = found[method.row, method.epsilon]
            plan = _with_noise(run.FEDEMB if method.name == "FedEmb" else run.FEDAVG, row)
            known = (found[each]["mean"] for each in (("untrained", None), (method.row, None)))
            yield Case(name, title, ratio(plan, method.population, models.lenet()), *known, row["mean"])


def _correlated(name: str) -> Iterator[Case]:
    run, found = _run_of(name), _rows(name)
    train, test = run.RECIPE.data(False)
    from ftrl_recipe import most_frequent

    model, constant = run.RECIPE.model(train), most_frequent(test)
    for title, method in run.RECIPE.methods.items():
        if method.noise is not None and not method.drop_out:
            row, fields = found[title, None], dict(run.RECIPE.noises[method.noise].fields)
            fields |= {"cohort.parts": row["parts"]} if row["parts"] is not None else {}
            plan = _with_noise(run.RECIPE.plan.replace(**fields), row)
            known = (constant, found["not private", None]["mean"], row["mean"])
            yield Case(name, title, ratio(plan, len(train), model), *known)


def _classes(name: str) -> Iterator[Case]:
    run, found = _run_of(name), _rows(name)
    known_data: dict[Any, tuple[int, float]] = {}
    for title, method in run.methods().items():
        plain = f"{title.partition(', ε ')[0]}, not private"
        if plain == title or (plain, None) not in found or (title, None) not in found or ", ε " not in title:
            continue
        if method.data not in known_data:
            train, test = method.data(None)
            known_data[method.data] = len(train), _constant(test)
        (count, constant), row = known_data[method.data], found[title, None]
        known = (constant, found[plain, None]["mean"], row["mean"])
        yield Case(name, title, ratio(_with_noise(method.plan, row), count, method.model()), *known)


def _ratings(name: str = "fedrecon_movielens") -> Iterator[Case]:
    run, found = _run_of(name), _rows(name)
    people = run.people(False).train
    for title, method in run.METHODS.items():
        if title.startswith("DP-"):
            at = ratio(method.plan, len(people), run.model(people, 0, None))
            known = (found[each, None]["mean"] for each in (run.CONSTANT, run.RECON, title))
            yield Case(name, title, at, *known)


def _clicks(name: str) -> Iterator[Case]:
    """Rows with deferred noise; the measure is the log loss."""
    run = _run_of(name)
    clicks, rows = run.clicks, json.loads((RECIPES / name / "results.json").read_text("utf-8"))
    found = {(row["method"], row["epsilon_wanted"]): row["mean"] for row in rows if row["metric"] == "log loss"}
    chosen = json.loads((RECIPES / name / "chosen.json").read_text("utf-8"))[clicks.DEFERRED]
    if name == "ads_zipf":
        model = clicks.network(train := clicks.parts().train)
    else:
        model = clicks.network(train := clicks.parts(None).train, 0)
    for epsilon in clicks.epsilons(clicks.DEFERRED):
        settings = {k: v for k, v in chosen[str(epsilon)].items() if k not in ("validation_log_loss", "tried")}
        plan = clicks.planned(len(train), clicks.DEFERRED, epsilon, **settings)
        known = (found[each] for each in ((run.CONSTANT, None), (clicks.PLAIN, None), (clicks.DEFERRED, epsilon)))
        yield Case(name, f"{clicks.DEFERRED}, ε {epsilon:g}", ratio(plan, len(train), model), *known)


def _faces(name: str = "fedemb_lfw") -> Iterator[Case]:
    """Rows with a counterpart without noise that gains something; the whitened backbone has learned nothing."""
    run, rows = _run_of(name), json.loads((RECIPES / name / "results.json").read_text("utf-8"))
    found = {row["method"]: row for row in rows if row["metric"] == f"recall@FAR={run.FAR:g}"}
    people = len(run.faces(None).train)
    plain = {"DP-FedEmb, m = 16": "FedEmb", **{run.at(epsilon): run.WITHOUT_NOISE for epsilon in run.EPSILONS}}
    for method, row in run.rows().items():
        if method in plain:
            known = (found[each]["mean"] for each in ("whitened by public faces", plain[method]))
            plan = _with_noise(row.plan, found[method])
            yield Case(name, method, ratio(plan, people, run.Residual()), *known, found[method]["mean"])


def _counts(name: str = "ads_counts") -> Iterator[Case]:
    """The measure is the mean deviance."""
    run, rows = _run_of(name), json.loads((RECIPES / name / "results.json").read_text("utf-8"))
    found = {(row["method"], row["epsilon_wanted"]): row["mean"] for row in rows if "mean Poisson" in row["metric"]}
    train = run.parts(None).train
    for epsilon in run.EPSILONS:
        plan = run.planned(epsilon, 0, len(train), **run.TRIALS[0])
        known = (found[each] for each in ((run.CONSTANT, None), (run.PLAIN, None), (run.PRIVATE, epsilon)))
        yield Case(name, f"ε = {epsilon:g}", ratio(plan, len(train), run.network(train, 0)), *known)


def _transfer(name: str = "imagenet_transfer") -> Iterator[Case]:
    """Letters from scratch; a private step there has eight times the examples of one that is not."""
    run = _run_of(name)
    rows = json.loads((RECIPES / name / "results.json").read_text("utf-8"))
    (dataset,) = {row["dataset"] for row in rows if row["method"].startswith("not private")}
    found = {row["method"]: row["mean"] for row in rows if row["dataset"] == dataset}
    task = run.TASKS[dataset](None)
    model, title = run.network(task.train), "from scratch"
    plan = run.plan_of(run.ROWS[f"{dataset}: {title}"], model, len(task.train))
    known = (_constant(task.test), found[f"not private, {title}"], found[title])
    yield Case(name, f"{dataset}: {title}", ratio(plan, len(task.train), model), *known)


def _silos(name: str, script: str, results: str) -> Iterator[Case]:
    """Private backbones, next to FedAvg, which trains longer."""
    run, rows = _run_of(name, script), json.loads((RECIPES / name / results).read_text("utf-8"))
    import privacyface_recipe

    model = run.backbone() if hasattr(run, "backbone") else privacyface_recipe.network()
    weak = [row for row in rows if row["measure"] == "all" and "weak" in row["dataset"]]
    found = {row["method"]: row["mean"] for row in weak if row["metric"].startswith("recall@")}
    sizes = [len(each) for each in run.RECIPE.people(None, False).silos.values()]
    for row in run.RECIPE.rows.values():
        if row.epsilon is not None:
            plan = privacyface_recipe.planned(run.RECIPE, row, 0, sizes, False)
            at = plan.forecast(sizes, trained_sizes(plan, model)).ratio
            known = (found[each] for each in ("start", privacyface_recipe.CONTROL, row.method))
            yield Case(name, row.method, at, *known)


def _defaults() -> Iterator[Case]:
    """Data sets of scikit-learn with the defaults of `sfumato dpsgd`; their outcomes are in results/defaults.json."""
    rows = json.loads((Path(__file__).resolve().parent / "results" / "defaults.json").read_text("utf-8"))
    found = {row["name"]: row for row in rows}
    for name in ("breast cancer", "wine", "diabetes"):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
            UNSEEN[name].write(Path(folder))
            words = [word.format(folder=folder) for word in UNSEEN[name].command]
            if sfumato([*words, "--epsilon", "8", "--dry-run", "--json"]):
                raise SystemExit(f"{name} was refused")
        at = json.loads(out.getvalue())["forecast"]["noise_to_signal"]
        plain, private = found[f"{name}, no noise"], found[f"{name}, ε = 8"]
        yield Case("defaults", name, at, plain["baseline"], plain["default"], private["default"])


def _constant(test: Any) -> float:
    """The share of the most frequent class."""
    counts = np.bincount(np.concatenate([np.asarray(labels) for _, labels in test.batches(4096)]))
    return float(counts.max() / counts.sum())


def cases() -> Iterator[Case]:
    """All rows that have a counterpart."""
    yield from _embeddings("fedemb_glyphs")
    yield from _embeddings("fedemb_omniglot")
    yield from _writers()
    yield from _correlated("ftrl_writers")
    yield from _correlated("ftrl_shakespeare")
    yield from _classes("normalisation_mnist")
    yield from _classes("normalisation_agnews")
    yield from _ratings()
    yield from _defaults()
    yield from _clicks("ads_criteo")
    yield from _clicks("ads_zipf")
    yield from _counts()
    yield from _faces()
    yield from _transfer()
    yield from _silos("privacyface_faces", "trained.py", "trained.json")
    yield from _silos("privacyface_omniglot", "run.py", "results.json")


def earlier(file: Path) -> Iterator[Case]:
    """The rows of a file that `--json` wrote."""
    for row in json.loads(file.read_text("utf-8"))["rows"]:
        yield Case(**{name: value for name, value in row.items() if name != "left"})


def wrong(found: list[Case], at: float) -> int:
    """Rows of which half is left although their ratio is above this one, or less than half although it is below."""
    return sum((each.ratio > at) == (each.left >= 0.5) for each in found)


def half(found: list[Case]) -> float:
    """The ratio with the fewest rows on the wrong side of it."""
    ratios = sorted(each.ratio for each in found)
    between = [float(np.sqrt(low * high)) for low, high in pairwise(ratios)]
    return min(between, key=lambda at: wrong(found, at))


BINS = (0.03, 0.1, 0.3, 1.0, 3.0)


def binned(found: list[Case]) -> list[tuple[str, int, float, float, float]]:
    """By the forecast: rows, and the least, middle and largest share that is left."""
    lines = []
    for low, high in zip((0.0, *BINS), (*BINS, np.inf), strict=True):
        left = sorted(each.left for each in found if low <= each.ratio < high)
        if left:
            title = f"above {low:g}" if high == np.inf else f"{low:g} to {high:g}"
            lines.append((title, len(left), left[0], float(np.median(left)), left[-1]))
    return lines


def draw(found: list[Case], file: Path, at: float) -> None:
    """Shares against ratios, a colour for each recipe."""

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        names = list(dict.fromkeys(each.recipe for each in found))
        for number, name in enumerate(names):
            mine = [each for each in found if each.recipe == name]
            style: Any = {"color": COLOURS[number % len(COLOURS)], "marker": "os^D"[number // len(COLOURS)]}
            axes.scatter([each.ratio for each in mine], [each.left for each in mine], s=16, label=name, **style)
        axes.axvline(1, color="#1d2329", linewidth=0.8)
        axes.axvline(at, color="#1d2329", linewidth=0.8, linestyle=":")
        axes.set_xscale("log")
        axes.set_xlabel("noise / signal, as forecast")
        axes.set_title("share of the gain that is left", loc="left", fontsize=10)
        axes.set_ylim(-0.2, 1.25)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)

    save(file, (8.0, 4.8), fill)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    found = []
    print(f"{'forecast':>10}{'left':>8}")
    for each in cases() if options.rows is None else earlier(options.rows):
        if abs(each.without - each.untrained) >= LEAST:
            found.append(each)
            print(f"{each.ratio:10.3g}{each.left:8.2f}  {each.recipe}: {each.method}", flush=True)
    print("| noise / signal | rows | least | median | largest |\n| --- | --- | --- | --- | --- |")
    for title, rows, *shares in binned(found):
        print(f"| {title} | {rows} | {' | '.join(f'{each:.2f}' for each in shares)} |")
    at = half(found)
    print(f"{len(found)} rows; half of the gain is left at {at:.3g} (alignment {ALIGNMENT:g})")
    for turn in (at, 1.0, 0.1):
        print(f"on the wrong side of {turn:.3g}: {wrong(found, turn)}")
    if options.json is not None:
        rows = [{**vars(each), "left": each.left} for each in found]
        options.json.write_text(
            json.dumps({"half": at, "alignment": ALIGNMENT, "rows": rows}, indent=2) + "\n", "utf-8"
        )
    if options.figure is not None:
        draw(found, options.figure, at)


if __name__ == "__main__":
    main()
