"""Random command lines and damaged files end in one line, within the memory of a small machine."""

import io
import json
import os
import random
import resource
import tarfile
import time
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from sfumato import accounting as acc
from sfumato import data
from sfumato._check import InputError
from sfumato.cli.commands import COMMANDS
from sfumato.cli.compare import read_source
from sfumato.cli.main import main
from sfumato.cli.parse import fields
from sfumato.data import examples_from_arrays, from_arrays, write_examples, write_store
from sfumato.data.store.seal import index_digest, write_facts
from sfumato.ledger import Budget, Ledger, entries
from sfumato.report.run_record import read_run
from sfumato.runs import RunFolder, checkpoint
from sfumato.statement import Statement
from slow import slow_but
from small_runs import work

# Damaged files: mutators, and the readers that must refuse what they make in one line.

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


# Random command lines and damaged files end in one line, within the memory of a small machine.

# The peak of a process's resident memory while something runs, whatever it held before.
MOST = 1_000_000_000
"""Bytes that a process which reads damaged files, or is given random command lines, may hold at its peak."""

_SHARE = MOST // 2  # of it that may be new, where the tests before have left much


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Fail if the peak is above `MOST`, or if more than half of it was added to a process that is large already.

    The peak is printed: `pytest -rP` shows it.
    """
    before = _resident("VmRSS")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    yield
    peak = _resident("VmHWM")
    print(f"{what}: peak of resident memory {peak / 1e6:.0f} MB, {before / 1e6:.0f} MB before")
    assert peak <= max(MOST, before + _SHARE), f"{what}: {peak / 1e6:.0f} MB, {before / 1e6:.0f} MB before"


def _resident(field: str) -> int:
    """Bytes by /proc; elsewhere the peak of the process's whole life."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# The measure of memory sees what was held for a moment only, and not what was held before.
