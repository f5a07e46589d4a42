"""Any map-style data set of torch, read by place, where it is needed or ahead of time by other processes."""

import hashlib
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from sfumato._check import InputError, first_line
from sfumato._random import RandomSource
from sfumato.central.examples import evenly
from sfumato.central.gradients import reading_key
from sfumato.central.tasks import value_digest
from sfumato.guard import Coupled, try_out
from sfumato.guard.guard import at, histories
from sfumato.guard.trial import Tolerance

# Any map-style data set of torch, read by place.
#
# An example is what the data set gives for a place; the user's collate function puts some of them together. Where
# reading an example draws random numbers (an augmentation), the draws are seeded by the step and the place, so that a
# step that is repeated meets the same ones; the generators are left as they were.


Collate = Callable[[list[Any]], Any]
"""From a list of examples to a batch of any kind."""


_TRIED = 24  # examples that are read twice
_ORDERED = 6  # pairs of neighbours that are read in two orders
_MIX = 0x9E3779B97F4A7C15


class MapRows:
    """Examples of a map-style data set.

    Args:
        dataset: has a length, and an example for each place from 0.
        collate: puts examples together; None for torch's own.

    Attributes:
        draws: whether reading an example draws random numbers.

    Raises:
        InputError: no map-style data set, one without examples, or one that gives something else each time.
    """

    def __init__(self, dataset: Any, collate: Collate | None = None) -> None:
        _refuse_kind(dataset)
        if collate is not None and not callable(collate):
            raise InputError(
                f"collate must be a function from a list of examples to a batch, got {type(collate).__name__}"
            )
        self._dataset = dataset
        self._collate: Collate = collate or default_collate
        self._count = len(dataset)
        if self._count < 1:
            raise InputError("the data set has no examples; give one that has")
        self.draws = False
        self._at_once = hasattr(dataset, "__getitems__")
        self._look()

    def __len__(self) -> int:
        """How many there are; refuses a data set that has grown or shrunk."""
        if len(self._dataset) != self._count:
            raise InputError(
                f"the data set had {self._count:,} examples when the run was opened, got {len(self._dataset):,}; "
                "do not change it during a run"
            )
        return self._count

    def samples(self, places: Sequence[int], key: int) -> list[Any]:
        """Examples by place, in this order.

        Args:
            places: each in 0 … len − 1; one may come twice.
            key: of the step, 64 bits; decides what is drawn while they are read.

        Raises:
            InputError: the data set raises one, or has another length by now.
        """
        _ = len(self)
        try:
            if not self.draws:
                if self._at_once:
                    return list(self._dataset.__getitems__([int(place) for place in places]))
                return [self._dataset[int(place)] for place in places]
            with (
                _disable_current_modes(),
                _generators_restored(),
            ):  # a check may look at draws: these are not the model's
                found = []
                for place in places:
                    _seed((key + (int(place) + 1) * _MIX) % (1 << 64))
                    found.append(self._dataset[int(place)])
                return found
        except (IndexError, KeyError) as error:
            raise InputError(
                f"the data set of {self._count:,} examples has none at places {list(places)[:3]} … "
                f"({type(error).__name__}: {first_line(error)}); it needs one for each place below its length"
            ) from None

    def batch(self, places: Sequence[int], key: int) -> Any:
        """Examples put together.

        Raises:
            InputError: they cannot be.
        """
        samples = self.samples(places, key)
        with _generators_restored():  # a collate function may draw, here or in another process
            _seed((key + (int(places[0]) + 1) * _MIX + 1) % (1 << 64) if len(places) else key)
            return self.collated(samples)

    def collated(self, samples: list[Any]) -> Any:
        """Examples put together.

        Raises:
            InputError: they cannot be.
        """
        try:
            return self._collate(samples)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"{len(samples)} examples cannot be put together ({first_line(error)}); give a collate function that "
                "can, one that pads them for example"
            ) from error

    def digest(self) -> str:
        """SHA-256 of all examples, in order: one pass over the data."""
        whole = hashlib.sha256(str(self._count).encode())
        for place in range(self._count):
            whole.update(_digest(self.samples([place], 0)[0]))
        return whole.hexdigest()

    def spread(self, most: int) -> np.ndarray:
        """At most so many places at equal distances, int64."""
        return evenly(self._count, most)

    def refuse_changed(self) -> None:
        """Refuse examples that are others by now than when the run was opened.

        Raises:
            Coupled: there are some: the data set was changed, or keeps something of what was read meanwhile.
        """
        now = None if self._before is None else histories([lambda: _Reads(self).outcomes(self._pairs())])
        if self._before is not None and now is not None and not torch.equal(now[0], self._before[0]):
            raise Coupled(
                "the data set gives other examples than when the run was opened; compute each example from "
                "itself alone, and leave transforms as they are"
            )

    def _pairs(self) -> list[int]:
        """Places at equal distances and the ones behind them, the last first."""
        some = self.spread(_ORDERED)
        return sorted({*some.tolist(), *(int(place) for place in some + 1 if place < self._count)}, reverse=True)

    def _look(self) -> None:
        """Whether reading draws, and whether an example is the same whenever it is read."""
        pairs = self._pairs()
        places = sorted({*self.spread(_TRIED).tolist(), *pairs})
        findings = try_out(_Reads(self), pairs, at_once=False)  # first: it looks for files that reading leaves behind
        self._before = histories([lambda: _Reads(self).outcomes(pairs)])
        with _generators_restored():
            _seed(1)
            before = _state()
            first = [_digest(sample) for sample in self.samples(places, 0)]
            self.draws = _state() != before
        again = [_digest(sample) for sample in self.samples(places, 0)]
        if self.draws:
            first = [_digest(sample) for sample in self.samples(places, 0)]
        for place, one, other in zip(places, first, again, strict=True):
            if one != other:
                raise InputError(
                    f"example {place} of the data set changes when it is read again; compute it from its own record, "
                    "and draw from torch, numpy.random or random"
                )
        findings.refuse()


