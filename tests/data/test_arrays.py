"""Arrays: npz, npy and idx files, and federated EMNIST."""

import builtins
import gzip
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import UserDataset, open_examples, open_users
from sfumato.data.readers.arrays import read_idx

# Users in an npz file: what the keys mean, and damaged files in one line.


def test_arrays_in_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=[0, 1, 0, 1, 0, 1], users=["b", "a", "b", "a", "c", "c"])
    dataset = open_users(tmp_path / "a.npz")
    assert (dataset.examples(0)[0] == images[[1, 3]]).all()
    assert open_users(tmp_path / "a.npz", size=4, channels=1).input_shape == (4, 4, 1)
    np.savez(tmp_path / "b.npz", inputs=np.ones((3, 2), np.float32), users=[5, 5, 9])
    own = open_users(tmp_path / "b.npz")
    assert [own.examples(u)[1].tolist() for u in range(2)] == [[0, 0], [1]]  # each user is a class
    with pytest.raises(InputError, match="for pictures"):
        open_users(tmp_path / "b.npz", size=4)


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "keys.npz", pixels=np.ones(3))
    np.savez(tmp_path / "pickle.npz", images=np.array([{}], object), users=[0])
    np.savez(tmp_path / "shares.npz", images=np.ones((4, 8, 8), np.float32), users=[0, 0, 1, 1])
    np.savez(tmp_path / "good.npz", inputs=np.random.default_rng(0).random((50, 50)), users=np.arange(50))
    content = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[:3000])
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "flipped.npz").write_bytes(content[:5000] + b"????" + content[5004:])
    for name, message in [
        ("shares", r"must be uint8.*got float32 \(4, 8, 8\); scale pixels.*name the array inputs"),
        ("keys", "has the keys pixels; needed are"), ("pickle", "cannot be read as npz"), ("cut", "cannot be read"),
        ("text", "cannot be read"), ("flipped", "cannot be read"), ("absent", "there is no file"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=message) as refusal:
            open_users(tmp_path / f"{name}.npz")
        assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="has the keys pixels; needed are"):
        open_users(tmp_path / "keys.npz")


# Arrays in npz and npy files: mapped where they lie, both parts with the same classes.


def test_mapped_files_are_read_where_they_lie(tmp_path: Path, pictures) -> None:
    np.save(tmp_path / "x_train.npy", pictures[0])
    np.save(tmp_path / "y_train.npy", pictures[1].astype(np.uint8))
    np.save(tmp_path / "x_test.npy", pictures[0][:5])
    np.save(tmp_path / "y_test.npy", np.full(5, 6))
    data = open_examples(tmp_path)
    base = data.inputs[0]
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert data.num_classes == open_examples(tmp_path, "test").num_classes == 7
    np.testing.assert_array_equal(data.examples([9])[0][0][0, ..., 0], pictures[0][9])


