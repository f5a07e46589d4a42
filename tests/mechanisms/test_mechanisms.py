"""Noise: Gaussian, independent and correlated, and discrete."""

import itertools
import math
import time
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import torch
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato.mechanisms import BISR, BLT, Banded, Gaussian, Tree
from sfumato.mechanisms.correlated import Correlated
from sfumato.mechanisms.discrete import _is_below, discrete_gaussian, discrete_laplace, lattice_variance
from sfumato.sampling import (
    CyclicPoisson,
    FixedSize,
    MinSeparation,
    Poisson,
    Shuffled,
)
from sfumato.training import Server

# Gaussian noise, independent and correlated.

# Noise that is correlated over the rounds: what it is made of, what goes on from where, and what is refused.

ROUNDS = 13
STRATEGIES = {
    "one band": Banded(coefficients=(1.0,)),
    "banded": Banded(coefficients=(2.0, 1.0, 0.4, 0.1)),
    "scaled": Banded(coefficients=(1.0, 0.5, 0.2), column_scales=tuple(1.0 + 0.1 * round for round in range(ROUNDS))),
    "blt": BLT(coefficients=(0.4, 0.2, 0.9, 0.3)),
    "bisr": BISR(coefficients=(1.0, -0.5, -0.125, -0.0625)),
    "tree": Tree(),
    "plain tree": Tree(estimator="plain"),
    "trees": Tree(restart=5),
    "completed trees": Tree(restart=5, completion=True),
    "plain completed trees": Tree(estimator="plain", restart=6, completion=True),
}


def mechanism(kind: Correlated, *, noise_multiplier: float = 1.0, rounds: int = ROUNDS) -> Correlated:
    return replace(kind, noise_multiplier=noise_multiplier, rounds=rounds)


def noise(of: Correlated, round: int, *, size: int = 100, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    source = RandomSource.from_seed(seed)
    return of.release(torch.zeros(size, dtype=torch.float64), scale=scale, round=round, source=source)


def rows(strategy: Correlated, size: int, *, rounds: int = ROUNDS) -> torch.Tensor:
    of = mechanism(strategy, rounds=rounds)
    return torch.stack([noise(of, round, size=size) for round in range(rounds)])


def fresh(size: int, *, rounds: int = ROUNDS) -> np.ndarray:
    source = RandomSource.from_seed(0)
    return np.stack([source.stream("noise", round).normal(size) for round in range(rounds)])


def dense(coefficients: list[float]) -> np.ndarray:
    padded = np.zeros(ROUNDS)
    padded[: len(coefficients)] = coefficients[:ROUNDS]
    return np.array([[padded[t - j] if t >= j else 0.0 for j in range(ROUNDS)] for t in range(ROUNDS)])


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("one band", np.eye(ROUNDS)),
        ("banded", dense([2.0, 1.0, 0.4, 0.1])),
        ("scaled", dense([1.0, 0.5, 0.2]) @ np.diag(1.0 + 0.1 * np.arange(ROUNDS))),
        ("blt", dense([1.0, *(0.4 * 0.9 ** np.arange(ROUNDS) + 0.2 * 0.3 ** np.arange(ROUNDS))])),
        ("bisr", np.linalg.inv(dense([1.0, -0.5, -0.125, -0.0625]))),
    ],
)
def test_strategy_times_noise_is_the_fresh_noise(name: str, matrix: np.ndarray):
    released = rows(STRATEGIES[name], 50).numpy()
    np.testing.assert_allclose(matrix @ released, fresh(50), atol=5e-6)


