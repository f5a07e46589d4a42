"""The embedded default data set: thousands of identities drawn from fonts, any number of images of each.

An image of an identity varies by font face, rotation, shear, scale, place, elastic distortion, stroke width,
brightness and noise, as handwriting and photographs do. The images of one identity depend on the seed and its
character only, so fewer identities or a different split never change a picture. The same seed gives the same
bytes in every run with the same versions of the fonts and libraries; those versions are part of the cache's
key.

The data are made, not collected: no privacy is at stake, and an ε that is reported on them is a
demonstration.

>>> users = glyphs(identities=3, images_per_identity=2, seed=0, cache=None)
>>> users
UserDataset(3 users, 6 examples of (28, 28, 1) uint8, 3 classes)

**Shapes** are characters of the DejaVu fonts that matplotlib installs. An identity is a character. Left out are
characters that a person could not distinguish once a glyph is moved, scaled and blurred: blank ones, ones that look
like another character (Latin A, Greek Α and Cyrillic А are one shape), and those that differ from another only by place
or size (Braille, box drawing).

A shape is kept as a signed distance field: one smooth array gives every stroke width, and can be sampled on a
distorted grid without steps (Green, "Improved Alpha-Tested Magnification", SIGGRAPH 2007, section 2).

**Pictures:** how a glyph is moved, bent and inked. A picture asks for each of its pixels where to look in the field;
the answer turns with the angle, leans with the shear and bends with a smooth distortion. How thick the stroke is and
how soft its edge, is decided by the distance found there. All in single precision and without BLAS, so that the bytes
do not depend on the number of threads.
"""

import hashlib
import io
import os
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, features
from PIL import __version__ as pillow_version

from sfumato._check import InputError, whole
from sfumato._files import write_atomic
from sfumato._random import RandomSource
from sfumato.data.mapped import Strings
from sfumato.data.users import UserDataset

# Shapes.


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
    """Code points of all identities in ascending order: no two are similar in the reference face."""
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
        similar = dots * dots > _LOOKALIKE**2 * norms[part, None] * norms[: start + _ROWS]
        for i, row in enumerate(similar):
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


# Pictures.


SIDE = 28
"""Height and width of a picture, pixels."""
KNOTS = 5
"""Side of the grid that carries the elastic distortion."""
_GLYPH = 20  # the box of a glyph before distortion, pixels of SIDE


@dataclass(frozen=True, kw_only=True, eq=False)
class Distortion:
    """How each of n pictures looks at its field.

    Attributes:
        angle: float [n], radians.
        shear: float [n], slope of upright strokes.
        tall, wide: float [n], factors by which the glyph shrinks.
        down, right: float [n], pixels.
        bends: float32 [n, 2, KNOTS, KNOTS], pixels at the knots, down and right.
    """

    angle: np.ndarray
    shear: np.ndarray
    tall: np.ndarray
    wide: np.ndarray
    down: np.ndarray
    right: np.ndarray
    bends: np.ndarray


def looked_up(fields: np.ndarray, shape: np.ndarray, distortion: Distortion) -> np.ndarray:
    """The distances that pictures see.

    Args:
        fields: float32 [shapes, FIELD, FIELD].
        shape: int64 [n], the field of each picture.
        distortion: of n pictures.

    Returns:
        float32 [n, SIDE, SIDE], in pixels of the field.
    """
    rows, columns = _coordinates(distortion)
    return _sample(fields, shape, rows, columns)


def painted(
    distance: np.ndarray,
    *,
    stroke: np.ndarray,
    softness: np.ndarray,
    paper: np.ndarray,
    ink: np.ndarray,
    grain: np.ndarray,
) -> np.ndarray:
    """Pictures of distances.

    Args:
        distance: float32 [n, SIDE, SIDE].
        stroke: float [n], by how much strokes are thicker than the font's, pixels of the field.
        softness: float [n], width of their edges, pixels of the field.
        paper, ink: float [n], grey values.
        grain: float32 [n, SIDE, SIDE], added to every pixel.

    Returns:
        uint8 [n, SIDE, SIDE].
    """

    def scalar(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float32)[:, None, None]

    covered = np.clip((scalar(stroke) - distance) / scalar(softness) + np.float32(0.5), 0.0, 1.0)
    images = scalar(paper) + (scalar(ink) - scalar(paper)) * covered + grain
    return np.clip(np.rint(images), 0, 255).astype(np.uint8)


