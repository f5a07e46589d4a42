"""The settings of run.py, for each table, method and epsilon: the lowest log loss on the validation rows, one seed.

Writes chosen.json. Choosing looks at labels that no one hid, for all methods equally; its cost is not in epsilon.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import methods
import run

from sfumato._files import write_json
from sfumato.training.supervised import measure

_PLAIN = [{"epochs": 10, "learning_rate": 0.05, "weight_decay": decay} for decay in (0.0, 1e-3, 1e-2)]
_CLIPPED = [
    {"epochs": epochs, "server.learning_rate": rate, "clipping": bound}
    for epochs, rate, bound in (
        *((5, 0.02, 1.0), (20, 0.1, 1.0), (5, 0.5, 1.0), (5, 2.0, 4.0)),
        *((5, 8.0, 4.0), (20, 0.5, 4.0), (20, 2.0, 4.0), (20, 8.0, 4.0)),
    )
]
TRIALS: dict[str, list[dict[str, Any]]] = {
    name: _CLIPPED if name in ("LabelDP-Pro", "DP-SGD") else _PLAIN for name in methods.METHODS
}


def best(data: str, name: str) -> dict[str, dict[str, Any]]:
    """The settings that predict the validation rows best, by epsilon in words."""
    torch.set_num_threads(1)
    split, chosen = run.conversions.parts(data), {}
    for epsilon in run.epsilons(name):
        found = []
        for settings in TRIALS[name]:
            model, _ = methods.METHODS[name](split.train, epsilon or 0.0, 0, **settings)
            found.append(measure(model, split.validation).get("log_loss", float("inf")))
        place = min(range(len(found)), key=found.__getitem__)
        reported = ", ".join(f"{each:.4f}" for each in found)
        print(f"{data}, {name}, epsilon {epsilon}: number {place + 1} of {reported}", flush=True)
        chosen[str(epsilon)] = TRIALS[name][place]
    return chosen


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        found = {data: {name: pool.submit(best, data, name) for name in TRIALS} for data in run.TABLES}
        write_json(
            run.CHOSEN, {data: {name: each.result() for name, each in those.items()} for data, those in found.items()}
        )
