"""Faces as the recipe sees them: what a public network makes of each picture, whitened by public faces.

A row is a fixed public function of one picture: SqueezeNet's 512 pooled channels (`sfumato.models.ImageNetFeatures`),
less the mean of 400 pictures of ORL, on the principal axes of those, each divided by its standard deviation there.
Nothing of LFW decides this function. `VIEWS` are four such functions: a person's pictures in four views are still that
person's records alone.
"""

import hashlib
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import public_features
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from cells import SHARED
from PIL import Image
from torch import nn

from sfumato import data, metrics, models
from sfumato.data import UserDataset

AXES = 128
SIDE = 112
_AT_ONCE = 64
AS_IT_IS, MIRRORED = "as it is", "mirrored"
VIEWS = (AS_IT_IS, MIRRORED, "crop 1", "crop 2")
SMALLEST, LARGEST = 90, 108
"""Sides of a crop."""


@dataclass(frozen=True)
class Faces:
    """The parts; no one is in two of them.

    Attributes:
        train: people to train on.
        friends: people of LFW who are taken to have agreed to be public, to serve as negatives.
        train_views, friends_views: the same people, each picture in `VIEWS`.
        strangers: ORL's forty people, public as well.
        validation: unseen people, by whom settings were chosen.
        test: unseen people.
        test_as_is: the same people, before whitening.
        pairs: those of LFW's view 2 both of whose people are in the test.
    """

    train: UserDataset
    friends: UserDataset
    train_views: UserDataset
    friends_views: UserDataset
    strangers: UserDataset
    validation: UserDataset
    test: UserDataset
    test_as_is: UserDataset
    pairs: metrics.Pairs


class Residual(nn.Module):
    """x + W x, with W zero at the start: an embedding that begins as what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Linear(AXES, AXES, bias=False)
        nn.init.zeros_(self.turn.weight)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map whitened features, float [n, AXES], to embeddings of the same shape."""
        return features + self.turn(features)


@cache
def faces(folder: Path | None = None) -> Faces:
    """The parts, from the folder of shared data: people by a hash of their names."""
    folder = folder or SHARED
    weights = folder / "squeezenet1_0_imagenet.safetensors"
    name = names_of(folder / "lfw_112.parquet")
    views = [_features(weights, folder / "lfw_112.parquet", _lfw, view) for view in VIEWS]
    rows = views[0]
    public, who = _features(weights, folder / "orl_faces.npz", _orl), np.load(folder / "orl_faces.npz")["person"]
    mean, axes = whitening(folder)

    def whitened(rows: np.ndarray) -> np.ndarray:
        return ((rows - mean) @ axes).astype(np.float32)

    parts = split(data.from_arrays(whitened(rows), name, name))
    train, friends, validation, test = parts
    in_views = split(data.from_arrays(whitened(np.concatenate(views)), *2 * [np.tile(name, len(VIEWS))]))
    pairs = metrics.lfw_pairs(folder / "lfw_pairs.txt").among(test)
    for part in (train, friends, validation):
        pairs.refuse_trained_on(part.user_ids)
    return Faces(
        train=train,
        friends=friends,
        train_views=in_views[0],
        friends_views=in_views[1],
        strangers=data.from_arrays(whitened(public), who, who.astype(str)),
        validation=validation,
        test=test,
        test_as_is=split(data.from_arrays(rows, name, name))[3],
        pairs=pairs,
    )


