"""One guard for every place where a user's code runs for one unit: all subjects, by the same properties."""

import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fitting import local_training
from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central.custom_loop.dataset import MapRows, _Reads
from sfumato.federated import FedSGD
from sfumato.federated.client import ClientTrainer
from sfumato.federated.clients import Clients
from sfumato.guard import Subject, guard, try_out
from sfumato.guard.examples import Examples
from sfumato.training import Trainable
from sfumato.training.frozen_features import _Frozen
from sfumato.training.supervised import Supervised
from sfumato.voting import AEDPFL
from sfumato.voting.neighbours import NeighbourVoter
from sfumato.voting.run import Agents
from sfumato.voting.trained import TrainedVoter

SOURCE = Path(guard.__file__).parents[1]
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
        ".".join([*file.relative_to(SOURCE).with_suffix("").parts, node.name])
        for file in SOURCE.rglob("*.py")
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


@pytest.mark.parametrize("users", [9, 20, 60])
def test_what_is_kept_for_each_number_of_rows_is_refused_however_many_users_there_are(users: int) -> None:
    """Two of the clients that are tried have the same number of rows; so have two agents."""
    rng = np.random.default_rng(0)
    owners = np.repeat([f"user {number:03}" for number in range(users)], 4)
    values, labels = rng.normal(size=(len(owners), 6)).astype(np.float32), np.arange(len(owners)) % 3
    records = data.from_arrays(values, labels, owners)
    with pytest.raises(InputError, match="has trained other clients before"):
        FedSGD(rounds=1, cohort=4, noise=0.0).fit(_ByRows(), records)
    pool = data.examples_from_arrays(values[:12], labels[:12], num_classes=3)
    plan = AEDPFL(queries=4, noise_std=1.0, epochs=1, batch_size=4)
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


def test_work_that_fails_is_no_result() -> None:
    def fails() -> float:
        raise RuntimeError("in the user's code")

    assert guard.histories([fails]) is None
    assert guard.histories([lambda: 1.0]) == [1.0]
