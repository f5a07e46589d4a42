"""How many agents, and how many records each: the share of right answers with the noise of the table, one seed.

    ablation.py [--out DIR]

50 to 800 agents hold 75 records each at most; 100 agents hold 50 to 600. No student is trained: it follows the answers.
Writes ablation.json and ablation.svg next to it. A point that is done is not repeated.
"""

import argparse
import dataclasses
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from run import AGENTS, VOTE, agents, model, server

from sfumato._files import read_json, write_json
from sfumato.report.plots import COLOURS, save

FOLDER = Path(__file__).resolve().parent
MANY, FEW_RECORDS = (50, 100, 200, 400, 800), 75
RECORDS = (50, 100, 200, 400, 600)


def point(number: int, records: int, out: Path) -> dict[str, Any]:
    """One vote of so many agents, or what it gave."""
    path = out / f"{number}-{records}.json"
    if not path.exists():
        users = agents(0, number=number, records=records)
        torch.manual_seed(0)
        result = dataclasses.replace(VOTE, seed=0).fit(users, server()[0], model(), threads=1)
        write_json(path, {"agents": number, "records": records, "answers": result.evaluation["answers"]["accuracy"]})
    return read_json(path)


def draw(by_agents: list[dict[str, Any]], by_records: list[dict[str, Any]]) -> None:
    """Two panels: against the number of agents, and against the records of each."""

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, rows, key, title in (
            (left, by_agents, "agents", f"agents of {FEW_RECORDS} records"),
            (right, by_records, "records", f"records of each of {AGENTS} agents"),
        ):
            axes.plot([row[key] for row in rows], [row["answers"] for row in rows], "o-", color=COLOURS[0])
            axes.set_xscale("log")
            axes.set_xticks([row[key] for row in rows], [str(row[key]) for row in rows])
            axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            axes.set_xlabel(title)
            axes.spines[["top", "right"]].set_visible(False)
        left.set_ylabel("answers right")

    save(FOLDER / "ablation.svg", (8.4, 3.6), fill)


def main() -> None:
    """All points, then the files."""
    parser = argparse.ArgumentParser(description="Agents and records.")
    parser.add_argument("--out", type=Path, default=Path("runs") / "voting_mnist" / "ablation")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    by_agents = [point(number, FEW_RECORDS, out) for number in MANY]
    by_records = [point(AGENTS, records, out) for records in RECORDS]
    write_json(FOLDER / "ablation.json", {"agents": by_agents, "records": by_records})
    draw(by_agents, by_records)
    for row in by_agents + by_records:
        print(f"{row['agents']:4d} agents, {row['records']:3d} records: {row['answers']:.3f} of the answers right")


if __name__ == "__main__":
    main()
