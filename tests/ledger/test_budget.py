"""A budget admits exactly what the tightest accountant allows, is written in the ledger, and costs little to ask."""

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from sfumato.accounting import ApproximateDP, Event, Gaussian, InputError, Laplace, NonPrivate, guarantee
from sfumato.accounting.accountants import RdpAccountant
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.ledger.budget import Meter, PlanMeter, meter
from slow import by_profile

STEP = Gaussian(1.0).poisson(0.02)


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def admit_all(asked: Meter, steps: list[Event]) -> int:
    """How many of the steps the meter admits before it refuses one."""
    for done, step in enumerate(steps):
        try:
            asked.admit(step)
        except BudgetExceeded:
            return done
        asked.spend(step)
    return len(steps)


def test_equal_steps_end_exactly_where_the_tightest_accountant_says_and_it_is_asked_rarely() -> None:
    plan = PlanMeter(Budget(epsilon=4.0, delta=1e-5, fixed_plan=True), {})
    done = admit_all(plan, [STEP] * 10_000)
    assert guarantee(STEP * done).epsilon(1e-5) <= 4.0 < guarantee(STEP * (done + 1)).epsilon(1e-5)
    assert guarantee(STEP * done, method="rdp").epsilon(1e-5) > 4.0  # Renyi accounting would have ended earlier
    assert plan.questions <= 40
    assert done > 1000


def test_mixed_steps_end_where_their_composition_says() -> None:
    pattern = [STEP, Gaussian(30.0), STEP, Gaussian(2.0).poisson(0.01)]
    plan = PlanMeter(Budget(epsilon=3.0, delta=1e-6, fixed_plan=True), {})
    done = admit_all(plan, pattern * 500)
    told = [guarantee(sum(pattern * (n // 4) + pattern[: n % 4])).epsilon(1e-6) for n in (done, done + 1)]  # type: ignore[arg-type]
    assert told[0] <= 3.0 < told[1]
    assert plan.questions <= 150


@settings(max_examples=by_profile(40), deadline=None)
@given(
    noises=st.lists(st.floats(0.7, 40.0), min_size=1, max_size=4),
    order=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    epsilon=st.floats(0.05, 8.0),
)
def test_gaussian_steps_are_admitted_while_their_closed_form_is_within_the_budget(noises, order, epsilon) -> None:
    """Balle and Wang 2018, Theorem 8: n Gaussians are one, with mu the root of the sum of 1/z^2."""
    delta = 1e-5

    def excess(mu: float) -> float:
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    plan, squares = meter(Budget(epsilon=epsilon, delta=delta, fixed_plan=True), {}), 0.0
    for index in order:
        noise = noises[index % len(noises)]
        beyond = excess(math.sqrt(squares + noise**-2))
        try:
            plan.admit(Gaussian(noise))
            assert beyond < 1e-9 * delta
        except BudgetExceeded:
            assert beyond > -1e-9 * delta
            return
        plan.spend(Gaussian(noise))
        squares += noise**-2


@pytest.mark.parametrize(
    "budget",
    [
        Budget(epsilon=1.0, delta=1e-6),
        Budget(epsilon=1.0, delta=1e-6, fixed_plan=True),
        Budget(rho=0.1, adjacency="replace"),
    ],
)
def test_remaining_is_exact(tmp_path: Path, budget: Budget) -> None:
    with Ledger.open(tmp_path / "a.jsonl", budget=budget) as ledger:
        ledger.append(Gaussian(9.0))
        left = ledger.remaining(Gaussian(20.0))
        assert left == ledger.remaining(Gaussian(20.0))
        for _ in range(int(left)):
            ledger.append(Gaussian(20.0))
        assert ledger.remaining(Gaussian(20.0)) == 0
        with pytest.raises(BudgetExceeded):
            ledger.append(Gaussian(20.0))
        assert ledger.remaining(STEP * 0) == math.inf
        assert ledger.remaining(NonPrivate()) == 0


def test_a_budget_in_rho_allows_its_share_of_gaussians_and_no_more() -> None:
    assert admit_all(meter(Budget(rho=1.0), {}), [Gaussian(4.0)] * 100) == 32  # 1/32 each
    assert admit_all(meter(Budget(rho=1.0, adjacency="replace"), {}), [Gaussian(4.0)] * 100) == 8
    assert admit_all(meter(Budget(rho=1.0), {}), [Gaussian(4.0).poisson(0.01)] * 100) == 32  # sampling does not help


def test_a_refused_step_leaves_no_trace_and_the_refusal_says_everything(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    ledger = Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-5, fixed_plan=True))
    ledger.append(Gaussian(6.0))
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded) as caught:
        ledger.append(Gaussian(1.0))
    line = str(caught.value)
    spent, after = (guarantee(event).epsilon(1e-5) for event in (Gaussian(6.0), Gaussian(6.0) + Gaussian(1.0)))
    for words in (str(path), "epsilon 1 at delta 1e-05", f"{spent:.6g}", f"{after:.6g}", "replace_budget"):
        assert words in line
    assert "\n" not in line
    assert path.read_bytes() == before
    ledger.append(Gaussian(60.0))
    assert Ledger.verify(path) == 3


def test_a_later_opener_is_held_to_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-5)).close()
    with Ledger.open(path) as ledger, pytest.raises(BudgetExceeded):
        ledger.append(Gaussian(1.0))
    lines = path.read_bytes()
    path.write_bytes(lines.replace(b'"epsilon":1.0', b'"epsilon":9.0'))
    with pytest.raises(InputError, match="line 1: was changed"):
        Ledger.open(path)


