"""A table goes in where a folder of people does: a column names the user, another one holds pictures or their paths."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sfumato.data import open_users

PRIVATE = ("--noise", 1, "--seed", 3)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four pictures each of twelve people, whose rows are not adjacent."""
    rng = np.random.default_rng(0)
    cells = []
    for _ in range(48):
        content = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (28, 28), np.uint8)).save(content, "PNG")
        cells.append({"bytes": content.getvalue(), "path": None})
    people = [f"p{i % 12:02d}" for i in range(48)]
    pq.write_table(pa.table({"image": cells, "person": people}), tmp_path / "faces.parquet")
    return tmp_path / "faces.parquet"


@pytest.fixture
def faces(people: Path, tmp_path: Path) -> Path:
    """The pictures of `people`, copied, and beside them a table of their paths in sorted order."""
    folder = shutil.copytree(people, tmp_path / "faces")
    files = sorted(folder.glob("*/*.png"))
    rows = {"file": [str(file.relative_to(folder)) for file in files], "person": [file.parent.name for file in files]}
    pd.DataFrame(rows).to_csv(folder / "faces.csv", index=False)
    return folder / "faces.csv"


def test_people_of_a_table_are_trained_on_and_embedded(sfumato, small, table: Path, tmp_path: Path):
    run, out = tmp_path / "run", tmp_path / "embeddings.parquet"
    shown = sfumato(
        "fedemb", "--data", table, "--user", "person", *small, "--noise", 1, "--test-share", 0, "--out", run
    )
    assert shown.code == 0
    assert "12 users" in shown.out
    assert sfumato("embed", run, table, "--user", "person", "--out", out).code == 0
    assert pq.read_table(out)["user"].to_pylist() == sorted([f"p{i:02d}" for i in range(12)] * 4)


def test_a_table_is_packed_as_it_is_read(sfumato, table: Path, tmp_path: Path):
    assert sfumato("data", "pack", table, tmp_path / "store", "--user", "person").code == 0
    packed, read = open_users(tmp_path / "store"), open_users(table, user="person")
    assert list(packed.user_ids) == list(read.user_ids)
    for user in range(12):
        assert (packed.examples(user)[0] == read.examples(user)[0]).all()


def test_whose_the_rows_are_is_asked(sfumato, small, table: Path, tmp_path: Path):
    asked = sfumato("fedemb", "--data", table, *small, "--noise", 1, "--out", tmp_path / "run").line
    assert "say whose each row is, --user COLUMN or user=, of image, person" in asked
    assert "--user COLUMN" in sfumato("data", "pack", table, tmp_path / "store").line
    (tmp_path / "photos" / "al").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "al" / "0.png")
    shown = sfumato("fedemb", "--data", tmp_path / "photos", "--user", "person", *small, "--noise", 1)
    assert "user='person' is for tables" in shown.line


def test_tar_shards_go_in_where_a_table_does(sfumato, small, table: Path, tmp_path: Path):
    rows = pq.read_table(table).to_pylist()
    for shard in range(2):
        with tarfile.open(tmp_path / f"faces-{shard}.tar", "w") as tar:
            for i, row in enumerate(rows):
                if i % 2 == shard:
                    person = json.dumps({"person": row["person"]}).encode()
                    for kind, content in (("png", row["image"]["bytes"]), ("json", person)):
                        info = tarfile.TarInfo(f"{i:04d}.{kind}")
                        info.size = len(content)
                        tar.addfile(info, io.BytesIO(content))
    pattern = tmp_path / "faces-{0..1}.tar"
    asked = sfumato("data", "pack", pattern, tmp_path / "store").line
    assert "--user COLUMN" in asked
    assert sfumato("data", "pack", pattern, tmp_path / "store", "--user", "json.person").code == 0
    packed, read = open_users(tmp_path / "store"), open_users(table, user="person")
    assert list(packed.user_ids) == list(read.user_ids)
    assert packed.sizes.tolist() == read.sizes.tolist()
    private = ("--noise", 1, "--test-share", 0, "--out", tmp_path / "run")
    shown = sfumato("fedemb", "--data", pattern, "--user", "json.person", "--input", "png", *small, *private)
    assert shown.code == 0
    assert "12 users" in shown.out


