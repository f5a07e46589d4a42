"""The loop inside of a run: streams, phases, the private sum and its cost, and what it shows while it goes on."""

import math
import time
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato import accounting as acc
from sfumato import data
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.clipping import Adaptive, Automatic, Flat, PerLayer
from sfumato.federated import FedAvg
from sfumato.ledger import Ledger
from sfumato.mechanisms import Gaussian
from sfumato.runs import Facts, Run
from sfumato.sampling import FixedSize, Poisson
from sfumato.training import Cadence, Contribution, Loop, Optimizer, PrivateSum, Server, Trainable
from sfumato.training.monitoring import (
    CostSoFar,
    Display,
    Watch,
    before_rounds,
    columns,
    marked,
    trouble,
    who_took_part,
)

# A mechanism whose rounds share noise, so that they cost something together only.


class Drifting:
    """The noise of a round is a part of what was drawn so far: one Gaussian release of the whole run."""

    stream: ClassVar[bool] = True
    noise_multiplier = multiplier = 1.5

    def __init__(self) -> None:
        self.drawn: torch.Tensor | None = None

    def noise_std(self, scale: float) -> float:
        return self.noise_multiplier * scale

    def release(self, total, *, scale, round, source):
        fresh = torch.from_numpy(source.stream("noise", round).normal(total.numel()))
        self.drawn = fresh if self.drawn is None else 0.5 * self.drawn + fresh
        return total.add_(self.drawn, alpha=self.noise_std(scale))

    def event(self, moved, sampler, rounds):
        if sampler.adjacency == "replace":
            raise ValueError("nothing is proven for this sampler")
        return acc.Gaussian(self.noise_multiplier / (moved * math.sqrt(rounds)))

    def restarts(self, round):
        return False

    def describe(self) -> str:
        return "drifting sums"

    def state(self):
        return {} if self.drawn is None else {"drawn": self.drawn}

    def load(self, state) -> None:
        self.drawn = state.get("drawn")


@pytest.fixture
def drifting() -> type[Drifting]:
    return Drifting


# The loop inside of a run: streams, phases, the private sum and its cost, and what it shows while it goes on.

# The loop inside of a run: streams, phases, the private sum and its cost, and optimizers by name.


# The loop inside of a run: streams, phases around it, and what the contribution adds after the noise.
ROUNDS, UNITS = 6, 20
FILES = ("ledger.jsonl", "statement.json", "model.safetensors")
FACTS = Facts(
    unit="user",
    adjacency="add_remove",
    population=UNITS,
    delta=1e-3,
    sampling="Poisson",
    mechanism="a histogram, a loop and votes",
)


class Killed(BaseException):
    """What a process does not survive."""


class Rows(Contribution):
    """Every unit contributes a row of its own."""

    population = UNITS

    def __init__(self, added: float = 0.0) -> None:
        self.trained = Trainable(nn.Linear(3, 2, bias=False).requires_grad_())
        self.trained.initial.zero_()
        self._rows = torch.from_numpy(np.random.default_rng(0).normal(size=(UNITS, 6)).astype(np.float32))
        self._added = added

    def clipped_sum(self, context):
        share = context.new_sum(self.trained.layout)
        share.add_rows(self._rows[context.cohort.units])
        return share

    def after_noise(self, mean, round, source) -> None:
        mean += self._added

    def fingerprint(self) -> str:
        return "rows"


def rounds_of(mechanism, **changes) -> PrivateSum:
    parts = {
        "sampler": Poisson(size=round(0.3 * UNITS), population=UNITS),
        "bound": Flat(norm=1.0),
        "mechanism": mechanism,
        "rounds": ROUNDS,
    }
    return PrivateSum(**{**parts, **changes})


