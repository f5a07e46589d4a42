"""A keystream that can be read at any place: AES-256 in counter mode (NIST SP 800-38A, section 6.5).

Block i is AES-256 of the number i, 16 bytes, most significant first. No two blocks of one key are equal, where random
ones could be: who sees n blocks can tell the difference with probability below n² / 2^129, 2^-70 for a billion numbers.
OpenSSL computes it, with the processor's AES instructions where it has them, and without holding Python's lock.

>>> Keystream(bytes(32)).read(0, 16).hex()
'dc95c078a2408989ad48a21492842087'
"""

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
