"""Identification: does a released direction reveal whose faces it was made of?

An attacker has a gallery: a few pictures of every identity, embedded by the released network. For each released vector
the identities whose pictures are most similar are guessed to be behind it. One class centre is behind a vector that was
released for an identity alone; all centres of a cap are behind the direction of a group.

The rate is an example of an attack, no bound: a guarantee stands in a statement. It is computed from private records
without noise: it is not private.

>>> gallery, owners = np.eye(4), np.array([0, 1, 2, 3])
>>> identification_rate(np.array([[0.9, 0.1, 0, 0]]), [np.array([0])], gallery, owners, top=1)
1.0
>>> identification_rate(np.array([[1.0, 1, 1, 0]]), [np.array([0, 1, 2])], gallery, owners, top=1).__round__(3)
0.333

References:
    Meng, Zhou, Li, Wang, Cheng: Improving Federated Learning Face Recognition via Privacy-Agnostic Clusters. ICLR 2022
    (there: a gallery of three pictures an identity, the three most similar identities).
"""

from collections.abc import Sequence

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.metrics.neighbours import directions

_BLOCK = 1024  # released vectors that are compared with the gallery at a time


def identification_rate(
    released: np.ndarray, members: Sequence[np.ndarray], gallery: np.ndarray, owners: np.ndarray, *, top: int = 3
) -> float:
    """The share of identities behind released vectors that are among the most similar ones of the gallery.

    Args:
        released: vectors, float [m, d].
        members: of each vector, whose centres are behind it: numbers of identities, int64 [members].
        gallery: embeddings of pictures, float [pictures, d].
        owners: whose each picture is, int64 [pictures].
        top: identities that are guessed for a vector, >= 1; an identity is as similar as its most similar picture.

    Returns:
        in [0, 1]; a group of s identities gives at most top / s.

    Raises:
        InputError: shapes do not match, or no identity is behind any vector.
    """
    _check.whole(top=top)
    vectors, pictures = directions(released, lambda row: f"released vector {row}"), directions(gallery, _picture)
    if len(members) != len(vectors) or len(owners) != len(pictures) or vectors.shape[1] != pictures.shape[1]:
        raise InputError(
            f"{len(vectors)} vectors need as many sets of members, and {len(pictures)} pictures as many owners, of one "
            f"width; got {len(members)}, {len(owners)}, {vectors.shape[1]} and {pictures.shape[1]}"
        )
    behind = sum(len(each) for each in members)
    if not behind:
        raise InputError("no identity is behind any vector, so none can be found; give the members of each")
    people, place = np.unique(owners, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    found = 0
    for start in range(0, len(vectors), _BLOCK):
        similar = np.maximum.reduceat(vectors[start : start + _BLOCK] @ pictures[order].T, starts, axis=1)
        guesses = np.argsort(-similar, axis=1, kind="stable")[:, :top]
        found += sum(
            int(np.isin(people[guess], each).sum())
            for guess, each in zip(guesses, members[start : start + _BLOCK], strict=True)
        )
    return found / behind


def _picture(row: int) -> str:
    return f"picture {row}"
