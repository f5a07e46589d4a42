"""One record that has a class, an item, a word or a text of its own is in no released file of any system.

Two data sets differ in one unit, which alone has something. Where nobody declared what records may have, the run is
refused for both; where it is declared, both release the same domains, byte for byte.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from sfumato.algorithms import ALGORITHMS
from sfumato.cli.main import main

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
    return [*command, "--data", folder / "users.npz", "--test-share", 0, "--clients-per-round", 4]


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
    words += ["--model", "matrix_factorization", "--test-share", 0, "--rounds", 1, "--clients-per-round", 4]
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
    words += ["--vocabulary", 50, "--length", 8, "--test-share", 0, "--steps", 1, "--batch-size", 8]
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


_STEP = ("--steps", 1, "--batch-size", 8, "--delta", 1e-3, "--population", 25)

SYSTEMS = {
    "fedavg": System(_federated("fedavg"), _class_names),
    "fedsgd": System(_federated("fedsgd"), _class_names),
    "fedemb": System(_federated("fedemb", "--head-classes", "global", "--users-per-client", 1), _class_names),
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