def go(out: Path | None, private_sum: PrivateSum, *, resume=False, dies_at=None, votes=False, added=0.0, seed=1):
    """A histogram, the loop, and votes if wished; dies before a round, or after the votes, on request."""
    contribution = Rows(added)
    theta = contribution.trained.initial.clone()
    server = Server(Optimizer(learning_rate=1.0, momentum=0.5), contribution.trained.views(theta))
    with Run.open(out, plan={"plan": "rows"}, seed=seed, resume=resume) as run:
        loop = Loop(private_sum=private_sum, contribution=contribution, server=server, theta=theta, run=run)
        if resume:
            loop.resume(run.saved("rows"))
        run.start("rows")
        released = run.release(
            "histogram", acc.Laplace(2.0), lambda source: {"n": torch.from_numpy(source.stream("n").normal(3))}
        )

        def show(row) -> None:
            if dies_at == row["round"]:
                raise Killed

        loop.rounds(
            Cadence(checkpoint_every=2),
            epsilon_so_far=lambda _: None,
            evaluate=None,
            show=show,
        )
        if votes:

            def draw(source) -> dict[str, torch.Tensor]:
                if dies_at == "within the votes":
                    raise Killed
                return {"v": torch.from_numpy(source.stream("v").normal(3))}

            released |= run.release("votes", acc.Gaussian(4.0), draw)
            if dies_at == "votes":
                raise Killed
        statement = run.finish({"theta": theta, **released}, FACTS)
        return theta, statement, run


def assert_same(one: Path, other: Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


MECHANISMS = ["independent", "a stream"]


@pytest.fixture
def mechanism(request, drifting):
    """A new one each time: a stream has a state of its own."""
    return (lambda: Gaussian(noise_multiplier=1.0)) if request.param == "independent" else drifting


@pytest.mark.parametrize("mechanism", MECHANISMS, indirect=True)
@pytest.mark.parametrize("dies_at", [1, 3, 5, "within the votes", "votes"])
def test_killed_in_the_loop_or_between_phases_and_resumed_it_is_the_same_run(tmp_path, mechanism, dies_at):
    go(tmp_path / "whole", rounds_of(mechanism()), votes=True)
    with pytest.raises(Killed):
        go(tmp_path / "killed", rounds_of(mechanism()), votes=True, dies_at=dies_at)
    go(tmp_path / "killed", rounds_of(mechanism()), votes=True, resume=True)
    assert_same(tmp_path / "whole", tmp_path / "killed")
    assert Ledger.read(tmp_path / "killed" / "ledger.jsonl").phases() == ("histogram", "", "votes")


@pytest.mark.parametrize("dies_at", [3, "within the votes", "votes"])
def test_a_released_run_that_was_killed_after_its_loop_draws_its_votes_from_the_same_key(tmp_path, dies_at):
    import shutil

    with pytest.raises(Killed):
        go(
            tmp_path / "one",
            rounds_of(Gaussian(noise_multiplier=1.0)),
            votes=True,
            dies_at=dies_at,
            seed=None,
        )
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for name in ("one", "two", "two"):  # and a run that is finished stays as it is
        go(tmp_path / name, rounds_of(Gaussian(noise_multiplier=1.0)), votes=True, resume=True, seed=None)
    assert_same(tmp_path / "one", tmp_path / "two")


def test_a_stream_is_one_line_of_the_ledger_which_is_there_before_the_first_release(tmp_path, drifting):
    private_sum = rounds_of(drifting())
    with pytest.raises(Killed):
        go(tmp_path / "run", private_sum, dies_at=1)
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert ledger.event("") == private_sum.event(ROUNDS) == acc.Gaussian(1.5 / ROUNDS**0.5)
    go(tmp_path / "run", rounds_of(drifting()), resume=True)
    assert Ledger.read(tmp_path / "run" / "ledger.jsonl").event("") == private_sum.event(ROUNDS)


@pytest.mark.parametrize(
    "bound",
    [Flat(norm=1.0), Adaptive(norm=1.0, quantile=0.5, adapted_rounds=3)],
    ids=["flat", "adaptive"],
)
def test_independent_rounds_are_a_line_each_and_what_ran_is_what_the_sum_says(tmp_path, bound):
    private_sum = rounds_of(Gaussian(noise_multiplier=1.0), bound=bound)
    go(tmp_path / "run", private_sum)
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert ledger.event("") == private_sum.event(ROUNDS)
    assert ledger.releases == ROUNDS + 1  # the histogram comes first


def test_what_follows_from_the_noisy_mean_is_added_to_it(tmp_path):
    quiet = rounds_of(Gaussian(noise_multiplier=1.0), rounds=1)
    plain, shifted = (go(None, quiet, added=added)[0] for added in (0.0, 2.0))
    torch.testing.assert_close(plain - shifted, torch.full((6,), 2.0))


def test_a_round_is_the_clipped_sum_of_the_cohort_and_noise_over_the_planned_number():
    """Written out by hand for one round."""
    private_sum = rounds_of(Gaussian(noise_multiplier=1.0), rounds=1)
    theta, _, run = go(None, private_sum)
    rows = Rows()._rows[private_sum.sampler.draw(UNITS, 0, run.source)].double()
    clipped = (rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0)).sum(dim=0)
    noise = torch.from_numpy(run.source.stream("noise", 0).normal(6))
    torch.testing.assert_close(theta.double(), -(clipped + noise) / 6, rtol=1e-3, atol=1e-5)


