"""Tables of embeddings that train row by row: no step, and no copy of the model, is as long as the table.

A trained copy of a model has a `RowEmbedding` for each of its `nn.Embedding` layers. Rows are read as a forward pass
meets their ids; the clipped sum of a step holds the rows that its batch read (`RowSum`). The gradient of an example is
clipped as one vector, with its rows in it. The model that is released has ordinary layers again.

With deferred noise (`OwedTables`) rows are read with the noise that they are owed by then, and all rows catch up at the
end. Unit, sensitivity and cost are those of noise on every row in every step. With noisy counts (`CountedTables`) a
step changes the rows above a threshold, see `training.table_training`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato._lazy import scipy
from sfumato.clipping import ClippedSum, RowCounts, RowSum
from sfumato.mechanisms import Gaussian, Mechanism, Tree
from sfumato.mechanisms.deferred import History, RowState
from sfumato.mechanisms.deferred_tree import TreeHistory
from sfumato.models.row_embedding import PLACEHOLDERS, Reader, Table, by_rows, ordinary
from sfumato.models.trainable import trainable_parameters
from sfumato.training.server import RowSteps
from sfumato.training.table_training import DenseTables, SelectedTables, TableTraining

if TYPE_CHECKING:
    from sfumato._random import RandomSource, Stream

_WEIGHT = ".weight"


def embeddings_in(model: nn.Module, spec: str) -> dict[str, Table]:
    """The tables of a model that are trained, by the name of their layer.

    Raises:
        InputError: there is none, or one shares its weight with another layer, limits the norm of its rows, has hooks,
            or holds other numbers than rows are kept as.
    """
    chosen = {id(parameter) for _, parameter in trainable_parameters(model, spec)}
    layers = dict(model.named_modules())
    found = {
        name: layer
        for name, layer in layers.items()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag)
        and type(layer).forward in (nn.Embedding.forward, nn.EmbeddingBag.forward)
        and id(layer.weight) in chosen
    }
    if not found:
        raise InputError(
            "tables row by row are trained nn.Embedding or nn.EmbeddingBag layers, and the model has none; use "
            "tables=dense"
        )
    if len(found) == len(chosen):
        raise InputError("the model needs a trained layer besides its tables; add one, or use tables=dense")
    for name, layer in found.items():
        holders = [one for one, part in layers.items() for each in part._parameters.values() if each is layer.weight]
        # and other names of the layer itself, which would go on with the first weights
        holders += [
            f"{one}.{last}" for one, part in layers.items() for last, each in part._modules.items() if each is layer
        ]
        others = [one.removeprefix(".") for one in holders if one.removeprefix(".") != name]
        if others:
            raise InputError(
                f"the table {name} shares its weight with {others[0]}, and all of a shared weight changes in a step; "
                "use tables=dense"
            )
        if layer.max_norm is not None or layer.scale_grad_by_freq:
            setting = "max_norm" if layer.max_norm is not None else "scale_grad_by_freq"
            raise InputError(f"the table {name} has {setting}, which steps row by row do not know; use tables=dense")
        hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
        if any(hooks) or "forward" in vars(layer) or len(layer.state_dict()) > 1:
            raise InputError(
                f"the table {name} has hooks, a forward of its own or parts besides its weight, which rows do not go "
                "through; move them to the layer around it"
            )
        if layer.weight.dtype not in (torch.float32, torch.float64):
            kind = str(layer.weight.dtype).removeprefix("torch.")
            raise InputError(f"the table {name} is {kind}; train it in float32 (model.float())")
    return found


def tables_of(model: nn.Module, spec: str, how: TableTraining) -> Tables:
    """The tables of a model that train row by row; errors as of `embeddings_in`."""
    if isinstance(how, DenseTables):
        return Tables({})
    layers = embeddings_in(model, spec)
    if isinstance(how, SelectedTables):
        return CountedTables(layers, how)
    return OwedTables(layers, in_place=how.in_place)


class Tables:
    """The tables of a model that trains; without layers, none.

    Args:
        layers: those of the user's module, by name.
        in_place: train in their weights, and not in a copy.

    Attributes:
        owing: whether rows lack noise between steps, so that it matters when they are read.
        source: the run's randomness, of the present round.
    """

    owing: ClassVar[bool] = False
    noises: ClassVar[str] = "noise that is independent from step to step"

    def __init__(self, layers: Mapping[str, Table], *, in_place: bool = False) -> None:
        self._in_place = in_place
        self._weights = {name: _numbers(name, layer.weight, in_place) for name, layer in layers.items()}
        self._first = {name: each[:PLACEHOLDERS].copy() for name, each in self._weights.items()}
        self._readers = {name: Reader(partial(self._looked_up, name), partial(self._released, name)) for name in layers}
        self._steps: RowSteps | None = None
        self.source: RandomSource | None = None

    def __bool__(self) -> bool:
        return bool(self._weights)

    @property
    def names(self) -> list[str]:
        """Of the weights, as the model names them."""
        return [name + _WEIGHT for name in self._weights]

    @property
    def rows(self) -> int:
        """Of all tables together."""
        return sum(map(len, self._weights.values()))

    def shapes(self) -> str:
        """Names and shapes, to distinguish one model from another."""
        return f"{[(name, each.shape) for name, each in self._weights.items()]}" if self else ""

    def sums(self) -> dict[str, RowSum]:
        """An empty sum for each table, by the name of its weight."""
        return {name + _WEIGHT: RowSum(each.shape[1]) for name, each in self._weights.items()}

    def counts(self) -> RowCounts | None:
        """Where a step counts how many examples read each row: nothing yet."""
        return None

    def placeholders(self, model: nn.Module) -> list[nn.Parameter]:
        """The parameters of a trained copy that stand for the tables."""
        return [model.get_parameter(name) for name in self.names]

    def put_into(self, model: nn.Module, *, final: bool = False) -> None:
        """Exchange the tables of a copy of the user's module, in place.

        Args:
            model: the copy; its weights of tables are those of the user's module, and stay unchanged.
            final: put ordinary layers in, with all rows as they are released, instead of ones that read rows.
        """
        for name, reader in self._readers.items():
            parent, _, last = name.rpartition(".")
            layer = model.get_submodule(name)
            assert isinstance(layer, nn.Embedding | nn.EmbeddingBag)
            if final:
                with self.as_released():
                    fresh: nn.Module = ordinary(layer, self._released(name))
            else:
                fresh = by_rows(layer, reader, torch.from_numpy(self._first[name]).to(layer.weight.device))
            fresh.train(layer.training)
            setattr(model.get_submodule(parent), last, fresh)

    def live(self, on: bool = True) -> None:
        """Read rows from now on, or their placeholders only."""
        for reader in self._readers.values():
            reader.live = on

    @contextmanager
    def tried_out(self) -> Iterator[None]:
        """A context in which a model is tried out: no row is read."""
        before = {name: reader.live for name, reader in self._readers.items()}
        self.live(False)
        try:
            yield
        finally:
            for name, reader in self._readers.items():
                reader.live = before[name]

    @contextmanager
    def as_released(self) -> Iterator[None]:
        """A context in which rows are read as they would be released."""
        yield

    def start(self, steps: RowSteps, mechanism: Mechanism) -> None:
        """Begin the steps of a run, before anything is read in one.

        Raises:
            InputError: the optimiser or the noise is of no use for rows.
        """
        self._steps = steps
        if self and not self.takes(mechanism):
            raise InputError(
                f"tables row by row need {self.noises}, got {mechanism.describe()}; use noise=gaussian, or tables=dense"
            )

    def takes(self, mechanism: Mechanism) -> bool:
        """Whether rows can have this noise."""
        return isinstance(mechanism, Gaussian)

    def step(self, share: ClippedSum, *, round: int, denominator: float, noise_std: float, selection: float) -> bool:
        """Take a step in rows.

        Args:
            share: holds the sums of clipped gradients, and counts.
            round: from 0.
            denominator: public, what sums are divided by.
            noise_std: of a number of the sum.
            selection: noise multiplier of the counts.

        Returns:
            whether all numbers are finite.
        """
        return True

    @contextmanager
    def erased_on_error(self) -> Iterator[None]:
        """A context after whose failure the user's own tables do not show which rows were read."""
        yield

    def flush(self) -> None:
        """Give all rows the noise that they are owed.

        Before the model is measured, too: which rows that reads would otherwise decide how later noise is drawn, and a
        run that goes on with other data to measure on would draw other noise for the same sums.
        """

    def first(self) -> dict[str, Tensor]:
        """The weights before the first step, by layer; after it, as they are."""
        return {name: torch.from_numpy(each) for name, each in self._weights.items()}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; private, as it shows which rows were read."""
        return {f"{name}/weight": torch.from_numpy(each) for name, each in self._weights.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint.

        Raises:
            InputError: it is of tables of another size.
        """
        for name, weight in self._weights.items():
            weight[...] = tensors[f"{name}/weight"].numpy()

    def _looked_up(self, name: str, ids: Tensor) -> Tensor:
        """Rows of a table as they are now."""
        return torch.from_numpy(self._weights[name][ids.cpu().numpy()])

    def _released(self, name: str) -> Tensor:
        """A table as it is released."""
        return torch.from_numpy(self._weights[name])

    def _source(self) -> RandomSource:
        assert self.source is not None, "rows are read before the run's randomness is known"
        return self.source


