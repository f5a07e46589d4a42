"""`sfumato embed` and `sfumato search`: a file of embeddings, and the most similar ones."""

import hashlib
import io
import json
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sfumato import data
from sfumato._check import InputError
from sfumato.cli import embeddings as module
from sfumato.cli.models import rebuild
from sfumato.federated.embedding_files import EmbeddingTable, open_embeddings, provenance_of_run, refuse_another
from sfumato.federated.tasks import embed
from sfumato.metrics.neighbours import directions
from sfumato.runs import RunFolder

# embed: every example of a data set once, as the run's model sees it.


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


def test_rows_of_a_table_and_of_arrays_are_reported_by_their_number(sfumato, finished: Path, tmp_path: Path):
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


@pytest.mark.slow
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


# search: who is most alike, whatever the size of the gallery, and never the query itself unless asked.


def written(path: Path, vectors: np.ndarray, users: list[str] | None = None, **columns: list) -> Path:
    """A file as embed writes it."""
    rows = len(vectors)
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    about = {
        "user": users or [f"p{row // 2}" for row in range(rows)],
        "index": [row % 2 for row in range(rows)],
        "label": list(range(rows)),
        **columns,
    }
    about["embedding"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    pq.write_table(pa.table(about), path)
    return path


def brute(queries: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Cosines in double precision."""
    a, b = (
        each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries.astype(float), gallery.astype(float))
    )
    return a @ b.T


@pytest.mark.parametrize("blocks", [(7, 3, 1), (4, 3, 1 << 26), (16_384, 1024, 1 << 26)])
def test_neighbours_are_those_of_brute_force_whatever_the_blocks(sfumato, tmp_path: Path, monkeypatch, blocks):
    monkeypatch.setattr(module, "_ROWS", blocks[0])
    monkeypatch.setattr(module, "_ASKED", blocks[1])
    monkeypatch.setattr(module, "_HELD", blocks[2])
    random = np.random.default_rng(0)
    rows, asked = random.normal(size=(40, 6)), random.normal(size=(11, 6))
    gallery = written(tmp_path / "g.parquet", rows)
    queries = written(tmp_path / "q.parquet", asked, users=[f"q{i}" for i in range(11)])
    out = tmp_path / "n.parquet"
    told = json.loads(sfumato("search", gallery, "--query", queries, "--neighbours", 4, "--out", out, "--json").out)
    assert told == {"gallery": 40, "queries": 11, "out": str(out)}
    found = pq.read_table(out)
    cosines = brute(asked.astype(np.float32), rows.astype(np.float32))
    expected = np.argsort(-cosines, axis=1)[:, :4]
    assert found["rank"].to_pylist() == [1, 2, 3, 4] * 11
    assert found["label"].to_pylist() == expected.reshape(-1).tolist()
    assert found["query_user"].to_pylist() == [f"q{i}" for i in range(11) for _ in range(4)]
    assert found["user"].to_pylist() == [f"p{row // 2}" for row in expected.reshape(-1)]
    np.testing.assert_allclose(found["similarity"], np.take_along_axis(cosines, expected, 1).reshape(-1), atol=1e-6)


def test_the_gallery_is_read_once_for_many_queries_and_each_row_brought_to_length_1_once(
    sfumato, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(module, "_ROWS", 500)
    read, scaled = [], []
    before = directions

    def counted(vectors: np.ndarray, told) -> np.ndarray:
        scaled.append(len(vectors))
        return before(vectors, told)

    def vectors(self: EmbeddingTable, rows: int):
        read.append(rows)
        for _, block in self.blocks(rows):
            yield block

    monkeypatch.setattr("sfumato.metrics.neighbours.directions", counted)
    monkeypatch.setattr(EmbeddingTable, "vectors", vectors)
    random = np.random.default_rng(5)
    gallery = written(tmp_path / "g.parquet", random.normal(size=(700, 3)))
    queries = written(tmp_path / "q.parquet", random.normal(size=(2500, 3)))
    assert sfumato("search", gallery, "--query", queries, "--out", tmp_path / "n.parquet").code == 0
    assert len(read) == 1
    assert sum(scaled) == 700 + 2500


def test_a_query_that_is_in_the_gallery_leaves_itself_out_unless_asked(sfumato, tmp_path: Path):
    rows = np.random.default_rng(1).normal(size=(8, 5))
    gallery = written(tmp_path / "g.parquet", rows)
    others = json.loads(sfumato("search", gallery, "--query", gallery, "--neighbours", 7, "--json").out)["neighbours"]
    assert len(others) == 8 * 7
    assert all((row["query_user"], row["query_index"]) != (row["user"], row["index"]) for row in others)
    words = ("search", gallery, "--query", gallery, "--neighbours", 1, "--itself", "--json")
    itself = json.loads(sfumato(*words).out)["neighbours"]
    assert all((row["query_user"], row["query_index"]) == (row["user"], row["index"]) for row in itself)


def test_a_stranger_of_the_same_name_and_a_copy_of_the_same_picture_are_found(sfumato, tmp_path: Path):
    rows = np.eye(4)
    gallery = written(tmp_path / "g.parquet", np.concatenate([rows, rows[:1]]))  # p2's first is a copy of p0's
    of_copy = json.loads(sfumato("search", gallery, "--user", "p2", "--neighbours", 1, "--json").out)["neighbours"]
    assert [(row["user"], row["index"]) for row in of_copy] == [("p0", 0)]
    stranger = written(tmp_path / "q.parquet", np.array([[0.9, 0.1, 0.0, 0.0]]), users=["p0"])
    words = ("search", gallery, "--query", stranger, "--neighbours", 1, "--json")
    assert json.loads(sfumato(*words).out)["neighbours"][0]["user"] == "p0"


def test_all_rows_of_a_user_ask_and_people_see_the_first_ten(sfumato, tmp_path: Path):
    rows = np.random.default_rng(2).normal(size=(30, 5))
    gallery = written(tmp_path / "g.parquet", rows, users=["a"] * 12 + ["b"] * 18, index=list(range(30)))
    told = sfumato("search", gallery, "--user", "a", "--neighbours", 2).out
    assert "the first 10 of 12 queries" in told
    assert told.count(" 1  ") >= 10
    assert len(json.loads(sfumato("search", gallery, "--user", "a", "--json").out)["neighbours"]) == 12 * 5


def test_a_small_gallery_gives_all_that_it_has(sfumato, tmp_path: Path):
    gallery = written(tmp_path / "g.parquet", np.eye(3))
    found = json.loads(sfumato("search", gallery, "--query", gallery, "--json").out)["neighbours"]
    assert [row["rank"] for row in found] == [1, 2] * 3


def test_a_picture_is_embedded_by_the_run_and_finds_itself_first(sfumato, photos, finished: Path, tmp_path: Path):
    people, out = photos(3, 2), tmp_path / "e.parquet"
    assert sfumato("embed", finished, people, "--out", out).code == 0
    words = ("search", out, "--query", people / "p01" / "1.png", "--run", finished, "--neighbours", 1, "--json")
    row = json.loads(sfumato(*words).out)["neighbours"][0]
    assert (row["user"], row["index"]) == ("p01", 1)
    assert row["similarity"] == pytest.approx(1, abs=1e-5)


def test_a_gallery_of_another_model_is_refused_by_both_digests(
    sfumato, photos, finished: Path, people: Path, tmp_path: Path
):
    trained, other, out, theirs = photos(3, 2), tmp_path / "other", tmp_path / "e.parquet", tmp_path / "o.parquet"
    words = ("--rounds", 1, "--cohort", 3, "--cohort.users-per-client", 2, "--client.epochs", 1)
    words = (*words, "--embedding-dim", 8, "--noise", 1, "--seed", 4)
    assert sfumato("fedemb", "--data", people, *words, "--out", other).code == 0
    assert sfumato("embed", finished, trained, "--out", out).code == 0
    assert sfumato("embed", other, trained, "--out", theirs).code == 0
    picture = trained / "p01" / "1.png"
    line = sfumato("search", out, "--query", picture, "--run", other).line
    for run in (finished, other):
        assert hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()[:12] in line
    assert "give --run the run that made it" in line
    assert "embed both with one run" in sfumato("search", out, "--query", theirs).line
    assert sfumato("search", out, "--query", picture, "--run", finished).err == ""
    assert sfumato("search", out, "--query", out).err == ""


def test_a_gallery_of_pictures_of_another_size_is_refused(sfumato, photos, finished: Path, tmp_path: Path):
    run, out, trained = tmp_path / "run", tmp_path / "e.parquet", photos(2, 2)
    shutil.copytree(finished, run)
    assert sfumato("embed", finished, trained, "--out", out).code == 0
    plan = json.loads((run / "plan.json").read_text())
    plan["about"]["input_shape"] = [16, 12, 1]
    plan["about"]["model"] = "lenet"
    (run / "plan.json").write_text(json.dumps(plan))
    made = provenance_of_run(RunFolder(run), plan["about"])
    with pytest.raises(InputError, match=r"pictures of 12×12×1 and .* has 16×12×1"):
        refuse_another((out, open_embeddings(out, "embedding").provenance), (run, made), remedy="")


def test_a_file_that_does_not_say_who_made_it_is_searched_with_one_warning(
    sfumato, photos, finished: Path, tmp_path: Path
):
    trained, out, old = photos(3, 2), tmp_path / "e.parquet", tmp_path / "old.parquet"
    assert sfumato("embed", finished, trained, "--out", out).code == 0
    pq.write_table(pq.read_table(out).replace_schema_metadata(None), old)
    for words in (
        (old, "--query", trained / "p01" / "1.png", "--run", finished),
        (old, "--query", out),
        (out, "--query", old),
    ):
        told = sfumato("search", *words, "--json")
        assert told.code == 0
        assert told.err.count("\n") == 1
        assert "old.parquet does not say which model made its embeddings" in told.err
        assert json.loads(told.out)["neighbours"]


def test_neighbours_are_reported_by_their_files(sfumato, photos, finished: Path, tmp_path: Path):
    trained, out = photos(3, 2), tmp_path / "e.parquet"
    assert sfumato("embed", finished, trained, "--out", out).code == 0
    words = ("search", out, "--query", trained / "p01" / "1.png", "--run", finished, "--neighbours", 1)
    assert "p01/1.png" in sfumato(*words).out.splitlines()[-1]


def test_a_refusal_to_search_is_one_line_and_leaves_no_file(sfumato, tmp_path: Path, finished: Path):
    gallery = written(tmp_path / "g.parquet", np.eye(4))
    out = tmp_path / "n.parquet"

    def line(*words: object) -> str:
        return sfumato("search", *words, "--out", out).line

    assert "--query FILE" in line(gallery)
    assert "--query FILE" in line(gallery, "--query", gallery, "--user", "p0")
    assert "no user 'nobody'" in line(gallery, "--user", "nobody")
    assert "3 dimensions and the gallery 4" in line(gallery, "--query", written(tmp_path / "o.parquet", np.eye(3)))
    assert "row 1 is not finite" in line(
        gallery, "--query", written(tmp_path / "x.parquet", np.diag([1, np.nan, 1, 1]))
    )
    assert "row 2 is zero" in line(written(tmp_path / "z.parquet", np.diag([1, 1, 0, 1])), "--user", "p0")
    assert "no rows" in line(written(tmp_path / "e.parquet", np.eye(4)[:0], index=[], label=[]), "--user", "p0")
    assert "no column 'vector'" in line(gallery, "--user", "p0", "--column", "vector")
    assert "holds int64" in line(gallery, "--user", "p0", "--column", "index")
    assert "neighbours" in line(gallery, "--user", "p0", "--neighbours", 0)
    assert "also --run" in line(gallery, "--query", tmp_path / "face.png")
    assert "face.png" in line(gallery, "--query", tmp_path / "face.png", "--run", finished)
    assert "leave it out" in line(gallery, "--user", "p0", "--run", finished)
    (tmp_path / "broken.parquet").write_bytes(b"no")
    assert "broken.parquet" in line(tmp_path / "broken.parquet", "--user", "p0")
    assert "none.parquet" in line(tmp_path / "none.parquet", "--user", "p0")
    assert not out.exists()


def test_embeddings_of_other_lengths_or_with_holes_are_refused(tmp_path: Path):
    for name, rows, said in (
        ("ragged", [[1.0, 2.0], [1.0]], "different lengths"),
        ("none", [[1.0], None], "row 1 has no embedding"),
        ("hole", [[1.0, None]], "lacks values"),
    ):
        file = tmp_path / f"{name}.parquet"
        kind = pa.list_(pa.float32())
        pq.write_table(pa.table({"user": ["a"] * len(rows), "embedding": pa.array(rows, kind)}), file)
        with pytest.raises(ValueError, match=said):
            list(open_embeddings(file, "embedding").blocks(10))
