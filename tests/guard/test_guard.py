"""One guard for every place where a user's code runs: placeholder examples, neighbours in a batch, fresh copies."""

import ast
import dataclasses
import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fitting import local_training
from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central.custom_loop.dataset import MapRows, _Reads
from sfumato.federated import FedSGD
from sfumato.federated.client import ClientTrainer
from sfumato.federated.clients import Clients
from sfumato.guard import Recheck, Subject, due, guard, try_out
from sfumato.guard.examples import Examples, self_check
from sfumato.guard.guard import histories
from sfumato.guard.recheck import Measure
from sfumato.guard.trial import on_processor, other_device, shaken
from sfumato.per_example import Recording, covered
from sfumato.per_example.workspace import out_of_memory
from sfumato.training import Trainable
from sfumato.training.frozen_features import _Frozen
from sfumato.training.supervised import Supervised
from sfumato.voting import AEDPFL
from sfumato.voting.neighbours import NeighbourVoter
from sfumato.voting.run import Agents
from sfumato.voting.trained import TrainedVoter
from slow import one_in, slow_but

# One guard for every place where a user's code runs for one unit: all subjects, by the same properties.


PACKAGE = Path(guard.__file__).parents[1]
UNITS = (0, 1, 3, 2)
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(32, 6)).astype(np.float32)
LABELS = np.arange(32) % 3
PEOPLE = [f"p{row // 4}" for row in range(32)]


class Model(nn.Module):
    """What its class holds is written by the first call, and read if it `remembers`."""

    def __init__(self, remembers: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer, self.remembers = nn.Linear(6, 4), nn.Linear(4, 3), remembers

    def forward(self, values: Tensor) -> Tensor:
        kind = type(self)
        if not hasattr(kind, "first"):
            kind.first = values.detach().mean(dim=0)
        if self.remembers:
            values = values - kind.first
        return self.outer(self.inner(values).tanh())


def model(remembers: bool) -> nn.Module:
    return type("Own", (Model,), {})(remembers)


class Rows:
    """A data set of the user's."""

    first: float | None = None

    def __init__(self, remembers: bool) -> None:
        self.remembers = remembers

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        kind = type(self)
        if kind.first is None:
            kind.first = float(INPUTS[place].mean())
        return torch.from_numpy(INPUTS[place] - (kind.first if self.remembers else 0.0)), int(LABELS[place])


def examples(remembers: bool) -> Subject:
    made = model(remembers)

    def losses(rows: Any) -> Tensor:
        return nn.functional.cross_entropy(made(rows[0]), rows[1], reduction="none")

    return Examples(made, losses, (torch.from_numpy(INPUTS), torch.from_numpy(LABELS)))


def reads(remembers: bool) -> Subject:
    rows = MapRows(type("Other", (Rows,), {})(False))
    rows._dataset = type("Own", (Rows,), {})(remembers)
    return _Reads(rows)


def clients(remembers: bool) -> Subject:
    made = model(remembers)
    users = data.from_arrays(INPUTS[:, :], labels=LABELS, users=PEOPLE)
    made.outer = nn.Identity()
    return Clients(
        lambda local: ClientTrainer(local, Trainable(made)), users, local_training(batch_size=2), global_classes=False
    )


def frozen(remembers: bool) -> Subject:
    return _Frozen(model(remembers).eval(), torch.from_numpy(INPUTS))


def pool() -> data.ExampleDataset:
    return data.examples_from_arrays(INPUTS + 1)


def agents() -> data.UserDataset:
    return data.from_arrays(INPUTS, labels=LABELS, users=PEOPLE)


def trained(remembers: bool) -> Subject:
    source = RandomSource.from_seed(0)
    return Agents(TrainedVoter(agents(), pool(), np.arange(4), model(remembers), Supervised(), source=source))


def neighbours(remembers: bool) -> Subject:
    voter = NeighbourVoter(agents(), pool(), neighbours=2)
    voter._module = model(remembers).eval()
    return Agents(voter)


SUBJECTS: dict[str, tuple[str, Callable[[bool], Subject]]] = {
    "examples of fit and of a loop": ("guard.examples.Examples", examples),
    "reads of a data set": ("central.custom_loop.dataset._Reads", reads),
    "clients": ("federated.clients.Clients", clients),
    "frozen layers": ("training.frozen_features._Frozen", frozen),
    "voters that train": ("voting.run.Agents", trained),
    "voters of neighbours": ("voting.run.Agents", neighbours),
}


def test_every_subject_of_the_package_is_tried_here() -> None:
    found = {
        ".".join([*file.relative_to(PACKAGE).with_suffix("").parts, node.name])
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and {"placeholders", "outcomes"} <= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        and node.name != "Subject"
    }
    assert found == {name for name, _ in SUBJECTS.values()}


@pytest.mark.parametrize("name", SUBJECTS)
def test_what_the_first_call_leaves_in_a_class_is_found_and_the_sibling_is_accepted(name: str) -> None:
    build = SUBJECTS[name][1]
    subject = build(True)
    found = try_out(subject, UNITS)
    assert found.fresh
    assert found.refusal == subject.state_message
    assert try_out(build(False), UNITS).refusal is None


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name != "reads of a data set"])
def test_what_a_class_keeps_in_this_process_is_of_a_placeholder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    firsts: list[Tensor] = []
    forward = Model.forward
    monkeypatch.setattr(
        Model, "forward", lambda self, values: (firsts.append(values.clone()), forward(self, values))[1]
    )
    try_out(SUBJECTS[name][1](False), UNITS)
    assert firsts
    rows = torch.from_numpy(INPUTS)
    assert not any(torch.equal(row, record) for batch in firsts for row in batch for record in rows)


