"""Shamir shares of whole numbers, over a Mersenne prime, as arrays of 32-bit limbs.

A vector is split into one share a tallier: the values at 1, 2, …, m of a random polynomial of degree t whose value at 0
is the vector. Any t shares are uniform and independent of it, any t + 1 give it back. Shares of a sum are the sums of
shares. With 2^q − 1 as the prime, what overflows q bits is added at the bottom again, so that all is done in NumPy's
64-bit words.

>>> from sfumato._random import RandomSource
>>> shares = FIELD.split(np.array([5, 0, 7]), 3, 1, RandomSource.from_seed(1).stream("ballot shares", "a"))
>>> points = [[int(x) for x in FIELD.numbers(each)] for each in shares]
>>> [(2 * one - two) % FIELD.modulus for one, two in zip(*points[:2])]
[5, 0, 7]
"""

from dataclasses import dataclass

import numpy as np

from sfumato._random import Stream

_LIMB = 32
_MASK = np.uint64(2**_LIMB - 1)


@dataclass(frozen=True)
class Field:
    """The whole numbers modulo 2^bits − 1, which must be a prime.

    Attributes:
        bits: of the modulus.
    """

    bits: int

    @property
    def modulus(self) -> int:
        """The prime."""
        return 2**self.bits - 1

    @property
    def limbs(self) -> int:
        """32-bit words of one number."""
        return -(-self.bits // _LIMB)

    @property
    def _top(self) -> int:
        return self.bits - _LIMB * (self.limbs - 1)  # bits of the highest limb

    def split(self, values: np.ndarray, parties: int, threshold: int, stream: Stream) -> np.ndarray:
        """Shares of numbers >= 0: int64 [n] -> uint32 [parties, n, limbs].

        A coefficient is uniform but for 2^-bits: 0 is drawn as 0 and as the modulus.
        """
        shape = (threshold, len(values), self.limbs)
        drawn = np.frombuffer(stream.bytes(4 * int(np.prod(shape))), "<u4").astype(np.uint64).reshape(shape)
        drawn[..., -1] &= np.uint64(2**self._top - 1)
        secret = np.zeros(shape[1:], np.uint64)
        secret[:, 0], secret[:, 1] = values.astype(np.uint64) & _MASK, values.astype(np.uint64) >> np.uint64(_LIMB)
        shares = np.empty((parties, *shape[1:]), np.uint32)
        for place in range(1, parties + 1):
            value = drawn[-1]
            for next_ in (*drawn[-2::-1], secret):  # Horner
                value = self.reduced(value * np.uint64(place) + next_)
            shares[place - 1] = value
        return shares

    def reduced(self, limbs: np.ndarray) -> np.ndarray:
        """The remainders of numbers whose limbs may have grown to 62 bits; uint64 [n, limbs], each below 2^32 then."""
        limbs = limbs.copy()
        top = np.uint64(self._top)
        for _ in range(3):
            for place in range(self.limbs - 1):
                limbs[:, place + 1] += limbs[:, place] >> np.uint64(_LIMB)
                limbs[:, place] &= _MASK
            limbs[:, 0] += limbs[:, -1] >> top
            limbs[:, -1] &= np.uint64(2**self._top - 1)
        limbs[~self.within(limbs)] = 0  # the modulus itself
        return limbs

    def within(self, limbs: np.ndarray) -> np.ndarray:
        """Which numbers are below the modulus; [n, limbs] -> bool [n]."""
        highest = 2**self._top - 1
        full = (limbs[:, :-1] == _MASK).all(axis=1)
        return (limbs[:, -1] < highest) | ((limbs[:, -1] == highest) & ~full)

    def numbers(self, limbs: np.ndarray) -> np.ndarray:
        """Python's whole numbers; [n, limbs] -> object [n]."""
        words = limbs.astype(np.uint64)
        found = (words[:, 0] | words[:, 1] << np.uint64(_LIMB)).astype(object)
        for place in range(2, self.limbs):
            found += words[:, place].astype(object) << (_LIMB * place)
        return found

    def to_bytes(self, numbers: np.ndarray) -> bytes:
        """Numbers of the field as they travel; object [n]."""
        words = np.empty((len(numbers), self.limbs), "<u4")
        for place in range(0, self.limbs, 2):
            part = ((numbers >> (_LIMB * place)) & (2**64 - 1)).astype(np.uint64)
            words[:, place] = part & _MASK
            if place + 1 < self.limbs:
                words[:, place + 1] = part >> np.uint64(_LIMB)
        return words.tobytes()

    def limbs_of(self, content: bytes) -> np.ndarray:
        """What travelled, uint32 [n, limbs]; the caller has checked its length."""
        return np.frombuffer(content, "<u4").reshape(-1, self.limbs)


FIELD = Field(89)
"""Of all shares. Smaller primes would not be faster, as Python's numbers grow in steps of 30 bits."""