def whitening(folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The mean of ORL's features, float32 [512], and their first axes, each divided by its deviation, [512, AXES]."""
    folder = folder or SHARED
    public = _features(folder / "squeezenet1_0_imagenet.safetensors", folder / "orl_faces.npz", _orl)
    mean = public.mean(axis=0)
    _, scales, axes = np.linalg.svd(public - mean, full_matrices=False)
    return mean, (axes[:AXES] / (scales[:AXES, None] / np.sqrt(len(public)))).T


def pictures(
    folder: Path | None = None, *, most: int | None = None
) -> tuple[UserDataset, UserDataset, UserDataset, UserDataset]:
    """The same parts of the same people (train, friends, validation, test), as pictures, uint8 [n, 112, 112, 3].

    Args:
        folder: of shared data.
        most: so many pictures, the first by name; None for all.
    """
    file = (folder or SHARED) / "lfw_112.parquet"
    name = names_of(file)[:most]
    return split(data.from_arrays(_lfw(file, most), name, name))


def split(people: UserDataset) -> tuple[UserDataset, UserDataset, UserDataset, UserDataset]:
    """To train on, public, to choose by, to test on: 12 % of people for the test, 8 % to choose by, a tenth of the rest
    public; each by a hash of the own name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = data.split_users(people, test=0.12, validation=0.08, seed=0)
        inner = data.split_users(whole.train, test=0.1, seed=1)
    return inner.train, inner.test, whole.validation, whole.test


def _features(weights: Path, file: Path, read: Callable[[Path], np.ndarray], view: str = AS_IT_IS) -> np.ndarray:
    """Of all pictures of a file in one view, float32 [n, 512], from the cache or computed."""

    def compute() -> np.ndarray:
        network = models.squeezenet(None)
        models.load_pretrained(network, weights)
        function, pictures, found = models.ImageNetFeatures(network).eval(), read(file), []
        with torch.inference_mode():
            for start in range(0, len(pictures), _AT_ONCE):
                some = seen(pictures[start : start + _AT_ONCE], view)
                found.append(function(some).numpy().astype(np.float16))
        return np.concatenate(found)

    digests = [hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in (weights, file)]
    name = "-".join(["squeezenet", file.stem, *digests, *([] if view == AS_IT_IS else view.split())])
    return np.asarray(public_features.cached(name, compute), np.float32)


def seen(pictures: np.ndarray, view: str) -> torch.Tensor:
    """Pictures, uint8 [n, SIDE, SIDE, 3], in one of `VIEWS`, as float [n, 3, SIDE, SIDE].

    A crop is drawn by the bytes of its own picture: nothing else that is there decides where it lies.
    """
    rows = data.to_tensor(pictures)
    if view == AS_IT_IS:
        return rows
    return rows.flip(3) if view == MIRRORED else torch.stack(list(map(partial(_crop, view), pictures, rows)))


def _crop(view: str, picture: np.ndarray, row: torch.Tensor) -> torch.Tensor:
    digest = hashlib.blake2b(picture.tobytes() + view.encode(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "big"))
    side = int(rng.integers(SMALLEST, LARGEST + 1))
    top, left = rng.integers(0, SIDE - side + 1, 2).tolist()
    part = row[None, :, top : top + side, left : left + side]
    found = nn.functional.interpolate(part, (SIDE, SIDE), mode="bilinear", align_corners=False)[0]
    return found.flip(2) if rng.random() < 0.5 else found


def _sorted(file: Path, columns: list[str]) -> pa.Table:
    """In the order of names and of pictures' numbers."""
    table = pq.read_table(file, columns=[*columns, "person", "number"])
    return table.sort_by([("person", "ascending"), ("number", "ascending")])


def names_of(file: Path) -> np.ndarray:
    """Whose each picture of LFW is, text [n]."""
    return np.array(_sorted(file, [])["person"].to_pylist())


def _lfw(file: Path, most: int | None = None) -> np.ndarray:
    """Pictures, uint8 [n, 112, 112, 3]."""
    rows = _sorted(file, ["image"])["image"][:most].to_pylist()
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in rows])


def _orl(file: Path) -> np.ndarray:
    """ORL's pictures cut to a square and brought to LFW's size and colours."""
    grey = [Image.fromarray(picture).convert("RGB") for picture in np.load(file)["images"]]
    square = [picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, (0, 10, 92, 102)) for picture in grey]
    return np.stack([np.asarray(picture) for picture in square])
