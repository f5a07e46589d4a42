"""Templates: several pictures that stand for one person, compared one to one and one to many, as IJB-B and IJB-C do.

A template is a set of pictures, some of them frames of one medium (a video). Its vector is the sum, over media, of the
mean of the medium's embeddings of length 1, brought to length 1: a medium of a thousand frames counts as one still.

- **One to one.** Similarities of listed pairs of templates (`Templates.similarities`); `pair_histogram` makes the true
  accept rate at a false accept rate (TAR@FAR) of them.
- **One to many.** `identify` looks a probe up in a gallery. Rank k: the share of probes whose person is in the gallery
  (mated) that have fewer than k other people at least as similar. Open set: a probe is answered where its most similar
  person exceeds a threshold. The false positive rate (FPIR) is the share of non-mated probes that are answered, the
  true positive rate (TPIR) that of mated probes answered with their own person, who has to be strictly first.

A person of several gallery templates is as similar as the most similar one. Similarities lie on the grid of 2^-20, so
that copies tie; ties count against the network. Probes are compared some at a time: memory holds 2^24 similarities,
whatever the number of probes.

These numbers are computed from the data without noise: they are not private.

References:
    Whitelam et al.: IARPA Janus Benchmark-B Face Dataset. CVPR workshops 2017.
    Maze et al.: IARPA Janus Benchmark - C: Face Dataset and Protocol. ICB 2018.

>>> pictures = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.6, 0.8]])
>>> made = make_templates(pictures, np.array(["a", "a", "a", "b"]), media=np.array([0, 1, 1, 2]))
>>> made.names.tolist(), np.round(made.vectors.astype(float), 3).tolist()  # a still, two frames
(['a', 'b'], [[0.707, 0.707], [0.6, 0.8]])
>>> round(float(made.similarities(np.array([[0, 1]]))[0]), 4)
0.9899
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.metrics.neighbours import directions

_GRID = 2.0**-20
_AT_ONCE = 2**24  # similarities in memory
_ROWS = 4096  # embeddings, or pairs, at a time

Progress = Callable[[int, int], None]
"""Called with (probes done, probes in all)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Templates:
    """Sets of pictures, a vector each.

    Attributes:
        names: of the templates, sorted [templates].
        vectors: of length 1, float32 [templates, d].
    """

    names: np.ndarray
    vectors: np.ndarray

    def __len__(self) -> int:
        return len(self.vectors)

    def similarities(self, pairs: np.ndarray) -> np.ndarray:
        """Cosines of listed pairs.

        Args:
            pairs: places of templates, int [pairs, 2].

        Returns:
            float32 [pairs], on the grid.

        Raises:
            InputError: a place is outside.
        """
        pairs = np.asarray(pairs)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise InputError(f"pairs must be places of templates, integers [pairs, 2], got {pairs.dtype} {pairs.shape}")
        if len(pairs) and not 0 <= pairs.min() <= pairs.max() < len(self):
            raise InputError(f"pairs name templates {pairs.min()} to {pairs.max()}, and there are 0 to {len(self) - 1}")
        found = np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), _ROWS):
            first, second = self.vectors[pairs[start : start + _ROWS].T]
            found[start : start + _ROWS] = _on_grid(np.einsum("pd,pd->p", first, second))
        return found


def make_templates(embeddings: np.ndarray, templates: np.ndarray, media: np.ndarray | None = None) -> Templates:
    """Put pictures into templates.

    Args:
        embeddings: float [n, d]; need not be normalised.
        templates: of which template each picture is, integers or text [n].
        media: of which medium each picture is, within its template, integers or text [n]; None: each its own.

    Raises:
        InputError: shapes do not match, a row is zero or not finite, or the sum of a template is zero.
    """
    embeddings = np.asarray(embeddings)
    given = np.asarray(templates), np.arange(len(embeddings)) if media is None else np.asarray(media)
    for name, part in zip(("templates", "media"), given, strict=True):
        if part.shape != embeddings.shape[:1] or part.dtype.kind not in "iuU":
            raise InputError(
                f"{name} must be one integer or text a picture, {embeddings.shape[:1]}, got {part.dtype} {part.shape}"
            )
    if not len(embeddings):
        raise InputError("templates need at least one picture, got none")
    names, template = np.unique(given[0], return_inverse=True)
    medium = np.unique(given[1], return_inverse=True)[1]
    # A medium's frames divide its weight of one; a number in two templates is two media.
    _, group, frames = np.unique(template * (medium.max() + 1) + medium, return_inverse=True, return_counts=True)
    sums = np.zeros((len(names), embeddings.shape[1]) if embeddings.ndim == 2 else 1)
    for start in range(0, len(embeddings), _ROWS):
        some = slice(start, start + _ROWS)
        rows = directions(embeddings[some], lambda row, start=start: f"embeddings: row {start + row}")
        np.add.at(sums, template[some], rows / frames[group[some], None])
    return Templates(names=names, vectors=directions(sums, lambda row: f"template {names[row]}"))


