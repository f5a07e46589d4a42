"""Texts with a class each: every header and label, in memory or in a store, and bad rows in one line."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from sfumato._check import InputError
from sfumato.data import open_examples
from sfumato.data.text import hashed_id


@pytest.mark.parametrize("header", ["", "Class Index,Title,Description\n", "title,text,label\n"])
def test_texts_are_found_with_or_without_a_header(tmp_path: Path, header: str) -> None:
    rows = [("3", "Fears, for pension", "after talks"), ("1", 'The "race"', "is on and on")]
    order = (1, 2, 0) if header.startswith("title") else (0, 1, 2)
    lines = [",".join('"' + row[i].replace('"', '""') + '"' for i in order) for row in rows]
    (tmp_path / "t.csv").write_text(header + "\n".join(lines) + "\n")
    data = open_examples(tmp_path / "t.csv", length=8, vocabulary=1000)
    assert data.targets.tolist() == [1, 0]
    assert list(data.label_names or ()) == ["1", "3"]
    assert data.vocabulary_sizes == (1000,)
    words = ["fears", ",", "for", "pension", "after", "talks"]
    assert data.examples([0])[0][0].tolist() == [[*(hashed_id(word, 1000) for word in words), 0, 0]]


def test_labels_found_in_order_of_their_numbers_and_declared_ones_in_theirs(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"{label}\ta few words here\n" for label in (10, 2, 10, 1)))
    assert list(open_examples(tmp_path / "t.tsv").label_names or ()) == ["1", "2", "10"]
    data = open_examples(tmp_path / "t.tsv", label_names=[10, 2, 1, 0])
    assert data.targets.tolist() == [0, 1, 0, 2]
    assert data.num_classes == 4
    assert data.assumptions == ()
    with pytest.raises(InputError, match=r"t\.tsv line 2: the label '2' is none of 10, 1; add it"):
        open_examples(tmp_path / "t.tsv", label_names=[10, 1])


def test_texts_written_to_a_store_are_those_in_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.writelines(f'{"bca"[i % 3]},"word{i} and word{i % 7}"\n' for i in range(9000))
    memory = open_examples(tmp_path / "t.csv.gz", length=6)
    stored = open_examples(tmp_path / "t.csv.gz", length=6, store=tmp_path / "store")
    assert stored.fingerprint() == memory.fingerprint() == open_examples(tmp_path / "store").fingerprint()
    assert open_examples(tmp_path / "store").vocabulary_sizes == (1 << 15,)
    assert memory.targets[:4].tolist() == [1, 2, 0, 1]
    assert not (tmp_path / "store.writing").exists()


def test_memory_does_not_grow_with_the_texts_of_a_store(tmp_path: Path) -> None:
    peaks = []
    for count in (5_000, 40_000):
        file = tmp_path / f"{count}.csv"
        with open(file, "w") as out:
            out.writelines(f"{i % 2},some words of text number {i % 100}\n" for i in range(count))
        tracemalloc.start()
        open_examples(file, length=64, store=tmp_path / f"store{count}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    ids = 35_000 * 64 * 8
    assert peaks[1] - peaks[0] < 0.15 * ids  # the labels alone stay in memory


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {"length": 9}, "is empty"),
        ("label,text\n", {"length": 9}, "no examples"),
        ("1,some words\n2\n", {}, "line 2 has 1 columns, the first row has 2"),
        ("1,some words\n,other words\n", {"length": 9}, "line 2: the label is missing"),
        ("1\n2\n", {"length": 9}, "at least one other for text, got 1"),
        ("1,words\n", {"label": "topic", "text": [1]}, "has no header, so there is no column 'topic'"),
        ("label,text\n1,words\n", {"label": "topic", "text": [1]}, "no column 'topic'; it has label, text"),
        ("1,words\n", {"label": 2}, r"has the columns 0 … 1, got 2"),
        ("1,words\n", {"length": 0}, "length must be a whole number >= 1, got 0"),
        ("1,words\n", {"label_names": [], "length": 9}, "list the classes"),
        ("1,words\n", {"label_names": [1, "1"], "length": 9}, "declared twice"),
        ("1,words\n", {"delimiter": ";;"}, "delimiter must be one character"),
        ("1,w\xe4rds\n".encode("latin-1"), {}, "is not UTF-8 at line 1"),
        (("1,words\n" * 6 + "1,w\xe4rds\n").encode("latin-1"), {}, "is not UTF-8 at line 7"),
    ],
)
def test_bad_texts_are_refused_in_one_line(tmp_path: Path, content, options, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as caught:
        open_examples(tmp_path / "t.csv", **options)
    assert "\n" not in str(caught.value)


def test_a_failed_reading_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,some words\n2\n")
    with pytest.raises(InputError, match="line 2"):
        open_examples(tmp_path / "t.csv", store=tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_fields_longer_than_the_csv_module_allows_are_read_and_blank_lines_passed_over(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1," + "a " * 100_000 + "\n" + "\n" * 5000 + "2,b\n")
    assert open_examples(tmp_path / "t.csv", length=3).targets.tolist() == [0, 1]


@pytest.mark.shared
def test_ag_news_is_read_as_published(shared: Path) -> None:
    data = open_examples(shared / "ag_news_test.csv", length=32)
    assert len(data) == 7600
    assert data.class_counts().tolist() == [1900] * 4
    (ids,), _ = data.examples([0])
    words = ["fears", "for", "t", "n", "pension", "after", "talks", "unions"]
    assert ids[0, :8].tolist() == [hashed_id(word, 1 << 15) for word in words]