def test_a_budget_can_be_tightened_by_opening_and_loosened_only_openly(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-5)).close()
    with Ledger.open(path, budget=Budget(epsilon=0.5, delta=1e-5)) as ledger:
        assert (len(ledger), ledger.totals.releases) == (2, 0)
    before = path.read_bytes()
    looser = (
        Budget(epsilon=1.0, delta=1e-5),
        Budget(epsilon=0.5, delta=1e-4),
        Budget(epsilon=0.1, delta=1e-5, adjacency="replace"),
        Budget(rho=0.001),
        Budget(epsilon=0.1, delta=1e-5, fixed_plan=True),
    )
    for budget in looser:
        with pytest.raises(InputError, match="is not tighter"):
            Ledger.open(path, budget=budget)
    Ledger.open(path, budget=Budget(epsilon=0.5, delta=1e-5)).close()
    assert path.read_bytes() == before
    with Ledger.open(path) as ledger:
        with pytest.raises(InputError, match="needs a reason"):
            ledger.replace_budget(looser[0], reason=" ")
        ledger.replace_budget(looser[0], reason="The board agreed on 1.")
        ledger.append(Gaussian(8.0))
    last = json.loads(path.read_text().splitlines()[2])
    assert (last["budget"]["epsilon"], last["reason"]) == (1.0, "The board agreed on 1.")
    assert path.read_bytes().startswith(before)


def test_a_budget_that_is_spent_already_opens_and_refuses(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append(Gaussian(1.0))
    with Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-5)) as ledger:
        assert ledger.totals.event() == Gaussian(1.0)
        assert ledger.remaining(Gaussian(1000.0)) == 0
        with pytest.raises(BudgetExceeded, match="is spent already"):
            ledger.append(Gaussian(1000.0))


def test_going_back_never_loses_the_budget(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "a.jsonl") as ledger:
        for _ in range(3):
            ledger.append(Gaussian(8.0))
    with Ledger.open(tmp_path / "a.jsonl", budget=Budget(epsilon=4.0, delta=1e-5)) as ledger:
        left = ledger.remaining(Gaussian(8.0))
        ledger.append(Gaussian(8.0))
        ledger.truncate(4)
        assert ledger.remaining(Gaussian(8.0)) == left
        ledger.truncate(2)
        assert ledger.totals.budget == Budget(epsilon=4.0, delta=1e-5)
        assert ledger.remaining(Gaussian(8.0)) == left + 1
        assert (len(ledger), ledger.totals.releases) == (3, 2)


def test_what_no_accountant_knows_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Mystery(Event):
        pass

    for fixed in (False, True):
        asked = meter(Budget(epsilon=1.0, delta=1e-5, fixed_plan=fixed), {})
        with pytest.raises(BudgetExceeded, match=r"cannot be shown to stay within .* Mystery"):
            asked.admit(Mystery())
        asked.admit(Gaussian(10.0))
    assert admit_all(meter(Budget(epsilon=1e6, delta=1e-5), {}), [NonPrivate()]) == 0


