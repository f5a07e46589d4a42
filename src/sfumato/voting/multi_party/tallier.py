"""One tallier: takes shares of ballots, agrees with the others on what is asked, and opens the answers with them.

Questions come one after another. Whatever goes wrong ends all talliers: each sends the reason to others and clients,
and `serve` raises. Nothing is opened before all talliers have all ballots, have found them valid, and have written
down what they were asked.

What a tallier keeps in its folder: its key, and what it was asked.

`tallier.key` is the key of its noise. `questions/NAME.json` has the question that was asked under a token, from before
its noise is drawn: with it the key's name of every tallier and the digest of the shares, so that no one can have other
ballots or other noise under the same token; and, once they are opened, the answers. All is readable by the owner only.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._files import read_json, write_atomic, write_json
from sfumato._random import RandomSource
from sfumato.mechanisms.discrete import discrete_gaussian
from sfumato.voting.multi_party import messages
from sfumato.voting.multi_party.engine import Engine, compared_bits, open_answers, share_variance
from sfumato.voting.multi_party.messages import Credentials, keep_alive, parse
from sfumato.voting.multi_party.peers import LAST_WORD, Peers
from sfumato.voting.multi_party.shares import Box
from sfumato.voting.question import Answers, Question


class Memory:
    """A tallier's folder, of which no other process is the tallier now.

    Args:
        folder: is made if it is missing.
        seed: for simulation: the key is derived from it, and kept nowhere.
        place: of this tallier, from 1; talliers of one seed have different keys.
    """

    def __init__(self, folder: Path, *, seed: int | None, place: int) -> None:
        self._made = not folder.exists()
        (folder / "questions").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{folder} is the folder of a tallier that runs; give each tallier its own") from None
        self.source = self._key() if seed is None else RandomSource.from_seed(seed).within(f"tallier {place}")

    @property
    def name(self) -> str:
        """Of the key; reveals nothing of it. A tallier that lost its folder has another one."""
        return hashlib.sha256(b"sfumato tallier" + self.source.key).hexdigest()

    def discard(self) -> None:
        """Take the folder away again, if it was made here: no one has received the name of its key."""
        if self._made:
            shutil.rmtree(self._folder)

    def recall(self, token: str) -> dict[str, Any] | None:
        """What is known of a token: `question`, `names`, `digest`, and `answers` if they were opened."""
        path = self._path(token)
        try:
            return read_json(path) if path.exists() else None
        except ValueError as error:
            raise InputError(f"{path} cannot be read ({error}); ask under a new token") from None

    def keep(self, token: str, known: dict[str, Any]) -> None:
        """Remember it, also after a power cut."""
        write_json(self._path(token), known, private=True)

    def _key(self) -> RandomSource:
        path = self._folder / "tallier.key"
        if not path.exists():
            write_atomic(path, secrets.token_bytes(32), private=True)
        key = path.read_bytes()
        if len(key) != 32:
            raise InputError(f"{path} is no key of 32 bytes; give a new folder, under which no old question is known")
        return RandomSource(key, "os")

    def _path(self, token: str) -> Path:
        return self._folder / "questions" / f"{hashlib.sha256(token.encode()).hexdigest()}.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of one tallier.

    Attributes:
        place: which of the talliers this is, from 1.
        talliers: HOST:PORT of all, the same list everywhere.
        folder: where its key and its memory are.
        listen: the address of this machine that it takes connections at.
        credentials: for TLS.
        wait: seconds that the others may take to be there.
        once: end when the first client is gone, rather than serve until stopped.
        seed: for simulation: a key that anyone can derive, which protects no one.
    """

    place: int
    talliers: tuple[str, ...]
    folder: Path
    listen: str = "127.0.0.1"
    credentials: Credentials = field(default_factory=Credentials)
    wait: float = 60.0
    once: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        addresses = parse(self.talliers)
        _check.one_of(range(1, len(addresses) + 1), index=self.place)
        _check.positive(wait=self.wait)
        self.credentials.refuse_clear([self.listen, *[each.host for each in addresses]])


@dataclass
class _Asked:
    """A question that is being answered, and whom the answers go to."""

    token: str
    question: Question
    box: Box | None = None  # None until all talliers agreed, or where the answers are known
    clients: set[asyncio.StreamWriter] = field(default_factory=set)
    filled: asyncio.Event = field(default_factory=asyncio.Event)


