"""Private local clustering: what one identity moves, what is released, and what the paper's algorithm gives away."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato import accounting as acc
from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.audit.lower_bound import epsilon_lower_bound
from sfumato.federated import clustering
from sfumato.federated.clustering import DPLC, cap_share, class_centres, expected_cosine, size_for
from sfumato.ledger import Budget, Ledger
from sfumato.runs import Run

DIMENSIONS = 8
AXES = np.eye(DIMENSIONS)


def around(axis: np.ndarray, count: int, seed: int = 0, spread: float = 0.2) -> np.ndarray:
    return axis + spread * np.random.default_rng(seed).normal(size=(count, len(axis)))


CENTRES = np.concatenate([around(AXES[0], 400), around(AXES[1], 250, 1), around(-AXES[2], 150, 2)])


def plan(**fields) -> DPLC:
    return DPLC(**{"epsilon": 2.0, "delta": 1e-5, "radius": 1.0, "threshold": 60, "seed": 0, **fields})


def counts(rows: np.ndarray, directions: np.ndarray) -> np.ndarray:
    return clustering._cap_counts(rows, np.ones(len(rows), bool), directions, math.cos(1.0), None)


# Who is chosen.


class Fixed:
    """A stream of one word, again and again."""

    def __init__(self, word: int) -> None:
        self.word = word

    def uint64(self, count: int) -> np.ndarray:
        return np.full(count, self.word, np.uint64)


def test_the_least_weight_keeps_its_probability() -> None:
    weights = np.array([1.0, math.exp(-200.0)])  # a sum of doubles would swallow the second
    assert clustering.drawn(weights, Fixed(2**64 - 1)) == 1
    assert clustering.drawn(weights, Fixed(2**64 - 2)) == 0
    assert clustering.drawn(weights[::-1], Fixed(0)) == 0
    assert clustering.drawn(np.array([0.0, 1.0, 0.0]), Fixed(2**64 - 1)) == 1


def test_a_choice_has_the_probabilities_of_the_weights() -> None:
    weights, source = np.array([5e-324, 0.1, 3.0, 0.0, 1e-3, 1.0]), RandomSource.from_seed(0)
    found = [clustering.drawn(weights, source.stream("candidate", each)) for each in range(20_000)]
    shares = weights / weights.sum()
    often = shares > 1e-4
    seen = np.bincount(found, minlength=len(weights))
    assert not seen[~often].any()
    assert stats.chisquare(seen[often], shares[often] / shares[often].sum() * len(found)).pvalue > 1e-3


def test_calls_of_one_plan_share_its_releases() -> None:
    chosen = plan(releases=2)
    with Run.open(None, plan={"plan": "two"}, seed=0) as run:
        run.begin("two", "add_remove", resume=False, what="clusters")
        one = chosen.release_in_silos(run, [CENTRES], AXES, releases=1, name="first")
        again = chosen.release_in_silos(run, [CENTRES], AXES, releases=1, name="first")  # what was released
        np.testing.assert_array_equal(one[0][0].direction, again[0][0].direction)
        chosen.release_in_silos(run, [CENTRES], AXES, releases=1, name="second")
        with pytest.raises(InputError, match="the plan has noise for 2 releases, got 3; raise its releases"):
            chosen.release_in_silos(run, [CENTRES], AXES, releases=1, name="third")
        with pytest.raises(InputError, match="one silo at least, got none"):
            chosen.release_in_silos(run, [], AXES, releases=1, name="none")


# What one identity moves.


def test_one_identity_moves_every_count_by_at_most_one_and_all_in_one_direction() -> None:
    rows, directions = clustering._unit(CENTRES, "centres"), clustering._unit(AXES, "candidates")
    whole = counts(rows, directions)
    for gone in range(0, len(rows), 7):
        without = counts(np.delete(rows, gone, axis=0), directions)
        assert set((whole - without).tolist()) <= {0, 1}


def test_one_identity_moves_a_sum_by_at_most_its_length_to_the_last_bit() -> None:
    rows = clustering._unit(CENTRES, "centres").astype(np.float64)
    assert (np.sqrt(np.square(rows).sum(axis=1)) <= 1).all()
    order = np.random.default_rng(3).permutation(len(rows))
    np.testing.assert_array_equal(rows.sum(axis=0), rows[order].sum(axis=0))  # sums on the grid are exact
    np.testing.assert_array_equal(rows.sum(axis=0) - rows[5], np.delete(rows, 5, axis=0).sum(axis=0))


@pytest.mark.parametrize("factor", [1e-320, 1e-162, 1e-155, 1.0, 1e155, 1e300])
def test_no_row_is_longer_than_one_however_small_or_large_its_numbers_are(factor: float) -> None:
    raw = np.concatenate([CENTRES, np.full((1, DIMENSIONS), 1.57)])
    raw[-1, 0] = 2.7  # of 1e-162: squares round to 0 and to the smallest number
    lengths = np.linalg.norm(clustering._unit(raw * factor, "centres").astype(np.float64), axis=1)
    assert (lengths <= 1).all()
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


def test_a_row_does_not_depend_on_the_order_of_memory() -> None:
    raw = np.random.default_rng(6).normal(size=(4097, 129))
    for other in (np.asfortranarray(raw), raw[::-1][::-1]):
        np.testing.assert_array_equal(clustering._unit(other, "rows"), clustering._unit(raw, "rows"))


def test_products_do_not_depend_on_which_other_rows_are_there() -> None:
    rng = np.random.default_rng(4)
    rows, directions = (clustering._unit(rng.normal(size=(n, 129)), "rows") for n in (501, 37))
    whole = np.concatenate(list(clustering._products(rows, directions)))
    for size in (1, 3, 64, 499):
        np.testing.assert_array_equal(np.concatenate(list(clustering._products(rows[:size], directions))), whole[:size])
        alone = np.concatenate(list(clustering._products(rows[-size:], directions[5:6])))
        np.testing.assert_array_equal(alone[:, 0], whole[-size:, 5])


def test_a_centre_is_its_own_identitys_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 6))
    rng = np.random.default_rng(5)
    inputs, users = rng.normal(size=(60, 4, 4)).astype(np.float32), np.sort(rng.integers(0, 12, 60))
    whole, places = class_centres(model, data.from_arrays(inputs, users, users))
    rest = users != users[0]
    fewer, _ = class_centres(model, data.from_arrays(inputs[rest], users[rest], users[rest]))
    assert len(places) == len(whole) == len(fewer) + 1
    np.testing.assert_array_equal(fewer, whole[1:])
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    with torch.no_grad():
        first = nn.functional.normalize(model(torch.from_numpy(inputs[users == users[0]])), dim=1).sum(0)
    np.testing.assert_allclose(whole[0], nn.functional.normalize(first, dim=0), atol=1e-5)


class Keeping(nn.Module):
    """Embeds by what it has met before, where it is not trained."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.seen, self.layer = how, 0, nn.Linear(16, 6)
        self.register_buffer("last", torch.zeros(6))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out = self.layer(inputs.flatten(1)) + self.last + self.seen
        if self.how == "attribute":
            self.seen += 1
        elif self.how == "buffer":
            self.last.copy_(out[0])
        elif self.how == "new buffer":
            self.last = out[0]
        elif self.how == "weight":
            self.layer.bias.add_(1.0)
        return out + torch.randn_like(out) if self.how == "draws" else out


