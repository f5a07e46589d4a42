"""embed: every example of a data set once, as the run's model sees it."""

import hashlib
import io
import json
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sfumato import data
from sfumato.cli.models import rebuild
from sfumato.federated.tasks import embed


@pytest.mark.parametrize("batch", [5, 256])
def test_the_file_holds_what_the_model_says(sfumato, people: Path, finished: Path, tmp_path: Path, batch):
    out = tmp_path / "people.parquet"
    told = json.loads(sfumato("embed", finished, people, "--out", out, "--batch-size", batch, "--json").out)
    assert told["examples"] == 64
    table = pq.read_table(out)
    assert table.column_names == ["user", "index", "file", "label", "label_name", "embedding"]
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[8]"
    assert table["user"].to_pylist() == [f"p{user:02d}" for user in range(16) for _ in range(4)]
    assert table["index"].to_pylist() == [0, 1, 2, 3] * 16
    assert table["file"].to_pylist() == [f"p{user:02d}/{i}.png" for user in range(16) for i in range(4)]
    made = json.loads(table.schema.metadata[b"sfumato"])["made_by"]
    digest = hashlib.sha256((finished / "model.safetensors").read_bytes()).hexdigest()
    assert made == {"model": digest, "input_shape": [12, 12, 1]}
    assert table["label_name"].to_pylist() == table["user"].to_pylist()
    vectors = np.array(table["embedding"].to_pylist(), np.float32)
    about = json.loads((finished / "plan.json").read_text())["about"]
    model = rebuild(about, finished / "model.safetensors")
    expected = np.concatenate([rows for _, _, rows in embed(model, data.open_users(people))])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_embeddings_and_neighbours_are_for_their_owner_alone(sfumato, people: Path, finished: Path, tmp_path: Path):
    out, found = tmp_path / "people.parquet", tmp_path / "found.parquet"
    assert sfumato("embed", finished, people, "--out", out).code == 0
    assert sfumato("search", out, "--query", out, "--out", found).code == 0
    assert [path.stat().st_mode & 0o077 for path in (out, found)] == [0, 0]


def test_rows_of_a_table_and_of_arrays_are_told_by_their_number(sfumato, finished: Path, tmp_path: Path):
    pixels, who = np.arange(4 * 144, dtype=np.uint8).reshape(4, 12, 12), ["bo", "al", "bo", "al"]
    files = [io.BytesIO() for _ in who]
    for file, each in zip(files, pixels, strict=True):
        Image.fromarray(each).save(file, "PNG")
    pq.write_table(pa.table({"image": [file.getvalue() for file in files], "who": who}), tmp_path / "t.parquet")
    np.savez(tmp_path / "a.npz", images=pixels, users=np.array(who))
    for source, words in ((tmp_path / "t.parquet", ("--user", "who")), (tmp_path / "a.npz", ())):
        out = tmp_path / f"{source.stem}-e.parquet"
        assert sfumato("embed", finished, source, *words, "--out", out).code == 0
        assert pq.read_table(out)["row"].to_pylist() == [1, 3, 0, 2]
        assert pq.read_table(out)["user"].to_pylist() == ["al", "al", "bo", "bo"]


def test_pictures_come_to_the_size_of_the_run(sfumato, photos, finished: Path, tmp_path: Path):
    other = photos(2, 2, side=30)
    assert sfumato("embed", finished, other, "--out", tmp_path / "o.parquet").code == 0
    assert pq.read_metadata(tmp_path / "o.parquet").num_rows == 4


def test_a_shared_head_is_no_part_of_the_model(sfumato, people: Path, tmp_path: Path):
    words = ("--rounds", 1, "--cohort", 3, "--embedding-dim", 8, "--noise", 0)
    assert sfumato("fedavg", "--data", people, *words, "--out", tmp_path / "run").code == 0
    assert sfumato("embed", tmp_path / "run", people, "--out", tmp_path / "e.parquet").code == 0


def test_what_is_there_is_not_overwritten(sfumato, people: Path, finished: Path, tmp_path: Path):
    (tmp_path / "e.parquet").write_bytes(b"mine")
    assert "exists" in sfumato("embed", finished, people, "--out", tmp_path / "e.parquet").line
    assert (tmp_path / "e.parquet").read_bytes() == b"mine"


def test_a_name_of_another_format_is_refused_as_what_is_written_is_parquet(sfumato, people: Path, finished: Path):
    line = sfumato("embed", finished, people, "--out", "e.CSV").line
    assert "e.CSV would hold Parquet and no CSV; name it e.parquet" in line


@pytest.mark.slow
def test_a_command_that_is_ended_leaves_no_half_written_embeddings(process, finished: Path, tmp_path: Path):
    np.savez(tmp_path / "many.npz", images=np.zeros((60_000, 12, 12), np.uint8), users=np.arange(60_000) // 6)
    child = process("embed", finished, tmp_path / "many.npz", "--out", tmp_path / "e.parquet")
    until = time.monotonic() + 100
    while not list(tmp_path.glob(".e.parquet.*")) and time.monotonic() < until:
        assert child.poll() is None, child.errors
        time.sleep(0.001)
    child.send_signal(signal.SIGTERM)
    assert child.wait() == 130
    assert child.errors == "sfumato: stopped\n"
    assert not list(tmp_path.glob("*e.parquet*"))


def test_a_refusal_is_one_line_and_leaves_no_file(sfumato, photos, people: Path, finished: Path, tmp_path: Path):
    out = tmp_path / "e.parquet"
    broken = photos(2, 2)
    (broken / "p00" / "1.png").write_bytes(b"no")
    assert "p00/1.png" in sfumato("embed", finished, broken, "--out", out).line
    assert "plan.json" in sfumato("embed", people, people, "--out", out).line
    assert "there is nothing at" in sfumato("embed", finished, tmp_path / "none", "--out", out).line
    assert "no folder" in sfumato("embed", finished, people, "--out", tmp_path / "a" / "b.parquet").line
    assert "device" in sfumato("embed", finished, people, "--out", out, "--device", "abacus").line
    assert not out.exists()


def test_a_run_of_a_classifier_is_refused_by_what_it_is(sfumato, people: Path, tmp_path: Path):
    run, out = tmp_path / "run", tmp_path / "e.parquet"
    words = ("--noise", 1, "--steps", 1, "--cohort", 2, "--model", "lenet300_100", "--test-share", 0)
    assert sfumato("dpsgd", "--data", people, "--public-classes", *words, "--out", run).code == 0
    assert (
        "is a run of sfumato dpsgd, whose model gives classes or numbers"
        in sfumato("embed", run, people, "--out", out).line
    )
