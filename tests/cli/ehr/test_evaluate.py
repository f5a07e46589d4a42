"""`sfumato ehr evaluate`: a page and numbers from three folders; a mistake is one line."""

import json
import shutil
from pathlib import Path

import pytest

from made_up_patients import copied, records
from sfumato.cli.main import main
from sfumato.data.ehr.folders import read_folder
from sfumato.data.ehr.write import write_ehr_tables


def write(folder: Path, data) -> Path:
    folder.mkdir()
    write_ehr_tables(data, folder / "visits.parquet", folder / "static.csv")
    data.schema.save(folder / "schema.yaml")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("records")
    train = records(50, 1)
    sides = {"real": train, "holdout": records(40, 2), "synthetic": copied(train, 50, 3)}
    return {name: write(root / name, data) for name, data in sides.items()}


def words(folders, out: Path, **changed: object) -> list[str]:
    given = {**folders, "out": out, **changed}
    return ["ehr", "evaluate", *(str(word) for name, value in given.items() for word in (f"--{name}", value))]


def test_three_folders_give_a_page_and_the_same_numbers_in_json(folders, tmp_path, capsys):
    assert main(words(folders, tmp_path / "a.html")) == 0
    text = capsys.readouterr().out
    assert "membership inference: accuracy" in text
    assert "(above the ideal)" in text
    assert "no differential privacy guarantee follows: the attacks are examples, not a bound" in text
    assert main([*words(folders, tmp_path / "b.html"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [attack["above"] for attack in told["attacks"]] == [True, True, True]
    assert told["sizes"] == {"holdout": 40, "most": 5000, "real": 50, "synthetic": 50}
    assert told["report"] == str(tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"real": "nowhere"}, "there is no folder nowhere"),
        ({"out": "."}, "is a folder; give a file name"),
        ({"out": "nowhere/a.html"}, "there is no folder nowhere for the page"),
        ({"most": 3}, "most must be a whole number >= 20"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"sensitive": "bili"}, "there is no static column 'bili'; sensitive ones may be"),
    ],
)
def test_a_mistake_is_one_line(folders, tmp_path, capsys, changed, said):
    assert main(words(folders, **{"out": tmp_path / "a.html", **changed})) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