def test_a_run_on_paths_is_the_run_on_their_folder(sfumato, small, faces: Path, finished: Path, tmp_path: Path):
    run, out = tmp_path / "run", tmp_path / "embeddings.parquet"
    shown = sfumato("fedemb", "--data", faces, "--user", "person", *small, *PRIVATE, "--out", run)
    assert shown.code == 0, shown.err
    assert (run / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert sfumato("report", run).code == 0
    assert sfumato("embed", run, faces, "--user", "person", "--input", "file", "--out", out).code == 0
    rows = pd.read_csv(faces)
    assert pq.read_table(out)["file"].to_pylist() == rows["file"].tolist()
    assert pq.read_table(out)["user"].to_pylist() == rows["person"].tolist()


def test_a_run_on_paths_goes_on_with_the_same_pictures_only(sfumato, small, faces: Path, contents, tmp_path: Path):
    run, table = tmp_path / "run", faces.rename(tmp_path / "faces.csv")
    words = ("--data", table, "--user", "person", "--folder", faces.parent, *small, *PRIVATE)
    assert sfumato("fedemb", *words, "--out", run).code == 0
    before = contents(run)
    assert sfumato("fedemb", "--resume", run).code == 0
    assert (run / "model.safetensors").read_bytes() == before["model.safetensors"]
    picture = faces.parent / "p03" / "2.png"
    Image.open(picture).point(lambda value: 255 - value).save(picture)
    assert "another plan, model or data set" in sfumato("fedemb", "--resume", run).line
    picture.unlink()
    assert f"file at line 16 ({picture}) cannot be read" in sfumato("fedemb", "--resume", run).line


def test_paths_are_packed_into_the_store_of_their_folder(sfumato, faces: Path, tmp_path: Path):
    words = ("--user", "person", "--size", 6, "--channels", 3)
    shown = sfumato("data", "pack", faces, tmp_path / "store", *words)
    assert shown.code == 0, shown.err
    packed, read = (
        open_users(tmp_path / "store", verify=True),
        open_users(faces.parent, size=6, channels=3, on_error="skip"),
    )
    assert list(packed.user_ids) == list(read.user_ids)
    for user in range(len(read)):
        assert (packed.examples(user)[0] == read.examples(user)[0]).all()
    assert "brought 64 pictures to 6×6" in shown.out
    assert "turned 64 pictures to RGB" in shown.out


def test_examples_by_their_paths_are_trained_on(sfumato, faces: Path, tmp_path: Path):
    moved = faces.rename(tmp_path / "labels.csv")
    rows = pd.read_csv(moved)
    rows["file"] = rows["file"].str.replace("/", "\\").str.removesuffix(".png")
    rows.to_csv(moved, index=False)
    words = ("--input", "file", "--label", "person", "--folder", faces.parent, "--size", 16)
    words = ("dpsgd", "--data", moved, *words, "--steps", 2, "--cohort", 8, "--model", "lenet300_100", *PRIVATE)
    shown = sfumato(*words, "--public-classes", "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    assert "64 examples of (16, 16, 1) uint8, 16 classes" in shown.out
    assert "divided by their position" not in shown.out


def test_pictures_that_cannot_be_read_are_one_line_or_skipped_and_counted(sfumato, small, faces: Path, tmp_path: Path):
    rows = pd.read_csv(faces)
    rows.loc[5, "file"], rows.loc[9, "file"] = "gone.png", None
    rows.to_csv(faces, index=False)
    words = ("--user", "person", "--input", "file")
    train = ("fedemb", "--data", faces, *words, *small, *PRIVATE, "--out", tmp_path / "run")
    pack = ("data", "pack", faces, tmp_path / "store", *words)
    for command in (train, pack):
        line = sfumato(*command).line
        assert line.startswith(f"{faces}: file at line 7 ({faces.parent / 'gone.png'}) cannot be read: No such file")
        assert "--on-error skip" in line
        assert "name their folder: --folder FOLDER" in line
        shown = sfumato(*command, "--on-error", "skip")
        assert shown.code == 0, shown.err
        assert "skipped 2 files: line 7 (" in shown.out
        assert "line 11 (is missing (null))" in shown.out


def test_pictures_without_an_embedding_are_told(sfumato, faces: Path, finished: Path, tmp_path: Path):
    rows = pd.read_csv(faces)
    rows.loc[5, "file"] = "gone.png"
    pd.concat([rows, rows.iloc[[2]]]).to_csv(faces, index=False)
    words = ("embed", finished, faces, "--user", "person", "--input", "file", "--on-error", "skip")
    shown = sfumato(*words, "--out", tmp_path / "e.parquet")
    assert shown.code == 0, shown.err
    assert "64 embeddings of 16 users" in shown.out
    assert "skipped 1 file: line 7 (" in shown.err
    assert "1 row names a file that a row before names" in shown.err


def test_tabs_in_a_file_that_is_named_otherwise_are_told(sfumato, faces: Path, tmp_path: Path):
    faces.write_text(faces.read_text().replace(",", "\t"))
    line = sfumato("data", "pack", faces, tmp_path / "store", "--user", "person", "--input", "file").line
    assert "has columns that are divided by '\\t'" in line
    assert "read_csv(FILE, sep='\\t')" in line


@pytest.mark.parametrize("name", ["none.csv", "none.parquet"])
def test_a_table_that_is_not_there_is_said_so(sfumato, small, finished: Path, tmp_path: Path, name: str):
    table = tmp_path / name
    words = ("--user", "person", "--input", "file")
    for command in (("fedemb", "--data", table, *small, *PRIVATE), ("embed", finished, table)):
        assert sfumato(*command, *words, "--out", tmp_path / "out").line.startswith(f"there is nothing at {table}; ")


def test_a_picture_of_two_people_is_refused(sfumato, small, faces: Path, tmp_path: Path):
    rows = pd.read_csv(faces)
    rows.loc[5, "file"] = "p00/1.png"
    rows.to_csv(faces, index=False)
    words = ("fedemb", "--data", faces, "--user", "person", *small, *PRIVATE, "--on-error", "skip")
    line = sfumato(*words, "--out", tmp_path / "run").line
    assert "names the same file as line 3 (" in line
    assert not (tmp_path / "run").exists()


def test_a_folder_of_pictures_is_named_for_paths_only(sfumato, small, faces: Path, people: Path, tmp_path: Path):
    words = ("--folder", people)
    told = "is for paths of pictures in a table"
    assert told in sfumato("fedemb", "--data", people, *words, *small, *PRIVATE).line
    assert told in sfumato("dpsgd", "--data", people, *words, "--steps", 1, "--cohort", 8, *PRIVATE).line
    assert "--user COLUMN" in sfumato("data", "pack", faces, tmp_path / "store", *words).line
    texts = ("--text", "characters", *words)
    assert "folder=" in sfumato("data", "pack", faces, tmp_path / "store", *texts).line
    assert told in sfumato("fedavg", "--data", faces, *texts, *PRIVATE).line
