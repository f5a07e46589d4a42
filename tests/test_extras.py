"""Without the extra `train`, accounting and its commands work, and all else says in one line what to install."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from sfumato._extras import TRAIN
from slow import one_in, slow_but

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
from sfumato import Gaussian, accounting as acc
from sfumato.ledger import Ledger
with Ledger.open(sys.argv[1]) as ledger:
    ledger.append(Gaussian(noise_multiplier=2.0), phase="a", round=1)
"""
    assert _alone(write, str(tmp_path / "ledger.jsonl")).stderr == ""
    shown = _alone(_MAIN, "ledger", "verify", str(tmp_path / "ledger.jsonl"))
    assert (shown.returncode, shown.stderr) == (0, "")


_TOLD = [
    (("dpsgd", "--epsilon", "2"), "training needs PyTorch: pip install 'sfumato[train]'"),
    (("fedemb", "--help"), "training needs PyTorch: pip install 'sfumato[train]'"),
    (("embed", "run", "data"), "pip install 'sfumato[train]'"),
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
    shown = _alone(f"{_ALONE}\ntry:\n    from sfumato import DPSGD\nexcept ImportError as error:\n    print(error)")
    assert shown.stdout == "training needs PyTorch: pip install 'sfumato[train]'\n"


def test_another_module_that_is_missing_is_not_hidden() -> None:
    shown = _alone(_MAIN.replace("'torch'", "'numpy'"), "account", *_RUN)
    assert shown.returncode == 1
    assert "No module named 'numpy'" in shown.stderr
