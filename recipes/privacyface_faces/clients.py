"""Four clients of real faces that share no name, and public people: pictures, identities, embeddings.

LFW's men in two halves by a hash of the name, LFW's women, and CFP (frontal) with CelebA. People of LFW who are in CFP,
by name, are left out of LFW; CelebA has no names, so that an overlap with it is unknown. Public are 300 people of LFW
with one picture and 200 with more. At most 6, 8 and 10 pictures a person; of CelebA those that agree with the person's
others.

These clients are sources and one given label, not ethnic groups. The embedding is MobileFaceNet's; what it was trained
on is unknown and may hold people of LFW.
"""

import csv
import hashlib
import io
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import public_features
import pyarrow.parquet as pq
import torch
from cells import SHARED
from PIL import Image

from sfumato import data, models
from sfumato.federated.clustering import centres_of

PUBLIC = "public"
CLIENTS = ("LFW men A", "LFW men B", "LFW women", "CFP + CelebA")
GALLERY = 3
"""Pictures that an attacker has of an identity; they are in no centre."""

_NETWORK = "mobilefacenet.safetensors"
_FILES = {"lfw": "lfw_112.parquet", "cfp": "cfp_112.parquet", "celeba": "celeba_299_112.parquet"}
_AGREEMENT = 0.3
_MOST = {"lfw": 6, "cfp": 8, "celeba": 10}
_PUBLIC_SINGLE, _PUBLIC_SEVERAL = 300, 200
_BOX = (10.5, 3.5, 101.5, 94.5)  # of LFW's pictures, to the template of the network
_TEMPLATE = 112
_AT_ONCE = 13  # what a block makes of them stays in the caches of a core
_QUICK = 6  # times fewer identities


@dataclass(frozen=True, kw_only=True, eq=False)
class Client:
    """The identities of one client.

    Attributes:
        name: of the client.
        identities: their names, sorted, text [identities].
        owners: whose each picture is, int64 [n].
        rows: of the pictures in the order of `pictures`, int64 [n].
        embeddings: of the pictures, of length 1, float32 [n, 128].
        features: what the network's last layer makes them of, float32 [n, 512].
        gallery: whether a picture is the attacker's, bool [n]: three of each identity that has four or more.
    """

    name: str
    identities: np.ndarray
    owners: np.ndarray
    rows: np.ndarray
    embeddings: np.ndarray
    features: np.ndarray
    gallery: np.ndarray

    @property
    def centres(self) -> np.ndarray:
        """Of all identities, without the attacker's pictures, float32 [identities, 128]."""
        return centres_of(self.embeddings[~self.gallery], self.owners[~self.gallery])

    @property
    def known(self) -> np.ndarray:
        """Identities that the attacker has pictures of, int64."""
        return np.unique(self.owners[self.gallery])


@cache
def clients(folder: Path | None = None, quick: bool = False) -> dict[str, Client]:
    """The four clients, and the public people under `PUBLIC`."""
    folder = folder or SHARED
    who, source, number = _listed(folder, quick)
    features, layer = _features(folder, quick), network(folder).embedding
    group = _groups(folder, who, source, quick)
    found = {}
    for name in (*CLIENTS, PUBLIC):
        rows = np.flatnonzero(group == name)
        identities, owners = np.unique(who[rows], return_inverse=True)
        several = np.bincount(owners)[owners] > GALLERY
        with torch.inference_mode():
            raw = layer(torch.from_numpy(np.array(features[rows])))  # pyright: ignore
        found[name] = Client(
            name=name,
            identities=identities,
            owners=owners,
            rows=rows,
            embeddings=torch.nn.functional.normalize(raw, dim=1).numpy(),
            features=np.array(features[rows]),
            gallery=several & (number[rows] < GALLERY) & (name != PUBLIC),
        )
    return found


def pictures(rows: np.ndarray, folder: Path | None = None, quick: bool = False) -> np.ndarray:
    """Pictures in the template of the network, uint8 [n, 112, 112, 3]; `rows` rises."""
    return _decoded(folder or SHARED, rows, quick)


def network(folder: Path | None = None) -> models.MobileFaceNet:
    """The public backbone."""
    found = models.mobilefacenet()
    models.load_pretrained(found, (folder or SHARED) / _NETWORK)
    return found.eval()


def embed(images: np.ndarray, folder: Path | None = None) -> np.ndarray:
    """The public backbone's embeddings of length 1, float32 [n, 128]."""
    model = network(folder)
    return torch.nn.functional.normalize(_mapped(model, images), dim=1).numpy()


def _mapped(model: torch.nn.Module, images: np.ndarray) -> torch.Tensor:
    with torch.inference_mode():
        parts = [data.to_tensor(images[start : start + _AT_ONCE]) for start in range(0, len(images), _AT_ONCE)]
        return torch.cat([model(part) for part in parts])


def draw(label: str, name: str) -> int:
    """A number of 64 bits that follows from a name, and for each label is another."""
    return int.from_bytes(hashlib.sha256(f"{label}:{name}".encode()).digest()[:8], "big")


