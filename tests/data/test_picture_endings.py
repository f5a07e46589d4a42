"""Files are pictures by the endings that Pillow decodes, in every list of files."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from sfumato.data import open_examples, open_users
from sfumato.data.pictures import picture_endings

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