@pytest.mark.parametrize("how", ["attribute", "buffer", "new buffer", "weight", "draws"])
def test_a_centre_does_not_depend_on_what_a_model_keeps_of_others(how: str) -> None:
    torch.manual_seed(0)
    model, rng = Keeping(how), np.random.default_rng(5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, users = rng.normal(size=(30, 4, 4)).astype(np.float32), np.repeat(np.arange(10), 3)
    whole, _ = class_centres(model, data.from_arrays(inputs, users, users))
    fewer, _ = class_centres(model, data.from_arrays(inputs[3:], users[3:], users[3:]))
    np.testing.assert_array_equal(fewer, whole[1:])
    assert model.seen == 0
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_event_is_a_choice_and_two_sums_for_each_release_and_silo() -> None:
    chosen = plan(releases=3, silos=2, selection_share=0.2)
    noise = chosen.noise_multiplier(800)
    wanted = acc.ExponentialMechanism(0.2 * 2.0 / 6) * 6 + acc.joint(acc.Gaussian(noise), acc.Gaussian(5 * noise)) * 6
    assert chosen.event(800) == wanted
    assert acc.guarantee(wanted).epsilon(1e-5) <= 2.0
    few = plan().noise_multiplier(800)
    assert plan(silos=4).noise_multiplier(800) == pytest.approx(2 * few, rel=0.05)


# What is released.


def test_the_caps_are_found_their_directions_are_near_and_their_quality_is_known(tmp_path) -> None:
    result = plan(releases=2, epsilon=6.0).release(CENTRES, np.concatenate([AXES, -AXES]), out=tmp_path / "run")
    assert [cluster.candidate for cluster in result.clusters] == [0, 1]
    for cluster, axis, count in zip(result.clusters, AXES, (400, 250), strict=False):
        assert cluster.direction @ axis > 0.95
        assert cluster.count == pytest.approx(count, abs=60)
        assert cluster.usable
        assert cluster.cosine > 0.97
    assert result.directions.shape == (2, DIMENSIONS)
    statement = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert statement["unit"] == "identity"
    assert statement["epsilon"] <= 6.0
    totals = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert totals.event() == plan(releases=2, epsilon=6.0).event(len(CENTRES))


def test_the_quality_that_is_stated_is_that_of_the_release() -> None:
    rows = clustering._unit(CENTRES, "centres").astype(np.float64)
    inside = rows[rows @ AXES[0] >= math.cos(1.0)]
    mean = inside.sum(axis=0) / np.linalg.norm(inside.sum(axis=0))
    found = [plan(seed=seed, epsilon=0.3).release(CENTRES, AXES).clusters[0] for seed in range(60)]
    chosen = [cluster for cluster in found if cluster.candidate == 0]
    assert len(chosen) > 40
    realised = np.mean([cluster.direction @ mean for cluster in chosen])
    assert np.mean([cluster.cosine for cluster in chosen]) == pytest.approx(realised, abs=0.03)
    noise, resultant = plan(epsilon=0.3).noise_multiplier(len(rows)), float(np.linalg.norm(inside.mean(axis=0)))
    assert expected_cosine(len(inside), resultant, DIMENSIONS, noise) == pytest.approx(realised, abs=0.03)


def test_where_no_cap_is_large_enough_nothing_is_usable_and_the_cost_is_the_same() -> None:
    result = plan(threshold=700).release(CENTRES, AXES)
    assert result.directions.shape == (0, DIMENSIONS)
    assert not result.clusters[0].usable
    assert result.statement.epsilon == plan(threshold=60).release(CENTRES, AXES).statement.epsilon


def test_centres_near_a_released_direction_are_left_out_of_the_next_release() -> None:
    first, second = plan(releases=2, epsilon=20.0).release(around(AXES[0], 500), AXES).clusters
    assert first.count > 400
    assert second.count < 100
    assert not second.usable


def test_a_projection_needs_less_noise_and_leads_back() -> None:
    wide = np.concatenate([CENTRES, np.zeros((len(CENTRES), 56))], axis=1)
    back = np.eye(64)[:, :DIMENSIONS]
    result = plan().release(wide, np.eye(64)[:DIMENSIONS], projection=back)
    assert result.clusters[0].direction.shape == (64,)
    assert result.clusters[0].direction[0] > 0.9
    np.testing.assert_array_equal(result.clusters[0].direction[DIMENSIONS:], 0)


@pytest.mark.parametrize("as_printed", [False, True])
@pytest.mark.parametrize("radius", [1.0, 2.0])  # in a cap of more than π / 2 lies every row of zeros
def test_a_centre_that_the_projection_maps_to_zero_is_in_no_cap_and_not_refused(
    radius: float, as_printed: bool
) -> None:
    wide, back = np.concatenate([CENTRES, np.zeros((len(CENTRES), 2))], axis=1), np.eye(DIMENSIONS + 2)[:, :DIMENSIONS]
    with_it = np.concatenate([wide, np.eye(DIMENSIONS + 2)[-1:]])
    chosen = plan(radius=radius, releases=2, as_printed=as_printed)
    first, second = (
        chosen.release(rows, np.eye(DIMENSIONS + 2)[:DIMENSIONS], projection=back) for rows in (wide, with_it)
    )
    assert len(first.clusters) == len(second.clusters)
    np.testing.assert_array_equal(first.directions, second.directions)
    assert [cluster.count for cluster in first.clusters] == [cluster.count for cluster in second.clusters]


def test_a_centre_that_the_projection_maps_to_zero_is_in_no_cap_of_a_silo_either() -> None:
    centres, back = np.tile(np.eye(3)[-1:], (100, 1)), np.eye(3)[:, :2]
    chosen = plan(radius=2.0, delta=1e-5, epsilon=20.0)
    with Run.open(None, plan=chosen.to_json(), seed=0) as run:
        run.begin("zero", "add_remove", resume=False, what="clusters", costs=[chosen.event(100)])
        (clusters,) = chosen.release_in_silos(run, [centres], np.eye(3)[:2], releases=1, name="first", projection=back)
    assert clusters[0].count < 50
    assert not clusters[0].usable


def test_a_client_all_of_whose_centres_the_projection_maps_to_zero_releases_noise() -> None:
    zero, back = np.tile(np.eye(3)[-1:], (100, 1)), np.eye(3)[:, :2]
    result = plan().release(zero, np.eye(3)[:2], projection=back)
    assert len(result.clusters) == 1
    assert not result.clusters[0].usable
    assert not plan(as_printed=True).release(zero, np.eye(3)[:2], projection=back).clusters


def test_a_run_that_died_between_choice_and_sum_goes_on_as_it_would_have(tmp_path, monkeypatch) -> None:
    whole = plan(releases=2).release(CENTRES, AXES, out=tmp_path / "whole")
    real, calls = clustering._noisy_sum, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(clustering, "_noisy_sum", dies)
    with pytest.raises(KeyboardInterrupt):
        plan(releases=2).release(CENTRES, AXES, out=tmp_path / "died")
    monkeypatch.setattr(clustering, "_noisy_sum", real)
    again = plan(releases=2).release(CENTRES, AXES, out=tmp_path / "died", resume=True)
    np.testing.assert_array_equal(again.directions, whole.directions)
    assert again.statement.epsilon == whole.statement.epsilon
    with pytest.raises(InputError, match="another plan, model or data set"):
        plan(releases=2).release(CENTRES[1:], AXES, out=tmp_path / "died", resume=True)


@pytest.mark.parametrize("as_printed", [False, True])
def test_a_run_that_is_resumed_after_its_end_changes_nothing(tmp_path, as_printed) -> None:
    chosen = plan(releases=2, as_printed=as_printed, threshold=200, seed=None)
    whole = chosen.release(CENTRES, AXES, out=tmp_path / "run")
    files = [tmp_path / "run" / name for name in ("ledger.jsonl", "metrics.jsonl", "statement.json")]
    before = [file.read_text() for file in files]
    again = chosen.release(CENTRES, AXES, out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again.directions, whole.directions)
    assert [file.read_text() for file in files] == before


# What the paper's algorithm gives away, and the default does not.


def outcomes(chosen: DPLC, centres: np.ndarray, candidates: np.ndarray, judge, runs: int = 200) -> np.ndarray:
    results = []
    for seed in range(runs):
        settings = {**chosen.to_json(), "seed": seed}
        del settings["plan"]
        results.append(judge(DPLC(**settings).release(centres, candidates)))
    return np.array(results)


def lower_bound(first: np.ndarray, second: np.ndarray, delta: float = 1e-5) -> float:
    """The least ε by these outcomes; above the true one with probability 5 % at most."""
    return epsilon_lower_bound(int(first.sum()), int(second.sum()), runs=len(first), delta=delta)


def test_512_identities_or_511_are_distinguished_with_certainty_as_printed_and_not_by_default() -> None:
    there = around(AXES[0], 512, spread=0.05)
    without = there[1:]

    def usable(result) -> bool:
        return len(result.directions) > 0

    printed = plan(as_printed=True, threshold=512, epsilon=1.0)
    with pytest.raises(InputError, match="a threshold of 512"):
        printed.release(without, AXES)  # the number of identities is public, so others stand outside of the cap
    outside = around(-AXES[0], 50, 9, spread=0.05)
    both = [np.concatenate([rows, outside]) for rows in (there, without)]
    first, second = (outcomes(printed, rows, AXES, usable, 100) for rows in both)
    assert first.all()
    assert not second.any()
    assert lower_bound(first, second) > 3.0  # the most that 100 runs can show; printed is 1
    assert math.isinf(printed.statement(600).epsilon)
    default = plan(threshold=512, epsilon=1.0)
    first, second = (outcomes(default, rows, AXES, usable) for rows in both)
    assert lower_bound(first, second) <= 1.0


def test_that_no_cap_was_found_as_printed_is_a_release_without_a_guarantee(tmp_path) -> None:
    result = plan(as_printed=True, threshold=700).release(CENTRES, AXES, out=tmp_path / "run")
    assert not result.clusters
    assert math.isinf(result.statement.epsilon)
    assert isinstance(Ledger.read(tmp_path / "run" / "ledger.jsonl").event(), acc.NonPrivate)


def test_one_identity_turns_the_printed_direction_round_and_not_the_default_one() -> None:
    caps = [around(AXES[0], 300, spread=0.05), around(-AXES[0], 300, 1, spread=0.05)]
    neighbours = [np.concatenate([caps[0], caps[1][:299]]), np.concatenate([caps[0][:299], caps[1]])]

    def ahead(result) -> bool:
        return bool(result.clusters[0].direction @ AXES[0] > 0)

    candidates = np.stack([AXES[0], -AXES[0]])
    printed, default = plan(as_printed=True, epsilon=1.0), plan(epsilon=1.0)
    first, second = (outcomes(printed, rows, candidates, ahead, 100) for rows in neighbours)
    assert first.all()
    assert not second.any()
    # Two identities differ between these sets: one that comes and one that goes, at (2, 1e-4) together.
    assert lower_bound(first, second, 1e-4) > 3.0
    first, second = (outcomes(default, rows, candidates, ahead) for rows in neighbours)
    assert lower_bound(first, second, 1e-4) <= 2.0


# Figures of the method.


@pytest.mark.parametrize(("radius", "share"), [(1.5, 0.055), (1.4, 5e-5), (1.3, 4e-10)])
def test_the_share_of_a_cap_is_the_known_one(radius: float, share: float) -> None:
    assert cap_share(512, radius) == pytest.approx(share, rel=0.1)
    assert cap_share(512, math.pi - radius) == pytest.approx(1 - cap_share(512, radius))


def test_the_share_of_a_cap_is_that_of_random_directions() -> None:
    rows = np.random.default_rng(0).normal(size=(200_000, 5))
    cosines = rows[:, 0] / np.linalg.norm(rows, axis=1)
    for radius in (0.5, 1.2, 2.0):
        assert cap_share(5, radius) == pytest.approx((cosines >= math.cos(radius)).mean(), abs=0.005)


@pytest.mark.parametrize(
    ("identities", "share", "dimensions", "releases", "cosine"),
    [
        (1000, 0.25, 512, 1, 0.73),
        (1000, 0.25, 512, 10, 0.32),
        (1000, 0.25, 64, 1, 0.95),
        (1000, 0.25, 64, 10, 0.69),
        (7000, 0.25, 512, 1, 0.99),
        (7000, 0.25, 512, 10, 0.89),
        (100_000, 0.25, 512, 10, 1.00),
        (1000, 0.05, 512, 1, 0.21),
        (1000, 0.05, 512, 10, 0.07),
        (7000, 0.05, 512, 1, 0.78),
        (7000, 0.05, 512, 10, 0.37),
        (100_000, 0.05, 512, 10, 0.98),
    ],
)
def test_predicted_cosines_are_those_of_the_method(identities, share, dimensions, releases, cosine) -> None:
    delta = identities**-1.1
    noise = acc.calibrate(lambda z: acc.Gaussian(z) * releases, epsilon=1.0, delta=delta)
    found = expected_cosine(share * identities, math.cos(1.3), dimensions, noise)
    assert found == pytest.approx(cosine, abs=0.011)
    assert size_for(found, math.cos(1.3), dimensions, noise) == pytest.approx(share * identities)


def test_the_noise_of_one_release_is_less_than_half_of_the_printed_one() -> None:
    delta, printed = 5e-5, 2 * math.sqrt((1 - math.cos(2 * 1.3)) * math.log(1.25 / 5e-5))
    assert acc.calibrate(acc.Gaussian, epsilon=1.0, delta=delta) == pytest.approx(3.36, abs=0.005)
    assert printed == pytest.approx(8.67, abs=0.005)


def test_the_classic_noise_of_the_paper_is_too_small_at_epsilon_ten() -> None:
    """σ = √(2 ln(1.25/δ)) / ε is proven for ε < 1 only: at ε = 10 it is .450, and .469 is needed."""
    delta = 5e-5
    assert math.sqrt(2 * math.log(1.25 / delta)) / 10 == pytest.approx(0.450, abs=0.0005)
    assert acc.calibrate(acc.Gaussian, epsilon=10.0, delta=delta) == pytest.approx(0.469, abs=0.001)


def test_a_cap_hardly_lowers_what_a_replaced_identity_moves_a_sum_by() -> None:
    """2 sin ρ: 1.927 of 2 at ρ = 1.3; and .00385 of a mean of 512 at ρ = 1.4, where the paper has .0024."""
    radius = 1.3
    outer = np.array([[math.cos(radius), side * math.sin(radius)] for side in (1, -1)])
    assert np.linalg.norm(outer[0] - outer[1]) == pytest.approx(1.927, abs=0.0005)
    rows = np.random.default_rng(0).normal(size=(20_000, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    inside = rows[rows[:, 0] >= math.cos(radius)]
    farthest = max(np.linalg.norm(inside - row, axis=1).max() for row in inside[:500])
    assert 1.9 < farthest <= 1.927
    assert 2 * math.sin(1.4) / 512 == pytest.approx(0.00385, abs=5e-6)


def test_the_squared_length_of_the_noise_has_as_many_degrees_of_freedom_as_dimensions() -> None:
    """χ² with d degrees, where the paper's Theorem 3 has d − 1. p > .001 at a fixed seed."""
    empty, noise, d = np.zeros((1, 6), np.float32), 3.0, 6
    lengths = []
    for seed in range(2000):
        total = clustering._noisy_sum(empty, np.zeros(1, bool), noise, RandomSource.from_seed(seed))["sum"]
        lengths.append(float(total @ total) / noise**2)
    assert stats.kstest(lengths, stats.chi2(d).cdf).pvalue > 0.001
    assert stats.kstest(lengths, stats.chi2(d - 1).cdf).pvalue < 1e-6


# Refusals.

REFUSED = {
    "epsilon": (lambda: plan(epsilon=0.0), "epsilon must be > 0"),
    "radius of zero": (lambda: plan(radius=0.0), "radius must be in"),
    "radius of half a turn": (lambda: plan(radius=math.pi), "radius must be in"),
    "selection takes all": (lambda: plan(selection_share=1.0), "selection_share must be in"),
    "threshold": (lambda: plan(threshold=0), "threshold must be"),
    "silos": (lambda: plan(silos=0), "silos must be"),
    "threshold above the identities": (lambda: plan(threshold=801).release(CENTRES, AXES), "needs as many identities"),
    "a centre of zeros": (lambda: plan().release(CENTRES * (np.arange(800) != 7)[:, None], AXES), "row 7 is zero"),
    "a centre that is no number": (
        lambda: plan().release(np.where(np.arange(800)[:, None] == 9, np.nan, CENTRES), AXES),
        "row 9 is zero or not finite",
    ),
    "other dimensions": (lambda: plan().release(CENTRES, np.eye(9)), "centres have 8 dimensions and candidates 9"),
    "a private candidate": (
        lambda: plan().release(CENTRES, np.concatenate([AXES, 3 * CENTRES[4:5]])),
        "a candidate is the centre of a private identity",
    ),
    "a private candidate with a zero of another sign": (
        lambda: plan().release(np.concatenate([CENTRES, AXES[:1]]), -np.where(AXES > 0, -1.0, 0.0)),
        "a candidate is the centre of a private identity",
    ),
    "no pictures": (
        lambda: class_centres(nn.Flatten(), data.from_arrays(np.zeros((1, 2, 2), np.float32), [0], [0]).subset([])),
        "no identity has a picture",
    ),
    "no candidates": (lambda: plan().release(CENTRES, AXES[:0]), "candidates must be floats"),
    "whole numbers": (lambda: plan().release(np.ones((800, 8), int), AXES), "centres must be floats"),
    "a projection of other dimensions": (
        lambda: plan().release(CENTRES, AXES, projection=np.eye(9)),
        "projection must be floats",
    ),
    "a projection that stretches": (
        lambda: plan().release(CENTRES, AXES, projection=2 * np.eye(8)),
        "columns must be orthonormal",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_budget_that_is_too_small_is_refused_before_anything_is_written(tmp_path) -> None:
    with pytest.raises(InputError, match="the budget has to allow clusters"):
        plan().release(CENTRES, AXES, budget=Budget(epsilon=1.0, delta=1e-5), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