def test_one_band_is_independent_noise():
    plain = Gaussian(noise_multiplier=1.0)
    source = RandomSource.from_seed(0)
    for round in range(3):
        zeros = torch.zeros(1000, dtype=torch.float64)
        other = plain.release(zeros, scale=1.0, round=round, source=source)
        torch.testing.assert_close(noise(mechanism(STRATEGIES["one band"]), round, size=1000), other, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_round_asked_for_alone_is_the_one_that_came_in_order_to_the_bit(name: str):
    in_order = rows(STRATEGIES[name], 300)
    for round in (12, 5, 0, 6, 4, 11):
        assert torch.equal(noise(mechanism(STRATEGIES[name]), round, size=300), in_order[round])
    again = mechanism(STRATEGIES[name])
    for round in (3, 3, 9, 2):  # a round that is repeated, as after a crash, and jumps both ways
        assert torch.equal(noise(again, round, size=300), in_order[round])


@pytest.mark.parametrize("name", ["banded", "blt", "bisr", "tree"])
def test_threads_change_no_bit(name: str):
    before, size = torch.get_num_threads(), 500_001
    released = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            released.append(rows(STRATEGIES[name], size, rounds=4))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(released[0], released[1])
    assert torch.equal(released[0], released[2])


@pytest.mark.parametrize("name", STRATEGIES)
def test_memory_is_bands_buffers_or_the_depth_of_the_tree(name: str):
    vectors = {"one band": 0, "banded": 3, "scaled": 2, "blt": 2, "bisr": 3, "tree": 4, "plain tree": 4}
    assert mechanism(STRATEGIES[name]).vectors == vectors.get(name, 3)


def test_tree_noise_needs_one_draw_a_round_and_a_stack_of_logarithmic_height():
    tree = Tree(rounds=2000)
    blocks = [tree.block(round) for round in range(2000)]
    assert max(block.slot for block in blocks) < tree.vectors == 11
    assert sum(len(block.swallowed) for block in blocks) < 2000


def test_the_whole_run_is_one_event_and_the_noise_is_what_it_says():
    limits = MinSeparation(size=5, population=100, min_separation=4, max_participations=3, rounds=ROUNDS)
    event = mechanism(STRATEGIES["banded"], noise_multiplier=3.0).event(2.0, limits, ROUNDS)
    assert isinstance(event, acc.MatrixMechanism)
    assert (event.noise_multiplier, event.steps, event.max_participations, event.min_separation) == (1.5, ROUNDS, 3, 4)
    tree = mechanism(Tree(restart=5, completion=True), noise_multiplier=3.0).event(1.0, limits, ROUNDS)
    assert tree == acc.TreeAggregation(
        noise_multiplier=3.0, steps=ROUNDS, max_participations=3, min_separation=4, restart_every=5, completion=True
    )
    assert mechanism(Tree(), noise_multiplier=0.0).event(1.0, limits, ROUNDS) == acc.NonPrivate()


def test_cyclic_poisson_sampling_amplifies_banded_noise_only():
    cyclic = CyclicPoisson(size=5, population=100, parts=4, rounds=ROUNDS)
    banded = mechanism(STRATEGIES["banded"], noise_multiplier=3.0)
    norm = float(np.linalg.norm([2.0, 1.0, 0.4, 0.1]))
    event = banded.event(1.0, cyclic, ROUNDS)
    one = acc.Gaussian(3.0 / norm).poisson(0.2) * 4
    assert acc.guarantee(event).epsilon(1e-5) == pytest.approx(acc.guarantee(one).epsilon(1e-5), rel=1e-9)
    with pytest.raises(InputError, match=r"cyclic Poisson sampling of 4 parts amplifies at most .* noise=tree; use"):
        mechanism(Tree()).event(1.0, cyclic, ROUNDS)
    narrow = CyclicPoisson(size=5, population=100, parts=3, rounds=ROUNDS)
    with pytest.raises(InputError, match="noise=banded of 4 bands; use noise=banded with 3 bands or fewer"):
        banded.event(1.0, narrow, ROUNDS)
    independent = Gaussian(noise_multiplier=3.0).event(1.0, cyclic, ROUNDS)
    assert acc.guarantee(independent).epsilon(1e-5) == pytest.approx(
        acc.guarantee(acc.Gaussian(3.0).poisson(0.2) * 4).epsilon(1e-5), rel=1e-9
    )


def test_a_tree_for_each_shuffled_epoch_costs_one_participation_each():
    """Kairouz et al. 2021, Appendix D: the number of epochs times the depth of an epoch's tree."""
    epochs = Shuffled(size=10, population=150, rounds=60)
    tree = mechanism(Tree(restart=15), rounds=60).event(1.0, epochs, 60)
    assert isinstance(tree, acc.TreeAggregation)
    assert tree.squared_sensitivity == 4 * 4
    two = mechanism(Tree(restart=30), rounds=60).event(1.0, epochs, 60)
    across = mechanism(Tree(restart=20), rounds=60).event(1.0, epochs, 60)
    assert isinstance(two, acc.TreeAggregation)
    assert isinstance(across, acc.TreeAggregation)
    assert (two.max_per_tree, across.max_per_tree) == (2, None)


def test_independent_noise_with_limits_costs_the_rounds_that_a_unit_can_be_in():
    limits = MinSeparation(size=5, population=100, min_separation=4, max_participations=3, rounds=ROUNDS)
    event = Gaussian(noise_multiplier=2.0).event(1.0, limits, ROUNDS)
    assert event == acc.Gaussian(2.0).min_separation(ROUNDS, 4, 3)
    assert acc.guarantee(event, "zero_out").epsilon(1e-5) == pytest.approx(
        acc.guarantee(acc.Gaussian(2.0) * 3, "zero_out").epsilon(1e-5), rel=1e-9
    )


@pytest.mark.parametrize("sampler", [Poisson(size=5, population=50), FixedSize(size=5, population=50)])
def test_sampling_without_limits_is_refused(sampler: Poisson | FixedSize):
    with pytest.raises(InputError, match="needs a cohort that limits how often a unit takes part"):
        mechanism(Tree()).event(1.0, sampler, ROUNDS)


def test_one_unit_more_is_refused_with_the_reason():
    epochs = Shuffled(size=5, population=50, rounds=ROUNDS)
    event = mechanism(Tree(), noise_multiplier=4.0).event(1.0, epochs, ROUNDS)
    with pytest.raises(InputError, match=r"not known under add_remove, because one unit more would shift the others"):
        acc.guarantee(event, "add_remove").epsilon(1e-5)


def test_a_round_beyond_the_plan_is_refused():
    with pytest.raises(InputError, match="round 14 lies beyond the 13 that the noise was made and accounted for"):
        noise(mechanism(Tree()), 13)
    with pytest.raises(InputError, match="column scales"):
        mechanism(Banded(coefficients=(1.0,), column_scales=(1.0, 1.0)))


def test_rounds_that_share_noise_have_one_bound():
    of, source = mechanism(Tree()), RandomSource.from_seed(1)
    zeros = torch.zeros(10, dtype=torch.float64)
    of.release(zeros, scale=1.0, round=0, source=source)
    with pytest.raises(InputError, match="one bound for all of them, got 1 and then 2"):
        of.release(zeros, scale=2.0, round=1, source=source)
    with pytest.raises(InputError, match="scale must be > 0"):
        mechanism(Tree()).release(zeros, scale=0.0, round=0, source=source)


def test_two_runs_of_one_mechanism_have_noise_of_their_own():
    of = mechanism(STRATEGIES["blt"])
    first = [noise(of, round, seed=1) for round in range(3)]
    mixed = []
    for round in range(3):
        mixed.append(noise(of, round, seed=1))
        noise(of, round, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first, mixed, strict=True))


