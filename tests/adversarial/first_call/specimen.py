"""Code that keeps something of records that it had before, or that couples records in some steps only; sound siblings.

The checks compare later calls with each other. What the first call leaves behind is constant by then, and what begins
at a step that no check looks at is never compared. Each specimen is built anew for each training, so that one process
can hold several: its class, global name, closure or file is a new one each time.

A specimen names the ways of training that it is for (`adversarial.first_call.ways`), and whether it is to be refused.
One that is accepted must keep the bound: one unit moves no released sum by more than the plan accounts for."""

import functools
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from adversarial.specimens import CLASSES, Loss, each

# What a user writes, and the table of specimens of it; models and values that they share.

FEATURES = 6

Make = Callable[[], Tensor]
Kept = Callable[[Make], Tensor]
"""Gives what the first call made, or, of siblings, what every call would make."""

Value = Callable[[Tensor], Tensor]


@dataclass(kw_only=True)
class Turn:
    """What a custom loop has in hand for a micro-batch."""

    private: Any
    model: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer
    scheduler: Any
    index: int


def plain(turn: Turn, batch: tuple[Tensor, Tensor]) -> Tensor:
    return turn.loss(turn.model(batch[0]), batch[1])


@dataclass(kw_only=True)
class Code:
    """A user's objects, new for every training.

    Attributes:
        model: from [n, 6] to [n, 3].
        loss: one loss an example; for `fit` and the loop.
        collate, dataset: of the custom loop; the data set is made from inputs [n, 6] and labels [n].
        body: the inside of the custom loop: the losses of a micro-batch.
        rate: of the custom loop's scheduler, by the step.
    """

    model: nn.Module
    loss: Loss = each
    collate: Callable[[list[Any]], Any] | None = None
    dataset: Callable[[Tensor, Tensor], Any] = TensorDataset
    body: Callable[[Turn, Any], Tensor] = plain
    rate: Callable[[int], float] = lambda step: 1.0


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """One entry of the table.

    Attributes:
        name: what it keeps and where.
        ways: names of `adversarial.first_call.ways.WAYS`.
        build: makes the user's objects.
        couples: by what.
        expected: "refused"; "harmless", which must be accepted; or "stated": no look can be counted on to meet it.
        steps: of the training.
        micro_batch: of DP-SGD; None for all records at once.
        grows: what the weights are multiplied with after each step.
        measured: whether two trainings can be compared; not where each unit's own random numbers follow from its
            position.
    """

    name: str
    ways: tuple[str, ...]
    build: Callable[[], Code]
    couples: str
    expected: Literal["refused", "harmless", "stated"] = "refused"
    steps: int = 2
    micro_batch: int | None = None
    grows: float = 1.02
    measured: bool = True


SPECIMENS: dict[str, Specimen] = {}


def add(name: str, ways: tuple[str, ...], build: Callable[[], Code], couples: str, **options: Any) -> None:
    assert name not in SPECIMENS, name
    SPECIMENS[name] = Specimen(name=name, ways=ways, build=build, couples=couples, **options)


# What is kept: of records, or of shapes alone.


def mean(values: Tensor) -> Tensor:
    """Couples."""
    return values.detach().mean(dim=0)


def table(values: Tensor) -> Tensor:
    """Follows from the shape of one record."""
    return torch.linspace(-1, 1, values.shape[-1], dtype=values.dtype)


VALUES: dict[str, Value] = {"mean of the first call": mean, "table of shapes": table}


# Models.


def shifted(values: Tensor, by: Tensor) -> Tensor:
    return values + 3 * by.to(values.dtype).tanh()


class Model(nn.Module):
    """Two layers; what `kept` gives shifts the inputs.

    Args:
        value: what is kept, from the inputs.
        kept: the memory.
        when: the call is one that looks into the memory; other calls go on without.
    """

    def __init__(self, value: Value, kept: Kept, when: Callable[["Model", Tensor], bool] = lambda *_: True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.value, self.kept, self.when = value, kept, when

    def forward(self, values: Tensor) -> Tensor:
        if self.when(self, values):
            values = shifted(values, self.kept(lambda: self.value(values)))
        return self.two(self.one(values).tanh())


class Dense(nn.Module):
    """Two layers and something done to the inputs."""

    def __init__(self, before: Callable[[Any, Tensor], Tensor] = lambda model, values: values) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.before = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES), before

    def forward(self, values: Tensor) -> Tensor:
        return self.two(self.one(self.before(self, values)).tanh())


CENTRAL = ("fit", "loop")
LOOPS = ("loop", "lightning")
SOME = ("fit", "loop", "fedavg", "fedavg at once", "votes")
FEDERATED = ("fedavg", "fedavg at once", "fedsgd", "fedemb", "fedrecon", "fedrecon at once")
MANY = ("fit", "loop", "lightning", "frozen", *FEDERATED, "votes", "neighbours")
"""Ways of training."""


# Where something is kept from one call to the next. Each function makes a new memory.


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
