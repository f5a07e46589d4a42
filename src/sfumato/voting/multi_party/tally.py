"""A tally of several parties of whom no minority sees a vote, a count or the noise: only answers are opened.

Every agent splits its ballot into one share a tallier (`field`). Talliers add shares up as they come, add noise
inside of mpyc (Shamir shares, semi-honest, an honest majority), and open what the question opens (`opening`). Each
draws its share of the noise from a key of its own, with variance such that the shares of the m − t honest ones are
enough alone.

**What one tallier learns**, or t = (m − 1)/2 of them together: the question, the names of the agents, in which order
and when they voted, the answers, and its own noise. Its shares are uniform and independent of the votes, whatever it
sees of the computation besides: messages of the same number and lengths are exchanged for all votes, and how long
a step takes depends on random numbers, not on votes. What is opened for a comparison is masked by at least 56 bits
more than it has. Its own noise it can subtract from what is opened: what is left is what is accounted. A cost for the
votes as they were cast (`publish_cost`) is one for those who see the answers alone: who knows some of the noise is
less certain of what an answer would have been.

**What t + 1 learn**, two of three: everything; they can put every ballot together. So each tallier belongs to
somebody else.

**A tallier that does not follow the protocol** can spoil the answers, and may learn from that: mpyc is secure against
curious parties, not against active ones. If it gives agents the coins of the check, they can pass it with any ballot.
Any of them can keep the answers from the others once opening has begun.

**Other ballots under the same token** would have the same noise, and differences would reveal votes. Shares follow from
ballot and token; every tallier keeps the digest of those that it was sent, and refuses others. Answers that were
opened are given again, whatever is cast. **A replayed message** gets nowhere: an agent votes once in a question, and
with TLS nothing can be put into a connection. Without TLS who can write on the wire can do anything, which is why the
clear is refused beyond this machine. With TLS any holder of a certificate of the authority can vote, under any name.
On this machine without TLS every user can.

**A tallier that comes back with an empty folder** has another key, and would draw fresh noise. Its key has a name,
which the others wrote down before the question was opened: they refuse, unless the answers are known and given again.
If all of them lose their folders, no one can detect it, and the same token is a new question, to be paid for again.

**A tallier that dies**, a client that goes away, a ballot that is refused: all talliers end and nothing is opened,
or, if the last messages were on their way, what was asked for; it is given again under the same token, and nothing
else is.

**The agents' side** sends shares to each tallier (`Client`); their answers must agree. `LocalTalliers` are processes of
this machine, which end with the one that started them.
"""

import contextlib
import hashlib
import math
import os
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.voting.multi_party import messages
from sfumato.voting.multi_party.engine import compared_bits, share_variance
from sfumato.voting.multi_party.messages import Address, Credentials, keep_alive, parse
from sfumato.voting.multi_party.peers import free_address
from sfumato.voting.multi_party.shares import FIELD
from sfumato.voting.question import Answers, Question, refuse_ballot

_CONNECTING = 10.0  # seconds
_ANSWERS_WITHIN = 60.0  # seconds from the first tallier's answers to the last one's


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
        answers = [each["answers"] for each in starts if each["kind"] == "answers"]
        if len(answers) < len(self._addresses) or any(each != answers[0] for each in answers):
            raise InputError("the talliers gave different answers; trust none of them, and look at what they run")
        return _answers(question, answers[0])

    def close(self) -> None:
        """Hang up."""
        for each in self._connections:
            with contextlib.suppress(OSError):
                each.close()

    def _answers(self) -> list[dict[str, Any]]:
        """Of all talliers, read in the order in which messages come: one that stops says at once why."""
        found: dict[int, dict[str, Any]] = {}
        while len(found) < len(self._addresses):
            left = {each: place for place, each in enumerate(self._connections) if place not in found}
            waiting = [each for each in left if isinstance(each, ssl.SSLSocket) and each.pending()]
            able = waiting or select.select([*left], [], [], _ANSWERS_WITHIN if found else None)[0]
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
            self._receive(place, "nothing")  # it may have sent the reason

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
        reason = getattr(error, "verify_message", None) or error.strerror or error
        raise InputError(f"no tallier answers at {address} ({reason}); start it, or give another address") from None
    connection.settimeout(None)
    keep_alive(connection)
    return connection


