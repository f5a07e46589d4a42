"""Recall against ε, the ROC of all rows, and a page of faces that look similar to each model.

    python recipes/fedemb_lfw/page.py [--runs DIR] [--data FOLDER] [--out FILE]

Writes next to this file recall.svg, of results.json, and roc.svg, of the runs with seed 0 that run.py has left; and the
page (faces.html in the folder of runs). The page holds copies of test pictures and stays out of the repository.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import jinja2
import numpy as np
from cells import place_in
from faces import Faces, Residual, faces, pictures
from run import BEGUN_EPSILONS, EPSILONS, FAR, IN_VIEWS, LEARNED, WITHOUT_NOISE, at, begun_at, embedded, rows
from safetensors.torch import load_file
from torch import nn

from sfumato._files import read_json, write_atomic
from sfumato.federated.tasks import nearest_pictures
from sfumato.metrics import similarity_histogram
from sfumato.report.plots import save

FOLDER = Path(__file__).resolve().parent
LOWEST = 1e-5
IN_OTHER_VIEWS = {method for method, row in rows().items() if row.begun or row.people.endswith("_views")}
"""Methods that roc.svg leaves out: it has colours and styles for 24."""
SHOWN = ("centralized", "FedEmb", "DP-FedEmb, m = 1, ε = 8", "DP-FedEmb, m = 16")
"""Methods on the page, next to the public backbone."""
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Faces that look similar to each model</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1d2329;
  background: #fcfbf8; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.row { display: flex; flex-wrap: wrap; gap: .5rem; align-items: flex-start; margin: .6rem 0; }
figure { margin: 0; width: 76px; font-size: .7rem; line-height: 1.2; overflow-wrap: anywhere; }
img { width: 70px; height: 70px; border: 3px solid transparent; display: block; }
.same img { border-color: #2f7048; } .asked { margin-right: 1rem; }
.asked img { border-color: #1d2329; }
</style>
<h1>Faces that look similar to each model</h1>
<p>Six people of the test, evenly spaced over it and not chosen by the result; no one trained on them. Next to each one
the five pictures with the most similar embeddings, nearest first. A green frame marks the same person. The number is
recall at a false accept rate of {{ far }} over all pairs.</p>
{% for name, recall, right, asked in shown %}
<h2>{{ name }}: {{ recall }}; {{ right }} in green</h2>
{% for row in asked %}
<div class="row">
<figure class="asked"><img src="data:image/png;base64,{{ row.picture }}" alt="{{ row.label }}">
<figcaption>{{ row.label }}</figcaption></figure>
{% for each in row.nearest %}<figure class="{{ "same" if each.same }}">
<img src="data:image/png;base64,{{ each.picture }}" alt="{{ each.label }}{{ ", the same person" if each.same }}">
<figcaption>{{ each.label }}</figcaption></figure>
{% endfor %}
</div>
{% endfor %}
{% endfor %}
<p>Pictures: Labeled Faces in the Wild, deep-funneled. Gary B. Huang, Manu Ramesh, Tamara Berg and Erik
Learned-Miller. <cite>Labeled Faces in the Wild: A Database for Studying Face Recognition in Unconstrained
Environments</cite>, University of Massachusetts, Amherst, Technical Report 07-49, October 2007; funneled after Gary B.
Huang, Marwan Mattar, Honglak Lee and Erik Learned-Miller, <cite>Learning to Align from Scratch</cite>, NIPS 2012. For
research; this page is a copy of test records and not for publication.</p>
</html>
"""


def main() -> None:
    """Draw the curves, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs") / "fedemb_lfw" / "full", help="folder of the runs")
    parser.add_argument("--data", type=Path, help="folder of the shared data")
    parser.add_argument("--out", type=Path, help="the page")
    given = parser.parse_args()
    parts, seen = faces(given.data), pictures(given.data)[3]
    models = trained(given.runs)
    if not models:
        sys.exit(f"{given.runs} holds no run with seed 0; run recipes/fedemb_lfw/run.py first, or give --runs")
    curves, shown = {}, []
    for name, model in {"public backbone": None, **models}.items():
        vectors, labels = of(model, parts)
        similarities = similarity_histogram(vectors, labels)
        curves[name] = similarities.roc()
        if model is None or name in SHOWN:
            asked = nearest_pictures(seen, labels, vectors)
            near = [each["same"] for row in asked for each in row["nearest"]]
            recall = similarities.recall_at_far((FAR,)).recall[FAR]
            shown.append((name, f"{recall:.3f}", f"{sum(near)} of {len(near)}", asked))
    draw({name: curve for name, curve in curves.items() if name not in IN_OTHER_VIEWS}, FOLDER / "roc.svg")
    draw_recall(read_json(FOLDER / "results.json"), FOLDER / "recall.svg")
    page = given.out or given.runs.parent / "faces.html"
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(PAGE)
    write_atomic(page, template.render(shown=shown, far=f"{FAR:g}").encode(), private=True)
    print(f"wrote: {FOLDER / 'roc.svg'}, {FOLDER / 'recall.svg'}\nwrote: {page} (private: copies of test pictures)")


def trained(runs: Path) -> dict[str, nn.Module]:
    """The models with seed 0 that there are, in the table's order."""
    found = {}
    for method in rows():
        file = place_in(runs, method, 0) / "model.safetensors"
        if file.exists():
            model = Residual()
            model.load_state_dict(load_file(file), strict=False)
            found[method] = model.eval()
    return found


