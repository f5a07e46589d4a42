"""A run that was killed and resumed is the run that was never killed; one of two processes is the run of one."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from contract import toy
from contract.battery import ledger_of, published
from contract.specimen import UNITS, network, vectors
from contract.specimens import CORRELATED, NAMES, RELEASED, SPECIMENS, STATEFUL, fit, plan_of
from contract.worker import DEADLY_ROUND
from forked import Forked, team
from sfumato._check import InputError
from sfumato.runs import checkpoint
from sfumato.training import Callback
from slow import one_in, slow_but
from small_runs import assert_equal_up_to_rounding

pytestmark = pytest.mark.fresh

WORKER = Path(__file__).with_name("worker.py")
TOYS = ["toy", "toy-between-phases"]
SEEDED = [*NAMES, *CORRELATED, *STATEFUL]
KILLED = [*SEEDED, *RELEASED, *TOYS]
TEAMS = ["fedemb", "dpsgd", "fedemb+blt", "dpsgd+scheduled"]
"""Runs of two processes that belong to the quick part."""
DAMAGED = ["dpsgd", "fedemb+blt", "fedavg+banded"]
"""Killed runs whose files or plans tests change."""


def asked_for(request: pytest.FixtureRequest, names: list[str], test: str = "") -> list[str]:
    """Those that a test of this run of pytest has for a parameter."""
    asked = {item.name for item in request.session.items if item.path == request.path and item.name.startswith(test)}
    return [name for name in names if any(each.endswith(f"[{name}]") for each in asked)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory, request) -> Path:
    """A folder with a killed run for each name that is asked for."""
    folder, asked = tmp_path_factory.mktemp("killed"), asked_for(request, KILLED)
    names = [name for name in KILLED if name in asked or name in DAMAGED]
    worker = Forked(WORKER, ["kill", str(folder), *names], folder / "told")
    assert worker.wait(200) == 0, worker.told
    assert worker.told.splitlines() == [f"{name} {signal.SIGKILL.value}" for name in names]
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """`undisturbed(name)`: what a run with dropout publishes where nothing kills it."""
    found: dict[str, dict[str, bytes]] = {}

    def run(name: str) -> dict[str, bytes]:
        if name not in found:
            folder = fit(name, tmp_path_factory.mktemp("undisturbed") / "run", model=network(dropout=0.2)).folder
            found[name] = published(folder)
        return found[name]

    return run


@pytest.fixture(scope="module")
def shared_work(tmp_path_factory, request) -> Path:
    """A folder with a run by two processes for each name that is asked for."""
    folder, names = tmp_path_factory.mktemp("team"), asked_for(request, SEEDED, "test_two_processes")
    team(WORKER, ["team", str(folder), *names, "toy"], folder / "told", 2, timeout=250)  # 16 runs at most
    return folder


@pytest.mark.parametrize("name", slow_but(SEEDED, *NAMES, *STATEFUL, *DAMAGED))
def test_killed_in_mid_round_and_resumed_it_is_byte_identical(name, killed, undisturbed, tmp_path):
    entries = 1 if name in CORRELATED else DEADLY_ROUND + 1  # rounds that share noise are recorded before the first
    assert len(ledger_of(killed / name)) == entries  # the round that nobody saw was recorded before its noise
    assert not (killed / name / "model.safetensors").exists()
    out = shutil.copytree(killed / name, tmp_path / "killed")
    fit(name, out, model=network(dropout=0.2), resume=True)
    assert published(out) == undisturbed(name)


@pytest.mark.parametrize("name", RELEASED)
def test_killed_and_resumed_with_its_own_key_it_repeats_its_noise_and_forgets_the_key(name, killed, tmp_path):
    assert (killed / name / "checkpoint" / "key").stat().st_mode & 0o077 == 0
    one, other = (shutil.copytree(killed / name, tmp_path / copy) for copy in ("one", "other"))
    for out in (one, other):
        fit(name, out, model=network(dropout=0.2), resume=True)
        assert not (out / "checkpoint" / "key").exists()
    assert published(one) == published(other)


def test_the_micro_batch_of_a_run_is_kept_for_its_resumption(killed):
    saved = checkpoint.load(killed / "dpsgd" / "checkpoint")
    assert saved.state["contribution"]["micro_batch"] == SPECIMENS["dpsgd"].fields["examples.micro_batch"]


@pytest.mark.parametrize(("name", "number"), one_in(2, STATEFUL, [signal.SIGINT, signal.SIGTERM]))
def test_asked_to_stop_it_finishes_the_round_and_saves(name, number, folder_of, tmp_path, sigint):
    class Asked(Callback):
        def on_round(self, row):
            if row["round"] == 2:  # a round after it begins before it is asked; a checkpoint is made every second one
                os.kill(os.getpid(), number)

    stopped = fit(name, tmp_path / "run", callbacks=[Asked()])
    assert not stopped.finished
    assert len(ledger_of(stopped.folder)) == len(stopped.history) == 3
    assert stopped.statement.mechanism.startswith("3 Gaussian sums")
    assert published(fit(name, stopped.folder, resume=True).folder) == published(folder_of(name))


@pytest.mark.parametrize("name", one_in(3, [name for name in (*NAMES, *CORRELATED) if name != "centralized"]))
def test_a_run_goes_on_with_what_it_found_where_a_search_ends_in_other_digits_today(
    name, killed, undisturbed, tmp_path
):
    """As with other threads, or on another processor."""
    known = plan_of(name).for_population(UNITS)
    found = {
        field: getattr(known.noise, field, None) for field in ("noise_multiplier", "coefficients", "column_scales")
    }
    moved = {f"noise.{field}": _moved(value) for field, value in found.items() if value is not None}
    out = shutil.copytree(killed / name, tmp_path / "killed")
    fit(name, out, model=network(dropout=0.2), resume=True, **moved)
    assert published(out) == undisturbed(name)


def test_a_descent_that_ends_at_other_coefficients_which_are_as_good_is_no_other_run(killed, undisturbed, tmp_path):
    """As BLT's does with other threads: buffers change their places, or share one decay."""
    out = shutil.copytree(killed / "fedemb+blt", tmp_path / "killed")
    found = plan_of("fedemb+blt").for_population(UNITS).noise.coefficients
    half = len(found) // 2
    turned = (*found[:half][::-1], *found[half:][::-1])
    assert turned != found
    fit(
        "fedemb+blt",
        out,
        model=network(dropout=0.2),
        resume=True,
        **{"noise.coefficients": turned, "noise.noise_multiplier": 0.8 + 1e-7},
    )
    assert published(out) == undisturbed("fedemb+blt")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dpsgd", {"noise.noise_multiplier": 0.80001}),
        ("fedemb+blt", {"noise.noise_multiplier": 0.8001}),
        ("fedemb+blt", {"noise.coefficients": (0.3, 0.1, 0.9, 0.5)}),
        ("fedavg+banded", {"noise.coefficients": (1.0, 1e-4)}),
    ],
)
def test_what_does_something_else_is_no_rounding(name, changes, killed, tmp_path):
    out = shutil.copytree(killed / name, tmp_path / "killed")
    with pytest.raises(InputError, match=f"another plan, model or data set .*{next(iter(changes))}"):
        fit(name, out, model=network(dropout=0.2), resume=True, **changes)


