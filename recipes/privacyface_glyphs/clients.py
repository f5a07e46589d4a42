"""Four clients of generated identities, public ones, and unseen ones: an identity is a character in a style.

A family of four styles is a client's. Families differ in how letters lean or turn; styles of a family in the stroke and
the width. All clients have the same characters, so that an identity resembles those of the same character at the other
clients, which its own client never sees. Public and unseen identities are other characters, in all sixteen styles.

Characters are drawn in one face, DejaVu Sans. Pictures of an identity differ in place, scale, bends, ink and grain, and
slightly in what makes its style. Nothing is collected: an ε on them is a demonstration.
"""

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np
import privacyface_recipe
import public_features
import torch
from torch import nn

from sfumato import data
from sfumato._random import RandomSource
from sfumato.data import UserDataset, drawn_glyphs
from sfumato.federated.clustering import centres_of

PUBLIC, UNSEEN = "public", "unseen"
FAMILIES: dict[str, tuple[float, float]] = {
    "upright": (0.0, 0.0),
    "leaning left": (0.0, -0.5),
    "leaning right": (0.0, 0.5),
    "turned": (0.6, 0.0),
}
"""Angle in radians and slope of upright strokes, by client."""

CLIENTS = tuple(FAMILIES)
STYLES = ((-0.8, 1.0, 1.45), (-0.8, 1.45, 1.0), (2.4, 1.0, 1.45), (2.4, 1.45, 1.0))
"""Stroke in pixels of the field, and the factors by which height and width shrink, of each style of a family."""

DIMENSIONS = privacyface_recipe.DIMENSIONS
_SEED = 16
_AT_ONCE = 2048  # pictures


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much there is.

    Attributes:
        public, unseen, private: characters; with as many of the first two, fewer private ones are some of more.
        pictures: of an identity.
        epochs: passes over the public pictures by which the network begins.
    """

    public: int = 350
    unseen: int = 219
    private: int = 1750
    pictures: int = 4
    epochs: int = 8


FULL, QUICK = Size(), Size(public=40, unseen=20, private=50, pictures=3, epochs=2)


@cache
def users(part: str, size: Size = FULL) -> UserDataset:
    """The pictures of a client, `PUBLIC` or `UNSEEN`; users are identities, named by character and style."""
    codes, families = characters(size)[part if part in (PUBLIC, UNSEEN) else "private"], [part]
    if part in (PUBLIC, UNSEEN):
        families = list(FAMILIES)
    names = [f"U+{code:04X} {family} {style}" for code in codes for family in families for style in range(len(STYLES))]
    key = hashlib.sha256(repr((_SEED, FAMILIES, STYLES, size.pictures, names)).encode()).hexdigest()[:16]
    pictures = public_features.cached(f"glyph-styles-{key}", lambda: _drawn(codes, families, size.pictures))
    owners = np.repeat(names, size.pictures)
    return data.from_arrays(np.asarray(pictures)[..., None], owners, owners)


def characters(size: Size) -> dict[str, list[int]]:
    """Code points of public, unseen and private identities: no character is in two parts."""
    available = drawn_glyphs.identities()
    order = RandomSource.from_seed(_SEED).stream("characters").permutation(len(available)).tolist()
    ends = np.cumsum([size.public, size.unseen, size.private]).tolist()
    parts = zip((PUBLIC, UNSEEN, "private"), [0, *ends[:-1]], ends, strict=True)
    return {part: sorted(available[place] for place in order[start:end]) for part, start, end in parts}


def _drawn(codes: list[int], families: list[str], pictures: int) -> np.ndarray:
    """uint8 [characters · families · styles · pictures, 28, 28], in this order."""
    return np.concatenate([_one(code, families, pictures) for code in codes])


def _one(code: int, families: list[str], pictures: int) -> np.ndarray:
    """All pictures of a character; they depend on it and on the family alone."""
    fonts = drawn_glyphs.faces()
    field = fonts.distance(fonts.reference, code)
    assert field is not None
    looks = np.array([(*FAMILIES[family], *style) for family in families for style in STYLES])
    angle, shear, stroke, tall, wide = np.repeat(looks, pictures, axis=0).T
    count, side = pictures * len(STYLES), drawn_glyphs.SIDE
    uniform, bends, grain = [], [], []
    for family in families:
        source = RandomSource.from_seed(_SEED).within(f"{family} {code}")
        generator = np.random.Generator(np.random.Philox(source.seed64("pictures")))
        uniform.append(2 * generator.random((count, 10)) - 1)
        bends.append(generator.standard_normal((count, 2, drawn_glyphs.KNOTS, drawn_glyphs.KNOTS)))
        grain.append(generator.standard_normal((count, side, side), dtype=np.float32))
    u = np.concatenate(uniform)
    distortion = drawn_glyphs.Distortion(
        angle=angle + 0.08 * u[:, 0],
        shear=shear + 0.08 * u[:, 1],
        tall=tall * np.exp(0.06 * u[:, 2]),
        wide=wide * np.exp(0.06 * u[:, 3]),
        down=2.0 * u[:, 4],
        right=2.0 * u[:, 5],
        bends=np.concatenate(bends).astype(np.float32),
    )
    return drawn_glyphs.painted(
        drawn_glyphs.looked_up(field[None], np.zeros(len(u), np.int64), distortion),
        stroke=stroke + 0.4 * u[:, 6],
        softness=2.4 + 0.8 * u[:, 7],
        paper=25 + 25 * u[:, 8],
        ink=200 + 55 * u[:, 9],
        grain=np.float32(12.0) * np.concatenate(grain),
    )


@cache
def started(seed: int, size: Size = FULL) -> nn.Module:
    """A network that only the public identities have trained."""
    return privacyface_recipe.begun(users(PUBLIC, size), seed, size.epochs)


def embedded(model: nn.Module, people: UserDataset) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of length 1, float32 [n, d], and whose each is, int64 [n]."""
    pictures, _, counts = people.examples_of(np.arange(len(people)))
    with torch.inference_mode():
        parts = [
            model(data.to_tensor(np.asarray(pictures[start : start + _AT_ONCE])))
            for start in range(0, len(pictures), _AT_ONCE)
        ]
    return nn.functional.normalize(torch.cat(parts), dim=1).numpy(), np.repeat(np.arange(len(people)), counts)


def centres(model: nn.Module, people: UserDataset) -> np.ndarray:
    """The class centre of each identity, float32 [identities, d]."""
    return centres_of(*embedded(model, people))
