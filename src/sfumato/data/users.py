"""Data sets that are divided by user: each user's examples lie side by side and are found in constant time.

The user is the unit that everything later samples, clips and accounts for, so a user's records must not be
spread over two users, nor may one user be listed twice in a subset; both are refused here.

The same class serves arrays in memory and a memory-mapped store: `inputs` only has to give a slice of rows. A subset
shares the arrays of the whole.

>>> inputs = np.arange(12, dtype=np.float32).reshape(6, 2)
>>> from sfumato.data.users import from_arrays
>>> users = from_arrays(inputs, labels=[0, 1, 0, 1, 2, 2], users=["bo", "al", "bo", "al", "cy", "bo"])
>>> users
UserDataset(3 users, 6 examples of (2,) float32, 3 classes)
>>> list(users.user_ids), users.sizes.tolist()
(['al', 'bo', 'cy'], [2, 3, 1])
>>> inputs, labels = users.subset([1]).examples(0)
>>> inputs[:, 0].tolist(), labels.tolist()
([0.0, 4.0, 10.0], [0, 0, 2])

Rows of booleans are attributes, of which an example may have several:

>>> from_arrays([[0], [1]], labels=np.array([[True, True], [False, True]]), users=["bo", "al"])
UserDataset(2 users, 2 examples of (1,) int64, 2 attributes each)

Labels with a point are values, such as ratings, and not classes:

>>> from_arrays([[0], [1], [0]], labels=[3.5, 1.0, 5.0], users=["bo", "al", "al"])
UserDataset(2 users, 3 values of (1,) int64)

From arrays in memory, in any order:

>>> from_arrays([[0.5], [1.5]], labels=[0, 1], users=["bo", "al"]).examples(0)[0].tolist()
[[1.5]]
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sfumato._check import InputError
from sfumato._types import Stated
from sfumato.data.digest import digest_of
from sfumato.data.domain import COUNT, DECLARED_PUBLIC, NAMES, renumbered
from sfumato.data.inputs import Shaped, as_array, checked_inputs, positions, to_float32
from sfumato.data.mapped import Chosen, ChunkedRows, Strings, as_text
from sfumato.data.safeguards import missing_name, name_notes, odd_values

_BLOCK = 1 << 16  # users looked at in one go while labels are counted; bounds the memory of a scan


class UserRows(Shaped, Protocol):
    """What `inputs` must offer: a NumPy array does, and so do pictures that are decoded when they are read."""

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        """The rows `start:stop`, shape [stop − start, *input_shape]."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserDataset:
    """Users, their inputs and labels. Build one with `from_arrays` or `open_users`.

    Attributes:
        inputs: rows [examples, *input_shape] of the whole data set, sorted by user.
        labels: integers [examples] in 0 … base classes − 1, in the same order; or [examples, length], a class for each
            token of inputs [examples, length]: classes are then the ids of a vocabulary, 0 being padding. Or values,
            such as ratings, float32 [examples]. Or attributes, of which an example may have several, bool [examples,
            attributes].
        offsets: int64 [base users + 1]: user u of the whole owns the rows offsets[u] … offsets[u + 1] − 1.
        names: the names of the base users.
        num_classes: number of classes of this view, or of attributes, ≥ 1; 0 where labels are values.
        label_names: a name for each class or attribute, or None.
        label_groups: the group of each class (for example its alphabet), or None.
        chosen: int64 [users], the base users of this view; None = all.
        class_map: int64 [base classes], the class of this view or −1 for one that is left out; None = all as
            is.
        assumptions: sentences that a guarantee for these users rests on, for the statement.
        found: what of the domain was found in the records (`data.domain`), for a run with a guarantee to refuse.
        fixed_classes: the classes were declared (`with_classes`), so a part keeps all of them, whatever its users hold.
        notes: lines about what was skipped or converted while reading, for people.
        contents: gives a digest of inputs, labels and names of the whole without reading all of them, as a store can;
            None: they are read.
        item_names: the public names of the numbers in column 0 of inputs [examples, columns], such as those of films;
            or None.
        places: int64 [examples], where each row of the whole stood in what was read; None where they are as they were.
        example_names: the names of the rows of the whole, such as the paths of their pictures; or None.
    """

    inputs: UserRows
    labels: np.ndarray | ChunkedRows
    offsets: np.ndarray
    names: Sequence[str]
    num_classes: int
    label_names: Sequence[str] | None = None
    label_groups: Sequence[str] | None = None
    chosen: np.ndarray | None = None
    class_map: np.ndarray | None = None
    assumptions: tuple[Stated, ...] = ()
    found: tuple[str, ...] = ()
    fixed_classes: bool = False
    notes: tuple[str, ...] = ()
    contents: Callable[[], str] | None = None
    item_names: Sequence[str] | None = None
    places: np.ndarray | None = None
    example_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.inputs, np.ndarray) and self.inputs.flags.writeable:
            inputs = self.inputs.view()
            inputs.flags.writeable = False  # examples are views: a training loop must not change the data
            object.__setattr__(self, "inputs", inputs)

    def __len__(self) -> int:
        return len(self.offsets) - 1 if self.chosen is None else len(self.chosen)

    def __repr__(self) -> str:
        """One line: users, examples, shape, type, classes."""
        if self.of_sequences:
            return (
                f"UserDataset({len(self):,} users, {self.num_examples:,} sequences of {self.input_shape[0]:,} tokens, "
                f"vocabulary of {self.num_classes:,})"
            )
        if self.of_values:
            what = f"{self.input_shape} {self.dtype}" if self.item_names is None else f"{len(self.item_names):,} items"
            return f"UserDataset({len(self):,} users, {self.num_examples:,} values of {what})"
        kind = "attributes each" if self.of_attributes else "classes"
        return (
            f"UserDataset({len(self):,} users, {self.num_examples:,} examples of {self.input_shape} "
            f"{self.dtype}, {self.num_classes:,} {kind})"
        )

    @property
    def user_ids(self) -> Sequence[str]:
        """The users' names [users]; a name is looked up when it is asked for."""
        return self.names if self.chosen is None else Chosen(self.names, self.chosen)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input: (H, W, C) for images."""
        return tuple(self.inputs.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        """The type of the inputs: uint8 for images."""
        return self.inputs.dtype

    @property
    def of_sequences(self) -> bool:
        """Whether each example is a sequence with a label for every token."""
        return len(self.labels.shape) == 2 and not self.of_attributes

    @property
    def of_attributes(self) -> bool:
        """Whether each example has a row of attributes, of which several may be true."""
        return self.labels.dtype.kind == "b"

    @property
    def of_values(self) -> bool:
        """Whether each example has a value, as a rating is, and not a class."""
        return self.labels.dtype.kind == "f"

    @cached_property
    def sizes(self) -> np.ndarray:
        """Examples a user, int64 [users]."""
        if self.class_map is None:
            users = slice(None) if self.chosen is None else self.chosen
            return np.diff(self.offsets)[users].astype(np.int64)
        sizes = np.zeros(len(self), np.int64)
        for start, owner, labels in self._label_blocks():
            sizes[start : start + _BLOCK] = np.bincount(owner[labels >= 0], minlength=min(_BLOCK, len(self) - start))
        return sizes

    @property
    def num_examples(self) -> int:
        """Examples of all users of this view."""
        return int(self.sizes.sum())

    @property
    def groups(self) -> tuple[str, ...]:
        """The distinct groups of the classes, in the order of the classes; () without groups."""
        return tuple(dict.fromkeys(self.label_groups or ()))

    def with_classes(self, classes: int | Sequence[str] | None) -> "UserDataset":
        """The same records with classes that are declared, and not found in the records.

        Args:
            classes: how many there are, or their names in the order of their numbers; None declares that those of the
                records are public, which a statement then says.

        Raises:
            InputError: labels are no classes, or a record has one that is not declared.
        """
        if self.of_values or self.of_sequences or self.of_attributes:
            raise InputError(f"classes are declared for labels that are classes, got {self}; leave them out")
        left = tuple(each for each in self.found if each not in (COUNT, NAMES))
        if classes is None:
            said = () if left == self.found else (DECLARED_PUBLIC,)
            return replace(self, found=left, assumptions=(*self.assumptions, *said))
        numbers, count, names = renumbered(classes, self.num_classes, self.label_names, self.classes_present())
        same = count == self.num_classes and (numbers == np.arange(count)).all()
        if self.label_groups is not None and not same:
            raise InputError("classes of groups (alphabets) come from a public file; leave the declaration out")
        old = np.arange(self.num_classes) if self.class_map is None else self.class_map
        step = None if self.class_map is None and same else np.where(old >= 0, numbers[np.maximum(old, 0)], -1)
        return replace(self, num_classes=count, label_names=names, class_map=step, found=left, fixed_classes=True)

    def size(self, user: int) -> int:
        """Number of examples of one user."""
        return int(self.sizes[user])

    def examples(self, user: int) -> tuple[np.ndarray, np.ndarray]:
        """One user's examples, in constant time.

        Args:
            user: position in this view, 0 … len − 1.

        Returns:
            inputs [n, *input_shape] (a read-only view where possible) and labels int64 [n], or [n, length], or values
            float32 [n], or attributes bool [n, attributes].

        Raises:
            IndexError: there is no such user.
        """
        place = range(len(self))[user]
        base = place if self.chosen is None else int(self.chosen[place])
        rows = slice(int(self.offsets[base]), int(self.offsets[base + 1]))
        inputs = np.asarray(self.inputs[rows])
        labels = np.asarray(self.labels[rows], dtype=self._label_dtype)
        if self.class_map is None:
            return inputs, labels
        labels = self.class_map[labels]
        kept = labels >= 0
        return (inputs, labels) if kept.all() else (inputs[kept], labels[kept])

    def examples_of(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The examples of several users, one user after the other, in one go where the inputs are in memory or mapped.

        Args:
            users: int64 [users], positions in this view.

        Returns:
            inputs [n, *input_shape], labels as `examples` gives them, and how many examples each user has, int64
            [users].
        """
        base = users if self.chosen is None else self.chosen[users]
        first = np.asarray(self.offsets[base])
        sizes = np.asarray(self.offsets[base + 1]) - first
        ends = np.cumsum(sizes)
        rows = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - (ends - sizes), sizes)
        labels = np.asarray(self.labels[rows], dtype=self._label_dtype)
        if self.class_map is not None:
            labels = self.class_map[labels]
            kept = labels >= 0
            sizes = np.bincount(np.repeat(np.arange(len(users)), sizes)[kept], minlength=len(users))
            rows, labels = rows[kept], labels[kept]
        if isinstance(self.inputs, np.ndarray | ChunkedRows):
            return self.inputs[rows], labels, sizes
        parts = [self.examples(int(user))[0] for user in users]
        empty = np.empty((0, *self.input_shape), self.dtype)
        return np.concatenate(parts) if parts else empty, labels, sizes

    def rows(self) -> np.ndarray:
        """The rows of the whole that this view has, int64 [examples], user by user."""
        first, last = np.asarray(self.offsets[:-1]), np.asarray(self.offsets[1:])
        if self.chosen is not None:
            first, last = first[self.chosen], last[self.chosen]
        counts = last - first
        rows = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        if self.class_map is None:
            return rows
        return rows[self.class_map[np.asarray(self.labels[rows], np.int64)] >= 0]

    def subset(self, users: Sequence[int] | np.ndarray) -> "UserDataset":
        """A view of some users, in the given order; classes keep their numbers, nothing is copied.

        Args:
            users: positions in this view, each at most once (a user who is listed twice would pay twice).

        Raises:
            InputError: a position does not exist or is listed twice.
        """
        places = positions(users, len(self), "users", "user")
        return replace(self, chosen=places if self.chosen is None else self.chosen[places])

    def classes_present(self) -> np.ndarray:
        """Which classes have at least one example in this view, boolean [num_classes].

        Raises:
            InputError: labels are values or attributes.
        """
        self.refuse_values("say which classes are held")
        self.refuse_attributes("say which classes are held")
        present = np.zeros(self.num_classes, bool)
        for _, _, labels in self._label_blocks():
            present[labels[labels >= 0]] = True
        return present

    def select_classes(self, classes: Sequence[int] | np.ndarray, renumber: bool = True) -> "UserDataset":
        """A view with these classes only; users who hold none of them are left out.

        Args:
            classes: class numbers of this view, for example range(36).
            renumber: number the kept classes 0, 1, … in ascending order (True), or keep their numbers.

        Raises:
            InputError: a class does not exist, or no user holds any of these classes; or the classes are tokens of
                sequences, of which none can be left out; or labels are values or attributes.
        """
        self.refuse_values("choose classes")
        self.refuse_attributes("choose classes")
        if self.of_sequences:
            raise InputError("the classes are tokens of sequences: no class can be left out; choose users")
        wanted = np.unique(np.asarray(classes, dtype=np.int64))
        if wanted.size == 0 or wanted[0] < 0 or wanted[-1] >= self.num_classes:
            outside = [int(c) for c in wanted if not 0 <= c < self.num_classes]
            got = f"got {outside[0]}" if outside else "got none"
            raise InputError(f"classes must be some of 0 … {self.num_classes - 1}, {got}")
        step = np.full(self.num_classes, -1, np.int64)
        step[wanted] = np.arange(len(wanted)) if renumber else wanted
        if self.class_map is None:
            class_map = step
        else:
            class_map = np.where(self.class_map >= 0, step[np.maximum(self.class_map, 0)], -1)
        view = replace(self, class_map=class_map)
        if renumber:
            view = replace(
                view,
                num_classes=len(wanted),
                label_names=None if self.label_names is None else Chosen(self.label_names, wanted),
                label_groups=None if self.label_groups is None else Chosen(self.label_groups, wanted),
            )
        held = np.flatnonzero(view.sizes)
        if held.size == 0:
            raise InputError(f"no user has an example of the {len(wanted)} chosen classes")
        return view if len(held) == len(view) else view.subset(held)

    def compact_labels(self) -> "UserDataset":
        """The same users and examples, with classes that no user here holds removed from the numbering.

        Declared classes, a vocabulary and attributes stay as they are: they are public, and no count of the records.
        Values have no classes.
        """
        if self.of_sequences or self.of_values or self.of_attributes or self.fixed_classes:
            return self
        present = self.classes_present()
        return self if present.all() or not present.any() else self.select_classes(np.flatnonzero(present))

    def with_inputs(self, inputs: UserRows, contents: Callable[[], str] | None = None) -> "UserDataset":
        """The same users and labels with other inputs: rows [examples of the whole, …] in the same order.

        Args:
            inputs: the rows.
            contents: gives a digest of the whole with these inputs; None: all is read.
        """
        if inputs.shape[0] != self.inputs.shape[0]:
            raise InputError(
                f"inputs must have {self.inputs.shape[0]} rows, one for each of the whole, got {inputs.shape}"
            )
        return replace(self, inputs=inputs, contents=contents)

    def refuse_values(self, doing: str) -> None:
        """Refuse what needs classes where labels are values.

        Args:
            doing: what cannot be done.

        Raises:
            InputError: labels are values.
        """
        if self.of_values:
            raise InputError(
                f"the labels are values ({self.labels.dtype}), such as ratings: nothing can {doing}; where they are "
                "classes, cast them to int64"
            )

    def refuse_attributes(self, doing: str) -> None:
        """Refuse what needs one class an example where labels are rows of attributes.

        Args:
            doing: what cannot be done.

        Raises:
            InputError: labels are attributes.
        """
        if self.of_attributes:
            raise InputError(
                f"the labels are {self.num_classes:,} attributes (bool), several an example, so nothing can "
                f"{doing}; give each example one class, or vote on the attributes"
            )

    def without_users(self) -> "UserDataset":
        """What is public of the data: shapes, types and classes; no user, and no row of any."""
        return replace(
            self,
            inputs=self.inputs[slice(0, 0)],
            labels=np.asarray(self.labels[slice(0, 0)]),
            offsets=np.zeros(1, np.int64),
            names=(),
            chosen=None,
            notes=(),
            contents=None,
            places=None,
            example_names=None,
        )

    def fingerprint(self) -> str:
        """SHA-256 of the data, to refuse a run that would go on with other records under the same noise.

        It covers every input, label and name of the whole, also of users who are in another part and of items, and
        which of them this view takes.

        Raises:
            InputError: the files of a store do not hold any more what was packed.
        """
        whole = self.whole_digest()
        view = [part for part in (self.chosen, self.class_map) if part is not None]
        facts = (whole, self.num_classes, self.chosen is None, self.class_map is None)
        if self.item_names is None:
            return digest_of(facts, *view)
        return digest_of((*facts, "items"), *view, *Strings.packed(self.item_names).arrays)

    def whole_digest(self) -> str:
        """SHA-256 of every input, label and name of the whole; errors as `fingerprint`."""
        if self.contents is not None:
            return self.contents()
        return digest_of("users", self.inputs, self.labels, self.offsets, *Strings.packed(self.names).arrays)

    def summary(self) -> list[str]:
        """Lines for people: the size of the data, users that form no pair, odd classes, and what was skipped."""
        single = int((self.sizes == 1).sum())
        lines = [repr(self)[len("UserDataset(") : -1]]
        if len(self) == 1:
            lines.append("only one user: no other user can hide this one's contribution")
        if single and len(self) > 1:
            lines.append(f"{single:,} of {len(self):,} users have a single example")
        if self.label_names is not None and not self.of_sequences and list(self.label_names) != list(self.names):
            lines += odd_values("the classes", self.label_names)
        return lines + list(self.notes)

    @property
    def _label_dtype(self) -> np.dtype:
        if self.of_attributes:
            return np.dtype(bool)
        return np.dtype(np.float32 if self.of_values else np.int64)

    def _label_blocks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """For blocks of users: first user, owner of each example in the block, label in this view (or −1)."""
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            base = np.arange(start, stop) if self.chosen is None else self.chosen[start:stop]
            first, last = np.asarray(self.offsets[base]), np.asarray(self.offsets[base + 1])
            counts = last - first
            owner = np.repeat(np.arange(stop - start), counts)
            ends = np.cumsum(counts)
            rows = np.arange(int(ends[-1])) + np.repeat(first - (ends - counts), counts)
            labels = np.asarray(self.labels[rows], dtype=np.int64)
            yield start, owner, labels if self.class_map is None else self.class_map[labels]


