"""Random streams: keys, labels, and the bits behind them."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from sfumato._normals import Keystream
from sfumato._random import RandomSource

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


def test_labels_and_their_types_tell_streams_apart():
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


def test_what_a_run_costs_can_be_told_without_openssl():
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
