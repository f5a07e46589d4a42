"""The public ways in which a user's code gets to train, each with what it releases recorded without noise.

`outcome` trains with and without one unit, on the same weights in every step: the optimiser records the sums and walks
on a way of its own. What the two trainings have recorded may differ by the sensitivity that the plan accounts for.

`python tests/adversarial/first_call/ways.py` prints a table of all specimens.
"""

import argparse
import functools
import logging
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from adversarial.first_call import loops, models  # noqa: F401  # they register specimens
from adversarial.first_call.specimen import FEATURES, SPECIMENS, Code, Specimen, Turn
from adversarial.specimens import CLASSES
from fitting import fit_plan
from sfumato import data
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.federated import FedAvg, FedEmb, FedRecon, FedSGD
from sfumato.training import RunOptions
from sfumato.voting import AEDPFL, KNNDPFL, ClearTally

COUNT, USERS, EACH, AGENTS = 24, 10, 4, 8
EXTREME = 20.0  # what the unit that is compared is multiplied with
RATE, CLIP, DELTA = 0.1, 0.01, 1e-5


@dataclass(kw_only=True)
class Setting:
    """How a specimen is trained.

    Attributes:
        there: whether the unit that is compared takes part; its records are the first ones.
        optimizer: makes the one that takes the steps, from the parameters.
        epsilon: of the run, by which its noise is calibrated; None for no noise.
        seed: of the run.
        units: how many there are with the one that is compared; of examples and users.
        exchange: a user that is not there is replaced by one with other records, so that the others keep their
            positions, from which their random numbers follow.
        sums: where ballots are added up.
        answers: where the released noisy counts of a vote go; none where its noise is not calibrated.
    """

    there: bool
    optimizer: Callable[[Iterable[Any]], torch.optim.Optimizer]
    epsilon: float | None = None
    seed: int = 0
    units: int | None = None
    exchange: bool = False
    sums: list[Tensor] = field(default_factory=list)
    answers: list[Tensor] = field(default_factory=list)


def inputs(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, FEATURES)).astype(np.float32), np.arange(count) % CLASSES


