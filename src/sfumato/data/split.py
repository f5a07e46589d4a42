"""Who goes to which part of a split: decided by a keyed hash of one's own name, never by who else is there.

The hash is a number in [0, 1): below the share of the test it means test, then come validation and training. One person
more or less therefore changes the training data by this one person, and a guarantee for the training data holds for
the whole collection too. (A shuffle of N positions sends up to a third of all others elsewhere when N changes.) How
many go to a part is random: Binomial(N, share).

Where nothing but the position of a record is known, one more record in the middle moves all behind it. Then, or where
somebody chooses by position, `by_position` is true, and the guarantee is for the training part alone.

>>> names = [f"p{i}" for i in range(1000)]
>>> [len(part) for part in divide(1000, names, "user", test=0.2, validation=0.1, seed=0).parts]
[693, 97, 210]
>>> without = [name for name in names if name != "p15"]    # who was in the test
>>> [len(part) for part in divide(999, without, "user", test=0.2, validation=0.1, seed=0).parts]
[693, 97, 209]

**Users,** classes or groups: test identities were never trained on.

- `split_users`: whole users. Right where a user is an identity (faces, glyphs, Omniglot's characters).
- `split_labels`: whole classes. Right where users share classes and recall is wanted on unseen ones (EMNIST: train on
  digits and capitals, test on small letters). A user who holds classes of two parts appears in both, with other
  examples.
- `split_groups`: whole groups of classes (Omniglot's alphabets), the hardest of the three.

The parts are disjoint and together they are the whole. Each user, class or group goes where a hash of its own name
sends it (`sfumato.data.split`), so no user moves when another one joins or leaves; how many go to a part is random
around the share. For an exact number give names. Where parts share no class, each numbers its own classes 0, 1, …;
where they share one (after `split_users`), numbers stay those of the whole.

>>> from sfumato.data.users import from_arrays
>>> people = from_arrays(np.zeros((10, 1)), labels=range(10), users=range(10))
>>> parts = split_users(people, test=0.2, validation=["7"], seed=0)
>>> len(parts.train), len(parts.validation), len(parts.test)
(8, 1, 1)

**Single examples,** chosen in a way that moves no other record. An example with a name of its own (a picture's path in
its folder) goes where a hash of the name sends it (`sfumato.data.split`). One without goes by its position: a record
more or less at the end changes what is trained on by that one record, in the middle it moves others, and the training
part says so in `assumptions`.

>>> from sfumato.data.examples import examples_from_arrays
>>> data = examples_from_arrays(range(1000), [0] * 1000, num_classes=2)
>>> parts = split_examples(data, test=0.2, validation=0.1, seed=0)
>>> [len(part) for part in parts]
[681, 106, 213]
>>> len(parts.train.assumptions)
1
"""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from sfumato._check import InputError, between, whole
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.data.digest import row_digest
from sfumato.data.examples import ExampleDataset
from sfumato.data.mapped import encoded
from sfumato.data.users import UserDataset

Selection = float | Sequence[str] | Sequence[int] | np.ndarray
"""What goes to a part: a share in [0, 1), or the names or positions themselves."""


_PLURAL = {"user": "users", "class": "classes", "group": "groups", "example": "examples"}


