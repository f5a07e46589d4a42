"""`sfumato labeldp randomize`: every format, one line for a mistake, and what a stop leaves."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

COMMAND = ("labeldp", "randomize")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    order = np.random.default_rng(0).permutation(400).tolist()
    rows = [f"{place},{'yes' if place % 3 else 'no'},{place % 10 / 2},{place % 2}" for place in order]
    path.write_text("\n".join(["id,y,rating,g", *rows]) + "\n")
    return path


def test_it_writes_the_table_and_tells_the_cost(sfumato, table: Path, tmp_path: Path):
    out = tmp_path / "noisy.csv"
    done = sfumato(*COMMAND, table, "--label", "y", "--epsilon", 1, "--classes", "no", "yes", "--out", out)
    assert (done.code, done.err) == (0, "")
    assert "400 labels" in done.out
    assert "epsilon 1 for each label, delta 0" in done.out
    before, after = (path.read_text().splitlines() for path in (table, out))
    assert [line.split(",")[::2] for line in before] == [line.split(",")[::2] for line in after]
    assert {line.split(",")[1] for line in after[1:]} == {"no", "yes"}
    assert sfumato("ledger", "verify", f"{out}.run").code == 0
    assert sfumato("report", f"{out}.run", "--out", tmp_path / "r.html").code == 0


def test_json_holds_the_statement_and_a_settings_file_serves(sfumato, table: Path, tmp_path: Path):
    out, config = tmp_path / "noisy.csv", tmp_path / "s.yaml"
    config.write_text("label: rating\nepsilon: 2\nlow: 0\nhigh: 4.5\nvalues: 10\nprior_epsilon: 0.1\nseed: 3\n")
    done = sfumato(*COMMAND, table, "--config", config, "--out", out, "--json")
    told = json.loads(done.out)
    assert told["rows"] == 400
    assert told["statement"] == json.loads((tmp_path / "noisy.csv.run" / "statement.json").read_text())
    assert told["statement"]["epsilon"] == 2.0
    assert told["statement"]["noise_source"]["id"] == "randomness_seeded"
    ratings = {float(line.split(",")[2]) for line in out.read_text().splitlines()[1:]}
    assert all(0 <= rating <= 4.5 for rating in ratings)


def test_a_seeded_run_says_so(sfumato, table: Path, tmp_path: Path):
    words = (table, "--label", "y", "--epsilon", 1, "--public-classes", "--out", tmp_path / "o.csv", "--seed", 1)
    assert "for simulation only" in sfumato(*COMMAND, *words).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--label", "y", "--epsilon", 0, "--public-classes"), "epsilon must be > 0, got 0"),
        (("--label", "y", "--epsilon", "inf", "--public-classes"), "epsilon must be > 0 and finite, got inf"),
        (("--label", "y", "--epsilon", 1), "which classes are there? give --classes, or --public-classes"),
        (("--label", "y", "--epsilon", 1, "--classes", "yes"), "with one class there is nothing to hide"),
        (("--label", "y", "--epsilon", 1, "--classes", "yes", "maybe"), "is 'no', which is none of the classes yes"),
        (("--label", "z", "--epsilon", 1, "--public-classes"), "has no column 'z'"),
        (("--epsilon", 1, "--public-classes"), "missing: --label"),
        (("--label", "y", "--epsilon", 1, "--low", 0, "--high", 1), "must be numbers where low and high are given"),
        (("--label", "y", "--epsilon", 1, "--public-classes", "--resume"), "there is no run for"),
        (("--label", "y", "--epsilon", 1, "--public-classes", "--prior", "none.csv"), "there is nothing at none.csv"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(sfumato, table: Path, tmp_path: Path, words, told):
    assert told in sfumato(*COMMAND, table, *words, "--out", tmp_path / "o.csv").line
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_an_output_that_cannot_be_is_refused(sfumato, table: Path, tmp_path: Path):
    words = (table, "--label", "y", "--epsilon", 1, "--public-classes", "--out")
    assert "must be of the table's format" in sfumato(*COMMAND, *words, tmp_path / "o.parquet").line
    assert "there is no folder" in sfumato(*COMMAND, *words, tmp_path / "a" / "o.csv").line
    assert "exists" in sfumato(*COMMAND, *words, table).line
    assert sfumato(*COMMAND, *words, tmp_path / "o.csv").code == 0
    assert "average the noise away" in sfumato(*COMMAND, *words, tmp_path / "o.csv").line


def test_a_prior_is_read_and_a_bad_one_refused(sfumato, table: Path, tmp_path: Path):
    prior, words = tmp_path / "p.csv", (table, "--label", "y", "--epsilon", 1, "--classes", "no", "yes")
    prior.write_text("class,probability\nno,0\nyes,1\n")
    refused = sfumato(*COMMAND, *words, "--prior", prior, "--out", tmp_path / "o.csv")
    assert "is 0 for the class 'no'" in refused.line
    done = sfumato(*COMMAND, *words, "--prior", prior, "--smoothing", 0.01, "--out", tmp_path / "o.csv")
    assert done.code == 0
    assert {line.split(",")[1] for line in (tmp_path / "o.csv").read_text().splitlines()[1:]} == {"yes"}


def test_ctrl_c_leaves_no_table_and_the_run_goes_on(
    sfumato, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from sfumato.labels import randomize as module

    out, drawn = tmp_path / "o.csv", module.reports_of
    words = (*COMMAND, table, "--label", "y", "--epsilon", 1, "--public-classes", "--out", out)
    monkeypatch.setattr("sfumato.labels.files._ROWS", 50)
    with monkeypatch.context() as context:

        def interrupted(*arguments, **named):
            os.kill(os.getpid(), signal.SIGINT)
            return drawn(*arguments, **named)

        context.setattr(module, "reports_of", interrupted)
        stopped = sfumato(*words)
    assert stopped.code == 130
    assert "was not written; go on by the same words and --resume" in stopped.err
    assert not out.exists()
    assert "go on with it (--resume)" in sfumato(*words).line
    assert sfumato(*words, "--resume").code == 0
    assert len(out.read_text().splitlines()) == 401
    assert "is complete" in sfumato(*words, "--resume").line
