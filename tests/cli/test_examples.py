"""The example of each command, which its help and its page show, runs."""

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from cli.conftest import draw
from made_up_patients import records
from sfumato import data
from sfumato.accounting import Gaussian
from sfumato.cli.commands import COMMANDS
from sfumato.ledger import Budget, Ledger
from slow import slow_but

_GLYPHS = "data glyphs glyphs.store --identities 40 --images 6"
_FEDEMB = "fedemb --data glyphs.store --noise 1 --rounds 1 --client.epochs 1 --cohort 2 --out runs/a"
_FEDRECON = (
    "fedrecon --data ml-latest-small --model matrix_factorization --noise 1 --rounds 2 --items films.txt --out runs/a"
)
_EHR_FIT = (
    "ehr fit --data patients --epochs 3 --gan-steps 50 --hidden 32 --latent 16 --calibrated-on 100 --out runs/patients"
)
_SMALL = "account --noise-multiplier 1.2 --sampling-rate 0.01 --steps 5000 --json"
_LARGE = "account --noise-multiplier 3.1 --sampling-rate 0.04 --steps 1250 --json"


def ratings():
    """A small stand-in for MovieLens' folder."""
    rows = [f"{u},{u % 19},3\n{u},{u % 7 + 20},{u % 5 + 1}\n" for u in range(1, 301)]
    Path("ml-latest-small").mkdir()
    Path("ml-latest-small/ratings.csv").write_text("userId,movieId,rating\n" + "".join(rows))
    Path("films.txt").write_text("\n".join(map(str, range(27))))


def clicks():
    order = np.random.default_rng(0).permutation(2000)
    Path("clicks.csv").write_text(
        "advert,hour,click\n" + "".join(f"{i % 5},{i % 24},{int(not i % 20)}\n" for i in order)
    )


def agents():
    """40 agents hold some digits, the others are public."""
    x, y = load_digits(return_X_y=True)
    x = np.kron(x.reshape(-1, 8, 8) * 15, np.ones((2, 2))).astype(np.uint8)
    np.savez("agents.npz", images=x[:1200], users=[f"agent {i % 40}" for i in range(1200)], labels=y[:1200])
    np.savez("pool.npz", x_train=x[1200:1700], y_train=y[1200:1700], x_test=x[1700:], y_test=y[1700:])


def patients(*folders: str):
    for seed, folder in enumerate(map(Path, folders)):
        folder.mkdir()
        made = records(120, seed)
        data.write_ehr_tables(made, folder / "visits.csv", folder / "static.csv")
        made.schema.save(folder / "schema.yaml")


def ledgers():
    Path("runs/a").mkdir(parents=True)
    with Ledger.open("runs/a/ledger.jsonl", budget=Budget(epsilon=2, delta=1e-6)) as ledger:
        ledger.append(Gaussian(1.1).poisson(0.01), phase="train", step=0)
    with Ledger.open("other.jsonl") as ledger:
        ledger.append(Gaussian(8.0), phase="evaluation")


NEEDS: dict[str, tuple[str | Callable[[], object], ...]] = {
    "fedrecon": (ratings,),
    "vote ae": (agents,),
    "vote knn": (agents,),
    "personalise": (ratings, _FEDRECON),
    "labeldp regress": (ratings,),
    "labeldp randomize": (clicks,),
    "ehr fit": (lambda: patients("patients"),),
    "ehr sample": (lambda: patients("patients"), _EHR_FIT),
    "ehr evaluate": (lambda: patients("train", "held-out", "made"),),
    "embed": (_GLYPHS, _FEDEMB),
    "search": (_GLYPHS, _FEDEMB, "embed runs/a glyphs.store --out embeddings.parquet"),
    "report": (_GLYPHS, _FEDEMB),
    "close": (_GLYPHS, _FEDEMB),
    "compare": (f"{_SMALL} > small-batches.json", f"{_LARGE} > large-batches.json"),
    "ledger show": (ledgers,),
    "ledger verify": (ledgers,),
    "ledger merge": (ledgers,),
    "data pack": (lambda: draw(Path("photos"), users=2, images=3),),
}
"""What an example needs before it: files, or commands."""

NOT_RUN = {"tally"}
"""Talliers wait for each other, on other machines."""


QUICK = ("fedrecon", "vote ae", "labeldp randomize", "account", "compare", "ledger merge", "data pack", "data glyphs")


@pytest.mark.parametrize("name", slow_but([name for name in COMMANDS if name not in NOT_RUN], *QUICK))
def test_the_example_of_a_command_runs(name: str, sfumato, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    for step in NEEDS.get(name, ()):
        if isinstance(step, str):
            words, _, file = step.partition(" > ")
            done = sfumato(*shlex.split(words))
            assert done.code == 0, done.err
            if file:
                Path(file).write_text(done.out)
        else:
            step()
    done = sfumato(*shlex.split(COMMANDS[name].example)[1:])
    assert done.code == 0, done.err
