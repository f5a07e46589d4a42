"""Synthetic writers: a population of any size, each of whom writes letters and digits in a hand of their own.

A hand is a face of the DejaVu fonts, a slant, a width and height of letters, a stroke, an ink, a way to bend all
letters, and one for each letter; each picture of it jitters a little. Each writer writes tens of characters. The
shape is that of federated EMNIST: users are writers, classes are digits, capitals and small letters.

Nothing is stored but each character's number: a picture is drawn when it is asked for, and depends on the seed, the
writer and the place alone. So writers 0 … n − 1 are the same in every population, and a hundred thousand take some
megabytes. The people are synthetic: no privacy is at stake, and an ε that is reported on them is a demonstration.

>>> hands = writers(population=3, seed=0)
>>> hands
UserDataset(3 users, 160 examples of (28, 28, 1) uint8, 62 classes)
>>> more = writers(population=1000, seed=0)
>>> all((more.examples(user)[0] == hands.examples(user)[0]).all() for user in range(3))
True
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from sfumato._check import InputError, whole
from sfumato._random import RandomSource
from sfumato.data.drawn_glyphs import KNOTS, SIDE, Distortion, distance_fields, font_files, looked_up, painted
from sfumato.data.mapped import Strings
from sfumato.data.users import UserDataset

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""What is written, in the order of EMNIST's classes: digits, capitals, small letters."""

_FORMAT = 1  # raise it whenever a picture changes
_LEAST, _MOST = 20, 60  # characters of a writer
_TOGETHER = 1024  # writers whose characters are chosen in one go
_DRAWN = 2048  # pictures drawn in one go: about 100 MB