def test_one_run_does_not_hold_two_loops_which_would_share_their_noise():
    contribution = Rows()
    theta = contribution.trained.initial.clone()
    server = Server(Optimizer(learning_rate=1.0), contribution.trained.views(theta))
    parts = rounds_of(Gaussian(noise_multiplier=1.0))
    with Run.open(None, plan={"plan": "rows"}) as run:
        Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run, phase="first")
        for phase in ("first", None):
            with pytest.raises(InputError, match="a phase holds one loop"):
                Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run, phase=phase)
    with Run.open(None, plan={"plan": "rows"}) as run:
        Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run)
        with pytest.raises(InputError, match="a phase holds one loop"):
            Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run, phase="second")


def test_loops_of_two_phases_draw_cohorts_and_noise_of_their_own():
    """They begin alike, so that nothing but the phase tells them apart; what the first adds, the second must not."""
    parts, found = rounds_of(Gaussian(noise_multiplier=1.0), rounds=3), []
    with Run.open(None, plan={"plan": "rows"}, seed=1) as run:
        for phase in ("first", "second"):
            contribution = Rows()
            theta = contribution.trained.initial.clone()
            server = Server(Optimizer(learning_rate=1.0), contribution.trained.views(theta))
            loop = Loop(
                private_sum=parts,
                contribution=contribution,
                server=server,
                theta=theta,
                run=run,
                phase=phase,
                last=False,
            )
            loop.rounds(Cadence())
            found.append((theta.clone(), parts.sampler.draw(UNITS, 0, loop._source).tolist()))
        spent = run.spent()
    assert found[0][1] != found[1][1]
    assert (found[0][0] - found[1][0]).abs().min() > 1e-3
    assert spent == parts.event(3) * 2


def test_votes_after_a_loop_that_was_stopped_stay_paid_and_stay_as_they_were(tmp_path):
    """The loop goes on later, and the votes of a better model would meet the same noise."""

    def part(*, stop: bool) -> torch.Tensor:
        contribution = Rows()
        theta = contribution.trained.initial.clone()
        server = Server(Optimizer(learning_rate=1.0), contribution.trained.views(theta))
        parts = rounds_of(Gaussian(noise_multiplier=1.0))
        with Run.open(tmp_path / "run", plan={"plan": "rows"}, resume=not stop) as run:
            loop = Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run)
            if not stop:
                loop.resume(run.saved("rows"))
            run.start("rows")
            run._interrupt.asked = stop
            loop.rounds(Cadence(checkpoint_every=2))
            votes = run.release(
                "votes", acc.Gaussian(4.0), lambda source: {"v": theta + torch.from_numpy(source.stream("v").normal(6))}
            )
            run.finish({"theta": theta, **votes}, FACTS, complete=loop.finished)
        return votes["v"]

    first, then = part(stop=True), part(stop=False)
    assert torch.equal(first, then)
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert ledger.event("votes") == acc.Gaussian(4.0)
    assert ledger.releases == ROUNDS + 1