@pytest.mark.parametrize("name", SUBJECTS)
def test_without_fresh_processes_placeholders_come_first_and_two_orders_run_here(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: what the first call keeps is of a placeholder; a memory that moves on is still found."""
    monkeypatch.setattr(guard, "can_fork", lambda: False)
    found = try_out(SUBJECTS[name][1](False), UNITS)
    assert not found.fresh
    assert found.refusal is None
    assert found.placeholders or name == "reads of a data set"


def test_a_gap_is_a_sentence() -> None:
    for taken in (False, True):
        (sentence,) = guard.Findings(fresh=False, placeholders=taken).sentences("agent")
        assert sentence.id == "no_fresh_processes" + ("" if taken else "_nor_placeholders")
    assert guard.Findings(fresh=True, placeholders=False).sentences("agent") == []
    (sentence,) = guard.Findings(fresh=True, placeholders=True).sentences("agent", untried=True)
    assert sentence.id == "some_untried"


class _ByRows(nn.Module):
    """Counts inputs from the mean of the first batch of so many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(6, 3), {}

    def __deepcopy__(self, memo: Any) -> "_ByRows":
        copied = _ByRows()
        copied.load_state_dict(self.state_dict())
        copied.seen = self.seen
        return copied

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return self.linear(values)
        return self.linear(values - self.seen.setdefault(len(values), values.detach().mean(dim=0)))


@pytest.mark.parametrize("users", slow_but([9, 20, 60], 20))
def test_what_is_kept_for_each_number_of_rows_is_refused_however_many_users_there_are(users: int) -> None:
    """Two of the clients that are tried have the same number of rows; so have two agents."""
    rng = np.random.default_rng(0)
    owners = np.repeat([f"user {number:03}" for number in range(users)], 4)
    values, labels = rng.normal(size=(len(owners), 6)).astype(np.float32), np.arange(len(owners)) % 3
    records = data.from_arrays(values, labels, owners)
    with pytest.raises(InputError, match="has trained other clients before"):
        FedSGD(rounds=1, cohort=4, noise=0.0).fit(_ByRows(), records)
    pool = data.examples_from_arrays(values[:12], labels[:12], num_classes=3)
    plan = AEDPFL(queries=4, noise_std=1.0, training={"epochs": 1, "batch_size": 4})
    with pytest.raises(InputError, match="what an agent gives depends on which agents came before"):
        plan.fit(records, pool, _ByRows())


def _children() -> set[str]:
    """Processes of this one, those that ended and were not waited for among them."""
    return {child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()}


@pytest.mark.skipif(not guard.can_fork(), reason="needs Linux and no GPU in use")
def test_no_process_and_no_file_is_left_behind(tmp_path: Path) -> None:
    kept = tmp_path / "first.pt"

    def work() -> float:
        guard.at(int(not kept.exists()))
        kept.write_text("1")
        return float(kept.read_text())

    before, children = set(os.listdir(tmp_path)), _children()
    seen = guard.watched([work, work], at_once=False)
    assert seen is not None
    assert guard.shared_files(seen) == []
    assert guard.without_files([work], [str(kept)]) == [1.0]
    assert set(os.listdir(tmp_path)) - before == {"first.pt"}
    assert _children() <= children


@pytest.mark.skipif(not guard.can_fork(), reason="needs Linux and no GPU in use")
def test_a_fresh_process_takes_nothing_of_what_the_run_would_read() -> None:
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    try:
        os.write(writing, b"of the run")
        assert histories([lambda: os.read(0, 100)]) == [b""]
        assert os.read(0, 100) == b"of the run"
    finally:
        os.dup2(kept, 0)
        for each in (reading, writing, kept):
            os.close(each)


def test_work_that_fails_is_no_result() -> None:
    def fails() -> float:
        raise RuntimeError("in the user's code")

    assert guard.histories([fails]) is None
    assert guard.histories([lambda: 1.0]) == [1.0]


class _InFile:
    """Keeps its first unit in a file, which takes a while to write."""

    state_message = "what is given depends on the first unit"
    tolerance = None

    def __init__(self, path: Path) -> None:
        self._path = path

    def placeholders(self) -> None:
        raise TypeError("takes none")

    def outcomes(self, units: Sequence[int]) -> Tensor:
        return torch.stack([self._outcome(unit) for unit in units])

    def _outcome(self, unit: int) -> Tensor:
        guard.at(unit)
        if not self._path.exists():
            with self._path.open("w") as file:
                file.write("unit ")
                file.flush()
                time.sleep(0.5)
                file.write(str(unit))
        return torch.tensor([float(self._path.read_text().split()[1])], dtype=torch.float64)


@pytest.mark.skipif(not guard.can_fork(), reason="needs Linux and no GPU in use")
def test_a_process_that_reads_what_another_one_is_just_writing_is_tried_again(tmp_path: Path) -> None:
    """Or else nothing would be compared, and what is kept in the file by then is the same for all."""
    findings = try_out(_InFile(tmp_path / "first"), [3, 4])
    assert findings.refusal == _InFile.state_message
    assert findings.fresh


# The check of models and losses on placeholder examples, on double precision and on fresh copies.


# What the check at the start lets pass, and what it refuses by name.


def network(*extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), *extra, nn.Linear(6, 3))


