"""The agents' side of a tally of several parties: shares go to each tallier, and the answers must agree."""

import contextlib
import hashlib
import select
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.voting.multi_party import messages
from sfumato.voting.multi_party.messages import Address, Credentials, keep_alive, parse
from sfumato.voting.multi_party.shares import FIELD
from sfumato.voting.question import Answers, Question, refuse_ballot

_CONNECTING = 10.0  # seconds
_TOGETHER = 60.0  # seconds from the first tallier's answers to the last one's


class Client:
    """Connections to all talliers, over which one question after another is asked.

    Args:
        talliers: HOST:PORT of each, the same list that they have.
        credentials: for TLS.

    Raises:
        InputError: one is not there, or they are no group.
    """

    def __init__(self, talliers: Sequence[str], credentials: Credentials) -> None:
        self._addresses = parse(talliers)
        credentials.refuse_clear([each.host for each in self._addresses])
        self._connections: list[socket.socket] = []
        self.seeded = False
        try:
            for address in self._addresses:
                self._connections.append(_connected(address, credentials))
                self._send(len(self._connections) - 1, {"kind": "client"})
            group = [str(each) for each in self._addresses]
            for place in range(len(self._addresses)):
                hello = self._receive(place, "tallier")
                if (hello.get("place"), hello.get("group")) != (place + 1, group):
                    raise InputError(
                        f"{self._addresses[place]} is tallier {hello.get('place')} of {hello.get('group')}, not "
                        f"{place + 1} of {group}; give the same list that the talliers were started with"
                    )
                self.seeded |= bool(hello.get("seeded"))
        except BaseException:
            self.close()
            raise

    def ask(
        self, question: Question, ballots: Iterable[tuple[str, np.ndarray]], *, source: RandomSource, token: str
    ) -> Answers:
        """Send the shares of all ballots, one at a time, and wait for the answers."""
        everyone = range(len(self._addresses))
        for place in everyone:
            self._send(place, {"kind": "question", "token": token, "question": question.to_json()})
        starts = [self._receive(place, "cast", "answers") for place in everyone]
        if all(each["kind"] == "cast" for each in starts):
            sent = 0
            for agent, ballot in ballots:
                refuse_ballot(question, agent, ballot)
                self._look()
                for place, share in enumerate(_shares(ballot, agent, token, len(self._addresses), source)):
                    self._send(place, {"kind": "ballot", "agent": agent}, share.tobytes())
                sent += 1
            if sent > question.agents:
                raise InputError(f"{sent} agents voted where {question.agents} were asked")
            starts = self._answers()
        told = [each["answers"] for each in starts if each["kind"] == "answers"]
        if len(told) < len(self._addresses) or any(each != told[0] for each in told):
            raise InputError("the talliers gave different answers; trust none of them, and look at what they run")
        return _answers(question, told[0])

    def close(self) -> None:
        """Hang up."""
        for each in self._connections:
            with contextlib.suppress(OSError):
                each.close()

    def _answers(self) -> list[dict[str, Any]]:
        """Of all talliers, the first that speaks first: who stops tells at once why."""
        found: dict[int, dict[str, Any]] = {}
        while len(found) < len(self._addresses):
            left = {each: place for place, each in enumerate(self._connections) if place not in found}
            waiting = [each for each in left if isinstance(each, ssl.SSLSocket) and each.pending()]
            able = waiting or select.select([*left], [], [], _TOGETHER if found else None)[0]
            if not able:
                raise InputError(f"tallier {left.popitem()[1] + 1} gives no answers while others did; ask again")
            for each in able:
                found[left[each]] = self._receive(left[each], "answers")
        return [found[place] for place in sorted(found)]

    def _look(self) -> None:
        """Notice a tallier that stopped, before the next ballot."""
        for each in select.select(self._connections, [], [], 0)[0]:
            self._receive(self._connections.index(each), "nothing")

    def _send(self, place: int, head: dict[str, Any], body: bytes = b"") -> None:
        try:
            self._connections[place].sendall(messages.pack(head, body))
        except OSError:
            self._receive(place, "nothing")  # it may have told why

    def _receive(self, place: int, *kinds: str) -> dict[str, Any]:
        message = messages.receive(self._connections[place])
        if message is None:
            raise InputError(self._why_gone(place))
        head = message[0]
        if head["kind"] == "stop":
            raise InputError(f"the talliers stopped: {head.get('why')}")
        if head["kind"] not in kinds:
            raise InputError(f"tallier {place + 1} at {self._addresses[place]} sent {head['kind']!r}; is it one?")
        return head

    def _why_gone(self, place: int) -> str:
        """What another tallier says of it, if one does so soon."""
        others = [each for each in self._connections if each is not self._connections[place]]
        for each in select.select(others, [], [], 3)[0]:
            message = messages.receive(each)
            if message is not None and message[0]["kind"] == "stop":
                return f"the talliers stopped: {message[0].get('why')}"
        return f"tallier {place + 1} at {self._addresses[place]} is gone; start the talliers again and ask again"


def _connected(address: Address, credentials: Credentials) -> socket.socket:
    try:
        connection = socket.create_connection((address.host, address.port), timeout=_CONNECTING)
        context = credentials.context(server=False)
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=address.host)
    except OSError as error:
        told = getattr(error, "verify_message", None) or error.strerror or error
        raise InputError(f"no tallier answers at {address} ({told}); start it, or give another address") from None
    connection.settimeout(None)
    keep_alive(connection)
    return connection


def _shares(ballot: np.ndarray, agent: str, token: str, talliers: int, source: RandomSource) -> np.ndarray:
    """The same ballot under the same token has the same shares, and any other has unrelated ones."""
    content = np.ascontiguousarray(ballot, "<i8").reshape(-1)
    stream = source.stream("ballot shares", token, agent, hashlib.sha256(content.tobytes()).hexdigest())
    return FIELD.split(content, talliers, (talliers - 1) // 2, stream)


def _answers(question: Question, told: dict[str, Any]) -> Answers:
    def array(name: str, kind: type, shape: tuple[int, ...]) -> np.ndarray:
        found = np.array(told[name], kind)
        if found.shape != shape:
            raise InputError(f"the talliers gave answers of another shape, {found.shape} for {shape}")
        return found

    rows, table = (question.queries,), (question.queries, question.classes)
    answered = array("answered", np.bool_, rows)
    if question.opens == "counts":
        return Answers(answered, None, array("counts", np.int64, table))
    if question.opens == "attributes":
        return Answers(answered, array("labels", np.bool_, table))
    return Answers(answered, array("labels", np.int64, rows))
