"""Messages over TCP, and where talliers are.

Messages over TCP: a JSON object and a body of bytes, both of a length that is sent first and bounded.

Talliers and agents speak it, and talliers among themselves; mpyc's messages travel in bodies. Nothing that arrives is
ever unpickled.

>>> message = pack({"kind": "cast"}, b"body")
>>> head, body = _LENGTHS.unpack(message[: _LENGTHS.size])
>>> parsed(message[_LENGTHS.size :][:head]), message[_LENGTHS.size + head :]
({'kind': 'cast'}, b'body')

Where talliers are, and whether what is sent there may travel in the clear.

>>> parse(["127.0.0.1:7001", "127.0.0.1:7002", "[::1]:7003"])[2]
Address(host='::1', port=7003)
"""

import asyncio
import contextlib
import ipaddress
import json
import re
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
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


_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+)):(\d{1,5})")


@dataclass(frozen=True)
class Address:
    """A tallier's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(talliers: Sequence[str]) -> tuple[Address, ...]:
    """The addresses of all talliers, in order.

    Raises:
        InputError: one is none, one is there twice, or there are fewer than three or an even number of them.
    """
    if len(talliers) < 3 or len(talliers) % 2 == 0:
        raise InputError(
            f"talliers must be an odd number of at least 3, got {len(talliers)}: more than half of them must be "
            "honest; give one more"
        )
    found = []
    for each in talliers:
        match = _ADDRESS.fullmatch(each)
        if not match or not 0 < int(match[3]) < 2**16:
            raise InputError(f"a tallier's address is HOST:PORT, got {each!r}")
        found.append(Address(match[1] or match[2], int(match[3])))
    again = next((each for place, each in enumerate(found) if each in found[:place]), None)
    if again is not None:
        raise InputError(f"two talliers have the same address, {again}; give each a port of its own")
    return tuple(found)


def on_loopback(host: str) -> bool:
    """Whether what is sent to this host stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Files in PEM for TLS, all three or none.

    Attributes:
        certificate: of this party.
        key: of the certificate.
        authority: who signed the certificates of all parties.
        without_tls: allow the clear beyond this machine, as inside a network that encrypts by itself.
    """

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    without_tls: bool = False

    def __post_init__(self) -> None:
        given = [each is not None for each in (self.certificate, self.key, self.authority)]
        if any(given) != all(given):
            raise InputError("TLS needs certificate, key and authority; give all three, or none")

    def refuse_clear(self, hosts: Sequence[str]) -> None:
        """Refuse to speak in the clear with anything but this machine.

        Raises:
            InputError: there is a host beyond it, no certificate, and no word that this is meant.
        """
        far = [host for host in hosts if not on_loopback(host)]
        if far and self.certificate is None and not self.without_tls:
            raise InputError(
                f"{far[0]} is not this machine, and all shares reveal the votes; give --certificate, --key and "
                "--authority, or --without-tls in an encrypted network"
            )

    def context(self, *, server: bool) -> ssl.SSLContext | None:
        """For one side of a connection; the other side must show a certificate of the authority, too."""
        if self.certificate is None:
            return None
        purpose = ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH
        try:
            found = ssl.create_default_context(purpose, cafile=str(self.authority))
            found.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            raise InputError(
                f"{self.certificate}, {self.key} and {self.authority} must be a certificate, its key and an authority "
                f"in PEM: {error.reason or error}"
            ) from None
        found.minimum_version = ssl.TLSVersion.TLSv1_3
        found.verify_mode = ssl.CERT_REQUIRED
        return found


def keep_alive(connection: socket.socket | None) -> None:
    """Have the system find out within half a minute that the machine at the other end is gone.

    A connection that was closed meanwhile has no socket (asyncio forgets it) or one that takes no options: nothing is
    done to it, and who reads from it next finds its end.
    """
    if connection is None:
        return
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_of(certificate: dict | None, host: str) -> bool:
    """Whether a certificate that was verified bears this host as one of its names."""
    names = dict.fromkeys(value for _, value in (certificate or {}).get("subjectAltName", ()))
    return host in names
