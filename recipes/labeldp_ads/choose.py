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
_WHOLE = [  # all rows in every step, and a bound that few gradients reach
    {"epochs": epochs, "batches": 1, "server.learning_rate": rate, "clipping": 10.0}
    for epochs, rate in ((5, 0.05), (20, 0.02), (20, 0.1), (60, 0.05), (60, 0.2))
]


def trials(data: str, name: str) -> list[dict[str, Any]]:
    """What is tried; a row of the Criteo sample is 39 columns wide, so its gradients are longer."""
    if name not in ("LabelDP-Pro", "DP-SGD"):
        return _PLAIN
    return [*_CLIPPED, *_WHOLE] if data == run.conversions.CRITEO else _CLIPPED


def best(data: str, name: str) -> dict[str, dict[str, Any]]:
    """The settings that predict the validation rows best, by epsilon in words."""
    torch.set_num_threads(1)
    split, chosen = run.conversions.parts(data), {}
    for epsilon in run.epsilons(name):
        found = []
        for settings in trials(data, name):
            model, _ = methods.METHODS[name](split.train, epsilon or 0.0, 0, **settings)
            found.append(measure(model, split.validation).get("log_loss", float("inf")))
        place = min(range(len(found)), key=found.__getitem__)
        reported = ", ".join(f"{each:.4f}" for each in found)
        print(f"{data}, {name}, epsilon {epsilon}: number {place + 1} of {reported}", flush=True)
        chosen[str(epsilon)] = trials(data, name)[place]
    return chosen


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        found = {data: {name: pool.submit(best, data, name) for name in methods.METHODS} for data in run.TABLES}
        write_json(
            run.CHOSEN, {data: {name: each.result() for name, each in those.items()} for data, those in found.items()}
        )
