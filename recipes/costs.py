"""Work out anew what the private rows of an embedding recipe cost, where the accountant has changed since they ran.

    python recipes/costs.py fedemb_omniglot [fedemb_glyphs …] [--check]

Training does not depend on the accountant, so ε follows from the plan alone. It is written into results.json; --check
changes nothing and fails where it would change. `recipes/tables.py` writes the tables then.
"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cells import loaded

from sfumato._files import write_json
from sfumato.accounting import guarantee
from sfumato.sampling import Poisson, VirtualClients
from sfumato.training import Plan

RECIPES = Path(__file__).resolve().parent
SAME = 1e-9  # relative: round-off of another processor


def costs(plan: Plan, population: int, delta: float) -> dict[str, float | None]:
    """ε for one user, and for a whole virtual client as the paper counts; None where that is not another one."""
    parts = plan.for_population(population).private_sum(population)
    user = guarantee(parts.event(parts.rounds), parts.sampler.adjacency).epsilon(delta)
    paper = None
    if isinstance(parts.grouping, VirtualClients) and isinstance(plan.cohort, Poisson):
        paper = guarantee(parts.contributor_event(parts.rounds), parts.sampler.adjacency).epsilon(delta)
    return {"epsilon": user, "epsilon_papers_convention": paper}


def main() -> int:
    """Go through the recipes that were named; return how many would change under --check."""
    names, check = [word for word in sys.argv[1:] if word != "--check"], "--check" in sys.argv
    changed = 0
    for name in names:
        with loaded(RECIPES / name) as run:
            plans, population = run.PLANS, len(run.data(None)[0])
        results = RECIPES / name / "results.json"
        rows = json.loads(results.read_text())
        for row in rows:
            if row["epsilon"] is None:
                continue
            for key, value in costs(plans[row["method"]], population, row["delta"]).items():
                if not _same(row[key], value):
                    print(f"{name}, {row['method']}, {key}: {row[key]} is {value}")
                    row[key], changed = value, changed + 1
        if not check:
            write_json(results, rows)
    return changed if check else 0


def _same(a: float | None, b: float | None) -> bool:
    return a is b if a is None or b is None else math.isclose(a, b, rel_tol=SAME)


if __name__ == "__main__":
    sys.exit(main())
