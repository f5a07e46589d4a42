"""The keystream is AES-256 in counter mode: published vectors, and reading at any place."""

import numpy as np
import pytest

from sfumato._normals import Keystream

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