def _coordinates(distortion: Distortion) -> tuple[np.ndarray, np.ndarray]:
    """Where each pixel looks in its field, (row, column), float32 [n, SIDE, SIDE] each."""
    spline = _spline()
    # einsum without BLAS: its order of additions does not depend on the number of threads
    bent = np.einsum("ak,nckl,bl->ncab", spline, distortion.bends, spline)
    grid = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2

    def scalar(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float32)[:, None, None]

    y = grid[None, :, None] - scalar(distortion.down) + bent[:, 0]
    x = grid[None, None, :] - scalar(distortion.right) + bent[:, 1]
    tall, wide = distortion.tall * BOX / _GLYPH, distortion.wide * BOX / _GLYPH
    cos, sin, shear = np.cos(distortion.angle), np.sin(distortion.angle), distortion.shear
    rows = scalar(cos * tall) * y + scalar(sin * tall) * x
    columns = scalar((shear * cos - sin) * wide) * y + scalar((cos + shear * sin) * wide) * x
    middle = np.float32((FIELD - 1) / 2)
    return rows + middle, columns + middle


def _spline() -> np.ndarray:
    """Weights of the knots at each pixel by uniform cubic B-splines, float32 [SIDE, KNOTS]."""
    place = np.linspace(0.0, KNOTS - 1.0, SIDE)
    gap = np.abs(place[:, None] - np.arange(KNOTS)[None, :])
    near = 2 / 3 - gap**2 + gap**3 / 2
    far = np.maximum(2 - gap, 0) ** 3 / 6
    return np.where(gap < 1, near, far).astype(np.float32)


