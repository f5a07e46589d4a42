"""Models that keep something of the first call, or of the first one of some kind, in forward or in hooks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from adversarial.first_call.memories import MEMORIES, class_attribute, closure
from adversarial.first_call.specimen import (
    MANY,
    SOME,
    VALUES,
    Code,
    Dense,
    Kept,
    Model,
    Value,
    add,
    mean,
    shifted,
    table,
)

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