@cache
def _listed(folder: Path, quick: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pictures that are used: their person, their source, and their number among the person's, from 0."""
    whole = _tables(folder, quick)
    return tuple(np.concatenate([part[place] for part in whole]) for place in (1, 2, 3))  # pyright: ignore


@cache
def _tables(folder: Path, quick: bool) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """For each source: rows of its file, people, the source, numbers among each person's pictures."""
    found = []
    for source, columns in (
        ("lfw", ["person", "number"]),
        ("cfp", ["person", "pose", "number"]),
        ("celeba", ["person", "agreement"]),
    ):
        table = pq.read_table(folder / _FILES[source], columns=columns)
        rows = np.arange(table.num_rows)
        if source == "cfp":
            rows = rows[np.array(table["pose"].to_pylist()) == "frontal"]
        if source == "celeba":
            rows = rows[table["agreement"].to_numpy() >= _AGREEMENT]
        people = np.array([f"{source}:{person}" for person in table["person"].to_pylist()])[rows]
        inner = table["number"].to_numpy()[rows] if "number" in columns else rows
        order = np.lexsort((inner, people))
        rows, people = rows[order], people[order]
        starts = np.flatnonzero(np.r_[True, people[1:] != people[:-1]])
        numbers = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))
        kept = numbers < _MOST[source]
        if quick:
            kept &= np.array([draw("quick", person) % _QUICK == 0 for person in people.tolist()])
        found.append((rows[kept], people[kept], np.full(int(kept.sum()), source), numbers[kept]))
    return found


def _groups(folder: Path, who: np.ndarray, source: np.ndarray, quick: bool) -> np.ndarray:
    """The client of each picture, `PUBLIC`, or "" for people who are left out."""
    with (folder / "face_name_overlap.csv").open(encoding="utf-8") as lines:
        shared = {row["lfw"] for row in csv.DictReader(lines) if row["lfw"] and row["cfp"]}
    with (folder / "lfw_people_labels.csv").open(encoding="utf-8") as lines:
        gender = {row["person"]: row["gender"] for row in csv.DictReader(lines)}
    names, counts = np.unique(who[source == "lfw"], return_counts=True)
    usable = np.array([name[4:] not in shared for name in names])
    public: set[str] = set()
    for some, most in ((counts == 1, _PUBLIC_SINGLE), (counts > 1, _PUBLIC_SEVERAL)):
        public |= set(
            sorted(names[some & usable].tolist(), key=partial(draw, PUBLIC))[: most // _QUICK if quick else most]
        )

    def group(name: str) -> str:
        if not name.startswith("lfw:"):
            return CLIENTS[3]
        if name[4:] in shared:
            return ""
        if name in public:
            return PUBLIC
        if gender.get(name[4:]) == "F":
            return CLIENTS[2]
        return CLIENTS[draw("half", name) % 2] if gender.get(name[4:]) == "M" else ""

    by_name = {name: group(name) for name in np.unique(who).tolist()}
    return np.array([by_name[name] for name in who.tolist()])


def _features(folder: Path, quick: bool) -> np.ndarray:
    """What the last layer reads of all pictures that are used, float32 [n, 512], from the cache or computed."""
    total = sum(len(rows) for rows, *_ in _tables(folder, quick))

    def compute() -> np.ndarray:
        model = network(folder)
        model.embedding = torch.nn.Identity()  # pyright: ignore
        parts = np.array_split(np.arange(total), max(1, total // 1000))
        return np.concatenate([_mapped(model, _decoded(folder, part, quick)).numpy() for part in parts])

    return public_features.cached(f"mobilefacenet-512-{_key(folder, quick)}", compute)


def _key(folder: Path, quick: bool) -> str:
    """A digest of what decides the features: the network's weights, the pictures, which are read, how they are cut."""
    found = hashlib.sha256(repr((_BOX, _TEMPLATE)).encode())
    for file in (_NETWORK, *_FILES.values()):
        found.update(hashlib.sha256((folder / file).read_bytes()).digest())
    for rows, *_ in _tables(folder, quick):
        found.update(b"%d:" % len(rows) + rows.astype("<i8").tobytes())
    return found.hexdigest()[:16]


def _decoded(folder: Path, rows: np.ndarray, quick: bool) -> np.ndarray:
    found, start = [], 0
    for (places, *_), file in zip(_tables(folder, quick), _FILES.values(), strict=True):
        inside = rows[(rows >= start) & (rows < start + len(places))] - start
        start += len(places)
        if not len(inside):
            continue
        for each in _column(folder / file).take(places[inside]).to_pylist():
            picture = Image.open(io.BytesIO(each["bytes"])).convert("RGB")
            if file == _FILES["lfw"]:
                picture = picture.resize((_TEMPLATE, _TEMPLATE), box=_BOX)
            found.append(np.asarray(picture))
    return np.stack(found)


@cache
def _column(file: Path):
    return pq.read_table(file, columns=["image"], memory_map=True)["image"].combine_chunks()
