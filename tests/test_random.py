"""Random streams: keys, labels, the bits behind them, and normal numbers."""

import hashlib
import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato._normals import _SHARE, PAIRS, TILE, Keystream
from sfumato._random import RandomSource

# Random streams: keys, labels, and the bits behind them.

# Labelled streams: the same labels give the same draws; coins and integers have the probabilities that they tell.

RARE = 1e-9  # false alarms


def stream(*labels, seed: int = 5):
    return RandomSource.from_seed(seed).stream(*labels)


def test_bytes_are_the_keystream_under_a_key_of_the_labels():
    key = hashlib.shake_256(RandomSource.from_seed(5).key + b"words" + b"str:sampling\x1fint:7").digest(32)
    assert stream("sampling", 7).bytes(1000) == Keystream(key).read(0, 1000)


def test_any_split_gives_the_same_bytes_and_words():
    whole = stream("a").bytes(10_000)
    split = stream("a")
    assert b"".join(split.bytes(size) for size in (0, 1, 7, 8, 16, 1000, 8968)) == whole
    words = np.frombuffer(whole, dtype="<u8")
    split = stream("a")
    assert np.concatenate([split.uint64(size) for size in (1, 2, 3, 500, 744)]).tolist() == words.tolist()


def test_labels_and_their_types_report_streams_separate():
    labels = [("a",), ("b",), ("a", 1), ("a", "1"), (1, "a"), ("a1",), ("a", 1, 1), ("a", 11)]
    firsts = {stream(*each).bytes(16) for each in labels} | {stream(*labels[0], seed=6).bytes(16)}
    assert len(firsts) == len(labels) + 1


def test_words_of_different_labels_share_nothing():
    one, other = stream("sampling", 0).uint64(50_000), stream("sampling", 1).uint64(50_000)
    assert not np.isin(one, other).any()
    agree = np.bitwise_count(~(one ^ other)).sum()
    low, high = stats.binom.ppf([RARE / 2, 1 - RARE / 2], 64 * 50_000, 0.5)
    assert low <= agree <= high


def test_every_bit_of_a_word_is_fair():
    words = RandomSource.from_os().stream("bits").uint64(200_000)
    low, high = stats.binom.ppf([RARE / 128, 1 - RARE / 128], words.size, 0.5)
    for bit in range(64):
        assert low <= (words >> np.uint64(bit) & np.uint64(1)).sum() <= high


def test_a_word_at_a_place_depends_on_the_place_alone():
    """Neither on which others are asked for, nor on how far apart they lie, nor on words that were drawn in order."""
    rng = np.random.default_rng(0)
    dense, sparse = np.arange(300_000), np.sort(rng.choice(10**12, 400, replace=False))
    mixed = np.sort(np.concatenate([rng.choice(300_000, 500, replace=False), sparse, [2**40 + 1, 2**40 + 2]]))
    asked = stream("a")
    first = dict(zip(dense.tolist(), asked.words_at(dense).tolist()))
    first.update(zip(sparse.tolist(), asked.words_at(sparse).tolist()))
    asked.uint64(9)
    again = asked.words_at(mixed).tolist()
    assert all(first.get(place, word) == word for place, word in zip(mixed.tolist(), again))
    assert [asked.words_at(np.array([place]))[0] for place in mixed[::50]] == again[::50]
    assert len(set(again)) == len(mixed)
    assert len(asked.words_at(np.empty(0, np.int64))) == 0


def test_words_at_places_are_fair_and_none_of_those_drawn_in_order():
    source = RandomSource.from_os()
    words = source.stream("places").words_at(np.arange(0, 600_000, 3))
    low, high = stats.binom.ppf([RARE / 128, 1 - RARE / 128], words.size, 0.5)
    for bit in range(64):
        assert low <= (words >> np.uint64(bit) & np.uint64(1)).sum() <= high
    assert not np.isin(words, source.stream("places").uint64(600_000)).any()
    assert not np.isin(words, source.stream("other").words_at(np.arange(600_000))).any()


class Fixed:
    """A stream of given words."""

    def __init__(self, words) -> None:
        self.stream = stream("fixed")
        self.stream.uint64 = lambda count: np.array(words[:count], dtype=np.uint64)  # type: ignore[method-assign]


