"""Models that keep something of the first call, or couple at some calls only or from one client to the next."""

import functools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from adversarial.first_call.specimen import (
    CENTRAL,
    FEATURES,
    FEDERATED,
    MANY,
    MEMORIES,
    SOME,
    VALUES,
    Code,
    Dense,
    Kept,
    Model,
    Value,
    add,
    class_attribute,
    closure,
    mean,
    shifted,
    table,
)
from adversarial.specimens import CLASSES

# Models that keep something of the first call, or of the first one of some kind, in forward or in hooks.

for _memory, _new in MEMORIES.items():
    _where = {"class attribute": MANY, "closure": MANY, "lru_cache": SOME, "global dict": SOME, "file": SOME}
    for _value, _of in VALUES.items():
        add(
            f"forward: {_value} in {_memory}",
            _where.get(_memory, ("fit", "fedavg")),
            lambda new=_new, of=_of: Code(model=Model(of, new())),
            "the first call" if _of is mean else "nothing",
            expected="refused" if _of is mean else "harmless",
        )


# What the first call of some kind leaves behind: placeholders may not be of that kind.


def call_number(number: int) -> Callable[[Model, Tensor], bool]:
    """From so many calls on; a count in the class."""
    calls = [0]

    def when(model: Model, values: Tensor) -> bool:
        calls[0] += 1
        return calls[0] >= number

    return when


_CLIENTS = ("fit", "fedavg", "fedrecon", "votes", "neighbours")

WHEN: dict[str, tuple[tuple[str, ...], Callable[[], Callable[[Model, Tensor], bool]], dict[str, Any]]] = {
    "in training mode": (_CLIENTS[:-1], lambda: lambda model, values: model.training, {}),
    "with gradients": (_CLIENTS[:-1], lambda: lambda model, values: torch.is_grad_enabled(), {}),
    "of values that vary": (("fit",), lambda: lambda model, values: float(values.detach().std()) > 0.1, {}),
    "with an extreme value": (_CLIENTS, lambda: lambda model, values: float(values.detach().abs().amax()) > 5, {}),
    "of a large batch": (("fit",), lambda: lambda model, values: len(values) > 16, {}),
    "of several records": (("fit", "fedavg"), lambda: lambda model, values: len(values) > 1, {}),
    "number 30": (_CLIENTS, lambda: call_number(30), {}),
    "number 60": (("fit", "fedavg"), lambda: call_number(60), {}),
    "number 400": (("fit",), lambda: call_number(400), {"steps": 420}),
}

for _when, (_ways, _condition, _options) in WHEN.items():
    add(
        f"forward: mean of the first call {_when}",
        _ways,
        lambda condition=_condition: Code(model=Model(mean, class_attribute(), condition())),
        "the first call of a kind",
        **_options,
    )

add(
    "forward: a table by the number of rows, of records",
    ("fit", "fedavg"),
    lambda: Code(model=Dense(_by_rows(mean))),
    "the first call with so many rows",
)
add(
    "forward: a table by the number of rows, of shapes",
    ("fit", "fedavg"),
    lambda: Code(model=Dense(_by_rows(table))),
    "nothing",
    expected="harmless",
)


def _by_rows(value: Value) -> Callable[[Any, Tensor], Tensor]:
    memo: dict[int, Tensor] = {}
    return lambda model, values: shifted(values, memo.setdefault(len(values), value(values)))


# Hooks.


def with_pre_hook(value: Value, kept: Kept) -> nn.Module:
    model = Dense()
    model.one.register_forward_pre_hook(lambda _, given: shifted(given[0], kept(lambda: value(given[0]))))
    return model


def with_hook(value: Value, kept: Kept) -> nn.Module:
    model = Dense()
    model.one.register_forward_hook(lambda _, given, found: shifted(found, kept(lambda: value(found))))
    return model


