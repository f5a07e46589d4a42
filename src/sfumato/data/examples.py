"""Data sets whose privacy unit is one example: inputs, targets, and what about them is taken to be public.

Every record stands alone: nothing here groups records by person, so what is promised later is promised for one
example. A person with several records pays for each of them; where records are grouped, use `UserDataset`.

Reading must not learn from private records. Whatever was taken from them and not declared (the number of classes,
the names of the classes) is written down in `assumptions`, one sentence each, for the statement of a run.

>>> images = np.zeros((6, 4, 4, 1), np.uint8)
>>> data = ExampleDataset(inputs=(images,), targets=np.array([0, 1, 2, 0, 1, 2]), num_classes=3)
>>> data
ExampleDataset(6 examples of (4, 4, 1) uint8, 3 classes)
>>> (inputs,), targets = data.subset([5, 0]).examples(np.array([0, 1]))
>>> inputs.shape, targets.tolist()
((2, 4, 4, 1), [2, 0])
>>> ExampleDataset(inputs=(images,), targets=np.linspace(0, 1, 6, dtype=np.float32))
ExampleDataset(6 examples of (4, 4, 1) uint8, a number each)

**From arrays** in memory or mapped, and whether their classes were found in the records.

>>> import numpy as np
>>> data = examples_from_arrays(np.zeros((4, 28, 28), np.uint8), ["cat", "dog", "cat", "eel"])
>>> data
ExampleDataset(4 examples of (28, 28, 1) uint8, 3 classes)
>>> data.found, data.with_classes(["cat", "dog", "eel", "fox"])
(('the names of the classes were',), ExampleDataset(4 examples of (28, 28, 1) uint8, 4 classes))
>>> examples_from_arrays(np.zeros((2, 3)), [3.5, 1e30]).targets.dtype, examples_from_arrays(np.zeros((2, 3)))
(dtype('float32'), ExampleDataset(2 examples of (3,) float64, no targets))
>>> examples_from_arrays({"input_ids": [[5, 7], [2, 0]], "attention_mask": [[1, 1], [1, 0]]}, [0, 1], num_classes=2)
ExampleDataset(2 examples of input_ids (2,) int64 + attention_mask (2,) int64, 2 classes)
>>> examples_from_arrays(np.zeros((2, 3)), [0, 9], num_classes=3)
Traceback (most recent call last):
...
sfumato._check.InputError: targets must be in 0 … 2 (num_classes=3), got 9 at position 1; number the classes from 0

**From users,** for training that protects each example and not each person.

>>> from sfumato.data.users import from_arrays
>>> users = from_arrays(np.zeros((3, 2)), labels=[0, 1, 1], users=["bo", "al", "bo"])
>>> examples_from_users(users)
ExampleDataset(3 examples of (2,) float64, 2 classes)

Attributes are a number each, 0 or 1. Values, such as ratings, are numbers of the examples:

>>> examples_from_users(from_arrays([[0], [1], [0]], labels=[3.5, 1.0, 5.0], users=["bo", "al", "al"]))
ExampleDataset(3 examples of (1,) int64, a number each)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from sfumato._check import InputError, whole
from sfumato._types import Assumption, Stated
from sfumato.data.digest import digest_of
from sfumato.data.domain import COUNT, DECLARED_PUBLIC, NAMES, renumbered
from sfumato.data.inputs import Shaped, as_array, checked_inputs, positions
from sfumato.data.labels import checked_targets
from sfumato.data.mapped import Chosen, ChunkedRows
from sfumato.data.safeguards import odd_values
from sfumato.data.users import UserDataset

_BLOCK = 1 << 16  # targets looked at in one go


class ExampleRows(Shaped, Protocol):
    """What each of the inputs must offer: an array does, in memory or mapped, and so do encoded pictures."""

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The rows at int64 [n] or of a slice, shape [n, *input_shape]."""
        ...