def test_both_parts_of_an_npz_number_their_classes_similar(tmp_path: Path) -> None:
    x = np.zeros((3, 2))
    np.savez(tmp_path / "a.npz", x_train=x, y_train=["b", "c", "d"], x_test=x, y_test=["a", "d", "d"])
    train, test = open_examples(tmp_path / "a.npz"), open_examples(tmp_path / "a.npz", "test")
    assert train.targets.tolist() == [1, 2, 3]
    assert test.targets.tolist() == [0, 3, 3]
    assert list(train.label_names or ()) == list(test.label_names or ()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("keys", [("x", "y"), ("inputs", "labels"), ("images", "labels"), ("X", "y")])
def test_an_npz_with_one_part_is_for_training(tmp_path: Path, keys: tuple[str, str]) -> None:
    np.savez(tmp_path / "a.npz", **dict(zip(keys, (np.zeros((3, 2)), np.array([0, 1, 1])), strict=True)))
    assert len(open_examples(tmp_path / "a.npz")) == 3
    with pytest.raises(InputError, match="one part only"):
        open_examples(tmp_path / "a.npz", "test")


@pytest.mark.shared
def test_mnist_is_read_as_published(shared: Path) -> None:
    train, test = open_examples(shared / "mnist.npz"), open_examples(shared / "mnist.npz", "test")
    assert (len(train), len(test)) == (60_000, 10_000)
    assert train.input_shapes == ((28, 28, 1),)
    assert train.num_classes == 10
    assert train.class_counts()[:3].tolist() == [5923, 6742, 5958]  # as counted by LeCun et al.
    assert train.targets[:5].tolist() == [5, 0, 4, 1, 9]


# MNIST's files as distributed: the pictures come back, and a broken file is one line.


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


def test_idx_files_give_the_pictures_plain_or_packed(digits: Path) -> None:
    train, test = open_examples(digits), open_examples(digits, "test")
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
        open_examples(digits)
    file.write_bytes(b"GIF89a")
    with pytest.raises(InputError, match="not an idx file: it begins with 47494638"):
        open_examples(digits)
    file.write_bytes(whole[:9])
    with pytest.raises(InputError, match="cut off after 9 bytes"):
        open_examples(digits)
    file.unlink()
    with pytest.raises(InputError, match="has no train-images"):
        open_examples(digits)
    packed = digits / "t10k-labels-idx1-ubyte.gz"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        open_examples(digits, "test")


# Federated EMNIST: the two parts of a writer are one user, and numbers become bytes without a shift.

Parts = dict[str, tuple[np.ndarray, np.ndarray]]


def _part(seed: int, writers: dict[str, int]) -> Parts:
    rng = np.random.default_rng(seed)
    return {
        name: ((rng.integers(0, 256, (n, 28, 28)) / 255).astype(np.float32), rng.integers(0, 62, n))
        for name, n in writers.items()
    }


TRAIN = _part(0, {"f0003_10": 5, "f0000_14": 9, "f0001_41": 4})
TEST = _part(1, {"f0000_14": 2, "f0003_10": 1, "f0009_00": 3})


@pytest.fixture
def tff(tmp_path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    for name, parts in (("train", TRAIN), ("test", TEST)):
        with h5py.File(tmp_path / f"fed_emnist_{name}.h5", "w") as file:
            for writer, (pixels, labels) in parts.items():
                file[f"examples/{writer}/pixels"] = pixels
                file[f"examples/{writer}/label"] = labels.astype(np.int32)
    return tmp_path


@pytest.fixture
def leaf(tmp_path: Path) -> Path:
    for name, parts in (("train", TRAIN), ("test", TEST)):
        for number, (writer, (pixels, labels)) in enumerate(parts.items()):  # a file a writer
            data = {"x": pixels.reshape(-1, 784).tolist(), "y": labels.tolist()}
            path = tmp_path / "leaf" / name / f"all_data_{number}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"users": [writer], "num_samples": [len(labels)], "user_data": {writer: data}}))
    return tmp_path / "leaf"


def _check(dataset: UserDataset) -> None:
    assert list(dataset.user_ids) == ["f0000_14", "f0001_41", "f0003_10", "f0009_00"]
    assert dataset.num_classes == 62
    assert "".join(dataset.label_names or ()) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    for user, name in enumerate(dataset.user_ids):
        both = [part[name] for part in (TRAIN, TEST) if name in part]
        inputs, labels = dataset.examples(user)
        assert inputs.dtype == np.uint8
        assert (labels == np.concatenate([part[1] for part in both])).all()
        assert (inputs[..., 0] == np.round(np.concatenate([part[0] for part in both]) * 255)).all()


def test_both_formats_merge_the_parts_of_a_writer(tff: Path, leaf: Path) -> None:
    _check(open_users(tff))
    _check(open_users(leaf))
    _check(open_users([*sorted(leaf.glob("train/*.json")), *sorted(leaf.glob("test/*.json"))]))


def test_both_formats_go_to_a_store_writer_by_writer(tff: Path, leaf: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    _check(open_users(tff, store=tmp_path / "a", progress=lambda *c: calls.append(c)))
    _check(open_users(leaf, store=tmp_path / "b"))
    _check(open_users(tmp_path / "a", verify=True))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_authors_class_split_has_no_class_in_common(tff: Path) -> None:
    train, test = open_users(tff, classes=range(36)), open_users(tff, classes=range(36, 62))
    assert (train.num_classes, test.num_classes) == (36, 26)
    assert "".join(test.label_names or ()) == "abcdefghijklmnopqrstuvwxyz"
    assert train.num_examples + test.num_examples == sum(len(part[1]) for p in (TRAIN, TEST) for part in p.values())


def test_ink_and_paper_are_exchanged_on_request(leaf: Path) -> None:
    assert (open_users(leaf).examples(0)[0] == 255 - open_users(leaf, invert=True).examples(0)[0]).all()


def test_without_h5py_the_remedy_is_named(tff: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: object, **options: object) -> object:
        if name == "h5py":
            raise ImportError(name)
        return real(name, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "h5py")
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match="pip install h5py"):
        open_users(tff)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", 'has no "user_data"'),
        ('{"user_data": {"w": {"x": [[0.5]], "y": [1]}}}', "should be"),
        ('{"user_data": {"w": {"x": ["a"], "y": [1]}}}', "no x and y"),
        (json.dumps({"user_data": {"w": {"x": [[2.0] * 784], "y": [1]}}}), r"outside of \[0, 1\]"),
        (json.dumps({"user_data": {"w": {"x": [[float("nan")] * 784], "y": [1]}}}), r"outside of \[0, 1\]"),
        (json.dumps({"user_data": {"w": {"x": [[1.0] * 784], "y": [62]}}}), "label outside"),
        (json.dumps({"user_data": {"w": {"x": [[1.0] * 784], "y": [1, 2]}}}), "1 images and 2 labels"),
        (json.dumps({"user_data": {}}), "no users"),
    ],
)
def test_bad_json_is_one_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(content)
    with pytest.raises(InputError, match=message) as refusal:
        open_users(tmp_path)
    assert "\n" not in str(refusal.value)


def test_bad_h5_and_missing_files_are_one_line(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with pytest.raises(InputError, match=r"is none of: .*federated EMNIST"):
        open_users(tmp_path)
    (tmp_path / "fed_emnist_train.h5").write_text("not hdf5")
    with pytest.raises(InputError, match="not a federated EMNIST file"):
        open_users(tmp_path)
    with h5py.File(tmp_path / "fed_emnist_train.h5", "w") as file:
        file["examples/w/label"] = [1]
    with pytest.raises(InputError, match=r"writer w .* cannot be read"):
        open_users(tmp_path)
