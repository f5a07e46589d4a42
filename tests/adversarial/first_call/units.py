"""Models that couple at some calls only, or from one client or voter to the next."""

import functools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from adversarial.first_call.specimen import CENTRAL, FEATURES, FEDERATED, MANY, SOME, Code, Dense, add, mean, shifted
from adversarial.specimens import CLASSES


def _every(number: int) -> Callable[[Any, Tensor], Tensor]:
    """A count in the class: every so many calls the mean of the batch is taken away."""

    class Counter:
        calls = 0

    def before(model: Any, values: Tensor) -> Tensor:
        Counter.calls += 1
        return shifted(values, -values.mean(dim=0)) if Counter.calls % number == 0 else values

    return before


def _in_window(low: float, high: float) -> Callable[[Any, Tensor], Tensor]:
    """While the weights' norm is within a window, that of one step."""
    start: list[float] = []

    def before(model: Any, values: Tensor) -> Tensor:
        start[:] = start or [float(model.two.bias.detach().norm())]
        grown = float(model.two.bias.detach().norm()) / start[0]
        return shifted(values, -values.mean(dim=0)) if low < grown < high else values

    return before


LOG: list[float] = []


def _counted(model: Any, values: Tensor) -> Tensor:
    LOG.append(float(len(values)))
    return values


add(
    "forward: coupled at every seventh call",
    ("fit", "loop", "fedavg", "votes"),
    lambda: Code(model=Dense(_every(7))),
    "some calls",
    steps=8,
)
add(
    "forward: coupled at every 401st call",
    ("fit",),
    lambda: Code(model=Dense(_every(401))),
    "some calls",
    steps=402,
    expected="stated",
)
add(
    "forward: coupled while a weight is in a window",
    CENTRAL,
    lambda: Code(model=Dense(_in_window(1.29, 1.35))),
    "one step",
    steps=6,
    grows=1.1,
    expected="stated",
)
add("forward: calls counted for a log", SOME, lambda: Code(model=Dense(_counted)), "nothing", expected="harmless")


# From one client, or voter, to the next.


class _Bank(Dense):
    """A list that all instances share."""

    bank: list[Tensor]

    def forward(self, values: Tensor) -> Tensor:
        before = torch.stack(self.bank).mean(dim=0) if self.bank else torch.zeros(FEATURES)
        self.bank.append(mean(values))
        return super().forward(shifted(values, before))


class _LastBatch(Dense):
    last: Tensor | None = None

    def forward(self, values: Tensor) -> Tensor:
        before = type(self).last
        type(self).last = mean(values)
        return super().forward(values if before is None else shifted(values, before))


class _Count(Dense):
    count = 0

    def forward(self, values: Tensor) -> Tensor:
        type(self).count += len(values)
        return super().forward(shifted(values, torch.tensor(type(self).count % 7 - 3.0)))


def _fresh(kind: type[nn.Module], **state: Any) -> Code:
    """A class of its own, with a state of its own."""
    return Code(model=type(kind.__name__, (kind,), state)())


def _draws(model: Any, values: Tensor) -> Tensor:
    """How many are drawn follows from the records, and what others draw from that."""
    drawn = [random.random() for _ in range(1 + int(float(values.detach().abs().amax()) > 5))]
    return shifted(values, torch.tensor(4 * drawn[0] - 2))


UNITS = ("fit", *FEDERATED, "votes")

add("clients: a list that all instances share", (*UNITS, "neighbours"), lambda: _fresh(_Bank, bank=[]), "units before")


class _Switched(Dense):
    """The first large record changes what all later ones are scaled by."""

    seen = False

    def forward(self, values: Tensor) -> Tensor:
        if bool((values.abs() > 8).any()):
            type(self).seen = True
        signs = torch.tensor([1.0, -1.0] * (FEATURES // 2), dtype=values.dtype)
        return super().forward(values.clamp(-8, 8) / 3 if self.seen else values * signs)


class _Clamped(Dense):
    """What is large is made smaller, each by itself; calls are counted, for nobody."""

    calls = 0

    def forward(self, values: Tensor) -> Tensor:
        type(self).calls += 1
        return super().forward(values.clamp(-8, 8) / 3)


class _Calibrated(Dense):
    """The mean of ten calls, from the 31st on, is taken away behind them."""

    calls, total = 0, torch.zeros(FEATURES)

    def forward(self, values: Tensor) -> Tensor:
        kind = type(self)
        kind.calls += 1
        if 30 < kind.calls <= 40:
            kind.total = kind.total + mean(values) / 10
        return super().forward(shifted(values, kind.total.to(values.dtype)) if kind.calls > 40 else values)


add("clients: what a large record switches on", ("fit", "loop", "fedavg"), lambda: _fresh(_Switched), "a rare record")
add(
    "clients: large values clamped, calls counted",
    ("fit", "loop", "fedavg", "fedemb", "votes"),
    lambda: _fresh(_Clamped),
    "nothing",
    expected="harmless",
)
add("clients: mean of calls 31 to 40", ("fit", "fedavg"), lambda: _fresh(_Calibrated), "some calls", steps=14)
add("clients: the batch before, in the class", (*UNITS, "neighbours"), lambda: _fresh(_LastBatch), "units before")
add("clients: a count in the class", UNITS, lambda: _fresh(_Count), "the number of records before")
add(
    "clients: Python's generator",
    ("fit", "fedavg", "fedrecon", "votes"),
    lambda: Code(model=Dense(_draws)),
    "draws of units before",
)
add(
    "clients: a list for a log",
    ("fit", "fedavg", "fedrecon", "votes", "neighbours"),
    lambda: Code(model=Dense(_counted)),
    "nothing",
    expected="harmless",
)
add(
    "clients: constants of the class",
    UNITS,
    lambda: _fresh(
        type("Constants", (Dense,), {"forward": lambda self, values: Dense.forward(self, values / self.scale)}),
        scale=2.0,
    ),
    "nothing",
    expected="harmless",
)
add(
    "clients: dropout",
    ("fit", "fedavg", "fedemb", "votes"),
    lambda: Code(model=nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, CLASSES))),
    "nothing",
    expected="harmless",
    measured=False,
)


class _Memo(Dense):
    """The norm of a weight, computed anew when the weight has changed."""

    memo: tuple[int, Tensor] | None = None

    def forward(self, values: Tensor) -> Tensor:
        version = self.one.weight._version
        if self.memo is None or self.memo[0] != version:
            self.memo = version, self.one.weight.detach().norm()
        return super().forward(values / (1 + self.memo[1]))


add(
    "loop: learning-rate warm-up",
    ("loop",),
    lambda: Code(model=Dense(), rate=lambda step: min(1.0, (step + 1) / 3)),
    "nothing",
    expected="harmless",
    steps=4,
)
add(
    "forward: memo of weights",
    ("fit", "loop", "fedavg", "votes"),
    lambda: Code(model=_Memo()),
    "nothing",
    expected="harmless",
)


@functools.lru_cache(maxsize=None)  # noqa: UP033
def positions(length: int) -> Tensor:
    return torch.linspace(-1, 1, length)


add(
    "forward: lru_cache on shapes",
    MANY,
    lambda: Code(model=Dense(lambda model, values: values + positions(values.shape[-1]).to(values.dtype))),
    "nothing",
    expected="harmless",
)