def losses_of(model: nn.Module):
    return lambda labelled: F.cross_entropy(model(labelled[0]), labelled[1], reduction="none")


@pytest.fixture
def labelled() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(5, 4), torch.randint(3, (5,))


def test_a_sound_model_passes(labelled) -> None:
    model = network(nn.LayerNorm(6), nn.Dropout(0.5))
    found = self_check(model, losses_of(model), labelled)
    assert [layer.name for layer in found.layers] == ["0", "2", "4"]
    assert found.largest_difference < 1e-5
    assert found.unused == []
    assert model.training


def test_one_example_is_enough(labelled) -> None:
    model = network()
    self_check(model, losses_of(model), (labelled[0][:1], labelled[1][:1]))


def test_the_generators_and_the_buffers_are_left_alone(labelled) -> None:
    model = network(nn.Dropout(0.5), nn.BatchNorm1d(6).eval().requires_grad_(False))
    state = torch.get_rng_state()
    buffers = [buffer.clone() for buffer in model.buffers()]
    self_check(model, losses_of(model), labelled)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(old, new) for old, new in zip(buffers, model.buffers(), strict=True))


class OverTheBatch(nn.Module):
    """Attention of the examples to each other."""

    def forward(self, values: Tensor) -> Tensor:
        return (values @ values.T).softmax(dim=1) @ values


class Centred(nn.Module):
    """Takes a mean over the batch away, hidden from autograd."""

    def forward(self, values: Tensor) -> Tensor:
        return values - values.mean(dim=0).detach()


@pytest.mark.parametrize("coupling", [OverTheBatch(), Centred()])
def test_coupling_is_refused_by_the_name_of_the_module(coupling: nn.Module, labelled) -> None:
    model = nn.Sequential(nn.Linear(4, 4), network(nn.Sequential(nn.Identity(), coupling)))
    with pytest.raises(InputError, match=r"layer '1\.2\.1'.*coupled"):
        self_check(model, losses_of(model), labelled)


def test_coupling_is_seen_where_only_one_example_is_given(labelled) -> None:
    model = network(OverTheBatch())
    with pytest.raises(InputError, match=r"layer '2'.*coupled"):
        self_check(model, losses_of(model), (labelled[0][:1], labelled[1][:1]))


