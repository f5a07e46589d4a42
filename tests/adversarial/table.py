"""Prints, for each way found to break the guarantee, how far one person moved what is released, and what happens now.

`python tests/adversarial/table.py` prints the table, `--update` writes it into docs/explanation/adversarial-review.md.
Movements are in multiples of the clip norm C, with the checks off; the guarantee allows 1.
"""

import argparse
import itertools
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import made_up_patients
from adversarial import specimens, test_coupling, test_released
from adversarial.first_call.specimen import SPECIMENS
from adversarial.first_call.ways import outcome
from adversarial.specimens import (
    COUPLED,
    MIXED,
    SHARED,
    UNCOUPLED,
    UNMEASURED,
    as_data,
    each,
    extreme,
    largest_move,
    numbers,
)
from sfumato import central, data, federated, guard
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central.custom_loop import contribution, dataset
from sfumato.central.examples import ExampleContribution
from sfumato.clipping import Flat
from sfumato.data.split import divide
from sfumato.federated.clients import Clients
from sfumato.federated.contribution import LocalContribution
from sfumato.federated.slots import BatchSlots
from sfumato.guard import Findings, Recheck, SelfCheck
from sfumato.mechanisms import Gaussian
from sfumato.per_example import covered
from sfumato.runs import Run
from sfumato.sampling import Cohort, Poisson
from sfumato.synthesis import EHRSafe
from sfumato.synthesis.gradients import CODEC, CriticGradients
from sfumato.synthesis.networks import Networks
from sfumato.synthesis.records import Records
from sfumato.synthesis.scales import Scales
from sfumato.synthesis.training import gan_optimizer
from sfumato.training import RoundContext, Trainable, loop
from sfumato.training import frozen_features as split_module
from sfumato.training.private_sum import PrivateSum
from sfumato.training.server import Server
from sfumato.voting import run as voting_run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "adversarial-review.md"
BEGIN, END = "<!-- table -->\n", "<!-- /table -->\n"
_LONGEST = 100  # characters of a refusal

Row = tuple[str, str, str, str]


def some(cases: Iterable[Any], every: int) -> Iterator[Any]:
    """The first of so many cases, and of those that follow."""
    return itertools.islice(cases, 0, None, every)


def refusal(run: Callable[[], Any]) -> str:
    """The beginning of the line that a user gets."""
    try:
        run()
    except InputError as error:
        return refused(str(error))
    return "accepted"


def refused(message: str) -> str:
    """The beginning of a refusal."""
    short = re.sub(r"/\S+/", "", message)  # folders
    return f"refused: {short if len(short) <= _LONGEST else short[:_LONGEST].rsplit(' ', 1)[0] + ' …'}"


def times(move: float) -> str:
    """A movement, in clip norms."""
    return f"{move:.2f} C" if move < 10 else f"{move:.1f} C"


def coupled_examples(every: int) -> Iterator[Row]:
    for kind, (build, loss, records) in some(COUPLED.items(), every):
        move = "not measured" if kind in UNMEASURED else times(largest_move(build, loss, extreme(records(), kind)))
        now = refusal(lambda: specimens.PLAN.fit(build(), as_data(records()), loss=loss))  # noqa: B023
        if kind in specimens.PUT_BACK:
            now = f"put back before every micro-batch; moved {times(_move_with_putting_back(build, loss, records()))}"
        yield "A1", kind, move, now
    for kind, (build, loss, records) in some(UNCOUPLED.items(), every):
        specimens.PLAN.fit(build(), as_data(records()), loss=loss)
        yield "A1", kind, "the sibling", f"trains; moved {times(largest_move(build, loss, records()))}"


