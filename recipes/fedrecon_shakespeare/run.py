"""The next character and the next word of Shakespeare's roles, with parameters of each role's own. See README.md.

Characters: a small LSTM reads a vector of the role next to each. Words: it reads vectors of the words outside of the
vocabulary, which are the own part. FedYogi has one such part for all; fine-tuned, each role takes some steps on half of
its sequences before it is measured on the others; Federated Reconstruction rebuilds the own part on these, and nothing
else. All are measured on the same sequences of roles that no one trained on.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells

from sfumato._files import read_json, write_json
from sfumato.data import Split, open_users, split_users
from sfumato.data.text import tokens_of
from sfumato.federated import FedAvg, FedRecon
from sfumato.federated.client import Phase
from sfumato.federated.tasks import NextToken, Personalised
from sfumato.models import lstm
from sfumato.training import RunOptions

FOLDER = Path(__file__).resolve().parent
PLAYS = cells.SHARED / "shakespeare.txt"
_MEASURED = "measured.json"
FEATURES, KNOWN_WORDS, BUCKETS = 16, 2000, 500
YOGI, TUNED, RECON, COMMON = "FedYogi", "FedYogi + fine-tuning", "FedRecon", "FedRecon, not rebuilt"

_SHARED: dict[str, Any] = {
    "client.loss": "next_token",
    "cohort.size": 30,
    "client.learning_rate": 1.0,
    "client.momentum": 0.0,
    "server.name": "yogi",
    "server.learning_rate": 0.03,
    "server.momentum": 0.9,
    "clipping": None,
    "noise": 0.0,
}


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is predicted.

    Attributes:
        dataset: its name in the table.
        metric: its name there.
        key: of the metric.
        roles: 250 to train on, 49 to measure on.
        model: from the number of ids that targets have.
        recon: the plan with an own part; without, it is that of FedYogi.
        tuning: how all parameters are fine-tuned.
        paper: accuracies of rows with a counterpart.
    """

    dataset: str
    metric: str
    key: str
    roles: Callable[[], Split]
    model: Callable[[int], nn.Module]
    recon: FedRecon
    tuning: Phase
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def plans(self) -> dict[str, FedAvg | FedRecon]:
        """A plan for each training."""
        client = self.recon.client
        fields = {"client.max_examples": client.max_examples, "client.batch_size": client.batch_size, **_SHARED}
        return {YOGI: FedAvg(rounds=self.recon.rounds, **fields), RECON: self.recon}

    def task(self, *, tuned: bool = False, rebuilt: bool = False) -> Personalised:
        """How people are measured: on the sequences that they are not tuned on."""
        plan = self.recon if rebuilt else self.recon.replace(client={"local": {"steps": 0}})
        return Personalised(
            inner=NextToken(),
            client=plan.client,
            local_parameters=None if rebuilt else "",
            phases=(self.tuning,) if tuned else (),
        )


@cache
def characters() -> Split:
    """Roles as sequences of 80 characters; who is measured is chosen by a public seed."""
    return split_users(open_users(PLAYS, text="characters"), test=0.2, seed=0)


@cache
def words() -> Split:
    """The same roles as sequences of 20 words, with the most frequent words of those to train on as vocabulary."""
    everything = list(dict.fromkeys(tokens_of(PLAYS.read_text())))
    train = split_users(open_users(PLAYS, text="words", vocabulary=everything, length=20), test=0.2, seed=0).train
    ids = np.asarray(train.examples_of(np.arange(len(train)))[0])
    counts = np.bincount(ids[:, 1:].ravel(), minlength=len(everything) + 1)[1 : len(everything) + 1]
    frequent = [everything[place] for place in np.argsort(-counts, kind="stable")[:KNOWN_WORDS]]
    encoded = open_users(PLAYS, text="words", vocabulary=frequent, oov_buckets=BUCKETS, length=20)
    return split_users(encoded, test=0.2, seed=0)


