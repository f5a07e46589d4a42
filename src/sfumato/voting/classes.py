"""The classes of public examples by the agents' numbers, so that answers and truth speak of the same classes.

Data sets that were read one by one number their classes each for itself. Names tell which are the same.

>>> from sfumato.data import examples_from_arrays, from_arrays
>>> agents = from_arrays([[0.0], [1.0], [2.0]], labels=["ape", "bee", "cat"], users=["x", "y", "z"])
>>> pool = examples_from_arrays([[0.0], [1.0]], ["bee", "cat"])
>>> pool.targets.tolist(), numbered_alike(pool, agents, "the pool").targets.tolist()
([0, 1], [1, 2])
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sfumato._check import InputError
from sfumato.data import ExampleDataset, UserDataset
from sfumato.data.domain import refuse_found

_SHOWN = 8  # names of classes in a message


def numbered_alike(examples: ExampleDataset, agents: UserDataset, what: str) -> ExampleDataset:
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
        InputError: nobody declared any and the pool has none, or an agent has a class that the pool has not.
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
            f"of {what} and the agents one names its classes ({_listed(others)}) and one has numbers, so nobody can "
            "tell which are the same; give both the same names"
        )
    return [str(number) for number in range(count)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
