"""What a round does is what its entry in the ledger says: noise, denominator, cohort, cost."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from contract.battery import (
    SOURCE,
    assert_an_empty_cohort_steps,
    clipped_sum,
    composed,
    event_of,
    ledger_of,
    run_rounds,
)
from contract.specimen import UNITS, network
from contract.specimens import CORRELATED, LIMITABLE, NAMES, PRIVATE, ROUNDS, SPECIMENS, fit, plan_of
from contract.test_bounds import CLIPPINGS, LIMITED, SAMPLINGS
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import Gaussian, guarantee
from sfumato.ledger import Budget, BudgetExceeded
from sfumato.report import summary
from sfumato.report.run_record import read_run
from sfumato.sampling import VirtualClients
from sfumato.training import Callback, RunOptions, Stop
from slow import one_in, slow_but

pytestmark = pytest.mark.fresh

ADAPTIVE_ONLY = {"adaptive": {"clipping.adapted_rounds": 2}}


def parts_and_contribution(name, **changes):
    plan = plan_of(name, **SPECIMENS[name].bare, **changes)
    contribution = plan.contribution(network(), SPECIMENS[name].records(), "cpu", 0)
    return plan.private_sum(contribution.population), contribution


@pytest.mark.parametrize(("name", "sampling", "clipping"), one_in(3, PRIVATE, SAMPLINGS, CLIPPINGS))
def test_an_empty_cohort_releases_the_stated_noise_and_steps(name, sampling, clipping, tmp_path):
    z, clip_norm, count_noise = 0.8, 0.5, 1.5
    parts, contribution = parts_and_contribution(
        name,
        cohort=sampling,
        clipping=clipping,
        **{"noise.noise_multiplier": z, "clipping.norm": clip_norm},
        **({"clipping.count_noise": count_noise} if clipping == "adaptive" else {}),
    )
    left = z if clipping != "adaptive" else (z**-2 - (2 * count_noise) ** -2) ** -0.5  # the count takes its part
    assert_an_empty_cohort_steps(contribution, parts, tmp_path / "run", left * clip_norm)


@pytest.mark.parametrize("name", NAMES)
def test_the_sum_is_divided_by_the_planned_number(name, tmp_path):
    quiet = {"noise.noise_multiplier": 1e-9} if name in PRIVATE else {}
    parts, contribution = parts_and_contribution(name, rounds=1, **quiet)
    planned = parts.grouping.clients
    cohorts = (cohort_of(parts, contribution, seed) for seed in range(50))
    seed = next((seed for seed, cohort in enumerate(cohorts) if 0 < len(cohort) != planned), 0)
    done = run_rounds(contribution, replace(parts, rounds=1), tmp_path / "run", seed=seed)
    assert done.rows[0]["not_private"]["units"] != planned  # another divisor would show
    expected = clipped_sum(contribution, parts, cohort_of(parts, contribution, seed), seed=seed).total.numpy() / planned
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(done.moved, expected, atol=1e-6)
    assert done.entries[0]["denominator"] == planned


def cohort_of(parts, contribution, seed):
    """Who contributes in round 0."""
    source = RandomSource.from_seed(seed)
    return parts.grouping.group(parts.sampler.draw(contribution.population, 0, source), 0, source)


class Watched:
    """Notes who is drawn, and contributes nothing."""

    def __init__(self, contribution, population):
        self._contribution, self.population, self.drawn = contribution, population, []

    def __getattr__(self, name):
        return getattr(self._contribution, name)

    def clipped_sum(self, context):
        self.drawn.append(np.sort(context.cohort.units))
        return context.new_sum(self.trained.layout)


@pytest.mark.parametrize(("name", "sampling"), one_in(2, PRIVATE, SAMPLINGS))
def test_the_sampling_that_is_accounted_is_the_sampling_that_ran(name, sampling, tmp_path):
    """Counts of draws, in all and unit by unit; two-sided at a level of 1e-6 each, and the seed is fixed."""
    population, cohort, rounds, z = 2000, 500, 40, 0.8
    fields = {"units": cohort, "rounds": rounds, "cohort": sampling, "population": population}
    fields |= SPECIMENS[name].bare
    plan, watched = plan_of(name, **fields), []

    def contribution(*arguments):
        watched.append(Watched(plan.contribution(*arguments), population))
        return watched[0]

    folder = fit(name, tmp_path / "run", contribution=contribution, **{"noise.noise_multiplier": z, **fields}).folder
    entries, drawn = ledger_of(folder), watched[0].drawn
    own = not isinstance(plan.cohort.grouping, VirtualClients)
    gaussian = Gaussian(z / (1 if own or sampling == "fixed_size" else 2))  # an exchange is doubled by the accountant
    assert {event_of(entry) for entry in entries} == {plan.sampler(population).account(gaussian)}
    assert len(drawn) == len(entries) == rounds
    rate = event_of(entries[0]).sampling_rate
    assert rate == pytest.approx(cohort / population, rel=1e-12)
    assert all(len(np.unique(units)) == len(units) for units in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=population)
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], rounds * population, rate)
    assert low <= counts.sum() <= high
    spread = ((counts - rounds * rate) ** 2).sum() / (rounds * rate * (1 - rate))
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], population)
    assert low < spread < high


@pytest.mark.parametrize(("name", "sampling"), one_in(3, LIMITABLE, LIMITED))
def test_the_limits_that_are_accounted_are_those_that_ran(name, sampling, tmp_path):
    """Every unit's rounds, over the whole run, are a pattern that the accounted limits allow."""
    population, rounds = 400, 30
    fields = {"units": 40, "rounds": rounds, "cohort": sampling, "population": population}
    if sampling == "min_separation":
        fields |= {"cohort.min_separation": 5, "cohort.max_participations": 4}
        fields |= {"cohort.availability": 0.7, "cohort.drop_out": 0.2}
    plan, watched = plan_of(name, **fields), []

    def contribution(*arguments):
        watched.append(Watched(plan.contribution(*arguments), population))
        return watched[0]

    folder = fit(name, tmp_path / "run", contribution=contribution, **fields).folder
    parts = plan.private_sum(population)
    assert [event_of(entry) for entry in ledger_of(folder)] == [parts.event(rounds)]  # once, and whole
    limits = parts.sampler.participation(rounds)
    if sampling == "min_separation":
        assert (limits.min_separation, limits.max_participations) == (5, 4)
    patterns = [[] for _ in range(population)]
    for round, units in enumerate(watched[0].drawn):
        for unit in units.tolist():
            patterns[unit].append(round)
    assert len(watched[0].drawn) == rounds
    assert max(map(len, patterns)) > 1
    assert all(limits.allows(pattern) for pattern in patterns)


