"""Normal numbers: the table, the tails, and those of a device."""

import hashlib
import math
import tracemalloc

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato._normals import _SHARE, PAIRS, TILE, Keystream
from sfumato._random import RandomSource

# Normal draws: what is computed, that threads and pieces cannot change it, how it is distributed, what it needs.
#
# Randomness is fresh, or the seed is fixed; each statistical test raises a false alarm once in 10^9 runs.

RARE = 1e-9
COUNT = 2 * _SHARE + 3 * TILE + 12_345


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    return RandomSource.from_os().stream("noise", 0).normal(8_000_000, threads=2)


def stream(*labels, seed: int = 5):
    return RandomSource.from_seed(seed).stream(*labels)


def test_they_are_box_and_muller_of_the_keystream():
    key = RandomSource.from_seed(5).key
    subkey = hashlib.shake_256(key + b"normals" + b"str:noise\x1fint:3").digest(32)
    got = stream("noise", 3).normal(3 * TILE)
    for place in (0, 1, 7, PAIRS - 1, TILE, TILE + 4321, 3 * TILE - PAIRS - 1):
        tile, pair = divmod(place, TILE)
        at = [tile * TILE + pair, tile * TILE + PAIRS + pair]
        words = [Keystream(subkey).read(word // 2, 16)[8 * (word % 2) :][:8] for word in at]
        first, second = (int.from_bytes(word, "little", signed=True) for word in words)
        radius = math.sqrt(-2 * math.log(abs(first | 1) * 2.0**-63))
        angle = math.pi * second / 2.0**63
        assert got[place] == pytest.approx(radius * math.cos(angle), rel=1e-12, abs=1e-14)
        assert got[place + PAIRS] == pytest.approx(radius * math.sin(angle), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("skipped", [0, 777])
def test_threads_do_not_change_them(threads, skipped):
    one, several = stream("noise"), stream("noise")
    one.normal(skipped)
    several.normal(skipped)
    assert (one.normal(COUNT) == several.normal(COUNT, threads=threads)).all()


def test_pieces_do_not_change_them():
    whole = stream("noise").normal(COUNT, threads=2)
    for seed in range(5):
        sizes = np.random.default_rng(seed).integers(0, [1, 7, PAIRS, TILE, _SHARE], size=(40, 5)).ravel()
        pieces, taken = stream("noise"), 0
        for size in [1, 1, PAIRS - 2, 1, 1, PAIRS - 1, *sizes]:
            size = min(int(size), COUNT - taken)
            assert (pieces.normal(size, threads=1 + size % 2) == whole[taken : taken + size]).all()
            taken += size


def test_words_in_between_do_not_change_them():
    one, other = stream("noise"), stream("noise")
    other.uint64(5)
    assert (one.normal(10) == other.normal(10)).all()
    assert (one.uint64(3) == stream("noise").uint64(3)).all()


def test_they_are_added_with_their_std():
    total = np.arange(1000, dtype=np.float64)
    stream("noise").add_normal(total, std=0.25)
    assert total - np.arange(1000) == pytest.approx(0.25 * stream("noise").normal(1000), abs=1e-12)
    single = np.zeros(1000, dtype=np.float32)
    stream("noise").add_normal(single, std=1e-10)
    assert single == pytest.approx(1e-10 * stream("noise").normal(1000), rel=1e-6)
    assert (stream("noise").normal(0) == np.empty(0)).all()


def test_a_tiny_std_still_adds_noise():
    total = np.zeros(100)
    stream("noise").add_normal(total, std=1e-250)
    assert total.std() == pytest.approx(1e-250, rel=0.5)


def test_their_moments_are_those_of_a_normal_variable(draws):
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        found = ((draws**power).mean() - mean) * math.sqrt(draws.size / variance)
        assert abs(found) < stats.norm.isf(RARE / 2), power


def test_their_distribution_function_is_normal(draws):
    assert stats.kstest(draws, "norm").pvalue > RARE
    places = stats.norm.ppf(np.arange(1, 1000) / 1000)
    counts = np.bincount(np.searchsorted(places, draws), minlength=1000)
    assert stats.chisquare(counts).pvalue > RARE


@pytest.mark.parametrize("beyond", [3.0, 4.0, 5.0])
def test_their_tails_hold_as_much_as_a_normal_variable(draws, beyond):
    for found in ((draws > beyond).sum(), (draws < -beyond).sum()):
        low, high = stats.binom.ppf([RARE / 4, 1 - RARE / 4], draws.size, stats.norm.sf(beyond))
        assert low <= found <= high


@pytest.mark.slow
def test_far_tails_hold_as_much_too():
    found = sum((np.abs(stream("noise", part, seed=1).normal(1 << 23, threads=2)) > 5.0).sum() for part in range(12))
    low, high = stats.binom.ppf([RARE / 2, 1 - RARE / 2], 12 << 23, 2 * stats.norm.sf(5.0))  # 58 are expected
    assert 0 < low <= found <= high


def test_the_smallest_and_largest_radius_are_finite(monkeypatch):
    """All words that a keystream can hold give numbers: zero, the least and the largest."""
    values = np.array([0, 1, -1, -(2**63), 2**63 - 1, 2**62], dtype="<i8")

    def fill(self, block, words):
        words[:] = np.resize(np.repeat(values, 6) if block == 0 else values, words.shape)

    monkeypatch.setattr(Keystream, "fill", fill)
    numbers = stream("noise").normal(TILE)
    assert np.isfinite(numbers).all()
    assert np.abs(numbers).max() == pytest.approx(math.sqrt(126 * math.log(2)))


def test_neighbours_and_the_two_of_a_pair_are_uncorrelated(draws):
    tiles = draws[: draws.size // TILE * TILE].reshape(-1, 2, PAIRS)
    pairs = [
        (tiles[:, 0], tiles[:, 1]),
        (np.abs(tiles[:, 0]), np.abs(tiles[:, 1])),
        (tiles[:, :, 1:], tiles[:, :, :-1]),
        (tiles[1:], tiles[:-1]),
    ]
    for one, other in pairs:
        correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        assert abs(correlation) * math.sqrt(one.size) < stats.norm.isf(RARE / 2)


def test_the_sum_of_squares_of_a_pair_is_exponential(draws):
    tiles = draws[: draws.size // TILE * TILE].reshape(-1, 2, PAIRS)
    assert stats.kstest((tiles**2).sum(axis=1).ravel() / 2, "expon").pvalue > RARE


def test_other_labels_and_keys_give_other_draws():
    kinds = [stream("noise", 0), stream("noise", 1), stream("count noise", 0), stream("noise", 0, seed=6)]
    numbers = [kind.normal(100_000) for kind in kinds]
    for index, one in enumerate(numbers):
        for other in numbers[:index]:
            assert not np.isin(one, other).any()
            assert abs(np.corrcoef(one, other)[0, 1]) < 6.2 / math.sqrt(100_000)


def test_memory_does_not_grow_with_the_draw():
    total = np.zeros(1 << 23)
    tracemalloc.start()
    try:
        stream("noise").add_normal(total, threads=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


# The normal numbers that a GPU computes are those of the processor.

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
TWO_PARTS = 65 * TILE


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("first", "count"), [(0, 1), (3, 1000), (TILE // 2 - 1, 2), (TILE - 1, 2), (5 * TILE, TILE), (7, TWO_PARTS)]
)
def test_the_numbers_are_those_of_the_processor_wherever_they_begin(device: str, first: int, count: int) -> None:
    one, other = (RandomSource.from_seed(5).stream("a stream of this test") for _ in range(2))
    one.normal(first)
    other.normal(first)
    expected, found = np.full(count, 0.5), torch.full((count,), 0.5, dtype=torch.float64, device=device)
    one.add_normal(expected, std=3.0, threads=2)
    other.add_normal_on_device(found, std=3.0, threads=2)
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("device", DEVICES)
def test_two_calls_go_on_where_the_first_ended(device: str) -> None:
    stream, other = (RandomSource.from_seed(6).stream("a stream of this test") for _ in range(2))
    whole = torch.zeros(TILE + 10, dtype=torch.float64, device=device)
    stream.add_normal_on_device(whole)
    parts = torch.zeros_like(whole)
    for part in parts.split(1000):
        other.add_normal_on_device(part)
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_gets_the_rounded_numbers(device: str) -> None:
    wide, narrow = (RandomSource.from_seed(7).stream("a stream of this test") for _ in range(2))
    expected, found = torch.zeros(100, dtype=torch.float64), torch.zeros(100, device=device)
    wide.add_normal_on_device(expected, std=2.0)
    narrow.add_normal_on_device(found, std=2.0)
    assert torch.allclose(found.cpu(), expected.float(), rtol=1e-6, atol=1e-12)