class TakenRows:
    """Some rows of others in a given order, read when they are asked for.

    Args:
        rows: the whole.
        taken: int64 [n], positions in it.
    """

    def __init__(self, rows: ExampleRows, taken: np.ndarray) -> None:
        if isinstance(rows, TakenRows):
            rows, taken = rows._rows, rows._taken[taken]
        self._rows = rows
        self._taken = taken
        self.shape = (len(taken), *rows.shape[1:])
        self.dtype = rows.dtype

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The rows at these positions, [n, *input_shape]."""
        return self._rows[self._taken[rows]]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExampleDataset:
    """Examples and their targets. Build one with `examples_from_arrays` or `open_examples`.

    A model is called with one tensor for each of `inputs`, after `to_tensor`: by position, or by the `input_names`.

    Attributes:
        inputs: one or more of rows [N, …]: images uint8 [N, H, W, C]; token ids [N, T]; for tables float32 [N, a] and
            ids [N, b], of which one that would be empty is left out.
        targets: what a model shall say of each example: a class, int64 [N] in 0 … num_classes − 1; a whole number,
            int64 [N]; a number, float32 [N]; several of either, [N, k]; or None for no targets.
        num_classes: number of classes, ≥ 1; None where targets are no classes.
        label_names: a name for each class, or None.
        vocabulary_sizes: how many ids there are: (V,) for text, one number a column of ids for tables, () without ids.
            A category of several values a row has its number, then a 0 for each further column of its ids.
        columns: the names of the columns of each of the inputs, or ().
        input_names: the keyword by which a model gets each of the inputs (input_ids, attention_mask); () for positions.
        assumptions: sentences on what is taken to be public about the records, for the statement.
        found: what of the domain was found in the records (`data.domain`), for a run with a guarantee to refuse.
        notes: lines about what was skipped, clipped or converted while reading; they depend on the records and are
            not private.
        example_names: the examples' own names, such as the paths of their pictures; or None.
        owners: whose each example is, int64 [N], users 0 … U − 1, each of whom has one or more; None where each example
            stands alone.
    """

    inputs: tuple[ExampleRows, ...]
    targets: np.ndarray | None = None
    num_classes: int | None = None
    label_names: Sequence[str] | None = None
    vocabulary_sizes: tuple[int, ...] = ()
    columns: tuple[tuple[str, ...], ...] = ()
    input_names: tuple[str, ...] = ()
    assumptions: tuple[Stated, ...] = ()
    found: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    example_names: Sequence[str] | None = None
    owners: np.ndarray | None = None

    def __post_init__(self) -> None:
        lengths = [int(rows.shape[0]) for rows in self.inputs]
        if not lengths:
            raise InputError("an example needs at least one input, got none")
        counts = [] if self.targets is None else [len(self.targets)]
        if len({*lengths, *counts}) > 1:
            given = [f"{length:,} rows of inputs" for length in lengths] + [f"{count:,} targets" for count in counts]
            raise InputError(
                f"each example needs its inputs and its targets, got {', '.join(given[:-1])} and {given[-1]}"
            )
        self._refuse_names()
        self._refuse_targets()
        self._refuse_owners()
        object.__setattr__(self, "inputs", tuple(read_only(rows) for rows in self.inputs))
        object.__setattr__(self, "targets", read_only(self.targets))
        object.__setattr__(self, "owners", read_only(self.owners))

    def _refuse_names(self) -> None:
        """Refuse names of inputs that are not one keyword each."""
        names = self.input_names
        if names and (len(names) != len(self.inputs) or len(set(names)) < len(names)):
            raise InputError(
                f"input_names must be one name for each of the {len(self.inputs)} inputs, each another one, got "
                f"{', '.join(names)}"
            )
        for name in names:
            if not name.isidentifier():
                raise InputError(
                    f"an input's name is the keyword by which the model gets it, got {name!r}; rename it, or leave the "
                    "names out"
                )

    def _refuse_targets(self) -> None:
        """Refuse targets of a type or shape that is none of those above, and classes that do not fit."""
        targets, classes = self.targets, self.num_classes
        if targets is not None and (targets.ndim not in (1, 2) or targets.dtype.kind not in "iuf"):
            raise InputError(f"targets must be numbers [N] or [N, k], got {targets.dtype} {targets.shape}")
        if classes is not None:
            whole(num_classes=classes)
            if targets is None or targets.ndim != 1 or targets.dtype.kind == "f":
                given = "none" if targets is None else f"{targets.dtype} {targets.shape}"
                raise InputError(f"num_classes={classes} needs class numbers as targets, int64 [N], got {given}")
        if self.label_names is not None and len(self.label_names) != classes:
            raise InputError(
                f"label_names must have one name a class ({classes or 'there are none'}), got {len(self.label_names)}"
            )

    def _refuse_owners(self) -> None:
        """Refuse users that are no numbers of users, each of whom has an example."""
        owners = self.owners
        if owners is None:
            return
        if owners.shape != (len(self),) or owners.dtype != np.int64:
            raise InputError(f"owners must be int64 [{len(self)}], got {owners.dtype} {owners.shape}")
        if len(owners) and (owners.min() < 0 or not np.bincount(owners, minlength=1).all()):
            raise InputError("owners must be users 0, 1, …, each of whom has an example; number them without gaps")

    def __len__(self) -> int:
        return int(self.inputs[0].shape[0])

    @property
    def num_users(self) -> int:
        """How many users the examples are of.

        Raises:
            InputError: each example stands alone.
        """
        if self.owners is None:
            raise InputError(
                "the examples have no users; declare a column as user in the schema, or give users= to "
                "examples_from_arrays"
            )
        return int(self.owners.max(initial=-1)) + 1

    def __repr__(self) -> str:
        """One line: examples, users, names, shapes, types, targets."""
        names = [f"{name} " for name in self.input_names] or [""] * len(self.inputs)
        shapes = " + ".join(
            f"{name}{tuple(rows.shape[1:])} {rows.dtype}" for name, rows in zip(names, self.inputs, strict=True)
        )
        users = "" if self.owners is None else f" of {self.num_users:,} users"
        return f"ExampleDataset({len(self):,} examples{users} of {shapes}, {self._describe_targets()})"

    def _describe_targets(self) -> str:
        """The targets in a few words."""
        if self.targets is None:
            return "no targets"
        if self.num_classes is not None:
            return f"{self.num_classes:,} classes"
        kind = "whole number" if self.target_dtype == np.int64 else "number"
        return f"{self.targets.shape[1]:,} {kind}s each" if self.targets.ndim == 2 else f"a {kind} each"

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of one example in each of the inputs: ((H, W, C),) for images."""
        return tuple(tuple(rows.shape[1:]) for rows in self.inputs)

    @property
    def dtypes(self) -> tuple[np.dtype, ...]:
        """The type of each of the inputs as `examples` gives it."""
        return tuple(np.dtype(np.int64) if _is_ids(rows) else rows.dtype for rows in self.inputs)

    @property
    def target_dtype(self) -> np.dtype | None:
        """The type of the targets as `examples` gives them: int64 or float32, None without targets."""
        if self.targets is None:
            return None
        return np.dtype(np.float32 if self.targets.dtype.kind == "f" else np.int64)

    def examples(self, indices: Sequence[int] | np.ndarray) -> tuple[tuple[np.ndarray, ...], np.ndarray | None]:
        """Some examples, in time that does not depend on the size of the data.

        Args:
            indices: int64 [n], positions 0 … N − 1; n may be 0, and a position may come twice.

        Returns:
            one array [n, …] for each of the inputs, ids as int64; and targets [n] or [n, k], int64 or float32, or None.

        Raises:
            IndexError: there is no such example.
        """
        places = np.asarray(indices, dtype=np.int64)
        if places.size and (places.min() < 0 or places.max() >= len(self)):
            raise IndexError(f"examples must be positions 0 … {len(self) - 1}")
        inputs = tuple(np.asarray(rows[places], dtype) for rows, dtype in zip(self.inputs, self.dtypes, strict=True))
        return inputs, self._targets_at(places)

    def _targets_at(self, places: np.ndarray | slice) -> np.ndarray | None:
        return None if self.targets is None else np.asarray(self.targets[places], self.target_dtype)

    def batches(self, size: int) -> Iterator[tuple[tuple[np.ndarray, ...], np.ndarray | None]]:
        """All examples in order, `size` at a time: for evaluation, never for private training.

        Raises:
            InputError: the size is not a whole number ≥ 1.
        """
        whole(size=size)
        for start in range(0, len(self), size):
            yield self.examples(np.arange(start, min(start + size, len(self))))

    def subset(self, indices: Sequence[int] | np.ndarray) -> "ExampleDataset":
        """A view of some examples, in the given order; classes keep their numbers, no input is copied.

        Args:
            indices: positions in this view, each at most once (an example that is listed twice would pay twice).

        Raises:
            InputError: a position does not exist or is listed twice.
        """
        places = positions(indices, len(self), "indices", "example")
        inputs = tuple(TakenRows(rows, places) for rows in self.inputs)
        names = None if self.example_names is None else Chosen(self.example_names, places)
        owners = None if self.owners is None else np.unique(self.owners[places], return_inverse=True)[1].reshape(-1)
        return replace(self, inputs=inputs, targets=self._targets_at(places), example_names=names, owners=owners)

    def with_classes(self, classes: int | Sequence[str] | None) -> "ExampleDataset":
        """The same examples with classes that are declared, and not found in the records.

        Args:
            classes: how many there are, or their names in the order of their numbers; None declares that those of the
                records are public, which a statement then says.

        Raises:
            InputError: targets are no classes, or an example has one that is not declared.
        """
        if self.num_classes is None or self.targets is None:
            raise InputError(f"classes are declared for targets that are classes, got {self}; leave them out")
        left = tuple(each for each in self.found if each not in (COUNT, NAMES))
        if classes is None:
            said = () if left == self.found else (DECLARED_PUBLIC,)
            return replace(self, found=left, assumptions=(*self.assumptions, *said))
        numbers, count, names = renumbered(classes, self.num_classes, self.label_names, self.class_counts() > 0)
        targets = self.targets if (numbers == np.arange(len(numbers))).all() else numbers[self.targets]
        return replace(self, targets=targets, num_classes=count, label_names=names, found=left)

    def class_counts(self) -> np.ndarray:
        """Examples of each class, int64 [num_classes]. Not private.

        Raises:
            InputError: the targets are no classes.
        """
        if self.targets is None or self.num_classes is None:
            raise InputError(f"there are no classes to count: {self}")
        counts = np.zeros(self.num_classes, np.int64)
        for start in range(0, len(self), _BLOCK):
            counts += np.bincount(self.targets[start : start + _BLOCK], minlength=self.num_classes)
        return counts

    def fingerprint(self) -> str:
        """SHA-256 of the data, to refuse a run that would go on with other records under the same noise.

        It covers every input, its name, every target and whose each example is.
        """
        targets = () if self.targets is None else (self.targets,)
        names = (self.input_names,) if self.input_names else ()
        said = (self.num_classes, self.vocabulary_sizes, len(targets), *names)
        if self.owners is None:
            return digest_of(said, *self.inputs, *targets)
        return digest_of((*said, "owners"), *self.inputs, *targets, self.owners)

    def summary(self) -> list[str]:
        """Lines for people: the size of the data and what reading noticed. Not private."""
        return [
            repr(self)[len("ExampleDataset(") : -1],
            *odd_values("the classes", self.label_names or ()),
            *self.notes,
        ]