def test_a_folder_that_holds_no_records_is_refused(folders, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(words(folders, tmp_path / "a.html", real=tmp_path / "empty")) == 2
    assert "has neither visits.parquet nor visits.csv" in capsys.readouterr().err
    bare = write(tmp_path / "bare", records(30, 4))
    (bare / "schema.yaml").unlink()
    assert main(words(folders, tmp_path / "a.html", real=bare)) == 2
    assert "has no schema.yaml; give a schema" in capsys.readouterr().err
    (bare / "visits.csv").write_text("x\n")
    assert main(words(folders, tmp_path / "a.html", real=bare)) == 2
    assert "has visits.parquet and visits.csv; keep one" in capsys.readouterr().err


def test_patients_in_both_real_folders_are_refused(folders, tmp_path, capsys):
    assert main(words(folders, tmp_path / "a.html", holdout=folders["real"])) == 2
    assert "50 patients are in the real and in the held-out records" in capsys.readouterr().err


@pytest.fixture(scope="module")
def evaluated(learned, tmp_path_factory):
    """A run, what was drawn from it, and its evaluation: fit, sample, evaluate."""
    root = tmp_path_factory.mktemp("evaluated")
    shutil.copytree(learned, root / "run")
    assert main(["ehr", "sample", "--model", str(root / "run"), "--count", "60", "--to", str(root / "made")]) == 0
    assert main(["ehr", "evaluate", "--model", str(root / "run"), "--synthetic", str(root / "made")]) == 0
    return root


@pytest.mark.page
def test_a_run_is_measured_with_its_own_records_and_its_statement_tells_the_attacks(sfumato, evaluated):
    run = evaluated / "run"
    found = json.loads((run / "evaluation.json").read_text())["synthetic"]
    assert found["drawn"] is True
    assert found["sizes"] == {"holdout": 64, "most": 5000, "real": 56, "synthetic": 60}
    stated = json.loads((run / "statement.json").read_text())
    told = stated["disclosure"]["evaluation"]
    for attack in found["attacks"]:
        first = attack["measures"][0]
        assert f"{attack['name']}, {first['name']}: {first['found']['value']:.3g}" in told
        assert f"ideal {first['ideal']['value']:.3g}" in told
    assert len(found["attacks"]) == 3
    assert "60 of them, as they were drawn, were attacked with 64 real patients" in told
    assert "examples, not a bound" in told
    assert stated["epsilon"] == "inf"
    assert sfumato("ledger", "verify", run).code == 0
    for private in ("evaluation.json", "records.html"):
        assert (run / private).stat().st_mode & 0o077 == 0
    page = (run / "report.html").read_text()
    assert "membership inference, accuracy" in page
    assert f"{sum(attack['above'] for attack in found['attacks'])} of 3" in page
    assert "Attacks on the synthetic records" in page
    assert sfumato("report", run, "--public", "--out", evaluated / "public.html").code == 0
    public = (evaluated / "public.html").read_text()
    assert "Attacks on the synthetic records" not in public
    assert "were measured against real ones that were held out" in public
    for attack in found["attacks"]:
        for secret in (f"{attack['name']}, {attack['measures'][0]['name']}:", "were attacked with"):
            assert secret in page
            assert secret not in public
    assert json.loads((run / "statement.json").read_text()) == stated


@pytest.mark.slow
def test_the_same_measures_come_from_folders(sfumato, patients, evaluated, tmp_path):
    kept, held_out = read_folder(patients).split(0.4, seed=0)
    sides = {"real": write(tmp_path / "real", kept), "holdout": write(tmp_path / "holdout", held_out)}
    sides["synthetic"] = evaluated / "made"
    told = json.loads(sfumato(*words(sides, tmp_path / "a.html"), "--json").out)
    found = json.loads((evaluated / "run" / "evaluation.json").read_text())["synthetic"]
    assert {name: found[name] for name in told if name != "report"} == {
        name: value for name, value in told.items() if name != "report"
    }


def test_records_that_were_not_drawn_or_were_changed_are_measured_and_told_so(sfumato, evaluated, tmp_path):
    run = shutil.copytree(evaluated / "run", tmp_path / "run")
    made = shutil.copytree(evaluated / "made", tmp_path / "made")
    (made / "more.txt").write_text("changed")
    outcome = sfumato("ehr", "evaluate", "--model", run, "--synthetic", made, "--out", tmp_path / "a.html", "--json")
    assert outcome.code == 0
    assert "is not what sfumato ehr sample drew" in outcome.err
    told = json.loads((run / "statement.json").read_text())["disclosure"]["evaluation"]
    assert "which are not those that were drawn, or were changed" in told
    assert told.count("The synthetic records:") == 1


def test_records_of_a_run_that_have_changed_since_are_refused(sfumato, patients, small, tmp_path):
    data = shutil.copytree(patients, tmp_path / "data")
    assert sfumato("ehr", "fit", "--data", data, *small, "--out", tmp_path / "run").code == 0
    assert sfumato("ehr", "sample", "--model", tmp_path / "run", "--count", 30, "--to", tmp_path / "made").code == 0
    measure = ("ehr", "evaluate", "--model", tmp_path / "run", "--synthetic", tmp_path / "made")
    table = (data / "static.csv").read_text()
    (data / "static.csv").write_text(table.replace('"f"', '"m"', 1))
    assert table != (data / "static.csv").read_text()
    assert "were changed since it learned from them; give --real and --holdout" in sfumato(*measure).line
    (data / "visits.csv").unlink()
    assert "the records of" in sfumato(*measure).line
    assert not (tmp_path / "run" / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--synthetic", "x"), "missing: --real, --holdout, --out; or give --model, the run that made the records"),
        (("--model", "{run}", "--synthetic", "x", "--real", "y"), "give both --real and --holdout, or leave both"),
        (("--model", "{run}", "--synthetic", "x", "--schema", "y"), "--model has the schema of its records"),
        (("--model", ".", "--synthetic", "x"), "holds no plan.json"),
        (("--model", "{run}", "--synthetic", "nowhere"), "there is no folder nowhere"),
    ],
)
def test_a_mistake_about_the_run_is_one_line(sfumato, learned, tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    assert said in sfumato("ehr", "evaluate", *(word.format(run=learned) for word in given)).line


def test_a_run_that_held_out_nobody_says_so(sfumato, patients, small, tmp_path):
    words = ("ehr", "fit", "--data", patients, *small, "--holdout-share", 0, "--out", tmp_path / "run")
    assert sfumato(*words).code == 0
    told = sfumato("ehr", "evaluate", "--model", tmp_path / "run", "--synthetic", patients).line
    assert "held out no patients to measure by; give --holdout, and --real" in told


@pytest.mark.slow
def test_a_run_on_relative_paths_is_measured_from_any_folder(sfumato, patients, small, tmp_path, monkeypatch):
    shutil.copytree(patients, tmp_path / "there" / "data")
    monkeypatch.chdir(tmp_path / "there")
    assert sfumato("ehr", "fit", "--data", "data", *small, "--holdout-share", 0.4, "--out", "run").code == 0
    assert sfumato("ehr", "sample", "--model", "run", "--count", 30, "--to", "made").code == 0
    assert str(tmp_path) not in Path("run/plan.json").read_text()  # which is public
    assert Path("run/records.json").stat().st_mode & 0o077 == 0
    monkeypatch.chdir(patients)
    run, made = tmp_path / "there" / "run", tmp_path / "there" / "made"
    assert sfumato("ehr", "evaluate", "--model", run, "--synthetic", made).code == 0
    moved = shutil.move(tmp_path / "there", tmp_path / "elsewhere")
    monkeypatch.chdir(moved)
    assert sfumato("ehr", "evaluate", "--model", "run", "--synthetic", "made").code == 0


def test_too_few_patients_are_one_line_with_a_remedy(folders, tmp_path, capsys):
    for name, remedy in (("holdout", "--holdout-share"), ("synthetic", "--count"), ("real", "give more")):
        few = write(tmp_path / name, records(19, 9))
        assert main(words(folders, tmp_path / "a.html", **{name: few})) == 2
        complaint = capsys.readouterr().err
        assert "an evaluation needs 20 patients on each side, got 19" in complaint
        assert remedy in complaint


@pytest.mark.slow
def test_records_that_were_drawn_under_conditions_are_measured_and_told_so(sfumato, learned, tmp_path):
    run = shutil.copytree(learned, tmp_path / "run")
    words = ("--model", run, "--count", 30, "--to", tmp_path / "made", "--conditions", "sex=f")
    assert sfumato("ehr", "sample", *words).code == 0
    outcome = sfumato("ehr", "evaluate", "--model", run, "--synthetic", tmp_path / "made")
    assert outcome.code == 0
    assert "was drawn with --conditions sex=f, and is measured against patients of all kinds" in outcome.err