def writers(population: int = 10_000, *, seed: int = 0) -> UserDataset:
    """People who write, each in a hand of their own.

    Args:
        population: how many, >= 1.
        seed: whole number >= 0; another one has other hands.

    Returns:
        inputs uint8 [28, 28, 1], 0 = paper, drawn on demand; 20 to 60 a user, of classes 0 to 61 (`CHARACTERS`), all
        equally likely; label_groups "digits", "capitals" and "small". `split_users` and `select_classes` work as for
        collected data: train on the first two groups, test on the third of other writers.

    Raises:
        InputError: a number is out of range.
    """
    whole(population=population)
    whole(seed=seed, at_least=0)
    source = RandomSource.from_seed(seed)
    sizes, labels = [], []
    for start in range(0, population, _TOGETHER):
        stream = source.stream("writers", "characters", start // _TOGETHER)
        size = (_LEAST + stream.integers(_MOST + 1 - _LEAST, _TOGETHER))[: population - start]
        written = stream.integers(len(CHARACTERS), _TOGETHER * _MOST).astype(np.uint8).reshape(_TOGETHER, _MOST)
        sizes.append(size)
        labels.append(written[: len(size)][np.arange(_MOST) < size[:, None]])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    drawn = Handwriting(source, offsets, np.concatenate(labels))
    return UserDataset(
        inputs=drawn,
        labels=drawn.labels,
        offsets=offsets,
        names=_Names(population),
        num_classes=len(CHARACTERS),
        label_names=Strings.from_list(CHARACTERS),
        label_groups=Strings.from_list(
            "digits" if character.isdigit() else "capitals" if character.isupper() else "small"
            for character in CHARACTERS
        ),
        contents=drawn.digest,
    )


class _Names(Sequence[str]):
    """Names of writers: their numbers."""

    def __init__(self, population: int) -> None:
        self._range = range(population)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [f"writer-{number}" for number in self._range[index]]
        return f"writer-{self._range[index]}"


class Handwriting:
    """The pictures of all writers, drawn on demand, uint8 [examples, SIDE, SIDE, 1].

    Args:
        source: of hands and jitter.
        offsets: int64 [writers + 1], where each one's characters begin.
        labels: uint8 [examples], places in `CHARACTERS`.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, source: RandomSource, offsets: np.ndarray, labels: np.ndarray) -> None:
        self._source, self._offsets, self.labels = source, offsets, labels

    @property
    def shape(self) -> tuple[int, ...]:
        """[examples, SIDE, SIDE, 1]."""
        return (len(self.labels), SIDE, SIDE, 1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        """The pictures of a slice."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            return self[0 : len(self)][rows] if start < stop else self[0:0]
        parts = [self._drawn(at, min(at + _DRAWN, stop)) for at in range(start, stop, _DRAWN)]
        return np.concatenate(parts) if parts else np.empty((0, SIDE, SIDE, 1), np.uint8)

    def digest(self) -> str:
        """Of all that the pictures follow from."""
        digest = hashlib.sha256(
            f"writers {_FORMAT} {np.__version__} {self._source.seed64('writers', 'digest')}".encode()
        )
        for file in font_files():
            digest.update(f"{file.name}:{file.stat().st_size}".encode())
        digest.update(self._offsets.tobytes() + self.labels.tobytes())
        return digest.hexdigest()

    def _drawn(self, start: int, stop: int) -> np.ndarray:
        fields = _fields()
        first, last = np.searchsorted(self._offsets, [start, stop - 1], side="right") - 1
        hands = [
            self._hand(writer, max(start, self._offsets[writer]), min(stop, self._offsets[writer + 1]))
            for writer in range(first, last + 1)
        ]
        hand = _Hands(*(np.concatenate(part) for part in zip(*(each.parts for each in hands), strict=True)))
        labels = self.labels[start:stop]
        distance = looked_up(fields.all, labels.astype(np.int64) * fields.faces + hand.face, hand.distortion)
        plain = hand.plain
        images = painted(
            distance,
            stroke=-0.4 + 2.4 * plain[:, 0] + 0.3 * (plain[:, 5] - 0.5),
            softness=1.6 + 1.6 * plain[:, 1],
            paper=40.0 * plain[:, 2],
            ink=150.0 + 105.0 * plain[:, 3],
            grain=hand.grain,
        )
        return images[..., None]

    def _hand(self, writer: int, start: int, stop: int) -> "_Hands":
        """One writer's hand, for some of their pictures, which do not depend on which ones are asked for."""
        random = np.random.Generator(np.random.Philox(self._source.seed64("writers", "hand", writer)))
        hand, size = random.random(10), int(self._offsets[writer + 1] - self._offsets[writer])
        own = random.standard_normal((2, KNOTS, KNOTS))
        of_letters = random.standard_normal((len(CHARACTERS), 2, KNOTS, KNOTS), dtype=np.float32)
        jitter = random.random((size, 7))
        bends = random.standard_normal((size, 2, KNOTS, KNOTS), dtype=np.float32)
        noise = random.standard_normal((size, SIDE, SIDE), dtype=np.float32)
        rows = slice(start - self._offsets[writer], stop - self._offsets[writer])
        labels, jitter = self.labels[start:stop], jitter[rows]
        moved = 2 * jitter[:, :6] - 1
        bent = 1.0 * own[None] + 0.7 * of_letters[labels] + 0.4 * bends[rows]
        distorted = np.column_stack(
            [
                0.12 * (2 * hand[0] - 1) + 0.08 * moved[:, 0],  # radians
                0.35 * (2 * hand[1] - 1) + 0.06 * moved[:, 1],
                np.exp(0.18 * (2 * hand[2] - 1) + 0.06 * moved[:, 2]),
                np.exp(0.25 * (2 * hand[3] - 1) + 0.06 * moved[:, 3]),
                1.0 * (2 * hand[4] - 1) + 1.2 * moved[:, 4],  # pixels
                1.0 * (2 * hand[5] - 1) + 1.2 * moved[:, 5],
            ]
        )
        plain = np.column_stack([np.broadcast_to(hand[6:10], (len(labels), 4)), jitter[:, 5:7]])
        face = np.full(len(labels), int(random.integers(_fields().faces)))
        grain = np.float32(3.0 + 12.0 * hand[9]) * noise[rows]
        return _Hands(face, distorted, bent.astype(np.float32), plain, grain)


@dataclass(frozen=True, eq=False)
class _Hands:
    """How some pictures are drawn: a row each."""

    face: np.ndarray
    distorted: np.ndarray
    bends: np.ndarray
    plain: np.ndarray
    grain: np.ndarray

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        return self.face, self.distorted, self.bends, self.plain, self.grain

    @cached_property
    def distortion(self) -> Distortion:
        angle, shear, tall, wide, down, right = self.distorted.T
        return Distortion(angle=angle, shear=shear, tall=tall, wide=wide, down=down, right=right, bends=self.bends)


@dataclass(frozen=True, eq=False)
class _Fields:
    all: np.ndarray
    faces: int


@cache
def _fields() -> _Fields:
    """The distance fields of all characters in all faces, about 9 MB; they do not change while the program runs."""
    fields, _, count = distance_fields([ord(character) for character in CHARACTERS])
    if len(set(count.tolist())) > 1:
        raise InputError("the DejaVu fonts lack letters; install matplotlib from PyPI")
    return _Fields(fields, int(count[0]))