def test_coupling_in_the_loss_is_refused(labelled) -> None:
    model = network()

    def contrast(labelled: tuple[Tensor, Tensor]) -> Tensor:
        outputs = model(labelled[0])
        return (outputs @ outputs.T).logsumexp(dim=1)

    with pytest.raises(InputError, match="look at the loss"):
        self_check(model, contrast, labelled)


def test_a_parameter_in_the_loss_is_refused(labelled) -> None:
    model = network()
    plain = losses_of(model)
    with pytest.raises(InputError, match=r"'2\.weight' is used outside .*weight decay"):
        self_check(model, lambda labelled: plain(labelled) + 1e-6 * model[2].weight.square().sum(), labelled)


class Functional(nn.Module):
    """Uses a layer's weight without its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3, bias=False)
        self.second = nn.Linear(3, 3)

    def forward(self, values: Tensor) -> Tensor:
        return self.second(F.linear(values, self.layer.weight))


def test_a_weight_that_is_used_without_its_layer_is_refused(labelled) -> None:
    model = Functional()
    with pytest.raises(InputError, match=r"'layer\.weight' is used outside"):
        self_check(model, losses_of(model), labelled)


def test_a_layer_that_a_hook_changes_is_refused(labelled) -> None:
    model = network()
    model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 1.0,))
    self_check(model, losses_of(model), labelled)
    model[0].weight.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(InputError, match=r"'0\.weight'.*differs from autograd's"):
        self_check(model, losses_of(model), labelled)


class Repeated(nn.Module):
    """A token that cannot be replaced by copies, one for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 2, 4))
        self.layer = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        tokens = self.token.repeat(len(values), 1, 1)
        return self.layer(torch.cat([tokens, values[:, None]], dim=1)).tanh().mean(dim=1)


def test_where_copies_do_not_work_the_module_runs_again(labelled) -> None:
    model = Repeated()
    found = self_check(model, losses_of(model), labelled)
    assert {type(layer.rule).__name__ for layer in found.layers} == {"AroundFallbackRule", "LinearRule"}
    assert isinstance(model.token, nn.Parameter)


class Noisy(nn.Module):
    """Sampled noise and functional dropout, as in a variational model."""

    def forward(self, values: Tensor) -> Tensor:
        return F.dropout(values + torch.randn_like(values) * 0.3, 0.4, self.training)


def test_random_models_meet_the_same_numbers(labelled) -> None:
    model = network(Noisy())
    assert self_check(model, losses_of(model), labelled).largest_difference < 1e-5


