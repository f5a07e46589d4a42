"""Folders of pictures: by user, by class, of Omniglot and DigiFace, and which files are pictures."""

import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from sfumato._check import InputError
from sfumato.data import open_examples, open_users, split_groups, write_examples
from sfumato.data.domain import NAMES
from sfumato.data.pictures import picture_endings

# A folder of pictures is read in sorted order, pixel for pixel, and what is wrong with it is named.


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


# A folder a class: decoded on demand in bounded memory, and bad folders are refused by name.


@pytest.fixture
def animals(tmp_path: Path, picture, save) -> Path:
    """animals/<class>/<n>.jpg|png: 3 classes with 2, 3 and 4 RGB pictures of 20×16."""
    root = tmp_path / "animals"
    for k, kind in enumerate(["cat", "dog", "eel"]):
        for n in range(2 + k):
            save(root / kind / f"{n}.{'png' if n % 2 else 'jpg'}", picture(10 * k + n, 20, 16, 3))
    return root


def test_a_folder_is_a_class_and_pictures_are_decoded_on_demand(animals: Path) -> None:
    data = open_examples(animals)
    assert list(data.label_names or ()) == ["cat", "dog", "eel"]
    assert data.targets.tolist() == [0] * 2 + [1] * 3 + [2] * 4
    assert data.found == (NAMES,)
    with Image.open(animals / "dog" / "1.png") as image:
        np.testing.assert_array_equal(data.examples([3])[0][0][0], np.asarray(image))
    written = write_examples(data.subset([8, 0]), animals.parent / "packed")
    np.testing.assert_array_equal(written.examples([0])[0][0], data.examples([8])[0][0])
    stored = open_examples(
        open_users(animals, store=animals.parent / "store", size=8, channels=1) and animals.parent / "store"
    )
    assert stored.input_shapes == ((8, 8, 1),)
    assert stored.targets.tolist() == data.targets.tolist()


def test_decoded_pictures_do_not_fill_the_memory(tmp_path: Path, picture, save) -> None:
    for n in range(60):
        save(tmp_path / "a" / f"{n}.png", picture(n, 64, 64, 3))
    data = open_examples(tmp_path)
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
    assert open_examples(root).num_classes == 3
    test = open_examples(root, "test")
    assert test.targets.tolist() == [2]
    assert list(test.label_names or ()) == ["cat", "dog", "eel"]
    save(root / "test" / "fox" / "0.jpg", picture(1, 20, 16, 3))
    with pytest.raises(InputError, match="class 'fox' is none of train"):
        open_examples(root, "test")