# The private sum: what is recorded round by round, what a whole run costs, and what runs are one and the same.
POISSON = Poisson(size=10, population=100)
FIXED = FixedSize(size=10, population=100)
GROUPED = [kind(size=5, users_per_client=2, population=100) for kind in (Poisson, FixedSize)]


def private_sum(**changes) -> PrivateSum:
    parts = {
        "sampler": POISSON,
        "bound": Flat(norm=1.0),
        "mechanism": Gaussian(noise_multiplier=1.1),
        "rounds": 6,
    }
    return PrivateSum(**{**parts, **changes})


def adaptive(**changes) -> Adaptive:
    return Adaptive(norm=1.0, quantile=0.5, **changes)


BOUNDS = {
    "flat": Flat(norm=0.3),
    "per layer": PerLayer(norm=0.3),
    "automatic": Automatic(norm=0.3),
    "adaptive": adaptive(count_noise=0.8),
    "adaptive for four rounds": adaptive(adapted_rounds=4),
}


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize(
    "sampler", [POISSON, FIXED, *GROUPED], ids=["poisson", "fixed", "poisson, virtual", "fixed, virtual"]
)
@pytest.mark.parametrize("noise", [0.0, 1.1])
def test_entries_of_independent_rounds_compose_to_the_event_of_the_run(bound, sampler, noise):
    rounds = private_sum(bound=bound, sampler=sampler, mechanism=Gaussian(noise_multiplier=noise))
    for count in (1, 4, 6):
        spent: dict[acc.Event, int] = {}
        for index in range(count):
            entry = rounds.entry(index)
            assert entry is not None
            spent[entry] = spent.get(entry, 0) + 1
        assert acc.compose(spent) == rounds.event(count)


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize(
    ("sampler", "single"),
    [
        (POISSON, acc.Gaussian(1.1)),
        (GROUPED[0], acc.Gaussian(0.55)),
        (FIXED, acc.Gaussian(1.1)),  # accountants double it for "replace" themselves
        (GROUPED[1], acc.Gaussian(1.1)),
    ],
    ids=["own, poisson", "virtual, poisson", "own, fixed", "virtual, fixed"],
)
def test_a_round_costs_its_multiplier_whatever_the_bound_and_whether_a_count_shares_it(bound, sampler, single):
    rounds = private_sum(bound=bound, sampler=sampler)
    expected = acc.guarantee(sampler.account(single), sampler.adjacency).epsilon(1e-6)
    assert acc.guarantee(rounds.entry(0), sampler.adjacency).epsilon(1e-6) == pytest.approx(expected, rel=1e-6)


@given(noise=st.floats(0.2, 5.0), count_noise=st.floats(0.6, 20.0))
def test_sum_and_count_together_are_one_gaussian_of_the_rounds_multiplier(noise, count_noise):
    """Andrew et al. 2021, Theorem 1, with independent arithmetic: multipliers add up as inverse squares."""
    if count_noise <= 0.5 * noise * 1.01:
        return
    rounds = private_sum(bound=adaptive(count_noise=count_noise), mechanism=Gaussian(noise_multiplier=noise))
    on_sum, on_count = rounds.sum_mechanism(0).noise_multiplier, rounds.count_mechanism().noise_multiplier
    assert on_count == pytest.approx(2 * count_noise)
    assert on_sum**-2 + on_count**-2 == pytest.approx(noise**-2)
    assert on_sum > noise


def test_a_round_after_the_last_count_gives_all_of_its_budget_to_the_sum():
    rounds = private_sum(bound=adaptive(adapted_rounds=2))
    assert [rounds.counts(index) for index in range(4)] == [True, True, False, False]
    assert rounds.sum_mechanism(1).noise_multiplier > 1.1
    assert rounds.sum_mechanism(2) == rounds.mechanism
    assert "count_noise_std" in rounds.record(1, 1.0)
    assert "count_noise_std" not in rounds.record(2, 1.0)