def with_gradient_hook(value: Value, kept: Kept) -> nn.Module:
    """Signs that the first gradient has, for all."""

    def before(model: Any, values: Tensor) -> Tensor:
        return values

    class Hooked(Dense):
        def forward(self, values: Tensor) -> Tensor:
            hidden = self.one(values).tanh()
            if hidden.requires_grad:
                hidden.register_hook(
                    lambda gradient: gradient * (kept(lambda: value(gradient)).to(gradient.dtype).sign() + 1e-3)
                )
            return self.two(hidden)

    return Hooked(before)


for _hook, _hooked in {
    "forward pre-hook": with_pre_hook,
    "forward hook": with_hook,
    "hook on a gradient": with_gradient_hook,
}.items():
    for _value, _of in VALUES.items():
        add(
            f"{_hook}: {_value}",
            ("fit", "fedavg") if "gradient" in _hook else ("fit", "loop", "fedavg", "votes"),
            lambda hooked=_hooked, of=_of: Code(model=hooked(of, closure())),
            "the first call" if _of is mean else "nothing",
            expected="refused" if _of is mean else "harmless",
        )


# Parts of the model.


def _late_buffer(value: Value) -> Callable[[Any, Tensor], Tensor]:
    def before(model: Any, values: Tensor) -> Tensor:
        if not hasattr(model, "first"):
            model.register_buffer("first", value(values))
        return shifted(values, model.first)

    return before


def _attribute(value: Value) -> Callable[[Any, Tensor], Tensor]:
    def before(model: Any, values: Tensor) -> Tensor:
        if not hasattr(model, "first"):
            model.first = value(values)
        return shifted(values, model.first)

    return before


class Observer(nn.Module):
    """Fake quantisation to few bits, calibrated once: by torch's observer, whose range is in buffers."""

    def __init__(self) -> None:
        super().__init__()
        from torch.ao.quantization import MinMaxObserver

        self.observer, self.calibrated = MinMaxObserver(quant_min=0, quant_max=7, dtype=torch.quint8), False

    def forward(self, values: Tensor) -> Tensor:
        if not self.calibrated:
            self.observer(values.detach().float())
            self.calibrated = True
        scale, zero = self.observer.calculate_qparams()
        return _straight_through(values, _quantised(values.detach(), float(scale), float(zero)))


def _quantised(values: Tensor, scale: float, zero: float = 0.0) -> Tensor:
    return ((values / scale + zero).round().clamp(0, 7) - zero) * scale


def _straight_through(values: Tensor, quantised: Tensor) -> Tensor:
    return values + (quantised - values).detach()


def _fake_quantised(size: Callable[[Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """Calibrated at the first call; the scale is kept in an object that all layers share."""
    kept = class_attribute()

    def before(model: Any, values: Tensor) -> Tensor:
        scale = float(kept(lambda: size(values.detach())))
        return _straight_through(values, _quantised(values.detach() + 3 * scale, scale) - 3 * scale)

    return before


def _observed() -> nn.Module:
    model = Dense(lambda model, values: model.observer(values))
    model.observer = Observer()
    return model


add(
    "buffer registered late: of records",
    ("fit", "fedavg"),
    lambda: Code(model=Dense(_late_buffer(mean))),
    "the first call",
)
add("attribute of the model: of records", SOME, lambda: Code(model=Dense(_attribute(mean))), "the first call")
add(
    "attribute of the model: of shapes",
    SOME,
    lambda: Code(model=Dense(_attribute(table))),
    "nothing",
    expected="harmless",
)
add(
    "fake quantisation: torch's observer at the first call",
    ("fit", "fedavg"),
    lambda: Code(model=_observed()),
    "the first call",
)
add(
    "fake quantisation: scale of the first call",
    ("fit", "loop", "fedavg"),
    lambda: Code(model=Dense(_fake_quantised(lambda values: values.abs().amax() / 3))),
    "the first call",
)
add(
    "fake quantisation: a scale that is declared",
    ("fit", "loop", "fedavg"),
    lambda: Code(model=Dense(_fake_quantised(lambda values: torch.tensor(0.5)))),
    "nothing",
    expected="harmless",
)


# Models that couple at some calls only, or from one client or voter to the next.


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
