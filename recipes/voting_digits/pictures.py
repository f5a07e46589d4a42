"""Pictures of digits in the server's format: 8×8 counts of ink, as scikit-learn's digits are.

Each picture is brought there by itself, so this is a public preprocessing: ink from background, the slant taken out,
the digit's box stretched to 32 rows (and at most 24 columns, as the server's digits are narrow), thresholded, and ink
counted in blocks of 4×4. An agent may add copies of its own records, slanted, turned and stretched at random.

>>> import numpy as np
>>> bar = np.zeros((1, 28, 28), np.float32)
>>> bar[0, 4:24, 13:15] = 1.0
>>> bool(counts(bar)[0, :, 3:5, 0].min() > 0), int(counts(bar)[0, :, 0, 0].max())
(True, 0)
"""

import numpy as np
import torch
from torch.nn import functional

SIZE, BLOCK, WIDEST = 32, 4, 24  # of the bitmap; of a count; columns a digit may take
_SLANT, _TURN, _STRETCH = 0.12, 0.12, 0.12  # standard deviations of a copy's changes
_AT_ONCE = 2048


def counts(grey: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
    """Counts of ink, scaled to 0 … 255.

    Args:
        grey: float32 [n, h, w], 0 (background) … 1 (ink).
        rng: draws a change for each picture; None leaves them as they are.

    Returns:
        uint8 [n, 8, 8, 1]; a picture without ink is all 0.
    """
    found = np.zeros((len(grey), SIZE // BLOCK, SIZE // BLOCK, 1), np.uint8)
    for start in range(0, len(grey), _AT_ONCE):
        found[start : start + _AT_ONCE] = _counts(grey[start : start + _AT_ONCE], rng)
    return found


def _counts(grey: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    number, height, width = grey.shape
    ink = grey > 0.4
    down, right = np.mgrid[:height, :width].astype(np.float32)
    mass = np.maximum(ink.sum((1, 2)), 1)[:, None, None]
    y = down - (ink * down).sum((1, 2))[:, None, None] / mass
    x = right - (ink * right).sum((1, 2))[:, None, None] / mass
    tall = np.maximum((ink * y * y).sum((1, 2)), 1e-3)
    upright = _matrices(np.clip((ink * x * y).sum((1, 2)) / tall, -0.8, 0.8), rng)
    u = upright[:, 0, 0, None, None] * x + upright[:, 0, 1, None, None] * y
    v = upright[:, 1, 0, None, None] * x + upright[:, 1, 1, None, None] * y
    left, wide = _extent(u, ink)
    top, high = _extent(v, ink)
    columns = np.clip(np.round(wide * SIZE / high), BLOCK, WIDEST)
    # From the bitmap's coordinates in [-1, 1] to the upright picture's, and on to the given one's in [-1, 1].
    scale = np.stack([wide / columns, high / SIZE], -1) * SIZE / 2
    middle = np.stack([left + wide / 2, top + high / 2], -1)
    back = np.linalg.inv(upright)
    centre = np.stack([(right - x)[:, 0, 0], (down - y)[:, 0, 0]], -1) + 0.5
    given = 2.0 / np.array([width, height])
    affine = np.concatenate(
        [back * scale[:, None, :], (np.einsum("nij,nj->ni", back, middle) + centre)[:, :, None]], axis=2
    )
    affine *= given[:, None]
    affine[:, :, 2] -= 1.0
    grid = functional.affine_grid(torch.from_numpy(affine).float(), [number, 1, SIZE, SIZE], align_corners=False)
    shown = functional.grid_sample(torch.from_numpy(np.ascontiguousarray(grey))[:, None], grid, align_corners=False)
    inside = np.abs(np.arange(SIZE) + 0.5 - SIZE / 2) <= columns[:, None] / 2
    bits = ((shown > 0.4) & torch.from_numpy(inside)[:, None, None, :]).float()
    # Half as thick again: MNIST's strokes are thinner than the server's.
    cross = torch.maximum(
        functional.max_pool2d(bits, (3, 1), 1, (1, 0)), functional.max_pool2d(bits, (1, 3), 1, (0, 1))
    )
    share = functional.avg_pool2d((bits + cross) / 2, BLOCK)
    share[torch.from_numpy(~ink.any((1, 2)))] = 0
    return (share * 255).byte().permute(0, 2, 3, 1).numpy()


def _matrices(slant: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """From centred coordinates (x, y) to upright ones, [n, 2, 2]."""
    number = len(slant)
    found = np.tile(np.eye(2), (number, 1, 1))
    found[:, 0, 1] = -slant
    if rng is None:
        return found
    angle = rng.normal(0, _TURN, number)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1).reshape(-1, 2, 2)
    stretch = np.tile(np.eye(2), (number, 1, 1))
    stretch[:, 0, 0] = np.exp(rng.normal(0, _STRETCH, number))
    stretch[:, 0, 1] = rng.normal(0, _SLANT, number)
    return stretch @ turn @ found


def _extent(places: np.ndarray, ink: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the ink begins, and how far it goes, at least a pixel."""
    first = np.where(ink, places, np.inf).min((1, 2)) - 0.5
    last = np.where(ink, places, -np.inf).max((1, 2)) + 0.5
    empty = ~ink.any((1, 2))
    first[empty], last[empty] = 0.0, 1.0
    return first, np.maximum(last - first, 1.0)


def ink_on_photograph(pictures: np.ndarray) -> np.ndarray:
    """Ink of MNIST-M's 32×32 pictures: how far a pixel is from the picture's median colour, cut by Otsu's threshold.

    Args:
        pictures: uint8 [n, 32, 32, 3].

    Returns:
        float32 [n, 28, 28], 0 or 1; three pixels at each edge are background.
    """
    inner = pictures[:, 2:30, 2:30].astype(np.float32)
    median = np.median(inner.reshape(len(inner), -1, 3), axis=1)
    far = np.abs(inner - median[:, None, None]).mean(-1)
    far = far / np.maximum(far.max((1, 2), keepdims=True), 1e-6)
    ink = far > otsu(far)[:, None, None]
    ink[:, :3], ink[:, -3:], ink[:, :, :3], ink[:, :, -3:] = False, False, False, False
    return ink.astype(np.float32)


def otsu(grey: np.ndarray) -> np.ndarray:
    """For each picture the threshold in (0, 1) that leaves the least variance within its two parts.

    Args:
        grey: float [n, h, w] in [0, 1].
    """
    flat = grey.reshape(len(grey), -1)
    best, chosen = np.full(len(flat), -1.0), np.full(len(flat), 0.5)
    for threshold in np.linspace(0, 1, 33)[1:-1]:
        above = flat > threshold
        share = above.mean(1)
        high = (flat * above).sum(1) / np.maximum(above.sum(1), 1)
        low = (flat * ~above).sum(1) / np.maximum((~above).sum(1), 1)
        between = share * (1 - share) * (high - low) ** 2
        better = between > best
        best[better], chosen[better] = between[better], threshold
    return chosen
