"""Ctrl-C and SIGTERM ask the run to stop after the round in hand; a second one stops it at once."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """A context in which the first signal only sets `asked`; outside the main thread it does nothing.

    Attributes:
        asked: whether somebody asked the run to stop.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _ask(self, number: int, _: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
