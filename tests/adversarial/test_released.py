"""What is released holds nothing that one record alone has: no class, item or word, and nothing that a model noted."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from sfumato import data
from sfumato._check import InputError
from sfumato.algorithms import ALGORITHMS
from sfumato.central import DPSGD
from sfumato.cli.main import main
from sfumato.federated import FedAvg
from sfumato.training import RunOptions, Trainable

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


def test_a_cache_of_what_everybody_gets_alike_is_no_memory():
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
    return [*words, "--queries", 4, "--neighbours", 1, "--noise-std", 1, "--student-epochs", 1, "--delta", 1e-3]


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
    "lp_mst": System(_examples("labeldp", "train", "--epochs", 1), _class_names),
    "knn_dpfl": System(_vote, _class_names),
    "ehr_safe": System(_records, _schema, ("schema.yaml",)),
}
"""By the registry's name. AE-DPFL reads what kNN-DPFL reads, and RROnBins numbers in a declared range."""


def _run(words: Words) -> int:
    return main([str(word) for word in words])


def test_every_system_with_a_guarantee_is_here():
    named = {name.partition(",")[0] for name in SYSTEMS}
    others = {"ae_dpfl", "rr_on_bins", "centralized"}
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


@pytest.mark.parametrize("name", SYSTEMS)
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
