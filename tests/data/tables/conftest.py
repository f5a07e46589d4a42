"""Pictures as the files that tables keep, and tables of their paths."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


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
