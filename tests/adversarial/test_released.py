"""What is released holds nothing that one record alone has, and an attacker who knows all others guesses no better."""

import dataclasses
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from adversarial.specimens import COUPLED, UNCOUPLED, Loss, Seen, Watched, as_data, each, extreme
from fitting import fit_plan
from sfumato import data
from sfumato._check import InputError
from sfumato.algorithms import ALGORITHMS
from sfumato.central import DPSGD, examples, gradients
from sfumato.central import examples as first_batch_check
from sfumato.central.examples import ExampleContribution
from sfumato.cli.main import main
from sfumato.federated import FedAvg
from sfumato.federated.contribution import LocalContribution
from sfumato.guard import SelfCheck
from sfumato.per_example import covered
from sfumato.runs import run as runs
from sfumato.runs.processes import Team
from sfumato.training import RunOptions, Trainable, loop
from slow import one_in

# What is released holds nothing that one record alone has: no class, item or word, and nothing that a model noted.

# Models that write what they see into themselves: nothing of it is released, whatever they call it.
#
# Each writes on an occasion of its own: at the first batch, at each, late, behind autograd's back. What begins at
# once is refused before the first round; what begins later is undone, and what is released does not hold it.
FEATURES, CLASSES, MARK = 6, 3, 1234.0
PLANS = {
    "dpsgd": DPSGD(steps=3, cohort=6, clipping=1.0, noise=1.0, examples={"micro_batch": 2}, seed=1),
    "fedavg": FedAvg(rounds=3, cohort=4, noise=1.0, seed=1),
    "fedavg at once": FedAvg(rounds=3, cohort=4, noise=1.0, seed=1, client={"at_once": 2}),
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


@pytest.mark.parametrize(("plan", "name"), one_in(2, ["dpsgd", "fedavg"], LATE))
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
        model,
        records(plan),
        out=tmp_path / "run",
        options=RunOptions(optimizer=lambda parameters: Then(parameters, lr=0.1)),
    )
    assert occasion["now"]
    released = load_file(tmp_path / "run" / "model.safetensors")
    for untrained in ("seen", "scale", "flag"):
        assert torch.equal(released[untrained], model.state_dict()[untrained])
    assert max(float(value.float().abs().max()) for value in released.values()) < MARK / 10
    for key, value in result.model.state_dict().items():
        assert torch.equal(value, released[key])


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
    return torch.zeros(()) if before is None else 1e-5 * before  # with 1e-6 no bit of a delta differs on some machines


def _first(model: Keeps, values: Tensor) -> Tensor:
    model.kept = values.mean() if model.kept is None else model.kept
    return 1e-6 * model.kept


def _count(model: Keeps, values: Tensor) -> Tensor:
    model.count += len(values)
    return torch.tensor(1e-6 * model.count)


def _numpy(model: Keeps, values: Tensor) -> Tensor:
    return torch.tensor(np.random.random() * 1e-5)  # noqa: NPY002