def _move_with_putting_back(build: Any, loss: Any, records: Any) -> float:
    """How far one example of the first micro-batch moves the sum of a step of `fit`."""
    plan = specimens.PLAN.replace(examples={"micro_batch": 4})
    count = len(records[1])

    def total(units: np.ndarray) -> torch.Tensor:
        contribution = plan.contribution(build(), as_data(records), "cpu", 0, loss=loss)
        source = RandomSource.from_seed(0)
        cohort = plan.cohort.grouping.group(units, 3, source)
        theta = contribution.trained.initial
        return contribution.clipped_sum(RoundContext(theta, cohort, 3, plan.clipping, 1.0, source)).total.clone()

    whole = total(np.arange(count))
    return max(float((whole - total(np.delete(np.arange(count), absent))).norm()) for absent in range(3))


def shared_draws(every: int) -> Iterator[Row]:
    for kind, build in some({**SHARED, **MIXED}.items(), every):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002  # two of them draw from there
        move = largest_move(build, each, numbers(), micro_batch=4 if kind in SHARED else 1 << 20)
        yield "A2", kind, times(move), refusal(lambda: specimens.PLAN.fit(build(), as_data(numbers())))  # noqa: B023


def split(_: int) -> Iterator[Row]:
    """People of unit contributions in random directions; one of them comes or goes, in the middle of all names."""
    people = np.array([f"person {number:03}" for number in range(101)])
    values = np.random.default_rng(0).normal(size=(len(people), 1000))
    values /= np.linalg.norm(values, axis=1, keepdims=True)

    def shuffled(names: np.ndarray) -> np.ndarray:
        return RandomSource.from_seed(0).stream("split", "user").permutation(len(names))[len(names) // 5 :]

    def hashed(names: np.ndarray) -> np.ndarray:
        return divide(len(names), list(names), "user", test=0.2, validation=0, seed=0).parts[0]

    moves = []
    everybody = np.arange(len(people))
    for part in (shuffled, hashed):
        sums = [values[who[part(people[who])]].sum(axis=0) for who in (everybody, np.delete(everybody, 50))]
        moves.append(float(np.linalg.norm(sums[0] - sums[1])))
    yield "A3", "positions shuffled, a fifth for the test", times(moves[0]), f"names hashed; moved {times(moves[1])}"


def without_noise(every: int) -> Iterator[Row]:
    """What forward writes, with the last record and without it."""
    for kind, write in some(test_released.AT_ONCE.items(), every):
        seen = []
        for rows in (slice(None), slice(None, -1)):
            model = test_released.Writer(write)
            model(torch.tensor(test_released.records("dpsgd").inputs[0][rows]))
            tensors = [*model.parameters(), *model.buffers()]
            seen.append(torch.cat([tensor.detach().float().flatten() for tensor in tensors]))
        moved = float((seen[0] - seen[1]).norm())
        move = f"{moved:.2g}, without noise" if moved else "that somebody came, without noise"
        run = lambda: test_released.PLANS["fedavg"].fit(  # noqa: E731
            test_released.Writer(write),  # noqa: B023
            test_released.records("fedavg"),
        )
        yield "A4", kind, move, refusal(run)


def shared_clients(every: int) -> Iterator[Row]:
    """The sum of many small clients that are trained in one batch with a large one, which comes or goes."""
    sizes = np.array([2] * 15 + [30])
    rng, everybody = np.random.default_rng(0), np.arange(len(sizes))
    inputs = rng.normal(size=(sizes.sum(), test_coupling.FEATURES)).astype(np.float32)
    labels = np.arange(len(inputs)) % test_coupling.CLIENT_CLASSES
    users = data.from_arrays(inputs, labels, np.repeat(everybody, sizes))
    plan = test_coupling.CLIENT_PLAN.replace(client={"at_once": len(sizes), "batch_size": 32})
    clip_norm = 1e-3  # below all norms
    for kind, over in some(test_coupling.COUPLED_CLIENTS.items(), every):

        def build(over: Any = over) -> LocalContribution:
            return plan.contribution(test_coupling.Over(over), users, "cpu", 0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Clients, "refuse_shared_batch", lambda _: None)
            contribution = build()
        together = lambda _, clients, __: iter([np.arange(len(clients))])  # noqa: E731  # of any shape
        source, theta, sums = RandomSource.from_seed(0), contribution.trained.initial, []
        for who in (everybody, everybody[:-1]):
            cohort = Cohort.of_single_units(who)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(BatchSlots, "operations", together)
                share = contribution.clipped_sum(RoundContext(theta, cohort, 0, plan.clipping, clip_norm, source))
            sums.append(share.total.clone())
        yield "A5", kind, times(float((sums[0] - sums[1]).norm()) / clip_norm), refusal(build)


def resumed(every: int) -> Iterator[Row]:
    """What is left of two releases under one noise, with the target."""
    for kind, change in some(test_released.CASES, every):
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            given = kind, change, True, 0
            now = refusal(lambda: test_released.means(*given, Path(folder) / "checked", patch))  # noqa: B023
            patch.setattr(loop, "refuse_other", lambda *_, **__: None)
            for contribution in (ExampleContribution, LocalContribution):
                patch.setattr(contribution, "fingerprint", lambda _: "the same")
            one, other = test_released.means(*given, Path(folder) / "unchecked", patch)
        move = float((one - other).norm()) * test_released.COUNT
        yield "A6", f"{change} ({kind})", f"{times(move)}, without noise", now


def another_autoencoder(_: int) -> Iterator[Row]:
    """The first sums of two critics, under the noise of one, of a patient as two autoencoders see that patient.

    Two copies of a run of EHR-Safe that died come to two, which differ by 1 % here; the critic begins as the same.
    """
    plan = EHRSafe(
        epsilon=1.0, horizon=1500.0, batch_size=1, gan_batch_size=1, hidden=8, latent=6, gan_hidden=16, max_visits=50
    ).sized(1)
    records = made_up_patients.records(1, 0)
    seen, moved, keys = Records(records, Scales.fit(records, summed=False)), [], set()
    for share in (0.0, 0.01):
        torch.manual_seed(0)
        networks = Networks(plan, records.schema)
        with torch.no_grad():
            for value in networks.codec.parameters():
                value.add_(share * torch.randn_like(value))
            latents = networks.codec.encode(seen.batch(np.array([0]), seen.draw(0)))
        codec = torch.nn.utils.parameters_to_vector(networks.codec.parameters()).detach()
        given = CriticGradients(
            networks.critic, networks.generator, latents[None], {CODEC: codec}, plan, gan_optimizer(plan), "here"
        )
        cohort, source = Cohort.of_single_units(np.array([0])), RandomSource.from_seed(0)
        share_of = given.clipped_sum(RoundContext(given.trained.initial, cohort, 0, Flat(norm=1.0), 1.0, source))
        moved.append(share_of.total)
        keys.add(_noise_of(given))
    assert len(keys) == 2, "both have one noise"
    move, now = float((moved[0] - moved[1]).norm()), float(moved[0].norm())
    yield (
        "A6",
        "another autoencoder (health records)",
        f"{times(move)}, without noise",
        (f"the critic's noise follows from the autoencoder; moved {times(now)}"),
    )


def _noise_of(given: CriticGradients) -> bytes:
    """The key of the randomness of a loop's rounds."""
    rounds = PrivateSum(
        sampler=Poisson(size=1, population=1),
        bound=Flat(norm=1.0),
        mechanism=Gaussian(noise_multiplier=1.0),
        rounds=1,
    )
    seen: list[bytes] = []
    with Run.open(None, plan={"plan": "table"}, seed=0) as run, pytest.MonkeyPatch.context() as patch:
        run.start("here")
        whole = given.clipped_sum
        patch.setattr(given, "clipped_sum", lambda context: seen.append(context.source.key) or whole(context))
        theta = given.trained.initial.clone()
        server = Server(gan_optimizer(EHRSafe().sized(1)), given.trained.views(theta))
        loop.Loop(private_sum=rounds, contribution=given, server=server, theta=theta, run=run, phase="gan").rounds(
            loop.Cadence()
        )
    return seen[0]


REMEMBERED = {
    "B1": (
        ("forward: mean of the first call in class attribute", ("fit", "loop", "fedavg", "fedrecon", "frozen")),
        ("forward: mean of the first call in lru_cache", ("fit", "fedavg")),
        ("forward: mean of the first call in file", ("fit", "fedavg")),
        ("forward: mean of the first call number 60", ("fit",)),
        ("forward hook: mean of the first call", ("fit", "loop")),
        ("fake quantisation: scale of the first call", ("fit", "fedavg")),
        ("loss: class counts of the first batch in closure", ("fit", "loop")),
        ("loop: mean of the first batch in a variable", ("loop", "lightning")),
        ("loop: mean of the first batch that is no trial", ("loop",)),
        ("loop: level of earlier losses", ("loop",)),
        ("loop: mean of the step before", ("loop",)),
        ("collate: mean of the first call in closure", ("loop",)),
        ("transform: the first record in file", ("loop",)),
        ("data set: the first record in itself", ("loop", "lightning")),
        ("clients: a list that all instances share", ("fedavg", "fedavg at once", "fedrecon at once")),
    ),
    "B2": (
        ("clients: a list that all instances share", ("votes",)),
        ("clients: a count in the class", ("votes",)),
        ("forward: mean of the first call with gradients", ("votes",)),
        ("forward: mean of the first call number 30", ("neighbours",)),
    ),
    "B3": (
        ("forward: coupled at every seventh call", ("fit", "votes")),
        ("loop: contrastive loss at every third step", ("loop",)),
        ("loop: coupled after 130 steps", ("loop",)),
        ("loop: coupled in the last step", ("loop",)),
        ("loop: FixMatch's mask.sum()", ("loop",)),
    ),
}
"""What code remembers of units, and what it does at some steps only: specimens, each with ways to train."""


def remembered(every: int) -> Iterator[Row]:
    cases = [(item, name, way) for item, its in REMEMBERED.items() for name, ways in its for way in ways]
    for item, name, way in some(cases, every):
        with unchecked():
            move = outcome(SPECIMENS[name], way).moved
        found = outcome(SPECIMENS[name], way)
        if found.refusal is None:
            now = f"placeholders are the first that go through; moved {times(found.moved)}"
        else:
            now = refused(found.refusal)
        yield item, f"{name} ({way})", times(move) if move > 1.001 else "not measured", now


@contextmanager
def unchecked() -> Iterator[None]:
    """Nothing that a user's code remembers is looked for, and no batch is tried; what is put back is put back."""
    nothing = Findings(fresh=True, placeholders=True)
    with pytest.MonkeyPatch.context() as patch:
        for module in (guard, guard.examples, federated.contribution, dataset, split_module, voting_run):
            patch.setattr(module, "try_out", lambda *_, **__: nothing)
        patch.setattr(dataset, "histories", lambda *_: None)
        for module in (central.gradients, contribution, federated.contribution):
            patch.setattr(module, "due", lambda *_, **__: False)
        patch.setattr(voting_run, "histories", lambda *_: None)
        patch.setattr(
            central.examples,
            "self_check",
            lambda model, *_, **__: SelfCheck(covered(model), [], 0.0, findings=nothing),
        )
        patch.setattr(Recheck, "at_start", lambda *_: None)
        patch.setattr(contribution.CustomContribution, "_refuse_at_other_steps", lambda *_: None)
        patch.setattr(Trainable, "refuse_changed", lambda *_: None)
        yield


def table(*, every: int = 1) -> str:
    """As Markdown; of each part one row in so many."""
    lines = ["| | specimen | one person moved | now |", "|---|---|---|---|"]
    parts = (
        coupled_examples,
        shared_draws,
        split,
        without_noise,
        shared_clients,
        resumed,
        another_autoencoder,
        remembered,
    )
    for part in parts:
        lines += [f"| {' | '.join(word.replace('|', '/') for word in row)} |" for row in part(every)]
    return "\n".join(lines) + "\n"


def shown() -> str:
    """The table of the page."""
    return PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip("\n") + "\n"


def main() -> None:
    """Print it, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the table into the page")
    torch.set_num_threads(1)
    if not parser.parse_args().update:
        print(table(), end="")
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
