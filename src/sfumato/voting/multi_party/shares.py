"""Shamir shares of whole numbers, and one tallier's shares of the ballots.

Shamir shares of whole numbers, over a Mersenne prime, as arrays of 32-bit limbs.

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

import hashlib
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato.voting.question import Question

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


# One tallier's shares of the ballots, added up as they come.
#
# Memory does not grow with the agents, but for one number of the field for each where ballots are checked.
#
# **The check of one-hot ballots.** Let v be an agent's ballot, u the units, V its rows' sums. It is in range if all
# v(v − u) and V(V − u) are 0. And its shares lie on a polynomial of degree t, which the values at all m places show:
# for k > t the coefficient D_k of degree k must be 0. With coefficients r that agents do not know when they vote, one
# linear combination of all these is 0, for a ballot that is out of range, with probability 1/p only. A tallier computes
# its summand of that combination from its own share: products of two shares are on a polynomial of degree 2t, whose
# value at 0 is a sum of λ_i times the value of tallier i; D_k is such a sum, too, with other weights c_ki. `engine`
# opens whether the combination is 0 and nothing else.


class Box:
    """The shares that one tallier was sent for one question.

    Args:
        question: what is asked.
        field: of the shares.
        place: of this tallier, from 1.
        talliers: how many there are.
        coins: 32 bytes that all talliers know and no agent does.
    """

    def __init__(self, question: Question, field: Field, *, place: int, talliers: int, coins: bytes) -> None:
        self.question, self.field = question, field
        self.seen: dict[str, int] = {}
        """The agents that voted, each with this tallier's summand of the check."""
        self._digests = 0
        self._sums = np.zeros((question.queries * question.classes, field.limbs), np.uint64)
        self._coins = _Coins(question, field, coins, place, talliers) if question.one_hot else None

    def add(self, agent: str, content: bytes) -> None:
        """Take one ballot.

        Raises:
            InputError: the agent voted already or is one too many, or this is no share of a ballot for the question.
        """
        if agent in self.seen:
            raise InputError(f"agent {agent!r} votes twice; one ballot an agent")
        if len(self.seen) == self.question.agents:
            raise InputError(f"agent {agent!r} is one too many; {self.question.agents} were asked")
        expected = 4 * self._sums.size
        if len(content) != expected:
            raise InputError(f"agent {agent!r}: a share of its ballot has {expected} bytes, got {len(content)}")
        limbs = self.field.limbs_of(content)
        if not self.field.within(limbs).all():
            raise InputError(f"agent {agent!r}: a share of its ballot is out of the field; cast it anew")
        self.seen[agent] = self._coins.summand(self.field.numbers(limbs)) if self._coins else 0
        self._sums += limbs
        self._digests ^= int.from_bytes(hashlib.sha256(agent.encode() + b"\0" + content).digest())

    @property
    def full(self) -> bool:
        """Whether all agents voted."""
        return len(self.seen) == self.question.agents

    @property
    def digest(self) -> str:
        """Of all that was sent, in any order: the same again only for the same ballots, shared in the same way."""
        return f"{self._digests:064x}"

    def share(self) -> np.ndarray:
        """This tallier's share of the sum, object [queries × classes]."""
        return self.field.numbers(self.field.reduced(self._sums))

    def checks(self) -> tuple[list[str], np.ndarray]:
        """The agents in the order of their names, and this tallier's summands of their checks."""
        names = sorted(self.seen)
        return names, np.array([self.seen[name] for name in names], object)


class _Coins:
    """The random linear combination of what must be 0."""

    def __init__(self, question: Question, field: Field, coins: bytes, place: int, talliers: int) -> None:
        stream = RandomSource(coins, "os").stream("ballot check")

        def drawn(count: int) -> np.ndarray:
            words = np.frombuffer(stream.bytes(4 * field.limbs * count), "<u4").reshape(count, field.limbs)
            return field.numbers(words) % field.modulus

        self._shape, self._units, self._modulus = (question.queries, question.classes), question.units, field.modulus
        self._entries, self._rows = drawn(question.queries * question.classes), drawn(question.queries)
        threshold = (talliers - 1) // 2
        lagrange = top_coefficients(field.modulus, talliers)
        # weights c_ki / λ_i, as `engine` weighs every summand with λ_i
        to_share = pow(lagrange[0][place - 1], -1, field.modulus)
        degrees = [lagrange[degree][place - 1] * to_share % field.modulus for degree in range(threshold + 1, talliers)]
        self._degrees = sum(drawn(len(self._entries)) * weight for weight in degrees) % field.modulus

    def summand(self, share: np.ndarray) -> int:
        rows = share.reshape(self._shape).sum(axis=1)
        total = (self._entries * share) @ (share - self._units) + (self._rows * rows) @ (rows - self._units)
        return int((total + self._degrees @ share) % self._modulus)


def top_coefficients(modulus: int, talliers: int) -> list[list[int]]:
    """Weights of the values at 1, …, m that give the coefficients of their polynomial; [degree][place − 1].

    >>> [sum(w * v for w, v in zip(weights, (6, 11, 18))) % 97 for weights in top_coefficients(97, 3)]  # x² + 2x + 3
    [3, 2, 1]
    """
    weights = [[0] * talliers for _ in range(talliers)]
    for place in range(1, talliers + 1):
        polynomial, divisor = [1], 1  # Lagrange's, lowest degree first
        for other in range(1, talliers + 1):
            if other != place:
                shifted = [0, *polynomial]
                polynomial = [a - other * b for a, b in zip(shifted, [*polynomial, 0])]
                divisor *= place - other
        inverse = pow(divisor, -1, modulus)
        for degree, coefficient in enumerate(polynomial):
            weights[degree][place - 1] = coefficient * inverse % modulus
    return weights
