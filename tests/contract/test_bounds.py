"""One unit moves the sum by at most what is stated, and leaves no trace where it is absent: the heart of the matter."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from contract.battery import (
    SOURCE,
    assert_counts_as_zero,
    assert_leaves_no_trace,
    assert_moves_at_most,
    clipped_sum,
    summed,
)
from contract.specimen import UNITS, network
from contract.specimens import NAMES, PRIVATE, SPECIMENS, fit, plan_of
from sfumato.algorithms import ALGORITHMS, TRAINED
from sfumato.clipping import CLIPPINGS as KINDS
from sfumato.sampling import COHORTS
from slow import by_profile, one_in, slow_but

CLIPPINGS = tuple(KINDS.kinds)
SAMPLINGS, LIMITED = ("poisson", "fixed_size"), ("shuffled", "cyclic_poisson", "min_separation")  # by round; whole runs
WILD = [0.0, 1.0, 1e3, 1e20, math.inf, math.nan]


def contribution_of(name, plan, records, **model):
    torch.manual_seed(0)
    return plan.contribution(network(**model), records, "cpu", 0)


def test_every_algorithm_of_the_registry_has_a_specimen():
    assert SPECIMENS.keys() == TRAINED.keys()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_registry_reads_what_the_module_of_a_plan_declares(name):
    plan = ALGORITHMS[name].load()
    module = vars(sys.modules[plan.__module__])
    assert plan.name == name
    assert ALGORITHMS[name] in module.get("ALGORITHMS", [module.get("ALGORITHM")])


def test_the_battery_knows_every_clipping_and_every_sampling():
    assert CLIPPINGS == ("flat", "per_layer", "automatic", "adaptive")
    assert {*SAMPLINGS, *LIMITED} == set(COHORTS.kinds)


@pytest.mark.parametrize(("name", "clipping"), one_in(4, PRIVATE, CLIPPINGS))
@settings(deadline=None, max_examples=by_profile(8), phases=[Phase.generate])  # a failing draw needs no shrinking
@given(draw=st.data())
def test_one_unit_moves_the_sum_by_at_most_the_stated_sensitivity(name, clipping, draw):
    specimen, seed = SPECIMENS[name], draw.draw(st.integers(0, 10**6))
    one, other = (draw.draw(st.sampled_from(WILD)) for _ in range(2))
    variant = draw.draw(st.sampled_from(specimen.variants))
    clip_norm = draw.draw(st.sampled_from([1e-3, 0.5, 50.0]))
    fields = {
        "units": UNITS,
        "clipping": clipping,
        "clipping.norm": clip_norm,
        "noise.noise_multiplier": 0.1,
        **variant,
    }
    plan, records = plan_of(name, **fields), specimen.records(seed, wild=one)
    whole = summed(contribution_of(name, plan, records), plan.private_sum(UNITS))
    without = summed(contribution_of(name, plan, records.subset(range(UNITS - 1))), plan.private_sum(UNITS))
    exchanged = summed(contribution_of(name, plan, specimen.records(seed, wild=other, last=1)), plan.private_sum(UNITS))
    for sampling in SAMPLINGS:
        parts = plan_of(name, cohort=sampling, **fields).private_sum(UNITS)
        assert parts.record(0, clip_norm)["sensitivity"] == parts.relative_sensitivity * parts.scale(clip_norm)
        assert_moves_at_most(parts, parts.grouping.relative_sensitivity("add_remove"), whole, without)
        assert_moves_at_most(parts, parts.grouping.relative_sensitivity("replace"), whole, exchanged)
        neighbour = exchanged if parts.sampler.adjacency == "replace" else without
        assert_moves_at_most(parts, parts.relative_sensitivity, whole, neighbour)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_single_contribution_reaches_its_bound_and_no_more(name):
    """So no noise is wasted, and the records above are wild enough to tell a bound from none."""
    records, clip_norm = SPECIMENS[name].records(wild=1e4), 0.01
    for clipping in CLIPPINGS:
        plan = plan_of(name, **{"clipping": clipping, "clipping.norm": clip_norm, "noise.noise_multiplier": 0.1})
        parts, contribution = plan.private_sum(UNITS), contribution_of(name, plan, records)
        cohort = parts.grouping.group(np.array([UNITS - 1]), 0, SOURCE)
        total = clipped_sum(contribution, parts, cohort).total
        layers = _norms_by_layer(contribution.trained.layout, total)
        if clipping == "per_layer":
            stated = clip_norm / math.sqrt(len(layers))
            assert max(layers.values()) <= stated
            assert max(layers.values()) > 0.99 * stated
        else:
            assert 0.99 * clip_norm < math.hypot(*layers.values()) <= clip_norm
        if clipping == "automatic":
            assert math.hypot(*layers.values()) < clip_norm


def _norms_by_layer(layout, total) -> dict[str, float]:
    """L2 norms by the module that a parameter belongs to."""
    squares: dict[str, float] = {}
    for name, view in zip(layout.names, layout.views(total), strict=True):
        layer = name.rpartition(".")[0]
        squares[layer] = squares.get(layer, 0.0) + float(view.square().sum())
    return {layer: math.sqrt(square) for layer, square in squares.items()}


VARIANTS = [(name, variant) for name in NAMES for variant in SPECIMENS[name].variants]


@pytest.mark.parametrize(("name", "variant"), slow_but(VARIANTS, *((name, {}) for name in NAMES)), ids=str)
def test_an_absent_unit_leaves_no_trace(name, variant):
    specimen = SPECIMENS[name]
    plan, records = plan_of(name, **variant), specimen.records(wild=3.0)
    present = contribution_of(name, plan, records)
    parts, last = plan.private_sum(present.population), present.population - 1
    for others in (records.subset(range(UNITS - 1)), specimen.records(wild=50.0, last=1)):
        assert_leaves_no_trace(present, contribution_of(name, plan, others), parts, last)


@pytest.mark.parametrize(("name", "wild"), one_in(2, PRIVATE, [math.nan, math.inf]))
def test_a_contribution_that_is_not_finite_counts_as_zero_and_is_counted(name, wild):
    records = SPECIMENS[name].records(wild=wild)
    plan = plan_of(name, units=UNITS)
    assert_counts_as_zero(contribution_of(name, plan, records), plan.private_sum(UNITS), UNITS - 1)
    history = fit(name, None, units=UNITS, rounds=2, records=records).history
    assert [row["not_private"]["non_finite"] for row in history] == [1, 1]