def read_only(rows: Any) -> Any:
    """The same rows as a view that refuses to be written to."""
    if isinstance(rows, np.ndarray) and rows.flags.writeable:
        rows = rows.view()
        rows.flags.writeable = False
    return rows


def _is_ids(rows: ExampleRows) -> bool:
    """Whether rows are ids or counts, as opposed to the bytes of pictures and to numbers on a scale."""
    return rows.dtype.kind in "iub" and not (rows.dtype == np.uint8 and len(rows.shape) == 4)


def examples_from_arrays(
    inputs: Any,
    targets: Any = None,
    *,
    classes: bool = True,
    num_classes: int | None = None,
    label_names: Sequence[str] | None = None,
    vocabulary_sizes: Sequence[int] = (),
    columns: Sequence[Sequence[str]] = (),
    assumptions: Sequence[Stated] = (),
    found: Sequence[str] = (),
    notes: Sequence[str] = (),
    users: Sequence[object] | None = None,
) -> ExampleDataset:
    """A data set from arrays with one row an example. Nothing is copied; mapped arrays stay on the disk.

    Args:
        inputs: [N, …], or a tuple of such arrays, or a mapping of them by the names under which the model takes them,
            as a tokeniser gives it. Images are uint8 [N, H, W, C] with C = 1 or 3, or
            uint8 [N, H, W], which gets C = 1. Floats and ids pass as they are; one with NaN counts as zero in training.
        targets: whole numbers [N] or text: classes 0 … num_classes − 1, the label_names, or text numbered in sorted
            order; floats [N] or [N, k], finite: numbers; whole numbers [N, k]: several of them; or None.
        classes: whether whole numbers [N] are classes; False takes them as numbers, counts for example.
        num_classes: number of classes; it follows from `label_names`. Without either it is taken from the targets, and
            a run with a guarantee refuses to build a model by it.
        label_names: a name for each class.
        vocabulary_sizes: how many ids there are, see `ExampleDataset`.
        columns: names of the columns of each array.
        assumptions: more sentences on what is public.
        found: what more of the domain was found in the records.
        notes: lines that `summary` shows.
        users: whose each example is, [N] names or numbers; None where each example stands alone.

    Raises:
        InputError: no rows, lengths that differ, targets that are no numbers, not finite or out of range, or inputs
            that are not numbers.
    """
    named = isinstance(inputs, Mapping)
    arrays = tuple(inputs.values()) if named else inputs if isinstance(inputs, tuple) else (inputs,)
    rows = tuple(checked_inputs(as_array(array, "inputs")) for array in arrays)
    if targets is not None:
        targets = as_array(targets, "targets")
    if any(len(each) == 0 for each in (*rows, *([] if targets is None or not targets.ndim else [targets]))):
        raise InputError("the data has no examples: inputs or targets are empty")
    if targets is None and (num_classes is not None or label_names is not None):
        raise InputError("num_classes and label_names are for classes, got no targets; give them, or leave these out")
    read = (
        None
        if targets is None
        else checked_targets(targets, classes=classes, num_classes=num_classes, label_names=label_names)
    )
    return ExampleDataset(
        inputs=rows,
        targets=read and read.values,
        num_classes=read and read.num_classes,
        label_names=read and read.label_names,
        vocabulary_sizes=tuple(vocabulary_sizes),
        columns=tuple(tuple(names) for names in columns),
        input_names=tuple(map(str, inputs)) if named else (),
        assumptions=tuple(assumptions),
        found=(*found, *(read.found if read else ())),
        notes=(*notes, *(read.notes if read else ())),
        owners=None if users is None else np.unique(np.asarray(users), return_inverse=True)[1].reshape(-1),
    )


