"""`load` opens each kind of data with its own reader, and lists what it understands where it cannot."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato._check import InputError
from sfumato.data import glyphs, open_users


def test_folders_stores_and_arrays_are_told_apart(flat_folder: Path, class_folder: Path, tmp_path: Path) -> None:
    assert open_users(flat_folder).input_shape == (16, 16, 1)
    assert open_users(class_folder, size=8, channels=1, labels="per_user").num_classes == 6
    packed = open_users(flat_folder, store=tmp_path / "store", size=16)
    assert list(open_users(tmp_path / "store").user_ids) == list(packed.user_ids)
    assert open_users(str(tmp_path / "store"), size=16, channels=1).input_shape == (16, 16, 1)
    with pytest.raises(InputError, match=r"packed as 16×16×1, asked for 8×8×1.*--size 8 --channels 1"):
        open_users(tmp_path / "store", size=8)
    np.savez(tmp_path / "a.npz", inputs=np.ones((2, 3)), users=[0, 1], labels=[0, 1])
    assert len(open_users(tmp_path / "a.npz")) == 2


def test_omniglot_is_recognised_in_both_forms(tmp_path: Path) -> None:
    images = np.zeros((4, 9, 9), np.uint8)
    np.savez(
        tmp_path / "o.npz", images=images, character=[0, 0, 1, 1], alphabet=[0, 0, 1, 1], drawer=[1, 2, 1, 2],
        alphabet_names=["Greek", "Latin"],
    )  # fmt: skip
    assert open_users(tmp_path / "o.npz", size=5).groups == ("Greek", "Latin")
    folder = tmp_path / "images_background" / "Greek" / "character01"
    folder.mkdir(parents=True)
    Image.fromarray(images[0]).save(folder / "0001_01.png")
    dataset = open_users(tmp_path / "images_background", channels=3)
    assert list(dataset.user_ids) == ["Greek/character01"]
    assert dataset.input_shape == (9, 9, 3)


def test_emnist_is_recognised_in_both_forms(tmp_path: Path) -> None:
    data = {"x": [[1.0] * 784], "y": [3]}
    (tmp_path / "leaf" / "train").mkdir(parents=True)
    (tmp_path / "leaf" / "train" / "a.json").write_text(json.dumps({"user_data": {"w": data}}))
    assert open_users(tmp_path / "leaf", size=14).input_shape == (14, 14, 1)
    h5py = pytest.importorskip("h5py")
    (tmp_path / "tff").mkdir()
    with h5py.File(tmp_path / "tff" / "fed_emnist_train.h5", "w") as file:
        file["examples/w/pixels"] = np.ones((1, 28, 28), np.float32)
        file["examples/w/label"] = [3]
    for path in (tmp_path / "tff", tmp_path / "tff" / "fed_emnist_train.h5"):
        assert open_users(path).examples(0)[0].min() == 255


def test_the_embedded_data_have_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path))
    monkeypatch.setattr("sfumato.data.readers.arrays.glyphs", partial(glyphs, images_per_identity=1))
    calls: list[tuple[int, int]] = []
    assert len(open_users("glyphs", progress=lambda *c: calls.append(c))) == 2300
    assert calls[-1] == (2300, 2300)


@pytest.mark.parametrize("kind", ["absent", "empty folder", "files only", "text file", "unfinished"])
def test_an_unknown_thing_gets_one_line_that_lists_what_is_understood(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "thing"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "files only":
        path.mkdir()
        (path / "a.txt").write_text("")
    elif kind == "text file":
        path.write_text("")
    elif kind == "unfinished":
        (tmp_path / "thing.partial").mkdir()
    message = "not finished" if kind == "unfinished" else "thing .*packed store, .*Omniglot.*npz.*EMNIST.*glyphs"
    with pytest.raises(InputError, match=message) as refusal:
        open_users(path)
    assert "\n" not in str(refusal.value)
