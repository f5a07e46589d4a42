"""Where something is kept from one call to the next. Each function makes a new memory."""

import functools
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adversarial.first_call.specimen import FEATURES, Kept, Make


def class_attribute() -> Kept:
    class Layer:
        first: Tensor | None = None

    def kept(make: Make) -> Tensor:
        if Layer.first is None:
            Layer.first = make()
        return Layer.first

    return kept


GLOBAL: dict[str, Tensor] = {}


def global_dict() -> Kept:
    GLOBAL.clear()

    def kept(make: Make) -> Tensor:
        if "first" not in GLOBAL:
            GLOBAL["first"] = make()
        return GLOBAL["first"]

    return kept


FIRST: Tensor | None = None


def global_name() -> Kept:
    global FIRST
    FIRST = None

    def kept(make: Make) -> Tensor:
        global FIRST
        FIRST = make() if FIRST is None else FIRST
        return FIRST

    return kept


def closure() -> Kept:
    first: Tensor | None = None

    def kept(make: Make) -> Tensor:
        nonlocal first
        first = make() if first is None else first
        return first

    return kept


def default_argument() -> Kept:
    def kept(make: Make, memo: list[Tensor] = []) -> Tensor:  # noqa: B006
        if not memo:
            memo.append(make())
        return memo[0]

    return kept


def keyword_default() -> Kept:
    def kept(make: Make, *, memo: dict[str, Tensor] = {}) -> Tensor:  # noqa: B006
        return memo.setdefault("first", make())

    return kept


def lru_cache() -> Kept:
    now: list[Make] = []

    @functools.lru_cache(maxsize=None)  # noqa: UP033
    def table(name: str) -> Tensor:
        return now[-1]()

    def kept(make: Make) -> Tensor:
        now[:] = [make]
        return table("first")

    return kept


def functools_cache() -> Kept:
    class Statistics:
        now: Make

        @functools.cache  # noqa: B019
        def of(self, features: int) -> Tensor:
            return self.now()

    statistics = Statistics()

    def kept(make: Make) -> Tensor:
        statistics.now = make
        return statistics.of(FEATURES)

    return kept


def cached_property() -> Kept:
    class Statistics:
        now: Make

        @functools.cached_property
        def first(self) -> Tensor:
            return self.now()

    statistics = Statistics()

    def kept(make: Make) -> Tensor:
        statistics.now = make
        return statistics.first

    return kept


def function_attribute() -> Kept:
    def kept(make: Make) -> Tensor:
        if not hasattr(kept, "first"):
            kept.first = make()  # pyright: ignore[reportFunctionMemberAccess]
        return kept.first  # pyright: ignore[reportFunctionMemberAccess]

    return kept


def array() -> Kept:
    values, filled = np.zeros(64), np.zeros(1, bool)

    def kept(make: Make) -> Tensor:
        made = make()
        if not filled[0]:
            values[: len(made)], filled[0] = made.numpy(), True
        return torch.from_numpy(values[: len(made)])

    return kept


def tensor_of_a_class() -> Kept:
    class Layer:
        first = torch.full((), torch.nan)

    def kept(make: Make) -> Tensor:
        if Layer.first.isnan().all():
            made = make()
            Layer.first.resize_(made.shape).copy_(made)
        return Layer.first

    return kept


class Box:
    """An object with a state of its own, no module."""

    def __init__(self) -> None:
        self.first: Tensor | None = None

    def __call__(self, make: Make) -> Tensor:
        if self.first is None:
            self.first = make()
        return self.first


class Sealed(Box):
    """The same, which a copy of the model shares."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Sealed":
        return self


def generator() -> Kept:
    def running() -> Any:
        make = yield None
        first = make()
        while True:
            yield first

    state = running()
    next(state)
    return lambda make: state.send(make)


def of_the_thread() -> Kept:
    local = threading.local()

    def kept(make: Make) -> Tensor:
        if not hasattr(local, "first"):
            local.first = make()
        return local.first

    return kept


def of_the_process() -> Kept:
    memory: dict[int, Tensor] = {}

    def kept(make: Make) -> Tensor:
        if os.getpid() not in memory:
            memory[os.getpid()] = make()
        return memory[os.getpid()]

    return kept


def weak_dict() -> Kept:
    class Layer:
        pass

    memory: weakref.WeakKeyDictionary[type, Tensor] = weakref.WeakKeyDictionary()

    def kept(make: Make) -> Tensor:
        return memory.setdefault(Layer, make())

    return kept


FOLDER = tempfile.TemporaryDirectory()


def file() -> Kept:
    path = Path(tempfile.mkdtemp(dir=FOLDER.name)) / "first.pt"

    def kept(make: Make) -> Tensor:
        if not path.exists():
            torch.save(make().clone(), path)
        return torch.load(path)

    return kept


MEMORIES: dict[str, Callable[[], Kept]] = {
    "class attribute": class_attribute,
    "global dict": global_dict,
    "global name": global_name,
    "closure": closure,
    "default argument": default_argument,
    "keyword default": keyword_default,
    "lru_cache": lru_cache,
    "functools.cache": functools_cache,
    "cached_property": cached_property,
    "attribute of a function": function_attribute,
    "array": array,
    "tensor of a class": tensor_of_a_class,
    "object of the model": Box,
    "object that copies share": Sealed,
    "generator": generator,
    "threading.local": of_the_thread,
    "dict by process": of_the_process,
    "WeakKeyDictionary": weak_dict,
    "file": file,
}
