"""Verification on given pairs, in folds: is each pair genuine, by a threshold that was chosen on the other folds?

The measure of LFW's view 2 (Huang et al. 2007). For each fold the threshold is the similarity that is most often right
on the pairs of all other folds; a pair counts as genuine if its similarity exceeds it. "Right" is the mean of two
shares, of genuine pairs accepted and of impostor pairs refused: where both are as many, as in LFW, that is the share of
all pairs, and where they are not, no guess of the more frequent kind pays. Thresholds lie half-way between neighbouring
similarities; of several that are as good, the middle one is taken.

These numbers are computed from the data without noise: they are not private.

>>> similarity = np.array([0.9, 0.2, 0.8, 0.3])
>>> pair_accuracy(similarity, np.array([True, False, True, False]), np.array([0, 0, 1, 1])).accuracy
1.0
"""

from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError


@dataclass(frozen=True, kw_only=True)
class PairAccuracy:
    """How often pairs were judged right.

    Attributes:
        accuracy: the mean of the two shares below.
        accepted: share of genuine pairs above their fold's threshold.
        refused: share of impostor pairs not above it.
        thresholds: of each fold, float64 [folds].
        genuine_pairs, impostor_pairs: how many there were.
    """

    accuracy: float
    accepted: float
    refused: float
    thresholds: np.ndarray
    genuine_pairs: int
    impostor_pairs: int


def pair_accuracy(similarity: np.ndarray, same: np.ndarray, folds: np.ndarray) -> PairAccuracy:
    """Judge every pair by the threshold of the other folds.

    Args:
        similarity: float [pairs].
        same: whether a pair is genuine, bool [pairs].
        folds: integers [pairs]; at least two.

    Raises:
        InputError: shapes do not match, a similarity is not finite, or the folds beside one lack a kind of pairs.
    """
    similarity, same, folds = np.asarray(similarity, np.float64), np.asarray(same), np.asarray(folds)
    if similarity.ndim != 1 or not similarity.shape == same.shape == folds.shape or same.dtype != bool:
        raise InputError(
            "similarity, same and folds must be one number, one truth value and one integer a pair, got shapes "
            f"{similarity.shape}, {same.shape} ({same.dtype}) and {folds.shape}"
        )
    if not np.isfinite(similarity).all():
        raise InputError(f"similarity: {int((~np.isfinite(similarity)).sum())} pairs have none that is finite")
    right, thresholds = np.zeros(len(same), bool), []
    for fold in np.unique(folds):
        others = folds != fold
        if not same[others].any() or same[others].all():
            raise InputError(
                f"folds: beside fold {fold} there is no {'impostor' if same[others].any() else 'genuine'} pair to "
                "choose a threshold by; give more pairs, or fewer folds"
            )
        thresholds.append(_best(similarity[others], same[others]))
        right[~others] = (similarity[~others] > thresholds[-1]) == same[~others]
    accepted, refused = float(right[same].mean()), float(right[~same].mean())
    return PairAccuracy(
        accuracy=(accepted + refused) / 2,
        accepted=accepted,
        refused=refused,
        thresholds=np.array(thresholds),
        genuine_pairs=int(same.sum()),
        impostor_pairs=int((~same).sum()),
    )


def _best(similarity: np.ndarray, same: np.ndarray) -> float:
    """The threshold that is most often right."""
    values, place = np.unique(similarity, return_inverse=True)
    genuine = np.bincount(place[same], minlength=len(values)) / same.sum()
    impostor = np.bincount(place[~same], minlength=len(values)) / (~same).sum()
    gained = np.concatenate([[0.0], np.cumsum(impostor - genuine)])  # refusing the first so many values
    best = np.flatnonzero(gained >= gained.max() - 1e-12)
    cuts = np.concatenate([[values[0] - 1.0], (values[1:] + values[:-1]) / 2, [values[-1]]])
    return float(cuts[best[(len(best) - 1) // 2]])