_MOST_CLASSES = 1 << 31  # a byte each is taken to look which are held


def from_arrays(
    inputs: Any,
    labels: Any,
    users: Any,
    label_names: Sequence[str] | None = None,
    label_groups: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> UserDataset:
    """A data set from three arrays of the same length, in any order.

    Refused: a row without a name (null, NaN, empty or blank) or with one that is no valid UTF-8. Counted in `notes`:
    names that differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing
    one. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        inputs: [n, …]. Images are uint8 [n, H, W, C] with C = 1 or 3, or uint8 [n, H, W], which gets C = 1.
            Anything else (float features, token ids) passes as it is. Rows that are sorted by user are not
            copied.
        labels: [n], integers ≥ 0, or strings, which are numbered in sorted order; or integers of the inputs' shape [n,
            length], the token behind each one, 0 for padding, with names for all of the vocabulary. Or finite floats
            [n], which are values and no classes; they are kept as float32. Or booleans [n, attributes], a row of
            which several may be true.
        users: [n], the user of each row, integers or strings. Users are numbered in sorted order; the rows of
            one user keep their order.
        label_names: a name for each class or attribute; without it there are max(labels) + 1 classes, found in the
            records (declare them by `with_classes`).
        label_groups: the group of each class.
        notes: lines that `summary` shows.

    Raises:
        InputError: no rows, lengths that differ, labels that are not integers ≥ 0 or exceed the names, values that
            are not finite, or inputs that are not numbers.
    """
    inputs, labels, users = checked_inputs(as_array(inputs, "inputs")), np.asarray(labels), np.asarray(users)
    tokens = labels.ndim == 2 and labels.shape == inputs.shape and labels.shape[1] > 1 and labels.dtype.kind not in "fb"
    attributes = labels.ndim == 2 and labels.dtype == bool and labels.shape[1] > 0
    fits = labels.ndim == 1 or tokens or attributes
    if not len(inputs) == len(labels) == len(users) or not fits or users.ndim != 1:
        shapes = f"inputs {inputs.shape}, labels {labels.shape}, users {users.shape}"
        columns = [name for name, each in (("labels", labels), ("users", users)) if each.shape == (len(inputs), 1)]
        remedy = "".join(f"; flatten {name}: {name}[:, 0]" for name in columns)
        raise InputError(f"inputs, labels and users must have one row an example, got {shapes}{remedy}")
    if len(inputs) == 0:
        raise InputError("the data has no users: inputs, labels and users are empty")
    domain = (COUNT,) if label_names is None else ()
    if labels.dtype.kind in "US":
        domain = (NAMES,) if label_names is None else ()
        found, labels = np.unique(as_text(labels, "labels"), return_inverse=True)
        label_names = label_names if label_names is not None else Strings.from_list(found.tolist())
    if labels.dtype.kind == "f":
        if label_names is not None or label_groups is not None:
            raise InputError(f"labels of {labels.dtype} are values, which have no names; cast classes to int64")
        labels, num_classes, domain = to_float32(labels, "labels"), 0, ()
    elif attributes:
        num_classes, domain = labels.shape[1], ()
        _refuse_other_counts(num_classes, label_names, label_groups)
    else:
        num_classes = _class_count(inputs, labels, label_names, label_groups, tokens=tokens)
        labels = labels.astype(np.int64)
    absent = np.array([each is None or each != each for each in users.tolist()]) if users.dtype.kind in "fO" else None
    if absent is not None and absent.any():
        raise missing_name("the user", f"position {int(absent.argmax())}")
    if users.dtype.kind not in "iuUS":
        raise InputError(f"users must be whole numbers or strings, got {users.dtype}")
    if users.dtype.kind in "US":
        users = as_text(users, "users")
        blank = np.char.strip(users) == ""
        if blank.any():
            raise missing_name("the user", f"position {int(blank.argmax())}")
    names, owner, counts = np.unique(users, return_inverse=True, return_counts=True)
    order = None
    if (np.diff(owner) < 0).any():
        order = np.argsort(owner, kind="stable")
        inputs, labels = inputs[order], labels[order]
    return UserDataset(
        inputs=inputs,
        labels=labels,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        names=Strings.from_list(map(str, names.tolist())),
        num_classes=num_classes,
        label_names=label_names,
        label_groups=label_groups,
        found=domain,
        notes=(*(name_notes(names.tolist()) if names.dtype.kind == "U" else ()), *notes),
        places=order,
    )


def _refuse_other_counts(
    attributes: int, label_names: Sequence[str] | None, label_groups: Sequence[str] | None
) -> None:
    """Names and groups are one an attribute."""
    for what, given in (("label_names", label_names), ("label_groups", label_groups)):
        if given is not None and len(given) != attributes:
            raise InputError(f"{what} must have one entry an attribute ({attributes}), got {len(given)}")


def _class_count(
    inputs: np.ndarray,
    labels: np.ndarray,
    label_names: Sequence[str] | None,
    label_groups: Sequence[str] | None,
    *,
    tokens: bool,
) -> int:
    """How many classes there are; raises InputError where labels are none, or names and groups do not fit."""
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels must be whole numbers >= 0 or strings, got {labels.dtype}; cast them to int64")
    if labels.min() < 0:
        raise InputError(f"labels must be >= 0, got {int(labels.min())}; number the classes from 0")
    num_classes = int(labels.max()) + 1
    if num_classes > _MOST_CLASSES:
        raise InputError(f"labels must be below {_MOST_CLASSES:,}, got {num_classes - 1:,}; number the classes from 0")
    if tokens and (label_names is None or inputs.dtype.kind not in "iu" or int(inputs.max()) >= len(label_names)):
        raise InputError(
            "labels of every token need inputs that are ids and label_names, a name for each id of the public "
            f"vocabulary; got inputs {inputs.dtype}, {0 if label_names is None else len(label_names)} names"
        )
    if label_names is not None:
        if num_classes > len(label_names):
            raise InputError(f"label {num_classes - 1} has no name: label_names has {len(label_names)} entries")
        num_classes = len(label_names)
    if label_groups is not None and len(label_groups) != num_classes:
        raise InputError(f"label_groups must have one entry a class ({num_classes}), got {len(label_groups)}")
    return num_classes
