"""Federated EMNIST: the two parts of a writer are one user, and numbers become bytes without a shift."""

import builtins
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import UserDataset, open_users

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
