"""Tables of embeddings that train row by row: no step, and no copy of the model, is as long as the table.

A trained copy of a model has a `RowEmbedding` for each of its `nn.Embedding` layers. Rows are read as a forward pass
meets their ids; the clipped sum of a step holds the rows that its batch read (`RowSum`). The gradient of an example is
clipped as one vector, with its rows in it. The model that is released has ordinary layers again.

With deferred noise (`OwedTables`) rows are read with the noise that they are owed by then, and all rows catch up at the
end. Unit, sensitivity and cost are those of noise on every row in every step. With noisy counts (`CountedTables`) a
step changes the rows above a threshold, see `training.table_training`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato._lazy import scipy
from sfumato.clipping import ClippedSum, RowCounts, RowSum
from sfumato.mechanisms import Gaussian, Mechanism
from sfumato.mechanisms.deferred import History, RowState
from sfumato.models.row_embedding import Reader, RowEmbedding
from sfumato.models.trainable import trainable_parameters
from sfumato.training.server import RowSteps
from sfumato.training.table_training import DenseTables, SelectedTables, TableTraining

if TYPE_CHECKING:
    from sfumato._random import RandomSource, Stream

_WEIGHT = ".weight"


def embeddings_in(model: nn.Module, spec: str) -> dict[str, nn.Embedding]:
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
        if isinstance(layer, nn.Embedding)
        and type(layer).forward is nn.Embedding.forward
        and id(layer.weight) in chosen
    }
    if not found:
        raise InputError("tables row by row are trained nn.Embedding layers, and the model has none; use tables=dense")
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
    return CountedTables(layers, how) if isinstance(how, SelectedTables) else OwedTables(layers)


class Tables:
    """The tables of a model that trains; without layers, none.

    Args:
        layers: those of the user's module, by name; their weights are copied.

    Attributes:
        owing: whether rows lack noise between steps, so that it matters when they are read.
        source: the run's randomness, of the present round.
    """

    owing: ClassVar[bool] = False

    def __init__(self, layers: Mapping[str, nn.Embedding]) -> None:
        self._weights = {name: layer.weight.detach().cpu().numpy().copy() for name, layer in layers.items()}
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
            assert isinstance(layer, nn.Embedding)
            fresh: nn.Embedding = RowEmbedding(layer, reader).to(layer.weight.device)
            if final:
                with self.as_released():
                    weight = self._released(name)
                fresh = nn.Embedding(*weight.shape, padding_idx=layer.padding_idx, _weight=weight)
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
        if self and not isinstance(mechanism, Gaussian):
            raise InputError(
                f"tables row by row need noise that is independent from step to step, got {mechanism.describe()}; use "
                "noise=gaussian, or tables=dense"
            )

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

    def __init__(self, layers: Mapping[str, nn.Embedding]) -> None:
        super().__init__(layers)
        self._rows: dict[str, RowState] = {}
        self._history = History()
        self._averaged = False

    def start(self, steps: RowSteps, mechanism: Mechanism) -> None:
        """With what the optimiser keeps of each row."""
        super().start(steps, mechanism)
        self._history = History(
            momentum=steps.momentum,
            nesterov=steps.nesterov,
            weight_decay=steps.weight_decay,
            averaged=steps.average is not None,
        )
        self._rows = {name: RowState(name, weight, self._history) for name, weight in self._weights.items()}

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

    Args:
        layers: as for `Tables`.
        how: the plan's settings.
    """

    def __init__(self, layers: Mapping[str, nn.Embedding], how: SelectedTables) -> None:
        super().__init__(layers)
        self._how = how

    def start(self, steps: RowSteps, mechanism: Mechanism) -> None:
        """With plain SGD: momentum and averages move rows that no step selects."""
        super().start(steps, mechanism)
        if steps.momentum or steps.weight_decay or steps.average is not None:
            raise InputError(
                "tables=adafest changes selected rows only, so it needs SGD without momentum, weight_decay and "
                "ema_decay; leave these out, or use tables=deferred"
            )
        self._how.threshold(self._how.multipliers(mechanism.multiplier)[0], rows=self.rows)  # refuses too many

    def counts(self) -> RowCounts | None:
        """Of the rows that the examples of a step read."""
        return RowCounts(self._how.count_norm, self.names)

    def step(self, share: ClippedSum, *, round: int, denominator: float, noise_std: float, selection: float) -> bool:
        """In the rows whose noisy count is above the threshold."""
        assert self._steps is not None
        assert share.counts is not None
        rate, _ = self._steps.at(round)
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
            moved = weight[survivors] - rate * gradient / denominator
            weight[survivors] = moved
            finite &= bool(np.isfinite(moved).all())
        return finite

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
