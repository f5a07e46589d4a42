"""`load_examples` takes a table whose columns are named, where no schema says what is public about it."""

import io
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato._check import InputError
from sfumato.data import MissingPart, Tokenizer, open_examples


def test_columns_of_a_table_are_named_in_place_of_a_schema(album: dict[str, list], tmp_path: Path) -> None:
    pixels = album.pop("pixels")
    pq.write_table(pa.table(album), tmp_path / "rows.parquet")
    with tarfile.open(tmp_path / "rows.tar", "w") as tar:
        for i, picture in enumerate(album["image"]):
            for kind, content in (("png", picture["bytes"]), ("mood", album["mood"][i].encode())):
                info = tarfile.TarInfo(f"{i}.{kind}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    for name in ("rows.parquet", "rows.tar"):
        dataset = open_examples(tmp_path / name, label="mood")
        assert [(row == one).all() for row, one in zip(dataset.inputs[0][:], pixels, strict=True)] == [True] * 9
        assert [dataset.label_names[one] for one in dataset.targets] == album["mood"]
        with pytest.raises(MissingPart):
            open_examples(tmp_path / name, "test", label="mood")
        names = open_examples(tmp_path / name, label="mood", label_names=["sad", "glad"]).label_names
        assert list(names) == ["sad", "glad"]
    texts = open_examples(tmp_path / "rows.tar", input="mood", vocabulary=50, length=3)
    assert (texts.inputs[0][:] == Tokenizer(50, 3).ids(album["mood"])).all()


def test_columns_without_a_table_and_beside_a_schema_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0], "y": [0]}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"give a schema for .* or input and label, not both"):
        open_examples(tmp_path / "rows.parquet", label="y", schema={"x": "drop"})
    with pytest.raises(InputError, match="give a schema"):
        open_examples(tmp_path / "rows.parquet")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"input='x' is for tables .* is a folder of pictures; leave it out"):
        open_examples(tmp_path / "folder", input="x")
