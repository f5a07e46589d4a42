"""The loop inside of a run: streams, phases around it, and what the contribution adds after the noise."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.clipping import AdaptiveClipNorm, ClippedSum, ConstantClipNorm, QuantileRule
from sfumato.ledger import Ledger
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.runs import Run
from sfumato.sampling import OwnClients, PoissonSampling
from sfumato.statement import Facts
from sfumato.training import Cadence, Contribution, Loop, Optimizer, PrivateSum, Server, Trainable

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

    def clipped_sum(self, theta, cohort, round, bound, clip_norm, source, out):
        share = ClippedSum(bound, clip_norm, self.trained.layout, out=out)
        share.add_rows(self._rows[cohort.units])
        return share

    def after_noise(self, mean, round, source) -> None:
        mean += self._added

    def fingerprint(self) -> str:
        return "rows"


def rounds_of(mechanism, **changes) -> PrivateSum:
    parts = {
        "sampler": PoissonSampling(sampling_rate=0.3, population=UNITS),
        "grouping": OwnClients(clients=6),
        "bound": ConstantClipNorm(clip_norm=1.0),
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
    return (lambda: IndependentGaussian(noise_multiplier=1.0)) if request.param == "independent" else drifting


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
            rounds_of(IndependentGaussian(noise_multiplier=1.0)),
            votes=True,
            dies_at=dies_at,
            seed=None,
        )
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for name in ("one", "two", "two"):  # and a run that is finished stays as it is
        go(tmp_path / name, rounds_of(IndependentGaussian(noise_multiplier=1.0)), votes=True, resume=True, seed=None)
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
    [ConstantClipNorm(clip_norm=1.0), AdaptiveClipNorm(initial=1.0, rule=QuantileRule(quantile=0.5, rounds=3))],
    ids=["flat", "adaptive"],
)
def test_independent_rounds_are_a_line_each_and_what_ran_is_what_the_sum_says(tmp_path, bound):
    private_sum = rounds_of(IndependentGaussian(noise_multiplier=1.0), bound=bound)
    go(tmp_path / "run", private_sum)
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert ledger.event("") == private_sum.event(ROUNDS)
    assert ledger.releases == ROUNDS + 1  # the histogram comes first


def test_what_follows_from_the_noisy_mean_is_added_to_it(tmp_path):
    quiet = rounds_of(IndependentGaussian(noise_multiplier=1.0), rounds=1)
    plain, shifted = (go(None, quiet, added=added)[0] for added in (0.0, 2.0))
    torch.testing.assert_close(plain - shifted, torch.full((6,), 2.0))


def test_a_round_is_the_clipped_sum_of_the_cohort_and_noise_over_the_planned_number():
    """Written out by hand for one round."""
    private_sum = rounds_of(IndependentGaussian(noise_multiplier=1.0), rounds=1)
    theta, _, run = go(None, private_sum)
    rows = Rows()._rows[private_sum.sampler.draw(UNITS, 0, run.source)].double()
    clipped = (rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0)).sum(dim=0)
    noise = torch.from_numpy(run.source.stream("noise", 0).normal(6))
    torch.testing.assert_close(theta.double(), -(clipped + noise) / 6, rtol=1e-3, atol=1e-5)


def test_one_run_does_not_hold_two_loops_which_would_share_their_noise():
    contribution = Rows()
    theta = contribution.trained.initial.clone()
    server = Server(Optimizer(learning_rate=1.0), contribution.trained.views(theta))
    parts = rounds_of(IndependentGaussian(noise_multiplier=1.0))
    with Run.open(None, plan={"plan": "rows"}) as run:
        Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run, phase="first")
        for phase in ("first", None):
            with pytest.raises(InputError, match="one run holds one loop"):
                Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run, phase=phase)
    with Run.open(None, plan={"plan": "rows"}) as run:
        Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run)
        with pytest.raises(InputError, match="one run holds one loop"):
            Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run, phase="second")


def test_loops_of_two_phases_draw_cohorts_and_noise_of_their_own():
    """They begin alike, so that nothing but the phase tells them apart; what the first adds, the second must not."""
    parts, found = rounds_of(IndependentGaussian(noise_multiplier=1.0), rounds=3), []
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
        parts = rounds_of(IndependentGaussian(noise_multiplier=1.0))
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
