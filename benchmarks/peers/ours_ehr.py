"""Health records with sfumato's EHR-Safe, with the settings of a recipe: the task of `peer_mostlyai.py`.

ours_ehr.py TASK.json
"""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from sfumato import data

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def main() -> None:
    """Learn, generate, write."""
    task = json.loads(Path(sys.argv[1]).read_text())
    sys.path.insert(0, str(RECIPES))
    spec = importlib.util.spec_from_file_location("recipe", RECIPES / task["recipe"] / "run.py")
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    plan = replace(recipe.RECIPE.methods["EHR-Safe"], seed=task["seed"], **task["quick"])
    records = data.ehr_from_tables(task["visits"], task["static"], schema=task["schema"])
    started = time.perf_counter()
    made = plan.fit(records).synthesizer
    fitted = time.perf_counter()
    blocks = list(made.sample(task["count"], seed=task["seed"]))
    sampled = time.perf_counter()
    data.write_ehr_tables(blocks, task["made_visits"], task["made_static"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    report = {"fit_seconds": fitted - started, "sample_seconds": sampled - fitted, "peak_bytes": peak}
    print(json.dumps({**report, "patients": task["count"]}))


if __name__ == "__main__":
    main()