@pytest.mark.parametrize("sampling", LIMITED)
def test_a_count_next_to_the_sum_is_refused_where_the_run_is_accounted_as_a_whole(sampling):
    with pytest.raises(InputError, match="adaptive clipping is accounted round by round"):
        plan_of("fedavg", cohort=sampling, clipping="adaptive").private_sum(UNITS)


@pytest.mark.parametrize("name", CORRELATED)
def test_a_run_of_shared_noise_costs_the_same_whenever_it_stops(name, fitted):
    result, parts = fitted(name), plan_of(name).private_sum(UNITS)
    entries = ledger_of(result.folder)
    assert [event_of(entry) for entry in entries] == [parts.event(1)] == [parts.event(parts.rounds)]
    cost = guarantee(parts.event(1), adjacency=parts.sampler.adjacency)
    assert result.statement.epsilon == cost.epsilon(result.statement.delta)
    assert result.statement.adjacency == ("add_remove" if name.endswith("cyclic") else "zero_out")
    assert all(row["epsilon"] >= result.statement.epsilon for row in result.history if "epsilon" in row)
    assert read_run(result.folder).finished


def test_a_run_of_shared_noise_that_was_stopped_says_so_and_has_cost_the_whole(tmp_path):
    def stop_in_the_third_round(*_):
        rounds.append(0)
        if len(rounds) == 3:
            raise Stop

    rounds, plan = [], plan_of("fedavg+tree")
    stopping = Callback()
    stopping.on_round = stop_in_the_third_round
    out = tmp_path / "run"
    result = plan.fit(network(), SPECIMENS["fedavg"].records(), out=out, options=RunOptions(callbacks=[stopping]))
    record = read_run(out)
    assert (record.ledger.rounds, record.rounds_planned, record.finished) == (3, ROUNDS, False)
    assert summary(out)[0].startswith("Stopped after 3 of 5 rounds")
    whole = guarantee(plan.private_sum(UNITS).event(ROUNDS), adjacency="zero_out")
    assert result.statement.epsilon == whole.epsilon(result.statement.delta)
    assert (
        "The run was stopped after 3 of 5 rounds. The cost is that of all planned rounds."
        in result.statement.assumptions
    )


