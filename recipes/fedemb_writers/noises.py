"""What noise in other shapes would leave on DP-FedEmb's sums: is there room for DP-FTRL? Nothing is trained.

    python recipes/fedemb_writers/noises.py [--check]

For each population and ε: the plan of the table with Poisson sampling and independent noise, and next to it without
sampling, each writer as rarely as there are others, with noise of trees, bands, buffers and inverse bands. The figure
is the one that kinds of noise are compared by: the root mean square, over rounds and seeds of noise, of what noise adds
to a coordinate of the sum of all rounds so far, in clip norms. Writes the table between the marks in README.md; --check
changes nothing and fails where it would change.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from run import EPSILONS, FEDEMB, POPULATIONS, calibrated
from tables import replace

README = Path(__file__).resolve().parent / "README.md"
START, END = "<!-- noises -->", "<!-- end of noises -->"
KINDS = {"tree": "tree", "banded": "banded", "blt": "buffers", "bisr": "inverse bands"}


def errors(population: int, epsilon: float) -> dict[str, float]:
    """The figure for every kind of noise, by its name here."""
    plan = FEDEMB.replace(noise=None, delta=population**-1.1)
    budget = {"epsilon": epsilon, "delta": population**-1.1, "population": population}
    sampled = calibrated(plan, epsilon, population).noise.multiplier
    limited = plan.replace(cohort="min_separation").compare_noise(**budget)
    found: dict[str, float] = {}
    for row in limited:  # the least first, of those with several settings
        if row.error is not None:
            found.setdefault(row.noise, row.error)
    independent = found["gaussian"] / next(row.noise_multiplier for row in limited if row.noise == "gaussian")
    return {"sampled": independent * sampled, **{KINDS[kind]: found[kind] for kind in KINDS}}


def reported() -> str:
    """The table; the least of a row is bold."""
    lines = [
        "| | Poisson, independent noise | tree | banded | buffers | inverse bands |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for population in POPULATIONS:
        for epsilon in sorted(each for each in EPSILONS if each is not None):
            found = errors(population, epsilon)
            least = min(found.values())
            figures = [f"**{error:.2f}**" if error == least else f"{error:.2f}" for error in found.values()]
            lines.append(f"| {population:,} writers, ε = {epsilon:g} | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def main() -> int:
    """Write the table; return whether it would change under --check."""
    before, rest = README.read_text().split(START)
    table = reported()
    print(table)
    text = f"{before}{START}\n\n{table}\n\n{END}{rest.split(END)[1]}"
    changed = replace(README, text, "--check" in sys.argv)
    return len(changed) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
