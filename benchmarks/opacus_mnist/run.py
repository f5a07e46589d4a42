"""Opacus's MNIST example, with Opacus and with sfumato: accuracy, epsilon, lines of code, time.

    python benchmarks/opacus_mnist/run.py [--quick] [--json FILE] [--epochs N] [--seeds N]

Both programs start from the same weights, with the same data, settings and number of steps; they take turns. Lines are
those of code, without blank ones and docstrings, of with_sfumato.py and with_opacus.py as they lie here. Seconds are
CPU time of training and accounting on one thread: no imports, reading or measuring. Opacus draws its noise from torch's
generator, as it does by default, and sfumato from AES under a key of the operating system, as it does by default.
"""

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = {"sfumato": "with_sfumato.py", "Opacus": "with_opacus.py"}
UNITS = {"accuracy": "share", "epsilon": "ε", "lines": "lines", "seconds": "s"}


def lines_of(program: str) -> int:
    """Lines that hold code."""
    tree = ast.parse((HERE / program).read_text(encoding="utf-8"))
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    return len({line for node in body for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)})


def one_run(program: str, seed: int, epochs: int) -> dict[str, float]:
    """What a program reports of a run."""
    command = [sys.executable, str(HERE / program), str(seed), str(epochs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Means over the seeds, in Markdown."""
    lines = [
        "| | accuracy, each seed | ε at δ = 10⁻⁵ | lines of code | CPU seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, runs in found.items():
        accuracies = ", ".join(f"{100 * run['accuracy']:.1f} %" for run in runs)
        seconds = statistics.mean(run["seconds"] for run in runs)
        lines.append(
            f"| {name} | {accuracies} | {runs[0]['epsilon']:.4f} | {lines_of(PROGRAMS[name])} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def rows(found: dict[str, list[dict[str, float]]], epochs: int) -> list[dict]:
    """The table in the shape that all benchmarks write."""
    means = {
        name: {key: statistics.mean(run[key] for run in runs) for key in runs[0]} | {"lines": lines_of(PROGRAMS[name])}
        for name, runs in found.items()
    }
    return [
        {
            "name": f"MNIST example of Opacus, {epochs} epochs, {len(found['sfumato'])} seeds: {key}",
            "ours": round(means["sfumato"][key], 4),
            "other": round(means["Opacus"][key], 4),
            "other_name": "Opacus",
            "unit": unit,
            "ratio": round(means["sfumato"][key] / means["Opacus"][key], 4),
            "goal": None,
            "met": None,
        }
        for key, unit in UNITS.items()
    ]


def main() -> None:
    """Run both programs and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="one epoch, one seed")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    arguments = parser.parse_args()
    epochs, seeds = (1, 1) if arguments.quick else (arguments.epochs, arguments.seeds)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in PROGRAMS}
    for seed in range(seeds):
        for name, program in PROGRAMS.items():
            found[name].append(one_run(program, seed, epochs))
        print(f"\n{epochs} epochs, {seed + 1} of {seeds} seeds\n\n{table(found)}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows(found, epochs), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
