"""Nearest records that vote across domains, next to noisy gradients: Office-Caltech10 and digits.

The server has public pictures of one domain without labels; agents hold parts of the other domains. kNN-DPFL
protects one record: agents vote by their nearest records in public features, and a linear student learns from the noisy
answers. Next to it, at the same budget for one record, a linear model by noisy gradients: DP-FedSGD, where every agent
adds the noise of its own guarantee and no one is trusted, and DP-SGD on the records of all, where a server is. All are
measured on other pictures of the server's domain, which nothing was chosen on. See README.md.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from domains import DIGITS, OFFICE
from methods import Method, guarantee_file

from sfumato._files import read_json
from sfumato.central import DPSGD
from sfumato.voting import KNNDPFL

FOLDER = Path(__file__).resolve().parent
PRINTED = "as printed by Zhu et al."


def votes(neighbours: int, epochs: int, student: str = "supervised") -> KNNDPFL:
    """kNN-DPFL whose student learns from all noisy counts, by one of the methods of `StudentTraining`."""
    return KNNDPFL(
        queries=500,
        neighbours=neighbours,
        distance="cosine",
        few_records="share",
        opens="counts",
        student={"method": student, "epochs": epochs, "optimizer": "adam", "learning_rate": 0.01},
    )


def gradients(epochs: int, batch_size: int, learning_rate: float) -> DPSGD:
    """DP-SGD of a linear model."""
    return DPSGD(epochs=epochs, cohort=batch_size, server={"learning_rate": learning_rate}, clipping=1.0)


# Chosen on validation rows, see choose.py: the best of each kind at each budget, over all domains.
METHODS = {
    "kNN-DPFL, hardly any noise": Method(plan=votes(1, 20), epsilon=None),
    "clipped gradients, no noise": Method(plan=gradients(60, 512, 32.0), epsilon=None),
    "kNN-DPFL, ε 1": Method(plan=votes(8, 100, "smooth"), epsilon=1.0),
    "DP-FedSGD, no one trusted, ε 1": Method(plan=gradients(10, 1024, 2.0), epsilon=1.0, no_one_trusted=True),
    "DP-SGD, records pooled, ε 1": Method(plan=gradients(20, 256, 2.0), epsilon=1.0),
    "kNN-DPFL, ε 8": Method(plan=votes(2, 100, "smooth"), epsilon=8.0),
    "DP-FedSGD, no one trusted, ε 8": Method(plan=gradients(40, 1024, 2.0), epsilon=8.0, no_one_trusted=True),
    "DP-SGD, records pooled, ε 8": Method(plan=gradients(60, 512, 8.0), epsilon=8.0),
}


def servers(quick: bool) -> tuple[str, ...]:
    """The server's domains; without those whose features take time where it is quick."""
    return OFFICE if quick else (*OFFICE, *DIGITS)


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """One method with one seed on every domain."""
    for server in servers(quick):
        place = folder / server.replace(" ", "-")
        if not (place / "evaluation.json").exists():
            METHODS[name].fit(server, folder.parent, seed, part="test", out=place, quick=quick)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Rows of every domain: accuracy on its test rows. What was not run stays as it is in results.json."""
    rows = []
    kept = cells.kept_rows(None if quick else FOLDER / "results.json")
    for server in servers(quick):
        dataset = f"{'Office-Caltech10' if server in OFFICE else 'digits'}, the server has {server}"
        for name, method in METHODS.items():
            folders = [place(name, seed) / server.replace(" ", "-") for seed in range(seeds)]
            before = cells.row_before(kept, (dataset, name), (folder / "evaluation.json" for folder in folders))
            if before is not None:
                rows.append(before)
                continue
            found = [read_json(folder / "evaluation.json")["trained"]["accuracy"] for folder in folders]
            rows.append(
                {
                    "method": name,
                    "dataset": dataset,
                    "metric": "accuracy",
                    **cells.mean_and_std(found),
                    "seeds": seeds,
                    **promise(method, folders[0]),
                    "paper": None,
                }
            )
    return rows


def promise(method: Method, folder: Path) -> dict[str, Any]:
    """What the statement of a run says of one record; of an agent's own noise where no one is trusted."""
    statement = read_json(folder / "statement.json")
    if method.epsilon is None:
        return dict.fromkeys(("epsilon", "epsilon_papers_convention", "delta", "unit"))
    printed = [each["epsilon"] for each in statement["alternatives"] if each["name"].startswith(PRINTED)]
    found = {
        "epsilon": statement["epsilon"],
        "epsilon_papers_convention": min(printed, default=None),
        "delta": statement["delta"],
        "unit": statement["unit"],
    }
    if method.no_one_trusted:  # the statement is of the sum of all noises
        found |= {"epsilon_of_the_sum": statement["epsilon"], **read_json(guarantee_file(folder))}
    return found


if __name__ == "__main__":
    cells.main(FOLDER, list(METHODS), cell, table)
