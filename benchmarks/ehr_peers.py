"""Health records by EHR-Safe and by a peer that others install: the same patients, as many new ones, one evaluation.

    python benchmarks/ehr_peers.py [--quick] [--json FILE] [--recipe NAME …] [--minutes M] [--readme]

Each generator is a fresh process on one thread that reads the training patients of a recipe (recipes/ehr_pbcseq,
recipes/ehr_physionet2012), learns for at most M minutes, and writes as many synthetic ones. mostlyai-engine has an
environment of its own (`benchmarks/peers/setup.sh mostlyai`, made where it is missing). Both are then measured by
`sfumato.audit.ehr.evaluate` next to the same held-out patients. One seed. `goal` is null: nothing was promised.

--readme writes the table of benchmarks/results/ehr_peers.json into README.md and measures nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "ehr_peers.json"
PEER = ROOT / ".cache" / "peers" / "mostlyai" / "bin" / "python"
PEER_NAME = "mostlyai-engine 2.7.3"
RECIPES = ("ehr_pbcseq", "ehr_physionet2012")
START, END = "<!-- health records -->", "<!-- end of health records -->"
SEED = 0
FEW = {"epochs": 1, "gan_steps": 5, "category_steps": 5, "calibrated_on": 50}  # --quick


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps, on the smaller records only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows; those of other recipes stay")
    parser.add_argument("--recipe", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--minutes", type=float, default=15.0, metavar="M", help="of the peer's training, at most")
    parser.add_argument("--readme", action="store_true", help="write the table into README.md")
    options = parser.parse_args()
    if options.readme:
        page = HERE / "README.md"
        page.write_text(with_table(page.read_text(), json.loads(RESULTS.read_text())))
        return 0
    if not PEER.exists():
        subprocess.run([str(HERE / "peers" / "setup.sh"), "mostlyai"], check=True)
    rows: list[dict[str, Any]] = []
    for recipe in ["ehr_pbcseq"] if options.quick else options.recipe:
        rows += measured(recipe, 0.2 if options.quick else options.minutes, quick=options.quick)
        if options.json:
            before = json.loads(options.json.read_text()) if options.json.exists() else []
            kept = [row for row in before if row["recipe"] != recipe]
            options.json.write_text(
                json.dumps([*kept, *(row for row in rows if row["recipe"] == recipe)], indent=2) + "\n"
            )
    for row in rows:
        print(
            f"  {row['name']:60}{_figure(row['ours']):>12}{_figure(row['other']):>12}   ideal {_figure(row['ideal'])}"
        )
    return 0


def measured(recipe: str, minutes: float, *, quick: bool) -> list[dict[str, Any]]:
    """Both generators on the patients of a recipe."""
    sys.path.insert(0, str(ROOT / "recipes"))
    import ehr_recipe  # pyright: ignore[reportMissingImports]

    from sfumato import data
    from sfumato.audit.ehr import evaluate

    spec = importlib.util.spec_from_file_location(recipe, ROOT / "recipes" / recipe / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    train, holdout = module.RECIPE.parts()
    found = {}
    for name, python, worker in (
        ("ours", Path(sys.executable), "ours_ehr.py"),
        ("other", PEER, "peer_mostlyai.py"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            reported = _generated(Path(folder), recipe, train, python, worker, minutes, quick=quick)
            made = data.ehr_from_tables(
                Path(folder) / "made-visits.parquet", Path(folder) / "made-static.parquet", schema=train.schema
            )
        found[name] = {"reported": reported, **ehr_recipe.measured(evaluate(train, holdout, made, seed=SEED))}
        print(f"{recipe}, {name}: fitted in {reported['fit_seconds']:.0f} s", flush=True)
    return rows_of(recipe, module.RECIPE.dataset, found)


def _generated(
    folder: Path, recipe: str, train: Any, python: Path, worker: str, minutes: float, *, quick: bool
) -> dict[str, float]:
    """What a worker says of itself; its records lie in the folder."""
    from sfumato import data

    data.write_ehr_tables(train, folder / "visits.parquet", folder / "static.parquet")
    train.schema.save(folder / "schema.yaml")
    columns = (*train.schema.static, *train.schema.temporal)
    task = {
        **{name: str(folder / f"{name}.parquet") for name in ("visits", "static")},
        **{f"made_{name}": str(folder / f"made-{name}.parquet") for name in ("visits", "static")},
        "schema": str(folder / "schema.yaml"),
        "id": train.schema.id,
        "time": train.schema.time,
        "kinds": {column.name: {"categories": column.categories, "whole": column.whole} for column in columns},
        "recipe": recipe,
        "count": len(train),
        "seed": SEED,
        "minutes": minutes,
        "quick": FEW if quick else {},
    }
    (folder / "task.json").write_text(json.dumps(task))
    done = subprocess.run(
        [str(python), str(HERE / "peers" / worker), str(folder / "task.json")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    if done.returncode:
        sys.exit(f"{worker} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def rows_of(recipe: str, dataset: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows in the shape of all benchmarks; `ideal` is what real held-out patients have."""
    ours, other = found["ours"], found["other"]
    rows = []

    def add(name: str, mine: float | None, theirs: float | None, unit: str, ideal: float | None) -> None:
        ratio = mine / theirs if mine is not None and theirs else None
        reported = [None if each is None else float(f"{each:.4g}") for each in (mine, theirs, ratio, ideal)]
        rows.append(
            {
                "name": f"{dataset}: {name}",
                "ours": reported[0],
                "other": reported[1],
                "other_name": PEER_NAME,
                "unit": unit,
                "ratio": reported[2],
                "goal": None,
                "met": None,
                "ideal": reported[3],
                "recipe": recipe,
            }
        )

    for key, what, unit, scale in (
        ("fit_seconds", "fit", "s", 1.0),
        ("sample_seconds", "sample", "s", 1.0),
        ("peak_bytes", "peak memory", "MB", 1e-6),
        ("patients", "patients generated", "", 1.0),
    ):
        add(what, ours["reported"][key] * scale, other["reported"][key] * scale, unit, None)
    for part, prefix in (("fidelity", ""), ("utility", "AUC, "), ("attacks", "")):
        for name, mine in ours[part].items():
            add(prefix + name, mine["found"], other[part][name]["found"], "", mine["ideal"])
            if part == "attacks":
                low, high = ([side[part][name]["excess"][end] for side in (ours, other)] for end in ("low", "high"))
                rows[-1]["excess"] = {"ours": [low[0], high[0]], "other": [low[1], high[1]]}
    return rows


def with_table(page: str, rows: list[dict[str, Any]]) -> str:
    """The page with the table of these rows between its marks."""
    lines = [f"| measure | EHR-Safe | {PEER_NAME} | real patients |", "| --- | --- | --- | --- |"]
    for row in rows:
        unit = f", {row['unit']}" if row["unit"] else ""
        sides = [_figure(row["ours"]), _figure(row["other"])]
        if "excess" in row:
            ends = (row["excess"][side] for side in ("ours", "other"))
            sides = [f"{side} (excess {low:.3f} … {high:.3f})" for side, (low, high) in zip(sides, ends, strict=True)]
        lines.append(f"| {row['name']}{unit} | {sides[0]} | {sides[1]} | {_figure(row['ideal'])} |")
    head, rest = page.split(START)
    return f"{head}{START}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.split(END)[1]}"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if abs(value) < 1.5 else f"{value:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
