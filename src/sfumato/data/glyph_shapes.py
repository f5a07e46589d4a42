"""The shapes behind the embedded data set: characters of the DejaVu fonts that matplotlib installs.

An identity is a character. Left out are characters that a person could not tell apart once a glyph is moved,
scaled and blurred: blank ones, ones that look like another character (Latin A, Greek Α and Cyrillic А are one
shape), and those that differ from another only by place or size (Braille, box drawing).

A shape is kept as a signed distance field: one smooth array gives every stroke width, and can be sampled on a
distorted grid without steps (Green, "Improved Alpha-Tested Magnification", SIGGRAPH 2007, section 2).
"""

import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sfumato._check import InputError

FIELD = 64  # side of a distance field
BOX = 40  # the longer side of a glyph's bounding box within it
_POINTS = 72  # font size of a rendering; a glyph is scaled to the box from there
_MIN_FACES = 4  # a character must exist in this many faces, so that its images differ by face
_LOOKALIKE = 0.92  # cosine of two low-resolution renderings above which the later character is left out
_ROWS = 256  # characters compared with all earlier ones at a time
_POSITIONAL = ((0x2500, 0x259F), (0x2800, 0x28FF))  # box drawing, blocks, Braille


def font_files() -> list[Path]:
    """The DejaVu faces with full character sets, sorted by name.

    Raises:
        InputError: matplotlib's data folder has no such fonts.
    """
    import matplotlib  # late: only the generator needs it

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    files = sorted(file for file in folder.glob("DejaVu*.ttf") if "Display" not in file.name)
    if len(files) < _MIN_FACES:
        raise InputError(
            f"found {len(files)} DejaVu fonts in {folder}, need {_MIN_FACES}; install matplotlib from PyPI"
        )
    return files


class Faces:
    """The fonts, opened once.

    Attributes:
        coverage: for each character that may be an identity, the faces that have it, in ascending order.
        reference: the upright sans-serif face, in which characters are compared.
    """

    def __init__(self) -> None:
        files = font_files()
        self._fonts = [ImageFont.truetype(str(file), _POINTS, layout_engine=ImageFont.Layout.BASIC) for file in files]
        self.reference = [file.name for file in files].index("DejaVuSans.ttf")
        self.coverage: dict[int, list[int]] = {}
        for face, file in enumerate(files):
            for code in _characters(file):
                if _may_identify(code):
                    self.coverage.setdefault(code, []).append(face)
        self.coverage = {
            code: faces
            for code, faces in sorted(self.coverage.items())
            if len(faces) >= _MIN_FACES and self.reference in faces
        }

    def render(self, face: int, code: int) -> np.ndarray | None:
        """The ink, uint8 [FIELD, FIELD], its bounding box centred and scaled to BOX; None if blank."""
        font = self._fonts[face]
        left, top, right, bottom = (round(edge) for edge in font.getbbox(chr(code)))
        page = Image.new("L", (right - left + 2, bottom - top + 2))
        ImageDraw.Draw(page).text((1 - left, 1 - top), chr(code), font=font, fill=255)
        box = page.getbbox()
        if box is None:
            return None
        ink = page.crop(box)
        scale = BOX / max(ink.size)
        width, height = (max(1, round(side * scale)) for side in ink.size)
        canvas = Image.new("L", (FIELD, FIELD))
        place = ((FIELD - width) // 2, (FIELD - height) // 2)
        canvas.paste(ink.resize((width, height), Image.Resampling.BILINEAR), place)
        return np.asarray(canvas)

    def distance(self, face: int, code: int) -> np.ndarray | None:
        """Signed distance to the outline, float32 [FIELD, FIELD], negative inside; None if blank."""
        from scipy.ndimage import distance_transform_edt  # late: opening a store needs none of it

        ink = self.render(face, code)
        if ink is None or not (inside := ink >= 128).any():
            return None
        outward, inward = (
            np.asarray(distance_transform_edt(~inside)),
            np.asarray(distance_transform_edt(inside)),
        )
        return (outward - inward).astype(np.float32)


def _characters(file: Path) -> list[int]:
    from matplotlib.ft2font import FT2Font

    return sorted(FT2Font(str(file)).get_charmap())


def _may_identify(code: int) -> bool:
    character = chr(code)
    if unicodedata.category(character)[0] in "MZC" or any(a <= code <= b for a, b in _POSITIONAL):
        return False  # marks, spaces, control and private characters
    return unicodedata.normalize("NFKC", character) == character  # a form of another character


@cache
def faces() -> Faces:
    """The fonts of this machine; they do not change while the program runs."""
    return Faces()


@cache
def identities() -> tuple[int, ...]:
    """Code points of all identities in ascending order: no two look alike in the reference face."""
    fonts = faces()
    codes, rows = [], []
    for code in fonts.coverage:
        ink = fonts.render(fonts.reference, code)
        if ink is None:
            continue
        # Quarter resolution in 16 grey levels: sums of products of whole numbers are exact in float32, so
        # that the order in which a library adds them cannot change the list.
        small = ink.reshape(FIELD // 4, 4, FIELD // 4, 4).sum((1, 3), dtype=np.int64).ravel() >> 8
        if small.any():
            codes.append(code)
            rows.append(small)
    pictures = np.array(rows, np.float32)
    norms = np.array([float((row * row).sum()) for row in rows])
    kept = np.zeros(len(codes), bool)
    for start in range(0, len(codes), _ROWS):
        part = slice(start, start + _ROWS)
        dots = (pictures[part] @ pictures[: start + _ROWS].T).astype(np.float64)
        alike = dots * dots > _LOOKALIKE**2 * norms[part, None] * norms[: start + _ROWS]
        for i, row in enumerate(alike):
            kept[start + i] = not (row[: start + i] & kept[: start + i]).any()
    return tuple(code for code, keep in zip(codes, kept, strict=True) if keep)


def distance_fields(codes: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The fields of some characters in all their faces.

    Args:
        codes: code points from `identities`.

    Returns:
        fields float32 [shapes, FIELD, FIELD]; first int64 [codes] and count int64 [codes]: the shapes of
        code i are first[i] … first[i] + count[i] − 1.
    """
    fonts = faces()
    fields: list[np.ndarray] = []
    first, count = [], []
    for code in codes:
        own = [field for face in fonts.coverage[code] if (field := fonts.distance(face, code)) is not None]
        first.append(len(fields))
        count.append(len(own))
        fields += own
    return np.stack(fields), np.array(first), np.array(count)
