"""Damaged files: mutators, and the readers that must refuse what they make in one line."""

import io
import json
import random
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato import accounting as acc
from sfumato import data
from sfumato._check import InputError
from sfumato.cli.compare import read_source
from sfumato.data import examples_from_arrays, from_arrays, write_examples, write_store
from sfumato.data.store.seal import index_digest, write_facts
from sfumato.ledger import Budget, Ledger, entries
from sfumato.report.run_record import read_run
from sfumato.runs import RunFolder, checkpoint
from sfumato.statement import Statement
from small_runs import work

# Damaged files by the thousand: what disks, editors and attackers do to a file, from a seed.
#
# A reader is registered with whole files of its kind and a function that reads one; `test_mutated_files.py` gives it
# damaged ones and lets it answer or refuse in one line. To register: `READERS["csv"] = Reader(make, read)`, in a
# module that the test imports (see `readers.py`).

HUGE = [
    b"1e999",
    b"-1e999",
    b"9" * 400,
    b"9" * 5000,
    b"NaN",
    b"-0",
    b"18446744073709551616",
    b"1e-400",
    b"null",
    b"true",
]
WORDS = [b"\xff\xfe", b"\x00", b"\r\n", b"\xed\xa0\x80", b'"', b"\\", b"{}", b"[]", b"\x1b[2J", "\u202e".encode()]


@dataclass(frozen=True)
class Reader:
    """A kind of file.

    Attributes:
        make: writes whole files of this kind into an empty folder; gives the paths of those to damage.
        read: reads what `make` wrote, with one of the files damaged; takes the folder.
    """

    make: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]


READERS: dict[str, Reader] = {}
"""By name; other rooms of the tests add theirs."""


