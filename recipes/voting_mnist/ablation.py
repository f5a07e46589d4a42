"""How many agents, how many records each, and who abstains: right answers and students.

    ablation.py [--out DIR] [--seeds N]

50 to 800 agents hold 75 records each at most; 100 agents hold 50 to 600: answers and students at ε = 5, as in the
paper, three seeds. Then the 100 agents of the table abstain from queries that are unlike their records, with the noise
of the table: a vote of zero has no larger norm than one for a class, so it costs no more; one seed, and no student.
Writes ablation.json and ablation.svg next to it. A point that is done is not repeated.
"""

import argparse
import dataclasses
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from run import AGENTS, VOTE, agents, model, server
from voting_recipe import DELTA

from sfumato._files import read_json, write_json
from sfumato._random import RandomSource
from sfumato.report.plots import COLOURS, save
from sfumato.training.supervised import outputs

FOLDER = Path(__file__).resolve().parent
MANY, FEW_RECORDS = (50, 100, 200, 400, 800), 75
RECORDS = (50, 100, 200, 400, 600)
CERTAINTIES, SHARES = (0.6, 0.8, 0.9, 0.95), (0.7, 0.8, 0.9, 0.95, 0.99)
"""Least probability of the class that is voted for; shares of an agent's own records that are as near to others."""

EPSILON = 5.0
"""What the ablation may cost an agent: the paper's."""
ABLATED = VOTE.calibrate(epsilon=EPSILON, delta=DELTA, population=AGENTS)

QUERIES, DRAWS = 600, 10


def point(number: int, records: int, seeds: int, out: Path) -> dict[str, Any]:
    """Votes of so many agents and their students, over seeds; those that have run before are not repeated."""
    found = []
    for seed in range(seeds):
        path = out / f"{number}-{records}-{seed}.json"
        if not path.exists():
            users, (pool, _, test) = agents(seed, number=number, records=records), server()
            torch.manual_seed(seed)
            plan = dataclasses.replace(ABLATED, seed=seed, selection_seed=seed)
            result = plan.fit(users, pool, model(), student=model(), test=test, threads=1)
            parts = {"answers": "answers", "student": "trained"}
            write_json(path, {name: result.evaluation[part]["accuracy"] for name, part in parts.items()})
            print(f"{number} agents, {records} records, seed {seed}: {read_json(path)}", flush=True)
        found.append(read_json(path))
    row = {"agents": number, "records": records, "epsilon": EPSILON, "seeds": seeds}
    return {**row, **{name: cells.mean_and_std([each[name] for each in found]) for name in ("answers", "student")}}


def abstaining(out: Path) -> list[dict[str, Any]]:
    """Right answers where agents abstain by how certain they are, or by the distance to their records in features."""
    path = out / "abstaining.json"
    if path.exists():
        return read_json(path)
    users, (pool, _, _) = agents(100), server()
    queries = np.sort(np.random.default_rng(1).permutation(len(pool))[:QUERIES])
    (asked,), classes = pool.examples(queries)
    assert classes is not None
    torch.manual_seed(100)
    begun, found, near, knows = model(), [], [], []
    for agent in range(AGENTS):
        inputs, labels = users.examples(agent)
        trained = VOTE.training.fit(begun, inputs, labels, source=RandomSource.from_seed(agent))
        features = nn.Sequential(*list(trained.children())[:-1])
        own, other = (torch.from_numpy(outputs(features, rows)) for rows in (inputs, asked))
        found.append(torch.softmax(torch.from_numpy(outputs(trained, asked)), 1).numpy())
        between = torch.cdist(own, own).fill_diagonal_(torch.inf).amin(1)
        near.append((torch.cdist(other, own).amin(1)[:, None] >= between).float().mean(1).numpy())
        knows.append(np.isin(classes, labels))
    shares, far, known = np.stack(found), np.stack(near), np.stack(knows)
    votes = np.eye(shares.shape[2])[shares.argmax(2)]

    def row(title: str, kept: np.ndarray) -> dict[str, Any]:
        counts, rng = (votes * kept[..., None]).sum(0), np.random.default_rng(0)
        draws = [rng.normal(0.0, VOTE.noise_std or 0.0, counts.shape) for _ in range(DRAWS)]
        right = [(counts + noise).argmax(1) == classes for noise in draws]
        return {
            "abstain": title,
            "votes of who knows": round(float(kept[known].mean()), 3),
            "votes of others": round(float(kept[~known].mean()), 3),
            "winners right": round(float((counts.argmax(1) == classes).mean()), 4),
            "answers": round(float(np.mean(right)), 4),
        }

    rows = [row("never", np.ones_like(known))]
    rows += [row(f"below probability {least:g}", shares.max(2) >= least) for least in CERTAINTIES]
    rows += [row(f"farther than {share:g} of the own records", far <= share) for share in SHARES]
    rows.append(row("from queries of a class that it does not know", known))
    write_json(path, rows)
    return rows


def draw(by_agents: list[dict[str, Any]], by_records: list[dict[str, Any]]) -> None:
    """Two panels: against the number of agents, and against the records of each."""

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, rows, key, title in (
            (left, by_agents, "agents", f"agents of {FEW_RECORDS} records"),
            (right, by_records, "records", f"records of each of {AGENTS} agents"),
        ):
            for name, colour, style in (("student", COLOURS[0], "o-"), ("answers", COLOURS[1], "s--")):
                mean, std = ([row[name][part] for row in rows] for part in ("mean", "std"))
                axes.errorbar([row[key] for row in rows], mean, std, fmt=style, color=colour, capsize=3, label=name)
            axes.set_xscale("log")
            axes.set_xticks([row[key] for row in rows], [str(row[key]) for row in rows])
            axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            axes.set_xlabel(title)
            axes.spines[["top", "right"]].set_visible(False)
        left.set_ylabel("share right")
        left.legend(frameon=False)

    save(FOLDER / "ablation.svg", (8.4, 3.6), fill)


def main() -> None:
    """All points, then the files."""
    parser = argparse.ArgumentParser(description="Agents and records.")
    parser.add_argument("--out", type=Path, default=Path("runs") / "voting_mnist" / "ablation")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each point")
    options = parser.parse_args()
    out, seeds = options.out, options.seeds
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    by_agents = [point(number, FEW_RECORDS, seeds, out) for number in MANY]
    by_records = [point(AGENTS, records, seeds, out) for records in RECORDS]
    abstained = abstaining(out)
    write_json(FOLDER / "ablation.json", {"agents": by_agents, "records": by_records, "abstaining": abstained})
    draw(by_agents, by_records)
    for row in by_agents + by_records:
        shown = ", ".join(f"{name} {row[name]['mean']:.3f} ± {row[name]['std']:.3f}" for name in ("answers", "student"))
        print(f"{row['agents']:4d} agents, {row['records']:3d} records: {shown}")
    for row in abstained:
        print("| " + " | ".join(map(str, row.values())) + " |")


if __name__ == "__main__":
    main()
