"""Normal numbers of a keystream, added in place: a pure function of the key and each number's place.

Numbers come in tiles of 2n from 2n words of the keystream: words i and n+i give numbers i and n+i, by Box and Muller
(1958). With R = √(-2 ln U) and T = tan(angle / 2) they are R (2 / (1 + T²) - 1) = R cos(angle) and 2 R T / (1 + T²) =
R sin(angle). U is an odd multiple of 2^-63, so the largest number is 9.34, which a normal one exceeds once in 10^20.
Tiles are a part of the definition, threads and pieces are not.

Everything is computed in double precision, in pieces that stay in the cache. Another processor or another release of
NumPy may round a logarithm or a tangent differently: the last bits of a number are not part of the definition.

A keystream that can be read at any place: AES-256 in counter mode (NIST SP 800-38A, section 6.5).

Block i is AES-256 of the number i, 16 bytes, most significant first. No two blocks of one key are equal, where random
ones could be: who sees n blocks sees the difference with probability below n² / 2^129, 2^-70 for a billion numbers.
OpenSSL computes it, with the processor's AES instructions where it has them, and without holding Python's lock.

>>> Keystream(bytes(32)).read(0, 16).hex()
'dc95c078a2408989ad48a21492842087'
"""

import math
import threading
from itertools import pairwise
from typing import Any

import numpy as np

BLOCK = 16  # bytes


_ZEROS = memoryview(bytes(1 << 20))


class Keystream:
    """The keystream of one key. For one thread: it has a place.

    Args:
        key: 32 secret bytes.
    """

    def __init__(self, key: bytes) -> None:
        # Here and not above: who only computes what a run costs need not load OpenSSL.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._cipher: Any = Cipher(algorithms.AES256(key), modes.CTR(bytes(BLOCK))).encryptor()

    def seek(self, block: int) -> None:
        """Go to this block."""
        self._cipher.reset_nonce(block.to_bytes(BLOCK, "big"))

    def next(self, count: int) -> bytes:
        """The next `count` bytes."""
        return self._cipher.update(bytes(count))

    def read(self, block: int, count: int) -> bytes:
        """`count` bytes from the start of a block."""
        self.seek(block)
        return self.next(count)

    def fill(self, block: int, words: np.ndarray) -> None:
        """Overwrite int64 [n] with the stream from the start of a block on, in little-endian words."""
        self.seek(block)
        target = words.view(np.uint8).data
        for start in range(0, len(target), len(_ZEROS)):
            part = target[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)


PAIRS = 1 << 14  # pairs in a tile: changing it changes every draw


TILE = 2 * PAIRS


_SHARE = 32 * TILE  # numbers that a thread takes at a time: with fewer, two threads took twice the time of one


_WORDS = BLOCK // 8


def add_normals(out: np.ndarray, key: bytes, first: int, std: float, threads: int) -> None:
    """Add std × normal number `first` + i to out[i].

    Args:
        out: float [n], contiguous.
        key: 32 secret bytes.
        first: place of the first number, >= 0.
        std: standard deviation.
        threads: how many share the work, >= 1; cannot change the numbers.
    """
    cuts = [0, *range(_SHARE - first % _SHARE, len(out), _SHARE), len(out)]
    if threads == 1 or len(cuts) == 2:
        _add(out, key, first, std)
        return
    from concurrent.futures import ThreadPoolExecutor

    shares = [(out[start:end], key, first + start, std) for start, end in pairwise(cuts)]
    with ThreadPoolExecutor(min(threads, len(shares)), thread_name_prefix="normals") as pool:
        for done in [pool.submit(_add, *share) for share in shares]:
            done.result()


