"""Randomness as a pure function of a key and a label, so that a resumed run repeats itself exactly.

A run has one 256-bit key. A released run takes it from the operating system's CSPRNG; a seeded run derives it
from the seed, and exists for tests and simulation only. Every draw comes from a keystream of AES-256 whose own key is
SHAKE-256 over (key, labels), where the labels name the purpose and the round: `source.stream("noise", 7)`. Streams with
different labels are independent, sampling and noise never share one, and a round that is repeated after a crash
draws the same noise again instead of spending a second draw.

All draws of the package, by the first label. Where several draws stand, a run has one of them:

| first label | further ones | what is drawn | by |
| --- | --- | --- | --- |
| `noise` | round | noise on the sum | `mechanisms.gaussian`, `mechanisms.correlated` |
| `count noise` | round | the noise on adaptive clipping's count | `mechanisms.gaussian` |
| `tree noise of rows` | table, step | the noise of a tree's node in rows of a table | `mechanisms.deferred` |
| `deferred noise` | table, step of reading | the noise that rows of a table are owed | `mechanisms.deferred` |
| `sampling` | round | who takes part | `sampling.sampler`, `sampling.sampler`, `sampling.sampler` |
| `parts` | | which part each unit is dealt into | `sampling.sampler` |
| `epochs` | epoch | the order of an epoch | `sampling.limited` |
| `check-ins` | round | who checks in, who is chosen and who does not report | `sampling.limited` |
| `groups` | round | each user's slot | `sampling.sampler` |
| `ledger` | | the name by which a ledger's entries know their run | `runs.run` |
| `dropout` | round, first example | seed: what the model draws in a micro-batch | `central.gradients` |
| `look` | step, how | which steps are looked at while training | `guard.guard` |
| `look micro-batch` | round | which micro-batch of such a step | `central.gradients` |
| `look clients` | round | which clients are trained again | `federated.contribution` |
| `look agents` | | which agent votes again | `voting.run` |
| `augmentation` | round | seed: what is drawn while examples are read | `central.gradients` |
| `witness` | round | the key of a step's word, in a loop of one's own | `central.custom_loop.contribution` |
| `statistics` | round | seed: what the model draws for public inputs | `central.gradients` |
| `public batch` | round | which rows' inputs a noisy mean is projected by | `central.projection` |
| `public draws` | round, place | seed: what is drawn for these inputs, and by the model | `central.projection` |
| `local` | round, slot | seed: a client's order and draws | `federated.contribution`, `federated.contribution` |
| `negatives` | round, slot | which public classes and examples a client gets | `federated.negatives` |
| `initial head` | | seed: the first weights of a shared head | `training.fit` |
| `supervised order` | which rows, epoch | the order of an epoch of plain training | `training.supervised` |
| `mixup` | step | how a batch is mixed with itself | `training.supervised` |
| `supervised draws` | | seed: what the model draws in plain training | `training.supervised` |
| `domain classifier` | | seed: the first weights of the domain classifier | `voting.adaptation` |
| `smoothness` | | seed: in which directions a student's worst neighbours are sought | `voting.student` |
| `votes` | user | which of a user's words are counted | `federated.vocabulary` |
| `vote noise` | | the noise on the words' votes | `federated.vocabulary` |
| `candidate` | | which public direction is chosen, by the number of centres around it | `federated.clustering` |
| `cap noise` | | the noise on the sum of the centres of a cap, and on their number | `federated.clustering` |
| `row counts` | | the noise on how many units read a row, before training | `central.frequent_rows` |
| `row count noise` | table, round | the noise on how many examples read a row | `training.row_tables` |
| `false survivors` | table, round | which rows that were not read are above the threshold | `training.row_tables` |
| `row noise` | table, round | the noise on the gradient of rows that are above it | `training.row_tables` |
| `silo` | round, silo | seed: a silo's order and draws, alone or joint | `federated.silos`, `federated.silos` |
| `silos` | round | which silo is offline, by a public seed | `federated.privacyface` |
| `warm-up` | | seed: the order and draws of the training on public identities | `federated.silos` |
| `centre noise` | silo's place | the noise on every centre, in a comparison | `federated.silos` |
| `row order` | | the order that rows with randomised labels are put into | `labels.randomize`, `labels.plan` |
| `label release` | | the name of a release in the record of its table | `labels.randomize` |
| `label words` | | a word for each label, in the order of the rows | `labels.response` |
| `label histogram` | | the noise on the labels that are counted for a prior | `labels.priors` |
| `tallier noise` | what it is on | a tallier's share of the noise | `voting.multi_party.tallier` |
| `ballot shares` | token, agent, ballot | what hides a ballot in its shares | `voting.multi_party.tally` |
| `ballot check` | | what talliers check ballots with, from coins of their own | `voting.multi_party.shares` |
| `tally noise` | | the noise on the counts of all queries | `voting.tally` |
| `threshold noise` | | the noise on the highest counts | `voting.tally` |
| `generated rows` | block, what | rows of a generated log | `data.zipf_clicks` |
| `planted truth` | of what | the weights of its scores | `data.zipf_clicks` |
| `tally token` | | the name of a question, for the tally | `voting.run` |
| `cost of votes` | | the noise on what the answers cost | `voting.run` |
| `stages` | | which rows are in which stage, by a public seed | `labels.lp_mst` |
| `made-up numbers` | | the placeholders of a trial training, by a public seed | `labels.rr_on_bins` |
| `queries` | | which of the pool is asked about, by a public seed | `voting.public_pool` |
| `ehr categories` | step | seed: which rows of categories are learned from | `synthesis.training` |
| `ehr order` | epoch | the order of an epoch of health records | `synthesis.records` |
| `ehr scores` | epoch | seed: where in its interval each number lies | `synthesis.training` |
| `ehr latent noise` | step | seed: what is added to latent vectors | `synthesis.training` |
| `ehr encoded` | draw | seed: the numbers that latent vectors are made of | `synthesis.run` |
| `ehr gan` | step | seed: all draws of a step of the generator | `synthesis.training` |
| `ehr weights` | | seed: the first weights | `synthesis.run` |
| `ehr static calibration` | pass | seed: static columns to calibrate on | `synthesis.synthesizer` |
| `ehr calibration` | pass | seed: records to calibrate on | `synthesis.synthesizer` |
| `ehr records` | block | seed: new records | `synthesis.synthesizer` |
| `private weights` | | seed: the first weights of a private run | `synthesis.run` |
| `private categories` | | seed: the placeholder categories that it learns from | `synthesis.run` |
| `private encoded` | draw | seed: the numbers that its latent vectors have | `synthesis.run` |
| `private scores` | epoch | seed: where in its interval each number lies | `synthesis.gradients` |
| `private latent noise` | round | what is added to a latent vector | `synthesis.gradients` |
| `private gan` | round | made vectors, by patient | `synthesis.gradients` |
| `private generator` | round | seed: what the generator's step is drawn from | `synthesis.gradients` |
| `private generator end` | | seed: the same for its last step | `synthesis.gradients` |
| `private selection` | ε | how many runs a choice of settings has, and their settings | `cli.ads_sweep` |
| `evaluation` | part | seed: what is drawn to measure synthetic records | `audit.ehr.evaluate` |
| `initial model` | | seed: the first weights | `cli.models`, `models.catalogue` |
| `examples` | `test` | which positions are kept for the test, by a public seed | `data.split` |
| `glyphs` | `identities` | which characters are chosen, by a public seed | `data.drawn_glyphs` |
| `glyphs` | character | seed: the images of a character, by a public seed | `data.drawn_glyphs` |

What a run releases outside of a loop draws `within` a part that bears the release's own name, and a loop that is one
phase of several `within` one that bears what it begins with. Words and normal numbers
of a stream, and seeds, have keys of their own under the same labels.

Who knows the key can subtract the noise: it is kept in the checkpoint folder only, readable by its owner, and is
deleted when the run ends.

>>> RandomSource.from_seed(1).stream("noise", 0).normal(2).round(3).tolist()
[0.262, -0.939]

Well-mixed bits of a number and a key, for many numbers at once; not for noise, and not for sampling.

>>> [int(bits % np.uint64(100)) for bits in mixed_bits(np.array([0, 1]), 7, 0)]
[4, 87]
"""

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato._normals import BLOCK, Keystream, add_normals, normals_of