def test_a_new_tree_is_reported_to_the_server():
    trees = mechanism(Tree(restart=5))
    assert [round for round in range(ROUNDS) if trees.restarts(round)] == [5, 10]
    assert not any(mechanism(Tree()).restarts(round) for round in range(ROUNDS))
    assert not Gaussian(noise_multiplier=1.0).restarts(5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["tree", "trees", "completed trees", "banded", "blt", "bisr"])
def test_residuals_with_sgd_are_the_cumulative_form_with_the_same_momentum(name: str, momentum: float):
    """DP-FTRL is written with noisy sums since the anchor: v_t = momentum · v_(t-1) + noisy sum, theta = anchor -
    rate · v. A new tree moves the anchor to the weights and begins with zero sums."""
    size, rate = 40, 0.3
    generator = torch.Generator().manual_seed(1)
    sums = torch.randn(ROUNDS, size, generator=generator, dtype=torch.float64)
    noises = rows(STRATEGIES[name], size)
    of = mechanism(STRATEGIES[name])

    theta = torch.zeros(size, dtype=torch.float64)
    server = Server(lambda parameters: torch.optim.SGD(parameters, rate, momentum=momentum), [theta])
    source, residual = RandomSource.from_seed(0), []
    for round in range(ROUNDS):
        if of.restarts(round):
            server.restart()
        server.step([of.release(sums[round].clone(), scale=1.0, round=round, source=source)])
        residual.append(theta.clone())

    anchor = torch.zeros(size, dtype=torch.float64)
    total, moved = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    for round in range(ROUNDS):
        if of.restarts(round):
            anchor, total, moved = residual[round - 1].clone(), torch.zeros_like(total), torch.zeros_like(moved)
        total = total + sums[round] + noises[round]
        moved = momentum * moved + total
        torch.testing.assert_close(residual[round], anchor - rate * moved, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("strategy", "rounds"),
    [
        (Banded(coefficients=(1.0, 1.5)), 80),
        (Banded(coefficients=(1.0, -2.0, 1.0)), 1000),
        (BLT(coefficients=(3.0, 1.0)), 80),
        (BISR(coefficients=(1.0, 2000.0)), 2),
    ],
)
def test_noise_whose_fresh_part_would_be_rounded_away_is_refused(strategy: Correlated, rounds: int):
    """Else the rounds before tell a round's noise: y_80 = z_80 - 1.5 y_79 is -1.5 y_79 in single precision."""
    with pytest.raises(InputError, match=r"grows to .* times its fresh part, .* fewer rounds"):
        mechanism(strategy, rounds=rounds)


