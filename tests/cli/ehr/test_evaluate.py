"""`sfumato ehr evaluate`: a page and numbers from three folders; a mistake is one line."""

import json
from pathlib import Path

import pytest

from made_up_patients import copied, records
from sfumato.cli.main import main
from sfumato.data.ehr.write_tables import write_ehr_tables


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
    assert "no differential privacy guarantee: the attacks are examples, not a bound" in text
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
