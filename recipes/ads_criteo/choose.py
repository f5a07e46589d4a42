"""The settings of run.py for each method and ε: the lowest log loss on the validation rows, one seed.

    choose.py [--data FOLDER]

Writes chosen.json after each trial, with how many were tried; those are not repeated, and trials that are added at the
end of a list are compared with the best so far. Choosing looks at validation rows that nothing hides, for all methods
equally; its cost is not in ε.
"""

import argparse
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import clicks

from sfumato._files import read_json, write_json

CHOSEN = Path(__file__).resolve().parent / "chosen.json"
TRIALS: tuple[dict[str, Any], ...] = tuple(
    {"epochs": epochs, "server.learning_rate": rate, "clipping": bound}
    for epochs, rate, bound in (
        *((2, 0.2, 4.0), (5, 0.2, 4.0), (5, 0.5, 4.0), (5, 0.1, 10.0), (10, 0.2, 4.0)),
        *((2, 0.5, 10.0), (5, 0.5, 10.0), (5, 0.2, 30.0)),
        *((5, 1.0, 10.0), (2, 1.0, 10.0), (5, 2.0, 10.0)),
    )
)
"""With a small norm the rare clicks, whose gradients are long, lose more than the others: too few are predicted."""
WITHOUT: tuple[dict[str, Any], ...] = tuple(
    {"epochs": epochs, "server.learning_rate": rate, "clipping": None}
    for epochs, rate in (
        (2, 0.2),
        (3, 0.2),
        (4, 0.2),
        (5, 0.2),
        (2, 0.5),
        (3, 0.5),
        (5, 0.1),
        (2, 1.0),
        (3, 1.0),
        (2, 2.0),
    )
)
"""Without privacy nothing is clipped, and the passes end before the model knows the rows by heart."""


def trials_of(method: str) -> tuple[dict[str, Any], ...]:
    """The settings that are tried for a method."""
    return WITHOUT if method == clicks.PLAIN else TRIALS


def main() -> None:
    """Choose what is not chosen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    split, chosen = clicks.parts(options.data), read_json(CHOSEN) if CHOSEN.exists() else {}
    for method in clicks.TABLES:
        for epsilon in clicks.epsilons(method):
            best = chosen.setdefault(method, {}).get(str(epsilon), {"validation_log_loss": math.inf, "tried": 0})
            for number, settings in enumerate(trials_of(method)):
                if number < best["tried"]:
                    continue
                model, _ = clicks.trained(split.train, method, epsilon, 0, **settings)
                found = clicks.scores(model, split.validation)["log_loss"]
                print(f"{method}, ε {epsilon}, {settings}: {found:.4f}", flush=True)
                if found < best["validation_log_loss"]:
                    best = {**settings, "validation_log_loss": found}
                best["tried"] = number + 1
                chosen[method][str(epsilon)] = best
                write_json(CHOSEN, chosen)


if __name__ == "__main__":
    main()
