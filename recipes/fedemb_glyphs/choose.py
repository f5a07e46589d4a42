"""Settings of run.py and demo.yaml, by recall on the characters of validation.txt. See README.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from choosing import Choice, main
from run import ALONE, EPSILON, FEDAVG, FEDEMB, FOLDER, POPULATION, negatives

from sfumato import models
from sfumato.data import UserDataset, glyphs, split_users
from sfumato.federated import FedAvg, FedEmb

Plan = FedEmb | FedAvg

SMALL = {"cohort.size": 115, "clipping": 0.03, "server.learning_rate": 40}
FIRST = {"trainable": "conv1.*"}
INNER = {"client.loss": "softmax", "client.head.start": "glorot", "client.head_lr_scale": 20, **FIRST}
VALIDATION = 460  # characters that are not trained on
GROUPS = {"cohort.users_per_client": 4, "cohort.size": 345}
BOTH = {"trainable": "conv.*"}
FAST = {"client.learning_rate": 0.2, "client.head_lr_scale": 5}
SAME = {**GROUPS, **BOTH, "client.loss": "cosine", "client.loss.scale": 20.0}
"""FedEmb's settings, with a head that is shared."""
LARGE = {**SAME, "cohort.users_per_client": 16, "cohort.size": 86, "client.epochs": 2, "client.head_lr_scale": 10}
FREE: dict[str, dict] = {  # without noise
    "as FedEmb": SAME,
    "as FedEmb, local rate 0.2, heads 5 times": {**SAME, **FAST},
    "m = 16, heads 10 times, local rate 0.1": {**LARGE, "client.learning_rate": 0.1},
    "m = 16, heads 10 times, local rate 0.2, clip norm 1, server rate 2": {
        **LARGE,
        "client.learning_rate": 0.2,
        "clipping": 1.0,
        "server.learning_rate": 2,
    },
    "m = 16, heads 50 times, local rate 0.1": {**LARGE, "client.learning_rate": 0.1, "client.head_lr_scale": 50},
    "m = 64, heads 10 times, local rate 0.1": {
        **LARGE,
        "client.learning_rate": 0.1,
        "cohort.users_per_client": 64,
        "cohort.size": 21,
    },
}
CHANGES: dict[str, tuple[Plan, dict]] = {
    "DP-FedEmb, 345 clients": (FEDEMB, INNER),
    "DP-FedEmb, clip norm 0.03, server rate 20": (FEDEMB, {**INNER, **SMALL, "server.learning_rate": 20}),
    "DP-FedEmb, clip norm 0.03, server rate 40": (FEDEMB, {**INNER, **SMALL}),
    "DP-FedEmb, clip norm 0.03, server rate 40, 16 rounds": (FEDEMB, {**INNER, **SMALL, "rounds": 16}),
    "DP-FedEmb, heads from means, cosine": (FEDEMB, FIRST),
    "DP-FedEmb, heads from means, cosine, server rate 80": (FEDEMB, {**FIRST, "server.learning_rate": 80}),
    "DP-FedEmb, heads from means, cosine, scale 10": (FEDEMB, {**FIRST, "client.loss.scale": 10.0}),
    "DP-FedEmb, heads from means, cosine, both convolutions": (FEDEMB, {}),
    "DP-FedEmb, means, cosine, both convolutions, server rate 80": (FEDEMB, {"server.learning_rate": 80}),
    "DP-FedEmb, means, cosine, both convolutions, everybody": (FEDEMB, {"cohort.size": 460}),
    "DP-FedEmb, means, cosine, both convolutions, local rate 0.1": (FEDEMB, {"client.learning_rate": 0.1}),
    "DP-FedEmb, means, cosine, all layers": (FEDEMB, {"trainable": "all"}),
    "DP-FedEmb, means, cosine, both convolutions, 12 rounds": (FEDEMB, {"rounds": 12}),
    "DP-FedEmb, m = 1, negatives": (ALONE, FIRST),
    "DP-FedEmb, m = 1, negatives, both convolutions": (ALONE, {}),
    "DP-FedEmb, m = 1, negatives, both convolutions, server rate 80": (ALONE, {"server.learning_rate": 80}),
    "DP-FedAvg": (FEDAVG, GROUPS),
    "DP-FedAvg, server rate 10": (FEDAVG, {**GROUPS, "server.learning_rate": 10}),
    "DP-FedAvg, clip norm 0.3, server rate 4": (FEDAVG, {**GROUPS, "clipping": 0.3, "server.learning_rate": 4}),
    "DP-FedAvg, both convolutions": (FEDAVG, {**GROUPS, **BOTH}),
    "DP-FedAvg, both convolutions, local rate 0.2": (FEDAVG, {**GROUPS, **BOTH, "client.learning_rate": 0.2}),
    "DP-FedAvg, both convolutions, local rate 0.2, heads 5 times": (FEDAVG, {**GROUPS, **BOTH, **FAST}),
    "DP-FedAvg, m = 1, both convolutions, local rate 0.2, heads 5 times": (FEDAVG, {**BOTH, **FAST}),
    "DP-FedAvg, m = 1": (FEDAVG, {}),
    **{f"FedAvg, {name}": (FEDAVG, changes) for name, changes in FREE.items()},
}


def data() -> tuple[UserDataset, UserDataset]:
    """All characters but those of the test and of the validation, and the latter."""
    test, validation = ((FOLDER / f"{part}.txt").read_text().split() for part in ("test", "validation"))
    parts = split_users(glyphs(), test=test, validation=validation)
    return parts.train, parts.validation


def candidate(plan: Plan, changes: dict, *, free: bool) -> Plan:
    """A plan with the noise of the final run, which has 460 characters more to hide among and to draw from; or free."""
    plan = plan.replace(**changes)
    if free:
        return plan
    plan = plan.calibrate(epsilon=EPSILON, delta=0.01 / POPULATION, population=POPULATION)
    there = (POPULATION - VALIDATION) // plan.cohort.users_per_client
    return plan.replace(cohort=min(plan.cohort.size, there))


if __name__ == "__main__":
    candidates = {name: candidate(*change, free=name.startswith("FedAvg")) for name, change in CHANGES.items()}
    main(Choice(folder=FOLDER, data=data, model=models.lenet, candidates=candidates, negatives=negatives))