def mutate(content: bytes, rng: random.Random) -> bytes:
    """The file with one to three damages."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(MUTATIONS)(content, rng)
    return content


def _place(content: bytes, rng: random.Random) -> int:
    return rng.randrange(len(content) + 1)


def truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: _place(content, rng)]


def flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def insert(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + rng.choice((*WORDS, rng.randbytes(rng.randrange(1, 40)))) + content[at:]


def remove(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + content[at + rng.randrange(1, 60) :]


def repeat(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    end = at + rng.randrange(1, 200)
    return content[:end] + content[at:end] + content[end:]


def swap_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) > 1:
        one, two = rng.sample(range(len(lines)), 2)
        lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def zero(content: bytes, rng: random.Random) -> bytes:
    """A block that the disk lost."""
    at = _place(content, rng)
    length = rng.choice((1, 16, 512, 4096))
    return content[:at] + bytes(len(content[at : at + length])) + content[at + length :]


def nest(content: bytes, rng: random.Random) -> bytes:
    depth = rng.choice((50, 900, 5000, 200_000) if rng.random() < 0.02 else (50, 900))
    bracket = rng.choice((b"[", b'{"a":'))
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        at = _place(content, rng)
        return content[:at] + bracket * depth + content[at:]
    return _with(tree, rng, bracket * depth + b"0" + (b"]" if bracket == b"[" else b"}") * depth)


def huge(content: bytes, rng: random.Random) -> bytes:
    """A number or a word in the place of a value of JSON, or anywhere in other files."""
    value = rng.choice(HUGE)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        lines = content.splitlines(keepends=True)
        if lines and b"{" in content:
            at = rng.randrange(len(lines))
            try:
                lines[at] = _with(json.loads(lines[at]), rng, value) + b"\n"
                return b"".join(lines)
            except (ValueError, RecursionError):
                pass
        at = _place(content, rng)
        return content[:at] + value + content[at + len(value) :]
    return _with(tree, rng, value)


def other_kind(content: bytes, rng: random.Random) -> bytes:
    """A value of JSON that became one of another kind."""
    kinds = (
        b"[]",
        b"{}",
        b'""',
        b'"x"',
        b"-1",
        b"0",
        b"1.5",
        b"null",
        b"true",
        b'[[1,"a"],{}]',
        b'{"event":"gaussian"}',
    )
    try:
        return _with(json.loads(content), rng, rng.choice(kinds))
    except (ValueError, RecursionError):
        return huge(content, rng)


def _with(tree: Any, rng: random.Random, value: bytes) -> bytes:
    """The tree with `value` in the place of one of its parts."""
    places: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack and len(places) < 500:
        part = stack.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            places.append((part, key))
            stack.append(part[key])
    if not places:
        return value
    part, key = rng.choice(places)
    if isinstance(part, dict) and rng.random() < 0.2:
        del part[key]
    else:
        part[key] = "\ue000"
    mark = json.dumps("\ue000").encode()
    return json.dumps(tree).encode().replace(mark, value)


MUTATIONS = [truncate, flip, insert, remove, repeat, swap_lines, zero, nest, huge, huge, other_kind, other_kind]


# The readers of a run's files, registered for damaged ones: each as a command or a resumed run reads them.

_EVALUATION = {
    "users": 3,
    "images": 12,
    "untrained": {"recall_at_far": {"0.001": 0.1}, "auc": 0.6, "roc": {"fpr": [0.0, 1.0], "tpr": [0.0, 1.0]}},
    "trained": {"accuracy": 0.9, "log_loss": 0.3},
}


def _run(folder: Path) -> Path:
    work(folder / "run", seed=1, each=lambda index, run: run.folder.add_evaluation("untrained", {"accuracy": 0.5}, {}))
    (folder / "run" / "evaluation.json").write_text(json.dumps(_EVALUATION))
    return folder / "run"


def _files(*names: str) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        run = _run(folder)
        return [run / name for name in names]

    return make


def _resume(folder: Path) -> None:
    """What a run that goes on reads, before it does anything."""
    run = RunFolder(folder / "run")
    run.read_plan()
    run.evaluation()
    checkpoint.load(run.checkpoint)
    checkpoint.load_frozen(run.checkpoint)


def _ledger(folder: Path) -> list[Path]:
    path = folder / "ledger.jsonl"
    with Ledger.open(path, budget=Budget(epsilon=9.0, delta=1e-5), identity="w") as ledger:
        for event in (acc.Gaussian(2.0).poisson(0.1), acc.Laplace(3.0) * 2, acc.Gaussian(4.0)):
            ledger.append(event, phase="a", round=1)
        ledger.seal("0" * 64, {"plan.json": "1" * 64})
    return [path]


def _sealed_again(folder: Path) -> None:
    """The ledger's values damaged and its chain whole: what only somebody who means it can write."""
    path = folder / "ledger.jsonl"
    content, whole = path.read_bytes(), (folder / "whole").read_bytes()
    rng = random.Random(content)
    previous, lines = entries.ORIGIN, []
    for index, line in enumerate(map(json.loads, whole.splitlines())):
        fields = {name: value for name, value in line.items() if name not in ("hash", "index", "previous")}
        try:
            if content != whole and rng.random() < 0.4:
                value = rng.choice((b"[]", b"{}", b"1e308", b"-1", b"null", b'"x"', b"true", b"9" * 30, b"0.5"))
                fields = json.loads(_with(fields, rng, value))
            entry = entries.seal(fields, index=index, previous=previous)
        except (InputError, TypeError):
            continue
        lines.append(entries.line(entry))
        previous = entry["hash"]
    path.write_bytes(b"".join(lines))
    Ledger.read(path)
    with Ledger.open(path):
        pass


def _ledger_and_copy(folder: Path) -> list[Path]:
    (path,) = _ledger(folder)
    (folder / "whole").write_bytes(path.read_bytes())
    return [path]


def _opened(folder: Path) -> None:
    Ledger.read(folder / "ledger.jsonl", torn=True)
    with Ledger.open(folder / "ledger.jsonl"):
        pass


