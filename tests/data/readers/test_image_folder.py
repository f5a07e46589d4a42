"""A folder of pictures is read in sorted order, pixel for pixel, and what is wrong with it is named."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato._check import InputError
from sfumato.data import open_users


def test_users_of_a_flat_folder_are_their_own_class(flat_folder: Path) -> None:
    dataset = open_users(flat_folder)
    assert list(dataset.user_ids) == [f"user{u}" for u in range(6)]
    assert dataset.sizes.tolist() == [1, 2, 3, 4, 5, 6]
    assert list(dataset.label_names or ()) == list(dataset.user_ids)
    assert dataset.input_shape == (16, 16, 1)
    for user in range(6):
        inputs, labels = dataset.examples(user)
        assert (labels == user).all()
        for n, image in enumerate(inputs):
            assert (image[..., 0] == np.asarray(Image.open(flat_folder / f"user{user}" / f"{n}.png"))).all()


def test_class_folders_are_shared_or_each_users_own(class_folder: Path) -> None:
    shared = open_users(class_folder)
    assert list(shared.label_names or ()) == ["ant", "cat", "dog", "eel"]
    assert [shared.examples(u)[1].tolist() for u in range(4)] == [[1, 1, 2, 2, 2], [2, 2], [1, 1, 3, 3, 3], [0, 0]]
    own = open_users(class_folder, labels="per_user")
    names = ["ann/cat", "ann/dog", "bob/dog", "cy/cat", "cy/eel", "dan/ant"]
    assert list(own.label_names or ()) == names
    assert [own.examples(u)[1].tolist() for u in range(4)] == [[0, 0, 1, 1, 1], [2, 2], [3, 3, 4, 4, 4], [5, 5]]
    assert shared.input_shape == (20, 16, 3)


def test_black_and_white_are_exchanged_on_request(flat_folder: Path) -> None:
    plain, inverted = open_users(flat_folder), open_users(flat_folder, invert=True)
    assert (plain.examples(2)[0] == 255 - inverted.examples(2)[0]).all()


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        ((16, 20, 1), r"r0/0\.png is 16×16 and .*r3/0\.png is 16×20; .*--size 16,"),
        ((16, 16, 3), "grey and .* RGB"),
    ],
)
def test_mixed_pictures_name_two_files_and_the_remedy(
    flat_folder: Path, picture: Callable, save: Callable, shape: tuple, pattern: str
) -> None:
    save(flat_folder / "user3" / "0.png", picture(5, *shape))
    with pytest.raises(InputError, match=pattern) as refusal:
        open_users(flat_folder)
    assert "\n" not in str(refusal.value)
    fixed = open_users(flat_folder, size=16, channels=1)
    assert fixed.input_shape == (16, 16, 1)
    assert len(fixed.notes) == 1


def _spoil(kind: str, path: Path) -> None:
    good = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(good[: len(good) // 2])
    elif kind == "text":
        path.write_text("not a picture")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "gone":
        path.unlink()
        path.symlink_to("nowhere.png")
    elif kind == "loop":
        path.unlink()
        path.symlink_to(path.name)
    elif kind == "pipe":
        path.unlink()
        os.mkfifo(path)


def test_a_link_that_leads_to_itself_is_no_persons_folder(flat_folder: Path) -> None:
    before = list(open_users(flat_folder).user_ids)
    (flat_folder / "zoe").symlink_to("zoe")
    assert list(open_users(flat_folder).user_ids) == before


@pytest.mark.parametrize("kind", ["truncated", "text", "empty", "gone", "loop", "pipe"])
@pytest.mark.parametrize("folder", ["flat_folder", "class_folder"])
def test_a_bad_file_is_refused_by_name_or_skipped_and_counted(
    kind: str, folder: str, request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(folder)
    path = (
        sorted(root.glob("*/*.png") or root.glob("*/*/*.jpg"))[-1]
        if folder == "flat_folder"
        else (root / "cy" / "eel" / "1.jpg")
    )
    before = open_users(root)
    _spoil(kind, path)
    with pytest.raises(InputError, match=f"{path.relative_to(root)} .*on_error=skip") as refusal:
        open_users(root)
    assert "\n" not in str(refusal.value)
    after = open_users(root, on_error="skip")
    assert after.num_examples == before.num_examples - 1
    assert after.notes[0].startswith(f"skipped 1 file: {path.relative_to(root)} (")


def test_stray_files_and_empty_users_are_named_and_skipped(flat_folder: Path) -> None:
    (flat_folder / "notes.txt").write_text("a readme beside the users is nobody's picture")
    (flat_folder / "user2" / ".hidden").write_text("")
    assert open_users(flat_folder).notes == ()
    (flat_folder / "user2" / "Thumbs.db").write_text("")
    (flat_folder / "zoe").mkdir()
    with pytest.raises(InputError, match=r"Thumbs\.db is not a picture"):
        open_users(flat_folder)
    dataset = open_users(flat_folder, on_error="skip")
    assert list(dataset.notes) == [
        "skipped 1 file: user2/Thumbs.db (is not a picture)",
        "skipped 1 user without readable pictures: zoe",
    ]
    assert len(dataset) == 6


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "pictures only", "empty users"])
def test_a_folder_without_users_is_refused(tmp_path: Path, kind: str, picture: Callable, save: Callable) -> None:
    root = tmp_path / "root"
    if kind == "file":
        root.write_text("")
    elif kind == "empty":
        root.mkdir()
    elif kind == "pictures only":
        save(root / "a.png", picture(0))
    elif kind == "empty users":
        (root / "ann").mkdir(parents=True)
    with pytest.raises(InputError, match=r"(root .*|nothing at .*root.*)<user>/<picture>"):
        open_users(root)


def test_mixed_layouts_are_refused(class_folder: Path, picture: Callable, save: Callable) -> None:
    save(class_folder / "bob" / "loose.png", picture(0, 20, 16, 3))
    with pytest.raises(InputError, match=r"next to class folders and in them \(bob/loose\.png, bob/dog/0\.jpg\)"):
        open_users(class_folder)
    (class_folder / "bob" / "loose.png").unlink()
    save(class_folder / "zed" / "0.png", picture(0, 20, 16, 3))
    with pytest.raises(InputError, match=r"mixes layouts: ann/cat/0\.jpg and zed/0\.png"):
        open_users(class_folder)


def test_a_picture_outside_of_the_users_is_not_lost_silently(
    flat_folder: Path, picture: Callable, save: Callable
) -> None:
    save(flat_folder / "lost.png", picture(0))
    with pytest.raises(InputError, match=r"lost\.png is not in a user's folder"):
        open_users(flat_folder)
    assert "lost.png" in open_users(flat_folder, on_error="skip").notes[0]


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [
        ("1", 1, [255]), ("LA", (40, 255), [40]), ("LA", (40, 0), [255]), ("I;16", 0x8012, [0x80]),
        ("RGBA", (10, 20, 30, 0), [255, 255, 255]), ("RGBA", (10, 20, 30, 255), [10, 20, 30]), ("P", 0, [0, 0, 0]),
    ],
)  # fmt: skip
def test_every_kind_of_pixel_becomes_grey_or_rgb(tmp_path: Path, mode: str, value: object, expected: list) -> None:
    (tmp_path / "u").mkdir()
    image = Image.new(mode, (4, 4), value)  # type: ignore[arg-type]
    if mode == "P":
        image.putpalette([0, 0, 0] * 256)
    image.save(tmp_path / "u" / "a.png")
    inputs, _ = open_users(tmp_path).examples(0)
    assert inputs.shape == (1, 4, 4, len(expected))
    assert (inputs == np.array(expected)).all()


def test_a_photograph_is_turned_upright(tmp_path: Path) -> None:
    (tmp_path / "u").mkdir()
    pixels = np.zeros((8, 24), np.uint8)
    pixels[:, :12] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90° clockwise to see it upright
    Image.fromarray(pixels).save(tmp_path / "u" / "a.png", exif=exif)
    inputs, _ = open_users(tmp_path).examples(0)
    assert inputs.shape == (1, 24, 8, 1)
    assert inputs[0, :12].min() == 255
    assert inputs[0, 12:].max() == 0


def test_scaling_cuts_the_middle_and_keeps_the_proportions(tmp_path: Path) -> None:
    (tmp_path / "u").mkdir()
    pixels = np.zeros((10, 30), np.uint8)
    pixels[:, 10:20] = 200
    Image.fromarray(pixels).save(tmp_path / "u" / "a.png")
    inputs, _ = open_users(tmp_path, size=5).examples(0)
    assert np.abs(inputs[0, :, 1:4].astype(int) - 200).max() <= 4  # the filter overshoots a little at an edge
    assert inputs.min() > 180  # squeezed into the square, two thirds would be black
    assert open_users(tmp_path, size=(5, 15)).input_shape == (5, 15, 1)


def test_bad_options_are_refused(flat_folder: Path) -> None:
    for options, name in [({"size": 0}, "height"), ({"size": (1, 2, 3)}, "size"), ({"channels": 2}, "channels"),
                          ({"on_error": "ignore"}, "on_error"), ({"labels": "none"}, "labels")]:  # fmt: skip
        with pytest.raises(InputError, match=name):
            open_users(flat_folder, **options)  # type: ignore[arg-type]
