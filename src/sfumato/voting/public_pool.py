"""The public pool: whether it fits the agents, its classes by their numbers, and which examples are asked about.

Data sets that were read one by one number their classes each for itself. Names show which are the same, so that answers
and truth speak of the same classes.

>>> from sfumato.data import examples_from_arrays, from_arrays
>>> agents = from_arrays([[0.0], [1.0], [2.0]], labels=["ape", "bee", "cat"], users=["x", "y", "z"])
>>> pool = examples_from_arrays([[0.0], [1.0]], ["bee", "cat"])
>>> pool.targets.tolist(), with_shared_numbers(pool, agents, "the pool").targets.tolist()
([0, 1], [1, 2])

Which examples are asked about is chosen from what is public, so the choice costs nothing.

>>> pool = np.array([[0.0], [0.0], [1.0], [5.0]])
>>> choose(pool, 3, "random", seed=0).tolist()          # the second one is the first again
[0, 2, 3]
"""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from sklearn.cluster import kmeans_plusplus

from sfumato._check import InputError, one_of, whole
from sfumato._random import RandomSource
from sfumato.data import ExampleDataset, UserDataset
from sfumato.data.domain import refuse_found

_SHOWN = 8  # names of classes in a message


def refuse_agents(agents: UserDataset, pool: ExampleDataset) -> None:
    """Refuse agents that cannot vote on this pool, each in one line; warns of agents that know one class only."""
    if not isinstance(agents, UserDataset):
        raise InputError(
            f"agents must be a data set of users, one an agent, got {type(agents).__name__}; make one with "
            "sfumato.data.from_arrays"
        )
    if not isinstance(pool, ExampleDataset):
        raise InputError(
            f"the pool must be single examples (ExampleDataset), got {type(pool).__name__}; make one with "
            "sfumato.data.examples_from_arrays"
        )
    if agents.of_values or (agents.of_sequences and not agents.of_attributes):
        raise InputError(f"agents vote for classes or attributes, got {agents}; ratings and texts have neither")
    found = " and ".join(f"{shape} {kind}" for shape, kind in zip(pool.input_shapes, pool.dtypes, strict=True))
    if len(pool.inputs) != 1 or pool.input_shapes[0] != agents.input_shape or pool.dtypes[0] != agents.dtype:
        raise InputError(
            f"the pool has inputs {found}, the agents {agents.input_shape} {agents.dtype}; bring them to one shape and "
            "type: size and channels of pictures, floats for numbers"
        )
    empty = np.flatnonzero(agents.sizes == 0)
    if len(empty):
        raise InputError(
            f"agent {agents.user_ids[int(empty[0])]!r} has no records, so it has nothing to vote by; leave it out"
        )
    alone = []
    for agent in range(len(agents)):
        inputs, labels = agents.examples(agent)
        _refuse_not_finite(inputs, f"agent {agents.user_ids[agent]!r}")
        if not agents.of_attributes and len(np.unique(labels)) == 1:
            alone.append(agent)
    if alone:
        warnings.warn(
            f"{len(alone)} of {len(agents)} agents have records of one class only, agent "
            f"{agents.user_ids[alone[0]]!r} for one, and will vote for it whatever is asked",
            stacklevel=2,
        )


def _refuse_not_finite(inputs: np.ndarray, whose: str) -> None:
    wrong = ~np.isfinite(inputs.reshape(len(inputs), -1)).all(axis=1)
    if wrong.any():
        raise InputError(
            f"{whose} has records with NaN or infinity, {int(wrong.sum())} of {len(inputs)}, the first at its place "
            f"{int(np.argmax(wrong))}; fill them in or leave them out"
        )


def with_shared_numbers(examples: ExampleDataset, agents: UserDataset, what: str) -> ExampleDataset:
    """The examples, with targets by the numbers of the agents' classes.

    Args:
        examples: public; without classes they stay as they are.
        agents: whose classes count; names that are whole numbers are the numbers of data without names.
        what: the examples, for messages.

    Raises:
        InputError: an example is of a class that no agent knows, or one has names and the other only numbers.
    """
    if examples.num_classes is None or examples.targets is None or agents.of_attributes:
        return examples
    ours = None if agents.label_names is None else list(agents.label_names)
    theirs = None if examples.label_names is None else list(examples.label_names)
    present = np.unique(examples.targets)
    if ours is None and theirs is None:
        if int(present[-1]) >= agents.num_classes:
            raise InputError(
                f"{what} has an example of class {int(present[-1])}, the agents have the classes 0 … "
                f"{agents.num_classes - 1}; give both the same classes"
            )
        return examples
    if ours == theirs:
        return examples
    ours, theirs = _named(ours, agents.num_classes, theirs, what), _named(theirs, examples.num_classes, ours, what)
    number = {name: place for place, name in enumerate(ours)}
    unknown = [theirs[label] for label in present.tolist() if theirs[label] not in number]
    if unknown:
        raise InputError(
            f"{what} has an example of class {unknown[0]!r}, the agents have {_listed(ours)}; give both the same "
            "classes, under the same names"
        )
    numbers = np.array([number.get(name, 0) for name in theirs], np.int64)
    return replace(
        examples, targets=numbers[examples.targets], num_classes=agents.num_classes, label_names=agents.label_names
    )