@pytest.mark.parametrize("strategy", [Banded(coefficients=(1.0, -1.0)), BLT(coefficients=(0.5, 0.5, 1.0, 1.0))])
def test_what_is_fresh_survives_many_rounds(strategy: Banded | BLT):
    """C times the released rows is the fresh noise, on a run as long as any."""
    rounds, size = 3000, 4
    of, source = mechanism(strategy, rounds=rounds), RandomSource.from_seed(0)
    zeros = torch.zeros(size, dtype=torch.float64)
    last = [of.release(zeros.clone(), scale=1.0, round=t, source=source).numpy() for t in range(rounds)]
    column = of.strategy.coefficients(rounds) if isinstance(strategy, BLT) else strategy.coefficients
    back = np.sum([c * last[rounds - 1 - lag] for lag, c in enumerate(column)], axis=0)
    np.testing.assert_allclose(back, source.stream("noise", rounds - 1).normal(size), atol=2e-4)


@pytest.mark.parametrize(
    "strategy",
    [
        Banded(coefficients=(1.0,), column_scales=(1.0, 3.5e38)),
        Banded(coefficients=(1.0,), column_scales=(1.0, 1e-30)),
        Banded(coefficients=(1e39, 1e38)),
        Banded(coefficients=(1e-20,), column_scales=(1e20, 1e20)),
    ],
)
def test_entries_that_single_precision_takes_for_zero_or_infinite_are_refused(strategy: Correlated):
    """A scale of 3.5e38 is infinite there, so its column's noise would be zero."""
    with pytest.raises(InputError, match=r"diagonal must be in \[1e-09, 1e\+09\]"):
        mechanism(strategy, rounds=2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_noise_has_as_many_digits_as_the_sum_that_it_is_added_to(name: str):
    """Else a sum of nobody's contributions takes few of the values that another one takes, and is told by them."""
    for row in rows(STRATEGIES[name], 200, rounds=7):
        assert (row != row.float().double()).double().mean() > 0.9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_noise_does_not_depend_on_the_default_type(dtype: torch.dtype):
    before = rows(STRATEGIES["banded"], 50, rounds=5)
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert torch.equal(rows(STRATEGIES["banded"], 50, rounds=5), before)
    finally:
        torch.set_default_dtype(default)


def test_noise_that_was_made_for_other_rounds_is_not_accounted():
    """With a tree to follow, round 3 releases the completed root: S^2 = 3, where a run that ends there has 2."""
    of = mechanism(Tree(restart=3, completion=True), rounds=6)
    limits = MinSeparation(size=1, population=100, min_separation=0, max_participations=1, rounds=3)
    with pytest.raises(InputError, match=r"the noise is made for 6 rounds, .* got 3"):
        of.event(1.0, limits, 3)


# The Gaussian sum.


def test_noise_is_normal_with_the_std_that_it_reports():
    mechanism = Gaussian(noise_multiplier=0.7)
    noise = mechanism.release(
        torch.zeros(200_001, dtype=torch.float64), scale=3.0, round=0, source=RandomSource.from_os()
    )
    # Fresh randomness each time: false alarm 1e-9.
    assert stats.kstest(noise.numpy() / mechanism.noise_std(3.0), "norm").pvalue > 1e-9
    assert noise.unique().numel() == noise.numel()


def test_the_noise_is_one_draw_for_any_number_of_threads():
    mechanism = Gaussian(noise_multiplier=0.5)
    size = 3_000_001
    before = torch.get_num_threads()
    released = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            total = torch.ones(size, dtype=torch.float64)
            released.append(mechanism.release(total, scale=2.0, round=4, source=RandomSource.from_seed(0)))
            assert released[-1] is total
    finally:
        torch.set_num_threads(before)
    assert torch.equal(released[0], released[1])
    assert torch.equal(released[0], released[2])
    assert torch.equal(
        released[0] - 1, torch.from_numpy(RandomSource.from_seed(0).stream("noise", 4).normal(size)) + 1 - 1
    )


def test_an_empty_sum_is_noised_too():
    released = Gaussian(noise_multiplier=1.0).release(
        torch.zeros(10, dtype=torch.float64), scale=1.0, round=0, source=RandomSource.from_seed(0)
    )
    assert (released != 0).all()


def test_the_event_follows_from_the_noise():
    mechanism = Gaussian(noise_multiplier=1.2)
    assert mechanism.single(1.0) == acc.Gaussian(1.2)
    assert mechanism.single(2.0) == acc.Gaussian(0.6)
    assert Gaussian(noise_multiplier=0.0).single(1.0) == acc.NonPrivate()
    poisson = Poisson(size=5, population=50)
    assert mechanism.event(2.0, poisson, 7) == acc.Gaussian(0.6).poisson(0.1) * 7
    fixed = FixedSize(size=5, population=50)
    assert mechanism.event(1.0, fixed, 7) == acc.Gaussian(1.2).without_replacement(5, 50) * 7


def test_every_round_has_noise_of_its_own_and_the_same_one_when_it_is_repeated():
    source = RandomSource.from_seed(2)

    def noise(round: int, label: str = "noise") -> torch.Tensor:
        mechanism = Gaussian(noise_multiplier=1.0, label=label)
        return mechanism.release(torch.zeros(1000, dtype=torch.float64), scale=1.0, round=round, source=source)

    assert torch.equal(noise(3), noise(3))
    others = [noise(3), noise(4), noise(3, "count noise")]
    # A correlation of independent draws has a standard deviation of 0.032: false alarm below 1e-6 at fixed seeds.
    assert np.abs(np.corrcoef(torch.stack(others).numpy()) - np.eye(3)).max() < 0.16


def test_the_noise_that_is_left_next_to_another_release_costs_the_rest():
    left = Gaussian(noise_multiplier=1.1).sharing(4.0)
    both = left.single(1.0) + acc.Gaussian(4.0)
    assert acc.guarantee(both).epsilon(1e-6) == pytest.approx(acc.guarantee(acc.Gaussian(1.1)).epsilon(1e-6), rel=1e-9)
    assert Gaussian(noise_multiplier=0.0).sharing(0.0).noise_multiplier == 0.0
    with pytest.raises(InputError, match=r"noise multiplier 1 leaves nothing for the sum at 1\.1"):
        Gaussian(noise_multiplier=1.1).sharing(1.0)


def test_noise_on_an_unbounded_sum_is_refused():
    with pytest.raises(InputError, match=r"scale must be > 0, got 0.0; noise on an unbounded sum protects no one"):
        Gaussian(noise_multiplier=1.0).release(
            torch.zeros(3, dtype=torch.float64), scale=0.0, round=0, source=RandomSource.from_seed(0)
        )


def test_negative_noise_is_refused():
    with pytest.raises(InputError, match="noise_multiplier must be >= 0"):
        Gaussian(noise_multiplier=-1.0)


# Discrete Gaussian and Laplace noise.

# The exact sampler against the probabilities of the discrete Gaussian, and the proof that its cost is a real one's.


def drawn(variance: Fraction, count: int, label: str = "noise") -> np.ndarray:
    return discrete_gaussian(RandomSource.from_seed(7).stream(label, str(variance)), variance, count)


def mass(variance: float, points: np.ndarray) -> np.ndarray:
    """By summing exp(−x²/2v) over 60 std."""
    reach = math.ceil(60 * math.sqrt(variance)) + 2
    everywhere = np.exp(-(np.arange(-reach, reach + 1, dtype=float) ** 2) / (2 * variance)).sum()
    return np.exp(-(points.astype(float) ** 2) / (2 * variance)) / everywhere


@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(1), Fraction(7, 3), Fraction(25), Fraction(2.71**2)])
def test_single_numbers_come_as_often_as_they_shall(variance):
    """Chi-square on 60,000 draws; false alarms 1e-4 each, seeds fixed."""
    draws = drawn(variance, 60_000)
    reach = math.ceil(4 * math.sqrt(variance))
    points = np.arange(-reach, reach + 1)
    expected = mass(float(variance), points) * len(draws)
    counts = np.array([(draws == x).sum() for x in points])
    kept = expected > 5
    counts = np.append(counts[kept], len(draws) - counts[kept].sum())
    expected = np.append(expected[kept], len(draws) - expected[kept].sum())
    if expected[-1] < 5:
        counts, expected = counts[:-1], expected[:-1] * counts[:-1].sum() / expected[:-1].sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("std", [50.0, 400.3, 1e6])
