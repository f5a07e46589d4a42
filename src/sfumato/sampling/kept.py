"""The last thing that was computed from a run's key, kept for the next round: a speed-up that nobody can see.

>>> kept = Kept()
>>> kept.get("a", lambda: [1, 2]) is kept.get("a", lambda: [3])
True
>>> kept.get("b", lambda: [3])
[3]
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """One value and the name that it was made for. Copies and pickles are empty, as it may hold a run's key."""

    def __init__(self) -> None:
        self._held: tuple[Hashable, Value] | None = None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()

    def get(self, name: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` gave when this name was first asked for; another name in between forgets it."""
        held = self._held
        if held is None or held[0] != name:
            held = self._held = name, make()
        return held[1]
