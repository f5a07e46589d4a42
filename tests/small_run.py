"""A run that takes milliseconds: a noisy sum in each round, with metrics, checkpoints, a model and a statement.

It stands for a training wherever the files are what is tested: it goes through `Run` as the loop does.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sfumato.accounting import Gaussian
from sfumato.ledger import Budget
from sfumato.runs import Run
from sfumato.statement import Facts, Statement

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
