"""Models that write what they see into themselves: nothing of it is released, whatever they call it.

Each writes on an occasion of its own: at the first batch, at each, late, behind autograd's back. What begins at once is
refused before the first round; what begins later is undone, and what is released does not hold it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sfumato import data
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.federated import FedAvg
from sfumato.training import Trainable

FEATURES, CLASSES, MARK = 6, 3, 1234.0
PLANS = {
    "dpsgd": DPSGD(steps=3, batch_size=6, clip_norm=1.0, noise_multiplier=1.0, micro_batch=2, seed=1),
    "fedavg": FedAvg(rounds=3, clients_per_round=4, noise_multiplier=1.0, seed=1),
    "fedavg at once": FedAvg(rounds=3, clients_per_round=4, noise_multiplier=1.0, seed=1, clients_at_once=2),
}


def records(plan: str, mark: float = 0.0) -> Any:
    """Records of which each has `mark` added to it."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(36, FEATURES)).astype(np.float32) + np.float32(mark)
    labels = np.arange(36) % CLASSES
    if plan == "dpsgd":
        return data.examples_from_arrays(inputs, labels, num_classes=CLASSES)
    return data.from_arrays(inputs, labels, np.arange(36) // 6)


class Writer(nn.Module):
    """Two layers; `write` gets the module, the inputs and the number of forward passes so far."""

    def __init__(self, write: Callable[["Writer", Tensor, int], None], frozen: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.scale = nn.Parameter(torch.ones(8), requires_grad=False)
        self.register_buffer("seen", torch.zeros(FEATURES))
        self.register_buffer("flag", torch.tensor(False))
        self.register_buffer("hidden", torch.zeros(FEATURES), persistent=False)
        if frozen:
            self.inner.requires_grad_(False)
        self.write, self.passes = write, 0

    def forward(self, values: Tensor) -> Tensor:
        with torch.no_grad():
            self.write(self, values.detach(), self.passes)
        self.passes += 1
        return self.outer(torch.tanh(self.inner(values)) * self.scale)


def _mean(values: Tensor) -> Tensor:
    return values.flatten(0, -2).mean(dim=0)


AT_ONCE: dict[str, Callable[[Writer, Tensor, int], Any]] = {
    "a moving average in a buffer": lambda m, x, _: m.seen.mul_(0.9).add_(_mean(x)),
    "a buffer that is bound anew": lambda m, x, _: setattr(m, "seen", 0.9 * m.seen + _mean(x)),
    "a frozen parameter through data": lambda m, x, _: m.scale.data.add_(x.mean()),
    "a frozen parameter bound anew": lambda m, x, _: setattr(m, "scale", nn.Parameter(m.scale + x.mean(), False)),
    "a trained parameter by the first batch": lambda m, x, n: n == 0 and m.inner.bias.data.copy_(x.mean().expand(8)),
    "a flag at the first batch": lambda m, x, n: n == 0 and m.flag.fill_(True),
    "a buffer that is not saved": lambda m, x, _: m.hidden.copy_(_mean(x)),
    "a new buffer": lambda m, x, _: m.register_buffer("late", _mean(x)),
}


@pytest.mark.parametrize("plan", ["dpsgd", "fedavg"])
@pytest.mark.parametrize("name", AT_ONCE)
def test_what_writes_at_once_is_refused_before_anything_is_written(name, plan, tmp_path):
    with pytest.raises(InputError, match=r"without noise|couples the examples|are coupled"):
        PLANS[plan].fit(Writer(AT_ONCE[name]), records(plan), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


LATE: dict[str, Callable[[Writer, Tensor, bool], Any]] = {
    "a buffer": lambda m, x, now: now and m.seen.fill_(MARK),
    "a buffer that is bound anew": lambda m, x, now: now and setattr(m, "seen", torch.full_like(m.seen, MARK)),
    "a frozen parameter through data": lambda m, x, now: now and m.scale.data.fill_(MARK),
    "a trained parameter through data": lambda m, x, now: now and m.inner.bias.data.fill_(MARK),
}


@pytest.mark.parametrize("plan", ["dpsgd", "fedavg"])
@pytest.mark.parametrize("name", LATE)
def test_what_writes_later_is_not_released(name, plan, tmp_path, monkeypatch):
    """The occasion is set from outside, after every check: no trial sees it coming, and no later step is looked at."""
    monkeypatch.setattr("sfumato.central.gradients.due", lambda *_, **__: False)
    monkeypatch.setattr("sfumato.federated.contribution.due", lambda *_, **__: False)
    occasion = {"now": False}
    model = Writer(lambda m, x, _: LATE[name](m, x, occasion["now"]))

    class Then(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            occasion["now"] = True

    result = PLANS[plan].fit(
        model, records(plan), out=tmp_path / "run", server_optimizer=lambda parameters: Then(parameters, lr=0.1)
    )
    assert occasion["now"]
    released = load_file(tmp_path / "run" / "model.safetensors")
    for untrained in ("seen", "scale", "flag"):
        assert torch.equal(released[untrained], model.state_dict()[untrained])
    assert max(float(value.float().abs().max()) for value in released.values()) < MARK / 10
    for each, value in result.model.state_dict().items():
        assert torch.equal(value, released[each])


def test_released_are_theta_and_what_was_there_before_whatever_was_written():
    trained = Trainable(model := Writer(lambda *_: None, frozen=True))
    theta, before = trained.initial + 1, {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for tensor in (*trained.model.parameters(), *trained.model.buffers()):
            tensor.data.fill_(torch.nan if tensor.is_floating_point() else 1)
    released = trained.released(theta)
    for name, view in zip(trained.layout.names, trained.views(theta), strict=True):
        assert torch.equal(released.pop(name), view)
    assert released.keys() == {"inner.weight", "inner.bias", "scale", "seen", "flag"}
    assert all(torch.equal(value, before[name]) for name, value in released.items())
    assert len(trained.put_back(trained.initial)) == 8  # everything was found
    assert trained.put_back(trained.initial) == []


def test_a_shared_weight_is_released_by_all_its_names_as_it_was_trained():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    trained = Trainable(model)
    theta = trained.initial + 1
    assert trained.frozen() == {}
    released = trained.released(theta)
    assert torch.equal(released["0.weight"], released["1.weight"])
    assert torch.equal(released["1.weight"].reshape(-1), theta)


class Keeps(nn.Module):
    """Remembers in a way of its own, and what it gives depends on it."""

    def __init__(self, remember: Callable[["Keeps", Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.remember, self.kept, self.count = remember, None, 0

    def forward(self, values: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.inner(values)) + self.remember(self, values.detach()))


def _last(model: Keeps, values: Tensor) -> Tensor:
    before, model.kept = model.kept, values.mean()
    return torch.zeros(()) if before is None else 1e-6 * before


def _first(model: Keeps, values: Tensor) -> Tensor:
    model.kept = values.mean() if model.kept is None else model.kept
    return 1e-6 * model.kept


def _count(model: Keeps, values: Tensor) -> Tensor:
    model.count += len(values)
    return torch.tensor(1e-6 * model.count)


def _numpy(model: Keeps, values: Tensor) -> Tensor:
    return torch.tensor(np.random.random() * 1e-6)  # noqa: NPY002


@pytest.mark.parametrize("remember", [_last, _first, _count, _numpy])
def test_a_model_that_remembers_other_clients_is_refused(remember, tmp_path):
    with pytest.raises(InputError, match="changes when the model has trained other clients before"):
        PLANS["fedavg"].fit(Keeps(remember), records("fedavg"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def _cached(model: Keeps, values: Tensor) -> Tensor:
    model.kept = torch.linspace(-1, 1, 8) if model.kept is None else model.kept
    return model.kept


def test_a_cache_of_what_everybody_gets_alike_is_no_memory():
    PLANS["fedavg"].fit(Keeps(_cached), records("fedavg"))
