"""The embedded data: the same seed gives the same bytes, identities differ; a bad cache only costs time."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import UserDataset, glyphs
from sfumato.data.drawn_glyphs import FIELD, faces, identities


def _all(dataset: UserDataset) -> np.ndarray:
    return np.asarray(dataset.inputs[0 : dataset.num_examples])


@pytest.fixture(scope="module")
def small() -> UserDataset:
    return glyphs(40, 12, seed=3, cache=None)


def test_another_process_with_other_threads_draws_the_same_bytes(small: UserDataset) -> None:
    code = (
        "import hashlib; from sfumato.data import glyphs; d = glyphs(40, 12, seed=3, cache=None);"
        "print(hashlib.sha256(d.inputs.tobytes()).hexdigest())"
    )
    environment = {
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "PYTHONHASHSEED": "7",
        "HOME": "/nonexistent",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == hashlib.sha256(_all(small).tobytes()).hexdigest()


def test_fewer_identities_are_a_subset_with_the_same_images(small: UserDataset) -> None:
    fewer = glyphs(10, 12, seed=3, cache=None)
    places = [list(small.user_ids).index(name) for name in fewer.user_ids]
    assert all((fewer.examples(i)[0] == small.examples(place)[0]).all() for i, place in enumerate(places))


def test_another_seed_draws_other_characters_and_other_images(small: UserDataset) -> None:
    other = glyphs(40, 12, seed=4, cache=None)
    assert set(other.user_ids) != set(small.user_ids)


def test_there_are_thousands_of_identities_and_no_two_are_one_shape() -> None:
    codes = identities()
    assert len(codes) > 2000
    letters = [code for code in codes if chr(code) in "AΑАᎪ"]  # Latin, Greek, Cyrillic, Cherokee
    assert len(letters) == 1
    fonts = faces()
    pictures = {fonts.render(fonts.reference, code).tobytes() for code in codes}  # type: ignore[union-attr]
    assert len(pictures) == len(codes)
    assert bytes(FIELD * FIELD) not in pictures


def test_an_identity_has_many_faces_and_no_two_images_are_equal(small: UserDataset) -> None:
    images = _all(small).reshape(len(small), 12, -1)
    assert len({image.tobytes() for image in images.reshape(-1, images.shape[2])}) == images.shape[0] * 12
    assert min(len(faces().coverage[int(name[2:], 16)]) for name in small.user_ids) >= 4


def test_images_of_one_identity_are_closer_than_images_of_two(small: UserDataset) -> None:
    flat = _all(small).reshape(len(small) * 12, -1).astype(np.float64)
    flat -= flat.mean(1, keepdims=True)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    similar = flat @ flat.T
    same = np.equal.outer(np.arange(len(flat)) // 12, np.arange(len(flat)) // 12)
    genuine, impostor = similar[same & ~np.eye(len(flat), dtype=bool)], similar[~same]
    above = (genuine[:, None] > impostor[None, ::101]).mean()  # AUC of raw pixels
    assert 0.65 < above < 0.97  # learnable, and not solved by pixels alone


def test_labels_users_and_names_agree(small: UserDataset) -> None:
    assert small.input_shape == (28, 28, 1)
    assert small.dtype == np.uint8
    assert small.num_classes == len(small) == 40
    for user in (0, 17, 39):
        _, labels = small.examples(user)
        assert (labels == user).all()
        assert len(labels) == 12
        name = (small.label_names or ())[user]
        assert name == f"{small.user_ids[user]} {chr(int(small.user_ids[user][2:], 16))}"


def test_the_cache_gives_the_same_images_and_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    first = _all(glyphs(5, 4, seed=1, cache=tmp_path))
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    calls: list[tuple[int, int]] = []
    assert (_all(glyphs(5, 4, seed=1, cache=tmp_path, progress=lambda *c: calls.append(c))) == first).all()
    assert calls == []
    for damage in (good[:-100], good[:5000] + bytes([good[5000] ^ 1]) + good[5001:], b"", b"not a cache"):
        file.write_bytes(damage)
        assert (_all(glyphs(5, 4, seed=1, cache=tmp_path, progress=lambda *c: calls.append(c))) == first).all()
        assert file.read_bytes() == good
    assert calls == [(5, 5)] * 4


def test_the_folder_of_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "here"))
    glyphs(2, 2)
    assert len(list((tmp_path / "here").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="SFUMATO_CACHE"):
        assert len(glyphs(2, 2, cache=tmp_path / "file")) == 2


def test_too_many_identities_are_refused_with_the_number_there_are() -> None:
    with pytest.raises(InputError, match=f"at most {len(identities())}, got 100000"):
        glyphs(100_000)
    with pytest.raises(InputError, match="identities"):
        glyphs(0)