@pytest.mark.parametrize("field", ["noise_multiplier", "coefficients", "column_scales"])
@pytest.mark.parametrize(
    "damage", [10**400, True, "0.8", None, float("nan"), [], [[1.0]], [10**400], ["1"], {}], ids=str
)
def test_a_plan_that_somebody_changed_is_refused_in_a_line(field, damage, killed, tmp_path):
    out = shutil.copytree(killed / "fedavg+banded", tmp_path / "killed")
    plan = json.loads((out / "plan.json").read_text())
    (out / "plan.json").write_text(json.dumps({**plan, "noise": {**plan["noise"], field: damage}}))
    with pytest.raises(InputError, match=f"another plan, model or data set .*noise.{field}"):
        fit("fedavg+banded", out, model=network(dropout=0.2), resume=True)


def test_a_plan_that_reports_nothing_about_its_data_is_damaged(killed, tmp_path):
    out = shutil.copytree(killed / "dpsgd", tmp_path / "killed")
    (out / "plan.json").write_text(json.dumps({**json.loads((out / "plan.json").read_text()), "about": 5}))
    with pytest.raises(InputError, match=r"plan\.json is damaged \(it holds no fields\); take a whole copy"):
        fit("dpsgd", out, model=network(dropout=0.2), resume=True)