@pytest.mark.parametrize("remember", [_last, _first, _count, _numpy])
def test_a_model_that_remembers_other_clients_is_refused(remember, tmp_path):
    with pytest.raises(InputError, match="changes when the model has trained other clients before"):
        PLANS["fedavg"].fit(Keeps(remember), records("fedavg"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def _cached(model: Keeps, values: Tensor) -> Tensor:
    model.kept = torch.linspace(-1, 1, 8) if model.kept is None else model.kept
    return model.kept


def test_a_cache_of_what_everybody_gets_similar_is_no_memory():
    PLANS["fedavg"].fit(Keeps(_cached), records("fedavg"))


# One record that has a class, an item, a word or a text of its own is in no released file of any system.
#
# Two data sets differ in one unit, which alone has something. Where nobody declared what records may have, the run is
# refused for both; where it is declared, both release the same domains, byte for byte.
OWN = "zebra"
"""What one unit alone has."""

Words = list[Any]


@dataclass(frozen=True)
class System:
    """A command, with records that one unit is added to.

    Attributes:
        write: puts the records into a folder, with the unit or without; gives the command.
        declare: puts what is declared into a folder; gives the options.
        lists: files of the run that name what there is.
    """

    write: Callable[[Path, bool], Words]
    declare: Callable[[Path], Words]
    lists: tuple[str, ...] = ()


def _users(folder: Path, own: bool, *command: Any) -> Words:
    rng = np.random.default_rng(0)
    names = np.array([f"p{row // 3}" for row in range(24)] + ["q"] * own * 3)
    kinds = np.array([["ant", "bee"][row % 2] for row in range(24)] + [OWN] * own * 3)
    pictures = rng.integers(0, 256, (27, 12, 12), dtype=np.uint8)[: len(names)]
    np.savez(folder / "users.npz", images=pictures, users=names, labels=kinds)
    return [*command, "--data", folder / "users.npz", "--test-share", 0, "--cohort", 4]


def _federated(name: str, *more: Any) -> Callable[[Path, bool], Words]:
    def write(folder: Path, own: bool) -> Words:
        words = _users(folder, own, name)
        return [*words, "--rounds", 1, "--embedding-dim", 4, "--epsilon", 20, "--delta", 1e-3, "--population", 9, *more]

    return write


def _ratings(folder: Path, own: bool) -> Words:
    rows = [f"u{user},{item},{(user + item) % 5 + 1}" for user in range(8) for item in range(user % 3, 12)]
    rows += [f"v,{OWN},3", "v,1,3"] * own
    (folder / "ratings.csv").write_text("\n".join(["user,item,value", *rows]))
    words = ["fedrecon", "--data", folder / "ratings.csv", "--user", "user", "--item", "item", "--value", "value"]
    words += ["--model", "matrix_factorization", "--test-share", 0, "--rounds", 1, "--cohort", 4]
    return [*words, "--epsilon", 20, "--delta", 1e-3, "--population", 9]


def _examples(*command: Any) -> Callable[[Path, bool], Words]:
    def write(folder: Path, own: bool) -> Words:
        pictures = np.random.default_rng(0).integers(0, 256, (25, 8, 8), dtype=np.uint8)
        kinds = np.array([["ant", "bee"][row % 2] for row in range(24)] + [OWN if own else "ant"])
        np.savez(folder / "examples.npz", x=pictures, y=kinds)
        words = [*command, "--data", folder / "examples.npz", "--model", "lenet300_100", "--test-share", 0]
        return [*words, "--epsilon", 20]

    return write


def _texts(folder: Path, own: bool) -> Words:
    rows = [f"{['ant', 'bee'][row % 2]},a text of number {row}" for row in range(24)]
    rows += [f"{OWN},{'a text that is far longer than any other one ' * 5}"] * own
    (folder / "texts.csv").write_text("label,text\n" + "\n".join(rows) + "\n")
    words = ["dpsgd", "--data", folder / "texts.csv", "--model", "bilstm", "--model-options", "hidden=4"]
    words += ["--vocabulary", 50, "--length", 8, "--test-share", 0, "--steps", 1, "--cohort", 8]
    return [*words, "--epsilon", 20, "--delta", 1e-3, "--population", 25]


def _vote(folder: Path, own: bool) -> Words:
    rng = np.random.default_rng(0)
    names = [f"p{row // 6}" for row in range(48)] + ["q"] * own * 6
    kinds = [["ant", "bee"][row % 2] for row in range(48)] + [OWN] * own * 6
    inputs = rng.normal(size=(54, 2)).astype(np.float32)
    np.savez(folder / "agents.npz", inputs=inputs[: len(names)], users=names, labels=kinds)
    np.savez(folder / "pool.npz", x=inputs[:5])
    words = ["vote", "knn", "--agents", folder / "agents.npz", "--pool", folder / "pool.npz", "--unlabelled"]
    return [*words, "--queries", 4, "--neighbours", 1, "--noise-std", 1, "--student.epochs", 1, "--delta", 1e-3]


def _records(folder: Path, own: bool) -> Words:
    rows = [f"p{i},{t},{1 + (i + t) % 5}.5,{'ab'[i % 2]}" for i in range(24) for t in (0, 3)]
    rows += [f"q,0,2.5,{OWN}", f"q,3,1.5,{OWN}"] * own
    (folder / "visits.csv").write_text("\n".join(["id,day,bili,kind", *rows]) + "\n")
    words = ["ehr", "fit", "--data", folder / "visits.csv", "--epsilon", 8, "--horizon", 10, "--max-visits", 3]
    words += ["--holdout-share", 0, "--epochs", 1, "--batch-size", 8, "--gan-steps", 1, "--critic-steps", 1]
    return [*words, "--gan-batch-size", 8, "--hidden", 4, "--latent", 4, "--calibrated-on", 20, "--delta", 1e-3]


def _class_names(folder: Path) -> Words:
    (folder / "classes.txt").write_text(f"ant\nbee\n{OWN}\n")
    return ["--class-names", folder / "classes.txt"]


def _items(folder: Path) -> Words:
    (folder / "items.txt").write_text("".join(f"{item}\n" for item in [*range(12), OWN]))
    return ["--items", folder / "items.txt"]


def _schema(folder: Path) -> Words:
    (folder / "schema.yaml").write_text(
        "id: id\ntime: day\ntime_unit: days\nstatic: []\ntemporal:\n"
        "- {name: bili, kind: numeric, range: [0, 10]}\n"
        f"- {{name: kind, kind: categorical, categories: [a, b, {OWN}]}}\n"
    )
    return ["--schema", folder / "schema.yaml"]


_STEP = ("--steps", 1, "--cohort", 8, "--delta", 1e-3, "--population", 25)

SYSTEMS = {
    "fedavg": System(_federated("fedavg"), _class_names),
    "fedsgd": System(_federated("fedsgd"), _class_names),
    "fedemb": System(
        _federated("fedemb", "--client.head.classes", "global", "--cohort.users-per-client", 1), _class_names
    ),
    "fedrecon": System(_ratings, _items, ("items.txt",)),
    "dpsgd": System(_examples("dpsgd", *_STEP), _class_names),
    "dpsgd, texts": System(_texts, _class_names),
    "labeldp_pro": System(_examples("labeldp", "pro", *_STEP), _class_names),
    "lp_mst": System(_examples("labeldp", "train", "--training.epochs", 1), _class_names),
    "knn_dpfl": System(_vote, _class_names),
    "ehr_safe": System(_records, _schema, ("schema.yaml",)),
}
"""By the registry's name. AE-DPFL reads what kNN-DPFL reads, RROnBins numbers in a declared range, and heads of
PrivacyFace never leave their silo."""


def _run(words: Words) -> int:
    return main([str(word) for word in words])


def test_every_system_with_a_guarantee_is_here():
    named = {name.partition(",")[0] for name in SYSTEMS}
    others = {"ae_dpfl", "rr_on_bins", "centralized", "privacyface"}
    assert named | others == set(ALGORITHMS)


@pytest.mark.parametrize("own", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_that_would_take_its_domain_from_records_is_refused(name: str, own: bool, tmp_path: Path, capsys):
    words = SYSTEMS[name].write(tmp_path, own)
    words += ["--id", "id", "--time", "day"] if name == "ehr_safe" else []
    assert _run([*words, "--out", tmp_path / "run"]) == 2
    told = capsys.readouterr().err
    assert re.search(r"found in the private records|must be declared", told), told
    assert re.search(r"--class-names|--num-classes|--items|--schema", told), told
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", one_in(3, SYSTEMS))
def test_neighbours_release_the_same_domains_byte_for_byte(name: str, tmp_path: Path):
    released = []
    for own in (False, True):
        folder = tmp_path / f"{own}"
        folder.mkdir()
        words = [*SYSTEMS[name].write(folder, own), *SYSTEMS[name].declare(folder)]
        assert _run([*words, "--out", folder / "run"]) == 0
        released.append(_domain(folder / "run", SYSTEMS[name].lists))
    assert released[0] == released[1]


def _domain(run: Path, lists: tuple[str, ...]) -> dict[str, Any]:
    """What the released files tell of what records may have: shapes, public facts, lists; no paths, no numbers of
    records."""
    found: dict[str, Any] = {name: (run / name).read_bytes() for name in lists if (run / name).exists()}
    with safe_open(run / "model.safetensors", "np") as file:
        found["shapes"] = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        told = {
            key: json.loads(value) if value[:1] in '{["' else value for key, value in (file.metadata() or {}).items()
        }
    about = json.loads((run / "plan.json").read_text())["about"]
    paths = {"data", "agents", "pool", "class_names", "items", "schema", "out"}
    found["about"] = {name: value for name, value in about.items() if name not in paths}
    found["metadata"] = json.dumps(told, sort_keys=True) if "schema" in told else sorted(told)
    if "schema" in told:
        found["metadata"] = told["schema"]
    statement = json.loads((run / "statement.json").read_text())
    found["assumptions"] = [re.sub(r"\d+", "N", sentence["text"]) for sentence in statement["assumptions"]]
    return found


# An attacker who knows all other records guesses from what is released whether one was there.

# An attacker who knows all other records guesses from the released model whether one was there.
#
# With coupled examples or shared draws the guess is right nearly always, at a guarantee that allows little more than
# a coin; such a run is refused. What is accepted stays within the statement.
Batch = tuple[Tensor, Tensor]
RECORDS = 96
RUNS = 20  # with the record, and as many without
CONFIDENCE = 0.99


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs as if nobody looked."""
    monkeypatch.setattr(examples, "first_batch_check", lambda trained, *_: SelfCheck(covered(trained.model), [], 0.0))
    for check in ("at_start", "while_training"):
        monkeypatch.setattr(gradients.Recheck, check, lambda *_: None)


def plan_for(batch: Batch, seed: int, micro_batch: int | None = None) -> DPSGD:
    """One step with all examples, at ε = 1."""
    count = len(batch[1])
    plan = DPSGD(
        steps=1, cohort=count, clipping=1.0, noise=0.0, server=0.5, seed=seed, examples={"micro_batch": micro_batch}
    )
    return plan.calibrate(epsilon=1.0, delta=1e-5, population=count)


def moved(plan: DPSGD, build: Callable[[], nn.Module], loss: Loss, batch: Batch) -> tuple[Tensor, float]:
    """Where the released model went, times the public size of the batch, and what an attacker's success may be."""
    model = build()
    before = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    result = plan.fit(model, as_data(batch), loss=loss)
    after = torch.cat([parameter.detach().flatten() for parameter in result.model.parameters()])
    grown = math.exp(result.statement.epsilon)
    return (before - after) * len(batch[1]) / plan.server.learning_rate, (grown + result.statement.delta) / (grown + 1)


def successes(
    guess: Callable[[Tensor], bool],
    build: Callable[[], nn.Module],
    loss: Loss,
    worlds: tuple[Batch, Batch],
    micro_batch: int | None = None,
) -> tuple[int, float]:
    """How often the guess is right, and the statement's bound on the share."""
    right, bound = 0, 0.0
    for there, batch in enumerate(worlds):
        plan = plan_for(batch, 0, micro_batch)
        for seed in range(RUNS):
            released, bound = moved(dataclasses.replace(plan, seed=seed), build, loss, batch)
            right += guess(released) == bool(there)
    return right, bound


def refutes(right: int, bound: float, *, games: int = 2 * RUNS) -> bool:
    return float(stats.binomtest(right, games, bound, alternative="greater").pvalue) < 1 - CONFIDENCE


def without_last(batch: Batch) -> Batch:
    return batch[0][:-1], batch[1][:-1]


def between(build: Callable[[], nn.Module], loss: Loss, worlds: tuple[Batch, Batch]) -> Callable[[Tensor], bool]:
    """The likelier of the two worlds, from what each would release without noise."""
    absent, there = (moved(plan_for(batch, 0).replace(noise=0.0), build, loss, batch)[0] for batch in worlds)
    return lambda released: bool((released - there).norm() < (released - absent).norm())


ATTACKED = ["trimmed to the longest", "trimmed to the longest, recurrent", "a branch on an extreme example"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ATTACKED)
def test_coupling_gives_an_example_away(kind: str, unchecked: None) -> None:
    build, loss, data = COUPLED[kind]
    there = extreme(data(RECORDS), kind)
    worlds = without_last(there), there
    assert refutes(*successes(between(build, loss, worlds), build, loss, worlds))


@pytest.mark.parametrize("kind", ATTACKED)
def test_so_such_a_run_is_refused(kind: str) -> None:
    build, loss, data = COUPLED[kind]
    for batch in (without_last(data()), extreme(data(), kind)):
        with pytest.raises(InputError, match="coupled"):
            moved(plan_for(batch, 0), build, loss, batch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masked mean", "packed", "weights of classes"])
def test_of_what_is_accepted_the_attacker_learns_no_more_than_the_statement_allows(
    kind: str, request: pytest.FixtureRequest
) -> None:
    build, loss, data = UNCOUPLED[kind]
    moved(plan_for(data(), 0), build, loss, data())
    request.getfixturevalue("unchecked")  # once is enough
    worlds = without_last(data()), data()
    assert not refutes(*successes(between(build, loss, worlds), build, loss, worlds))


# Who shares a number. Pairs of examples add nothing while they share one; one more before them parts every pair.
PAIRS, LARGE = 192, 10.0


class Signs(nn.Module):
    """Multiplies what it is given by random signs; at weights of zero, an example's gradient is its sign times C."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.head, self.shared = nn.Linear(2, 3, bias=False), shared
        nn.init.zeros_(self.head.weight)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(values * (2.0 * (torch.rand(1 if self.shared else len(values), 1) < 0.5) - 1))


def pairs(first: bool) -> Batch:
    """Examples of which the second of a pair takes back what the first one adds, in two directions."""
    values, place = torch.zeros(PAIRS, 2, 2), torch.arange(PAIRS)
    direction, sign = place // (PAIRS // 2), 1.0 - 2.0 * (place % 2)
    values[place, 0, direction], values[place, 1, direction] = LARGE * sign, -LARGE * sign
    values = values.view(-1, 2)
    values = torch.cat([values[:1], values]) if first else values
    return values, torch.zeros(len(values), dtype=torch.long)


def far(released: Tensor) -> bool:
    return float(released.norm()) > 10.0


@pytest.mark.slow
def test_a_shared_draw_gives_an_example_away_and_is_refused(unchecked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = pairs(False), pairs(True)
    assert refutes(*successes(far, lambda: Signs(shared=True), each, worlds, micro_batch=2))
    monkeypatch.undo()
    with pytest.raises(InputError, match="shared"):
        moved(plan_for(worlds[1], 0), lambda: Signs(shared=True), each, worlds[1])


@pytest.mark.slow
def test_a_draw_of_each_example_gives_no_one_away(request: pytest.FixtureRequest) -> None:
    worlds = pairs(False), pairs(True)
    moved(plan_for(worlds[1], 0, micro_batch=2), lambda: Signs(shared=False), each, worlds[1])
    request.getfixturevalue("unchecked")  # once is enough
    assert not refutes(*successes(far, lambda: Signs(shared=False), each, worlds, micro_batch=2))


# An attacker who makes a run go on as another one subtracts what it releases from what was released before.
#
# The first process dies in its first round, after its noisy mean was seen; the second one goes on from the
# checkpoint. Everybody but the target adds nothing, so under one noise the two means differ only if the target is
# there. Without the checks the attacker is always right; with them the second process is refused, and the attacker
# tosses a coin.
COUNT, WIDTH, OUTPUTS = 12, 16, 3
EPSILON, DELTA = 1.0, 1e-5
BOUND = (math.exp(EPSILON) + DELTA) / (math.exp(EPSILON) + 1)
GAMES = 8  # with the target, and as many without


class Second(Team):
    """As one of two processes meets the examples: in another order; a stand-in, for the other one has none left."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2

    part = slice(None, None, -1)  # pyright: ignore[reportAssignmentType]

    def all_reduce(self, values: Tensor) -> Tensor:
        return values

    def from_leader(self, value: Any) -> Any:
        return value

    def broadcast(self, values: Tensor) -> Tensor:
        return values


def scaled(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda scores, labels: factor * functional.cross_entropy(scores, labels, reduction="none")


@dataclass(frozen=True)
class Setting:
    """What a process is started with."""

    loss: float = 1.0
    between: Callable[[], nn.Module] = nn.Tanh
    sign: float = 1.0
    team: type[Team] = Team


CHANGES = {
    "another lambda": (Setting(), Setting(loss=-1.0)),
    "another activation": (Setting(), Setting(between=lambda: nn.ELU(0.1))),
    "dropout, another number of processes": (
        Setting(between=lambda: nn.Dropout(0.5)),
        Setting(between=lambda: nn.Dropout(0.5), team=Second),
    ),
    "other pictures": (Setting(), Setting(sign=-1.0)),
}


def inputs(there: bool, sign: float, count: int = COUNT) -> np.ndarray:
    """Everybody has one number more, which the model does not look at."""
    values = np.zeros((count, WIDTH + 1), np.float32)
    values[-1, :-1] = sign * np.linspace(0.5, 2.0, WIDTH)
    values[:, -1] = sign
    return values if there else values[:-1]


class Part(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return values[:, :WIDTH]


def network(setting: Setting, outputs: int) -> nn.Module:
    torch.manual_seed(0)
    layers = Part(), nn.Linear(WIDTH, 16, bias=False), setting.between(), nn.Linear(16, outputs, bias=False)
    return nn.Sequential(*layers)


@cache
def calibrated(plan: DPSGD | FedAvg) -> Any:
    return plan.calibrate(epsilon=EPSILON, delta=DELTA, population=COUNT)


def example_run(setting: Setting, there: bool, seed: int) -> Callable[..., Any]:
    """DP-SGD with all examples in each step."""
    values = inputs(there, setting.sign)
    records = data.examples_from_arrays(values, np.arange(len(values)) % OUTPUTS, num_classes=OUTPUTS)
    plan = calibrated(DPSGD(steps=2, cohort=COUNT, clipping=1.0, noise=0.0))
    plan = replace(plan, seed=seed)
    return lambda **options: fit_plan(plan, network(setting, OUTPUTS), records, loss=scaled(setting.loss), **options)


def users(setting: Setting, there: bool, seed: int) -> Callable[..., Any]:
    """DP-FedAvg with all users in each round."""
    values = inputs(there, setting.sign)
    records = data.from_arrays(values, np.arange(len(values)) % OUTPUTS, np.arange(len(values)))
    plan = FedAvg(rounds=2, cohort=COUNT, clipping=1.0, noise=0.0, client={"learning_rate": 0.5})
    plan = replace(calibrated(plan), seed=seed)
    return lambda **options: fit_plan(plan, network(setting, 8), records, **options)


REFUSALS = ("resume with the same", "computes something else", "divide the model's random numbers")
KINDS = {"examples": example_run, "users": users}
CASES = [*(("examples", change) for change in CHANGES), ("users", "another activation"), ("users", "other pictures")]


CHECKED: dict[tuple[Setting, bool], SelfCheck] = {}
"""What the self-check found in the first game of a setting; it looks at records and model, which are those of all."""


def checked_once(setting: Setting, there: bool) -> Callable[..., SelfCheck]:
    """The self-check, whose answer is kept for the games that follow; the layers are the model's own."""
    real = first_batch_check.self_check

    def check(model: nn.Module, losses: Any, batch: Any, **options: Any) -> SelfCheck:
        found = CHECKED.get((setting, there))
        if found is None:
            found = CHECKED[setting, there] = real(model, losses, batch, **options)
        return replace(found, layers=covered(model))

    return check


def means(kind: str, change: str, there: bool, seed: int, folder: Path, patched: pytest.MonkeyPatch) -> list[Tensor]:
    """What both processes show, the second only if it was not refused."""
    seen = []
    for resume, setting in enumerate(CHANGES[change]):
        with patched.context() as patch:
            patch.setattr(runs, "Team", setting.team)
            patch.setattr(first_batch_check, "self_check", checked_once(setting, there))
            fit = KINDS[kind](setting, there, seed)
            try:
                fit(out=folder, resume=bool(resume), optimizer=lambda parameters: Watched(parameters, lr=0.1))
            except Seen as shown:
                seen.append(shown.mean)
    return seen


def guess(*given: Any) -> bool | None:
    """The attacker's, from both means; None if the second process was refused."""
    try:
        one, other = means(*given)
    except InputError as refusal:
        if not any(told in str(refusal) for told in REFUSALS):
            raise
        return None
    return bool((one - other).abs().max() > 1e-6)


def right_guesses(
    kind: str, change: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, games: int = 2 * GAMES
) -> tuple[int, int]:
    """How often the attacker is right, and how often refused."""
    coins, right, refused = np.random.default_rng(0).random(games) < 0.5, 0, 0
    for number in range(games):
        there = number % 2 == 1
        guessed = guess(kind, change, there, number, folder / str(number), monkeypatch)
        refused += guessed is None
        right += bool(coins[number] if guessed is None else guessed) == there
    return right, refused


@pytest.fixture
def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that go on as whatever they are given."""
    monkeypatch.setattr(loop, "refuse_other", lambda *_, **__: None)
    for contribution in (ExampleContribution, LocalContribution):
        monkeypatch.setattr(contribution, "fingerprint", lambda _: "the same")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "change"), CASES[::5])
def test_a_run_that_goes_on_as_another_gives_its_target_away(kind, change, tmp_path, monkeypatch, unbound):
    right, refused = right_guesses(kind, change, tmp_path, monkeypatch)
    assert refused == 0
    assert refutes(right, BOUND, games=2 * GAMES)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "change"), CASES)
def test_so_it_is_refused_whether_the_target_is_there_or_not(kind, change, tmp_path, monkeypatch):
    """So the attacker is left with one mean, and guesses."""
    assert right_guesses(kind, change, tmp_path, monkeypatch, games=2)[1] == 2


def test_a_single_other_picture_of_many_users_is_seen(tmp_path):
    """Also where there are so many that looking at a sample of them would be tempting."""
    count = 20_050
    plan = FedAvg(rounds=2, cohort=4, clipping=1.0, noise=1.0, seed=0)

    def go(place: int | None, **options: Any) -> None:
        values = inputs(True, 1.0, count)
        if place is not None:
            values[place] += 1.0
        records = data.from_arrays(values, np.arange(count) % OUTPUTS, np.arange(count))
        fit_plan(plan, network(Setting(), 8), records, out=tmp_path / "run", **options)

    with pytest.raises(Seen):
        go(None, optimizer=lambda parameters: Watched(parameters, lr=0.1))
    for place in (0, 777, count // 2, count - 3):
        with pytest.raises(InputError, match="from another plan, model or data set"):
            go(place, optimizer=lambda parameters: Watched(parameters, lr=0.1), resume=True)