# Settings were chosen on roles of the training part, held out; see README.md.
STUDIES = {
    "": Study(
        dataset="next character of Shakespeare's roles, half of each role's sequences",
        metric="accuracy",
        key="accuracy",
        roles=characters,
        model=lambda size: lstm(vocabulary_size=size, hidden=64, layers=1, user_features=FEATURES),
        recon=FedRecon(
            rounds=100,
            client={
                "at_once": 1,
                "local": {"steps": 20, "epochs": None, "batch_size": 4, "learning_rate": 3.0},
                "batch_size": 4,
                "max_examples": 16,
            },
            **_SHARED,
        ),
        tuning=Phase(records="support", local=None, shared=0.1, batch_size=4, epochs=None, most=80),
    ),
    ", words": Study(
        dataset="next word of Shakespeare's roles, half of each role's sequences",
        metric="accuracy, words of the vocabulary",
        key="accuracy_no_oov_no_eos",
        roles=words,
        model=lambda size: lstm(vocabulary_size=size, embedding_dim=32, hidden=64, layers=1, oov_buckets=BUCKETS),
        recon=FedRecon(
            rounds=150,
            client={
                "at_once": 1,
                "local": {"steps": 1, "epochs": None, "batch_size": 64, "learning_rate": 100.0},
                "batch_size": 16,
                "max_examples": 64,
            },
            **_SHARED,
        ),
        tuning=Phase(records="support", local=None, shared=0.3, batch_size=16, epochs=None, most=320),
        paper={YOGI: 0.243, TUNED: 0.308, RECON: 0.307},
    ),
}
CELLS = {f"{plan}{suffix}": (study, plan) for suffix, study in STUDIES.items() for plan in (YOGI, RECON)}


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """Train one plan with one seed, or go on with it."""
    if (folder / _MEASURED).exists():
        return
    study, plan_name = CELLS[name]
    split, plan = study.roles(), study.plans[plan_name]
    test = split.test.subset(range(6)) if quick else split.test
    if quick:
        plan = dataclasses.replace(plan, rounds=3)
    torch.manual_seed(seed)
    result = dataclasses.replace(plan, seed=seed).fit(
        study.model(split.train.num_classes),
        split.train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        options=RunOptions(checkpoint_every=20),
    )
    cells.refuse_stopped(result.finished)
    if plan_name == YOGI:
        tasks = {YOGI: study.task(), TUNED: study.task(tuned=True)}
    else:
        tasks = {RECON: study.task(rebuilt=True), COMMON: study.task()}
    rows = {row: each.measure(result.model, test, curve=True, device="cpu") for row, each in tasks.items()}
    write_json(folder / _MEASURED, rows)


def print_outside(split: Split) -> None:
    """How many of the words that are read are outside of the vocabulary, and how many of these a role can rebuild."""
    read = outside = rebuilt = 0
    for role in range(len(split.test)):
        sequences = np.asarray(split.test.examples(role)[0])
        support, query = sequences[::2], sequences[1::2]
        rare = query[query >= split.train.num_classes]
        read += np.count_nonzero(query)
        outside += len(rare)
        rebuilt += np.count_nonzero(np.isin(rare, support))
    print(
        f"{outside / read:.1%} of the words read are outside of the vocabulary, {rebuilt / outside:.1%} of them rebuilt"
    )


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Accuracy on sequences of roles that no one trained on; rows that did not run stay as they are."""
    rows = []
    kept = cells.kept_rows(None if quick else FOLDER / "results.json")
    for name, (study, plan) in CELLS.items():
        files = [place(name, seed) / _MEASURED for seed in range(seeds)]
        titles = (YOGI, TUNED) if plan == YOGI else (RECON, COMMON)
        before = [cells.row_before(kept, (study.dataset, title), files) for title in titles]
        if None not in before:
            rows += before
            continue
        measured = [read_json(file) for file in files]
        for row in measured[0]:
            rows.append(
                {
                    "method": row,
                    "dataset": study.dataset,
                    "metric": study.metric,
                    **cells.mean_and_std([each[row][study.key] for each in measured]),
                    "perplexity": cells.mean_and_std([each[row]["perplexity"] for each in measured])["mean"],
                    "seeds": seeds,
                    **dict.fromkeys(("epsilon", "delta", "unit", "noise_multiplier")),
                    "paper": study.paper.get(row),
                }
            )
    if not quick:
        print_outside(words())
    return rows


if __name__ == "__main__":
    cells.main(FOLDER, list(CELLS), cell, table)
