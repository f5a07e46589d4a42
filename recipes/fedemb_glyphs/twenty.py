"""`make demo` twenty times, each with randomness of its own from the operating system: how often does recall double?

    python recipes/fedemb_glyphs/twenty.py [--runs N] [--out DIR]

Prints a line for each run and writes twenty.json, and the table between the marks in README.md. A run that was stopped
goes on, a finished one is not repeated.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
RUNS = ROOT / "runs" / "fedemb_glyphs" / "twenty"
FAR = "0.001"
START, END = "<!-- twenty -->", "<!-- end of twenty -->"


def main() -> None:
    """Run what is missing, and report all."""
    parser = argparse.ArgumentParser(description="The demo many times.")
    parser.add_argument("--runs", type=int, default=20, help="how many")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "fedemb_glyphs" / "twenty", help="folder of the runs"
    )
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for number in range(1, options.runs + 1):
        rows.append(run(options.out.resolve() / f"{number:02d}", number))
        print(line(rows[-1]), flush=True)
        (FOLDER / "twenty.json").write_text(json.dumps(rows, indent=2) + "\n")
    readme = FOLDER / "README.md"
    before, rest = readme.read_text().split(START)
    readme.write_text(f"{before}{START}\n\n{reported(rows)}\n\n{END}{rest.split(END)[1]}")
    print(reported(rows))


def run(folder: Path, number: int) -> dict[str, Any]:
    """One run of the demo, or what it left."""
    kept = folder.with_suffix(".json")
    if kept.exists():
        return json.loads(kept.read_text())
    command = [str(Path(sys.executable).with_name("sfumato")), "fedemb"]
    begun = (folder / "plan.json").exists()
    command += ["--resume", str(folder)] if begun else ["--config", str(FOLDER / "demo.yaml"), "--out", str(folder)]
    start = time.monotonic()
    subprocess.run([*command, "--json"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - start
    evaluation = json.loads((folder / "evaluation.json").read_text())
    statement = json.loads((folder / "statement.json").read_text())
    before, after = (evaluation[which]["recall_at_far"][FAR] for which in ("untrained", "trained"))
    row = {
        "run": number,
        "untrained": round(before, 4),
        "trained": round(after, 4),
        "times": round(after / before, 2),
        "epsilon": statement["epsilon"],
        "delta": statement["delta"],
        "noise_source": statement["noise_source"]["text"],
        "seconds": None if begun else round(seconds),
    }
    kept.write_text(json.dumps(row))
    return row


def line(row: dict[str, Any]) -> str:
    """One run."""
    return f"run {row['run']}: recall {row['untrained']:.4f} → {row['trained']:.4f}, {row['times']:.2f} times"


def reported(rows: list[dict[str, Any]]) -> str:
    """All runs as a table."""
    lines = ["| run | untrained | trained | times |", "| --- | --- | --- | --- |"]
    lines += [f"| {row['run']} | {row['untrained']:.4f} | {row['trained']:.4f} | {row['times']:.2f} |" for row in rows]
    doubled = sum(row["times"] >= 2 for row in rows)
    return "\n".join(lines) + f"\n\nRecall at FAR = 10⁻³ at least doubled in {doubled} of {len(rows)} runs."


if __name__ == "__main__":
    main()
