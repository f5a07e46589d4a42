"""Splitting a data set into train, validation and test so that test identities were never trained on.

- `split_users`: whole users. Right where a user is an identity (faces, glyphs, Omniglot's characters).
- `split_labels`: whole classes. Right where users share classes and recall is wanted on unseen ones (EMNIST: train on
  digits and capitals, test on small letters). A user who holds classes of two parts appears in both, with other
  examples.
- `split_groups`: whole groups of classes (Omniglot's alphabets), the hardest of the three.

The parts are disjoint and together they are the whole. Each user, class or group goes where a hash of its own name
sends it (`sfumato.data.parts`), so nobody moves when somebody else comes or leaves; how many go to a part is random
around the share. For an exact number give names. Where parts share no class, each numbers its own classes 0, 1, …;
where they share one (after `split_users`), numbers stay those of the whole.

>>> from sfumato.data.users.arrays import from_arrays
>>> people = from_arrays(np.zeros((10, 1)), labels=range(10), users=range(10))
>>> parts = split_users(people, test=0.2, validation=["7"], seed=0)
>>> len(parts.train), len(parts.validation), len(parts.test)
(8, 1, 1)
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato._check import InputError
from sfumato.data.parts import Division, Selection, divide
from sfumato.data.users.dataset import UserDataset


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
    seed: int = 0,
    shared_labels: bool = False,
) -> Split:
    """Split by user.

    Args:
        dataset: what to split.
        test: the share of users for the test, in [0, 1): each goes there with that probability. Or their names.
        validation: the same for validation.
        seed: chooses the users, who keep their order within a part. Public; not the seed of the training.
        shared_labels: that users of different parts hold the same classes is meant: no warning.

    Raises:
        InputError: nothing is left to train on, or a name does not exist or is in two parts.
    """
    division = divide(len(dataset), dataset.user_ids, "user", test=test, validation=validation, seed=seed)
    views = [dataset.subset(part) for part in division.parts]
    # A vocabulary is everybody's, values are no classes, and attributes are public.
    if dataset.of_sequences or dataset.of_values or dataset.of_attributes:
        return _as_split(division, views)
    present = [view.classes_present() for view in views]
    common = int((present[0] & (present[1] | present[2])).sum())
    disjoint = not (common or (present[1] & present[2]).any())
    if common and not shared_labels:
        warnings.warn(
            f"{common:,} of {dataset.num_classes:,} classes are held by users of train and by users of validation or "
            "test: recall would not be on unseen classes; use split_labels (--split-by label), or "
            "shared_labels=True if this is meant",
            stacklevel=2,
        )
    return _as_split(division, (view.compact_labels() if disjoint else view for view in views))


def split_labels(dataset: UserDataset, *, test: Selection = 0.2, validation: Selection = 0, seed: int = 0) -> Split:
    """Split by class; users who hold no class of a part are left out of it.

    Args:
        dataset: what to split.
        test: the share of classes for the test, in [0, 1): each goes there with that probability. Or their names or
            numbers.
        validation: the same for validation.
        seed: chooses the classes. Public; not the seed of the training.

    Raises:
        InputError: nothing is left to train on, or a class does not exist or is in two parts.
    """
    dataset.refuse_values("be split by class; use split_users (--split-by user)")
    dataset.refuse_attributes("be split by class; use split_users (--split-by user)")
    if dataset.of_sequences:
        raise InputError("the classes of this data set are tokens; use split_users (--split-by user)")
    division = divide(dataset.num_classes, _class_names(dataset), "class", test=test, validation=validation, seed=seed)
    if dataset.label_names is None and dataset.class_map is None:
        division = replace(division, by_position=False)  # the numbers came with the data: they are the classes' names
    return _as_split(division, (_with_classes(dataset, part) for part in division.parts))


def split_groups(dataset: UserDataset, *, test: Selection = 0.2, validation: Selection = 0, seed: int = 0) -> Split:
    """Split by group of classes, for example Omniglot's alphabets.

    Args:
        dataset: a data set with groups (`dataset.groups`).
        test: the share of groups for the test, in [0, 1): each goes there with that probability. Or their names.
        validation: the same for validation.
        seed: chooses the groups. Public; not the seed of the training.

    Raises:
        InputError: the classes have no groups, nothing is left to train on, or a name does not exist or is in two
            parts.
    """
    dataset.refuse_values("be split by group; use split_users (--split-by user)")
    dataset.refuse_attributes("be split by group; use split_users (--split-by user)")
    groups = dataset.groups
    if dataset.label_groups is None:
        raise InputError("the classes of this data set have no groups; use split_labels or split_users")
    number = {name: i for i, name in enumerate(groups)}
    owner = np.array([number[name] for name in dataset.label_groups])
    division = divide(len(groups), groups, "group", test=test, validation=validation, seed=seed)
    return _as_split(
        division, (_with_classes(dataset, np.flatnonzero(np.isin(owner, part))) for part in division.parts)
    )


def _as_split(division: Division, parts: Iterable[UserDataset]) -> Split:
    """The parts with what was assumed to divide them; raises InputError if nobody is left to train on."""
    train, validation, test = (replace(part, assumptions=(*part.assumptions, *division.assumptions)) for part in parts)
    if len(train) == 0:
        raise InputError("nobody is left to train on: no user holds a class of the training part; take fewer")
    return Split(train=train, validation=validation, test=test)


def _with_classes(dataset: UserDataset, classes: np.ndarray) -> UserDataset:
    """The view of some classes, empty where nobody holds any of them."""
    return dataset.select_classes(classes) if dataset.classes_present()[classes].any() else dataset.subset([])


def _class_names(dataset: UserDataset) -> Sequence[str]:
    """The classes' names, or the numbers that they came with: a number of this view depends on the other classes."""
    if dataset.label_names is not None:
        return dataset.label_names
    if dataset.class_map is None:
        return [str(number) for number in range(dataset.num_classes)]
    base = np.full(dataset.num_classes, -1, np.int64)
    kept = np.flatnonzero(dataset.class_map >= 0)
    base[dataset.class_map[kept]] = kept
    return [str(number) for number in base]
