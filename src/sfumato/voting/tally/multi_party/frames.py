"""Messages over TCP: a JSON object and a body of bytes, both of a length that is told first and bounded.

Talliers and agents speak it, and talliers among themselves; mpyc's messages travel in bodies. Nothing that arrives is
ever unpickled.

>>> message = pack({"kind": "cast"}, b"body")
>>> head, body = _LENGTHS.unpack(message[: _LENGTHS.size])
>>> parsed(message[_LENGTHS.size :][:head]), message[_LENGTHS.size + head :]
({'kind': 'cast'}, b'body')
"""

import asyncio
import json
import socket
import struct
from typing import Any

from sfumato._check import InputError
from sfumato._files import parse_json

_LENGTHS = struct.Struct("<II")
_LONGEST_HEAD, _LONGEST_BODY = 1 << 24, 1 << 30

Message = tuple[dict[str, Any], bytes]


class Malformed(InputError):
    """What came is no message."""


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """The bytes of one message."""
    words = json.dumps(head, sort_keys=True, allow_nan=False).encode()
    if len(words) > _LONGEST_HEAD or len(body) > _LONGEST_BODY:
        raise InputError(f"a message of {len(body)} bytes is too long; ask fewer queries at once")
    return _LENGTHS.pack(len(words), len(body)) + words + body


def parsed(head: bytes) -> dict[str, Any]:
    """The JSON object in front of a body.

    Raises:
        Malformed: it is none.
    """
    try:
        value = parse_json(head)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise Malformed("what came is no message of a tally")
    return value


async def read(reader: asyncio.StreamReader, *, longest: int = _LONGEST_BODY) -> Message | None:
    """The next message, its body not longer than `longest`; None at the end."""
    try:
        head, body = lengths(await reader.readexactly(_LENGTHS.size), longest=longest)
        return parsed(await reader.readexactly(head)), await reader.readexactly(body)
    except (asyncio.IncompleteReadError, OSError):
        return None


def receive(connection: socket.socket) -> Message | None:
    """The same from a socket that waits."""
    start = _exactly(connection, _LENGTHS.size)
    if start is None:
        return None
    head, body = (_exactly(connection, count) for count in lengths(start))
    return None if head is None or body is None else (parsed(head), body)


def lengths(start: bytes, *, longest: int = _LONGEST_BODY) -> tuple[int, int]:
    """How long the two parts are.

    Raises:
        Malformed: longer than any message is.
    """
    head, body = _LENGTHS.unpack(start)
    if head > _LONGEST_HEAD or body > longest:
        raise Malformed("what came is no message of a tally, or one that is too long")
    return head, body


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    content = bytearray()
    while len(content) < count:
        try:
            part = connection.recv(min(count - len(content), 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        content += part
    return bytes(content)