def _moved(value):
    if isinstance(value, tuple):
        return tuple(each if each == 1 else each * (1 - 1e-8) for each in value)  # a first 1 is no matter of digits
    return value * (1 + 1e-10)


@pytest.mark.parametrize("name", TOYS)
def test_phases_of_a_killed_run_are_neither_paid_nor_drawn_twice(name, killed, tmp_path):
    toy.noisy_mean(vectors(), tmp_path / "undisturbed", seed=3)
    before = [entry["phase"] for entry in ledger_of(killed / name)]
    assert before == (["histogram"] if name == "toy-between-phases" else ["histogram", "mean"])
    out = shutil.copytree(killed / name, tmp_path / "killed")
    toy.noisy_mean(vectors(), out, seed=3, resume=True)
    assert published(out) == published(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    "other",
    one_in(
        2,
        [
            {"rounds": 9},
            {"seed": 4},
            {"noise": "bisr"},
            {"noise.coefficients": (1.0, 0.5)},
            {"noise.bands": 1},
            {"cohort.max_participations": 3},
            {"cohort.drop_out": 0.1},
        ],
    ),
    ids=str,
)
def test_a_run_with_correlated_noise_goes_on_with_the_same_rounds_strategy_and_order(other, folder_of, tmp_path):
    out = shutil.copytree(folder_of("fedavg+banded"), tmp_path / "copy")
    with pytest.raises(InputError, match=f"from another plan, model or data set .*{next(iter(other))} "):
        fit("fedavg+banded", out, resume=True, **other)
    assert published(out) == published(folder_of("fedavg+banded"))


@pytest.mark.parametrize(
    ("name", "other"),
    one_in(5, NAMES, [{"rounds": 9}, {"seed": 4}, {"trainable": "2"}, {"last": 5}, {"model": 12}]),
    ids=str,
)
def test_a_run_goes_on_only_as_itself(name, other, folder_of, tmp_path):
    out = shutil.copytree(folder_of(name), tmp_path / "copy")
    changes = dict(other)
    if "last" in other:  # one unit has other records
        changes["records"] = SPECIMENS[name].records(last=changes.pop("last"))
    if "model" in other:
        changes["model"] = network(width=other["model"])
    with pytest.raises(InputError, match="from another plan, model or data set"):
        fit(name, out, resume=True, **changes)
    assert published(out) == published(folder_of(name))


@pytest.mark.parametrize("name", one_in(3, SEEDED))
def test_a_finished_run_is_not_run_again(name, folder_of, tmp_path):
    out = shutil.copytree(folder_of(name), tmp_path / "copy")
    with pytest.raises(InputError, match="holds a run already"):
        fit(name, out)
    fit(name, out, resume=True)
    assert published(out) == published(folder_of(name))


@pytest.mark.parametrize("name", slow_but(SEEDED, *TEAMS))
def test_two_processes_give_the_result_of_one(name, shared_work, folder_of):
    assert_equal_up_to_rounding(folder_of(name), shared_work / name)


def test_two_processes_give_the_result_of_one_in_every_phase(shared_work, tmp_path):
    toy.noisy_mean(vectors(), tmp_path / "one", seed=3)
    assert_equal_up_to_rounding(tmp_path / "one", shared_work / "toy")
