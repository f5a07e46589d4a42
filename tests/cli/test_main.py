"""Finding commands, help, and how long they take to answer."""

import contextlib
import dataclasses
import io
import os
import re
import subprocess
import sys

import pytest
import tyro

from sfumato.cli import main as cli
from sfumato.cli.options.training import PrivateTraining, Training
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD

TRAINING = {"fedemb": FedEmb, "fedavg": FedAvg, "fedsgd": FedSGD, "centralized": Centralized}


def test_the_overview_names_every_command(sfumato):
    for words in ((), ("--help",), ("-h",)):
        shown = sfumato(*words)
        assert shown.code == 0
        assert all(name in shown.out for name in cli.COMMANDS)
    assert "data pack" in sfumato("data", "--help").out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_explains_every_option(sfumato, name):
    shown = sfumato(*name.split(), "--help")
    assert shown.code == 0
    assert shown.out.startswith(f"usage: sfumato {name}")
    unexplained = [flag for flag, text in _options(shown.out).items() if len(text.split("(default")[0].split()) < 3]
    assert not unexplained
    assert "--config" in _options(shown.out)


@pytest.mark.parametrize("name", TRAINING)
def test_every_field_of_a_plan_is_an_option_with_its_docstring_as_help(name):
    kind = TRAINING[name]
    options = PrivateTraining[kind] if name != "centralized" else Training[kind]
    explained = _options(_help(options))
    for field in dataclasses.fields(kind):
        flag = f"--{field.name.replace('_', '-')}"
        assert len(explained[flag].split("(default")[0].split()) >= 3, explained[flag]


def _options(shown: str) -> dict[str, str]:
    """Flags with what help says about them, from the text of --help."""
    found: dict[str, str] = {}
    flag = ""
    for line in shown.splitlines():
        text = line.strip(" │╭╮╰╯")
        if re.match(r"\W{0,3}--[a-z]", line):
            name, *rest = re.split(r"\s{2,}", text)
            flag = re.split(r"[ ,]", name)[0]
            found[flag] = " ".join(rest)
        elif flag:
            found[flag] += f" {text}"
    return found


def _help(options: type) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pytest.raises(SystemExit):
        tyro.cli(options, args=["--help"], config=(tyro.conf.OmitArgPrefixes,))
    return shown.getvalue()


def test_an_unknown_command_is_one_line(sfumato):
    assert "no command 'fedemd'" in sfumato("fedemd", "--data", "x").line
    assert "no command 'data pak'" in sfumato("data", "pak").line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("account",), "--noise-multiplier"),
        (("account", "--noise-multiplier", "much"), "--noise-multiplier"),
        (("account", "--noise-multiplier", 1, "--stepps", 3), "--steps"),
        (("account", "--noise-multiplier", 1, "--adjacency", "none"), "add_remove"),
        (("account", "--noise-multiplier", -1), "noise_multiplier must be >= 0"),
        (("embed", "somewhere"), "DATA"),
        (("fedemb", "--clip-norm", 0), "clip_norm must be > 0, got 0.0"),
        (("fedemb", "extra"), "extra"),
        (("fedavg", "--rounds"), "--rounds"),
    ],
)
def test_a_wrong_word_is_one_line_that_names_it(sfumato, words, named):
    assert named in sfumato(*words).line


def test_help_and_accounting_start_without_torch():
    code = (
        "import sys; from sfumato.cli.main import main; assert main(sys.argv[1:]) == 0; "
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    for words in (["--help"], ["account", "--noise-multiplier", "1"], ["extrapolate", "--json"]):
        child = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert child.returncode == 0, child.stderr


def test_a_terminal_of_plain_ascii_gets_the_same_lines():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "sfumato"]
    overview = subprocess.run([*command, "--help"], capture_output=True, text=True, env=environment)
    assert overview.returncode == 0
    wrong = [*command, "account", "--noise-multiplier", "1", "--stepps", "3"]
    refused = subprocess.run(wrong, capture_output=True, text=True, env=environment)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "Unrecognized options: --stepps, 3 (perhaps --steps)" in refused.stderr
