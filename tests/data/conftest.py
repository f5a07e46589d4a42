"""Folders of real pictures, tables of them and tars, written for each test."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Write = Callable[..., Path]


@pytest.fixture
def picture() -> Callable[..., np.ndarray]:
    """Smooth pixels from a seed, so that scaling and JPEG change them little."""

    def make(seed: int, height: int = 16, width: int = 16, channels: int = 1) -> np.ndarray:
        rng = np.random.default_rng(seed)
        coarse = rng.integers(0, 256, (4, 4, channels), np.uint8)
        planes = [
            np.asarray(Image.fromarray(coarse[..., c]).resize((width, height), Image.Resampling.BICUBIC))
            for c in range(channels)
        ]
        return np.stack(planes, -1)

    return make


@pytest.fixture
def save() -> Callable[[Path, np.ndarray], None]:
    """Write pixels [H, W, C] to a file, with its folders."""

    def write(path: Path, pixels: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(path, quality=95)

    return write


@pytest.fixture
def pictures() -> tuple[np.ndarray, np.ndarray]:
    """50 grey pictures of 6×5 and their labels, of 4 classes."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (50, 6, 5), np.uint8), rng.integers(0, 4, 50)


@pytest.fixture
def flat_folder(tmp_path: Path, picture: Callable, save: Callable) -> Path:
    """photos/<user>/<n>.png: 6 users with 1 to 6 grey pictures of 16×16."""
    root = tmp_path / "photos"
    for user in range(6):
        for n in range(user + 1):
            save(root / f"user{user}" / f"{n}.png", picture(100 * user + n))
    return root


@pytest.fixture
def class_folder(tmp_path: Path, picture: Callable, save: Callable) -> Path:
    """photos/<user>/<class>/<n>.jpg: 4 users, RGB pictures of 20×16 of classes that they share in part."""
    root = tmp_path / "classes"
    for user, kinds in {"ann": ["cat", "dog"], "bob": ["dog"], "cy": ["cat", "eel"], "dan": ["ant"]}.items():
        for k, kind in enumerate(kinds):
            for n in range(2 + k):
                save(root / user / kind / f"{n}.jpg", picture(ord(user[0]) * 97 + ord(kind[0]) * 7 + n, 20, 16, 3))
    return root


@pytest.fixture
def write_tar(tmp_path: Path) -> Callable[..., Path]:
    """Writes (name, content) into a tar of the folder."""

    def write(members: list[tuple[str, bytes]], name: str = "a.tar", format: int = tarfile.PAX_FORMAT) -> Path:
        with tarfile.open(tmp_path / name, "w", format=format) as tar:
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return tmp_path / name

    return write


@pytest.fixture
def encoded() -> Callable[..., bytes]:
    """A picture [H, W, C] as the bytes of a PNG."""

    def make(pixels: np.ndarray) -> bytes:
        content = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(content, "PNG")
        return content.getvalue()

    return make


@pytest.fixture
def album(picture: Callable, encoded: Callable) -> dict[str, list]:
    """Nine colour pictures of 8×8 of four people, whose rows are not adjacent, with their pixels."""
    pixels = [picture(seed, 8, 8, 3) for seed in range(9)]
    return {
        "image": [{"bytes": encoded(one), "path": f"{i}.png"} for i, one in enumerate(pixels)],
        "person": ["cy", "al", "bo", "al", "dee", "cy", "al", "bo", "cy"],
        "mood": ["glad", "sad", "sad", "glad", "glad", "sad", "sad", "glad", "glad"],
        "pixels": pixels,
    }


@pytest.fixture
def listed(flat_folder: Path) -> dict[str, list[str]]:
    """The pictures of `flat_folder` as columns: the path from the folder, and the person, in sorted order."""
    files = sorted(file for file in flat_folder.glob("*/*.png"))
    return {
        "file": [str(file.relative_to(flat_folder)) for file in files],
        "person": [file.parent.name for file in files],
    }