class OwedTables(Tables):
    """With deferred noise."""

    owing: ClassVar[bool] = True
    noises: ClassVar[str] = (
        "noise that is independent from step to step, or that of one tree with the plain estimator (noise=tree, "
        "noise.estimator=plain)"
    )

    def __init__(self, layers: Mapping[str, Table], *, in_place: bool = False) -> None:
        super().__init__(layers, in_place=in_place)
        self._rows: dict[str, RowState] = {}
        self._history = History()
        self._averaged = False

    def start(self, steps: RowSteps, mechanism: Mechanism) -> None:
        """With what the optimiser keeps of each row.

        Raises:
            InputError: the optimiser is not linear in the gradients, too, or what is released is not what trains.
        """
        super().start(steps, mechanism)
        if self._in_place and steps.average is not None:
            raise InputError(
                "ema_decay releases a moving average, which is a second table, and tables.in_place trains in the one "
                "that is given; leave out one of the two"
            )
        if steps.adam is not None:
            raise InputError(
                f"deferred noise needs plain SGD, with or without momentum, got {steps.optimizer}; use server=sgd, or "
                "tables=adafest, or tables=dense"
            )
        optimiser: dict[str, Any] = {
            "momentum": steps.momentum,
            "nesterov": steps.nesterov,
            "weight_decay": steps.weight_decay,
            "averaged": steps.average is not None,
        }
        is_tree = isinstance(mechanism, Tree)
        self._history = TreeHistory(mechanism, **optimiser) if is_tree else History(**optimiser)
        self._rows = {name: RowState(name, weight, self._history) for name, weight in self._weights.items()}

    def takes(self, mechanism: Mechanism) -> bool:
        """Also the noise of one tree, of which a row needs few nodes."""
        if isinstance(mechanism, Tree):
            return mechanism.estimator == "plain" and mechanism.restart is None
        return super().takes(mechanism)

    def step(self, share: ClippedSum, *, round: int, denominator: float, noise_std: float, selection: float) -> bool:
        """In the rows that the batch read; its noise is owed to all rows from then on."""
        assert self._steps is not None
        rate, average = self._steps.at(round)
        self._history.append(rate=rate, noise_std=noise_std / denominator, average=average)
        finite = True
        for state, total in zip(self._rows.values(), share.tables.values(), strict=True):
            rows, values = total.gathered()
            finite &= state.step(rows.numpy(), values.numpy() / denominator, round)
        return finite

    @contextmanager
    def as_released(self) -> Iterator[None]:
        """With the moving average, where there is one."""
        self._averaged = self._steps is not None and self._steps.average is not None
        try:
            yield
        finally:
            self._averaged = False

    @contextmanager
    def erased_on_error(self) -> Iterator[None]:
        """All rows with their noise would not do: a run that is resumed draws it at other readings."""
        try:
            yield
        except BaseException:
            for weight in self._weights.values() if self._in_place and self._history.steps else ():
                weight.fill(np.nan)
            raise

    def flush(self) -> None:
        """Of every row."""
        for state in self._rows.values() if self._history.steps else ():
            state.flush(self.source)

    def state(self) -> dict[str, Tensor]:
        """With the step in which each row was last read, and the settings of all steps."""
        found = {f"{name}/{key}": each for name, state in self._rows.items() for key, each in state.state().items()}
        found["steps"] = self._history.settings()
        return {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in found.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """With the steps so far."""
        self._history.load(tensors["steps"].numpy())
        for name, state in self._rows.items():
            mine = {key: each.numpy() for key, each in tensors.items() if key.startswith(f"{name}/")}
            state.load({key.removeprefix(f"{name}/"): each for key, each in mine.items()})

    def _looked_up(self, name: str, ids: Tensor) -> Tensor:
        if not self._history.steps:
            return super()._looked_up(name, ids)
        rows = ids.cpu().numpy()
        return torch.from_numpy(self._rows[name].read(rows, self.source, averaged=self._averaged))

    def _released(self, name: str) -> Tensor:
        if not self._history.steps:
            return super()._released(name)
        self._rows[name].flush(self.source)
        return torch.from_numpy(self._rows[name].whole(averaged=self._averaged))


class CountedTables(Tables):
    """With noisy counts that select rows (DP-AdaFEST).

    Which rows are selected, and their noisy gradients, are released: what Adam keeps of these rows is post-processing.
    Its moments move in the steps that select a row, as those of torch's SparseAdam do.

    Args:
        layers: as for `Tables`.
        how: the plan's settings.
    """

    def __init__(self, layers: Mapping[str, Table], how: SelectedTables) -> None:
        super().__init__(layers, in_place=how.in_place)
        self._how = how
        self._moments: dict[str, np.ndarray] = {}

    def start(self, steps: RowSteps, mechanism: Mechanism) -> None:
        """With plain SGD or Adam: momentum and averages move rows that no step selects."""
        super().start(steps, mechanism)
        if steps.momentum or steps.weight_decay or steps.average is not None:
            raise InputError(
                "tables=adafest changes selected rows only, so it needs SGD without momentum, weight_decay and "
                "ema_decay, or Adam without the last two; leave these out, or use tables=deferred"
            )
        self._how.threshold(self._how.multipliers(mechanism.multiplier)[0], rows=self.rows)  # refuses too many
        if steps.adam is not None:  # no memory is taken before a row is written to
            self._moments = {
                f"{name}/{moment}": np.zeros_like(weight)
                for name, weight in self._weights.items()
                for moment in ("first", "second")
            }

    def counts(self) -> RowCounts | None:
        """Of the rows that the examples of a step read."""
        return RowCounts(self._how.count_norm, self.names)

    def step(self, share: ClippedSum, *, round: int, denominator: float, noise_std: float, selection: float) -> bool:
        """In the rows whose noisy count is above the threshold."""
        assert self._steps is not None
        assert share.counts is not None
        threshold = self._how.threshold(selection, rows=self.rows)
        finite = True
        for (name, weight), total, counted in zip(
            self._weights.items(), share.tables.values(), share.counts.sums.values(), strict=True
        ):
            survivors = self._survivors(name, len(weight), counted, round, selection * self._how.count_norm, threshold)
            rows, values = (each.numpy() for each in total.gathered())
            gradient = np.zeros((len(survivors), weight.shape[1]))
            found = np.isin(survivors, rows, assume_unique=True)
            gradient[found] = values[np.searchsorted(rows, survivors[found])]
            if noise_std:
                stream = self._source().stream("row noise", name, round)
                gradient += noise_std * stream.normals_of(survivors, weight.shape[1])
            moved = weight[survivors] - self._change(name, survivors, gradient, round, denominator)
            weight[survivors] = moved
            finite &= bool(np.isfinite(moved).all())
        return finite

    def state(self) -> dict[str, Tensor]:
        """With the moments of Adam."""
        return {**super().state(), **{name: torch.from_numpy(each) for name, each in self._moments.items()}}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """With the moments of Adam."""
        super().load(tensors)
        for name, each in self._moments.items():
            each[...] = tensors[name].numpy()

    def _change(self, name: str, rows: np.ndarray, gradient: np.ndarray, round: int, denominator: float) -> np.ndarray:
        """What is taken from selected rows, float64 [n, d], for the noisy sum of their gradients."""
        assert self._steps is not None
        rate, _ = self._steps.at(round)
        if self._steps.adam is None:
            return rate * gradient / denominator
        one, two, least = self._steps.adam
        mean = gradient / denominator
        first, second = self._moments[f"{name}/first"], self._moments[f"{name}/second"]
        first[rows] += (1 - one) * (mean - first[rows])
        second[rows] += (1 - two) * (mean**2 - second[rows])
        rate *= math.sqrt(1 - two ** (round + 1)) / (1 - one ** (round + 1))
        return rate * first[rows] / (np.sqrt(second[rows]) + least)

    def _survivors(self, name: str, size: int, counted: RowSum, round: int, std: float, threshold: float) -> np.ndarray:
        """Rows above the threshold in rising order, int64 [n]: of those that were read, and of others by noise alone.

        Each row that was not read is above it independently with one probability. So the distance from one such row to
        the next is geometric, and no other row is looked at.
        """
        rows, values = (each.numpy() for each in counted.gathered())
        counts = values[:, 0]
        if not std:
            return rows[counts > threshold]
        source = self._source()
        noise = source.stream("row count noise", name, round).normals_of(rows, 1)[:, 0]
        read = rows[counts + std * noise > threshold]
        alone = above(size, float(scipy.special.ndtr(-threshold / std)), source.stream("false survivors", name, round))
        return np.union1d(read, np.setdiff1d(alone, rows, assume_unique=True))


def _numbers(name: str, weight: Tensor, in_place: bool) -> np.ndarray:
    """The rows of a table in the processor's memory: its own, or a copy.

    Raises:
        InputError: its own cannot be written to there.
    """
    found = weight.detach().cpu().numpy()
    if not in_place:
        return found.copy()
    if weight.device.type != "cpu" or not found.flags.c_contiguous or not found.flags.writeable:
        raise InputError(
            f"the table {name} cannot be trained in place: it must lie in the processor's memory, row after row, and "
            "be open for writing; move it there, or leave out tables.in_place"
        )
    return found


def above(size: int, share: float, stream: Stream) -> np.ndarray:
    """Which of the places 0 … size − 1 are chosen, each independently with this probability; int64 [n], rising.

    >>> from sfumato._random import RandomSource
    >>> above(1_000_000_000, 3e-9, RandomSource.from_seed(0).stream("false survivors")).shape
    (2,)
    """
    if share <= 0:
        return np.zeros(0, np.int64)
    found, at = [], -1
    while at < size:
        skips = np.floor(np.log(stream.uniform(max(16, int(1.1 * share * (size - at))))) / np.log1p(-share)) + 1
        places = at + np.cumsum(np.minimum(skips, size + 1.0)).astype(np.int64)
        found.append(places[places < size])
        at = int(places[-1])
    return np.concatenate(found)