if TYPE_CHECKING:
    from torch import Tensor


def mixed_bits(numbers: np.ndarray, key: int | np.ndarray, stream: int | np.ndarray) -> np.ndarray:
    """64 bits for each number (the finaliser of SplitMix64), uint64 [n].

    Args:
        numbers: integers >= 0, [n].
        key: below 2^64, one or [n].
        stream: separates draws of one key, >= 0, one or [n].
    """
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.asarray(key, np.uint64)
        x += np.asarray(stream, np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


_WORDS = BLOCK // 8


_READ_AHEAD = 1 << 16  # words read at once where many of them are wanted


class Stream:
    """Draws from one labelled stream, in order. Not shared between purposes.

    Words and normal numbers have keystreams of their own: how many of the ones were drawn does not move the others.
    """

    def __init__(self, key: bytes, label: bytes) -> None:
        self._key = key
        self._label = label
        self._words: Keystream | None = None
        self._normals = 0  # how many were drawn

    def _subkey(self, what: bytes) -> bytes:
        return hashlib.shake_256(self._key + what + self._label).digest(32)

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes."""
        if self._words is None:
            self._words = Keystream(self._subkey(b"words"))
        return self._words.next(count)

    def uint64(self, count: int) -> np.ndarray:
        """Uniform 64-bit integers, shape [count]."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")

    def uniform(self, count: int) -> np.ndarray:
        """Uniform in the open interval (0, 1), odd multiples of 2^-53, shape [count]."""
        return ((self.uint64(count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def bernoulli(self, rate: float, count: int) -> np.ndarray:
        """Boolean [count], each true with probability `rate` (to 2^-64, rounded down)."""
        if rate >= 1.0:
            return np.ones(count, dtype=bool)
        return self.uint64(count) < np.uint64(math.floor(rate * 2.0**64))

    def integers(self, high: int, count: int) -> np.ndarray:
        """Uniform in {0, …, high-1}, without modulo bias, int64 [count]."""
        limit = (1 << 64) - (1 << 64) % high
        values = self.uint64(count)
        if limit < 1 << 64:
            while (bad := values >= np.uint64(limit)).any():
                values = values.copy()
                values[bad] = self.uint64(int(bad.sum()))
        return (values % np.uint64(high)).astype(np.int64)

    def integers_below(self, highs: np.ndarray) -> np.ndarray:
        """One number each, uniform in {0, …, high-1}, without modulo bias; highs uint64 [n] -> int64 [n]."""
        values = self.uint64(len(highs))
        excess = (np.uint64(2**64 - 1) % highs + np.uint64(1)) % highs  # 2^64 modulo high
        while (bad := values > np.uint64(2**64 - 1) - excess).any():
            values = values.copy()
            values[bad] = self.uint64(int(bad.sum()))
        return (values % highs).astype(np.int64)

    def words_at(self, places: np.ndarray) -> np.ndarray:
        """The words at these places of the stream, from 0; ascending int64 [n] -> uint64 [n].

        Unlike `uint64` and the others, which take words in order from a keystream of their own.
        """
        keystream, found = Keystream(self._subkey(b"places")), np.empty(len(places), np.uint64)
        done = 0
        while done < len(places):
            first = int(places[done]) // _WORDS * _WORDS
            end = int(np.searchsorted(places, first + _READ_AHEAD))
            dense = (end - done) * 64 > int(places[end - 1]) - first
            end = end if dense else done + 1
            count = int(places[end - 1]) + 1 - first
            words = np.frombuffer(keystream.read(first // _WORDS, 8 * count), dtype="<u8")
            found[done:end] = words[places[done:end] - first]
            done = end
        return found

    def permutation(self, count: int) -> np.ndarray:
        """A uniform permutation of range(count): the order of random 64-bit keys, ties redrawn."""
        while True:
            keys = self.uint64(count)
            order = np.argsort(keys, kind="stable")
            if count < 2 or (np.diff(keys[order]) != 0).all():
                return order

    def normal(self, count: int, *, threads: int = 1) -> np.ndarray:
        """The next standard normal draws, float64 [count]."""
        out = np.zeros(count)
        self.add_normal(out, threads=threads)
        return out

    def add_normal(self, out: np.ndarray, *, std: float = 1.0, threads: int = 1) -> None:
        """Add std × the next normal draws to float [n], contiguous, in place.

        Any number of threads gives the same draws, and so does any split of `out` into several calls.
        """
        add_normals(out, self._subkey(b"normals"), self._normals, std, threads)
        self._normals += len(out)

    def normals_of(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Standard normal draws of some rows, float64 [n, count]: a row has the same ones whichever others are read.

        Unlike `normal`, which takes draws in order from a keystream of its own.

        Args:
            rows: int64 [n], >= 0.
            count: of each row.
        """
        return normals_of(self._subkey(b"rows"), rows, count)

    def from_normal(self, first: int) -> "Stream":
        """The same stream, whose next normal draw is the one at this place, from 0."""
        there = Stream(self._key, self._label)
        there._normals = first
        return there

    def add_normal_on_device(self, out: "Tensor", *, std: float = 1.0, threads: int = 1) -> None:
        """The same for a float tensor [n] on a device with double precision; the last bits may differ."""
        from sfumato._device_normals import add_normals_on_device  # with torch, which accounting does without

        add_normals_on_device(out, self._subkey(b"normals"), self._normals, std, threads)
        self._normals += len(out)


@dataclass(frozen=True)
class RandomSource:
    """The key of a run and where it came from.

    Attributes:
        key: 32 secret bytes.
        kind: "os" (the operating system's CSPRNG) or "seeded" (simulation only).
    """

    key: bytes = field(repr=False)
    kind: Literal["os", "seeded"]

    @classmethod
    def from_os(cls) -> "RandomSource":
        """A fresh key from the operating system's CSPRNG."""
        import secrets

        return cls(secrets.token_bytes(32), "os")

    @classmethod
    def from_seed(cls, seed: int) -> "RandomSource":
        """A key derived from a seed: anyone can repeat the run, so it protects no one."""
        return cls(hashlib.sha256(b"sfumato seed %d" % seed).digest(), "seeded")

    def stream(self, *labels: str | int) -> Stream:
        """The stream of these labels; the same labels give the same draws."""
        return Stream(self.key, _label(labels))

    def within(self, part: str) -> "RandomSource":
        """The randomness of a part: no stream of it is one of the whole or of another part, whatever their labels."""
        return RandomSource(hashlib.shake_256(self.key + b"part" + _label((part,))).digest(32), self.kind)

    def seed64(self, *labels: str | int) -> int:
        """A 63-bit seed for a library's own generator, where cryptographic strength is not needed."""
        return int.from_bytes(hashlib.shake_256(self.key + b"seed" + _label(labels)).digest(8), "little") >> 1


def _label(labels: tuple[str | int, ...]) -> bytes:
    return "\x1f".join([f"{type(x).__name__}:{x}" for x in labels]).encode()
