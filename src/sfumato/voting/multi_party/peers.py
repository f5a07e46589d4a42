"""One tallier's connections to the others: what they agree on, mpyc's messages, and whether they are still there."""

import asyncio
import contextlib
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from sfumato._check import InputError
from sfumato.voting.multi_party import messages
from sfumato.voting.multi_party.engine import Engine, Exchanger
from sfumato.voting.multi_party.messages import Address, Credentials, is_of, keep_alive

LAST_WORD = 1.0  # seconds for others to hang up, too
_BEAT, _SILENCE = 1.0, 30.0  # seconds between signs of life, and without them until a tallier is taken for dead


class Peers:
    """The other talliers, from 1, without this one.

    Args:
        place: of this tallier, from 1.
        addresses: of all.
        credentials: for TLS.
        engine: gets its messages.
        failed: gets an exception when one of them is lost or stops.
        over: is called when one of them ends because all is done.
    """

    def __init__(
        self,
        place: int,
        addresses: tuple[Address, ...],
        credentials: Credentials,
        engine: Engine,
        failed: asyncio.Future,
        over: Callable[[], None],
    ) -> None:
        self.place, self._addresses, self._credentials, self._engine = place, addresses, credentials, engine
        self._failed, self._over = failed, over
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._ended: dict[int, asyncio.Event] = {}  # nothing more comes from there
        self._last_message: dict[int, float] = {}
        self._steps: dict[tuple[int, str], asyncio.Future] = defaultdict(asyncio.get_running_loop().create_future)
        self._tasks: set[asyncio.Task] = set()
        self._times = 0
        self._all_there = asyncio.get_running_loop().create_future()

    def hello(self) -> dict[str, Any]:
        """What talliers send each other first: they must mean the same group."""
        group = [str(each) for each in self._addresses]
        return {"kind": "tallier", "place": self.place, "group": group, "version": version("sfumato")}

    async def connect(self, wait: float) -> None:
        """Reach those that come later in the list, and let the others reach us.

        Raises:
            InputError: one is not there within `wait` seconds.
        """
        end = time.monotonic() + wait
        for peer in range(self.place + 1, len(self._addresses) + 1):
            self._task(self._call(peer, end))
        try:
            await asyncio.wait_for(asyncio.shield(self._all_there), wait)
        except TimeoutError:
            missing = [str(self._addresses[k - 1]) for k in self._others() if k not in self._writers]
            raise InputError(
                f"no tallier answers at {', '.join(missing)} within {wait:g} s; start it, or give the right addresses"
            ) from None
        self._task(self._beat())

    async def _call(self, peer: int, end: float) -> None:
        address = self._addresses[peer - 1]
        context = self._credentials.context(server=False)
        while time.monotonic() < end:
            try:
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
                break
            except OSError as error:
                if type(error).__name__ == "SSLCertVerificationError":
                    self._fail(f"the certificate of the tallier at {address} is not one for it: {error.strerror}")
                    return
                await asyncio.sleep(0.05)
        else:
            return
        writer.write(messages.pack(self.hello()))
        answer = await messages.read(reader)
        if answer is None or answer[0].get("kind") != "tallier":
            reason = "it closed the connection" if answer is None else str(answer[0].get("why", "it is no tallier"))
            self._fail(f"tallier {peer} at {address} refused the connection: {reason}")
            return
        await self.accept(answer[0], reader, writer, answered=True)

    async def accept(
        self, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answered: bool
    ) -> None:
        """Take a connection whose other end said that it is a tallier; returns when it ends."""
        peer, ours = hello.get("place"), self.hello()
        wrong = None
        known = isinstance(peer, int) and peer in self._others() and (answered or peer < self.place)
        if not isinstance(peer, int) or not known or peer in self._writers:
            wrong = f"tallier {peer} is there already, or it is none of this group"
        elif {**hello, "place": 0} != {**ours, "place": 0}:
            wrong = (
                f"tallier {self.place} runs sfumato {ours['version']} in the group {', '.join(ours['group'])}, tallier "
                f"{peer} sfumato {hello.get('version')} in {hello.get('group')}; start all with the same settings"
            )
        elif self._credentials.certificate and not is_of(
            writer.get_extra_info("peercert"), self._addresses[peer - 1].host
        ):
            wrong = f"the certificate of tallier {peer} does not bear the name {self._addresses[peer - 1].host}"
        if wrong is not None:
            writer.write(messages.pack({"kind": "stop", "why": wrong}))
            if isinstance(peer, int) and known and peer not in self._writers:
                self._fail(wrong)
            return
        assert isinstance(peer, int)
        keep_alive(writer.get_extra_info("socket"))
        if not answered:
            writer.write(messages.pack(ours))
        self._writers[peer], self._ended[peer] = writer, asyncio.Event()
        exchanger = Exchanger(lambda head, body: self._send(peer, head, body))
        self._send(peer, {"kind": "keys", "keys": self._engine.connect(peer, exchanger)})
        try:
            await self._listen(peer, reader, exchanger)
        except InputError as error:
            self._fail(f"tallier {peer} at {self._addresses[peer - 1]}: {error}")
        finally:
            self._ended[peer].set()

    async def _listen(self, peer: int, reader: asyncio.StreamReader, exchanger: Exchanger) -> None:
        while True:
            message = await messages.read(reader)
            self._last_message[peer] = time.monotonic()
            if message is None:
                self._fail(f"tallier {peer} at {self._addresses[peer - 1]} is gone")
                return
            head, body = message
            match head["kind"]:
                case "mpc":
                    exchanger.arrived(head["number"], body)
                case "keys":
                    self._engine.accept_keys(peer, head["keys"])
                    self._ready(peer)
                case "step":
                    step = self._steps[peer, str(head["name"])]
                    if not step.done():
                        step.set_result(head["value"])
                case "stop":
                    self._fail(str(head["why"]))
                    return
                case "done":
                    self._over()
                    return

    def _ready(self, peer: int) -> None:
        self._steps[peer, "connected"].set_result(None)
        if all((k, "connected") in self._steps for k in self._others()) and not self._all_there.done():
            self._all_there.set_result(None)

    async def agree(self, name: str, value: Any) -> dict[int, Any]:
        """Send a value to the others and receive theirs; by place, this one's included."""
        self._times += 1  # all do the same in the same order; one may be a step ahead
        name = f"{self._times} {name}"
        for peer in self._others():
            self._send(peer, {"kind": "step", "name": name, "value": value})
        received = {peer: await self._steps[peer, name] for peer in self._others()}
        for peer in self._others():
            del self._steps[peer, name]
        return dict(sorted({**received, self.place: value}.items()))

    async def stop(self, why: str | None) -> None:
        """Send the reason for stopping to all, None where all is done, and close the connections."""
        last = messages.pack({"kind": "done"} if why is None else {"kind": "stop", "why": why})
        for writer in self._writers.values():
            with contextlib.suppress(OSError, RuntimeError):
                writer.write(last)
                writer.write_eof() if writer.can_write_eof() else writer.close()
        for writer in self._writers.values():
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):
                await asyncio.wait_for(writer.drain(), 1)
        # What came and is not read would reset the connection, and take our last word with it.
        ends = [asyncio.ensure_future(ended.wait()) for ended in self._ended.values()]
        if ends:
            _, waiting = await asyncio.wait(ends, timeout=LAST_WORD)
            for each in waiting:
                each.cancel()

    async def _beat(self) -> None:
        self._last_message = dict.fromkeys(self._others(), time.monotonic())
        while True:
            await asyncio.sleep(_BEAT)
            for peer in self._others():
                self._send(peer, {"kind": "alive"})
                if time.monotonic() - self._last_message[peer] > _SILENCE:
                    self._fail(f"tallier {peer} at {self._addresses[peer - 1]} is silent for {_SILENCE:g} s")

    def _others(self) -> list[int]:
        return [k for k in range(1, len(self._addresses) + 1) if k != self.place]

    def _send(self, peer: int, head: dict[str, Any], body: bytes = b"") -> None:
        writer = self._writers[peer]
        if writer.is_closing():  # it is gone, which is seen where it is read; asyncio would warn of each write
            return
        with contextlib.suppress(OSError, RuntimeError):
            writer.write(messages.pack(head, body))

    def _fail(self, why: str) -> None:
        if not self._failed.done():
            self._failed.set_exception(InputError(why))

    def _task(self, coroutine) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def free_address(host: str = "127.0.0.1") -> Address:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return Address(host, probe.getsockname()[1])
