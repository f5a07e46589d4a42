"""The pictures whose embeddings are nearest to some others, for people who would rather look than read a recall.

Six pictures of six classes are asked for, evenly spaced over the data and not chosen by what comes out. The answer
holds copies of pictures: it is as private as the records it was made from, and for their owner only.
"""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from sfumato.data import UserDataset
from sfumato.metrics import nearest

ASKED = 6
"""Pictures that are asked for."""

SHOWN = 5
"""Nearest others of each."""

_SIDE = 64  # pixels of a copy, at most: to recognise it by, and some kilobytes


def nearest_pictures(data: UserDataset, labels: np.ndarray, vectors: np.ndarray) -> list[dict[str, Any]]:
    """What the embeddings hold for alike.

    Args:
        data: where the pictures are.
        labels: int64 [examples], in the order of the data.
        vectors: their embeddings of length 1, float32 [examples, dimensions].

    Returns:
        a row for each picture asked for: label, picture (PNG in base64) and nearest, a list of label, picture and same
        (whether the class is that of the one asked for), nearest first. No rows where inputs are no 8-bit pictures, or
        no picture has another of its class.
    """
    asked = _asked(labels)
    if not len(asked) or not _are_pictures(data):
        return []
    found = [
        [place for place in places if place != row][:SHOWN]
        for row, places in zip(asked, nearest(vectors[asked], [vectors], count=SHOWN + 1)[0], strict=True)
    ]
    ends = np.cumsum(data.sizes)

    def told(row: int) -> dict[str, Any]:
        user = int(np.searchsorted(ends, row, side="right"))
        picture = np.asarray(data.examples(user)[0])[row - (int(ends[user - 1]) if user else 0)]
        label = int(labels[row])
        return {
            "label": str(data.label_names[label] if data.label_names is not None else label),
            "picture": _png(picture),
        }

    return [
        {
            **told(int(row)),
            "nearest": [{**told(int(near)), "same": bool(labels[near] == labels[row])} for near in neighbours],
        }
        for row, neighbours in zip(asked, found, strict=True)
    ]


def _asked(labels: np.ndarray) -> np.ndarray:
    """The first picture of each of some classes that have two, evenly spaced."""
    _, first, count = np.unique(labels, return_index=True, return_counts=True)
    first = first[count > 1]
    if not len(first):
        return first
    return first[np.unique(np.linspace(0, len(first) - 1, ASKED).astype(np.int64))]


def _are_pictures(data: UserDataset) -> bool:
    return len(data.input_shape) == 3 and data.input_shape[2] in (1, 3) and data.dtype == np.uint8


def _png(picture: np.ndarray) -> str:
    image = Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)
    image.thumbnail((_SIDE, _SIDE))
    written = io.BytesIO()
    image.save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode("ascii")