class _Reads:
    """The guard's `Subject` of a data set: what it gives for a place."""

    state_message = (
        "what the data set gives for an example depends on which examples were read before; compute it from that "
        "example alone, or from public data"
    )
    tolerance: Tolerance | None = None

    def __init__(self, rows: MapRows) -> None:
        self._rows = rows

    def placeholders(self) -> None:
        """A data set has no placeholders."""
        raise TypeError("a data set is read by place")

    def outcomes(self, units: Sequence[int]) -> torch.Tensor:
        """Digests of examples, float64 [n, 32]; what reading draws is the same for an example whenever it is read."""
        rows, found = self._rows, []
        draws, rows.draws = rows.draws, True
        try:
            for place in units:
                at(place)
                found.append([*_digest(rows.samples([place], 0)[0])])
        finally:
            at(None)
            rows.draws = draws
        return torch.tensor(found, dtype=torch.float64)


def _refuse_kind(dataset: Any) -> None:
    if isinstance(dataset, DataLoader):
        raise InputError(
            "got a DataLoader; give its data set (loader.dataset) and collate=loader.collate_fn: the run draws the "
            "batches itself, since the guarantee counts on how they are drawn"
        )
    if (isinstance(dataset, Mapping) and 0 not in dataset) or hasattr(dataset, "iloc"):
        raise InputError(
            f"a {type(dataset).__name__} gives columns by name and no examples by place; give a torch Dataset, or a "
            "list of examples (frame.to_dict('records') of a DataFrame)"
        )
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise InputError(
            f"{type(dataset).__name__} has no length or no random access; give a map-style data set, as examples are "
            "drawn at random"
        )


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # the processor's; no device reads examples
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002


def _state() -> tuple[bytes, Any, Any]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), (kind, np.asarray(keys).tobytes(), *rest)


@contextmanager
def _generators_restored() -> Iterator[None]:
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def _digest(sample: Any) -> bytes:
    """SHA-256 of an example of any kind."""
    leaves, structure = tree_flatten(sample)
    whole = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        whole.update(value_digest(leaf) or pickle.dumps(leaf))
    return whole.digest()


# Batches, read where they are needed, or ahead of time by other processes.
#
# Who takes part in a step follows from the run's key and the step alone, so the batches of the coming steps are known
# and can be read while the model works on this one.


Cohorts = Callable[[int, RandomSource], np.ndarray]
"""From a step and the run's randomness to the places of its examples."""


class Feed:
    """Batches of the steps, in their order.

    Args:
        rows: the examples.
        workers: processes that read ahead; 0 reads here.
        steps: of the whole run.
        cohorts: who takes part.
    """

    def __init__(self, rows: MapRows, workers: int, steps: int, cohorts: Cohorts) -> None:
        self._rows, self._workers, self._steps, self._cohorts = rows, workers, steps, cohorts
        self._coming: Iterator[Any] | None = None

    def begin(self, step: int, source: RandomSource, micro_batch: int) -> None:
        """Set where the run is; reading ahead starts again where it has lost its place."""
        if self._workers and self._coming is None:
            self._coming = iter(
                DataLoader(
                    _Keyed(self._rows),
                    batch_size=None,
                    sampler=self._planned(step, source, micro_batch),  # pyright: ignore[reportArgumentType]
                    num_workers=self._workers,
                    collate_fn=_same,
                )
            )

    def next(self, places: np.ndarray, key: int) -> Any:
        """The next micro-batch of the step: these examples.

        Raises:
            RuntimeError: a process that reads has died; torch raises it wherever the run is just then.
        """
        if self._coming is not None:
            read_key, read_places, batch = next(self._coming)
            if read_key == key and read_places == places.tolist():
                return batch
            self._coming = None  # the micro-batch has shrunk: the rest of this step is read here
        return self._rows.batch(places.tolist(), key)

    def close(self) -> None:
        """End the processes."""
        self._coming = None

    def _planned(self, step: int, source: RandomSource, micro_batch: int) -> Iterator[tuple[int, list[int]]]:
        for coming in range(step, self._steps):
            examples, key = self._cohorts(coming, source), reading_key(source, coming)
            for start in range(0, len(examples), micro_batch):
                yield key, examples[start : start + micro_batch].tolist()


class _Keyed(Dataset[Any]):
    """Batches by key and places, for processes that read."""

    def __init__(self, rows: MapRows) -> None:
        self._rows = rows

    def __getitem__(self, at: tuple[int, list[int]]) -> tuple[int, list[int], Any]:
        key, places = at
        return key, places, self._rows.batch(places, key)


def _same(value: Any) -> Any:
    return value