@dataclass(frozen=True, kw_only=True)
class Identification:
    """How often probes are found in a gallery.

    Attributes:
        rank: share of mated probes whose person is among the k most similar, by k.
        tpir: share of mated probes answered with their own person, by the FPIR that was asked for.
        fpir: share of non-mated probes that are answered, by the FPIR that was asked for; never more than it.
        threshold: similarity that an answer exceeds, by the FPIR that was asked for.
        mated, non_mated: probes whose person is in the gallery, and others.
        identities: in the gallery.
        warnings: sentences to show with the numbers.
    """

    rank: dict[int, float]
    tpir: dict[float, float]
    fpir: dict[float, float]
    threshold: dict[float, float]
    mated: int
    non_mated: int
    identities: int
    warnings: tuple[str, ...]


def identify(
    probes: np.ndarray,
    probe_labels: np.ndarray | Sequence,
    gallery: np.ndarray,
    gallery_labels: np.ndarray | Sequence,
    *,
    ranks: Sequence[int] = (1, 5, 10),
    fpirs: Sequence[float] = (0.01, 0.1),
    progress: Progress | None = None,
) -> Identification:
    """Look probes up in a gallery.

    Args:
        probes: vectors of templates, float [probes, d].
        probe_labels: who each probe is, integers or text [probes]; people who are not in the gallery are non-mated.
        gallery: vectors of templates, float [templates, d].
        gallery_labels: who each is [templates].
        ranks: each >= 1.
        fpirs: false positive rates, each in (0, 1); used where there are non-mated probes.
        progress: called from time to time.

    Raises:
        InputError: shapes do not match, a rank or a rate is out of range, or no probe is mated.
    """
    for rank in ranks:
        _check.whole(rank=rank)
    for fpir in fpirs:
        _check.between(0, 1, ends="()", fpir=fpir)
    asked = directions(np.asarray(probes), lambda row: f"probe {row}")
    known = directions(np.asarray(gallery), lambda row: f"gallery template {row}")
    if len(probe_labels) != len(asked) or len(gallery_labels) != len(known) or asked.shape[1] != known.shape[1]:
        raise InputError(
            f"{len(asked)} probes and {len(known)} templates need one person each and one width, got "
            f"{len(probe_labels)}, {len(gallery_labels)}, and widths {asked.shape[1]} and {known.shape[1]}"
        )
    people, owner = np.unique(gallery_labels, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    known, starts = known[order], np.flatnonzero(np.diff(owner[order], prepend=-1))
    place = np.searchsorted(people, probe_labels).clip(max=len(people) - 1)
    mated = people[place] == np.asarray(probe_labels)
    if not mated.any():
        raise InputError("no probe is of a person in the gallery, so none can be found; enrol their people")
    before, best = np.zeros(len(asked), np.int64), np.empty(len(asked), np.float32)
    step = max(1, _AT_ONCE // len(known))
    for start in range(0, len(asked), step):
        some = slice(start, start + step)
        similar = np.maximum.reduceat(_on_grid(asked[some] @ known.T), starts, axis=1)
        own = similar[np.arange(len(similar)), place[some], None]
        before[some] = (similar >= own).sum(axis=1) - 1  # people at least as similar as the own one
        best[some] = similar.max(axis=1)
        if progress is not None:
            progress(min(start + step, len(asked)), len(asked))
    first = best[mated & (before == 0)]
    others = np.sort(best[~mated])[::-1]
    warnings, thresholds = [], {}
    for fpir in fpirs if len(others) else ():
        allowed = int(fpir * len(others) * (1 + 1e-12))  # the factor undoes float round-off
        if not allowed:
            warnings.append(
                f"FPIR {fpir:g} of {len(others)} non-mated probes allows less than one, so TPIR is at FPIR 0; use more "
                f"of them, or FPIR >= {1 / len(others):.1e}"
            )
        thresholds[float(fpir)] = float(others[allowed])  # allowed < len(others), as fpir < 1
    return Identification(
        rank={int(rank): float((before[mated] < rank).mean()) for rank in ranks},
        tpir={fpir: float((first > threshold).sum() / mated.sum()) for fpir, threshold in thresholds.items()},
        fpir={fpir: float((others > threshold).mean()) for fpir, threshold in thresholds.items()},
        threshold=thresholds,
        mated=int(mated.sum()),
        non_mated=len(others),
        identities=len(people),
        warnings=tuple(warnings),
    )


def _on_grid(similarities: np.ndarray) -> np.ndarray:
    return (np.rint(np.clip(similarities, -1, 1) / _GRID) * _GRID).astype(np.float32)
