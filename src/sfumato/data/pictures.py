"""Folders of pictures, and one file as an array."""

import contextlib
import errno
import os
import stat
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from PIL import Image, ImageFile, ImageOps

from sfumato._check import InputError, one_of, whole

_NOT_DECODED = ("EPS", "MPEG")
"""Formats that Pillow knows and cannot decode by itself: another program draws EPS, none reads MPEG."""


LAYOUTS = "FOLDER/<user>/<picture> or FOLDER/<user>/<class>/<picture>"
_ABOUT_THE_FILE = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENOTDIR, errno.ENAMETOOLONG,
}  # fmt: skip
_NO_FILE = "is not a regular file"
_OPENING = threading.Lock()
_LARGEST = 1 << 30  # bytes of one file
_NAMED = 5  # examples in a note; skipped.jsonl has them all
OnError = Literal["refuse", "skip"]
"""What to do with a file that is not a readable picture."""
Keep = Literal["decoded", "encoded"]
"""What a store has of pictures: their pixels, or the bytes of their files."""


@cache
def picture_endings() -> frozenset[str]:
    """How names of files end that Pillow decodes, in lower case: .png, .jpg, .avif and so on."""
    Image.init()
    decoded = {
        name
        for name, (factory, _) in Image.OPEN.items()
        if name not in _NOT_DECODED and not (isinstance(factory, type) and issubclass(factory, ImageFile.StubImageFile))
    }
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in decoded)


class BadImage(Exception):
    """A file that is not a readable picture; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One decoded picture.

    Attributes:
        pixels: uint8 [height, width, channels].
        size: height and width in the file.
        channels: 1 or 3, as in the file.
    """

    pixels: np.ndarray
    size: tuple[int, int]
    channels: int


@dataclass(frozen=True, kw_only=True)
class UserFolder:
    """What lies in one user's folder.

    Attributes:
        name: the folder's name.
        layout: "flat", "classes", or None when there are no pictures.
        files: (class folder or None, path relative to the root), sorted.
        strays: paths relative to the root, with the reason, of what is no picture by its place or name.
    """

    name: str
    layout: Literal["flat", "classes"] | None
    files: Sequence[tuple[str | None, str]]
    strays: Sequence[tuple[str, str]]


def image_size(size: int | Sequence[int]) -> tuple[int, int]:
    """Height and width from one number or two.

    Raises:
        InputError: a side is not a whole number ≥ 1.
    """
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2:
        raise InputError(f"size must be one number or (height, width), got {size}")
    whole(height=sides[0], width=sides[1])
    return int(sides[0]), int(sides[1])