def _shares(ballot: np.ndarray, agent: str, token: str, talliers: int, source: RandomSource) -> np.ndarray:
    """The same ballot under the same token has the same shares, and any other has unrelated ones."""
    content = np.ascontiguousarray(ballot, "<i8").reshape(-1)
    stream = source.stream("ballot shares", token, agent, hashlib.sha256(content.tobytes()).hexdigest())
    return FIELD.split(content, talliers, (talliers - 1) // 2, stream)


def _answers(question: Question, received: dict[str, Any]) -> Answers:
    def array(name: str, kind: type, shape: tuple[int, ...]) -> np.ndarray:
        found = np.array(received[name], kind)
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


_STARTING = 120.0  # seconds


class LocalTalliers:
    """So many `sfumato tally` processes on free ports of the loopback interface.

    Args:
        count: an odd number of at least 3.
        folder: where their keys and memories are, a folder each; None makes one that is deleted in the end.
        seed: for simulation.
    """

    def __init__(self, count: int, *, folder: Path | None, seed: int | None) -> None:
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        folder = Path(self._temporary.name) if self._temporary else Path(str(folder))
        self.addresses = tuple(str(free_address()) for _ in range(count))
        self.processes = [self._started(place, folder / f"tallier {place}", seed) for place in range(1, count + 1)]
        try:
            for process in self.processes:
                self._await(process)
        except BaseException:
            self.close()
            raise

    def _started(self, place: int, folder: Path, seed: int | None) -> subprocess.Popen:
        words = [sys.executable, "-m", "sfumato", "tally", "--once", "--index", str(place), "--out", str(folder)]
        words += ["--talliers", *self.addresses]
        words += [] if seed is None else ["--seed", str(seed)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("RANK", None)  # of several processes that train together, ours speak up, too
        return subprocess.Popen(
            words,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # ctrl-C is for the one that started them, and it ends them
        )

    def _await(self, process: subprocess.Popen) -> None:
        """Read until it says that all are connected."""
        guard = threading.Timer(_STARTING, process.kill)
        guard.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "is connected" in line:
                    return
        finally:
            guard.cancel()
        _, errors = process.communicate()
        raise InputError(f"a tallier did not start: {(errors.strip().splitlines() or ['it was killed'])[-1]}")

    def close(self) -> None:
        """End them, and wait until they are gone."""
        for process in self.processes:
            with contextlib.suppress(OSError):
                process.terminate()
        for process in self.processes:
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        if self._temporary:
            self._temporary.cleanup()


class MultiPartyTally:
    """Counts votes with talliers that run elsewhere (`sfumato tally`), or with `local` ones.

    Args:
        talliers: HOST:PORT of each, an odd number of at least 3, in the order that they were given.
        certificate, key, authority: files in PEM for TLS; all three, or none for talliers on this machine.
        without_tls: allow the clear beyond this machine.

    Raises:
        InputError: the addresses are no group, or TLS is missing.
    """

    def __init__(
        self,
        talliers: Sequence[str],
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        authority: Path | None = None,
        without_tls: bool = False,
    ) -> None:
        self._talliers = tuple(map(str, parse(talliers)))
        self._credentials = Credentials(certificate=certificate, key=key, authority=authority, without_tls=without_tls)
        self._credentials.refuse_clear([each.host for each in parse(talliers)])
        self._client: Client | None = None
        self._local: LocalTalliers | None = None
        self._seeded = False

    @classmethod
    def local(cls, count: int = 3, *, folder: Path | None = None, seed: int | None = None) -> "MultiPartyTally":
        """With talliers that are started on this machine, and end with `close`.

        A dry run: one party has all shares.

        Args:
            count: of talliers.
            folder: keeps their keys and what they were asked; without one, nothing is left of them.
            seed: for simulation: noise that anyone can repeat.
        """
        parse([f"127.0.0.1:{port}" for port in range(1, count + 1)])  # refuses the wrong number before any is started
        started = LocalTalliers(count, folder=folder, seed=seed)
        self = cls(started.addresses)
        self._local = started
        try:
            self._connected()  # they end when this connection does
        except BaseException:
            self.close()
            raise
        return self

    def open(
        self, question: Question, ballots: Iterable[tuple[str, np.ndarray]], *, source: RandomSource, token: str
    ) -> Answers:
        """See `Tally.open`; `source` only hides the ballots, the noise is the talliers'."""
        compared_bits(question, len(self._talliers))  # refuses what does not fit before anything is sent
        try:
            return self._connected().ask(question, ballots, source=source, token=token)
        except BaseException:
            self._disconnect()
            raise

    def added_noise(self, std_units: float) -> float:
        """That of all talliers, also of those whose shares are not accounted for."""
        return math.sqrt(share_variance(std_units, len(self._talliers)) * len(self._talliers))

    @property
    def seeded(self) -> bool:
        return self._seeded

    def to_json(self) -> dict[str, Any]:
        where = {"local": len(self._talliers)} if self._local else {"talliers": list(self._talliers)}
        return {"kind": "multi-party", **where, "tls": self._credentials.certificate is not None}

    def assumptions(self) -> list[Assumption]:
        count = len(self._talliers)
        few = (count - 1) // 2
        found = [
            Assumption("talliers_honest", {"talliers": count, "curious": few}),
            Assumption("talliers_noise", {"factor": count / (count - few), "honest": count - few}),
            Assumption("ballots_in_range"),
        ]
        if self._local:
            found.append(Assumption("talliers_here"))
        return found

    def close(self) -> None:
        """Hang up; local talliers are ended."""
        self._disconnect()
        if self._local:
            self._local.close()

    def __enter__(self) -> "MultiPartyTally":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _connected(self) -> Client:
        if self._client is None:
            if self._local and any(each.poll() is not None for each in self._local.processes):
                raise InputError("the local talliers have ended; open another tally, with the same folder")
            self._client = Client(self._talliers, self._credentials)
            self._seeded |= self._client.seeded
        return self._client

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