def test_transformers_and_recurrent_layers_pass_with_dropout() -> None:
    torch.manual_seed(0)
    words = nn.Embedding(20, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    recurrent = nn.LSTM(8, 5, num_layers=2, dropout=0.3, batch_first=True, bidirectional=True)
    model = nn.ModuleList([words, layer, recurrent])

    def losses(labelled: Tensor) -> Tensor:
        return recurrent(layer(words(labelled)))[0].sum(dim=(1, 2))

    self_check(model, losses, torch.randint(20, (3, 6)))
    assert (layer.self_attn.dropout, recurrent.dropout) == (0.2, 0.3)


def test_unused_parameters_are_reported(labelled) -> None:
    model = network()
    model.idle = nn.Linear(2, 2)
    model.forward = lambda values: model[2](model[1](model[0](values)))  # type: ignore[method-assign]
    assert self_check(model, losses_of(model), labelled).unused == ["idle.bias", "idle.weight"]


def test_a_mean_loss_an_empty_batch_and_nan_are_refused(labelled) -> None:
    model = network()
    with pytest.raises(InputError, match="reduction='none'"):
        self_check(model, lambda labelled: F.cross_entropy(model(labelled[0]), labelled[1]), labelled)
    with pytest.raises(InputError, match="empty batch"):
        self_check(model, losses_of(model), (labelled[0][:0], labelled[1][:0]))
    with pytest.raises(InputError, match="not finite"):
        self_check(model, losses_of(model), (labelled[0] * float("nan"), labelled[1]))


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_a_forward_of_this_instance_is_the_one_that_is_trained_and_stays(kind: type, labelled) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = kind(4, 4, batch_first=True), nn.Linear(4, 3)
            own = self.rnn.forward
            self.rnn.forward = lambda values, initial=None: own(3 * values, initial)

        def forward(self, values: Tensor) -> Tensor:
            return self.head(self.rnn(values[:, None])[0][:, 0])

    model = Model()
    own = model.rnn.forward
    plain = model(labelled[0])
    if kind is nn.LSTM:
        self_check(model, losses_of(model), labelled)
    else:  # torch cannot run it for each example by itself
        with pytest.raises(InputError, match="layer 'rnn'"):
            self_check(model, losses_of(model), labelled)
    assert model.rnn.forward is own
    assert torch.equal(model(labelled[0]), plain)


def test_targets_that_are_numbers_are_widened_with_the_model(labelled) -> None:
    model = network()
    targets = torch.randn(5, 3)
    check = self_check(
        model, lambda rows: F.mse_loss(model(rows[0]), rows[1], reduction="none").sum(dim=1), (labelled[0], targets)
    )
    assert check.double


# Fresh processes: what becomes of a trial where none can be had.


@pytest.mark.parametrize("left", [0, 1])
def test_no_more_processes_is_no_trial_and_no_traceback(monkeypatch: pytest.MonkeyPatch, left: int):
    fork, begun = os.fork, []

    def limited() -> int:
        begun.append(1)
        if len(begun) > left:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    before = len(os.listdir("/proc/self/fd"))
    assert histories([lambda: 1, lambda: 2]) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_trial_that_raises_is_none():
    assert histories([lambda: 1, lambda: 1 / 0]) is None
    assert histories([lambda: 1, lambda: 2]) == [1, 2]


# Rows that nobody gave go through a model on the processor before they meet a GPU.

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Clicks(nn.Module):
    """Places of a table in a column of real numbers, of which a made-up row holds some that are outside."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 3)
        self.head = nn.Linear(4, 1)

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([columns[:, :1], self.table(columns[:, 1].long())], dim=1)).squeeze(1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_a_model_that_reads_places_from_real_numbers_is_checked(device: str) -> None:
    torch.manual_seed(0)
    model = Clicks().to(device)
    rows = torch.stack([torch.randn(16), torch.arange(16) % 7], dim=1).to(device)
    self_check(model, lambda labelled: F.softplus(model(labelled)), rows)
    assert model(rows).isfinite().all()


def test_the_tensors_are_those_that_they_were() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = [(tensor, tensor.data_ptr()) for tensor in (*model.parameters(), *model.buffers())]
    with pytest.raises(ValueError, match="a test"), on_processor(model):
        raise ValueError("a test")
    assert all(tensor.data_ptr() == place for tensor, place in before)


def test_a_place_outside_a_table_is_no_matter_of_devices() -> None:
    with pytest.raises(IndexError) as raised:
        Clicks()(torch.tensor([[0.0, 9.0]]))
    assert not other_device(raised.value)
    assert other_device(RuntimeError("Expected all tensors to be on the same device, but got cpu and cuda:0"))


# What one example does to its neighbours in a batch, in a trial and in real steps.


# An example's gradient is the same whoever else is in the batch, or the model is refused.


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])


class Between(nn.Module):
    """Does something between two layers; the second one starts at zero, as heads and residual blocks do."""

    def __init__(self, step: Callable[[Tensor], Tensor], *, zero: bool = True) -> None:
        super().__init__()
        self.one, self.two, self.step = nn.Linear(6, 8), nn.Linear(8, 3), step
        if zero:
            nn.init.zeros_(self.two.weight)

    def forward(self, values: Tensor) -> Tensor:
        return self.two(self.step(self.one(values).tanh()))


def cross_entropy(model: nn.Module):
    return lambda batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")


MIXING = {
    "mean": lambda h: h - h.mean(dim=0),
    "mean, hidden from autograd": lambda h: h - h.mean(dim=0).detach(),
    "softmax": lambda h: h.softmax(dim=0),
    "running sum": lambda h: h.cumsum(dim=0),
    "einsum": lambda h: torch.einsum("bi,bj,cj->ci", h, h, h),
    "neighbour": lambda h: h + h.roll(1, dims=0),
    "mirror": lambda h: h + h.flip(0),
    "layout": lambda h: h.T.reshape(len(h), -1),
    "order": lambda h: h.sort(dim=0).values,
    "mixture": lambda h: 0.7 * h + 0.3 * h[torch.randint(len(h), (len(h),))],
}


@pytest.mark.parametrize("kind", MIXING)
def test_a_last_layer_that_starts_at_zero_hides_no_coupling(kind: str, batch) -> None:
    model = Between(MIXING[kind])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InputError, match="coupled"):
        self_check(model, cross_entropy(model), batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("strength", [1.0, 1e-3])
def test_coupling_that_begins_with_three_examples_is_seen(strength: float, batch) -> None:
    model = Between(lambda h: h - strength * h.mean(dim=0).detach() if len(h) > 2 else h, zero=False)
    with pytest.raises(InputError, match="changes with the batch"):
        self_check(model, cross_entropy(model), batch)


def balanced(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores, labels, reduction="none") / torch.bincount(labels, minlength=3)[labels]


def hardest(scores: Tensor, labels: Tensor) -> Tensor:
    found = F.cross_entropy(scores, labels, reduction="none")
    return found * (found.detach() > found.detach().median())


@pytest.mark.parametrize("loss", [balanced, hardest])
def test_a_loss_that_couples_only_some_examples_is_seen(loss, batch) -> None:
    model = Between(torch.tanh, zero=False)
    with pytest.raises(InputError, match="coupled"):
        self_check(model, lambda given: loss(model(given[0]), given[1]), batch)


def test_a_hook_that_rescales_the_gradient_of_the_whole_batch_is_seen(batch) -> None:
    """Nothing of it shows in outputs, nor in the gradients of a single loss."""

    def hooked(hidden: Tensor) -> Tensor:
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient / (1e-6 + gradient.norm()))
        return hidden

    model = Between(hooked, zero=False)
    with pytest.raises(InputError, match="coupled"):
        self_check(model, cross_entropy(model), batch)


def test_a_batch_of_one_is_tried_before_it_comes(batch) -> None:
    """`squeeze` drops the examples' dimension when there is one example, which sampling decides."""
    torch.manual_seed(0)
    one, two = nn.Linear(2, 4), nn.Linear(4, 3)

    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = one, two

        def forward(self, values: Tensor) -> Tensor:
            scores = self.two(self.one(values.unflatten(1, (3, 2))).squeeze())
            return scores.reshape(len(values), 3, 3).mean(dim=1)

    model = Squeezed()
    with pytest.raises(InputError, match="3 rows in dimension 0 for each example, and 1"):
        self_check(model, cross_entropy(model), batch)


def test_a_weight_that_must_stay_positive_is_checked_as_it_is(batch) -> None:
    class Positive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.root = nn.Linear(6, 3), nn.Parameter(torch.full((1, 3), 1e-6))

        def forward(self, values: Tensor) -> Tensor:
            return self.layer(values) * self.root.sqrt()

    model = Positive()
    self_check(model, cross_entropy(model), batch)
    assert (model.root == 1e-6).all()


def test_shaking_touches_no_generator_and_is_undone_after_an_error() -> None:
    weight = nn.Parameter(torch.randn(2, 3))
    before, state = weight.detach().clone(), torch.get_rng_state()
    with shaken([weight]):
        assert not torch.equal(weight, before)
    assert torch.equal(weight, before)
    with pytest.raises(IndexError), shaken([weight]):
        _ = [][0]
    assert torch.equal(weight, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("most", [2, 4])
def test_little_memory_makes_the_check_smaller(most: int, batch) -> None:
    class Small(Between):
        def forward(self, values: Tensor) -> Tensor:
            sizes.append(len(values))
            if len(values) > most:
                raise RuntimeError("can't allocate memory")
            return super().forward(values)

    sizes: list[int] = []
    model = Small(torch.tanh)
    self_check(model, cross_entropy(model), batch)
    assert out_of_memory(RuntimeError("can't allocate memory"))
    assert most in sizes
    assert 8 in sizes


class Counts(nn.Module):
    """Counts examples, or calls: both tell how many took part."""

    def __init__(self, *, calls: bool) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(6, 3), calls
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, values: Tensor) -> Tensor:
        self.seen += 1 if self.calls else len(values)
        return self.layer(values)


@pytest.mark.parametrize("calls", [False, True])
def test_a_buffer_that_counts_is_refused_by_its_name(calls: bool, batch) -> None:
    model = Counts(calls=calls)
    with pytest.raises(InputError, match="'seen' changes"):
        self_check(model, cross_entropy(model), batch)
    assert model.seen == 0


def test_a_frozen_table_that_a_function_rescales_is_refused() -> None:
    class Rescaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layer = nn.Parameter(torch.ones(9, 4), requires_grad=False), nn.Linear(4, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.layer(F.embedding(ids, self.table, max_norm=1.0).mean(dim=1))

    model = Rescaled()
    with pytest.raises(InputError, match="'table' changes"):
        self_check(model, cross_entropy(model), (torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1])))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Embedding(9, 4, max_norm=1.0).requires_grad_(False),
        nn.EmbeddingBag(9, 4, max_norm=1.0).requires_grad_(False),
        nn.InstanceNorm1d(4, track_running_stats=True),
    ],
)
def test_frozen_layers_that_examples_change_are_refused_by_their_kind(layer: nn.Module) -> None:
    with pytest.raises(InputError, match="layer '0'"):
        covered(nn.Sequential(layer, nn.Linear(4, 3)))


