"""Losses, collate functions, transforms and data sets that keep something of the first call or read."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, default_collate

from adversarial.first_call.memories import FOLDER, class_attribute, closure, default_argument, file, lru_cache
from adversarial.first_call.specimen import CENTRAL, LOOPS, VALUES, Code, Dense, Kept, Value, add, mean, shifted, table
from adversarial.specimens import CLASSES, Loss, each

# Losses.


def frequencies(labels: Tensor) -> Tensor:
    return F.one_hot(labels, CLASSES).float().mean(dim=0)


def declared(labels: Tensor) -> Tensor:
    return torch.tensor([0.8, 0.15, 0.05])


def adjusted(prior: Value, kept: Kept) -> Loss:
    """Logit adjustment."""

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        shares = kept(lambda: prior(labels)).to(scores.dtype)
        return each(scores + 3 * torch.log(shares + 1e-3), labels)

    return loss


class Adjusted:
    """The same as an object."""

    def __init__(self, prior: Value) -> None:
        self.prior, self.shares = prior, None

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        if self.shares is None:
            self.shares = self.prior(labels)
        return each(scores + 3 * torch.log(self.shares.to(scores.dtype) + 1e-3), labels)


class AdjustedModule(nn.Module):
    """The same as a module with a buffer."""

    def __init__(self, prior: Value) -> None:
        super().__init__()
        self.prior = prior
        self.register_buffer("shares", torch.zeros(CLASSES))

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        if not self.shares.any():
            self.shares.copy_(self.prior(labels))
        return each(scores + 3 * torch.log(self.shares.to(scores.dtype) + 1e-3), labels)


class AdjustedClass(Adjusted):
    """The same, kept in the class."""

    shares: Tensor | None = None

    def __init__(self, prior: Value) -> None:
        self.prior = prior
        type(self).shares = None

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        if type(self).shares is None:
            type(self).shares = self.prior(labels)
        return super().__call__(scores, labels)


def offset(kept: Kept) -> Loss:
    """Scores are counted from the mean of the first batch."""
    return lambda scores, labels: each(scores - 30 * kept(lambda: mean(scores)).to(scores.dtype), labels)


LOSSES: dict[str, Callable[[Value], Loss]] = {
    "closure": lambda prior: adjusted(prior, closure()),
    "class attribute": lambda prior: adjusted(prior, class_attribute()),
    "lru_cache": lambda prior: adjusted(prior, lru_cache()),
    "default argument": lambda prior: adjusted(prior, default_argument()),
    "callable object": Adjusted,
    "class of a callable object": AdjustedClass,
    "module": AdjustedModule,
}

for _memory, _made in LOSSES.items():
    for _of in (frequencies, declared):
        add(
            f"loss: {'class counts of the first batch' if _of is frequencies else 'declared shares'} in {_memory}",
            CENTRAL,
            lambda made=_made, of=_of: Code(model=Dense(), loss=made(of)),
            "the first call" if _of is frequencies else "nothing",
            expected="refused" if _of is frequencies else "harmless",
        )
add(
    "loss: mean of the first batch's scores",
    CENTRAL,
    lambda: Code(model=Dense(), loss=offset(closure())),
    "the first call",
)


# Collate, transforms and data sets.


def collate(value: Value, kept: Kept) -> Callable[[list[Any]], Any]:
    def together(samples: list[Any]) -> Any:
        inputs, labels = default_collate(samples)
        return shifted(inputs, kept(lambda: value(inputs))), labels

    return together


class Items(Dataset):
    """Inputs that go through a transform when they are read."""

    def __init__(self, inputs: Tensor, labels: Tensor, transform: Callable[[int, Tensor], Tensor]) -> None:
        self.inputs, self.labels, self.transform = inputs, labels, transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self.transform(place, self.inputs[place]), self.labels[place]


def items(transform: Callable[[], Callable[[int, Tensor], Tensor]]) -> Callable[[Tensor, Tensor], Any]:
    made = transform()
    return lambda inputs, labels: Items(inputs, labels, made)


def shifted_items(value: Value, new: Callable[[], Kept]) -> Callable[[Tensor, Tensor], Any]:
    """Records are shifted by what is kept of those that were read."""
    kept = new()
    return items(lambda: lambda place, item: shifted(item, kept(lambda: value(item))))


class SelfCaching(Dataset):
    """Normalises by the first record that is read; the state is in the data set, in itself or in its class."""

    first: Tensor | None = None

    def __init__(self, inputs: Tensor, labels: Tensor, value: Value, *, in_class: bool) -> None:
        self.inputs, self.labels, self.value = inputs, labels, value
        self.owner: Any = type(self) if in_class else self
        type(self).first = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        if self.owner.first is None:
            self.owner.first = self.value(self.inputs[place])
        return shifted(self.inputs[place], self.owner.first), self.labels[place]


class Several(SelfCaching):
    """The same for several records at once."""

    def __getitems__(self, places: list[int]) -> list[tuple[Tensor, Tensor]]:
        if self.first is None:
            self.first = self.inputs[places].mean(dim=0) if self.value is whole else self.value(self.inputs[places[0]])
        return [(shifted(self.inputs[place], self.first), self.labels[place]) for place in places]


def whole(item: Tensor) -> Tensor:
    """Of a record, all."""
    return item.detach().clone()


def calibrated(calls: int) -> Kept:
    """A running mean of the first calls, which stays as it is afterwards, as an observer of quantisation keeps it."""
    level: list[Tensor] = []
    count = [0]

    def kept(compute: Callable[[], Tensor]) -> Tensor:
        if count[0] < calls:
            count[0] += 1
            level[:] = [compute() if not level else level[0] + (compute() - level[0]) / count[0]]
        return level[0]

    return kept


def by_group(memo: dict[int, Tensor]) -> Callable[[int, Tensor], Tensor]:
    """Counted from the first record of its group that is read, as a patient's first picture."""
    return lambda place, item: item - memo.setdefault(place // 4, 0.5 * item)


def by_place(memo: dict[int, Tensor]) -> Callable[[int, Tensor], Tensor]:
    return lambda place, item: memo.setdefault(place, 2 * item)


def opened_late() -> Callable[[Tensor, Tensor], Any]:
    """Reads a file at the first read, as HDF5 data sets do."""
    path = Path(tempfile.mkdtemp(dir=FOLDER.name)) / "inputs.npy"
    held: list[np.ndarray] = []

    def read(place: int, item: Tensor) -> Tensor:
        if not held:
            held.append(np.load(path, mmap_mode="r"))
        return torch.from_numpy(held[0][place].copy())

    def dataset(inputs: Tensor, labels: Tensor) -> Dataset:
        np.save(path, inputs.numpy())
        return Items(inputs, labels, read)

    return dataset


for _memory, _new in {"closure": closure, "class attribute": class_attribute, "file": file}.items():
    for _value, _of in VALUES.items():
        add(
            f"collate: {_value} in {_memory}",
            LOOPS if _memory == "closure" else ("loop",),
            lambda new=_new, of=_of: Code(model=Dense(), collate=collate(of, new())),
            "the first call" if _of is mean else "nothing",
            expected="refused" if _of is mean else "harmless",
        )
    for _of in (whole, table):
        add(
            f"transform: {'the first record' if _of is whole else 'table of shapes'} in {_memory}",
            ("loop",),
            lambda new=_new, of=_of: Code(model=Dense(), dataset=shifted_items(of, new)),
            "the first read" if _of is whole else "nothing",
            expected="refused" if _of is whole else "harmless",
        )
for _of in (whole, table):
    for _name, _set in {
        "itself": functools.partial(SelfCaching, in_class=False),
        "its class": functools.partial(SelfCaching, in_class=True),
        "itself, several at once": functools.partial(Several, in_class=False),
    }.items():
        add(
            f"data set: {'the first record' if _of is whole else 'table of shapes'} in {_name}",
            LOOPS if _name == "itself" else ("loop",),
            lambda made=_set, of=_of: Code(model=Dense(), dataset=functools.partial(made, value=of)),
            "the first read" if _of is whole else "nothing",
            expected="refused" if _of is whole else "harmless",
        )
for _calls in (5, 20, 40, 400):
    for _of in (whole, table):
        add(
            f"transform: {'mean' if _of is whole else 'table of shapes'} of the first {_calls} reads",
            ("loop",),
            lambda calls=_calls, of=_of: Code(model=Dense(), dataset=shifted_items(of, lambda: calibrated(calls))),
            "the first reads" if _of is whole else "nothing",
            expected="refused" if _of is whole else "harmless",
        )
    add(
        f"collate: mean of the first {_calls} batches",
        ("loop",),
        lambda calls=_calls: Code(model=Dense(), collate=collate(mean, calibrated(calls))),
        "the first batches",
    )
add(
    "data set: the first record of each group",
    ("loop", "lightning"),
    lambda: Code(model=Dense(), dataset=items(lambda: by_group({}))),
    "the first read of its group",
)
add(
    "data set: each record is kept when it is read",
    ("loop",),
    lambda: Code(model=Dense(), dataset=items(lambda: by_place({}))),
    "nothing",
    expected="harmless",
)
add(
    "data set: a file is opened at the first read",
    ("loop",),
    lambda: Code(model=Dense(), dataset=opened_late()),
    "nothing",
    expected="harmless",
)
