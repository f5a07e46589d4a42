"""The command line itself: commands, help, completion, settings files, and what help loads."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sfumato._parts import flat, to_json
from sfumato.cli import main as cli
from sfumato.cli.commands import COMMANDS
from sfumato.cli.parse import parse
from sfumato.cli.run_options import options_of
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD

# Finding commands, help, and how long they take to answer.


TRAINING = {"fedemb": FedEmb, "fedavg": FedAvg, "fedsgd": FedSGD, "centralized": Centralized}


def test_the_overview_names_every_command(sfumato):
    for words in ((), ("--help",), ("-h",)):
        shown = sfumato(*words)
        assert shown.code == 0
        assert all(name in shown.out for name in cli.COMMANDS)
    assert "data pack" in sfumato("data", "--help").out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_explains_every_option(sfumato, name):
    shown = sfumato(*name.split(), "--help-all")
    assert shown.code == 0
    assert shown.out.startswith(f"usage: sfumato {name}")
    unexplained = [flag for flag, text in _options(shown.out).items() if len(text.split("(default")[0].split()) < 3]
    assert not unexplained
    assert "--config" in _options(shown.out)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_short_help_fits_a_terminal_and_shows_ten_options_and_an_example(sfumato, name):
    short, whole = sfumato(*name.split(), "--help"), sfumato(*name.split(), "--help-all")
    assert short.code == 0
    assert max(map(len, short.out.splitlines())) <= 80
    shown, every = _options(short.out.partition("--help-all explains")[0]), _options(whole.out)
    assert len(shown) <= 10
    assert shown or set(every) <= {"-h", "--config", "--json"}
    assert all(
        every[flag].split()[: len(text.split())] == text.split() for flag, text in shown.items()
    )  # the next group follows
    assert {f"--{each.replace('_', '-')}" for each in cli.COMMANDS[name].matters.split()} <= set(shown)
    assert " ".join(cli.COMMANDS[name].example.split()) in " ".join(short.out.replace("\\\n", " ").split())


def test_help_is_shown_whatever_else_was_given(sfumato):
    for words in (("--config", "none.yaml"), ("--rounds", "many"), ("--nothing",), ("--resume", "none")):
        assert sfumato("fedemb", *words, "--help").code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_commands_options_and_values(sfumato, shell):
    script = sfumato("--completion", shell)
    assert script.code == 0
    words = ("fedemb", "check-model", "verify", "glyphs", "--cohort", "add_remove", "cosface")
    assert all(word in script.out for word in words)
    assert script.out.isprintable() or script.out.count("\n") > 100


def test_bash_completes_the_beginning_of_a_word(sfumato, tmp_path: Path):
    script = tmp_path / "completion.bash"
    script.write_text(sfumato("--completion", "bash").out)
    for line, expected in (
        ("sfumato fede", {"fedemb"}),
        ("sfumato ledger ve", {"verify"}),
        ("sfumato account --adj", {"--adjacency"}),
        ("sfumato account --adjacency zero", {"zero_out"}),
    ):
        words = line.split()
        ask = (
            f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; "
            f"COMP_POINT={len(line)}; _tyro_sfumato; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        assert {word.strip() for word in done.stdout.split()} == expected, (line, done)


def test_a_shell_without_a_script_is_one_line(sfumato):
    assert "which shell?" in sfumato("--completion").line
    assert "shell must be one of bash, zsh, fish, got bsh (did you mean bash?)" in sfumato("--completion", "bsh").line


@pytest.mark.parametrize("name", TRAINING)
def test_every_field_of_a_plan_is_an_option_with_its_docstring_as_help(name):
    kind = TRAINING[name]
    explained = _options(_help(options_of(name)))
    for option, _ in flat(to_json(kind())):
        flag = f"--{option.replace('_', '-')}"
        assert len(explained[flag].split("(default")[0].split()) >= 3, explained[flag]


def _options(shown: str) -> dict[str, str]:
    """Flags with what help says about them, from the text of --help."""
    found: dict[str, str] = {}
    flag = ""
    for line in shown.splitlines():
        text = line.strip(" │╭╮╰╯")
        if re.match(r"(. )?--[a-z]", line):
            name, *rest = re.split(r"\s{2,}", text)
            flag = re.split(r"[ ,]", name)[0]
            found[flag] = " ".join(rest)
        elif flag:
            found[flag] += f" {text}"
    return found


def _help(options: type) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pytest.raises(SystemExit):
        parse(options, ["--help-all"], command="fedavg", about="")
    return shown.getvalue()


def test_an_unknown_command_is_one_line(sfumato):
    assert "no command 'fedemd' (did you mean fedemb?)" in sfumato("fedemd", "--data", "x").line
    assert "no command 'data pak' (did you mean data pack?)" in sfumato("data", "pak").line
    assert "no command '--verison' (did you mean --version?)" in sfumato("--verison").line
    assert "no command 'xyzzy'; the commands are fedavg, fedsgd" in sfumato("xyzzy").line


def test_a_table_in_a_terminal_of_80_columns_wraps_and_cuts_nothing(tmp_path: Path):
    code = (
        "import os, pty, sys; from sfumato.cli.main import main; os.environ['COLUMNS'] = '80'; "
        "os.environ['TERM'] = 'xterm'; sys.exit(pty.spawn([sys.executable, '-m', 'sfumato', *sys.argv[1:]]) >> 8)"
    )
    words = ["extrapolate", "--populations", "123456789"]
    shown = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    piped = subprocess.run([sys.executable, "-m", "sfumato", *words], capture_output=True, text=True, check=True)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.stdout.replace("\r", "").splitlines()]
    table = lines[: lines.index("")]
    assert max(map(len, table)) <= 80
    assert not any("…" in line for line in table)
    assert "".join("".join(table).split()).count("9") >= 4
    rows = [line for line in piped.stdout.splitlines() if line.startswith("123,456,789")]
    assert len(rows) == 12
    assert max(map(len, rows)) <= 100
    assert "rdp_usual_orders" in piped.stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("account",), "--noise-multiplier"),
        (("account", "--noise-multiplier", "much"), "--noise-multiplier"),
        (("account", "--noise-multiplier", 1, "--stepps", 3), "no option --stepps (did you mean --steps?)"),
        (("account", "--noise", 1), "no option --noise (did you mean --noise-multiplier?)"),
        (("account", "--noise-multiplier", 1, "--tyro-print-completion", "x"), "no option --tyro-print-completion"),
        (("check-model", "--model", "lenet5"), "there is no option --model: write sfumato check-model MODEL;"),
        (("embed", "--run=a", "b"), "there is no option --run: write sfumato embed RUN DATA;"),
        (("account", "--noise-multiplier", 1, "--adjacency", "replac"), "got replac (did you mean replace?)"),
        (
            ("account", "--noise-multiplier", 1, "--adjacency", "none"),
            "must be one of add_remove, replace, zero_out, got",
        ),
        (("fedemb", "--population", 9999, "--clipping", "flatt"), "got flatt (did you mean flat?)"),
        (("check-model", "lenet6"), "got lenet6 (did you mean lenet5?)"),
        (("account", "--noise-multiplier", -1), "--noise-multiplier must be >= 0"),
        (("embed", "somewhere"), "DATA"),
        (("fedemb", "--clipping", 0), "--clipping.norm must be > 0, got 0"),
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
    assert "there is no option --stepps (did you mean --steps?)" in refused.stderr


@pytest.mark.parametrize("command", ["account", "dpsgd", "ledger show"])
def test_help_shows_the_type_of_what_may_be_left_out(sfumato, command: str):
    shown = sfumato(*command.split(), "--help-all").out
    assert "{None" not in shown
    assert re.search(r"--[a-z-]+ (INT|FLOAT|PATH)", shown)
    if command == "ledger show":
        assert re.search(r"\{add_remove,replace,zero_out\}", re.sub(r"[│\s]", "", shown))


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_speaks_without_the_words_of_python(sfumato, command: str):
    for word in ("--help", "--help-all"):
        shown = sfumato(*command.split(), word).out
        assert not re.search(r"\b(None|True|False)\b|\(default: *\)", shown), shown
        frames = [line for line in shown.splitlines() if line.startswith(("│", "╭", "╰"))]
        assert len({len(line) for line in frames}) <= 1  # no frame was moved


@pytest.mark.parametrize("given", [("--clipping", "none"), ("--clipping=none",), ("--clipping.norm", "none")])
def test_the_help_s_word_for_nothing_is_a_value_of_a_number(sfumato, given):
    words = ("fedavg", "--population", 1000, "--noise", 0, "--dry-run", "--json")
    assert json.loads(sfumato(*words, *given).out)["plan"]["clipping"]["norm"] is None
    assert "clipping must be one of flat" in sfumato(*words, "--clipping", "nothing").line


# Settings files and flags: one set of rules, and the flags win.


def test_a_settings_file_and_flags_combine_and_the_flags_win(sfumato, tmp_path: Path):
    for file, text in (
        ("a.yaml", "noise-multiplier: 3\nsteps: 7\n"),
        ("a.json", '{"noise_multiplier": 3, "steps": 7}'),
    ):
        (tmp_path / file).write_text(text)
        told = json.loads(sfumato("account", "--config", tmp_path / file, "--steps", 5, "--json").out)
        assert told["event"] == {"event": "repeated", "count": 5, "of": {"event": "gaussian", "noise_multiplier": 3.0}}


def test_yaml_s_numbers_lists_and_none_arrive(sfumato, tmp_path: Path):
    file = tmp_path / "plan.yaml"
    file.write_text(
        "rounds: 4\nclipping: 0.5\nnoise: 1e-1\nclient: {batch_size: null, loss: arcface}\nfar: [1e-2, 0.5]\n"
        "population: 5000\ndry_run: true\njson: yes\n"
    )
    plan = dict(flat(json.loads(sfumato("fedemb", "--config", file).out)["plan"]))
    expected = {"rounds": 4, "clipping.norm": 0.5, "noise.noise_multiplier": 0.1, "client.batch_size": None}
    assert {name: plan[name] for name in expected} == expected
    assert plan["client.loss"] == "arcface"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("round: 3", "there is no option round (did you mean rounds?)"),
        ("rounds: many", "rounds must be int, got 'many'"),
        ("rounds: 3.5", "rounds must be int, got 3.5"),
        ("rounds: {a: 1}", "rounds must be one value"),
        ("rounds: true", "rounds must be int, got True"),
        ("client: {loss: hinge}", "loss must be one of"),
        ("- a\n- b", "must hold names with values"),
        ("a: [1", "cannot be read"),
    ],
)
def test_a_mistake_in_a_settings_file_is_one_line_with_its_name(sfumato, tmp_path: Path, text, named):
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    line = sfumato("fedemb", "--config", file).line
    assert line.startswith(str(file))
    assert named in line


def test_a_settings_file_that_is_not_there_is_one_line(sfumato, tmp_path: Path):
    assert "No such file" in sfumato("account", "--config", tmp_path / "none.yaml").line
    assert "yaml" in sfumato("account", "--config", tmp_path / "none.txt").line


def test_the_flag_decides_between_noise_and_budget(sfumato, tmp_path: Path):
    file = tmp_path / "plan.json"
    common = ("fedemb", "--config", file, "--population", 100000, "--dry-run", "--json")
    file.write_text('{"noise": 3.0}')
    calibrated = json.loads(sfumato(*common, "--epsilon", 8).out)
    assert calibrated["statement"]["epsilon"] == pytest.approx(8, rel=1e-4)
    file.write_text('{"epsilon": 8}')
    assert json.loads(sfumato(*common, "--noise", 2).out)["plan"]["noise"]["noise_multiplier"] == 2
    file.write_text('{"epsilon": 8, "noise": 3.0}')
    assert "not both" in sfumato(*common).line


@pytest.mark.parametrize(
    ("name", "text"),
    [("plan.yaml", "steps: 3\nnoise_multiplier: 1\nsteps: 4\n"), ("plan.json", '{"steps": 3, "steps": 4}')],
)
def test_a_setting_that_is_there_twice_is_refused(sfumato, tmp_path, name: str, text: str):
    file = tmp_path / name
    file.write_text(text)
    assert "'steps' is there twice; leave one out" in sfumato("account", "--config", file).line


# Help answers at once: no command imports torch, SciPy or pyarrow before it needs them.


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
