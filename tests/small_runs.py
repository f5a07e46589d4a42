"""What runs in milliseconds: noisy sums, votes, and how runs that stop or are divided compare."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

from sfumato._check import InputError
from sfumato.accounting import Gaussian
from sfumato.data import ExampleDataset, UserDataset, examples_from_arrays, from_arrays
from sfumato.ledger import Budget
from sfumato.runs import Facts, Run
from sfumato.statement import Statement
from sfumato.training import Result

# A run that takes milliseconds: a noisy sum in each round, with metrics, checkpoints, a model and a statement.
#
# It stands for a training wherever the files are what is tested: it goes through `Run` as the loop does.

ROUNDS = 4
EVENT = Gaussian(8.0).poisson(0.1)
FACTS = Facts(
    unit="user", adjacency="add_remove", population=1000, delta=1e-5, sampling="Poisson, rate 0.1", mechanism="sums"
)
PLAN = {"plan": "sums", "rounds": ROUNDS, "seed": None, "about": {}}


def work(
    out: Path,
    *,
    resume: bool = False,
    seed: int | None = None,
    stop: int = ROUNDS,
    every: int = 2,
    budget: Budget | None = None,
    each: Callable[[int, Run], Any] = lambda index, run: None,
) -> Statement:
    """Do the rounds that are left.

    Args:
        out: the run's folder.
        resume: go on with the run in it.
        seed: None draws a key from the operating system.
        stop: end after so many rounds, as if somebody had asked for it.
        every: rounds between checkpoints.
        budget: of the run.
        each: is called before each round.
    """
    with Run.open(out, plan={**PLAN, "seed": seed}, seed=seed, resume=resume, budget=budget) as run:
        index, theta = 0, torch.zeros(3)
        begun = False
        if resume:
            saved = run.saved("the fingerprint")
            begun = bool(saved.state)
            if begun:
                assert run.frozen().keys() == {"frozen"}
                index, theta = saved.state["round"], saved.tensors["theta"]
        run.start("the fingerprint")
        if not begun:
            run.keep_frozen({"frozen": torch.arange(4.0)})
        while index < stop:
            each(index, run)
            run.spend(EVENT, round=index + 1)
            theta = theta + torch.tensor(run.source.stream("noise", index).normal(3), dtype=torch.float32)
            index += 1
            run.note({"round": index, "epsilon": None, "clip_norm": None, "not_private": {"units": index}})
            if index % every == 0 or index == stop:
                run.save({"theta": theta}, {"round": index}, complete=index == ROUNDS)
        return run.finish({"theta": theta}, FACTS, complete=index == ROUNDS)


# Small votes for tests: two blobs for each of three classes, and agents that hold some of each.

CLASSES = 3
CENTRES = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]], np.float32)


def blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points [count, 2] and their classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    return (CENTRES[labels] + 0.5 * rng.standard_normal((count, 2))).astype(np.float32), labels


def agents(count: int = 6, each: int = 9, seed: int = 0) -> UserDataset:
    inputs, labels = blobs(count * each, seed)
    return from_arrays(inputs, labels=labels, users=[f"agent {row // each}" for row in range(count * each)])


def pool(count: int = 40, seed: int = 1) -> ExampleDataset:
    inputs, labels = blobs(count, seed)
    return examples_from_arrays(inputs, labels, num_classes=CLASSES)


def model(seed: int = 0, outputs: int = CLASSES) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(2, outputs)


# What the tests of stopped and divided runs share: a slow network, a worker's end, and how two results compare.


def outcome(fit: Callable[[], Result]) -> int:
    """Run a worker's plan; print one line; return the exit code."""
    try:
        result = fit()
    except InputError as error:
        print(error)
        return 2
    if int(os.environ.get("RANK", "0")) == 0:
        print("finished" if result.finished else f"stopped after {len(result.history)}", flush=True)
    return 0


def assert_equal_up_to_rounding(one: Path, two: Path) -> None:
    """The models of two run folders differ by round-off, and their ledgers hold the same events."""
    ours, theirs = load_file(one / "model.safetensors"), load_file(two / "model.safetensors")
    for name, tensor in ours.items():
        assert_close(theirs[name], tensor, atol=1e-5, rtol=1e-4)
    ledgers = [(folder / "ledger.jsonl").read_text().splitlines() for folder in (one, two)]
    events = [[json.loads(line).get("event") for line in lines] for lines in ledgers]
    assert events[0] == events[1]
