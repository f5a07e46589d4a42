"""Whatever a file of a run has become, whoever reads it says so in one line that names the file."""

from pathlib import Path

import pytest

from sfumato._check import InputError
from small_run import work

DAMAGES = {
    "empty": b"",
    "nested": b"[" * 200_000,
    "nested fields": b'{"a":' * 200_000,
    "no text": b"\xff\xfe\x00\x81",
    "a list": b"[1, 2]",
    "a number": b"7",
    "cut": b'{"plan": "fed',
    "many digits": b'{"rounds": 1' + b"0" * 5000 + b"}",
    "beyond double": b'{"round": 1e999, "rounds": 1e999, "epsilon": 1e999}',
    "nulls": b'{"round": null, "rounds": null, "unit": null, "images": null, "untrained": null}',
}
READ = ("plan.json", "statement.json", "ledger.jsonl", "metrics.jsonl", "evaluation.json")
RESUMED = (
    "metrics.jsonl", "ledger.jsonl", "checkpoint/state.safetensors", "checkpoint/frozen.safetensors", "checkpoint/key",
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", READ)
def test_a_page_of_a_damaged_run_is_one_line(finished: Path, told, name, damage):
    (finished / name).write_bytes(DAMAGES[damage])
    code, said = told("report", finished)
    if (name, damage) in {("metrics.jsonl", "empty"), ("evaluation.json", "beyond double")}:
        return  # which are no damage
    assert code == 2
    assert said.count("\n") == 1
    assert name in said


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", RESUMED)
def test_a_damaged_run_is_not_gone_on_with(stopped: Path, name, damage):
    (stopped / name).write_bytes(DAMAGES[damage])
    if (name, damage) in {("metrics.jsonl", "empty")}:
        return  # rows are missing then, which is told
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    if name == "metrics.jsonl" and damage in ("beyond double", "nulls", "nested", "nested fields", "cut"):
        with pytest.warns(UserWarning, match="rows of .* are missing"):
            work(stopped, resume=True)  # a line without its end is what a crash leaves
        return
    if name == "metrics.jsonl":
        with pytest.warns(UserWarning, match="rows of .* are missing"):
            work(stopped, resume=True)
        return
    with pytest.raises(InputError) as caught:
        work(stopped, resume=True)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_row_of_the_metrics_is_named(stopped: Path):
    metrics = stopped / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    for line in (b"[1]\n", b"\xff\n", b"[" * 200_000 + b"\n"):
        metrics.write_bytes(lines[0] + line)
        with pytest.raises(InputError, match=r"metrics\.jsonl, line 2 is damaged"):
            work(stopped, resume=True)


@pytest.mark.parametrize("name", ["state", "frozen"])
def test_one_bit_of_the_checkpoint_that_turned_is_found(stopped: Path, name):
    path = stopped / "checkpoint" / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with pytest.raises(InputError, match="was changed after it was written"):
        work(stopped, resume=True)


def test_names_that_would_steer_a_terminal_are_shown_and_not_sent(finished: Path, told, tmp_path: Path):
    steering = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"
    plan = finished / "plan.json"
    folder = tmp_path / f"run{steering}"
    finished.rename(folder)
    (folder / plan.name).write_text((folder / plan.name).read_text().replace("sums", f"s{steering}"))
    from sfumato.accounting import Gaussian
    from sfumato.ledger import Ledger

    with Ledger.open(tmp_path / "noted.jsonl") as ledger:
        ledger.append(Gaussian(1.0), phase=f"phase{steering}")
    for command in (
        ("ledger", "show", tmp_path / "noted.jsonl"),
        ("ledger", "verify", folder),
        ("report", folder),
        ("compare", folder, folder),
        ("close", folder),
        (f"none{steering}",),
        ("ledger", "show", tmp_path / "noted.jsonl", "--phase", steering),
    ):
        _, said = told(*command)
        assert "x1b" in said
        assert not set(said) & set("\x1b\x07\x9b\u202e"), command