def test_what_the_ledger_keeps_next_to_the_event_follows_from_the_parts():
    rounds = private_sum(sampler=GROUPED[0], bound=BOUNDS["per layer"])
    assert rounds.record(3, 0.3) == {
        "round": 4,
        "clip_norm": 0.3,
        "sensitivity": pytest.approx(0.6),
        "noise_std": pytest.approx(0.33),
        "denominator": 5,
    }
    plain = private_sum(bound=Flat(norm=None), mechanism=Gaussian(noise_multiplier=0.0))
    assert (plain.record(0, None)["sensitivity"], plain.record(0, None)["noise_std"]) == (None, 0.0)


def test_a_contributor_costs_half_of_what_a_user_in_a_virtual_client_costs():
    rounds = private_sum(sampler=GROUPED[0])
    assert rounds.contributor_event(6) == acc.Gaussian(1.1).poisson(0.1) * 6
    assert rounds.event(6) == acc.Gaussian(0.55).poisson(0.1) * 6


def test_a_stream_is_recorded_whole_before_its_first_release_and_costs_that_whenever_it_stops(drifting):
    rounds = private_sum(mechanism=drifting())
    assert rounds.entry(0) == acc.Gaussian(1.5 / 6**0.5)
    assert [rounds.entry(index) for index in range(1, 6)] == [None] * 5
    assert [rounds.event(count) for count in (1, 3, 6)] == [rounds.entry(0)] * 3


def test_noise_that_rounds_share_cannot_be_shared_with_a_count(drifting):
    with pytest.raises(
        InputError,
        match=r"accounted round by round, and a run with .* and drifting sums is not; use clipping=flat",
    ):
        private_sum(mechanism=drifting(), bound=adaptive())


def test_a_sampler_that_nothing_is_proven_for_is_refused_when_the_parts_meet(drifting):
    with pytest.raises(ValueError, match="nothing is proven"):
        private_sum(mechanism=drifting(), sampler=FIXED)


def test_noise_without_a_bound_is_no_private_sum():
    with pytest.raises(InputError, match="needs clipping: noise on an unbounded sum gives no guarantee"):
        private_sum(bound=Flat(norm=None))


def test_a_count_that_leaves_nothing_for_the_sum_is_no_private_sum():
    with pytest.raises(InputError, match=r"count_noise 0\.5 leaves nothing"):
        private_sum(bound=adaptive(count_noise=0.5))


# Optimisers by name: torch's own, with torch's own settings where the plan gives none.
GRADIENTS = [torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]), torch.tensor([-1.0, 0.1])]
TORCH = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.8),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.8),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "adam": lambda p: torch.optim.Adam(p, 0.1, betas=(0.8, 0.999)),
    "adamw": lambda p: torch.optim.AdamW(p, 0.1, betas=(0.8, 0.999), weight_decay=0.0),
    "nadam": lambda p: torch.optim.NAdam(p, 0.1, betas=(0.8, 0.999)),
}


def after(make) -> torch.Tensor:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = make([parameter])
    for gradient in GRADIENTS:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("name", TORCH)
def test_each_name_is_torchs_optimiser_with_its_own_settings(name):
    ours = Optimizer(name=name, learning_rate=0.1, momentum=0.8)
    assert torch.equal(after(ours), after(TORCH[name]))
    mine, theirs = ours([nn.Parameter(torch.zeros(1))]).defaults, TORCH[name]([nn.Parameter(torch.zeros(1))]).defaults
    assert mine == theirs


@pytest.mark.parametrize("name", TORCH)
def test_weight_decay_reaches_every_optimiser(name):
    decayed = Optimizer(name=name, learning_rate=0.1, weight_decay=0.5)
    assert decayed([nn.Parameter(torch.zeros(1))]).defaults["weight_decay"] == 0.5
    assert not torch.equal(after(decayed), after(Optimizer(name=name, learning_rate=0.1)))


def test_yogi_is_that_of_the_paper():
    weight, first, second = np.array([1.0, 2.0]), np.zeros(2), np.full(2, 1e-6)
    for gradient in np.array(torch.stack(GRADIENTS), np.float64):
        first = 0.8 * first + 0.2 * gradient
        second = second - 0.001 * gradient**2 * np.sign(second - gradient**2)
        weight = weight - 0.1 * first / (np.sqrt(second) + 1e-3)
    found = after(Optimizer(name="yogi", learning_rate=0.1, momentum=0.8))
    np.testing.assert_allclose(found, weight, rtol=1e-5)
    assert not torch.equal(found, after(Optimizer(name="yogi", learning_rate=0.1, momentum=0.8, weight_decay=0.5)))


