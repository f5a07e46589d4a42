"""What `from sfumato import …` knows, and what it loads."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sfumato


def loaded_by(code: str) -> str:
    """What a fresh Python prints of torch being there after this code."""
    code = f"import sys; {code}; print('torch' in sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_accounting_by_the_short_names_loads_no_torch():
    assert loaded_by("from sfumato import Gaussian, calibrate, guarantee; dir(__import__('sfumato'))") == "False\n"
    assert loaded_by("from sfumato import DPSGD") == "True\n"


def test_a_tallier_loads_no_torch():
    """It takes seconds and hundreds of megabytes, three times over where talliers are local."""
    assert loaded_by("import sfumato.voting.multi_party.tallier") == "False\n"
    assert loaded_by("from sfumato.voting import ClearTally, Question") == "False\n"


@pytest.mark.parametrize("name", sfumato.__all__)
def test_a_short_name_is_the_thing_of_its_room(name):
    rooms = [importlib.import_module(f"sfumato.{room}") for room in ("accounting", "central", "federated", "voting")]
    meant = [room for room in rooms if name in room.__all__]
    assert len(meant) == 1, "two rooms have it: which one is meant?"
    assert getattr(sfumato, name) is getattr(meant[0], name)
    assert name in dir(sfumato)


def test_a_name_that_nobody_has_is_an_error_and_rooms_are_found():
    with pytest.raises(ImportError):
        from sfumato import nothing_of_this_name  # noqa: F401  # pyright: ignore[reportAttributeAccessIssue]
    from sfumato import data

    assert data is sys.modules["sfumato.data"]
    assert not hasattr(sfumato, "nothing_of_this_name")


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