def test_a_memory_of_the_batch_before_is_seen(batch) -> None:
    class Remembers(Between):
        bank: Tensor | float = 0.0

        def forward(self, values: Tensor) -> Tensor:
            hidden = self.one(values)
            found = self.two(hidden + self.bank)
            self.bank = hidden.mean(dim=0).detach()
            return found

    model = Remembers(torch.tanh)
    with pytest.raises(InputError, match="coupled"):
        self_check(model, cross_entropy(model), batch)


class RunningMean(nn.Module):
    """A home-made layer with statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("level", torch.zeros(()))

    def forward(self, values: Tensor) -> Tensor:
        self.level = 0.9 * self.level + 0.1 * values.mean().detach()
        return values - self.level


def test_statistics_that_move_are_refused_by_their_name(batch) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Sequential(nn.ReLU(), RunningMean()), nn.Linear(4, 3))
    with pytest.raises(InputError, match=r"'1\.1\.level' changes"):
        self_check(model, cross_entropy(model), batch)


# Coupling that begins while training stops the run; round-off does not.

SOURCE = RandomSource.from_seed(3)


class TwoLayers(nn.Module):
    """Two layers; from some call on, something happens between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.tanh, dropout: float = 0.3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.between, self.late = nn.Linear(6, 8), nn.Linear(8, 3), between, False
        self.dropout = dropout

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.one(values).tanh()
        hidden = F.dropout(hidden, self.dropout) if self.dropout else hidden
        return self.two(self.between(hidden) if self.late else hidden)