def test_bad_folders_are_refused_in_one_line(animals: Path, picture, save) -> None:
    with pytest.raises(InputError, match="not divided into train and test"):
        open_examples(animals, "test")
    with pytest.raises(InputError, match="class 'eel' is none of the declared"):
        open_examples(animals, label_names=["cat", "dog"])
    assert open_examples(animals, label_names=["eel", "dog", "cat"]).assumptions == ()
    save(animals / "cat" / "z.png", picture(1, 9, 16, 3))
    with pytest.raises(InputError, match=r"0\.jpg is 20×16 and .*z\.png is 9×16; .*--size 20 16"):
        open_examples(animals)
    assert open_examples(animals, size=8).input_shapes == ((8, 8, 3),)
    save(animals / "cat" / "z.png", picture(1, 20, 16, 1))
    with pytest.raises(InputError, match=r"is RGB and .* is grey; .*--channels"):
        open_examples(animals)
    (animals / "cat" / "z.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"z\.png is not a picture"):
        open_examples(animals)
    assert "z.png" in open_examples(animals, on_error="skip").notes[0]
    save(animals / "cat" / "deep" / "a.png", picture(1))
    with pytest.raises(InputError, match="both next to class folders and in them"):
        open_examples(animals)
    with pytest.raises(InputError, match="no classes: it has no folders"):
        open_examples(animals / "dog")
    with pytest.raises(InputError, match="there is nothing at"):
        open_examples(animals / "none")


# DigiFace as its authors publish it.


def test_digiface_identities_are_users(tmp_path: Path, picture: Callable, save: Callable) -> None:
    for identity in range(3):
        for n in range(4):
            save(tmp_path / "faces" / str(identity) / f"{n}.png", picture(10 * identity + n, 20, 20, 3))
    dataset = open_users(tmp_path / "faces", size=10, channels=1)
    assert list(dataset.user_ids) == list(dataset.label_names or ()) == ["0", "1", "2"]
    assert dataset.sizes.tolist() == [4] * 3
    assert dataset.input_shape == (10, 10, 1)


# Omniglot as its authors publish it: who is a user, what is a class, which group it is of.


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
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


def test_characters_are_users_and_alphabets_are_groups(drawn: Path) -> None:
    dataset = open_users(drawn)
    names = [f"Anglo-Saxon_Futhorc/character0{c}" for c in (1, 2, 3)] + ["Greek/character01", "Greek/character02"]
    assert list(dataset.user_ids) == list(dataset.label_names or ()) == names
    assert dataset.sizes.tolist() == [4] * 5
    assert dataset.input_shape == (21, 21, 1)
    assert dataset.groups == ("Anglo-Saxon_Futhorc", "Greek")
    image = np.asarray(Image.open(drawn / "Greek" / "character01" / "0001_03.png"))
    assert (dataset.examples(3)[0][2, ..., 0] == np.where(image, 255, 0)).all()  # paper is 255
    assert (open_users(drawn, invert=True).examples(3)[0][2, ..., 0] == np.where(image, 0, 255)).all()


def test_drawers_are_users_who_share_the_characters(drawn: Path) -> None:
    dataset = open_users(drawn, users="drawer", size=14)
    assert list(dataset.user_ids) == [f"drawer0{d}" for d in (1, 2, 3, 4)]
    assert all(dataset.examples(u)[1].tolist() == [0, 1, 2, 3, 4] for u in range(4))
    assert dataset.input_shape == (14, 14, 1)
    parts = split_groups(dataset, test=["Greek"])
    assert len(parts.train) == len(parts.test) == 4
    assert parts.test.sizes.tolist() == [2] * 4


def test_files_that_are_not_omniglots_are_named(drawn: Path) -> None:
    Image.new("L", (21, 21)).save(drawn / "Greek" / "character01" / "extra.png")
    with pytest.raises(InputError, match=r"extra\.png is not Omniglot's"):
        open_users(drawn)
    assert open_users(drawn, on_error="skip").num_examples == 20
    with pytest.raises(InputError, match="images_background or images_evaluation"):
        open_users(drawn.parent)


def _npz(path: Path, drawn: Path) -> Path:
    files = sorted(drawn.rglob("*.png"), key=lambda p: p.name)
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


def test_the_npz_and_the_folder_report_the_same(drawn: Path, tmp_path: Path) -> None:
    npz = _npz(tmp_path / "omniglot.npz", drawn)
    for users, invert in (("character", False), ("drawer", True)):
        one = open_users(drawn, users=users, invert=invert)  # type: ignore[arg-type]
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


# Files are pictures by the endings that Pillow decodes, in every list of files.

WRITTEN = [
    *(".png", ".apng", ".jpg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tga", ".tif", ".webp", ".pcx", ".ico"),
    *(".pbm", ".pnm", ".ppm", ".sgi", ".im", ".dds"),
    *([".jp2", ".j2k"] if features.check("jpg_2000") else []),
    *([".avif"] if features.check("avif") else []),
]


def _picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = "1" if path.suffix.lower() == ".pbm" else "RGB"
    Image.fromarray(np.full((16, 16, 3), 200, np.uint8)).convert(mode).save(path)
    return path


@pytest.mark.parametrize("ending", WRITTEN)
@pytest.mark.parametrize("upper", [False, True])
def test_whatever_pillow_decodes_is_a_picture_in_folders_tables_and_tars(ending: str, upper: bool, tmp_path: Path):
    ending = ending.upper() if upper else ending
    files = [_picture(tmp_path / "album" / who / f"1{ending}") for who in ("ann", "bo")]
    assert open_users(tmp_path / "album", channels=3).input_shape == (16, 16, 3)
    names = [f"album/{file.parent.name}/1" for file in files]
    rows = [f"{file.parent.name},{name}{ending},{name}" for file, name in zip(files, names, strict=True)]
    (table := tmp_path / "t.csv").write_text("\n".join(["who,file,stem", *rows]))
    assert len(open_users(table, user="who", channels=3)) == 2  # the column is found by its endings
    assert len(open_users(table, user="who", input="stem", folder=tmp_path, channels=3)) == 2
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        for number, file in enumerate(files):
            tar.add(file, f"{number}{ending.lower()}")
    assert len(open_examples(tmp_path / "t.tar", channels=3)) == 2


def test_what_pillow_only_writes_or_cannot_decode_is_no_picture():
    assert not picture_endings() & {".pdf", ".eps", ".ps", ".mpg", ".h5", ".hdf", ".wmf", ".grib", ".bufr", ".txt", ""}
    assert {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"} <= picture_endings()


def test_a_name_without_its_ending_is_looked_up_in_the_folder_as_it_is_now(tmp_path: Path):
    (table := tmp_path / "t.csv").write_text("who,stem\nann,a\nbo,b\n")
    _picture(tmp_path / "a.png")
    with pytest.raises(ValueError, match="No such file"):
        open_users(table, user="who", input="stem", folder=tmp_path)
    _picture(tmp_path / "b.JPG")
    assert len(open_users(table, user="who", input="stem", folder=tmp_path)) == 2
    _picture(tmp_path / "a.bmp")
    with pytest.raises(ValueError, match=r"can be a\.bmp or a\.png"):
        open_users(table, user="who", input="stem", folder=tmp_path)
