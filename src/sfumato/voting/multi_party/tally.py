"""A tally of several parties of whom no minority sees a vote, a count or the noise: only answers are opened.

Every agent splits its ballot into one share a tallier (`field`). Talliers add shares up as they come, add noise
inside of mpyc (Shamir shares, semi-honest, an honest majority), and open what the question opens (`opening`). Each
draws its share of the noise from a key of its own, with variance such that the shares of the m − t honest ones are
enough alone.

**What one tallier learns**, or t = (m − 1)/2 of them together: the question, the names of the agents, in which order
and when they voted, the answers, and its own noise. Its shares are uniform and independent of the votes, whatever it
sees of the computation beside them: messages of the same number and lengths are exchanged for all votes, and how long
a step takes depends on random numbers, not on votes. What is opened for a comparison is masked by at least 56 bits
more than it has. Its own noise it can subtract from what is opened: what is left is what is accounted. A cost for the
votes as they were cast (`publish_cost`) is one for those who see the answers alone: who knows some of the noise is
less certain of what an answer would have been.

**What t + 1 learn**, two of three: everything; they can put every ballot together. So each tallier belongs to
somebody else.

**A tallier that does not follow the protocol** can spoil the answers, and may learn from that: mpyc is secure against
curious parties, not against active ones. If it tells agents the coins of the check, they can pass it with any ballot.
Any of them can keep the answers from the others once opening has begun.

**Other ballots under the same token** would have the same noise, and differences would tell. Shares are a function of
ballot and token; every tallier keeps the digest of those that it was sent, and refuses others. Answers that were
opened are given again, whatever is cast. **A replayed message** gets nowhere: an agent votes once in a question, and
with TLS nothing can be put into a connection. Without TLS who can write on the wire can do anything, which is why the
clear is refused beyond this machine. With TLS whoever holds a certificate of the authority can vote, under any name.
On this machine without TLS every user can.

**A tallier that comes back with an empty folder** has another key, and would draw fresh noise. Its key has a name,
which the others wrote down before the question was opened: they refuse, unless the answers are known and given again.
If all of them lose their folders, nobody can tell, and the same token is a new question, to be paid for again.

**A tallier that dies**, a client that goes away, a ballot that is refused: all talliers end and nothing is opened,
or, if the last messages were on their way, what was asked for; it is given again under the same token, and nothing
else is.

Talliers as processes of this machine, which end with the one that started them.
"""

import contextlib
import math
import os
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
from sfumato.voting.multi_party.client import Client
from sfumato.voting.multi_party.engine import compared_bits, share_variance
from sfumato.voting.multi_party.messages import Credentials, parse
from sfumato.voting.multi_party.peers import free_address
from sfumato.voting.question import Answers, Question

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
        _, told = process.communicate()
        raise InputError(f"a tallier did not start: {(told.strip().splitlines() or ['it was killed'])[-1]}")

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

        A rehearsal: one party has all shares.

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
        told = [
            Assumption("talliers_honest", {"talliers": count, "curious": few}),
            Assumption("talliers_noise", {"factor": count / (count - few), "honest": count - few}),
            Assumption("ballots_in_range"),
        ]
        if self._local:
            told.append(Assumption("talliers_here"))
        return told

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
