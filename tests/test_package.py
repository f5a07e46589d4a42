"""The installed package: extras, short names, examples in docstrings, threads and the bar."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import time
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import torch

import sfumato
from sfumato import _bar
from sfumato._bar import bar
from sfumato._extras import TRAIN
from sfumato._lazy import _REMOVED
from sfumato._torch import one_thread_each
from slow import one_in, slow_but

# Without the extra `train`, accounting and its commands work, and all else says in one line what to install.

_ALONE = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(TRAIN)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
_MAIN = f"{_ALONE}\nfrom sfumato.cli.main import main; sys.exit(main(sys.argv[1:]))"
_RUN = ("--noise-multiplier", "1", "--sampling-rate", "0.01", "--steps", "100", "--delta", "1e-5")


def _alone(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)


def test_the_list_of_modules_is_that_of_the_extra() -> None:
    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    needed = tomllib.loads(file.read_text())["project"]["optional-dependencies"]["train"]
    named = {line.partition(">=")[0].lower() for line in needed}
    held = packages_distributions()
    assert {name.lower() for module in TRAIN for name in held[module]} == named


@pytest.mark.parametrize(
    "words", one_in(3, [("account", *_RUN), ("calibrate", "--epsilon", "2", *_RUN[2:]), ("--help",)])
)
def test_accounting_runs_without_it(words: tuple[str, ...]) -> None:
    shown = _alone(_MAIN, *words)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout


@pytest.mark.slow
def test_a_ledger_is_verified_and_compared_without_it(tmp_path: Path) -> None:
    write = f"""{_ALONE}
from sfumato import Gaussian
from sfumato.ledger import Ledger
with Ledger.open(sys.argv[1]) as ledger:
    ledger.append(Gaussian(noise_multiplier=2.0), phase="a", round=1)