def _add(out: np.ndarray, key: bytes, first: int, std: float) -> None:
    """One thread's share."""
    box = _Box(key)
    done = 0
    while done < len(out):
        tile, low = divmod(first + done, TILE)
        high = min(low + len(out) - done, TILE)
        piece = out[done : done + high - low]
        # A few numbers at one end of the tile need a few pairs only.
        start, end = (low % PAIRS, (high - 1) % PAIRS + 1) if low >= PAIRS or high <= PAIRS else (0, PAIRS)
        cosines, sines = box.pairs(tile, start, end, std)
        middle = min(max(PAIRS - low, 0), len(piece))
        if middle:
            part = piece[:middle]
            part += cosines[low - start :][:middle].astype(out.dtype, copy=False)
        if middle < len(piece):
            part, begin = piece[middle:], max(low - PAIRS, 0) - start
            part += sines[begin:][: len(part)].astype(out.dtype, copy=False)
        done += len(piece)


class _Memory(threading.local):
    """Of a thread: fresh pages would cost as much as the numbers of a few tiles."""

    def __init__(self) -> None:
        self.words = np.empty((2, PAIRS), dtype="<i8")
        self.spare = np.empty(PAIRS)


_MEMORY = _Memory()


class _Box:
    """Pairs of a tile, in memory that is used again; one at a time in a thread."""

    def __init__(self, key: bytes) -> None:
        self._keystream = Keystream(key)
        self._words, self._spare = _MEMORY.words, _MEMORY.spare

    def pairs(self, tile: int, start: int, end: int, std: float) -> tuple[np.ndarray, np.ndarray]:
        """std × the two numbers of pairs start, …, end-1, float64 [end - start] each, until the next call."""
        skipped = start % _WORDS
        first, count = start - skipped, end - start + skipped
        words, angles = self._words[0, :count], self._words[1, :count]
        self._keystream.fill((tile * TILE + first) // _WORDS, words)
        self._keystream.fill((tile * TILE + PAIRS + first) // _WORDS, angles)
        radius, sines, cosines = words.view(np.float64), angles.view(np.float64), self._spare[:count]

        np.bitwise_or(words, 1, out=words)
        np.copyto(radius, words, casting="unsafe")
        np.abs(radius, out=radius)
        np.multiply(radius, 2.0**-63, out=radius)  # U
        np.log(radius, out=radius)
        np.multiply(radius, -2.0, out=radius)
        np.sqrt(radius, out=radius)
        np.multiply(radius, std, out=radius)

        np.copyto(sines, angles, casting="unsafe")
        np.multiply(sines, math.pi * 2.0**-64, out=sines)  # half of an angle in [-π, π]
        np.tan(sines, out=sines)
        np.multiply(sines, sines, out=cosines)
        np.add(cosines, 1.0, out=cosines)
        np.divide(radius, cosines, out=cosines)
        np.add(cosines, cosines, out=cosines)  # 2 R / (1 + T²)
        np.multiply(sines, cosines, out=sines)
        np.subtract(cosines, radius, out=cosines)
        return cosines[skipped:], sines[skipped:]


def normals_of(key: bytes, rows: np.ndarray, count: int) -> np.ndarray:
    """So many normal numbers of each of some rows, whichever others are asked for.

    Row r has the words r n … (r + 1) n - 1 of the keystream, n being `count` rounded up to an even number: the first
    half of them for the radii, the second for the angles.

    Args:
        key: 32 secret bytes.
        rows: int64 [m], >= 0.
        count: of each row, >= 1.

    Returns:
        float64 [m, count].
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    pairs = (count + 1) // 2  # two words each: a block
    blocks = np.zeros((len(rows), pairs, 2), ">u8")  # the numbers of the blocks, most significant word first
    blocks[:, :, 1] = rows[:, None] * pairs + np.arange(pairs)
    # Counter mode is the cipher of the number of each block: here of those that are wanted only.
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    words = np.frombuffer(cipher.update(blocks.tobytes()), "<i8").reshape(len(rows), 2, pairs)
    radius = np.abs((words[:, 0] | 1).astype(np.float64)) * 2.0**-63  # U
    np.sqrt(np.log(radius, out=radius) * -2.0, out=radius)
    sines = np.tan(words[:, 1].astype(np.float64) * (math.pi * 2.0**-64))
    cosines = radius / (sines * sines + 1.0)
    cosines += cosines  # 2 R / (1 + T²)
    sines *= cosines
    cosines -= radius
    return np.concatenate([cosines, sines], axis=1)[:, :count]
