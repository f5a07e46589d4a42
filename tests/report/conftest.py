"""Folders of runs, written as the training loop writes them, and a browser."""

import importlib.util
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sfumato import accounting as acc
from sfumato.ledger import Ledger
from sfumato.statement import Statement

Make = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> Make:
    """Write a run's folder, see `_maker`."""
    return _maker(tmp_path)


@pytest.fixture(scope="module")
def make_shared_run(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The same for runs that the tests of a module only read."""
    return _maker(tmp_path_factory.mktemp("shared"))


def _maker(root: Path) -> Make:
    """`make_run(name="faces", rounds=40, done=40, noise=0.62, seed=None, …)` → its path.

    `noise=0` is a run without guarantee; `users_per_client` > 1 has the paper's convention beside the statement;
    `done` < `rounds` was stopped early; `clip` gives the clip norm of each round.
    """

    def make(
        name: str = "faces",
        *,
        rounds: int = 40,
        done: int | None = None,
        noise: float = 0.62,
        seed: int | None = None,
        users_per_client: int = 8,
        tested: bool = True,
        validated: bool = True,
        delta: float | None = None,
        about: dict[str, Any] | None = None,
    ) -> Path:
        folder = root / name
        folder.mkdir(parents=True)
        done = rounds if done is None else done
        population, clients = 3400, 32
        rate = clients * users_per_client / population
        plan = {
            "plan": "fedemb",
            "rounds": rounds,
            "clients_per_round": clients,
            "users_per_client": users_per_client,
            "noise_multiplier": noise,
            "clip_norm": 1.0 if noise else None,
            "learning_rate": 0.005,
            "sampling": "poisson",
            "seed": seed,
            "about": about or {},
        }
        _write(folder / "plan.json", plan)
        moved = 2.0 if users_per_client > 1 else 1.0
        event = acc.Gaussian(noise / moved).poisson(rate) if noise else acc.NonPrivate()
        _write_ledger(folder / "ledger.jsonl", event, done)
        delta = population**-1.1 if delta is None else delta
        statement = _statement(event, done, delta, rate, noise, seed, population, users_per_client)
        statement.save(folder / "statement.json")
        _write_metrics(folder / "metrics.jsonl", event, done, delta, clients, validated)
        if tested:
            _write(folder / "evaluation.json", _evaluation(trained=done == rounds))
        return folder

    return make


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True))


def _write_ledger(path: Path, event: acc.Event, done: int) -> None:
    with Ledger.open(path) as ledger:
        for index in range(done):
            ledger.append(event, round=index + 1, denominator=32)


def _statement(
    event: acc.Event,
    done: int,
    delta: float,
    rate: float,
    noise: float,
    seed: int | None,
    population: int,
    users_per_client: int,
) -> Statement:
    cost = acc.guarantee(event * done)
    alternatives = []
    if noise and users_per_client > 1:
        client = acc.guarantee(acc.Gaussian(noise).poisson(rate) * done)
        paper = {"name": "the paper's convention", "unit": "virtual_client", "adjacency": "add_remove"}
        alternatives = [{**paper, "accountant": "auto", "epsilon": client.epsilon(delta), "delta": delta}]
    return Statement(
        unit="user",
        adjacency="add_remove",
        epsilon=cost.epsilon(delta),
        delta=delta,
        rho=cost.rho(),
        sampling=f"Poisson, rate {rate:.6g} a round",
        mechanism=f"{done} Gaussian sums" if noise else f"no noise: {done} rounds without any guarantee",
        noise_source="operating system's CSPRNG" if seed is None else "seeded: simulation only",
        assumptions=("The number of users is public.",) if noise else ("No noise was added.",),
        alternatives=tuple(alternatives),
        population=population,
    )


def _write_metrics(path: Path, event: acc.Event, done: int, delta: float, clients: int, validated: bool) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(1, done + 1):
        epsilon = acc.guarantee(event * number, method="rdp").epsilon(delta)
        private = {
            "loss": 0.613 + 2.9 * math.exp(-number / 15),
            "units": 29 + number % 7,
            "clipped": 0.4137,
            "norm_mean": 1.271,
            "non_finite": 0,
            "examples": 1890,
            "seconds": 1.9371,
        }
        rows.append(
            {
                "round": number,
                "epsilon": round(epsilon, 6) if math.isfinite(epsilon) else None,
                "clip_norm": 1.0,
                "cohort_planned": clients,
                "not_private": private,
            }
        )
        if validated and number % 10 == 0:
            recall = 0.0717 + 0.12 * (1 - math.exp(-number / 20))
            rows.append(
                {
                    "round": number,
                    "evaluation": "validation",
                    "recall_at_far": {"0.001": recall},
                    "genuine_pairs": 1000,
                    "impostor_pairs": 99000,
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _evaluation(*, trained: bool) -> dict[str, Any]:
    def score(power: float) -> dict[str, Any]:
        fpr = [10 ** (-5 + i / 20) for i in range(101)]
        return {
            "recall_at_far": {"0.001": 1e-3**power, "0.01": 1e-2**power},
            "auc": 1 / (1 + power),
            "roc": {"fpr": fpr, "tpr": [rate**power for rate in fpr]},
            "genuine_pairs": 12350,
            "impostor_pairs": 1_986_650,
        }

    whole = {"data": "test", "images": 2000, "users": 26, "genuine_pairs": 12350, "impostor_pairs": 1_986_650}
    whole["untrained"] = score(0.38)
    if trained:
        whole["trained"] = score(0.241)
    return whole


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless browser; one for the session."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("needs Chromium (tests/install_chromium.sh installs Debian's)")
    spec = importlib.util.spec_from_file_location("browser", Path(__file__).with_name("browser.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    browser = module.Browser(binary, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