def test_wide_draws_fall_into_twenty_classes_of_equal_probability(std):
    """Chi-square against the normal distribution, which the discrete one is but for the class borders."""
    draws = drawn(Fraction(std) ** 2, 40_000)
    borders = np.floor(stats.norm.ppf(np.arange(1, 20) / 20) * std) + 0.5
    shares = np.diff(np.concatenate([[0.0], stats.norm.cdf(borders / std), [1.0]]))
    counts = np.bincount(np.searchsorted(borders, draws), minlength=20)
    assert stats.chisquare(counts, shares * len(draws)).pvalue > 1e-4


def test_low_digits_of_wide_draws_are_uniform():
    """A sampler that rounds a floating-point number has gaps there."""
    counts = np.bincount(drawn(Fraction(10**12), 64_000) % 16, minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_same_stream_gives_the_same_draws_and_another_gives_others():
    assert (drawn(Fraction(25), 100) == drawn(Fraction(25), 100)).all()
    assert (drawn(Fraction(25), 100) != drawn(Fraction(25), 100, "other")).any()


@pytest.mark.parametrize("std", [5, 1_000, 1_000_000])
def test_five_thousand_draws_take_well_below_a_second(std):
    tracemalloc.start()
    start = time.process_time()
    assert len(drawn(Fraction(std) ** 2, 5_000)) == 5_000
    taken = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 0.8
    assert peak < 20e6  # the same for every std


class Words(Stream):
    """A stream whose words are told in advance."""

    def __init__(self, words: list[int]) -> None:
        self.words = iter(words)

    def uint64(self, count: int) -> np.ndarray:
        return np.array(list(itertools.islice(self.words, count)), np.uint64)


def test_a_coin_that_ties_on_its_first_digit_is_decided_by_the_next():
    third = np.array([1], object)
    digit = 2**64 // 3
    assert _is_below(Words([digit - 1]), third, 3)[0]
    assert not _is_below(Words([digit + 1]), third, 3)[0]
    assert _is_below(Words([digit, digit - 1]), third, 3)[0]
    assert not _is_below(Words([digit, digit, digit + 1]), third, 3)[0]


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(10**32)])
def test_a_variance_that_is_none_or_too_large_is_refused(variance):
    with pytest.raises(InputError, match=r"variance must be > 0|std must be in"):
        drawn(variance, 1)


