"""Try settings on validation rows of the servers' domains, and write trials.md: each trial on all domains, one seed.

python recipes/voting_office/choose.py [--out DIR]

A trial counts by its mean accuracy over the seven domains. Nothing here looks at the test. A trial that is in trials.md
is not run again.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
from domains import DIGITS, OFFICE
from methods import Method
from run import gradients, votes

from sfumato.central import DPSGD
from sfumato.voting import KNNDPFL

FOLDER = Path(__file__).resolve().parent
SEED = 100  # not one of the table's


def _votes(epsilon: float | None, neighbours: int, epochs: int, **fields) -> Method:
    about = {name: fields.pop(name) for name in ("scaling", "records") if name in fields}
    return Method(plan=votes(neighbours, epochs).replace(**fields), epsilon=epsilon, **about)


def _pooled(epsilon: float | None, epochs: int, batch_size: int, learning_rate: float, **about) -> Method:
    return Method(plan=gradients(epochs, batch_size, learning_rate), epsilon=epsilon, **about)


def _alone(epsilon: float, epochs: int, batch_size: int, learning_rate: float, **about) -> Method:
    return _pooled(epsilon, epochs, batch_size, learning_rate, no_one_trusted=True, **about)


# In the order in which they were tried.
TRIALS = (
    _votes(None, 8, 100, scaling="roots"),
    _votes(None, 8, 100, scaling="lengths"),
    _votes(None, 8, 100),
    _pooled(8.0, 40, 256, 2.0, scaling="roots"),
    _pooled(8.0, 40, 256, 2.0),
    _alone(8.0, 40, 256, 2.0, scaling="roots"),
    _votes(8.0, 8, 100),
    _votes(8.0, 4, 100),
    _votes(8.0, 4, 100, records=100),
    _votes(8.0, 2, 100, records=25),
    _votes(8.0, 4, 100, student={"method": "smooth"}),
    _votes(8.0, 4, 100, distance="euclidean", opens="label"),
    _votes(1.0, 8, 100),
    _votes(1.0, 8, 100, queries=150),
    _votes(1.0, 16, 100, queries=75),
    _votes(1.0, 16, 100, queries=75, opens="label"),
    _votes(8.0, 4, 100, opens="label"),
    _votes(8.0, 4, 20),
    _pooled(8.0, 60, 512, 8.0),
    _pooled(1.0, 40, 256, 2.0),
    _pooled(1.0, 40, 512, 2.0),
    _alone(8.0, 40, 1024, 2.0),
    _alone(8.0, 40, 1024, 0.5),
    _alone(1.0, 40, 1024, 0.5),
    _votes(1.0, 8, 10),
    _votes(1.0, 16, 10),
    _votes(8.0, 8, 10),
    _pooled(8.0, 60, 1024, 8.0),
    _pooled(1.0, 60, 1024, 4.0),
    _alone(8.0, 60, 1024, 4.0),
    _alone(8.0, 100, 1024, 2.0),
    _alone(1.0, 60, 1024, 4.0),
    _votes(8.0, 4, 10),
    _pooled(1.0, 20, 256, 2.0),
    _alone(1.0, 10, 1024, 2.0),
    _alone(1.0, 5, 256, 0.5),
    *(_votes(8.0, k, 20, records=records) for k, records in ((2, 50), (3, 50), (5, 100))),  # a twentieth of the records
    _votes(8.0, 2, 100, student={"method": "smooth"}),
    _votes(8.0, 8, 100, student={"method": "smooth"}),
    _votes(8.0, 2, 20, student={"method": "smooth"}),
    _votes(1.0, 16, 100, student={"method": "smooth"}),
    _votes(1.0, 8, 100, student={"method": "smooth"}),
    _votes(1.0, 8, 20, student={"method": "smooth"}),
    _votes(1.0, 16, 100, queries=150, student={"method": "smooth"}),
    # The rows without noise.
    *(_votes(None, k, epochs) for k, epochs in ((2, 20), (4, 20), (4, 100), (8, 20), (16, 20), (16, 100))),
    _votes(None, 1, 20),
    _votes(None, 2, 10),
    *(_votes(None, k, 100, student={"method": "smooth"}) for k in (1, 2, 4, 8, 16)),
    *(_pooled(None, 60, 512, rate) for rate in (2.0, 8.0, 32.0)),
    _pooled(None, 200, 512, 8.0),
    _pooled(None, 40, 256, 2.0),
    _pooled(None, 200, 512, 32.0),
    # One neighbour is best without noise.
    _votes(8.0, 1, 20),
    _votes(8.0, 1, 100, student={"method": "smooth"}),
)


def title(trial: Method) -> str:
    """The trial in words."""
    plan = trial.plan
    if isinstance(plan, KNNDPFL):
        reported = f"kNN-DPFL, {plan.neighbours} neighbours ({plan.distance}), {plan.queries} queries, {plan.opens}"
        student = f"{plan.student.method} student, {plan.student.epochs} epochs"
        return f"{reported}, {student}, {trial.records} records an agent"
    assert isinstance(plan, DPSGD)
    kind = "DP-FedSGD, no one trusted" if trial.no_one_trusted else "DP-SGD, records pooled"
    return f"{kind}, {plan.epochs:g} epochs, batches of {plan.cohort.size}, rate {plan.server.learning_rate:g}"


def main() -> None:
    """Run the trials that have not run; one takes half a minute of a core."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs") / FOLDER.name, help="folder for features of digits")
    kept = parser.parse_args().out / "full"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    file = FOLDER / "trials.md"
    before = file.read_text().splitlines() if file.exists() else []
    lines = [
        "# Settings that were tried",
        "",
        f"Accuracy on validation rows of the server's domain, one seed; written by choose.py. {len(TRIALS)} trials.",
        "",
        "| trial | features | ε | Office-Caltech10 | digits | all seven domains |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for trial in TRIALS:
        budget = "–" if trial.epsilon is None else f"{trial.epsilon:g}"
        start = f"| {title(trial)} | {trial.scaling} | {budget} | "
        line = next((line for line in before if line.startswith(start)), None)
        if line is None:
            found = [
                trial.fit(server, kept, SEED, part="validation")["trained"]["accuracy"] for server in (*OFFICE, *DIGITS)
            ]
            figures = (np.mean(found[: len(OFFICE)]), np.mean(found[len(OFFICE) :]), np.mean(found))
            line = start + " | ".join(f"{figure:.3f}" for figure in figures) + " |"
        lines.append(line)
        print(line, flush=True)
        file.write_text("\n".join([*lines, *before[len(lines) :]]) + "\n")
    file.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