def examples(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Records of which the first is extreme, with it or without; its class is rare among the first ones."""
    values, labels = inputs(setting.units or COUNT)
    values[0] *= EXTREME
    labels[:8] = [2, 0, 0, 0, 1, 0, 1, 0]
    return values[not setting.there :], labels[not setting.there :]


def users(setting: Setting, count: int) -> data.UserDataset:
    """Users of one size; the first one is extreme, or is not there, or has fewer and usual records instead."""
    values, labels = inputs(count * EACH)
    owners = np.repeat([f"user {number:03}" for number in range(count)], EACH)
    if setting.there:
        values[:EACH] *= EXTREME
    first = 0 if setting.there else EACH // 2 if setting.exchange else EACH
    return data.from_arrays(values[first:], labels[first:], owners[first:])


class Recorder(torch.optim.SGD):
    """Records the gradients that it is given, as far as its rate says, and lets the weights grow."""

    def __init__(self, parameters: Iterable[Any], seen: list[Tensor], units: int, grows: float) -> None:
        super().__init__(parameters, lr=RATE)
        self._seen, self._units, self._grows = seen, units, grows

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        found = []
        for group in self.param_groups:
            for parameter in group["params"]:
                found.append(parameter.grad.flatten() * (group["lr"] / RATE * self._units))
                parameter.mul_(self._grows)
        self._seen.append(torch.cat(found).double())


Run = Callable[[Specimen, Code, Setting], nn.Module]
"""Trains; gives the released model."""


def dpsgd(specimen: Specimen, setting: Setting) -> DPSGD:
    count = setting.units or COUNT
    plan = DPSGD(
        steps=specimen.steps,
        cohort=count,
        population=count,
        examples={"micro_batch": specimen.micro_batch or count},
        clipping=CLIP,
        noise=0.0,
        seed=setting.seed,
    )
    return _calibrated(plan, setting, count)


def _calibrated(plan: Any, setting: Setting, count: int) -> Any:
    if setting.epsilon is None:
        return plan
    return plan.calibrate(epsilon=setting.epsilon, delta=DELTA, population=count)


def fit(specimen: Specimen, code: Code, setting: Setting, **options: Any) -> nn.Module:
    values, labels = examples(setting)
    records = data.examples_from_arrays(values, labels, num_classes=CLASSES)
    plan = dpsgd(specimen, setting)
    return fit_plan(
        plan, code.model, records, loss=code.loss, options=RunOptions(optimizer=setting.optimizer), **options
    ).model


def frozen(specimen: Specimen, code: Code, setting: Setting) -> nn.Module:
    """The user's module is frozen, and what it gives is kept."""
    torch.manual_seed(1)
    model = nn.Sequential(code.model.requires_grad_(False), nn.Linear(CLASSES, CLASSES))
    with tempfile.TemporaryDirectory() as folder:
        return fit(specimen, replace(code, model=model), setting, prefix_cache=Path(folder) / "cache")


def _dataset(code: Code, setting: Setting) -> Any:
    return code.dataset(*map(torch.from_numpy, examples(setting)))


def loop(specimen: Specimen, code: Code, setting: Setting) -> nn.Module:
    model = code.model
    optimizer = setting.optimizer(model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, code.rate)
    options = {"collate": code.collate, "keep": {"scheduler": scheduler}}
    with dpsgd(specimen, setting).open(model, optimizer, _dataset(code, setting), **options) as private:
        for step in private.steps():
            for index, batch in enumerate(step):
                turn = Turn(
                    private=private,
                    model=model,
                    loss=code.loss,
                    optimizer=optimizer,
                    scheduler=scheduler,
                    index=index,
                )
                private.backward(code.body(turn, batch))
            scheduler.step()
    return model


def lightning(specimen: Specimen, code: Code, setting: Setting) -> nn.Module:
    from lightning.pytorch import Trainer

    from sfumato.integrations import PrivateModule

    class Module(PrivateModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = code.model

        def losses(self, batch: Any, index: int) -> Tensor:
            turn = Turn(
                private=self.private,
                model=self.net,
                loss=code.loss,
                optimizer=optimizer,
                scheduler=None,
                index=index,
            )
            return code.body(turn, batch)

        def configure_optimizers(self) -> Any:
            return optimizer

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    optimizer = setting.optimizer(code.model.parameters())
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(max_epochs=-1, logger=False, accelerator="cpu", **quiet)
    Module().fit(trainer, dpsgd(specimen, setting), _dataset(code, setting), collate=code.collate)
    return code.model


class WithOwn(nn.Module):
    """The user's module and a part that never leaves a client."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.own = inner, nn.Parameter(torch.zeros(CLASSES))

    def forward(self, values: Tensor) -> Tensor:
        return self.inner(values) + self.own


_RECON: dict[str, Any] = {
    "client.loss": "cross_entropy",
    "client.local.parameters": "own",
    "client.local.support_order": "first",
}
PLANS: dict[str, Callable[..., Any]] = {
    "fedavg": lambda **fields: FedAvg(client={"batch_size": None, "learning_rate": 0.5}, **fields),
    "fedavg at once": lambda **fields: FedAvg(
        client={"batch_size": None, "learning_rate": 0.5, "at_once": 4}, **fields
    ),
    "fedsgd": FedSGD,
    "fedemb": lambda **fields: FedEmb(client={"batch_size": 2}, cohort={"users_per_client": 1}, **fields),
    "fedrecon": lambda **fields: FedRecon(client={"batch_size": 2, "at_once": 1}, **_RECON, **fields),
    "fedrecon at once": lambda **fields: FedRecon(client={"batch_size": 2, "at_once": 4}, **_RECON, **fields),
}


def federated(way: str) -> Run:
    def run(specimen: Specimen, code: Code, setting: Setting) -> nn.Module:
        count = setting.units or USERS
        plan = PLANS[way](
            rounds=specimen.steps,
            population=count,
            clipping=CLIP,
            noise=0.0,
            **{"cohort.size": count},
            seed=setting.seed,
        )
        model = WithOwn(code.model) if way.startswith("fedrecon") else code.model
        plan = _calibrated(plan, setting, count)
        return plan.fit(model, users(setting, count), options=RunOptions(optimizer=setting.optimizer)).model

    return run


class Ballots(ClearTally):
    """Keeps the sum of the ballots, for each query, and in how many units a ballot is counted."""

    def __init__(self, sums: list[Tensor]) -> None:
        self._sums, self.units = sums, 1

    def open(self, question: Any, ballots: Any, *, source: Any, token: str) -> Any:
        cast, self.units = list(ballots), question.units
        self._sums += torch.from_numpy(sum(ballot for _, ballot in cast)).double() / question.units
        return super().open(question, cast, source=source, token=token)


def votes(usual: Any) -> Run:
    def run(specimen: Specimen, code: Code, setting: Setting) -> nn.Module:
        plan = usual
        pool = data.examples_from_arrays(*inputs(12, seed=1), num_classes=CLASSES)
        module = code.model.requires_grad_(plan.name == "ae_dpfl")
        ballots = Ballots(setting.sums)
        if setting.epsilon is not None:  # noisy counts cost what the winners cost, and say more
            plan = _calibrated(replace(plan, seed=setting.seed, opens="counts"), setting, AGENTS)
        found = plan.fit(users(setting, AGENTS), pool, module, tally=ballots, threads=1)
        if setting.epsilon is not None:
            setting.answers.append(torch.from_numpy(found.answers.counts).double() / ballots.units)
        return module

    return run


WAYS: dict[str, Run] = {
    "fit": fit,
    "frozen": frozen,
    "loop": loop,
    "lightning": lightning,
    **{way: federated(way) for way in PLANS},
    "votes": votes(
        AEDPFL(queries=12, noise_std=1.0, training={"epochs": 4, "learning_rate": 0.5, "batch_size": 4}, seed=3)
    ),
    "neighbours": votes(KNNDPFL(queries=12, noise_std=1.0, neighbours=2, level="agent", few_records="share", seed=3)),
}


EXCHANGED = ("fedemb",)
"""Where a client's head is drawn by its position, so that one that is absent would change the draws of others."""


def sensitivity(way: str) -> float:
    """How far the unit that is compared may move a recorded sum."""
    if way in ("votes", "neighbours"):
        return 1.0
    return 2 * CLIP if way in EXCHANGED else CLIP


def units(way: str) -> int:
    """By which means were divided."""
    return USERS if way in PLANS else COUNT


@dataclass(frozen=True)
class Outcome:
    """What became of a specimen.

    Attributes:
        refusal: the message of an InputError; None where it was accepted.
        error: of another kind, which no user should see.
        steps: that were released before it was refused.
        moved: the most that a released sum was moved, in multiples of the plan's sensitivity.
        warned: that losses have changed (the loss drift check).
    """

    refusal: str | None
    error: str | None
    steps: int
    moved: float
    warned: bool

    @property
    def kept(self) -> bool:
        """Whether the bound was kept by all that was released."""
        return self.moved <= 1 + 1e-3

    def word(self) -> str:
        """In few words, for a table."""
        moved = f"{self.moved:.2f}"
        if self.error is not None:
            return f"error: {self.error[:70]}"
        if self.refusal is not None and not self.steps:
            return "refused"
        if self.refusal is not None:
            return f"stopped after {self.steps} steps, moved {moved}"
        return f"accepted, moved {moved}" + (", warned" if self.warned else "")


def outcome(specimen: Specimen, way: str) -> Outcome:
    """Train with and without a unit."""
    sums: list[list[Tensor]] = [[], []]
    refusals: list[str] = []
    errors: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for there in (0, 1):
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            torch.manual_seed(0)
            recorder = functools.partial(Recorder, seen=sums[there], units=units(way), grows=specimen.grows)
            exchange = way in EXCHANGED
            setting = Setting(there=bool(there), optimizer=recorder, exchange=exchange, sums=sums[there])
            try:
                WAYS[way](specimen, specimen.build(), setting)
            except InputError as error:
                refusals.append(str(error))
                if not sums[there]:  # nothing was released
                    break
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}".splitlines()[0])
    compared = zip(*sums, strict=False) if specimen.measured else ()
    moved = max((float((one - other).norm()) / sensitivity(way) for one, other in compared), default=0.0)
    return Outcome(
        refusal=refusals[0] if refusals else None,
        error=errors[0] if errors else None,
        steps=min(map(len, sums)),
        moved=moved,
        warned=any("other losses or gradients" in str(each.message) for each in caught),
    )


CASES = [(name, way) for name, specimen in SPECIMENS.items() for way in specimen.ways]


def main() -> None:
    """Print what becomes of all specimens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of a specimen's name")
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--messages", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| specimen | way | expected | outcome | right | s |\n| --- | --- | --- | --- | --- | --- |")
    for name, way in CASES:
        if options.only not in name or way not in options.ways:
            continue
        specimen, started = SPECIMENS[name], time.monotonic()
        found = outcome(specimen, way)
        print(
            f"| {name} | {way} | {specimen.expected} | {found.word()} | {'yes' if right(specimen, found) else 'NO'} | "
            f"{time.monotonic() - started:.2f} |" + (f" {found.refusal}" if options.messages and found.refusal else ""),
            flush=True,
        )


def right(specimen: Specimen, found: Outcome) -> bool:
    """Whether the outcome is as it has to be."""
    if found.error is not None:
        return False
    if specimen.expected == "harmless":
        return found.refusal is None and found.kept
    return found.refusal is not None or found.kept


if __name__ == "__main__":
    main()