def examples_from_users(users: UserDataset) -> ExampleDataset:
    """The examples of a data set by user, each standing for itself: a weaker promise, and an assumption says so.

    Args:
        users: any view; a store stays on the disk.
    """
    rows = users.rows()
    labels = np.asarray(users.labels)
    if users.class_map is not None:
        labels = users.class_map[labels.astype(np.int64)]
    whole_data = users.chosen is None and len(rows) == len(labels)
    classes = not (users.of_values or users.of_attributes)
    said = [*users.assumptions, Assumption("examples_of_users")]
    if users.of_attributes:
        said.insert(0, Assumption("attributes_public", {"count": users.num_classes}))
    dataset = ExampleDataset(
        inputs=(
            users.inputs if isinstance(users.inputs, np.ndarray | ChunkedRows | TakenRows) else _Gathered(users.inputs),
        ),
        targets=_targets(users, labels),
        num_classes=users.num_classes if classes else None,
        label_names=users.label_names if classes else None,
        assumptions=tuple(said),
        found=users.found,
        notes=users.notes,
        example_names=users.example_names,
    )
    return dataset if whole_data else dataset.subset(rows)


def _targets(users: UserDataset, labels: np.ndarray) -> np.ndarray:
    """Values as they are, attributes as 0 and 1, which losses of logits read, and classes without the left-out −1."""
    if users.of_values:
        return labels
    return labels.astype(np.float32) if users.of_attributes else np.where(labels >= 0, labels, 0).astype(np.int64)


class _Gathered:
    """Rows that a user's own `inputs` gives as slices only, made to be read one by one."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self.shape: tuple[int, ...] = tuple(rows.shape)
        self.dtype: np.dtype = np.dtype(rows.dtype)

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The rows at these positions, [n, *input_shape]."""
        places = np.arange(self.shape[0])[rows]
        result = np.empty((len(places), *self.shape[1:]), self.dtype)
        for i, place in enumerate(places.tolist()):
            result[i] = self._rows[place : place + 1][0]
        return result
