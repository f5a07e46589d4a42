"""Omniglot as its authors publish it: who is a user, what is a class, which group it is of."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato._check import InputError
from sfumato.data import open_users, split_groups


@pytest.fixture
def omniglot(tmp_path: Path) -> Path:
    """Two alphabets of 2 and 3 characters by 4 drawers; one-bit pictures of 21×21, as in the original."""
    root = tmp_path / "images_background"
    rng = np.random.default_rng(0)
    number = 0
    for alphabet, count in (("Greek", 2), ("Anglo-Saxon_Futhorc", 3)):
        for character in range(1, count + 1):
            number += 1
            for drawer in range(1, 5):
                path = root / alphabet / f"character{character:02}" / f"{number:04}_{drawer:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.random((21, 21)) < 0.9).save(path)
    return root


def test_characters_are_users_and_alphabets_are_groups(omniglot: Path) -> None:
    dataset = open_users(omniglot)
    names = [f"Anglo-Saxon_Futhorc/character0{c}" for c in (1, 2, 3)] + ["Greek/character01", "Greek/character02"]
    assert list(dataset.user_ids) == list(dataset.label_names or ()) == names
    assert dataset.sizes.tolist() == [4] * 5
    assert dataset.input_shape == (21, 21, 1)
    assert dataset.groups == ("Anglo-Saxon_Futhorc", "Greek")
    image = np.asarray(Image.open(omniglot / "Greek" / "character01" / "0001_03.png"))
    assert (dataset.examples(3)[0][2, ..., 0] == np.where(image, 255, 0)).all()  # paper is 255
    assert (open_users(omniglot, invert=True).examples(3)[0][2, ..., 0] == np.where(image, 0, 255)).all()


def test_drawers_are_users_who_share_the_characters(omniglot: Path) -> None:
    dataset = open_users(omniglot, users="drawer", size=14)
    assert list(dataset.user_ids) == [f"drawer0{d}" for d in (1, 2, 3, 4)]
    assert all(dataset.examples(u)[1].tolist() == [0, 1, 2, 3, 4] for u in range(4))
    assert dataset.input_shape == (14, 14, 1)
    parts = split_groups(dataset, test=["Greek"])
    assert len(parts.train) == len(parts.test) == 4
    assert parts.test.sizes.tolist() == [2] * 4


def test_files_that_are_not_omniglots_are_named(omniglot: Path) -> None:
    Image.new("L", (21, 21)).save(omniglot / "Greek" / "character01" / "extra.png")
    with pytest.raises(InputError, match=r"extra\.png is not Omniglot's"):
        open_users(omniglot)
    assert open_users(omniglot, on_error="skip").num_examples == 20
    with pytest.raises(InputError, match="images_background or images_evaluation"):
        open_users(omniglot.parent)


def _npz(path: Path, omniglot: Path) -> Path:
    files = sorted(omniglot.rglob("*.png"), key=lambda p: p.name)
    characters = [int(p.name[:4]) - 1 for p in files]
    np.savez(
        path,
        images=np.stack([np.asarray(Image.open(p).convert("L")) for p in files]),
        character=np.array(characters, np.int16),
        alphabet=np.array([c >= 2 for c in characters], np.int16),
        drawer=np.array([int(p.stem[-2:]) for p in files], np.int8),
        alphabet_names=np.array(["Greek", "Anglo-Saxon_Futhorc"]),
    )
    return path


def test_the_npz_and_the_folder_tell_the_same(omniglot: Path, tmp_path: Path) -> None:
    npz = _npz(tmp_path / "omniglot.npz", omniglot)
    for users, invert in (("character", False), ("drawer", True)):
        one = open_users(omniglot, users=users, invert=invert)  # type: ignore[arg-type]
        two = open_users(npz, users=users, invert=invert)  # type: ignore[arg-type]
        assert sorted(one.user_ids) == sorted(two.user_ids)
        for user, name in enumerate(one.user_ids):
            other = list(two.user_ids).index(name)
            pairs = [
                sorted(((d.label_names or ())[c], x.tobytes()) for x, c in zip(*d.examples(u)))
                for d, u in ((one, user), (two, other))
            ]
            assert pairs[0] == pairs[1]
    assert open_users(npz).groups == ("Greek", "Anglo-Saxon_Futhorc")  # the file's order


@pytest.mark.shared
def test_the_real_omniglot_has_964_characters_by_20_drawers_of_30_alphabets(shared: Path) -> None:
    file = shared / "omniglot_background.npz"
    dataset = open_users(file)
    assert len(dataset) == dataset.num_classes == 964
    assert (dataset.sizes == 20).all()
    assert len(dataset.groups) == 30
    parts = split_groups(dataset, test=dataset.groups[-5:])
    assert parts.test.groups == dataset.groups[-5:]
    assert len(parts.train) + len(parts.test) == 964
    ink = np.mean([255 - dataset.examples(u)[0].mean() for u in range(0, 964, 50)]) / 255
    assert ink < 0.3  # thin strokes on white paper
    assert len(open_users(file, users="drawer")) == 20