def test_a_step_of_a_long_run_costs_far_less_than_a_millisecond(tmp_path: Path) -> None:
    total = guarantee(STEP * 3000).epsilon(1e-5)
    with Ledger.open(tmp_path / "a.jsonl", budget=Budget(epsilon=total, delta=1e-5, fixed_plan=True)) as ledger:
        start = time.process_time()
        for index in range(3000):
            ledger.append(STEP, round=index)
        assert (time.process_time() - start) / 3000 < 1e-3
        assert ledger.remaining(STEP) == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "epsilon and delta, or rho alone"),
        ({"epsilon": 1.0}, "epsilon and delta, or rho alone"),
        ({"epsilon": 1.0, "delta": 1e-5, "rho": 1.0}, "epsilon and delta, or rho alone"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon must be >= 0"),
        ({"epsilon": math.inf, "delta": 1e-5}, "epsilon must be >= 0"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must be in"),
        ({"rho": 1.0, "fixed_plan": True}, "belong to a budget in epsilon"),
        ({"rho": 1.0, "order": 8.0}, "belong to a budget in epsilon"),
        ({"epsilon": 1.0, "delta": 1e-5, "order": 1.0}, "order must be in"),
        ({"epsilon": 1.0, "delta": 1e-5, "order": 8.0, "fixed_plan": True}, "order is for a plan that is not fixed"),
        ({"epsilon": 1.0, "delta": 0.0, "order": 8.0}, "order is for a plan that is not fixed"),
        ({"epsilon": 1.0, "delta": 1e-5, "fixed_plan": "yes"}, "fixed_plan must be one of"),
        ({"rho": math.nan}, "rho must be a number"),
        ({"rho": 1.0, "adjacency": "swap"}, "adjacency must be one of"),
    ],
)
def test_impossible_budgets_are_refused(fields: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Budget(**fields)


def test_asking_without_a_budget_is_refused(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "a.jsonl") as ledger, pytest.raises(InputError, match="has no budget"):
        ledger.remaining(STEP)
    with pytest.raises(InputError, match="budget must be a Budget"):
        Ledger.open(tmp_path / "a.jsonl", budget=1.0)  # type: ignore[arg-type]


def test_costs_add_up_at_one_order_whatever_comes_after_the_first_release() -> None:
    """A filter that took the best order anew for each step would admit steps that no single order allows."""
    budget = Budget(epsilon=2.0, delta=1e-6)
    order = budget.settled(STEP).order
    assert order is not None
    asked = meter(budget, {})
    steps: list[Event] = [STEP, *[Gaussian(12.0)] * 50, *[Gaussian(1.5).poisson(0.1)] * 500]
    done = admit_all(asked, steps)
    at_order = [RdpAccountant(sum(steps[:n]), orders=(order,)).epsilon(1e-6) for n in (done, done + 1)]  # type: ignore[arg-type]
    assert at_order[0] <= 2.0 < at_order[1]
    assert RdpAccountant(sum(steps[: done + 1])).epsilon(1e-6) < 2.0  # type: ignore[arg-type]
    assert asked.spent() == pytest.approx(at_order[0], rel=1e-12)


def test_the_order_is_the_same_after_the_ledger_was_closed(tmp_path: Path) -> None:
    step = Gaussian(1.5).poisson(0.02)
    budget, others = Budget(epsilon=2.0, delta=1e-6), [Gaussian(40.0), step, Gaussian(30.0)]
    with Ledger.open(tmp_path / "a.jsonl", budget=budget) as ledger:
        for other in others:
            ledger.append(other)
        left = ledger.remaining(step)
    with Ledger.open(tmp_path / "a.jsonl") as ledger:
        assert ledger.remaining(step) == left
    assert Ledger.read(tmp_path / "a.jsonl").remaining(step) == left
    suited = Budget(epsilon=2.0, delta=1e-6, order=budget.settled(step).order)
    assert meter(suited, dict.fromkeys(others, 1)).remaining(step) > left  # the order that suits most of the run
    assert Budget.from_json(suited.to_json()) == suited


def test_a_pure_budget_counts_largest_losses_and_a_claim_has_no_renyi_cost() -> None:
    assert admit_all(meter(Budget(epsilon=1.0, delta=0.0), {}), [Laplace(4.0)] * 9) == 4
    assert admit_all(meter(Budget(epsilon=1.0, delta=1e-5), {}), [ApproximateDP(0.01, 1e-9)]) == 0
    plan = Budget(epsilon=1.0, delta=1e-5, fixed_plan=True)
    assert admit_all(meter(plan, {}), [ApproximateDP(0.01, 1e-9)] * 3) == 3