def serve(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """Run one tallier until it is stopped; it must be the only one of its process.

    Args:
        settings: of this one.
        ready: receives a sentence when it listens, and when all are connected.

    Raises:
        InputError: whatever ended it but a stop.
    """
    memory = Memory(settings.folder, seed=settings.seed, place=settings.place)
    try:
        asyncio.run(_Tallier.run(settings, memory, ready))
    except _Over as over:
        if over.args:
            raise KeyboardInterrupt from None


class _Over(Exception):
    """Ends a tallier that did all it should, or was stopped."""


class _Tallier:
    def __init__(self, settings: Settings, memory: Memory) -> None:
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future = self._loop.create_future()
        self._settings, self._memory = settings, memory
        self._addresses = parse(settings.talliers)
        self._engine = Engine(settings.place, len(self._addresses))
        self._peers = Peers(
            settings.place, self._addresses, settings.credentials, self._engine, self._failed, self._done
        )
        self._asked: _Asked | None = None
        self._tasks: set[asyncio.Task] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._connected = asyncio.Event()

    @classmethod
    async def run(cls, settings: Settings, memory: Memory, ready: Callable[[str], None]) -> None:
        self = cls(settings, memory)
        self._loop.set_exception_handler(self._unhandled)
        for each in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(each, self._interrupted)
        own = self._addresses[settings.place - 1]
        try:
            server = await asyncio.start_server(
                self._connection, settings.listen, own.port, ssl=settings.credentials.context(server=True)
            )
        except InputError:
            memory.discard()
            raise
        except OSError as error:
            memory.discard()
            number = error.errno or 0  # a name that is not found has a negative one
            why = os.strerror(number) if number > 0 else error.strerror or error
            raise InputError(
                f"tallier {settings.place} cannot listen at {settings.listen}:{own.port} ({why}); another may run "
                "there, give another port"
            ) from None
        ready(f"tallier {settings.place} of {len(self._addresses)} listens at {settings.listen}:{own.port}")
        work = self._loop.create_task(self._serve(ready))
        try:
            await asyncio.wait({work, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                await self._failed
            await work
        except BaseException as error:
            why = str(error) if isinstance(error, InputError) else f"tallier {settings.place} was stopped"
            await self._hang_up(None if isinstance(error, _Over) and not error.args else why)
            raise
        finally:
            server.close()
            self._loop.set_exception_handler(lambda loop, context: None)  # mpyc's tasks end unfinished

    def _interrupted(self) -> None:
        if not self._failed.done():
            self._failed.set_exception(_Over("a signal"))

    def _done(self) -> None:
        """Another tallier saw the only client go."""
        if not self._failed.done():
            self._failed.set_exception(_Over() if self._settings.once else InputError("another tallier ended"))

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error inside mpyc, which would otherwise wait for ever."""
        error = context.get("exception")
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _serve(self, ready: Callable[[str], None]) -> None:
        await self._peers.connect(self._settings.wait)
        self._connected.set()
        ready(f"tallier {self._settings.place} is connected to the others")
        await self._loop.create_future()  # connections do the rest

    async def _hang_up(self, why: str | None) -> None:
        for writer in [] if why is None else self._clients:
            with contextlib.suppress(OSError, RuntimeError):
                writer.write(messages.pack({"kind": "stop", "why": why}))
        await self._peers.stop(why)
        for writer in self._clients:
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):
                await asyncio.wait_for(writer.drain(), 1)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody called: a tallier, a client, or a stranger, who is not answered."""
        try:
            first = await asyncio.wait_for(messages.read(reader, longest=0), 10)
            if first is not None and first[0]["kind"] == "tallier":
                await self._peers.accept(first[0], reader, writer, answered=False)
            elif first is not None and first[0]["kind"] == "client":
                keep_alive(writer.get_extra_info("socket"))
                self._clients.add(writer)
                await self._client(reader, writer)
        except (messages.Malformed, TimeoutError):
            pass
        except Exception as error:
            if not self._failed.done():
                self._failed.set_exception(error)
        finally:
            if not self._failed.done():  # or it is sent the reason
                self._clients.discard(writer)
                writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._connected.wait()
        writer.write(messages.pack({**self._peers.hello(), "seeded": self._memory.source.kind == "seeded"}))
        asked: _Asked | None = None
        while (message := await self._next(reader, asked)) is not None:
            head, body = message
            if head["kind"] == "question":
                asked = await self._ask(str(head.get("token")), head.get("question"), writer)
            elif head["kind"] == "ballot" and asked is not None and asked is self._asked and asked.box is not None:
                asked.box.add(str(head.get("agent")), body)
                if asked.box.full:
                    asked.filled.set()
            else:
                raise InputError(f"a client sent {head['kind']!r} where no question is open; ask one first")
        if asked is not None and asked is self._asked:
            # A client goes when it learns that a tallier is gone: that is the reason to report, if it arrives soon.
            await asyncio.wait({self._failed}, timeout=LAST_WORD)
            raise InputError("a client went away before the answers were there; ask again under the same token")
        if self._settings.once:
            raise _Over

    async def _next(self, reader: asyncio.StreamReader, asked: _Asked | None) -> messages.Message | None:
        """A malformed message is a stranger's no more."""
        try:
            longest = 16 * asked.question.queries * asked.question.classes if asked else 0
            return await messages.read(reader, longest=longest)
        except messages.Malformed as error:
            raise InputError(f"a client sent no proper message: {error}") from None

    async def _ask(self, token: str, fields: Any, writer: asyncio.StreamWriter) -> _Asked:
        """Join the question that is open, or open this one."""
        question = _question(fields)
        if self._asked is not None:
            if (self._asked.token, self._asked.question) != (token, question):
                raise InputError("two clients ask different questions at the same time; ask one after the other")
            self._asked.clients.add(writer)
            if self._asked.box is not None:
                writer.write(messages.pack({"kind": "cast"}))
            return self._asked
        asked = self._asked = _Asked(token, question)
        asked.clients.add(writer)
        task = self._loop.create_task(self._answer(asked))
        self._tasks.add(task)
        task.add_done_callback(self._answered)
        return asked

    def _answered(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _answer(self, asked: _Asked) -> None:
        """One question, from what is remembered of it to the answers."""
        known = self._memory.recall(asked.token)
        fields = asked.question.to_json()
        if known is not None and known["question"] != fields:
            raise InputError("another question was asked under this token before; give it a token of its own")
        names = await self._begin(asked, known)
        answers = self._agreed
        if answers is None:
            asked.box = Box(
                asked.question,
                self._engine.field,
                place=self._settings.place,
                talliers=len(self._addresses),
                coins=self._coins,
            )
            for writer in asked.clients:
                writer.write(messages.pack({"kind": "cast"}))
            await asked.filled.wait()
            await self._same("the agents that voted", hashlib.sha256(json.dumps(sorted(asked.box.seen)).encode()))
            now = {"question": fields, "names": names, "digest": asked.box.digest}
            if known is not None and known["digest"] != now["digest"]:
                raise InputError(
                    "other ballots were cast under this token before, and the same noise would reveal the difference; "
                    "give these a token of their own"
                )
            self._memory.keep(asked.token, now)
            await self._peers.agree("kept", None)
            answers = _written(await self._open(asked))
            await self._same("the answers", hashlib.sha256(json.dumps(answers).encode()))
            self._memory.keep(asked.token, {**now, "answers": answers})
        self._asked = None
        for writer in asked.clients:
            writer.write(messages.pack({"kind": "answers", "answers": answers}))

    async def _begin(self, asked: _Asked, known: dict[str, Any] | None) -> list[str]:
        """Agree on the question, on what is known of it, and on coins for the check; gives the names of all keys."""
        ours = {
            "token": asked.token,
            "question": asked.question.to_json(),
            "name": self._memory.name,
            "known": None if known is None else known["names"],
            "answers": None if known is None else known.get("answers"),
            "coins": secrets.token_hex(32),
        }
        answers = await self._peers.agree("question", ours)
        for part in ("token", "question"):
            if any(each[part] != ours[part] for each in answers.values()):
                raise InputError(f"the talliers were asked under different {part}s; ask all of them the same")
        self._coins = hashlib.sha256(json.dumps([each["coins"] for each in answers.values()]).encode()).digest()
        opened = [each["answers"] for each in answers.values() if each["answers"] is not None]
        self._agreed = opened[0] if opened else None
        if any(each != opened[0] for each in opened):
            raise InputError("the talliers remember different answers to this question; ask under a new token")
        names = [each["name"] for each in answers.values()]
        if self._agreed is None and any(each["known"] not in (None, names) for each in answers.values()):
            raise InputError(
                "the tallier has another key than when this question was first asked; start it with its old "
                "folder, or ask under a new token"
            )
        return names

    async def _same(self, what: str, digest: Any) -> None:
        digests = await self._peers.agree(what, digest.hexdigest())
        if len(set(digests.values())) > 1:
            raise InputError(f"{what} differ between the talliers; ask again under a new token")

    async def _open(self, asked: _Asked) -> Answers:
        question, box = asked.question, asked.box
        assert box is not None
        self._engine.begin(compared_bits(question, len(self._addresses)))
        if question.one_hot:
            names, summands = box.checks()
            bad = [name for name, fine in zip(names, await self._engine.zeros(summands)) if not fine]
            if bad:
                raise InputError(f"agent {bad[0]!r}: its ballot is not one vote a query, or 0; nothing was opened")
        noise = self._noise(asked, "answers", question.noise_units, question.queries * question.classes)
        of_threshold = None
        if question.threshold is not None:
            of_threshold = self._noise(asked, "threshold", question.threshold_noise_units, question.queries)
        shape = (question.queries, question.classes)
        return await open_answers(self._engine, question, box.share(), noise.reshape(shape), of_threshold)

    def _noise(self, asked: _Asked, of: str, std_units: float, count: int) -> np.ndarray:
        variance = share_variance(std_units, len(self._addresses))
        return discrete_gaussian(tallier_noise(self._memory.source, asked.token, of), variance, count)


def tallier_noise(source, token: str, of: str):
    """The stream of one tallier's share of the noise: under one token it is always the same."""
    return source.within(token).stream("tallier noise", of)


def _question(fields: Any) -> Question:
    try:
        return Question(**fields)
    except TypeError:
        raise InputError("a client asked no question that this sfumato knows; do all run the same one?") from None


def _written(answers: Answers) -> dict[str, Any]:
    return {
        "answered": answers.answered.tolist(),
        "labels": None if answers.labels is None else answers.labels.tolist(),
        "counts": None if answers.counts is None else answers.counts.tolist(),
    }
