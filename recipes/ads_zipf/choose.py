"""The settings of run.py for each method and ε: the lowest log loss on the validation rows, one seed.

    choose.py

Writes chosen.json with how many were tried. So that a grid is cheap, a trial is no run of the library: the model is a
logistic regression, so the three methods are written here in NumPy, on the rows of the log alone. Noise on rows that no
example reads is left out, but where it decides which rows are kept. Choosing looks at validation rows that nothing
hides, for all methods equally; its cost is not in ε.
"""

import itertools
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import clicks

from sfumato._files import write_json
from sfumato.accounting import Event
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset
from sfumato.training.table_training import SelectedTables

CHOSEN = Path(__file__).resolve().parent / "chosen.json"
EPOCHS = 3


def _grid(**values: tuple[Any, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"epochs": EPOCHS, **dict(zip(values, each, strict=True))} for each in itertools.product(*values.values())
    )


RATES = {"server.learning_rate": (8.0, 16.0, 32.0)}
BOTH = {**RATES, "clipping": (2.0, 3.0)}
TRIALS: dict[str, tuple[dict[str, Any], ...]] = {
    clicks.PLAIN: _grid(**RATES, clipping=(None,)),
    clicks.DEFERRED: _grid(**BOTH),
    clicks.ADAFEST: _grid(**BOTH, count_noise=(1.0, 3.0)),
    clicks.FEST: _grid(**BOTH, rows=(300, 3000)),
}
"""The gradient of an example is at most about 3 long, since it reads six rows and two numbers."""


class Log:
    """The rows to train on and to choose by, with the ids that they read renumbered over all columns.

    Attributes:
        numbers, ids, clicks: of each part; numbers with a one in front.
        size: how many ids there are.
    """

    def __init__(self, *parts: ExampleDataset) -> None:
        sizes = parts[0].vocabulary_sizes
        starts = np.cumsum([0, *sizes[:-1]])
        read = [part.examples(np.arange(len(part))) for part in parts]
        self.numbers = [np.column_stack([np.ones(len(numbers)), numbers]) for (numbers, _), _ in read]
        distinct, ids = np.unique(np.concatenate([each + starts for (_, each), _ in read]), return_inverse=True)
        self.ids = np.split(ids.reshape(-1, len(sizes)), np.cumsum([len(part) for part in parts])[:-1])
        self.clicks = [np.asarray(targets) for _, targets in read]
        self.size, self.unread, self.columns = len(distinct), sum(sizes) - len(distinct), len(sizes)

    def kept(self, rows: int, noise: float, rng: np.random.Generator) -> list[np.ndarray]:
        """The ids of each part by the rows that noisy counts choose; all others of a column are one."""
        counts = np.bincount(self.ids[0].ravel(), minlength=self.size) / np.sqrt(self.columns)
        noisy = counts + noise * rng.normal(size=self.size)
        others = noise * rng.normal(size=self.unread)
        lowest = np.sort(np.concatenate([noisy, others]))[-rows]
        shared = self.size + np.arange(self.columns)
        return [np.where(noisy[ids] >= lowest, ids, shared) for ids in self.ids]


def loss_of(log: Log, method: str, epsilon: float | None, settings: dict[str, Any]) -> float:
    """The log loss on the rows to choose by, after training on the others."""
    rng, population = np.random.default_rng(0), len(log.clicks[0])
    plan, before, ids = DPSGD(epochs=EPOCHS, cohort=clicks.BATCH), None, log.ids
    if method == clicks.FEST:
        assert epsilon is not None
        choice = clicks.choice(plan, settings["rows"], epsilon, population)
        before, ids = choice.event(plan.cohort.adjacency), log.kept(choice.rows, choice.noise_multiplier, rng)
    noise = 0.0 if epsilon is None else _noise(plan, epsilon, population, before)
    selected, threshold = 0.0, 0.0
    if method == clicks.ADAFEST:
        selection = SelectedTables(count_noise=settings["count_noise"])
        selected, noise = selection.multipliers(noise)
        threshold = selection.threshold(selected, rows=sum(clicks.LOG.vocabulary_sizes))
    numbers, targets = log.numbers[0], log.clicks[0]
    weights, rows = np.zeros(numbers.shape[1]), np.zeros(log.size + log.columns)
    steps, bound = plan.rounds_for(population), settings["clipping"]
    std = noise * (bound or 0.0)
    for step in range(steps):
        rate = settings["server.learning_rate"] * 0.5 * (1 + np.cos(np.pi * step / steps)) / clicks.BATCH
        batch = np.flatnonzero(rng.random(population) < clicks.BATCH / population)
        inputs, read = numbers[batch], ids[0][batch]
        errors = 1 / (1 + np.exp(-(inputs @ weights + rows[read].sum(axis=1)))) - targets[batch]
        if bound is not None:
            norms = np.abs(errors) * np.sqrt((inputs**2).sum(axis=1) + log.columns)
            errors *= np.minimum(1.0, bound / np.maximum(norms, 1e-12))
        gradient = np.bincount(read.ravel(), np.repeat(errors, log.columns), len(rows))
        gradient += std * rng.normal(size=len(rows))
        if method == clicks.ADAFEST:
            counts = np.bincount(read.ravel(), minlength=len(rows)) / np.sqrt(log.columns)
            gradient[counts + selected * rng.normal(size=len(rows)) <= threshold] = 0.0
        rows -= rate * gradient
        weights -= rate * (inputs.T @ errors + std * rng.normal(size=len(weights)))
    odds = log.numbers[1] @ weights + rows[ids[1]].sum(axis=1)
    return float(np.logaddexp(0.0, np.where(log.clicks[1] == 1, -odds, odds)).mean())


@cache
def _noise(plan: DPSGD, epsilon: float, population: int, before: Event | None) -> float:
    """The noise multiplier of the steps."""
    found = plan.calibrate(epsilon=epsilon, population=population, before=before).noise.noise_multiplier
    assert found is not None
    return found


def main() -> None:
    """Choose."""
    split = clicks.parts()
    log, chosen = Log(split.train, split.validation), {}
    for method, trials in TRIALS.items():
        chosen[method] = {}
        for epsilon in clicks.epsilons(method):
            losses = [loss_of(log, method, epsilon, settings) for settings in trials]
            best = trials[int(np.argmin(losses))]
            chosen[method][str(epsilon)] = {**best, "validation_log_loss": min(losses), "tried": len(losses)}
            print(
                f"{method}, ε {epsilon}: {best}: {min(losses):.4f} of {min(losses):.4f} to {max(losses):.4f}",
                flush=True,
            )
            write_json(CHOSEN, chosen)


if __name__ == "__main__":
    main()
