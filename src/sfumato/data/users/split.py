"""Splitting a data set into train, validation and test so that test identities were never trained on.

- `split_users`: whole users. Right where a user is an identity (faces, glyphs, Omniglot's characters).
- `split_labels`: whole classes. Right where users share classes and recall is wanted on unseen ones (EMNIST: train on
  digits and capitals, test on small letters). A user who holds classes of two parts appears in both, with other
  examples.
- `split_groups`: whole groups of classes (Omniglot's alphabets), the hardest of the three.

The parts are disjoint and together they are the whole. Where parts share no class, each numbers its own classes
0, 1, …; where they share one (after `split_users`), numbers stay those of the whole.

>>> from sfumato.data.users.dataset import from_arrays
>>> people = from_arrays(np.zeros((10, 1)), labels=range(10), users=range(10))
>>> parts = split_users(people, test=0.2, validation=1, seed=0)
>>> len(parts.train), len(parts.validation), len(parts.test)
(7, 1, 2)
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError, between, whole
from sfumato._random import RandomSource
from sfumato.data.users.dataset import UserDataset

Selection = int | float | Sequence[str] | Sequence[int] | np.ndarray
"""How much goes to a part: a number, a fraction below 1 (a float), or the names or positions themselves."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Three disjoint parts; a part of size 0 is an empty data set.

    Attributes:
        train: what may be learned from.
        validation: for choosing settings.
        test: for the numbers that are reported.
    """

    train: UserDataset
    validation: UserDataset
    test: UserDataset

    def __iter__(self) -> Iterator[UserDataset]:
        """Train, validation, test."""
        return iter((self.train, self.validation, self.test))


def split_users(
    dataset: UserDataset,
    *,
    test: Selection = 0.2,
    validation: Selection = 0,
    seed: int | None = 0,
    shared_labels: bool = False,
) -> Split:
    """Split by user.

    Args:
        dataset: what to split.
        test: number, fraction or names of the test users.
        validation: the same for validation.
        seed: chooses the users, which keep their order within a part; None takes the last ones for test and those
            before them for validation.
        shared_labels: that users of different parts hold the same classes is meant: no warning.

    Raises:
        InputError: nothing is left to train on, or a name does not exist or is in two parts.
    """
    parts = _choose(len(dataset), dataset.user_ids, "user", test, validation, seed)
    views = [dataset.subset(part) for part in parts]
    present = [view.classes_present() for view in views]
    common = int((present[0] & (present[1] | present[2])).sum())
    disjoint = not (common or (present[1] & present[2]).any())
    if common and not shared_labels:
        warnings.warn(
            f"{common:,} of {dataset.num_classes:,} classes are held by users of train and by users of validation or "
            "test: recall would not be on unseen classes; use split_labels, or shared_labels=True if this is meant",
            stacklevel=2,
        )
    return _split(view.compact_labels() if disjoint else view for view in views)


def split_labels(
    dataset: UserDataset, *, test: Selection = 0.2, validation: Selection = 0, seed: int | None = 0
) -> Split:
    """Split by class; users who hold no class of a part are left out of it.

    Args:
        dataset: what to split.
        test: number, fraction, names or numbers of the test classes.
        validation: the same for validation.
        seed: chooses the classes; None takes the last ones for test and those before them for validation.

    Raises:
        InputError: nothing is left to train on, or a class does not exist or is in two parts.
    """
    names = dataset.label_names
    parts = _choose(dataset.num_classes, names, "class", test, validation, seed)
    return _split(_with_classes(dataset, part) for part in parts)


def split_groups(
    dataset: UserDataset, *, test: Selection = 0.2, validation: Selection = 0, seed: int | None = 0
) -> Split:
    """Split by group of classes, for example Omniglot's alphabets.

    Args:
        dataset: a data set with groups (`dataset.groups`).
        test: number, fraction or names of the test groups.
        validation: the same for validation.
        seed: chooses the groups; None takes the last ones for test and those before them for validation.

    Raises:
        InputError: the classes have no groups, nothing is left to train on, or a name does not exist or is in two
            parts.
    """
    groups = dataset.groups
    if dataset.label_groups is None:
        raise InputError("the classes of this data set have no groups; use split_labels or split_users")
    number = {name: i for i, name in enumerate(groups)}
    owner = np.array([number[name] for name in dataset.label_groups])
    parts = _choose(len(groups), groups, "group", test, validation, seed)
    return _split(_with_classes(dataset, np.flatnonzero(np.isin(owner, part))) for part in parts)


def _split(parts: Iterator[UserDataset]) -> Split:
    train, validation, test = parts
    return Split(train=train, validation=validation, test=test)


def _with_classes(dataset: UserDataset, classes: np.ndarray) -> UserDataset:
    return dataset.select_classes(classes) if len(classes) else dataset.subset([])


def _choose(
    count: int, names: Sequence[str] | None, what: str, test: Selection, validation: Selection, seed: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of train, validation and test among `count` things, each ascending."""
    named_test, named_validation = _named(test, names, count, what), _named(validation, names, count, what)
    taken = np.concatenate([named_test, named_validation])
    if len(np.unique(taken)) < len(taken):
        raise InputError(f"a {what} may be in one part only, and once; test and validation name one twice")
    free = np.setdiff1d(np.arange(count), taken)
    if seed is not None:
        whole(seed=seed, at_least=0)
        free = free[RandomSource.from_seed(seed).stream("split", what).permutation(len(free))]
    some_test, some_validation = _amount(test, count, "test"), _amount(validation, count, "validation")
    left = len(free) - some_test - some_validation
    if left < 1:
        plural = {"user": "users", "class": "classes", "group": "groups"}[what]
        raise InputError(
            f"{count} {plural if count != 1 else what} cannot be split into {some_test + len(named_test)} for test and "
            f"{some_validation + len(named_validation)} for validation with one left to train on; take fewer"
        )
    return (
        np.sort(free[:left]),
        np.sort(np.concatenate([named_validation, free[left : left + some_validation]])),
        np.sort(np.concatenate([named_test, free[left + some_validation :]])),
    )


def _amount(part: Selection, count: int, name: str) -> int:
    if not isinstance(part, int | float | np.integer | np.floating):
        return 0
    if isinstance(part, float | np.floating):
        between(0, 1, ends="[)", remedy="a whole number is a count, a float below 1 a fraction", **{name: part})
        return max(1, round(count * float(part))) if part > 0 else 0
    if part < 0:
        raise InputError(f"{name} must be a number >= 0, got {part}")
    return int(part)


def _named(part: Selection, names: Sequence[str] | None, count: int, what: str) -> np.ndarray:
    if isinstance(part, int | float | np.integer | np.floating):
        return np.zeros(0, np.int64)
    if isinstance(part, str):
        raise InputError(f"give a list of names, a number or a fraction, got {part!r}")
    wanted = list(part)
    if any(isinstance(name, str) for name in wanted):
        places = {name: place for place, name in enumerate(names or ())}
        unknown = [name for name in wanted if name not in places]
        if unknown:
            some = ", ".join(list(places)[:5]) or "they have no names"
            raise InputError(f"there is no {what} {unknown[0]!r}; for example: {some}")
        wanted = [places[name] for name in wanted]  # type: ignore[index]
    chosen = np.array(wanted, np.int64)
    if len(chosen) and not (chosen.min() >= 0 and chosen.max() < count):
        raise InputError(f"a {what} must be 0 … {count - 1}, got {next(int(c) for c in chosen if not 0 <= c < count)}")
    return chosen