def of(model: nn.Module | None, parts: Faces) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of the test's pictures and their people; None is the public backbone as it is."""
    return embedded(nn.Identity(), parts.test_as_is) if model is None else embedded(model, parts.test)


def draw(curves: dict[str, Any], path: Path) -> None:
    """True accept rate against false accept rate, on a log axis."""
    colours = ("#1d2329", "#1f5a7a", "#b4540a", "#2f7048", "#85378a", "#7a6000", "#a8233b", "#4b5563")

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        for number, (name, curve) in enumerate(curves.items()):
            fpr, tpr = np.asarray(curve.fpr), np.asarray(curve.tpr)
            kept = fpr >= LOWEST
            style = ("-", "--", ":")[number // len(colours)]
            axes.plot(fpr[kept], tpr[kept], style, color=colours[number % len(colours)], linewidth=1.1, label=name)
        steps = np.geomspace(LOWEST, 1, 50)
        axes.plot(steps, steps, color="#a9b4c2", linewidth=0.8, label="chance")
        axes.axvline(FAR, color="#a9b4c2", linewidth=0.8, linestyle=":")
        axes.set_xscale("log")
        axes.set_xlabel("false accept rate")
        axes.set_title("true accept rate, people no one trained on; seed 0", loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside right center", frameon=False, fontsize=8)

    save(path, (8.6, 4.6), fill)


def draw_recall(rows_found: list[dict[str, Any]], path: Path) -> None:
    """Recall against ε next to what needs none, and how far noise takes the trained layer."""
    recalls = {row["method"]: row for row in rows_found if row["metric"].startswith("recall")}
    private = [recalls[at(epsilon)] for epsilon in EPSILONS]
    begun = [recalls[begun_at(epsilon)] for epsilon in BEGUN_EPSILONS]
    lines = {
        "centralized": "#85378a",
        "FedEmb": "#1f5a7a",
        f"public people alone, centralized, {IN_VIEWS}": "#2f7048",
        WITHOUT_NOISE: "#b4540a",
        "public backbone as it is": "#1d2329",
    }

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        means, spreads = ([row[key] for row in private] for key in ("mean", "std"))
        style: Any = {"color": "#b4540a", "marker": "o", "markersize": 3}
        left.errorbar(EPSILONS, means, spreads, label="DP-FedEmb, m = 1", capsize=2, **style)
        means, spreads = ([row[key] for row in begun] for key in ("mean", "std"))
        left.errorbar(
            BEGUN_EPSILONS,
            means,
            spreads,
            label="the same, four views, from public people",
            capsize=2,
            **{**style, "color": "#a8233b"},
        )
        other = recalls["DP-FedAvg"]
        left.errorbar([8], [other["mean"]], [other["std"]], fmt="s", color="#4b5563", markersize=4, label="DP-FedAvg")
        for name, colour in lines.items():
            left.axhline(recalls[name]["mean"], color=colour, linewidth=0.8, linestyle="--", label=name)
        left.set_ylim(bottom=0)
        left.set_title("recall at FAR = 0.001, people no one trained on", loc="left", fontsize=10)
        for key, line, label in (
            ("noise_in_layer", "--", "noise in all of W"),
            ("noise_in_learned", "-", f"noise in the {LEARNED} directions that are learned"),
        ):
            right.plot(EPSILONS, [row[key] for row in private], line, label=label, **{**style, "color": "#4b5563"})
        right.axhline(1, color="#a9b4c2", linewidth=0.8, linestyle=":")
        right.set_yscale("log")
        right.set_title("noise in the trained layer, in lengths of what is learned", loc="left", fontsize=10)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
            axes.set_xlabel("ε for one person")
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)

    save(path, (9.6, 4.8), fill)


if __name__ == "__main__":
    main()
