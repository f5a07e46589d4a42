"""A folder a class: decoded on demand in bounded memory, and bad folders are refused by name."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato._check import InputError
from sfumato.data import open_examples, open_users, write_examples
from sfumato.data.domain import NAMES


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
