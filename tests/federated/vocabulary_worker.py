"""A small run that counts its vocabulary first: vocabulary_worker.py OUT [--resume] [--die WHEN] [--noise Z] …"""

import argparse
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resumable import outcome
from sfumato import data, models
from sfumato.federated import FedAvg, PrivateVocabulary
from sfumato.runs import Run
from sfumato.training import Cadence, Callback

USERS, LENGTH, DELTA = 120, 5, 1e-3
COMMON = ("the", "sea", "is", "calm")
RULE = PrivateVocabulary(noise_multiplier=2.0, words_per_user=16)


def posts(path: Path, *, own: str = "own") -> Path:
    """Texts in which each user holds the common words, half of them "sail", and everybody a word of their own."""
    rows = [
        {"user": f"u{i:03d}", "text": f"{' '.join(COMMON)}{' sail' * (i % 2)} {own}{i:03d}"}
        for i in range(USERS)
        for _ in range(1 + i % 3)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


class WithFrozen(nn.Module):
    """A language model with tensors that are not trained: one as long as the vocabulary, one that is given."""

    def __init__(self, size: int, given: float, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.inner = models.lstm(vocabulary_size=size, embedding_dim=4, hidden=6, layers=1)
        self.register_buffer("prior", torch.linspace(0.0, 1.0, size))
        self.register_buffer("given", torch.tensor(given))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scale * self.inner(tokens) + self.prior * self.given


def network(users: data.UserDataset, *, given: float = 0.5, scale: float = 1.0) -> nn.Module:
    """For any vocabulary."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return WithFrozen(users.num_classes, given, scale)


def plan(**changes: object) -> FedAvg:
    """A plan of a few rounds."""
    fields = {"loss": "next_token", "rounds": 6, "clients_per_round": 10, "noise_multiplier": 1.0, "delta": DELTA}
    return FedAvg(**{**fields, "learning_rate": 1.0, "momentum": 0.0, "seed": 3, **changes})


class Dying(Callback):
    """Kills the process after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, row: dict) -> None:
        if row["round"] == self.rounds:
            os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Run as the arguments say; print one line; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--die", default="", help="before or after the words are kept, or a number of rounds")
    parser.add_argument("--noise", type=float, default=RULE.noise_multiplier)
    parser.add_argument("--own", default="own")
    parser.add_argument("--given", type=float, default=0.5, help="a tensor of the model that is not trained")
    parser.add_argument("--scale", type=float, default=1.0, help="of the model's outputs")
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.die in ("before", "after"):
        die_at_release(kept=options.die == "after")
    callbacks = [Dying(int(options.die))] if options.die.isdigit() else []
    rank = os.environ.get("RANK", "0")
    texts = data.uncounted_texts(posts(options.out.with_suffix(f".{rank}.jsonl"), own=options.own), length=LENGTH)
    parts = data.split_users(texts.blank, test=0.2)
    rule = PrivateVocabulary(noise_multiplier=options.noise, words_per_user=RULE.words_per_user)
    return outcome(
        lambda: plan(seed=options.seed if options.seed >= 0 else None).fit(
            partial(network, given=options.given, scale=options.scale),
            parts.train,
            test=parts.test,
            opening=rule.opening(texts),
            out=options.out,
            resume=options.resume,
            cadence=Cadence(checkpoint_every=2),
            callbacks=callbacks,
        )
    )


def die_at_release(*, kept: bool) -> None:
    """End this process where the vocabulary is drawn: before its checkpoint has it, or just after."""
    release, save = Run.release, Run.save

    def dying(run: Run, *arguments: object, **more: object) -> object:
        if not kept:
            Run.save = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        release(run, *arguments, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    Run.release, Run.save = dying, save


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