def test_nesterov_looks_ahead_and_needs_a_momentum():
    ahead = Optimizer(name="sgd", learning_rate=0.1, momentum=0.8, nesterov=True)
    assert torch.equal(after(ahead), after(lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, nesterov=True)))
    for wrong in ({"momentum": 0.0}, {"name": "adam", "momentum": 0.9}):
        with pytest.raises(InputError, match="nesterov needs the optimiser sgd and a momentum"):
            Optimizer(nesterov=True, **wrong)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "lion"}, "optimizer must be one of sgd, adam, adamw, nadam, adagrad, rmsprop, yogi, got lion"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"learning_rate": 1e300}, "learning_rate must be in"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"weight_decay": -1.0}, "weight_decay must be >= 0"),
    ],
)
def test_numbers_that_cannot_be_right_are_refused(change, named):
    with pytest.raises(InputError, match=named):
        Optimizer(**change)


@pytest.mark.parametrize("name", ["adam", "adamw", "nadam"])
def test_a_rate_whose_first_step_is_no_single_precision_number_is_refused(name):
    with pytest.raises(InputError, match=r"learning_rate must be in \[0, 3e\+37\], got 1e\+38"):
        Optimizer(name=name, learning_rate=1e38, momentum=0.9)
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    Optimizer(name=name, learning_rate=2.9e37, momentum=0.9)([parameter]).step()  # torch raises where it is too large
    assert parameter.item() != 0


# What a run shows while it goes on: its cost so far, its measures, and that it learns nothing.


# ε while a run goes on: an upper bound by the accountants of the statement, never above that of the whole run.
DELTA = 1e-5


def noisy_rounds(mechanism, rounds: int) -> PrivateSum:
    return PrivateSum(
        sampler=Poisson(size=10, population=200),
        bound=Flat(norm=1.0),
        mechanism=mechanism,
        rounds=rounds,
    )


@pytest.mark.parametrize("rounds", [5, 300, 2000])
def test_what_is_reported_rises_to_what_was_planned_and_covers_each_round(rounds):
    parts = noisy_rounds(Gaussian(noise_multiplier=1.0), rounds)
    cost = CostSoFar(parts, DELTA)
    told = [cost.after(n) for n in range(1, rounds + 1)]
    assert told == sorted(told)
    assert told[-1] == cost.planned
    whole = acc.guarantee(parts.event(rounds), adjacency="add_remove").epsilon(DELTA)
    assert whole <= cost.planned <= whole * (1 + 1e-6)
    for n in {1, rounds // 3, rounds // 2, rounds - 1} - {0}:
        exact = acc.guarantee(parts.event(n), adjacency="add_remove").epsilon(DELTA)
        assert exact * (1 - 1e-3) <= told[n - 1] <= 1.02 * exact
    assert len(set(told)) <= 128 + 64 * max(0, rounds.bit_length() - 7)


def test_what_was_released_before_counts():
    parts, before = noisy_rounds(Gaussian(noise_multiplier=1.0), 20), acc.Gaussian(2.0)
    alone, together = CostSoFar(parts, DELTA), CostSoFar(parts, DELTA, before)
    assert together.after(1) > max(alone.after(1), acc.guarantee(before).epsilon(DELTA))
    assert together.planned > alone.planned
    spent = before + parts.event(7)
    assert before_rounds(spent, parts, 7) == before
    assert before_rounds(parts.event(7), parts, 7) is None
    assert before_rounds(before, parts, 0) == before


def test_a_stream_costs_what_all_of_it_costs_from_its_first_round_on(drifting):
    parts = noisy_rounds(drifting(), 6)
    cost = CostSoFar(parts, DELTA)
    assert cost.after(1) <= cost.after(6) == cost.planned


def test_without_noise_there_is_nothing_to_report():
    cost = CostSoFar(noisy_rounds(Gaussian(noise_multiplier=0.0), 6), DELTA)
    assert cost.planned is None
    assert cost.after(3) is None


def test_the_rounds_of_a_calibrated_plan_never_pass_its_budget():
    plan = FedAvg(rounds=30, cohort=8).calibrate(epsilon=8.0, delta=1e-4, population=64)
    cost = CostSoFar(plan.private_sum(64), 1e-4)
    assert cost.planned <= 8.0 + 1e-7
    assert max(cost.after(n) for n in range(1, 31)) <= cost.planned


def test_the_bar_shows_both(capsys):
    with Display(10, 0, visible=True, planned=8.0) as display:
        display.show({"round": 3, "epsilon": 3.1, "not_private": {"loss": 1.0}})
        (task,) = display._progress.tasks
        assert task.description.startswith("ε 3.1 of 8 ")


# What a run shows while it goes on, where no terminal watches.
ROW = {"round": 3, "epsilon": 1.23456, "not_private": {"loss": 0.5}}


def test_a_long_run_reports_round_epsilon_rate_and_time_left_also_within_a_round(capsys: pytest.CaptureFixture[str]):
    with Display(10, 1, visible=True, every=0.05, planned=3.0) as display:
        display.show(ROW)
        time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("sfumato: round 3 of 10 · ε 1.24 of 3 · loss 0.5 (private) · ") for line in lines)
    assert all("rounds/s · 0 min" in line and line.endswith("left") for line in lines)


