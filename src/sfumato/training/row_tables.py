"""Tables of embeddings that train row by row: no step, and no copy of the model, is as long as the table.

A trained copy of a model has a `RowEmbedding` for each of its `nn.Embedding` layers. Rows are read as a forward pass
meets their ids, with the noise that they are owed by then (`sfumato.mechanisms.deferred`); the clipped sum of a step
holds the rows that its batch read (`RowSum`); the step changes these. At the end of the run all rows catch up, and the
model that is released has ordinary layers again.

The gradient of an example is clipped as one vector, with its rows in it, so unit, sensitivity and cost are those of
DP-SGD with noise on every row in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.clipping import RowSum
from sfumato.mechanisms.deferred import History, RowState
from sfumato.models.row_embedding import Reader, RowEmbedding
from sfumato.models.trainable import trainable_parameters
from sfumato.training.server import RowSteps

if TYPE_CHECKING:
    from sfumato._random import RandomSource

_WEIGHT = ".weight"


def embeddings_in(model: nn.Module, spec: str) -> dict[str, nn.Embedding]:
    """The tables of a model that are trained, by the name of their layer.

    Raises:
        InputError: there is none, or one shares its weight with another layer, or limits the norm of its rows.
    """
    chosen = {id(parameter) for _, parameter in trainable_parameters(model, spec)}
    layers = dict(model.named_modules(remove_duplicate=True))
    found = {
        name: layer
        for name, layer in layers.items()
        if isinstance(layer, nn.Embedding)
        and type(layer).forward is nn.Embedding.forward
        and id(layer.weight) in chosen
    }
    if not found:
        raise InputError("tables=deferred needs trained nn.Embedding layers, and the model has none; leave it out")
    if len(found) == len(chosen):
        raise InputError("tables=deferred needs a trained layer besides the tables; use tables=dense")
    for name, layer in found.items():
        holders = [one for one, part in layers.items() for each in part._parameters.values() if each is layer.weight]
        if len(holders) > 1:
            raise InputError(
                f"the table {name} shares its weight with {next(one for one in holders if one != name)}, and all of a "
                "shared weight changes in a step; use tables=dense"
            )
        if layer.max_norm is not None or layer.scale_grad_by_freq:
            setting = "max_norm" if layer.max_norm is not None else "scale_grad_by_freq"
            raise InputError(f"the table {name} has {setting}, which deferred noise does not know; build it without")
    return found


class Tables:
    """The tables of a model that trains.

    Args:
        layers: those of the user's module, by name; their weights are copied.
    """

    def __init__(self, layers: Mapping[str, nn.Embedding]) -> None:
        self._first = {name: layer.weight.detach().cpu().numpy().copy() for name, layer in layers.items()}
        self._readers = {name: Reader(self._reading(name), partial(self._whole, name)) for name in layers}
        self._rows: dict[str, RowState] = {}
        self._history: History | None = None
        self._steps: RowSteps | None = None
        self._averaged = False
        self.source: RandomSource | None = None

    def __len__(self) -> int:
        return len(self._first)

    def __bool__(self) -> bool:
        return bool(self._first)

    @property
    def names(self) -> list[str]:
        """Of the weights, as the model names them."""
        return [name + _WEIGHT for name in self._first]

    def shapes(self) -> str:
        """Names and shapes, to distinguish one model from another."""
        return f"{[(name, each.shape) for name, each in self._first.items()]}" if self else ""

    def sums(self) -> dict[str, RowSum]:
        """An empty sum for each table, by the name of its weight."""
        return {name + _WEIGHT: RowSum(each.shape[1]) for name, each in self._first.items()}

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
                    weight = self._whole(name)
                fresh = nn.Embedding(*weight.shape, padding_idx=layer.padding_idx, _weight=weight)
            fresh.train(layer.training)
            setattr(model.get_submodule(parent), last, fresh)

    def start(self, steps: RowSteps) -> None:
        """Begin the steps of a run, before anything is read in one."""
        self._steps, self._averaged = steps, False
        self._history = History(
            momentum=steps.momentum,
            nesterov=steps.nesterov,
            weight_decay=steps.weight_decay,
            averaged=steps.average is not None,
        )
        self._rows = {name: RowState(name, weight, self._history) for name, weight in self._first.items()}

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

    def step(self, sums: Iterable[RowSum], *, round: int, denominator: float, noise_std: float) -> bool:
        """Take a step in the rows that the batch read; its noise is owed to all rows from then on.

        Args:
            sums: of clipped gradients, one a table.
            round: from 0.
            denominator: public, what sums are divided by.
            noise_std: of a number of the mean.

        Returns:
            whether all numbers are finite.
        """
        assert self._history is not None
        assert self._steps is not None
        rate, average = self._steps.at(round)
        self._history.append(rate=rate, noise_std=noise_std, average=average)
        finite = True
        for state, total in zip(self._rows.values(), sums, strict=True):
            rows, values = total.gathered()
            finite &= state.step(rows.cpu().numpy(), values.cpu().numpy() / denominator, round)
        return finite

    @contextmanager
    def as_released(self) -> Iterator[None]:
        """A context in which the moving average is read, where there is one."""
        self._averaged = self._steps is not None and self._steps.average is not None
        try:
            yield
        finally:
            self._averaged = False

    def flush(self) -> None:
        """Give all rows the noise that they are owed.

        Before the model is measured, too: which rows that reads would otherwise decide how later noise is drawn, and a
        run that goes on with other data to measure on would draw other noise for the same sums.
        """
        if self._history is not None and self._history.steps:
            for state in self._rows.values():
                state.flush(self._source())

    def first(self) -> dict[str, Tensor]:
        """The weights before the first step, by layer; after it, as they are."""
        return {name: torch.from_numpy(each) for name, each in self._first.items()}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; private, as it shows which rows were read."""
        if self._history is None or not self:
            return {}
        found = {f"{name}/{key}": each for name, state in self._rows.items() for key, each in state.state().items()}
        found["steps"] = self._history.settings()
        return {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in found.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint.

        Raises:
            InputError: it is of tables of another size.
        """
        if not self:
            return
        assert self._history is not None
        self._history.load(tensors["steps"].numpy())
        for name, state in self._rows.items():
            prefix = f"{name}/"
            state.load(
                {key.removeprefix(prefix): each.numpy() for key, each in tensors.items() if key.startswith(prefix)}
            )

    def _whole(self, name: str) -> Tensor:
        """A table with all noise, of every row."""
        if not self._has_steps(name):
            return torch.from_numpy(self._first[name])
        state = self._rows[name]
        state.flush(self._source())
        return torch.from_numpy(state.whole(averaged=self._averaged))

    def _has_steps(self, name: str) -> bool:
        """Whether a step was taken, so that rows may be owed noise."""
        return name in self._rows and self._history is not None and self._history.steps > 0

    def _source(self) -> RandomSource:
        assert self.source is not None, "rows are read before the run's randomness is known"
        return self.source

    def _reading(self, name: str) -> Callable[[Tensor], Tensor]:
        def read(ids: Tensor) -> Tensor:
            rows = ids.cpu().numpy()
            if not self._has_steps(name):
                return torch.from_numpy(self._first[name][rows])
            return torch.from_numpy(self._rows[name].read(rows, self._source(), averaged=self._averaged))

        return read
