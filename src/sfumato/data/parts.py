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
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError, between, whole
from sfumato._random import RandomSource
from sfumato.data.strings import encoded

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
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee rests on, for the statement: nothing where names decided."""
        if not self.by_position:
            return ()
        things = _PLURAL[self.what]
        return (
            f"The data are the training part, as it was given: the {things} were divided by their position, so that "
            "adding or removing one of the whole collection could move others between training and test.",
        )


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
