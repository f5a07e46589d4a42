"""How many files and functions of the library one command or one fit runs through.

Each is called once to warm up, then once under a profiler: what is counted is every Python function below
`src/sfumato` that starts between the call and its return, in this process. Each `labeldp randomize` has a table of its
own, as the labels of one table are released once.

    python benchmarks/trace.py
    python benchmarks/trace.py --files "DPSGD.fit"      # which files, and how many functions of each
    python benchmarks/trace.py --json trace.json
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from torch import nn

import sfumato
from sfumato import data
from sfumato.central import DPSGD
from sfumato.cli.main import main as sfumato_command
from sfumato.federated import FedEmb

SOURCE = Path(sfumato.__file__).resolve().parent
USERS = 24
GOALS = {"fedemb, the command": 90, "FedEmb.fit": 60, "labeldp randomize": 35, "DPSGD.fit": 60}
"""Files, at most."""


def traced(call: Callable[[], Any]) -> set[CodeType]:
    """The code of every function of the library that starts while `call` runs."""
    seen: set[CodeType] = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {code for code in seen if code.co_filename.startswith(f"{SOURCE}/")}


def command(*words: object) -> None:
    """One command in this process, without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as printed:
        code = sfumato_command([str(word) for word in words])
    if code:
        raise SystemExit(f"{words[0]} ended with {code}: {printed.getvalue()}")


def users() -> data.UserDataset:
    """24 people with eight small pictures each, in two classes."""
    rng = np.random.default_rng(0)
    labels = np.tile([0, 0, 0, 0, 1, 1, 1, 1], USERS)
    inputs = rng.integers(0, 256, (len(labels), 28, 28, 1), np.uint8)
    return data.from_arrays(inputs, labels=labels, users=np.repeat([f"u{i}" for i in range(USERS)], 8))


def cases(folder: Path) -> dict[str, Callable[[], Any]]:
    """What is traced, by its name; each call writes into a folder of its own."""
    people = users()
    np.savez(folder / "people.npz", inputs=people.inputs, labels=people.labels, users=np.repeat(np.arange(USERS), 8))
    count = iter(range(1000))

    def out() -> Path:
        return folder / f"run{next(count)}"

    def clicks() -> Path:
        table = out() / "clicks.csv"
        table.parent.mkdir()
        labels = np.random.default_rng(0).integers(0, 2, 500)
        table.write_text("advert,click\n" + "".join(f"{i % 5},{click}\n" for i, click in enumerate(labels)))
        return table

    def embedding() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 8))

    def examples() -> data.ExampleDataset:
        return data.examples_from_arrays(
            np.zeros((64, 4), np.float32) + np.arange(64)[:, None], np.arange(64) % 2, num_classes=2
        )

    fedemb = FedEmb(rounds=1, cohort=2, noise=1.0, seed=1)
    dpsgd = DPSGD(steps=2, cohort=8, noise=1.0, seed=1)
    train = ("--rounds", 1, "--cohort", 2, "--noise", 1, "--seed", 1, "--model", "lenet")
    randomize = ("--label", "click", "--epsilon", 1, "--domain.names", 0, 1)
    return {
        "fedemb, the command": lambda: command("fedemb", "--data", folder / "people.npz", *train, "--out", out()),
        "FedEmb.fit": lambda: fedemb.fit(embedding(), people, out=out()),
        "labeldp randomize": lambda: command("labeldp", "randomize", clicks(), *randomize, "--out", f"{out()}.csv"),
        "DPSGD.fit": lambda: dpsgd.fit(nn.Linear(4, 2), examples(), out=out()),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", help="also list the files of one case, by its name")
    parser.add_argument("--json", type=Path, help="write the table there")
    options = parser.parse_args()
    table = []
    print(f"{'':<22}{'files':>8}{'goal':>8}{'functions':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for name, call in cases(Path(folder)).items():
            call()
            found = traced(call)
            files = Counter(str(Path(code.co_filename).relative_to(SOURCE)) for code in found)
            table.append({"name": name, "files": len(files), "goal": GOALS[name], "functions": len(found)})
            print(f"{name:<22}{len(files):>8}{GOALS[name]:>8}{len(found):>12}")
            if name == options.files:
                print("".join(f"    {count:>4}  {file}\n" for file, count in files.most_common()))
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
