"""Randomness as a pure function of a key and a label, so that a resumed run repeats itself exactly.

A run has one 256-bit key. A released run takes it from the operating system's CSPRNG; a seeded run derives it
from the seed, and exists for tests and simulation only. Every draw comes from the stream of SHAKE-256 over
(key, labels, block), where the labels name the purpose and the round: `source.stream("noise", 7)`. Streams with
different labels are independent, sampling and noise never share one, and a round that is repeated after a crash
draws the same noise again instead of spending a second draw.

Who knows the key can subtract the noise: it is kept in the checkpoint folder only, readable by its owner, and is
deleted when the run ends.

>>> RandomSource.from_seed(1).stream("noise", 0).normal(2).round(3).tolist()
[1.399, 0.738]
"""

import hashlib
import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

_BLOCK = 1 << 18  # bytes from one call of SHAKE; bounds the memory of a long draw


class Stream:
    """Draws from one labelled stream, in order. Not shared between purposes."""

    def __init__(self, key: bytes, label: bytes) -> None:
        self._prefix = len(label).to_bytes(4, "big") + label
        self._key = key
        self._block = 0
        self._rest = b""

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes."""
        parts = [self._rest]
        have = len(self._rest)
        while have < count:
            size = min(_BLOCK, max(64, count - have))
            hashed = hashlib.shake_256(self._key + self._prefix + self._block.to_bytes(8, "big"))
            parts.append(hashed.digest(size))
            self._block += 1
            have += size
        joined = b"".join(parts)
        self._rest = joined[count:]
        return joined[:count]

    def uint64(self, count: int) -> np.ndarray:
        """Uniform 64-bit integers, shape [count]."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")

    def uniform(self, count: int) -> np.ndarray:
        """Uniform in the open interval (0, 1), 53 bits, shape [count]."""
        return ((self.uint64(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

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

    def permutation(self, count: int) -> np.ndarray:
        """A uniform permutation of range(count): the order of random 64-bit keys, ties redrawn."""
        while True:
            keys = self.uint64(count)
            order = np.argsort(keys, kind="stable")
            if count < 2 or (np.diff(keys[order]) != 0).all():
                return order

    def normal(self, count: int) -> np.ndarray:
        """Standard normal draws, float64 [count], by Box and Muller."""
        pieces = list(self.normals(count))
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0), *pieces])

    def normals(self, count: int) -> Iterator[np.ndarray]:
        """The same draws in pieces that stay in the cache, float64 [at most 65,536] each, to be used up in order."""
        left = count
        while left > 0:
            size = min(_BLOCK // 8, (left + 1) // 2)
            u = self.uniform(2 * size)
            radius = np.sqrt(-2.0 * np.log(u[:size]))
            angle = 2.0 * math.pi * u[size:]
            pairs = np.empty((size, 2))
            np.multiply(radius, np.cos(angle), out=pairs[:, 0])
            np.multiply(radius, np.sin(angle), out=pairs[:, 1])
            yield pairs.reshape(-1)[:left]
            left -= 2 * size


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
        return cls(secrets.token_bytes(32), "os")

    @classmethod
    def from_seed(cls, seed: int) -> "RandomSource":
        """A key derived from a seed: anyone can repeat the run, so it protects nobody."""
        return cls(hashlib.sha256(b"sfumato seed %d" % seed).digest(), "seeded")

    def stream(self, *labels: str | int) -> Stream:
        """The stream of these labels; the same labels give the same draws."""
        return Stream(self.key, _label(labels))

    def seed64(self, *labels: str | int) -> int:
        """A 63-bit seed for a library's own generator, where cryptographic strength is not needed."""
        return int.from_bytes(hashlib.shake_256(self.key + b"seed" + _label(labels)).digest(8), "little") >> 1


def _label(labels: tuple[str | int, ...]) -> bytes:
    return "\x1f".join([f"{type(x).__name__}:{x}" for x in labels]).encode()