@pytest.mark.parametrize("centre", [0.0, 0.25, 0.5])
def test_sums_over_the_integers_hardly_depend_on_the_centre(centre):
    """The bound of docs/explanation/votes.md at s where doubles see it, and at s = 3 where they do not."""
    z = np.arange(-200, 201)
    for s in (0.6, 0.8, 1.0, 3.0):
        total = np.exp(-((z - centre) ** 2) / (2 * s * s)).sum()
        off = abs(total / (s * math.sqrt(2 * math.pi)) - 1)
        assert off <= 2.0001 * math.exp(-2 * math.pi**2 * s * s) + 1e-15


@pytest.mark.parametrize("centre", [0, 0.3])
def test_a_real_gaussian_rounded_at_random_is_a_discrete_one(centre):
    """Numerically for s = 1, where the factor is 1 ± 1e-8: the sum of a normal number of variance v + rounding."""
    v, s, x = 4.0, 1.0, np.arange(-12, 13)
    reals = np.linspace(-30, 30, 60_001)
    z = np.arange(-40, 41)
    rounding = np.exp(-((x[:, None] - reals) ** 2) / (2 * s * s))
    rounding /= np.exp(-((z[:, None] - reals) ** 2) / (2 * s * s)).sum(axis=0)
    density = np.exp(-((reals - centre) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v)
    found = (rounding * density).sum(axis=1) * (reals[1] - reals[0])
    expected = np.exp(-((x - centre) ** 2) / (2 * (v + s * s)))
    expected /= np.exp(-((z - centre) ** 2) / (2 * (v + s * s))).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_the_lattice_variance_is_the_exact_square_and_nine():
    assert lattice_variance(0.1) == Fraction(0.1) ** 2 + 9


# Discrete Laplace noise: its distribution, without rounding.


@pytest.mark.parametrize(("rate", "seed"), [(0.3, 1), (1.0, 2), (2.5, 3), (2 / 3, 4)])
def test_draws_have_their_probabilities(rate, seed):
    """Chi-square, Bonferroni over four rates: one false alarm in 10^4."""
    count = 40_000
    drawn = discrete_laplace(RandomSource.from_seed(seed).stream("test"), rate=rate, count=count)
    most = int(7 / rate)
    q = math.exp(-rate)
    inner = (1 - q) / (1 + q) * q ** np.abs(np.arange(-most, most + 1))
    tail = q ** (most + 1) / (1 + q)
    expected = np.array([tail, *inner, tail]) * count
    seen = np.bincount(np.clip(drawn, -most - 1, most + 1) + most + 1, minlength=2 * most + 3)
    assert scipy.stats.chisquare(seen, expected * count / expected.sum()).pvalue > 2.5e-5


def test_large_noise_is_as_wide_as_it_should_be():
    """The standard error of a standard deviation of 4,000 draws is 1.8 %; five of them: one false alarm in 10^6."""
    drawn = discrete_laplace(RandomSource.from_seed(5).stream("test"), rate=1e-4, count=4000)
    assert drawn.std() == pytest.approx(math.sqrt(2) * 1e4, rel=0.09)


def test_the_same_stream_gives_the_same_draws():
    draws = [discrete_laplace(RandomSource.from_seed(6).stream("test"), rate=0.1, count=50).tolist() for _ in range(2)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, 1e10])
def test_a_rate_out_of_range_is_refused(rate):
    with pytest.raises(InputError, match="rate must be"):
        discrete_laplace(RandomSource.from_seed(0).stream("test"), rate=rate, count=1)