"""
    assert _alone(write, str(tmp_path / "ledger.jsonl")).stderr == ""
    shown = _alone(_MAIN, "ledger", "verify", str(tmp_path / "ledger.jsonl"))
    assert (shown.returncode, shown.stderr) == (0, "")


_TOLD = [
    (("dpsgd", "--epsilon", "2"), "training needs PyTorch: pip install 'sfumato[train]'"),
    (("fedemb", "--epsilon", "2"), "training needs PyTorch: pip install 'sfumato[train]'"),
    (("embed", "run", "data", "--out", "made"), "pip install 'sfumato[train]'"),
    (("data", "pack", "a", "b"), "pip install 'sfumato[train]'"),
    (("report", "x"), "which comes with training: pip install 'sfumato[train]'"),
    (("account", *_RUN, "--plot", "x.svg"), "this needs matplotlib, which comes with training"),
]


@pytest.mark.parametrize(("words", "told"), slow_but(_TOLD, _TOLD[0]))
def test_a_command_says_in_one_line_what_it_needs(words: tuple[str, ...], told: str) -> None:
    shown = _alone(_MAIN, *words)
    assert shown.returncode == 2
    assert told in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_a_name_of_training_says_what_it_needs() -> None:
    asked = "from sfumato.training import RunOptions"
    shown = _alone(f"{_ALONE}\ntry:\n    {asked}\nexcept ImportError as error:\n    print(error)")
    assert shown.stdout == "training needs PyTorch: pip install 'sfumato[train]'\n"


def test_another_module_that_is_missing_is_not_hidden() -> None:
    shown = _alone(_MAIN.replace("'torch'", "'numpy'"), "account", *_RUN)
    assert shown.returncode == 1
    assert "No module named 'numpy'" in shown.stderr


# What `from sfumato import …` knows, and what it loads.


def loaded_by(code: str) -> str:
    """What a fresh Python prints of torch being there after this code."""
    code = f"import sys; {code}; print('torch' in sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_accounting_by_the_short_names_loads_no_torch():
    assert loaded_by("from sfumato import Gaussian, calibrate, guarantee; dir(__import__('sfumato'))") == "False\n"
    assert loaded_by("from sfumato import DPSGD; DPSGD(noise=1.0).private_sum(1000).event(10)") == "False\n"
    assert loaded_by("from sfumato.training import RunOptions") == "True\n"


def test_a_tallier_loads_no_torch():
    """It takes seconds and hundreds of megabytes, three times over where talliers are local."""
    assert loaded_by("import sfumato.voting.multi_party.tallier") == "False\n"
    assert loaded_by("from sfumato.voting import ClearTally, Question") == "False\n"


@pytest.mark.parametrize("name", sfumato.__all__)
def test_a_short_name_is_the_thing_of_its_room(name):
    names = ("accounting", "central", "federated", "ledger", "statement", "voting")
    rooms = [importlib.import_module(f"sfumato.{room}") for room in names]
    meant = [room for room in rooms if name in room.__all__]
    assert len(meant) == 1, "two rooms have it: which one is meant?"
    assert getattr(sfumato, name) is getattr(meant[0], name)
    assert name in dir(sfumato)


def test_a_name_that_no_one_has_is_an_error_and_rooms_are_found():
    with pytest.raises(ImportError):
        from sfumato import nothing_of_this_name  # noqa: F401  # pyright: ignore[reportAttributeAccessIssue]
    from sfumato import data

    assert data is sys.modules["sfumato.data"]
    assert not hasattr(sfumato, "nothing_of_this_name")


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in _REMOVED for name in _REMOVED[package]])
def test_a_name_that_is_gone_says_what_takes_its_place(package: str, name: str):
    room = importlib.import_module(package)
    instead = _REMOVED[package][name]
    with pytest.raises(AttributeError, match=re.escape(f"{package}.{name} is gone: {instead}")):
        getattr(room, name)
    with pytest.raises(ImportError, match=re.escape(f"{package}.{name} is gone: {instead}")):
        exec(f"from {package} import {name}")
    for path in re.findall(r"copy ([\w/.]+)", instead):
        assert (Path(__file__).parents[1] / path).exists()
    for dotted in re.findall(r"sfumato[\w.]+", instead):
        place, _, last = (f"{dotted}.{name}" if "import it from" in instead else dotted).rpartition(".")
        assert hasattr(importlib.import_module(place), last)


@pytest.mark.slow
def test_a_type_checker_knows_the_short_names(tmp_path: Path):
    pytest.importorskip("pyright", reason="needs the lint extra")
    uses = tmp_path / "uses.py"
    uses.write_text(
        "from sfumato import DPSGD, calibrate\n"
        "reveal_type(DPSGD().steps)\n"
        "noise: str = calibrate(lambda z: None, epsilon=1.0, delta=1e-5)\n"
    )
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(uses)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert '"int | None"' in done.stdout, done.stdout
    assert "reportAttributeAccessIssue" not in done.stdout
    assert '"float" is not assignable to "str"' in done.stdout


# Every example in a docstring gives what it says.

INSIDE = (m.name for m in pkgutil.walk_packages(sfumato.__path__, "sfumato.") if not m.name.endswith("__main__"))
MODULES = ["sfumato", *sorted(INSIDE), "comparison_accountants"]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_a_module_are_true(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert failed == 0


# One thread of torch each: the number before comes back, whoever ends first.


def test_two_that_overlap_give_back_the_number_before_both() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = one_thread_each(), one_thread_each()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# A long count off a terminal: a line now and then, none for what is short.


def counted(every: float, **given: bool) -> None:
    with bar("records", every=every, **given) as show:
        for done in range(1, 5):
            show(done * 1000, 4000)
            time.sleep(0.1)


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]):
    counted(0.02, visible=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sfumato: records: 1,000 of 4,000"
    assert lines[-1] == "sfumato: records: 4,000 of 4,000"


def test_a_step_that_counts_nothing_is_reported_by_its_time(capsys: pytest.CaptureFixture[str]):
    with bar("statement", visible=True, every=0.02):
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert set(lines) == {"sfumato: statement: 0 min 00 s"}


def test_a_count_without_an_end_is_reported_so(capsys: pytest.CaptureFixture[str]):
    with bar("reading", visible=True, every=0.02) as show:
        show(1000, 0)
        time.sleep(0.2)
    assert set(capsys.readouterr().err.splitlines()) == {"sfumato: reading: 1,000"}


def test_short_steps_in_a_row_are_reported_as_one_long_step_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_bar, "_SHORT", 0.02)
    monkeypatch.setattr(_bar, "_printed", [time.monotonic()])
    for step in range(8):
        with bar(f"step {step}", visible=True, every=0.3):
            time.sleep(0.1)
    assert 1 <= len(capsys.readouterr().err.splitlines()) <= 3


def test_what_is_short_or_not_to_be_shown_prints_nothing(capsys: pytest.CaptureFixture[str]):
    counted(30.0, visible=True)
    counted(0.001, visible=False)
    assert capsys.readouterr().err == ""
