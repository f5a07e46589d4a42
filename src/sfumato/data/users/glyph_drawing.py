"""From distance fields to pictures: how a glyph is moved, bent and inked.

A picture asks for each of its pixels where to look in the field; the answer turns with the angle, leans with the shear
and bends with a smooth distortion. How thick the stroke is and how soft its edge, is decided by the distance found
there. All in single precision and without BLAS, so that the bytes do not depend on the number of threads.
"""

from dataclasses import dataclass

import numpy as np

from sfumato.data.users.glyph_shapes import BOX, FIELD

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
