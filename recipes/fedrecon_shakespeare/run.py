"""The next character of Shakespeare's roles, with a vector that is each role's own. See README.md.

A small LSTM that reads a vector of the role next to every character. FedYogi has one vector for all; fine-tuned, each
role takes some steps on half of its sequences before it is measured on the others; Federated Reconstruction rebuilds
the role's vector on these, and nothing else. All are measured on the same sequences of roles that no one trained on.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells

from sfumato._files import read_json, write_json
from sfumato.data import Split, UserDataset, open_users, split_users
from sfumato.federated import FedAvg, FedRecon
from sfumato.federated.client import Phase
from sfumato.federated.tasks import NextToken, Personalised
from sfumato.models import lstm
from sfumato.training import RunOptions

FOLDER = Path(__file__).resolve().parent
_MEASURED = "measured.json"
FEATURES = 16
YOGI, TUNED, RECON, COMMON = "FedYogi", "FedYogi + fine-tuning", "FedRecon", "FedRecon, not rebuilt"

# Chosen on roles of the training part, held out; see README.md.
_SHARED = {
    "client.loss": "next_token",
    "rounds": 100,
    "cohort.size": 30,
    "client.batch_size": 4,
    "client.max_examples": 16,
    "client.learning_rate": 1.0,
    "client.momentum": 0.0,
    "server.name": "yogi",
    "server.learning_rate": 0.03,
    "server.momentum": 0.9,
    "clipping": None,
    "noise": 0.0,
}
FEDRECON = FedRecon(
    client={"at_once": 1, "local": {"steps": 20, "epochs": None, "batch_size": 4, "learning_rate": 3.0}},
    **_SHARED,
)
PLANS: dict[str, FedAvg | FedRecon] = {YOGI: FedAvg(**_SHARED), RECON: FEDRECON}
TUNING = Phase(records="support", local=None, shared=0.1, batch_size=4, epochs=None, most=80)


def task(tuned: bool, rebuilt: bool) -> Personalised:
    """How people are measured: on the sequences that they are not tuned on."""
    plan = FEDRECON if rebuilt else FEDRECON.replace(client={"local": {"steps": 0}})
    return Personalised(
        inner=NextToken(),
        client=plan.client,
        local_parameters=None if rebuilt else "",
        phases=(TUNING,) if tuned else (),
    )


@cache
def roles() -> Split:
    """250 roles to train on, 49 to measure on, as sequences of 80 characters; chosen by a public seed."""
    return split_users(open_users(cells.SHARED / "shakespeare.txt", text="characters"), test=0.2, seed=0)


def model(train: UserDataset) -> nn.Module:
    """Embedding 8, a role's 16 numbers, one LSTM of 64, 100 logits."""
    return lstm(vocabulary_size=train.num_classes, hidden=64, layers=1, user_features=FEATURES)


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """Train one plan with one seed, or go on with it."""
    if (folder / _MEASURED).exists():
        return
    split, plan = roles(), PLANS[name]
    test = split.test.subset(range(6)) if quick else split.test
    if quick:
        plan = dataclasses.replace(plan, rounds=3)
    torch.manual_seed(seed)
    result = dataclasses.replace(plan, seed=seed).fit(
        model(split.train),
        split.train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        options=RunOptions(checkpoint_every=20),
    )
    if not result.finished:
        sys.exit(f"{name}, seed {seed} was stopped; start again to go on")
    tasks = (
        {YOGI: task(False, False), TUNED: task(True, False)}
        if name == YOGI
        else {RECON: task(False, True), COMMON: task(False, False)}
    )
    rows = {row: each.measure(result.model, test, curve=True, device="cpu") for row, each in tasks.items()}
    write_json(folder / _MEASURED, rows)


def table(place: Callable[[str, int], Path], seeds: int, _: bool) -> list[dict[str, Any]]:
    """Accuracy on sequences of roles that no one trained on."""
    rows = []
    for name in PLANS:
        measured = [read_json(place(name, seed) / _MEASURED) for seed in range(seeds)]
        for row in measured[0]:
            rows.append(
                {
                    "method": row,
                    "dataset": "Shakespeare by role, half of each role's sequences",
                    "metric": "accuracy",
                    **cells.mean_and_std([each[row]["accuracy"] for each in measured]),
                    "perplexity": cells.mean_and_std([each[row]["perplexity"] for each in measured])["mean"],
                    "seeds": seeds,
                    **dict.fromkeys(("epsilon", "delta", "unit", "noise_multiplier")),
                    "paper": {YOGI: 0.243, TUNED: 0.308, RECON: 0.307}.get(row),
                }
            )
    return rows


if __name__ == "__main__":
    cells.main(FOLDER, list(PLANS), cell, table)