@pytest.fixture
def forty() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(40, 6), torch.arange(40) % 3


def rechecked(model: TwoLayers, batch: tuple[Tensor, Tensor]):
    """A `Recheck` of the model after the self-check, and the measure of the batch."""

    def losses(some: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(some[0]), some[1], reduction="none")

    check = self_check(model, losses, batch)
    sizes: list[int] = []

    def measure(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        sizes.append(len(places))
        at = torch.tensor(list(places))
        with Recording(check.layers, examples=len(at)) as recording:
            found = losses((batch[0][at], batch[1][at]))
            recording.backward(found)
        return found.detach(), recording.squared_norms()

    return Recheck(model, check), measure, sizes


LATE = {
    "a mean": lambda h: h - 0.1 * h.mean(dim=0).detach(),
    "the hardest": lambda h: h * (h.norm(dim=1) >= h.norm(dim=1).topk(min(30, len(h))).values[-1])[:, None],
    "a hook": lambda h: h if not h.requires_grad else _hooked(h),
}


def _hooked(hidden: Tensor) -> Tensor:
    hidden.register_hook(lambda gradient: gradient / gradient.norm())
    return hidden


def train(recheck: Recheck, measure: Measure, steps: int) -> None:
    for step in range(steps):
        if due(step, steps, SOURCE):
            recheck.while_training(step, measure(range(40)), measure)


@pytest.mark.parametrize(("kind", "dropout"), one_in(2, LATE, [0.0, 0.3]))
def test_coupling_that_begins_while_training_stops_the_run(kind: str, dropout: float, forty) -> None:
    model = TwoLayers(LATE[kind], dropout)
    recheck, measure, _ = rechecked(model, forty)
    train(recheck, measure, 5)
    recheck.at_start(40, measure)
    model.late = True
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        recheck.at_start(40, measure)
    with pytest.raises(InputError, match=r"at step \d+ .*coupled"):
        train(recheck, measure, 1100)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_it_looks_seldom_and_leaves_everything_as_it_was(dropout: float, forty) -> None:
    """What a step had is enough where nothing is drawn; otherwise the micro-batch is computed once more."""
    model = TwoLayers(dropout=dropout)
    recheck, measure, sizes = rechecked(model, forty)
    had, before, state = measure(range(40)), [p.clone() for p in model.parameters()], torch.get_rng_state()
    sizes.clear()
    looks = [step for step in range(1000) if due(step, 1000, SOURCE)]
    for step in looks:
        recheck.while_training(step, had, measure)
    assert sizes.count(1) == len(looks)
    assert sizes.count(40) == (len(looks) if dropout else 0)
    looked = len(sizes)
    recheck.while_training(1, (had[0][:1], had[1][:1]), measure)
    recheck.at_start(1, measure)
    assert len(sizes) == looked
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_looks_are_seldom_come_by_chance_and_never_leave_out_the_ends() -> None:
    """Of 1,000 steps some 38 are looked at, half of them by fresh processes; each later step has a chance of 1/64."""
    runs = [[step for step in range(1000) if due(step, 1000, RandomSource.from_seed(seed))] for seed in range(40)]
    assert all({0, 999} <= set(looks) for looks in runs)
    assert 33 < sum(map(len, runs)) / len(runs) < 43
    assert len({step for looks in runs for step in looks if step > 500}) > 200
    seldom = [
        sum(due(step, 1000, RandomSource.from_seed(seed), seldom=True) for step in range(1000)) for seed in range(40)
    ]
    assert 16 < sum(seldom) / len(seldom) < 23


def test_what_a_step_had_is_what_is_compared(forty) -> None:
    """It was another one than the same examples give afterwards: something was kept between the two."""
    recheck, measure, _ = rechecked(TwoLayers(dropout=0.0), forty)
    losses, squares = measure(range(40))
    recheck.while_training(1, (losses, squares), measure)
    with pytest.raises(InputError, match=r"at step 1 the same examples gave something else .*coupled"):
        recheck.while_training(1, (losses, 1.1 * squares), measure)


@pytest.mark.parametrize("part", [nn.LSTM(6, 6, 2, dropout=0.5), nn.MultiheadAttention(6, 2, dropout=0.5)])
def test_dropout_that_shows_in_no_operation_is_not_compared_with_a_step(part: nn.Module, forty) -> None:
    model = TwoLayers(dropout=0.0)
    model.inner = part
    recheck, measure, sizes = rechecked(model, forty)
    losses, squares = measure(range(40))
    sizes.clear()
    recheck.while_training(1, (2 * losses, 2 * squares), measure)
    assert sizes == [40, 1]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("double", [True, False])
def test_round_off_is_looked_at_twice_and_stops_nothing(double: bool, dropout: float, forty) -> None:
    """A batch and a single example may be computed in different ways."""
    recheck, measure, sizes = rechecked(TwoLayers(dropout=dropout), forty)
    recheck._check = dataclasses.replace(recheck._check, double=double)

    def rough(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        losses, squares = measure(places)
        single = losses.dtype == torch.float32
        return losses, squares * (1.1 if single and len(places) == 1 else 1.0)

    recheck.while_training(1, measure(range(40)), rough)
    assert sizes[:1] == [40]  # the step
    looked = sizes[1:] if dropout else sizes[2:]  # without draws, one example is enough to begin with
    assert looked[:2] == [40, 1]
    assert looked[2:] == ([40, 1] if double else [40])


def test_little_memory_makes_it_look_at_fewer(forty) -> None:
    recheck, measure, sizes = rechecked(TwoLayers(), forty)

    def small(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        if len(places) > 12:
            raise RuntimeError("can't allocate memory")
        return measure(places)

    recheck.at_start(40, small)
    assert sizes[0] == 10
    assert sizes[1:5] == [10, 2, 5, 5]
    assert sizes.count(1) == 4


@pytest.mark.parametrize("double", [True, False])
def test_room_for_most_of_a_full_micro_batch_is_too_little(double: bool, forty) -> None:
    """Two of forty go without: few examples by themselves would seldom tell."""
    model = TwoLayers(lambda h: h * (torch.arange(len(h)) < 38)[:, None])
    recheck, measure, _ = rechecked(model, forty)
    recheck._check = dataclasses.replace(recheck._check, double=double)
    model.late = True
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        recheck.at_start(40, measure)