def test_before_the_first_round_nothing_is_said_of_the_time(capsys: pytest.CaptureFixture[str]):
    with Display(10, 0, visible=True, every=0.05):
        time.sleep(0.2)
    assert capsys.readouterr().err.splitlines()[0] == "sfumato: round 0 of 10"


@pytest.mark.parametrize(("visible", "every"), [(True, 30.0), (False, 0.01)])
def test_a_short_run_and_one_that_no_one_watches_print_no_line(
    capsys: pytest.CaptureFixture[str], visible: bool, every: float
):
    with Display(10, 0, visible=visible, every=every) as display:
        display.show(ROW)
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_nothing_is_printed_after_ctrl_c(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(KeyboardInterrupt), Display(10, 0, visible=True, every=0.05):
        raise KeyboardInterrupt
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


# People who took part are measured only where a task asks for it, and which of them follows from their number.
class Asks:
    monitors_training_users = True


def people(count: int, value: float = 0.0) -> data.UserDataset:
    return data.from_arrays(np.full((count, 1), value), labels=np.zeros(count, int), users=np.arange(100, 100 + count))


@pytest.mark.parametrize(("took_part", "tested", "count"), [(100, 7, 7), (5, 9, 5), (9, 9, 9), (10, 1, 1)])
def test_at_most_as_many_as_are_tested_at_even_distances(took_part, tested, count):
    chosen = who_took_part(Asks(), people(took_part), people(tested))
    places = [int(name) - 100 for name in chosen.user_ids]
    assert len(places) == count
    assert set(np.diff(places)) <= {took_part // count, -(-took_part // count)}


def test_who_is_chosen_does_not_depend_on_what_they_hold():
    one, other = (who_took_part(Asks(), people(50, value), people(7)) for value in (0.0, 9.0))
    assert list(one.user_ids) == list(other.user_ids)


def test_no_one_is_measured_for_a_task_that_does_not_ask_or_without_a_test():
    assert who_took_part(object(), people(5), people(5)) is None
    assert who_took_part(Asks(), people(5), None) is None


def test_the_row_says_that_it_is_private():
    assert marked({"rmse": 1.0}, people(3)) == {
        "not_private": "measured without noise on people who took part", "users": 3, "rmse": 1.0,
    }  # fmt: skip


# A run that learns nothing says so while it runs and in its result.
FEATURES, CLASSES = 6, 3


def users() -> data.UserDataset:
    inputs = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
    return data.from_arrays(inputs, np.arange(24) % CLASSES, np.arange(24) // 4)


def fit(learning_rate: float, rounds: int = 6):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    fields = {"cohort.size": 4, "client.batch_size": 2, "noise.noise_multiplier": 0.5, "seed": 1}
    plan = FedAvg(rounds=rounds, client={"learning_rate": learning_rate}, **fields)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = plan.fit(model, users())
    return result, [str(each.message) for each in caught if "costs privacy and teaches nothing" in str(each.message)]


def test_a_run_that_diverges_is_reported_once_while_it_runs_and_in_its_result():
    result, told = fit(1e30)
    assert len(told) == 1
    assert told[0].startswith("round 3: ")
    assert "\n" not in told[0]
    assert result.trouble.startswith("The model learned nothing: ")


def test_a_run_that_does_not_is_reported_nothing():
    result, told = fit(0.01)
    assert told == []
    assert result.trouble == ""


def row(number: int, *, loss: float | None = 1.0, units: int = 4, broken: int = 0):
    return {"round": number, "not_private": {"loss": loss, "units": units, "non_finite": broken}}


def test_each_run_of_broken_rounds_is_reported_once():
    watch = Watch()
    broken = [3, 4, 5, 6, 7, 12, 13, 14, 15]
    told = [number for number in range(1, 17) if watch.add(row(number, loss=None if number in broken else 1.0))]
    assert told == [5, 14]


def test_two_broken_rounds_and_rounds_without_anybody_are_no_divergence():
    watch = Watch()
    assert not any(watch.add(row(n, loss=None, units=0)) for n in range(1, 9))
    assert not any(Watch().add(row(n, loss=None if n in (4, 5) else 1.0)) for n in range(1, 9))


def test_contributions_that_count_as_zero_are_reported_once():
    watch, broken = Watch(), {3: 1, 4: 1, 9: 1}
    told = {n: line for n in range(1, 12) if (line := watch.add(row(n, units=8, broken=broken.get(n, 0))))}
    assert list(told) == [3]
    assert told[3].startswith("round 3: 1 of 8 contributions were not finite and counted as zero; ")


def test_a_divergence_is_reported_in_one_line_with_its_zeros():
    watch = Watch()
    told = [line for n in range(1, 5) if (line := watch.add(row(n, loss=None, broken=4 if n > 2 else 0)))]
    assert len(told) == 1
    assert "teaches nothing" in told[0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["input", "loss"])
def test_a_run_of_dpsgd_reports_of_one_wild_record_while_it_runs(where, wrong):
    inputs = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
    inputs[7, 0] = wrong if where == "input" else 1e3

    def loss(scores, labels):
        found = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
        return found * torch.where(scores.detach().abs().amax(dim=1) > 50, wrong, 1.0) if where == "loss" else found

    torch.manual_seed(0)
    plan = DPSGD(steps=4, cohort=24, noise=1.0, server={"learning_rate": 1e-3}, seed=1)
    records = data.examples_from_arrays(inputs, np.arange(24) % CLASSES, num_classes=CLASSES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = plan.fit(nn.Linear(FEATURES, CLASSES), records, loss=loss)
    told = [str(each.message) for each in caught if "counted as zero" in str(each.message)]
    assert [line.partition(";")[0] for line in told] == [
        "round 1: 1 of 24 contributions were not finite and counted as zero"
    ]
    assert [each["not_private"]["non_finite"] for each in result.history] == [1] * 4


@pytest.mark.parametrize(("broken", "told"), [(1, False), (2, True), (4, True)])
def test_half_of_the_contributions_are_a_divergence(broken, told):
    watch = Watch()
    found = [watch.add(row(n, broken=broken)) for n in range(1, 5)]
    assert any("teaches nothing" in line for line in found) == told
    assert bool(trouble(columns([row(n, broken=broken) for n in range(1, 5)]), None)) == told


def test_a_model_that_ranks_better_brought_something_where_its_accuracy_stays():
    def of(accuracy, auc):
        return {"accuracy": accuracy, "auc": auc}

    assert trouble(None, {"untrained": of(0.9, 0.53), "trained": of(0.9, 0.75)}) == ""
    assert "brought nothing" in trouble(None, {"untrained": of(0.9, 0.53), "trained": of(0.9, 0.5)})
