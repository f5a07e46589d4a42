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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sfumato._check import InputError, whole


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
        InputError: shapes do not match, a similarity is not finite, or a kind of pairs is absent outside of some fold.
    """
    similarity, same, folds = np.asarray(similarity, np.float64), np.asarray(same), np.asarray(folds)
    if similarity.ndim != 1 or not similarity.shape == same.shape == folds.shape or same.dtype != bool:
        raise InputError(
            "similarity, same and folds must be one number, one truth value and one integer a pair, got shapes "
            f"{similarity.shape}, {same.shape} ({same.dtype}) and {folds.shape}"
        )
    if not np.isfinite(similarity).all():
        wrong = int((~np.isfinite(similarity)).sum())
        raise InputError(f"similarity: {wrong} pairs are not finite; embed their pictures anew")
    right, thresholds = np.zeros(len(same), bool), []
    for fold in np.unique(folds):
        others = folds != fold
        if not same[others].any() or same[others].all():
            raise InputError(
                f"folds: outside of fold {fold} there is no {'impostor' if same[others].any() else 'genuine'} pair to "
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


def balanced_pairs(
    labels: np.ndarray, *, folds: int = 10, pairs: int = 300, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw as many genuine as impostor pairs for each fold, as LFW and RFW have them, for pictures without a pair list.

    Each person is in one fold only. A genuine pair is one of all pairs of a fold, and an impostor pair one of a fold's
    pictures of two people, so that those with more pictures come more often; none is drawn twice.

    Args:
        labels: whose each picture is, integers or text [n].
        folds: >= 2.
        pairs: of each kind in a fold, at most, >= 1; a fold of few people has as many as it has of the rarer kind.
        seed: of the draw.

    Returns:
        rows of the pictures, int64 [drawn, 2]; same, bool [drawn]; folds, int64 [drawn].

    Raises:
        InputError: a fold has no genuine or no impostor pair.
    """
    whole(at_least=2, folds=folds)
    whole(pairs=pairs)
    rng = np.random.default_rng(seed)
    names, who = np.unique(labels, return_inverse=True)
    fold_of = rng.permutation(len(names)) % folds
    rows, same, places = [], [], []
    for fold in range(folds):
        inside = np.flatnonzero(fold_of[who] == fold)
        inside = inside[np.argsort(who[inside], kind="stable")]
        sizes = np.bincount(who[inside])
        genuine = int((sizes * (sizes - 1) // 2).sum())
        count = min(pairs, genuine, len(inside) * (len(inside) - 1) // 2 - genuine)
        if not count:
            raise InputError(
                f"fold {fold} of {folds} has no genuine or no impostor pair among {len(inside):,} pictures; take fewer "
                "folds, or more people with two pictures"
            )
        for wanted in (True, False):
            drawn = _some_pairs(who[inside], sizes[sizes > 0], wanted, count, rng)
            rows.append(inside[drawn])
            same += [wanted] * count
            places += [fold] * count
    return np.concatenate(rows), np.array(same), np.array(places, np.int64)


def _some_pairs(who: np.ndarray, sizes: np.ndarray, same: bool, count: int, rng: np.random.Generator) -> np.ndarray:
    """So many different pairs of one kind, places in `who`, which is sorted, int64 [count, 2]."""
    starts, chances = np.cumsum(sizes) - sizes, (sizes * (sizes - 1)).astype(float)
    found: set[tuple[int, int]] = set()
    while len(found) < count:
        if same:
            person = int(rng.choice(len(sizes), p=chances / chances.sum()))
            first, second = (int(each) for each in starts[person] + rng.choice(sizes[person], 2, replace=False))
        else:
            first, second = (int(each) for each in rng.choice(len(who), 2, replace=False))
            if who[first] == who[second]:
                continue
        found.add((min(first, second), max(first, second)))
    return np.array(sorted(found), np.int64)


# The pairs of Labeled Faces in the Wild: which pictures show one person and which show two, in folds.
#
# View 2 of LFW (`pairs.txt`): a line "10 300", then for each of 10 folds 300 lines "name number number" (one person)
# and 300 lines "name number name number" (two people), separated by tabs. A person's pictures are numbered from 1.
# Each person is in one fold only.
#
# The pairs cover most of LFW's people, so a model that was trained on LFW may be asked about few of them only: `among`
# keeps the pairs both of whose people are in a data set that was kept out of training, and `refuse_trained_on` refuses
# the others.
#
# References:
#     Huang, Ramesh, Berg, Learned-Miller: Labeled Faces in the Wild. University of Massachusetts, technical report
#     07-49, 2007.


class PicturesByPerson(Protocol):
    """People by their names, each with some pictures; a `sfumato.data.UserDataset` is one.

    Attributes:
        user_ids: the names [people].
        sizes: pictures of each, int64 [people].
    """

    @property
    def user_ids(self) -> Sequence[str]: ...

    @property
    def sizes(self) -> Any: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Pairs of pictures.

    Attributes:
        names: of the people of the first and the second picture, text [pairs, 2].
        numbers: of the pictures among each person's, from 1, int64 [pairs, 2].
        folds: int64 [pairs], from 0.
    """

    names: np.ndarray
    numbers: np.ndarray
    folds: np.ndarray

    def __len__(self) -> int:
        return len(self.folds)

    @property
    def same(self) -> np.ndarray:
        """Whether both pictures show one person, bool [pairs]."""
        return self.names[:, 0] == self.names[:, 1]

    def among(self, data: PicturesByPerson) -> "Pairs":
        """The pairs both of whose people are in this data set.

        Raises:
            InputError: a person there has no picture of a number that a pair names.
        """
        kept = np.isin(self.names, np.array(list(data.user_ids))).all(axis=1)
        found = Pairs(names=self.names[kept], numbers=self.numbers[kept], folds=self.folds[kept])
        found.rows(data)
        return found

    def rows(self, data: PicturesByPerson) -> np.ndarray:
        """Places of the pictures among all examples of a data set, user by user, int64 [pairs, 2].

        Args:
            data: users by their names, each with the pictures in the order of their numbers.

        Raises:
            InputError: a pair names a person or a picture that is not there.
        """
        places = {str(name): place for place, name in enumerate(data.user_ids)}
        who = np.array([[places.get(str(name), -1) for name in pair] for pair in self.names], np.int64).reshape(-1, 2)
        absent = who < 0
        if absent.any():
            missing = np.unique(self.names[absent])
            raise InputError(
                f"the pairs name {len(missing):,} people who are not in the data ({missing[0]}); keep the others with "
                "among(data), or read all people"
            )
        sizes = data.sizes
        beyond = self.numbers > sizes[who]
        if beyond.any():
            pair, side = (int(place[0]) for place in beyond.nonzero())
            raise InputError(
                f"the pairs name picture {self.numbers[pair, side]} of {self.names[pair, side]}, who has "
                f"{sizes[who[pair, side]]} in the data; read all pictures, in the order of their numbers"
            )
        return (np.cumsum(sizes) - sizes)[who] + self.numbers - 1

    def refuse_trained_on(self, names: Iterable[str]) -> None:
        """Refuse pairs of people whom a model was trained on, or chosen by.

        Args:
            names: of these people.

        Raises:
            InputError: somebody is in both.
        """
        common = np.intersect1d(self.names, np.array(list(names), dtype=str))
        if len(common):
            raise InputError(
                f"{len(common):,} people of the pairs are trained on ({common[0]}): keep the pairs of unseen people "
                "with among(test)"
            )


def lfw_pairs(path: Path | str) -> Pairs:
    """Read LFW's pairs of view 2.

    Args:
        path: the file, `pairs.txt`.

    Raises:
        InputError: it is not there, or a line is not as it should be.
    """
    path = Path(path)
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as text ({error}); give LFW's pairs.txt") from None
    folds, each = _head(path, lines)
    rows = [line.split("\t") for line in lines[1:]]
    if len(rows) != 2 * folds * each:
        raise InputError(
            f"{path} has {len(rows):,} pairs, and its first line states {folds} × 2 × {each}; read the whole file"
        )
    names, numbers = [], []
    for place, row in enumerate(rows):
        same = place % (2 * each) < each
        picked = [row[0], row[1], row[0], row[2]] if same and len(row) == 3 else row
        whole = len(row) == (3 if same else 4) and all(number.isdigit() and int(number) > 0 for number in picked[1::2])
        if not whole or (not same and picked[0] == picked[2]):
            wanted = "name, number, number" if same else "name, number, another name, number"
            raise InputError(f"{path}, line {place + 2}: wanted {wanted} with tabs between, got {lines[place + 1]!r}")
        names.append(picked[::2])
        numbers.append([int(number) for number in picked[1::2]])
    return Pairs(
        names=np.array(names, dtype=str),
        numbers=np.array(numbers, np.int64),
        folds=np.arange(len(rows)) // (2 * each),
    )


def _head(path: Path, lines: list[str]) -> tuple[int, int]:
    """The number of folds, and of pairs of each kind in one."""
    head = lines[0].split("\t") if lines else []
    if len(head) != 2 or not all(number.isdigit() and int(number) > 0 for number in head):
        raise InputError(
            f"{path} must begin with the numbers of folds and pairs (10, a tab, 300), got "
            f"{(lines or [''])[0]!r:.80}; give LFW's pairs.txt of view 2"
        )
    return int(head[0]), int(head[1])