def _store(folder: Path) -> list[Path]:
    names = ["a", "b", "ć"]
    people = from_arrays(np.arange(60.0).reshape(20, 3), np.arange(20) % 3, np.arange(20) // 4, label_names=names)
    write_store(people, folder / "s")
    (folder / "whole.json").write_bytes((folder / "s" / "store.json").read_bytes())
    return [path for path in sorted((folder / "s").iterdir()) if path.name != "verified.json"]


def _arrow_alone(folder: Path) -> list[Path]:
    return [path for path in _store(folder) if path.suffix == ".arrow"]


def _store_of_examples(folder: Path) -> list[Path]:
    write_examples(examples_from_arrays(np.arange(60.0).reshape(20, 3), np.arange(20) / 7), folder / "s")
    return sorted((folder / "s").iterdir())


def _opened_store(folder: Path) -> None:
    users = data.open_users(folder / "s")
    users.fingerprint()
    _all_users(users)


def _store_sealed_again(folder: Path) -> None:
    """Arrow files damaged under a description that fits them: what only somebody who means it can write."""
    store = folder / "s"
    facts = json.loads((folder / "whole.json").read_text())
    facts = {name: value for name, value in facts.items() if name not in ("format", "version", "sha256")}
    sizes = {name: (store / name).stat().st_size for name in facts["files"]}
    write_facts(store, {**facts, "files": sizes, "index_sha256": index_digest(store)})
    _all_users(data.open_users(store))


def _all_users(users: data.UserDataset) -> None:
    list(users.user_ids)
    list(users.label_names or ())
    users.examples_of(np.arange(len(users)))
    for user in range(len(users)):
        users.examples(user)


def _shard(folder: Path) -> list[Path]:
    (folder / "shards").mkdir()
    rng = np.random.default_rng(0)
    for name, format in (("a.tar", tarfile.PAX_FORMAT), ("b.tar", tarfile.GNU_FORMAT)):
        with tarfile.open(folder / "shards" / name, "w", format=format) as tar:
            for key in ("0", "1", "k" * 120):
                vector, place = io.BytesIO(), {"person": key[0], "x": rng.random(2).tolist()}
                np.save(vector, rng.random(3))
                for kind, content in (("npy", vector.getvalue()), ("cls", b"1"), ("json", json.dumps(place).encode())):
                    info = tarfile.TarInfo(f"{key}.{kind}")
                    info.size, info.mtime = len(content), 0.5
                    tar.addfile(info, io.BytesIO(content))
    return sorted((folder / "shards").glob("*.tar"))


def _samples(folder: Path) -> None:
    people = data.open_users(folder / "shards", user="json.person", input="npy", label="cls")
    _all_users(people)
    data.open_examples(folder / "shards", input=("npy", "json.x"))


READERS |= {
    "tar shards": Reader(_shard, _samples),
    "store": Reader(_store, _opened_store),
    "store, sealed again": Reader(_arrow_alone, _store_sealed_again),
    "store of examples": Reader(_store_of_examples, lambda folder: list(data.open_examples(folder / "s").batches(7))),
    "ledger": Reader(_ledger, _opened),
    "ledger, sealed again": Reader(_ledger_and_copy, _sealed_again),
    "statement": Reader(
        _files("statement.json"),
        lambda folder: Statement.load(folder / "run" / "statement.json").questions_markdown(),
    ),
    "a run's page": Reader(
        _files("plan.json", "metrics.jsonl", "evaluation.json", "statement.json", "ledger.jsonl"),
        lambda folder: read_run(folder / "run"),
    ),
    "a run's files by themselves": Reader(
        _files("plan.json", "statement.json", "ledger.jsonl"),
        lambda folder: [read_source(path) for path in (folder / "run", folder / "run" / "statement.json")],
    ),
    "checkpoint": Reader(
        _files("checkpoint/state.safetensors", "checkpoint/frozen.safetensors", "plan.json", "evaluation.json"), _resume
    ),
    "metrics": Reader(_files("metrics.jsonl"), lambda folder: RunFolder(folder / "run").keep_metrics(4)),
}