def test_a_moment_beyond_the_limit_is_seen():
    with pytest.raises(AssertionError, match="MB before"), within_memory("a moment"):
        np.ones(MOST // 8 + 1_000_000)


def test_what_was_held_before_is_not_counted(capsys: pytest.CaptureFixture[str]):
    np.ones(MOST // 8 + 1_000_000)
    with within_memory("nothing"):
        pass
    assert "nothing: peak of resident memory" in capsys.readouterr().out


# Thousands of random command lines: each ends with 0, 2 or 130, and a refusal is one line; never a traceback.
#
# The grammar is the registry's own: every command, every option with its type. Words are mutated, values are wild,
# flags are doubled or left without a value, files are broken. Nothing trains: data are missing or broken, and guards
# keep what is calculated small.
RUNS = [(0, 150), *((seed, 500) for seed in range(1, 5))]
"""Seeds, and how many command lines from each: the first few are quick."""
SECONDS = 20.0  # the longest line, on a machine that does other things as well

WILD = (
    "", " ", "nan", "inf", "-inf", "1e400", "-1e400", "0x10", "१२", "1_0", "1e3", "-0.0", "-1", "0",
    "1.5", "٣.٥", "½", "1,5", "it's", '"', "'", "\\", "`id`", "$(id)", "%s", "{0}", "{", "[1, 2]",
    "@file", "@@", ".", "..", "a/b/c", "~", "-", "=", "==x", "None", "none", "null", "true", "🦊",
    "\u202e", "e\u0301", "\x1b[31mred", "a\tb", "a\nb", "a\0b", "\udcff", "caf\udce9", "x" * 300,
    "x" * 5000, "9" * 30, "9" * 5000, "*", "?", "(", "[", "-x", "--x", "---", "--", "--=", "--help=1",
    "-5", "+3", "1e-320",
)  # fmt: skip
"""Values that no option, or not every option, takes."""

BROKEN = {
    "deep.yaml": b"[" * 1000,
    "deep.json": b'{"a":' * 100_000,
    "tabs.yaml": b"rounds:\t3\n\tsteps: 4\n",
    "latin.yaml": b"out: caf\xe9\n",
    "latin.json": b'{"out": "caf\xe9"}',
    "empty.yaml": b"",
    "list.yaml": b"- a\n- b\n",
    "twice.yaml": b"steps: 1\nsteps: 2\n",
    "words.yaml": b"steps: [1, {a: b}]\nnoise_multiplier: 2001-01-01\n",
    "tags.yaml": b"steps: !!python/object/apply:os.system [id]\n",
    "anchors.yaml": b"a: &a [*a]\n",
    "numbers.json": b'{"steps": 1e999, "delta": NaN, "noise_multiplier": ' + b"9" * 5000 + b"}",
    "flags.json": b'{"--steps": 1, "": 2, "\\u0000": 3, "json": "yes", "config": "deep.yaml"}',
    "fine.json": b'{"noise_multiplier": 2.0, "steps": 3}',
    "nul.bin": bytes(100),
    "no.npz": b"PK\x03\x04 and no more",
    "none.csv": b"label,text\n",
    "torn.jsonl": b'{"index": 0, "previous"',
    "words.jsonl": b'{"index": 0}\n[]\n',
    "no.parquet": b"PAR1PAR1",
    "no.safetensors": b"\xff" * 64,
}
"""Files by name; none is what a command asks for, but for fine.json."""

NAMES = (*BROKEN, "folder", "folder/inside", "nowhere", "nowhere/else.json", "new", "new.svg", "new.html")

SMALL = {"populations": ("3e6",), "steps": ("1", "3"), "rounds": ("1", "3"), "identities": ("2",), "images": ("2",)}
"""Numbers of work, kept small where they are valid."""

GROWS = ("shape", "num_classes", "vocabulary", "length", "embedding_dim", "size", "images", "identities", "batch_size")
"""Options whose number is memory or work: no huge one, for this test is not about waiting."""

PRIVATE = ("--population", "1000", "--noise", "2")

WHOLE = {
    "account": ("--noise", "2", "--steps", "3"),
    "calibrate": ("--epsilon", "2", "--sampling-rate", "1", "--steps", "3"),
    "compare": ("fine.json", "fine.json"),
    "check-model": ("lenet300_100", "--kind", "numbers", "--shape", "3"),
    "embed": ("folder", "folder", "--out", "new"),
    "labeldp randomize": (*("none.csv", "--label", "label", "--epsilon", "1", "--domain.public", "--out", "new.csv"),),
    "report": ("folder",),
    "ledger show": ("words.jsonl",),
    "ledger verify": ("torn.jsonl",),
    "ledger merge": ("torn.jsonl", "words.jsonl", "--out", "new"),
    "data pack": ("folder", "new"),
    "data glyphs": ("folder",),
    "fedemb": PRIVATE,
    "fedavg": PRIVATE,
    "fedsgd": PRIVATE,
    "centralized": ("--data", "no.npz"),
    "dpsgd": PRIVATE,
}
"""Command lines without a missing word, to look at one wild word behind them."""

GUARDS = {
    "data glyphs": ("--identities", "2", "--images", "2"),
    "ads generate": ("--rows", "50", "--vocabularies", "20", "--users", "10", "--numeric", "2"),
    "extrapolate": ("--multipliers", "1"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the commands run in, two levels below tmp_path, so that ".." stays within."""
    folder = tmp_path / "one" / "two"
    (folder / "folder" / "inside").mkdir(parents=True)
    for name, content in BROKEN.items():
        (folder / name).write_bytes(content)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(("seed", "lines"), slow_but(RUNS, RUNS[0]))
def test_any_command_line_ends_with_a_result_or_one_line(
    seed: int, lines: int, place: Path, monkeypatch: pytest.MonkeyPatch
):
    rng = random.Random(seed)
    options = {name: fields(command.kind()) for name, command in COMMANDS.items()}
    wrong = []
    with within_memory(f"{lines} command lines from seed {seed}"):
        for _ in range(lines):
            words = command_line(rng, options)
            fault = fault_of(words, monkeypatch)
            if fault:
                wrong.append((words, fault))
    assert not wrong, f"{len(wrong)} of {lines}, the first: {wrong[:3]}"


def fault_of(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is wrong with how a command line ends; empty if nothing is."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    started = time.process_time()
    with monkeypatch.context() as context:
        context.setattr("sys.stdout", out)
        context.setattr("sys.stderr", err)
        try:
            code = main(words)
        except (Exception, SystemExit) as error:  # what a user would see as a traceback
            return f"{type(error).__name__}: {str(error)[:200]}"
    seconds = time.process_time() - started
    told = err.buffer.getvalue().decode("utf-8", "replace")
    if seconds > SECONDS:
        return f"took {seconds:.1f} s"
    if code not in (0, 2, 130):
        return f"ended with {code}"
    if "Traceback" in told:
        return told[-300:]
    if code == 2 and not 1 <= told.count("\n") <= 3:
        return f"{told.count(chr(10))} lines: {told[:300]}"
    return f"a line of {len(told)} characters" if len(told) > 3000 else ""


def command_line(rng: random.Random, options: dict[str, dict[str, typing.Any]]) -> list[str]:
    """A command line that is nearly one."""
    name = rng.choice(list(options))
    words = name.split()
    if rng.random() < 0.05:
        words = [mutated(rng, word) for word in words]
    if rng.random() < 0.2:
        words += [*WHOLE.get(name, ()), *option(rng, options[name])]
        return [*words, *guards(name, options[name])]
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        words.append(rng.choice((*NAMES, *WILD)))
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        words += option(rng, options[name])
    if rng.random() < 0.1:
        words += ["--config", rng.choice([file for file in BROKEN if file.endswith(("yaml", "json"))])]
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice((*WILD, "--json", "--help", "--help-all", "-h")))
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice(words))
    return [*words, *guards(name, options[name])]


def guards(name: str, known: dict[str, typing.Any]) -> tuple[str, ...]:
    """Last words, which win: they keep a valid line from working for long."""
    return ("--dry-run",) if "dry_run" in known else GUARDS.get(name, ())


def option(rng: random.Random, known: dict[str, typing.Any]) -> list[str]:
    """One option with a value, wild or not, in one of the ways to give it."""
    name = rng.choice(list(known))
    flag = f"--{name.replace('_', '-')}"
    if rng.random() < 0.1:
        flag = mutated(rng, flag)
    if rng.random() < 0.1:
        return [flag]
    values = [value(rng, name, known[name]) for _ in range(rng.choice((1, 1, 1, 2)))]
    form = rng.random()
    if form < 0.2:
        return [f"{flag}={values[0]}"]
    return [flag, *values] * (2 if form > 0.9 else 1)


def value(rng: random.Random, name: str, annotation: typing.Any) -> str:
    """A value of the option's type, or a wild one."""
    allowed = literals(annotation)
    if rng.random() < 0.5:
        if allowed:
            return rng.choice(allowed)
        if "Path" in str(annotation) or "str" in str(annotation):
            return rng.choice(NAMES)
        return rng.choice(SMALL.get(name, ("1", "2", "0.5", "3")))
    if allowed and rng.random() < 0.5:
        return mutated(rng, rng.choice(allowed))
    if name in GROWS:
        return rng.choice([word for word in WILD if "9" not in word and word != "1e3"])
    return rng.choice(WILD)


def literals(annotation: typing.Any) -> list[str]:
    """The words that an option allows, if it is a choice."""
    if typing.get_origin(annotation) is typing.Literal:
        return [str(each) for each in typing.get_args(annotation)]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union, typing.Annotated):
        return [word for each in typing.get_args(annotation) for word in literals(each)]
    return []


def mutated(rng: random.Random, word: str) -> str:
    """The word with a slip of the finger."""
    place = rng.randrange(len(word) + 1)
    head, tail = word[:place], word[place:]
    return rng.choice((head + tail[1:], head + tail[:1] + tail, head + "x" + tail, word.upper(), tail[::-1] + head))


def test_every_option_of_every_command_is_in_the_grammar():
    for name, command in COMMANDS.items():
        known = fields(command.kind())
        assert {"config", "json"} <= set(known), name
        assert not any(tyro.conf.Positional in getattr(kind, "__metadata__", ()) for kind in known.values())


def test_the_check_sees_a_traceback_a_wrong_code_and_many_lines(place: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(words: Sequence[str]) -> int:
        raise KeyError("x")

    def wrong(words: Sequence[str]) -> int:
        return 1

    def talks(words: Sequence[str]) -> int:
        import sys

        print("a\n" * 9, file=sys.stderr)
        return 2

    for instead, expected in ((fails, "KeyError"), (wrong, "ended with 1"), (talks, "10 lines")):
        monkeypatch.setitem(fault_of.__globals__, "main", instead)
        assert expected in fault_of(["account"], monkeypatch)


# No damaged file ends in a traceback, fills the memory or takes forever: readers answer, or refuse in one line.
#
# 2,000 files, and 20,000 among the slow tests, from a fixed seed, in 1 GB of memory; SFUMATO_MUTATED_FILES sets how
# many these are, SFUMATO_SEED another seed.
FILES = int(os.environ.get("SFUMATO_MUTATED_FILES", "20000"))
SEED = os.environ.get("SFUMATO_SEED", "0")
_SLOWEST = 5.0  # seconds of one file


@pytest.mark.parametrize("files", slow_but([2_000, FILES], 2_000))
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    tmp_path: Path, name: str, files: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    reader, rng = READERS[name], random.Random(f"{SEED} {name}")
    paths = reader.make(tmp_path)
    whole = {path: path.read_bytes() for path in paths}
    reader.read(tmp_path)
    for path, content in whole.items():
        path.write_bytes(content)
    refused = 0
    with within_memory(name):
        for number in range(files // len(READERS) + 1):
            path = rng.choice(paths)
            damaged = mutate(whole[path], rng)
            path.write_bytes(damaged)
            started = time.monotonic()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    reader.read(tmp_path)
            except InputError as refusal:
                refused += 1
                said = str(refusal)
            except Exception:
                kept = tmp_path / f"found-{number}"
                kept.write_bytes(damaged)
                pytest.fail(f"{path.name}, damaged as in {kept}:\n{traceback.format_exc()}")
            else:
                said = ""
            assert "\n" not in said, (number, said)
            assert len(said) < 2000, (number, said[:300])
            assert time.monotonic() - started < _SLOWEST, (number, damaged[:300])
            path.write_bytes(whole[path])
    assert refused > files // len(READERS) // 10  # the damages are damages
