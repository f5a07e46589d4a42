"""A table whose column names the user goes in where a folder of people does."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sfumato.data import from_table, open_store


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


def test_people_of_a_table_are_trained_on_and_embedded(sfumato, small, table: Path, tmp_path: Path):
    run, out = tmp_path / "run", tmp_path / "embeddings.parquet"
    shown = sfumato(
        "fedemb", "--data", table, "--user", "person", *small, "--noise-multiplier", 1, "--test-share", 0, "--out", run
    )
    assert shown.code == 0
    assert "12 users" in shown.out
    assert sfumato("embed", run, table, "--user", "person", "--out", out).code == 0
    assert pq.read_table(out)["user"].to_pylist() == sorted([f"p{i:02d}" for i in range(12)] * 4)


def test_a_table_is_packed_as_it_is_read(sfumato, table: Path, tmp_path: Path):
    assert sfumato("data", "pack", table, tmp_path / "store", "--user", "person").code == 0
    packed, read = open_store(tmp_path / "store"), from_table(table, user="person")
    assert list(packed.user_ids) == list(read.user_ids)
    for user in range(12):
        assert (packed.examples(user)[0] == read.examples(user)[0]).all()


def test_whose_the_rows_are_is_asked(sfumato, small, table: Path, tmp_path: Path):
    asked = sfumato("fedemb", "--data", table, *small, "--noise-multiplier", 1, "--out", tmp_path / "run").line
    assert "say whose each row is, --user COLUMN or user=, of image, person" in asked
    assert "--user COLUMN" in sfumato("data", "pack", table, tmp_path / "store").line
    (tmp_path / "photos" / "al").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "al" / "0.png")
    shown = sfumato("fedemb", "--data", tmp_path / "photos", "--user", "person", *small, "--noise-multiplier", 1)
    assert "user='person' is a column of a table" in shown.line


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
    packed, read = open_store(tmp_path / "store"), from_table(table, user="person")
    assert list(packed.user_ids) == list(read.user_ids)
    assert packed.sizes.tolist() == read.sizes.tolist()
    private = ("--noise-multiplier", 1, "--test-share", 0, "--out", tmp_path / "run")
    shown = sfumato("fedemb", "--data", pattern, "--user", "json.person", "--input", "png", *small, *private)
    assert shown.code == 0
    assert "12 users" in shown.out