def with_public_classes(agents: UserDataset, pool: ExampleDataset) -> UserDataset:
    """The agents with classes that are declared, or else those of a labelled pool, which is public.

    Raises:
        InputError: none are declared and the pool has none, or an agent has a class that the pool has not.
    """
    if not agents.found:
        return agents
    if pool.num_classes is None:
        refuse_found(agents.found)
    assert pool.num_classes is not None
    if agents.label_names is None and pool.label_names is None:
        return agents.with_classes(pool.num_classes)
    return agents.with_classes(_named(pool.label_names, pool.num_classes, agents.label_names, "the pool"))


def _named(names: Sequence[str] | None, count: int, others: Sequence[str] | None, what: str) -> list[str]:
    """Names as they are; of classes without names their numbers, where the others' names are numbers, too."""
    if names is not None:
        return list(names)
    assert others is not None
    if not all(name.isdecimal() for name in others):
        raise InputError(
            f"one of {what} and the agents names its classes ({_listed(others)}), the other has numbers; give "
            "both the same names"
        )
    return [str(number) for number in range(count)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


Selection = Literal["random", "diverse"]
"""How queries are chosen: uniformly, or far from each other (the seeding of k-means++)."""


_BLOCK = 1 << 12


def choose(rows: Any, count: int, selection: Selection, seed: int) -> np.ndarray:
    """Positions of the queries.

    Args:
        rows: the pool as a data set stores it, [n, …].
        count: how many, >= 1.
        selection: see `Selection`.
        seed: public.

    Returns:
        int64 [count], ascending; no two of them are the same example.

    Raises:
        InputError: the pool has fewer different examples.
    """
    one_of(get_args(Selection), selection=selection)
    whole(queries=count)
    different, size = different_examples(rows), int(rows.shape[0])
    if len(different) < count:
        copies = size - len(different)
        what = f"{len(different)} different examples ({copies} are copies)" if copies else f"{size} examples"
        raise InputError(
            f"the public pool has {what}, and {count} queries were asked for; ask fewer, or give a larger pool"
        )
    stream = RandomSource.from_seed(seed).stream("queries")
    if selection == "random":
        taken = stream.permutation(len(different))[:count]
    else:
        flat = np.concatenate(
            [
                np.asarray(rows[different[start : start + _BLOCK]], np.float32).reshape(-1, _width(rows))
                for start in range(0, len(different), _BLOCK)
            ]
        )
        _, taken = kmeans_plusplus(flat, count, random_state=int(stream.uint64(1)[0] >> 32))
        taken = np.unique(taken)
        rest = np.setdiff1d(np.arange(len(different)), taken)[: count - len(taken)]
        taken = np.concatenate([taken, rest])
    return np.sort(different[taken])


def refuse_duplicates(positions: Sequence[int] | np.ndarray, pool: int) -> np.ndarray:
    """Queries that were given, int64 [queries].

    Raises:
        InputError: one of them is asked twice, which costs twice for the same answer, or is not in the pool.
    """
    places = np.asarray(positions)
    if places.ndim != 1 or not len(places) or places.dtype.kind not in "iu":
        raise InputError(f"queries must be a number of them or a list of positions in the pool, got {positions!r:.80}")
    outside = (places < 0) | (places >= pool)
    if outside.any():
        raise InputError(f"a query must be a position 0 … {pool - 1} of the pool, got {int(places[outside][0])}")
    values, counts = np.unique(places, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"query {int(values[counts > 1][0])} is asked twice, and would be paid for twice; ask it once")
    return places.astype(np.int64)


def positions_of(
    given: Sequence[int] | np.ndarray | None, pool: ExampleDataset, count: int, selection: Selection, seed: int
) -> np.ndarray:
    """Positions of the queries in the pool, int64 [count]: those that are given, or chosen ones (`choose`).

    Raises:
        InputError: as for `choose` and `refuse_duplicates`, or so many are not given.
    """
    if given is None:
        return choose(pool.inputs[0], count, selection, seed)
    places = refuse_duplicates(given, len(pool))
    if len(places) != count:
        raise InputError(f"the plan has queries={count}, and {len(places)} were given; make them one number")
    return places


def _width(rows: Any) -> int:
    return int(np.prod(rows.shape[1:], dtype=np.int64))


def different_examples(rows: Any) -> np.ndarray:
    """Positions of the first of each example, int64 [different]."""
    seen: dict[bytes, int] = {}
    size = int(rows.shape[0])  # rows that are read on demand have no len()
    for start in range(0, size, _BLOCK):
        block = np.ascontiguousarray(rows[np.arange(start, min(start + _BLOCK, size))])
        for place, row in enumerate(block, start):
            seen.setdefault(hashlib.blake2b(row.tobytes(), digest_size=16).digest(), place)
    return np.fromiter(seen.values(), np.int64, len(seen))