@pytest.mark.parametrize("rate", [0.5, 0.01, 1 / 3, 2.0**-64, 1 - 2.0**-53])
def test_a_coin_is_exactly_its_rate_of_all_words(rate):
    """Words below the rate's share of 2^64, rounded down, come up; the first one above does not."""
    above = int(np.floor(rate * 2.0**64))
    assert above / 2**64 <= rate
    coins = Fixed([above - 1, above, 0, 2**64 - 1]).stream.bernoulli(rate, 4)
    assert coins.tolist() == [True, False, True, False]


@pytest.mark.parametrize(("rate", "all_of_them"), [(0.0, False), (2.0**-65, False), (1.0, True)])
def test_coins_at_the_ends(rate, all_of_them):
    assert (stream("coins").bernoulli(rate, 1000) == all_of_them).all()


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.5])
def test_coins_come_up_at_their_rate(rate):
    found = RandomSource.from_os().stream("coins").bernoulli(rate, 1_000_000).sum()
    low, high = stats.binom.ppf([RARE / 2, 1 - RARE / 2], 1_000_000, rate)
    assert low <= found <= high


def test_uniforms_stay_inside_of_the_open_interval():
    ends = Fixed([0, 2**64 - 1]).stream.uniform(2)
    assert 0 < ends[0] < 1e-15
    assert 1 - 1e-15 < ends[1] < 1
    assert stats.kstest(RandomSource.from_os().stream("u").uniform(200_000), "uniform").pvalue > RARE


def test_permutations_are_uniform():
    counts: dict[tuple[int, ...], int] = {}
    draws = RandomSource.from_os().stream("p")
    for _ in range(6000):
        order = tuple(draws.permutation(3).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > RARE


def test_what_a_run_costs_can_be_reported_without_openssl():
    code = "import sys, sfumato.accounting; assert not {'cryptography', 'torch'} & set(sys.modules), 'loaded'"
    subprocess.run([sys.executable, "-c", code], check=True)


# The keystream is AES-256 in counter mode: published vectors, and reading at any place.

# NIST SP 800-38A, F.5.5 CTR-AES256.Encrypt: the "output blocks", the keystream before it meets the plaintext.
SP_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
SP_COUNTER = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF
SP_OUTPUT = (
    "0bdf7df1591716335e9a8b15c860c502"
    "5a6e699d536119065433863c8f657b94"
    "1bc12c9c01610d5d0d8bd6a3378eca62"
    "2956e1c8693536b1bee99c73a31576b6"
)
# FIPS 197, C.3: AES-256 of one block.
FIPS_KEY = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
FIPS_BLOCK = 0x00112233445566778899AABBCCDDEEFF
FIPS_OUTPUT = "8ea2b7ca516745bfeafc49904b496089"


@pytest.mark.parametrize(
    ("key", "block", "output"), [(SP_KEY, SP_COUNTER, SP_OUTPUT), (FIPS_KEY, FIPS_BLOCK, FIPS_OUTPUT)]
)
def test_it_is_the_published_cipher(key, block, output):
    assert Keystream(bytes.fromhex(key)).read(block, len(output) // 2).hex() == output


def test_words_are_those_bytes_with_the_least_significant_first():
    words = np.empty(8, dtype="<i8")
    Keystream(bytes.fromhex(SP_KEY)).fill(SP_COUNTER, words)
    assert words.tobytes().hex() == SP_OUTPUT


def test_any_place_can_be_read_first():
    stream = Keystream(bytes(32))
    whole = stream.read(0, 1 << 20)
    assert stream.read(12_345, 1000) == whole[12_345 * 16 :][:1000]
    stream.seek(0)
    assert b"".join(stream.next(size) for size in (1, 15, 16, 17, 1000, (1 << 20) - 1049)) == whole
    words = np.empty((1 << 17) - 6, dtype="<i8")
    stream.fill(3, words)
    assert words.tobytes() == whole[48:]


# Normal numbers: the table, the tails, and those of a device.

# Normal draws: what is computed, that threads and pieces cannot change it, how it is distributed, what it needs.
#
# Randomness is fresh, or the seed is fixed; each statistical test raises a false alarm once in 10^9 runs.

COUNT = 2 * _SHARE + 3 * TILE + 12_345


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    return RandomSource.from_os().stream("noise", 0).normal(8_000_000, threads=2)


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
