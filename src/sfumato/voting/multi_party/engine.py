"""mpyc among the talliers: its runtime over our own connections, and the decision on secret counts."""

import asyncio
import math
import sys
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.mechanisms.discrete import lattice_variance
from sfumato.voting.multi_party.shares import FIELD, Field
from sfumato.voting.question import NOT_ANSWERED, Answers, Question

# mpyc's own start-up listens on every interface and its messages are pickled, which any sender can use to run
# code. So connections are ours (`peers`), and numbers travel as bytes of the field. mpyc reads the process's arguments
# when it is imported: it gets its own, and one process is one tallier.
#
# **Sizes.** A comparison is of l bits where the largest difference of two noisy counts is below 2^(l−1), noise of 30
# standard deviations included (more comes with probability below e^-440). What is opened in a comparison is masked by k
# bits more, so it reveals something with probability about 2^-k: the field has l + k + 2 bits, and k >= 56.


_STDS = 30  # of noise, in the range that numbers have
_MASK_BITS = 56
_LEAST_STD = 5  # of a share of the noise, in units: docs/explanation/votes.md, "Noise on whole numbers"


def share_variance(std_units: float, talliers: int):
    """Variance of a tallier's noise: that of the honest ones together reaches the accounted noise."""
    return lattice_variance(std_units) / (talliers - (talliers - 1) // 2)


def compared_bits(question: Question, talliers: int) -> int:
    """Bits of the numbers that are compared, their sign included.

    Raises:
        InputError: more than the field has room for, or noise so fine that its shares do not add up as they should.
    """
    stds = [question.noise_units, *([question.threshold_noise_units] if question.threshold is not None else [])]
    least = share_variance(min(stds), talliers)
    if least < _LEAST_STD**2:
        raise InputError(
            f"a tallier's noise has a std of {math.sqrt(least):.3g} units, below {_LEAST_STD}, so shares add "
            f"up to no discrete Gaussian; raise units a vote above {question.units}"
        )
    std = max(stds)
    noise = _STDS * math.sqrt(share_variance(std, talliers) * talliers)
    fixed = max(question.threshold_units if question.threshold is not None else 0, 0)
    fixed = max(fixed, abs(question.cut_units) if question.cut is not None else 0)
    bits = math.ceil(question.agents * question.units + 2 * noise + fixed).bit_length() + 1
    if bits > FIELD.bits - _MASK_BITS - 2:
        raise InputError(
            f"counts of {question.agents} agents with {question.units} units a vote and noise of "
            f"{question.noise_std:g} votes need {bits} bits, and the tally has {FIELD.bits - _MASK_BITS - 2}; "
            "use fewer units"
        )
    return bits


class Exchanger:
    """What mpyc calls a protocol: messages to and from one peer, each with a number of its own."""

    def __init__(self, send) -> None:
        self._send = send
        self._waiting: dict[int, Any] = {}
        self.nbytes_sent = 0

    def send(self, number: int, payload: bytes) -> None:
        self._send({"kind": "mpc", "number": number}, payload)
        self.nbytes_sent += len(payload)

    def receive(self, number: int) -> Any:
        """The message, or the promise of it."""
        payload = self._waiting.pop(number, None)
        if payload is None:
            payload = self._waiting[number] = asyncio.get_running_loop().create_future()
        return payload

    def arrived(self, number: int, payload: bytes) -> None:
        """A message came."""
        if number in self._waiting:
            self._waiting.pop(number).set_result(payload)
        else:
            self._waiting[number] = payload


class Engine:
    """mpyc's runtime of one tallier; to be made inside the running loop, once in a process.

    Args:
        place: of this tallier, from 1.
        talliers: how many there are.
    """

    def __init__(self, place: int, talliers: int) -> None:
        own = sys.argv
        words = ["--no-log", "--no-uvloop", "-M", str(talliers), "-I", str(place - 1)]
        sys.argv = ["sfumato", *words]
        try:
            from mpyc import runtime  # late: it reads sys.argv, and only talliers need it
        finally:
            sys.argv = own
        self.mpc: Any = runtime.mpc
        if (self.mpc.pid, len(self.mpc.parties), self.mpc.threshold) != (place - 1, talliers, (talliers - 1) // 2):
            raise RuntimeError("one process is one tallier")
        self.field = FIELD
        runtime.pickle = _Numbers(self.field)  # type: ignore[attr-defined]  # what peers send is never unpickled
        self._bits = 0

    def connect(self, peer: int, exchanger: Exchanger) -> str:
        """Use this for messages to a peer, from 1; gives the keys that it must be sent, in hex."""
        self.mpc.parties[peer - 1].protocol = exchanger
        return b"".join(self.mpc._prss_keys_to_peer(peer - 1)).hex()

    def accept_keys(self, peer: int, keys: str) -> None:
        """Take the keys for common randomness that a peer sent.

        Raises:
            InputError: they are none.
        """
        try:
            found = bytes.fromhex(keys)
        except (TypeError, ValueError):
            found = b"?"
        if len(found) != self.mpc._prss_keys_from_peer(peer - 1):
            raise InputError(f"tallier {peer} sent no keys for common randomness; do all run the same sfumato?")
        self.mpc._prss_keys_from_peer(peer - 1, found)
        self.mpc.prfs.cache_clear()

    def begin(self, bits: int) -> None:
        """Numbers of this many bits from now on."""
        self.mpc.options.sec_param = self.field.bits - bits - 2
        self._secret = self.mpc.SecInt(bits, p=self.field.modulus)

    def shared(self, share: np.ndarray, shape: tuple[int, ...]) -> Any:
        """A secret array of which this is our share; object, numbers of the field."""
        return self._secret.array(self._secret.field.array(share.reshape(shape), check=False))

    def sum_of_all(self, own: np.ndarray) -> Any:
        """The sum of what each tallier has; int64 of any shape."""
        mine = self._secret.array(self._secret.field.array(own.astype(object) % self.field.modulus, check=False))
        first, *others = self.mpc.input(mine)
        for each in others:
            first = first + each
        return first

    async def zeros(self, summands: np.ndarray) -> np.ndarray:
        """Whether the sums of λ_i times summand i are 0, and nothing else of them; object [n] -> bool [n]."""
        values = self.mpc._reshare(self.shared(summands, summands.shape))
        blinded = values * self.mpc._np_randoms(self._secret, len(summands))
        return np.asarray(await self.mpc.output(blinded)) == 0

    async def opened(self, secret: Any) -> np.ndarray:
        """The numbers behind a secret array, for all talliers; int64."""
        return np.asarray(await self.mpc.output(secret)).astype(np.int64)


class _Numbers:
    """Stands where mpyc has `pickle`: arrays of numbers of the field, as their bytes."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def dumps(self, numbers: np.ndarray) -> bytes:
        return self._field.to_bytes(np.asarray(numbers, object).reshape(-1))

    def loads(self, content: bytes) -> np.ndarray:
        if len(content) % (4 * self._field.limbs):
            raise InputError("a tallier sent what are no numbers of the field; do all run the same sfumato?")
        return self._field.numbers(self._field.limbs_of(content))


# What `question.decide` does, on secret counts: only the answers are opened.
#
# The noisy counts, their differences and the highest count stay secret, and so does whether a query reaches the
# threshold behind the last one that is answered. A comparison's result is secret, too, unless it is an answer.


_AT_ONCE = 4096
"""Comparisons at once: a step of a tallier must not keep it from telling the others that it is there."""


async def open_answers(
    engine: Engine, question: Question, sums: np.ndarray, noise: np.ndarray, threshold_noise: np.ndarray | None
) -> Answers:
    """The answers, the same at all talliers.

    Args:
        engine: of this tallier; `begin` was called.
        question: what is asked.
        sums: its share of the counts, object [queries × classes].
        noise: its own noise, int64 [queries, classes].
        threshold_noise: its own noise, int64 [queries], where there is a threshold.
    """
    shape = (question.queries, question.classes)
    counts = engine.shared(sums, shape)
    noisy = counts + engine.sum_of_all(noise)
    everything = np.ones(question.queries, dtype=bool)
    if question.opens == "counts":
        return Answers(everything, None, await engine.opened(noisy))
    if question.opens == "attributes":
        parts = [noisy[part] < question.cut_units for part in _parts(*shape)]
        return Answers(everything, np.concatenate([await engine.opened(part) for part in parts]) == 0)
    if question.threshold is None:
        return Answers(everything, await _labels(engine, noisy))
    assert threshold_noise is not None
    assert question.max_answers is not None
    highest = [_winner(engine, counts[part])[0] for part in _parts(*shape)]
    reached = 1 - (_joined(engine, highest) + engine.sum_of_all(threshold_noise) < question.threshold_units)
    first = engine.mpc.np_cumsum(reached) < question.max_answers + 1
    answered = (await engine.opened(reached * first)).astype(bool)
    labels = np.full(question.queries, NOT_ANSWERED, np.int64)
    if answered.any():
        labels[answered] = await _labels(engine, noisy[np.flatnonzero(answered)])
    return Answers(answered, labels)


async def _labels(engine: Engine, noisy: Any) -> np.ndarray:
    found = []
    for part in _parts(*noisy.shape):
        winner = _winner(engine, noisy[part], labels=True)[1]
        found.append(await engine.opened(winner))
    return np.concatenate(found)


def _winner(engine: Engine, counts: Any, *, labels: bool = False) -> tuple[Any, Any]:
    """The highest count of each query and, if asked for, its class; of equal ones the lowest class wins.

    A tournament in which the lower classes stand left, and right wins only if it is higher.
    """
    queries, classes = counts.shape
    rows = [counts]
    if labels:
        rows.append(engine.shared(np.tile(np.arange(classes).astype(object), queries), (queries, classes)))
    while classes > 1:
        left, right = slice(0, classes - 1, 2), slice(1, classes, 2)
        wins = rows[0][:, left] < rows[0][:, right]
        winners = [row[:, left] + wins * (row[:, right] - row[:, left]) for row in rows]
        if classes % 2:
            winners = [engine.mpc.np_hstack((won, row[:, -1:])) for won, row in zip(winners, rows)]
        rows, classes = winners, -(-classes // 2)
    return rows[0][:, 0], rows[-1][:, 0]


def _joined(engine: Engine, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else engine.mpc.np_concatenate(tuple(parts))


def _parts(queries: int, classes: int) -> list[slice]:
    step = max(1, _AT_ONCE // classes)
    return [slice(first, min(first + step, queries)) for first in range(0, queries, step)]
