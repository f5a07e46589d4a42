"""Readers of idx files, folders of pictures and texts, and the door that tells them apart."""

import gzip
import hashlib
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato._check import InputError
from sfumato.data import (
    Tokenizer,
    class_folder,
    from_arrays,
    idx_images,
    load_examples,
    open_examples,
    pack,
    text_csv,
    write_examples,
    write_store,
)
from sfumato.data.examples.idx import read_idx
from sfumato.data.examples.tokens import hashed_id, tokens_of


def idx(array: np.ndarray, code: int = 8) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """MNIST's layout: train plain, test gzipped."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name, count in (("train", 12), ("t10k", 5)):
        images = rng.integers(0, 256, (count, 7, 6), np.uint8)
        labels = (np.arange(count) % (4 if name == "train" else 5)).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            if name == "train":
                (folder / f"{name}-{kind}-ubyte").write_bytes(idx(array))
            else:
                (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(array)))
    return folder


@pytest.fixture
def animals(tmp_path: Path, picture, save) -> Path:
    """animals/<class>/<n>.jpg|png: 3 classes with 2, 3 and 4 RGB pictures of 20×16."""
    root = tmp_path / "animals"
    for k, kind in enumerate(["cat", "dog", "eel"]):
        for n in range(2 + k):
            save(root / kind / f"{n}.{'png' if n % 2 else 'jpg'}", picture(10 * k + n, 20, 16, 3))
    return root


def test_idx_files_give_the_pictures_plain_or_packed(digits: Path) -> None:
    train, test = idx_images(digits), load_examples(digits, "test")
    assert train.input_shapes == ((7, 6, 1),)
    assert (len(train), len(test)) == (12, 5)
    assert train.num_classes == test.num_classes == 5
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(train.examples([11])[0][0][0, ..., 0], rng.integers(0, 256, (12, 7, 6), np.uint8)[11])
    np.testing.assert_array_equal(test.examples([3])[0][0][0, ..., 0], rng.integers(0, 256, (5, 7, 6), np.uint8)[3])


@pytest.mark.parametrize(("code", "dtype"), [(0x0B, np.int16), (0x0C, np.int32), (0x0D, np.float32)])
def test_other_types_of_idx_are_turned_to_native_order(tmp_path: Path, code: int, dtype: type) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    (tmp_path / "a.idx").write_bytes(idx(array, code))
    np.testing.assert_array_equal(read_idx(tmp_path / "a.idx"), array)


def test_broken_idx_files_are_refused_in_one_line(digits: Path) -> None:
    file = digits / "train-images-idx3-ubyte"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="has 503 bytes of values, 12×7×6 need 504"):
        idx_images(digits)
    file.write_bytes(b"GIF89a")
    with pytest.raises(InputError, match="not an idx file: it begins with 47494638"):
        idx_images(digits)
    file.write_bytes(whole[:9])
    with pytest.raises(InputError, match="cut off after 9 bytes"):
        idx_images(digits)
    file.unlink()
    with pytest.raises(InputError, match="has no train-images"):
        idx_images(digits)
    packed = digits / "t10k-labels-idx1-ubyte.gz"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        idx_images(digits, "test")


def test_a_folder_is_a_class_and_pictures_are_decoded_on_demand(animals: Path) -> None:
    data = class_folder(animals)
    assert list(data.label_names or ()) == ["cat", "dog", "eel"]
    assert data.labels.tolist() == [0] * 2 + [1] * 3 + [2] * 4
    assert "folders' names" in data.assumptions[0]
    with Image.open(animals / "dog" / "1.png") as image:
        np.testing.assert_array_equal(data.examples([3])[0][0][0], np.asarray(image))
    written = write_examples(data.subset([8, 0]), animals.parent / "packed")
    np.testing.assert_array_equal(written.examples([0])[0][0], data.examples([8])[0][0])
    stored = load_examples(pack(animals, animals.parent / "store", 8, 1) and animals.parent / "store")
    assert stored.input_shapes == ((8, 8, 1),)
    assert stored.labels.tolist() == data.labels.tolist()


def test_decoded_pictures_do_not_fill_the_memory(tmp_path: Path, picture, save) -> None:
    for n in range(60):
        save(tmp_path / "a" / f"{n}.png", picture(n, 64, 64, 3))
    data = class_folder(tmp_path, cache_bytes=4 * 64 * 64 * 3)
    data.examples([0])
    tracemalloc.start()
    for place in range(60):
        data.examples([place])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * 64 * 64 * 3  # all 60 would take 60


def test_test_pictures_get_the_numbers_of_the_training_classes(animals: Path, tmp_path: Path, picture, save) -> None:
    root = tmp_path / "divided"
    root.mkdir()
    animals.rename(root / "train")
    save(root / "test" / "eel" / "0.jpg", picture(1, 20, 16, 3))
    assert load_examples(root).num_classes == 3
    test = load_examples(root, "test")
    assert test.labels.tolist() == [2]
    assert list(test.label_names or ()) == ["cat", "dog", "eel"]
    save(root / "test" / "fox" / "0.jpg", picture(1, 20, 16, 3))
    with pytest.raises(InputError, match="class 'fox' is none of train"):
        load_examples(root, "test")


def test_bad_folders_are_refused_in_one_line(animals: Path, picture, save) -> None:
    with pytest.raises(InputError, match="not divided into train and test"):
        class_folder(animals, "test")
    with pytest.raises(InputError, match="class 'eel' is none of the declared"):
        class_folder(animals, label_names=["cat", "dog"])
    assert class_folder(animals, label_names=["eel", "dog", "cat"]).assumptions == ()
    save(animals / "cat" / "z.png", picture(1, 9, 16, 3))
    with pytest.raises(InputError, match=r"0\.jpg is 20×16 and .*z\.png is 9×16; .*--size 28"):
        class_folder(animals)
    assert class_folder(animals, size=8).input_shapes == ((8, 8, 3),)
    save(animals / "cat" / "z.png", picture(1, 20, 16, 1))
    with pytest.raises(InputError, match=r"is RGB and .* is grey; .*--channels"):
        class_folder(animals)
    (animals / "cat" / "z.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"z\.png is not a picture"):
        class_folder(animals)
    assert "z.png" in class_folder(animals, on_error="skip").notes[0]
    save(animals / "cat" / "deep" / "a.png", picture(1))
    with pytest.raises(InputError, match="both beside and in class folders"):
        class_folder(animals)
    with pytest.raises(InputError, match="no classes: it has no folders"):
        class_folder(animals / "dog")
    with pytest.raises(InputError, match="there is no folder"):
        class_folder(animals / "none")


def test_token_ids_are_blake2_of_the_token_and_nothing_else() -> None:
    tokenizer = Tokenizer(vocabulary=500, length=4)
    digest = hashlib.blake2b(b"rain", digest_size=8).digest()
    assert hashed_id("rain", 500) == 1 + int.from_bytes(digest, "little") % 499
    alone = tokenizer.ids(["RAIN rain"])
    assert alone[0].tolist() == [hashed_id("rain", 500)] * 2 + [0, 0]
    np.testing.assert_array_equal(Tokenizer(500, 4).ids(["a b c d e f", "RAIN rain"])[1], alone[0])
    ids = Tokenizer(2, 3).ids(["one two"])
    assert ids.tolist() == [[1, 1, 0]]


def test_hashed_ids_are_spread_evenly() -> None:
    counts = np.bincount([hashed_id(f"word{i}", 101) for i in range(20_000)], minlength=101)
    assert counts[0] == 0  # padding
    chi2 = ((counts[1:] - 200) ** 2 / 200).sum()
    assert 50 < chi2 < 170  # 99 degrees of freedom: 6 in 10^5 beyond either end


def test_a_vocabulary_file_is_public_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("the\nFear\n\nnaïve\n")
    tokenizer = Tokenizer(file, 5)
    assert tokenizer.size == 5
    assert tokenizer.ids(["The naïve fear nothing"]).tolist() == [[2, 4, 3, 1, 0]]
    assert "words.txt (3 tokens) is assumed to be public" in tokenizer.assumptions[0]
    file.write_text("a\nA\n")
    with pytest.raises(InputError, match="'a' twice"):
        Tokenizer(file, 5)
    file.write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        Tokenizer(file, 5)
    with pytest.raises(InputError, match="no vocabulary file"):
        Tokenizer(tmp_path / "none", 5)
    with pytest.raises(InputError, match="vocabulary must be a whole number >= 2, got 1"):
        Tokenizer(1, 5)


def test_tokens_are_words_numbers_and_signs() -> None:
    assert tokens_of("It's 3 O'Clock…NOW!") == ["it's", "3", "o'clock", "…", "now", "!"]


@pytest.mark.parametrize("header", ["", "Class Index,Title,Description\n", "title,text,label\n"])
def test_texts_are_found_with_or_without_a_header(tmp_path: Path, header: str) -> None:
    rows = [("3", "Fears, for pension", "after talks"), ("1", 'The "race"', "is on and on")]
    order = (1, 2, 0) if header.startswith("title") else (0, 1, 2)
    lines = [",".join('"' + row[i].replace('"', '""') + '"' for i in order) for row in rows]
    (tmp_path / "t.csv").write_text(header + "\n".join(lines) + "\n")
    data = load_examples(tmp_path / "t.csv", length=8, vocabulary=1000)
    assert data.labels.tolist() == [1, 0]
    assert list(data.label_names or ()) == ["1", "3"]
    assert data.vocabulary_sizes == (1000,)
    words = ["fears", ",", "for", "pension", "after", "talks"]
    assert data.examples([0])[0][0].tolist() == [[*(hashed_id(word, 1000) for word in words), 0, 0]]


def test_labels_found_in_order_of_their_numbers_and_declared_ones_in_theirs(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"{label}\ta few words here\n" for label in (10, 2, 10, 1)))
    assert list(text_csv(tmp_path / "t.tsv").label_names or ()) == ["1", "2", "10"]
    data = text_csv(tmp_path / "t.tsv", label_values=[10, 2, 1, 0])
    assert data.labels.tolist() == [0, 1, 0, 2]
    assert data.num_classes == 4
    assert data.assumptions == ()
    with pytest.raises(InputError, match=r"t\.tsv line 2: the label '2' is none of 10, 1; add it"):
        text_csv(tmp_path / "t.tsv", label_values=[10, 1])


def test_texts_written_to_a_store_are_those_in_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.writelines(f'{"bca"[i % 3]},"word{i} and word{i % 7}"\n' for i in range(9000))
    memory = text_csv(tmp_path / "t.csv.gz", length=6)
    stored = text_csv(tmp_path / "t.csv.gz", length=6, store=tmp_path / "store")
    assert stored.fingerprint() == memory.fingerprint() == open_examples(tmp_path / "store").fingerprint()
    assert load_examples(tmp_path / "store").vocabulary_sizes == (1 << 15,)
    assert memory.labels[:4].tolist() == [1, 2, 0, 1]
    assert not (tmp_path / "store.writing").exists()


def test_memory_does_not_grow_with_the_texts_of_a_store(tmp_path: Path) -> None:
    peaks = []
    for count in (5_000, 40_000):
        file = tmp_path / f"{count}.csv"
        with open(file, "w") as out:
            out.writelines(f"{i % 2},some words of text number {i % 100}\n" for i in range(count))
        tracemalloc.start()
        text_csv(file, length=64, store=tmp_path / f"store{count}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    ids = 35_000 * 64 * 8
    assert peaks[1] - peaks[0] < 0.15 * ids  # the labels alone stay in memory


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "is empty"),
        ("label,text\n", {}, "no examples"),
        ("1,some words\n2\n", {}, "line 2 has 1 columns, the first row has 2"),
        ("1,some words\n,other words\n", {}, "line 2: the label is missing"),
        ("1\n2\n", {}, "at least one other for text, got 1"),
        ("1,words\n", {"label": "topic"}, "has no header, so there is no column 'topic'"),
        ("label,text\n1,words\n", {"label": "topic"}, "no column 'topic'; it has label, text"),
        ("1,words\n", {"label": 2}, r"has the columns 0 … 1, got 2"),
        ("1,words\n", {"length": 0}, "length must be a whole number >= 1, got 0"),
        ("1,words\n", {"label_values": []}, "list the classes"),
        ("1,words\n", {"label_values": [1, "1"]}, "declared twice"),
        ("1,words\n", {"delimiter": ";;"}, "delimiter must be one character"),
        ("1,w\xe4rds\n".encode("latin-1"), {}, "is not UTF-8"),
    ],
)
def test_bad_texts_are_refused_in_one_line(tmp_path: Path, content, options, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as caught:
        text_csv(tmp_path / "t.csv", **options)
    assert "\n" not in str(caught.value)


def test_a_failed_reading_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,some words\n2\n")
    with pytest.raises(InputError, match="line 2"):
        text_csv(tmp_path / "t.csv", store=tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_fields_longer_than_the_csv_module_allows_are_read_and_blank_lines_passed_over(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1," + "a " * 100_000 + "\n" + "\n" * 5000 + "2,b\n")
    assert text_csv(tmp_path / "t.csv", length=3).labels.tolist() == [0, 1]


@pytest.mark.shared
def test_ag_news_is_read_as_published(shared: Path) -> None:
    data = load_examples(shared / "ag_news_test.csv", length=32)
    assert len(data) == 7600
    assert data.class_counts().tolist() == [1900] * 4
    (ids,), _ = data.examples([0])
    words = ["fears", "for", "t", "n", "pension", "after", "talks", "unions"]
    assert ids[0, :8].tolist() == [hashed_id(word, 1 << 15) for word in words]


def test_the_door_knows_stores_by_user_and_refuses_the_rest(tmp_path: Path) -> None:
    users = from_arrays(np.zeros((4, 3, 3), np.uint8), [0, 1, 1, 2], ["b", "a", "b", "c"])
    write_store(users, tmp_path / "users")
    assert load_examples(tmp_path / "users").labels.tolist() == [1, 0, 1, 2]
    for name, content, message in [
        ("a.txt", b"", "is none of: a folder"),
        ("a.npz", b"zip?", "cannot be read as npz"),
        ("a.parquet", b"", "needs a schema"),
        ("b.csv", b"age,sex,label\n3,m,1\n", "needs a schema"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            load_examples(tmp_path / name)
    with pytest.raises(InputError, match="there is nothing at"):
        load_examples(tmp_path / "none")
    with pytest.raises(InputError, match="part must be one of train, test"):
        load_examples(tmp_path / "users", "valid")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not divided into train and test"):
        load_examples(tmp_path / "users", "test")