@pytest.mark.parametrize("name", PRIVATE)
def test_one_coin_depends_on_no_one_else(name):
    """Under Poisson sampling, the others are drawn alike with a unit and without it."""
    sampler = plan_of(name).sampler(UNITS)
    for round in range(20):
        with_it, without = (sampler.draw(present, round, SOURCE) for present in (UNITS, UNITS - 1))
        assert with_it[with_it < UNITS - 1].tolist() == without.tolist()


def runs(names, samplings=SAMPLINGS, clippings=CLIPPINGS):
    """Names with the changes of a plan that decide what a round costs."""
    private = [
        (
            name,
            {
                "cohort": sampling,
                "clipping": clipping,
                **({"clipping.adapted_rounds": 2} if clipping == "adaptive" else {}),
            },
        )
        for name in PRIVATE
        for sampling in samplings
        for clipping in clippings
        if clipping in ("flat", "adaptive")  # the others cost what the flat one costs, as the next test says
    ]
    return [*((name, {}) for name in names if name not in PRIVATE), *private]


@pytest.mark.parametrize(("name", "changes"), slow_but(runs(NAMES), *runs(NAMES)[::3]), ids=str)
def test_the_ledger_adds_up_to_the_cost_that_is_stated(name, changes, fitted):
    result = fitted(name, **changes)
    plan, entries, statement = plan_of(name, **changes), ledger_of(result.folder), result.statement
    parts = plan.private_sum(UNITS)
    assert composed(entries) == parts.event(len(entries)) == parts.event(parts.rounds)
    for rounds in range(1, len(entries)):
        assert composed(entries[:rounds]) == parts.event(rounds)
    cost = guarantee(composed(entries), adjacency=parts.sampler.adjacency)
    assert statement.adjacency == parts.sampler.adjacency
    low, high = cost.epsilon_interval(statement.delta)
    can_happen = not parts.mechanism.stream or parts.sampler.reaches_limits
    attained = low > 0 and can_happen and not isinstance(parts.grouping, VirtualClients)
    assert (statement.epsilon_lower, statement.epsilon) == (low if attained else None, high)
    assert math.isfinite(statement.epsilon) == (name in PRIVATE)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", PRIVATE)
def test_a_bound_costs_what_its_sensitivity_costs_and_no_less(name, sampling):
    """Each way of clipping to C with the same noise has the same event: a count shares its round's cost."""
    costs = set()
    for clipping in CLIPPINGS:
        plan = plan_of(name, cohort=sampling, clipping=clipping)
        event = plan.private_sum(UNITS).event(3)
        costs.add(round(guarantee(event, adjacency=plan.sampler(UNITS).adjacency).epsilon(1e-3), 6))
    assert len(costs) == 1


@pytest.mark.parametrize("name", PRIVATE)
def test_a_budget_for_other_neighbours_is_refused_before_anything_is_written(name, tmp_path):
    """Or the statement could say more than the budget."""
    with pytest.raises(InputError, match=r'give Budget\(\.\.\., adjacency="replace"\)'):
        fit(name, tmp_path / "run", cohort="fixed_size", budget=Budget(epsilon=100.0, delta=1e-3))
    assert not (tmp_path / "run").exists()
    budget = Budget(epsilon=100.0, delta=1e-3, adjacency="replace")
    assert fit(name, None, rounds=1, cohort="fixed_size", budget=budget, delta=1e-3).statement.epsilon <= 100.0


@pytest.mark.parametrize(("name", "kept"), one_in(2, PRIVATE, [True, False]))
def test_a_round_beyond_the_budget_is_refused_before_it_is_released(name, kept, tmp_path):
    plan, steps = plan_of(name), []
    parts = plan.private_sum(UNITS)
    adjacency = parts.sampler.adjacency
    cost = guarantee(parts.event(3), adjacency).epsilon(1e-3)
    budget = Budget(epsilon=cost * 1.001, delta=1e-3, adjacency=adjacency, fixed_plan=True)

    def contribution(*arguments):
        made = plan.contribution(*arguments)
        made.after_noise = lambda mean, round, source: steps.append(round)
        return made

    with pytest.raises(BudgetExceeded):
        fit(name, tmp_path / "run" if kept else None, budget=budget, contribution=contribution)
    assert steps == [0, 1, 2]


@pytest.mark.parametrize("sampling", ["shuffled", "min_separation"])
@pytest.mark.parametrize("name", LIMITABLE)
def test_a_schedule_for_other_units_is_refused_before_a_folder_is_there(name, sampling, tmp_path):
    with pytest.raises(InputError, match=rf"was planned for {UNITS + 4} units, got {UNITS}"):
        fit(name, tmp_path / "run", cohort=sampling, population=UNITS + 4)
    assert not (tmp_path / "run").exists()