def user_names(root: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """The users' folders in sorted order, and pictures that lie outside of them, with the reason.

    Raises:
        InputError: the folder does not exist, cannot be read, or has no folder for a user.
    """
    users, strays = [], []
    for entry in _entries(root):
        if is_folder(entry):
            users.append(entry.name)
        elif Path(entry.name).suffix.lower() in picture_endings():
            strays.append((entry.name, "is not in a user's folder"))
    if not users:
        raise InputError(f"{root} has no users: it has no folders; put the pictures into {LAYOUTS}")
    return users, strays


def user_folder(root: Path, user: str) -> UserFolder:
    """List one user's pictures.

    Raises:
        InputError: the user has both pictures and class folders with pictures, or a folder cannot be read.
    """
    files: list[tuple[str | None, str]] = []
    strays: list[tuple[str, str]] = []
    for entry in _entries(root / user):
        place = f"{user}/{entry.name}"
        if not is_folder(entry):
            _sort_in(entry, None, place, files, strays)
            continue
        for inner in _entries(root / place):
            if is_folder(inner):
                strays.append((f"{place}/{inner.name}", "is a folder below a class folder"))
            else:
                _sort_in(inner, entry.name, f"{place}/{inner.name}", files, strays)
    kinds = {kind is None for kind, _ in files}
    if len(kinds) == 2:
        loose = next(path for kind, path in files if kind is None)
        inside = next(path for kind, path in files if kind is not None)
        raise InputError(
            f"{root / user} has pictures both next to class folders and in them ({loose}, {inside}); use {LAYOUTS}"
        )
    return UserFolder(
        name=user,
        layout=None if not files else "flat" if True in kinds else "classes",
        files=files,
        strays=strays,
    )


def folders(root: Path, users: Sequence[str]) -> Iterator[UserFolder]:
    """The users' folders one after the other; all must have the same layout.

    Raises:
        InputError: two users have different layouts.
    """
    first: UserFolder | None = None
    for user in users:
        folder = user_folder(root, user)
        if folder.layout is not None:
            first = first or folder
            if folder.layout != first.layout:
                raise InputError(
                    f"{root} mixes layouts: {first.files[0][1]} and {folder.files[0][1]}; use one of {LAYOUTS}"
                )
        yield folder


def decode(path: Path | str | BinaryIO, size: tuple[int, int] | None = None, channels: int | None = None) -> Picture:
    """Read one picture, turned upright by its EXIF note.

    Args:
        path: the file, or its content, opened.
        size: (height, width) to bring it to: the middle of the right proportions is cut out, then scaled;
            None keeps the picture's own.
        channels: 1 (grey) or 3 (RGB); None keeps the picture's own. Transparent parts become white.

    Raises:
        BadImage: the file is missing, unreadable, no picture, or broken.
        InputError: reading failed for a reason that has nothing to do with this file, for example a failing
            disk.
    """
    try:
        with _opened(path) as image:
            width, height = image.size
            if size is not None:  # a JPEG decoder scales down by 2, 4 or 8 at no cost; never below twice the size
                image.draft(None, (2 * max(size), 2 * max(size)))
            image.load()
            lying = image.size
            with contextlib.suppress(Exception):  # a damaged EXIF note does not make the picture unreadable
                ImageOps.exif_transpose(image, in_place=True)
            if image.size != lying:
                width, height = height, width
            plain = _opaque(image)
    except OSError as error:
        raise _bad_file(path, error) from None
    except Exception as error:  # decoders raise whatever a broken file leads them to
        raise BadImage(_reason(error)) from None
    own = 1 if plain.mode == "L" else 3
    return Picture(pixels=_fit(plain, size, channels), size=(height, width), channels=own)


def file_bytes(path: Path) -> bytes:
    """The content of a regular file; errors as `decode`."""
    if (size := regular_file(path).st_size) > _LARGEST:
        raise BadImage(f"has {size:,} bytes; 1 GiB is most")
    try:
        return path.read_bytes()
    except OSError as error:
        raise _bad_file(path, error) from None


def regular_file(path: Path) -> os.stat_result:
    """The facts of a file that can be opened, which a pipe for example would block.

    Raises:
        BadImage: there is none, or it is a folder, a device or the like.
        InputError: as `decode`.
    """
    try:
        facts = os.stat(path)
    except OSError as error:
        raise _bad_file(path, error) from None
    except ValueError as error:  # a name that no file can have
        raise BadImage(_reason(error)) from None
    if not stat.S_ISREG(facts.st_mode):
        raise BadImage("is a folder" if stat.S_ISDIR(facts.st_mode) else _NO_FILE)
    return facts


def refuse_difference(one: tuple[Path | str, Sequence[int]], other: tuple[Path | str, Sequence[int]]) -> None:
    """Refuse two pictures that do not go into one array; each is given by its path, or place, and shape.

    Raises:
        InputError: they have different sizes or channels.
    """
    (a, first), (b, second) = one, other
    if tuple(first) == tuple(second):
        return
    if tuple(first[:2]) != tuple(second[:2]):
        kinds = [f"{shape[0]}×{shape[1]}" for shape in (first, second)]
        height, width = map(int, first[:2])
        sides = (
            f"--size {height}, or size={height}"
            if height == width
            else f"--size {height} {width}, or size={height, width}"
        )
        remedy = f"bring all to one size, that of the first, for example: {sides}"
    else:
        kinds = ["grey" if shape[2] == 1 else "RGB" for shape in (first, second)]
        remedy = "bring all to one of the two: --channels 1 (grey) or 3 (RGB), or channels=1 or 3"
    raise InputError(f"{a} is {kinds[0]} and {b} is {kinds[1]}; {remedy}")


def refusal(path: Path | str, reason: str) -> str:
    """The line for a file that is not a readable picture."""
    return f"{path} {reason}; remove it, or leave out such files with on_error=skip"


def skip_notes(files: int, file_names: Sequence[str], users: int, user_names: Sequence[str]) -> list[str]:
    """Lines that count and name what was left out."""
    notes = []
    if files:
        notes.append(f"skipped {files:,} file{'s' * (files > 1)}: {_named(file_names, files)}")
    if users:
        text = f"skipped {users:,} user{'s' * (users > 1)} without readable pictures"
        notes.append(f"{text}: {_named(user_names, users)}")
    return notes


def convert_notes(resized: int, converted: int, shape: Sequence[int]) -> list[str]:
    """Lines that count what was changed to fit."""
    notes = []
    if resized:
        notes.append(f"brought {resized:,} picture{'s' * (resized > 1)} to {shape[0]}×{shape[1]}")
    if converted:
        notes.append(f"turned {converted:,} picture{'s' * (converted > 1)} to {'grey' if shape[2] == 1 else 'RGB'}")
    return notes


def _named(names: Sequence[str], count: int) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if count <= _NAMED else f"{shown} and {count - _NAMED:,} more"


def _opened(path: Path | str | BinaryIO) -> Image.Image:
    """An image whose header was read; one of more pixels than Pillow's limit is refused before they take memory."""
    with _OPENING, warnings.catch_warnings():  # which is global: one thread at a time
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(path)


def fitted(images: np.ndarray, size: int | Sequence[int] | None, channels: int | None) -> np.ndarray:
    """Pictures in an array, uint8 [n, H, W, C], brought to a size and channels as `decode` does."""
    height, width = images.shape[1:3] if size is None else image_size(size)
    depth = images.shape[3] if channels is None else channels
    one_of((1, 3), channels=depth)
    result = np.empty((len(images), height, width, depth), np.uint8)
    for place, pixels in enumerate(images):
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        result[place] = _fit(image, (height, width), depth)
    return result


def _fit(image: Image.Image, size: tuple[int, int] | None, channels: int | None) -> np.ndarray:
    """A picture of mode L or RGB as uint8 [height, width, channels]."""
    if channels is not None:
        image = image.convert("L" if channels == 1 else "RGB")
    if size is not None and image.size != (size[1], size[0]):
        image = ImageOps.fit(image, (size[1], size[0]), Image.Resampling.LANCZOS)
    pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _opaque(image: Image.Image) -> Image.Image:
    """The picture as L or RGB, laid on white paper where it is transparent."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode.startswith("I"):  # 16 bits of grey
        wide = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        return Image.fromarray((wide >> 8).astype(np.uint8))
    if image.mode == "1":
        return image.convert("L")
    if image.mode == "F":
        raise ValueError("pictures of floating-point numbers are not supported")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        clear = image.convert("RGBA")
        paper = Image.new("RGBA", clear.size, "white")
        flat = Image.alpha_composite(paper, clear).convert("RGB")
        return flat.convert("L") if image.mode in ("LA", "La") else flat
    return image.convert("RGB")


def _bad_file(path: Path | str | BinaryIO, error: OSError) -> BadImage | InputError:
    """What to raise where a file cannot be opened: of other troubles, such as a failing disk, it is not to blame."""
    if error.errno is not None and error.errno not in _ABOUT_THE_FILE:
        return InputError(f"reading {path} failed: {error.strerror}; run the same command again later")
    return BadImage(_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    if type(error).__name__ == "UnidentifiedImageError":
        return "is not a picture"
    if isinstance(error, Image.DecompressionBombWarning | Image.DecompressionBombError):
        return f"has more pixels than Pillow's limit of {Image.MAX_IMAGE_PIXELS:,} (PIL.Image.MAX_IMAGE_PIXELS)"
    return f"is broken: {' '.join(str(error).split()) or type(error).__name__}"


def _sort_in(
    entry: os.DirEntry[str],
    kind: str | None,
    place: str,
    files: list[tuple[str | None, str]],
    strays: list[tuple[str, str]],
) -> None:
    if Path(entry.name).suffix.lower() not in picture_endings():
        strays.append((place, "is not a picture"))
    elif not _is_file(entry):
        strays.append((place, _NO_FILE))
    else:
        files.append((kind, place))


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or leads to one; a link that leads nowhere, or to itself, is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted((e for e in found if not e.name.startswith(".")), key=lambda e: os.fsencode(e.name))
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}; give a folder {LAYOUTS}") from None
