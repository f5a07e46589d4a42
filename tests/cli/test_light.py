"""Help answers at once: no command imports torch, SciPy or pyarrow before it needs them."""

import json
import subprocess
import sys

import pytest

from sfumato.cli.commands import COMMANDS

_ASK = """
import contextlib, io, json, sys

class Refused(ImportError):
    pass

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "scipy", "pyarrow"):
            raise Refused(name)

sys.meta_path.insert(0, Refuse())
from sfumato.cli.main import main

found = {}
for command in sys.argv[1:]:
    for word in ("--help", "--help-all"):
        try:
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                code = main([*command.split(), word])
            found[command, word] = "" if code == 0 and command in shown.getvalue() else f"{code}: {shown.getvalue()}"
        except Refused as error:
            found[command, word] = f"imports {error}"
print(json.dumps({command: found[command, "--help"] or found[command, "--help-all"] for command, _ in found}))
"""


@pytest.fixture(scope="module")
def asked() -> dict[str, str]:
    """What is wrong with the help of each command; "" for nothing."""
    child = subprocess.run([sys.executable, "-c", _ASK, *COMMANDS], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_neither_torch_nor_scipy_nor_pyarrow(asked: dict[str, str], command: str):
    assert asked[command] == ""