def _sample(fields: np.ndarray, shape: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Bilinear interpolation of field shape[i] at (rows[i], columns[i]); outside, the border's value."""
    top = np.float32(FIELD - 1.001)
    rows, columns = np.clip(rows, 0, top), np.clip(columns, 0, top)
    r, c = rows.astype(np.int32), columns.astype(np.int32)
    dr, dc = rows - r, columns - c
    flat = fields.reshape(-1)
    place = (shape * (FIELD * FIELD))[:, None, None] + r * FIELD + c
    above = flat[place] * (1 - dc) + flat[place + 1] * dc
    below = flat[place + FIELD] * (1 - dc) + flat[place + FIELD + 1] * dc
    return above * (1 - dr) + below * dr


_FORMAT = 1  # raise it whenever a picture changes
_CHUNK = 32  # identities drawn in one go: about 10 MB of fields and 20 MB of coordinates


def cache_folder() -> Path:
    """$SFUMATO_CACHE, or ~/.cache/sfumato."""
    return Path(os.environ.get("SFUMATO_CACHE") or Path.home() / ".cache" / "sfumato")


def glyphs(
    identities: int = 2300,
    images_per_identity: int = 10,
    seed: int = 0,
    *,
    progress: Callable[[int, int], None] | None = None,
    cache: Path | str | None = "default",
) -> UserDataset:
    """Images of characters; user = label = identity.

    Args:
        identities: number of characters, drawn from those available by the seed.
        images_per_identity: images of each, ≥ 1.
        seed: whole number ≥ 0; different seeds give other characters, other images and other noise.
        progress: called with (identities done, identities wanted) while images are drawn.
        cache: a folder for the finished images, "default" for `cache_folder()`, None to draw them anew. A
            file there that is damaged is drawn anew and replaced.

    Returns:
        inputs uint8 [28, 28, 1], 0 = paper; label_names such as "U+0416 Ж"; label_groups is the script.

    Raises:
        InputError: more identities than there are characters, or a number that is not whole.
    """
    whole(identities=identities, images_per_identity=images_per_identity)
    whole(seed=seed, at_least=0)
    identities, images_per_identity, seed = int(identities), int(images_per_identity), int(seed)
    folder = cache_folder() if cache == "default" else None if cache is None else Path(cache)
    codes = _chosen(identities, seed)
    file = None if folder is None else folder / f"glyphs-{_key(codes, images_per_identity, seed)}.bin"
    images = None if file is None else _load(file, (len(codes) * images_per_identity, SIDE, SIDE))
    if images is None:
        images = _draw_all(codes, images_per_identity, seed, progress)
        if file is not None:
            _save(file, images)
    names = [f"U+{code:04X} {chr(code)}" for code in codes]
    return UserDataset(
        inputs=images[..., None],
        labels=np.repeat(np.arange(len(codes)), images_per_identity),
        offsets=np.arange(len(codes) + 1) * images_per_identity,
        names=Strings.from_list(name.split()[0] for name in names),
        num_classes=len(codes),
        label_names=Strings.from_list(names),
        label_groups=Strings.from_list(_script(code) for code in codes),
    )


def _chosen(count: int, seed: int) -> list[int]:
    """The characters of this seed in ascending order; fewer of them are a subset of more."""
    available = identities()
    if count > len(available):
        raise InputError(f"identities must be at most {len(available)}, got {count}; draw more images of each")
    order = RandomSource.from_seed(seed).stream("glyphs", "identities").permutation(len(available))
    return sorted(available[i] for i in order[:count])


def _script(code: int) -> str:
    return unicodedata.name(chr(code), "unnamed").split()[0].lower()


def _draw_all(
    codes: list[int], per_identity: int, seed: int, progress: Callable[[int, int], None] | None
) -> np.ndarray:
    images = np.empty((len(codes) * per_identity, SIDE, SIDE), np.uint8)
    step = max(1, _CHUNK * 20 // per_identity)
    for start in range(0, len(codes), step):
        part = codes[start : start + step]
        images[start * per_identity : (start + len(part)) * per_identity] = _draw(part, per_identity, seed)
        if progress is not None:
            progress(start + len(part), len(codes))
    return images


def _draw(codes: Sequence[int], per_identity: int, seed: int) -> np.ndarray:
    """The images of some characters, uint8 [codes · per_identity, SIDE, SIDE]."""
    fields, first, count = distance_fields(codes)
    source = RandomSource.from_seed(seed)
    uniform, normal, noise = [], [], []
    for code in codes:  # one generator a character: its images do not depend on its neighbours
        generator = np.random.Generator(np.random.Philox(source.seed64("glyphs", code)))
        uniform.append(generator.random((per_identity, 12)))
        normal.append(generator.standard_normal((per_identity, 2, KNOTS, KNOTS)))
        noise.append(generator.standard_normal((per_identity, SIDE, SIDE), dtype=np.float32))
    u = np.concatenate(uniform)
    owner = np.repeat(np.arange(len(codes)), per_identity)
    shape = first[owner] + np.minimum((u[:, 0] * count[owner]).astype(np.int64), count[owner] - 1)
    distance = looked_up(fields, shape, _distortion(u[:, 1:7], np.concatenate(normal)))

    def spread(column: int, low: float, high: float) -> np.ndarray:
        return low + (high - low) * u[:, column]

    return painted(
        distance,
        stroke=spread(7, -0.6, 2.0),
        softness=spread(8, 1.6, 3.2),
        paper=spread(9, 0.0, 50.0),
        ink=spread(10, 140.0, 255.0),
        grain=spread(11, 3.0, 18.0)[:, None, None].astype(np.float32) * np.concatenate(noise),
    )


def _distortion(u: np.ndarray, bends: np.ndarray) -> Distortion:
    """How each image looks at its field.

    Args:
        u: uniform [images, 6]: rotation, shear, two scales, two shifts.
        bends: normal [images, 2, KNOTS, KNOTS], the elastic distortion at the knots.
    """
    return Distortion(
        angle=(2 * u[:, 0] - 1) * 0.26,  # radians (15°)
        shear=(2 * u[:, 1] - 1) * 0.25,
        tall=np.exp((2 * u[:, 2] - 1) * 0.18),
        wide=np.exp((2 * u[:, 3] - 1) * 0.18),
        down=(2 * u[:, 4] - 1) * 2.0,
        right=(2 * u[:, 5] - 1) * 2.0,
        bends=(bends * 1.3).astype(np.float32),
    )


def _key(codes: list[int], per_identity: int, seed: int) -> str:
    """Names everything the images depend on."""
    versions = [str(_FORMAT), np.__version__, pillow_version, str(features.version("freetype2"))]
    digest = hashlib.sha256("|".join([*versions, str(per_identity), str(seed)]).encode())
    for file in font_files():
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
    digest.update(np.array(codes, np.int64).tobytes())
    return digest.hexdigest()[:20]


def _load(file: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """The images in a cache file, or None if there is none or it is damaged."""
    try:
        content = file.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        images = np.load(io.BytesIO(content[32:]), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return images if images.shape == shape and images.dtype == np.uint8 else None


def _save(file: Path, images: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, images)
    content = buffer.getvalue()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, hashlib.sha256(content).digest() + content)
    except OSError as error:  # the images are good; only the next start is slower
        warnings.warn(
            f"the drawn images could not be kept in {file.parent} ({error.strerror}); set SFUMATO_CACHE to a "
            "folder that can be written",
            stacklevel=3,
        )