@dataclass(frozen=True)
class Division:
    """Positions of the parts.

    Attributes:
        parts: train, validation, test, int64, each ascending.
        by_position: whether anything but names decided.
        what: what was divided: "user", "class", "group" or "example".
    """

    parts: tuple[np.ndarray, np.ndarray, np.ndarray]
    by_position: bool
    what: str

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the guarantee rests on, for the statement: nothing where names decided."""
        if not self.by_position:
            return ()
        return (Assumption("divided_by_position", {"things": _PLURAL[self.what]}),)


def divide(
    count: int, names: Sequence[str] | None, what: str, *, test: Selection, validation: Selection, seed: int
) -> Division:
    """Divide `count` things.

    Args:
        count: how many there are.
        names: the name of each; None where they have none, then their positions decide.
        what: "user", "class", "group" or "example".
        test: share, names or positions of the test part.
        validation: the same for validation; a share of the whole.
        seed: public; not the seed of the training.

    Raises:
        InputError: a share is out of range, a name does not exist or is in two parts, or nothing is left to train on.
    """
    whole(seed=seed, at_least=0)
    chosen = [_chosen(part, names, count, what) for part in (test, validation)]
    taken = np.concatenate([places for places, _ in chosen])
    again = np.unique(taken, return_counts=True)
    if (twice := again[0][again[1] > 1]).size:
        one = int(twice[0]) if names is None else repr(names[int(twice[0])])
        raise InputError(
            f"a {what} may be in one part only, and once: test and validation name {one} twice; leave it out of one"
        )
    shares = [_share(part, name, what) for part, name in ((test, "test"), (validation, "validation"))]
    if sum(shares) >= 1:
        raise InputError(f"test and validation must leave something to train on, got {test} and {validation}")
    part_of = np.zeros(count, np.int8)
    if any(shares):
        keys = _positional(count, seed) if names is None else name_keys(names, what, seed)
        part_of[keys < sum(shares)] = 1
        part_of[keys < shares[0]] = 2
        part_of[taken] = 0
    for number, (places, _) in zip((2, 1), chosen, strict=True):
        part_of[places] = number
    parts = tuple(np.flatnonzero(part_of == number) for number in range(3))
    if len(parts[0]) == 0:
        amount = f"{count:,} {_PLURAL[what] if count != 1 else what}"
        raise InputError(
            f"{amount} cannot be split into {len(parts[2])} for test and {len(parts[1])} for validation with one left "
            "to train on; take fewer, or another seed"
        )
    by_position = any(numbers for _, numbers in chosen) or (names is None and any(shares))
    return Division(parts, by_position, what)  # type: ignore[arg-type]  # three of them


def name_keys(names: Sequence[str], what: str, seed: int) -> np.ndarray:
    """A number in [0, 1) for each name, float64 [names]: BLAKE2b of the name under a key from the public seed."""
    key = hashlib.sha256(b"sfumato split %d " % seed + what.encode()).digest()
    content = b"".join(hashlib.blake2b(name, key=key, digest_size=8).digest() for name in encoded(names))
    return (np.frombuffer(content, "<u8") >> np.uint64(11)) * 2.0**-53


def _positional(count: int, seed: int) -> np.ndarray:
    """The same for positions, so that a record more at the end moves no other."""
    return RandomSource.from_seed(seed).stream("examples", "test").uniform(count)


def _is_number(part: Selection) -> bool:
    return isinstance(part, bool | int | float | np.integer | np.floating)


def _share(part: Selection, name: str, what: str) -> float:
    if not _is_number(part):
        return 0.0
    remedy = f"for an exact number of {_PLURAL[what]} name them"
    if isinstance(part, bool):
        raise InputError(f"{name} must be a share in [0, 1), got {part}; {remedy}")
    between(0, 1, ends="[)", remedy=remedy, **{name: part})
    return float(part)  # type: ignore[arg-type]  # a number


def _chosen(part: Selection, names: Sequence[str] | None, count: int, what: str) -> tuple[np.ndarray, bool]:
    """The positions that were asked for, and whether they were given as positions."""
    if _is_number(part):
        return np.zeros(0, np.int64), False
    if isinstance(part, str):
        raise InputError(f"give a list of names or a share below 1, got {part!r}")
    wanted = list(part)  # type: ignore[arg-type]  # no number
    if any(isinstance(name, str) for name in wanted):
        places = {name: place for place, name in enumerate(names or ())}
        unknown = [name for name in wanted if name not in places]
        if unknown:
            some = ", ".join(list(places)[:5]) or "they have no names"
            raise InputError(f"there is no {what} {unknown[0]!r}; for example: {some}")
        return np.array([places[name] for name in wanted], np.int64), False
    chosen = np.asarray(part)
    if chosen.size and (chosen.ndim != 1 or chosen.dtype.kind not in "iu"):
        raise InputError(f"give names, positions 0 … {count - 1} or a share below 1, got {part}")
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < count):
        raise InputError(f"a {what} must be 0 … {count - 1}, got {next(int(c) for c in chosen if not 0 <= c < count)}")
    return chosen.astype(np.int64), chosen.size > 0


D = TypeVar("D", UserDataset, ExampleDataset)


@dataclass(frozen=True, kw_only=True)
class Split(Generic[D]):
    """Three disjoint parts; a part of size 0 is an empty data set.

    Attributes:
        train: what may be learned from.
        validation: for choosing settings.
        test: for the numbers that are reported.
        places: of the training part among what was divided (users, classes, groups or examples; examples, too, where
            these have users), int64.
    """

    train: D
    validation: D
    test: D
    places: np.ndarray

    def __iter__(self) -> Iterator[D]:
        """Train, validation, test."""
        return iter((self.train, self.validation, self.test))


def split_users(
    dataset: UserDataset,
    *,
    test: Selection = 0.2,
    validation: Selection = 0,
    seed: int = 0,
    shared_labels: bool = False,
) -> Split[UserDataset]:
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
            f"{common:,} of {dataset.num_classes:,} classes are in train and in validation or test, so recall is not "
            "on unseen classes; use split_labels (--split-by label), or shared_labels=True",
            stacklevel=2,
        )
    return _as_split(division, (view.compact_labels() if disjoint else view for view in views))


def split_labels(
    dataset: UserDataset, *, test: Selection = 0.2, validation: Selection = 0, seed: int = 0
) -> Split[UserDataset]:
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


def split_groups(
    dataset: UserDataset, *, test: Selection = 0.2, validation: Selection = 0, seed: int = 0
) -> Split[UserDataset]:
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


def _as_split(division: Division, parts: Iterable[D]) -> Split[D]:
    """The parts with what was assumed to divide them; raises InputError if no user is left to train on."""
    train, validation, test = (replace(part, assumptions=(*part.assumptions, *division.assumptions)) for part in parts)
    if len(train) == 0:
        raise InputError("no user is left to train on: none holds a class of the training part; take fewer")
    return Split(train=train, validation=validation, test=test, places=division.parts[0])


def _with_classes(dataset: UserDataset, classes: np.ndarray) -> UserDataset:
    """The view of some classes, empty where no user holds any of them."""
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


def split_examples(
    dataset: ExampleDataset,
    *,
    test: Selection = 0.2,
    validation: Selection = 0,
    seed: int = 0,
    by_names: bool = True,
) -> Split[ExampleDataset]:
    """Divide examples at random; each part keeps the order of the whole.

    Args:
        dataset: what to divide.
        test: the share of examples for the test, in [0, 1): each goes there with that probability. Or their names or
            positions. Where examples have users, all of this is of users by their numbers: each is in one part.
        validation: the same for validation.
        seed: public; not the seed of the training.
        by_names: shares go by the examples' names where they have some; False goes by position, for names that
            reveal what is to be hidden.

    Raises:
        InputError: a share is out of range, an example is in two parts, or nothing is left to train on.
    """
    if dataset.owners is not None:
        division = divide(dataset.num_users, None, "user", test=test, validation=validation, seed=seed)
        part_of = np.zeros(dataset.num_users, np.int8)
        for number, users in enumerate(division.parts):
            part_of[users] = number
        rows = [np.flatnonzero(part_of[dataset.owners] == number) for number in range(3)]
        return replace(_as_split(division, map(dataset.subset, rows)), places=rows[0])
    names = dataset.example_names if by_names else None
    division = divide(len(dataset), names, "example", test=test, validation=validation, seed=seed)
    return _as_split(division, map(dataset.subset, division.parts))


def order_of_content(dataset: ExampleDataset) -> np.ndarray | None:
    """An order of pictures that their folders do not decide, int64 [N]; None where nothing but positions is known.

    In one folder a class, order and names reveal the label. This order follows from the pictures; only exact copies of
    one picture keep theirs.
    """
    if dataset.example_names is None:
        return None
    rows = dataset.inputs[0]
    content = b"".join(row_digest(rows[place : place + 1][0]) for place in range(len(dataset)))
    return np.lexsort(np.frombuffer(content, np.uint8).reshape(-1, 32).T[::-1])
