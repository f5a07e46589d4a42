"""The frozen first layers of a model: a record goes through them once and not in every round.

Whether a stage's own function holds modules or tensors other than those that it is given.

A stage with `run=lambda x: self.block(x)` computes with the network of that function, not with the copy that is
trained: nothing puts that network back between clients, and what its layers write would be released. So only what a
stage names in `parts` is copied, watched and released, and a function that holds more is refused.

>>> block = nn.Linear(1, 1)
>>> holds_more(lambda x, by=block: by(x)), holds_more(lambda x, block: block(x)), holds_more(nn.functional.relu)
(True, False, False)
"""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.data import ExampleDataset, UserDataset, to_tensor
from sfumato.data.digest import digest_of
from sfumato.data.store.build import StoredRows, stored_rows
from sfumato.guard import try_out
from sfumato.guard.guard import at
from sfumato.guard.placeholders import placeholder, placeholder_batch
from sfumato.guard.trial import SAME_SHAPE, Attributes, Tolerance, draws_random, held_by, same_values
from sfumato.models import Part, Stage, refuse_batch_norm, refuse_no_values, stages_of, trainable_parameters
from sfumato.models.check import tried_on
from sfumato.models.public_batch_norm import public_inputs_of
from sfumato.training.trainable import copied


def holds_more(function: Callable[..., Any]) -> bool:
    """Whether a function has a module or a tensor in its closure, its defaults or its object; globals are not read."""
    return _holds(function, set())


def _holds(value: object, visited: set[int]) -> bool:
    if id(value) in visited:
        return False
    visited.add(id(value))
    if isinstance(value, nn.Module | Tensor):
        return True
    return any(_holds(each, visited) for each in _within(value))


def _within(value: object) -> list[Any]:
    if isinstance(value, FunctionType):
        return held_by(value)
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, Mapping):
        return [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [*value]
    if callable(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        return [*vars(value).values()]
    return []


# A model in two: frozen first stages, whose outputs are a fixed function of each record, and what is trained.
#
# The prefix is the longest run of stages, from the first one on, none of whose parameters is trained and none of which
# draws random numbers or does something else while training. That it is a fixed function of one record is tried out
# before it is relied on: each record alone gives what it gives among others, again and in another order, and nothing
# that the prefix holds changes.
#
# Nothing of the guarantee changes: the clipped, noised sums are those of the same model, to the rounding of sums. That
# no record changes what is kept of another one is no matter of a trial, which sees few records: each record goes
# through alone, plain attributes are put back before it, and weights and buffers are compared after some (`alone`). So
# a row is a function of its record to the last bit, also of layers that couple a batch of records that no trial has
# met. Not seen is what layers keep outside of themselves (in a class, a global name, a closure).


_ORDERED = 6  # records that go through in two orders
_ROUND_OFF = 1e-4  # of the length of an output
_PLAIN = (int, float, complex, str, bytes, tuple)
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_WITHOUT = "leave out prefix_cache (--prefix-cache)"


@dataclass(frozen=True)
class Split:
    """A model in two parts, over one copy of it.

    Attributes:
        whole: a copy of the user's module, in evaluation mode.
        prefix: its first stages, frozen.
        rest: the others, of which some are trained; names are those in the whole.
        shape: of what the prefix gives for one record.
    """

    whole: nn.Module
    prefix: Part
    rest: Part
    shape: tuple[int, ...]
    _tensors: dict[str, Tensor] = field(repr=False)
    _attributes: Attributes = field(repr=False)

    def joined(self, rest: nn.Module) -> nn.Module:
        """The whole with the values of a trained copy of the rest, in evaluation mode; else as it was when split."""
        self._attributes.put_back()
        model = copied(self.whole).to(next(iter(rest.state_dict().values())).device)
        with torch.no_grad():
            for name, tensor in _held(model).items():
                if not same_values(tensor, self._tensors[name].to(tensor.device)):
                    tensor.data = self._tensors[name].to(tensor.device, copy=True)
        model.load_state_dict({**model.state_dict(), **rest.state_dict()})
        return model.eval()

    def frozen(self) -> dict[str, Tensor]:
        """The tensors of the prefix that are saved."""
        held = self.rest.state_dict()
        return {name: tensor.cpu() for name, tensor in self.prefix.state_dict().items() if name not in held}

    def digest(self, input_shape: Sequence[int]) -> str:
        """SHA-256 of the prefix: which stages, what they are made of, their values, and what they read."""
        found = hashlib.sha256(repr(([stage.name for stage in self.prefix.stages()], list(input_shape))).encode())
        found.update(_ADDRESS.sub("", repr(self.prefix)).encode())
        found.update(_ADDRESS.sub("", repr(_settings(self.prefix))).encode())
        for name in _held(self.prefix):
            values = self._tensors[name].cpu().contiguous()
            found.update(repr((name, tuple(values.shape), str(values.dtype))).encode())
            found.update(values.reshape(-1).view(torch.uint8).numpy().data if values.numel() else b"")
        return found.hexdigest()

    def alone(self, inputs: Tensor) -> Tensor:
        """What the prefix gives for each record by itself, of which none meets another one or its traces.

        Args:
            inputs: some records, [n, …], n >= 1.

        Returns:
            [n, *shape].

        Raises:
            InputError: as `refuse_touched`.
        """
        found = []
        for record in inputs.split(1):
            self._attributes.put_back()
            found.append(self.prefix(record))
            self._refuse(self._attributes.changed())
        self.refuse_touched()
        return torch.cat(found)

    def refuse_touched(self) -> None:
        """Refuse a prefix that holds something else than when the model was split.

        Raises:
            InputError: names what has changed.
        """
        now = _held(self.whole)
        names = [name for name, tensor in self._tensors.items() if not same_values(now[name], tensor)]
        self._refuse(names + self._attributes.changed())

    def _refuse(self, names: Sequence[str]) -> None:
        if names:
            raise InputError(
                f"the frozen layers keep state of records ({names[0]} changes), so no features can be stored; use "
                f"layers that keep nothing, or {_WITHOUT}"
            )


def split(model: nn.Module, trainable: str, inputs: Tensor) -> Split:
    """Cut a model before the first stage that is trained, and try out what lies before.

    Args:
        model: the user's module; it is copied, never changed.
        trainable: which parameters are trained; see `sfumato.models.trainable_parameters`.
        inputs: some records as the model gets them, [n, …], n >= 2, and as different as can be.

    Raises:
        InputError: the model cannot be cut, nothing before the cut is frozen, or it is no fixed function of a record.
    """
    refuse_no_values(model)
    refuse_batch_norm(model)
    if any(public_inputs_of(part) is not None for part in model.modules()):
        raise InputError(
            "the norm layers of this model follow public inputs through all of it, so it cannot be cut in two; "
            f"{_WITHOUT}, or use group norm"
        )
    whole = copied(model).to(inputs.device)
    try_out(_Frozen(whole, inputs), range(min(len(inputs), _ORDERED))).refuse()
    stages = stages_of(whole)
    _refuse_undeclared(whole, stages)
    trained = {id(parameter): name for name, parameter in trainable_parameters(whole, trainable)}
    _refuse_not_the_sum(whole, stages, inputs)
    with torch.no_grad():
        count = _fixed(copied(whole), stages[: _frozen(whole, stages, trained, trainable)], inputs)
    if not count:
        raise InputError(
            f"the first stage, {stages[0].name}, draws random numbers or does something else while training than "
            f"afterwards, so nothing of a record can be kept; {_WITHOUT}"
        )
    whole.eval()
    prefix, rest = Part(whole, stages[:count]), Part(whole, stages[count:])
    left = {id(parameter) for parameter in rest.parameters()}
    if missing := [name for each, name in trained.items() if each not in left]:
        raise InputError(
            f"parameter {missing[0]} is trained and lies in no stage of this {type(model).__name__}; name its module "
            f"in stages(), or {_WITHOUT}"
        )
    later = {id(parameter): name for name, parameter in trainable_parameters(rest, trainable)}
    if others := [name for each, name in (*later.items(), *trained.items()) if (each in later) != (each in trained)]:
        raise InputError(
            f"parameter {others[0]} has several names, and trainable={trainable!r} chooses others after the "
            f"cut; name it by all of them, untie it, or {_WITHOUT}"
        )
    tensors = {name: tensor.clone() for name, tensor in _held(whole).items()}
    found = Split(whole, prefix, rest, (), tensors, Attributes(whole))
    return replace(found, shape=_tried(found, inputs))


class _Frozen:
    """The guard's `Subject` of a model whose frozen layers are computed once: what it gives for a record.

    Args:
        model: a copy of the user's module; another copy of it is tried.
        inputs: records.
    """

    state_message = (
        "what the model gives for a record depends on those that went through before; let forward depend on its inputs "
        f"and the weights alone, or {_WITHOUT}"
    )
    tolerance: Tolerance | None = SAME_SHAPE

    def __init__(self, model: nn.Module, inputs: Tensor) -> None:
        self._model, self._inputs = model, inputs

    def placeholders(self) -> None:
        """Some rows at once, and one."""
        model = copied(self._model).eval()
        for rows in (1, 4):
            tried_on(model, placeholder_batch(self._inputs, rows))

    def outcomes(self, units: Sequence[int]) -> Tensor:
        """The outputs [n, k] of records in turn."""
        model, found = copied(self._model).eval(), []
        for unit in units:
            at(unit)
            found.append(tried_on(model, self._inputs[unit : unit + 1].clone()).double().reshape(-1))
        at(None)
        return torch.stack(found)


def _frozen(whole: nn.Module, stages: Sequence[Stage], trained: dict[int, str], trainable: str) -> int:
    """How many stages come before the first one with a trained parameter."""
    for place, stage in enumerate(stages):
        name = next((trained[id(p)] for m in stage.modules(whole) for p in m.parameters() if id(p) in trained), None)
        if name is None:
            continue
        if not place:
            less = "train less, as trainable=last_blocks:2+last (--trainable) does"
            if ".lora_" in name:  # its layer is frozen, and an adapter of a later one would leave this one as it is
                less = "give adapters to later layers only (layers= of add_lora, --lora-layers)"
            raise InputError(
                f"nothing is frozen before the first trained layer ({name}, by trainable={trainable!r}), so there is "
                f"nothing to keep; {less}, or {_WITHOUT}"
            )
        return place
    raise InputError(f"no stage of this {type(whole).__name__} has a trained parameter; {_WITHOUT}")


def _refuse_undeclared(whole: nn.Module, stages: Sequence[Stage]) -> None:
    """Refuse stages that compute with more of the network than they name: it is not what is trained and put back."""
    for stage in stages:
        if holds_more(stage.run):
            raise InputError(
                f"the stage {stage.name} of this {type(whole).__name__} computes with modules or tensors of its "
                f"function; name them in its parts, pass them to run, or {_WITHOUT}"
            )


def _refuse_not_the_sum(whole: nn.Module, stages: Sequence[Stage], inputs: Tensor) -> None:
    """Refuse stages that do not compute in turn what the model computes."""
    tried = copied(whole).eval()
    wanted = tried_on(tried, inputs.clone())
    with torch.no_grad():
        found = Part(tried, stages)(inputs.clone())
    if not _close(found, wanted):
        raise InputError(
            f"the stages of this {type(whole).__name__}, in order, do not give its output (a hook, or "
            f"something between them); let stages() list all, or {_WITHOUT}"
        )


def _fixed(tried: nn.Module, stages: Sequence[Stage], x: Tensor) -> int:
    """How many of the first stages are the same function while training and afterwards, without random numbers."""
    for place, stage in enumerate(stages):
        part = Part(tried, [stage])
        tried.train()
        if draws_random(part, x.clone()):
            return place
        training = part(x.clone())
        tried.eval()
        afterwards = part(x.clone())
        if not _close(training, afterwards):
            return place
        x = afterwards
    return len(stages)


def _tried(found: Split, inputs: Tensor) -> tuple[int, ...]:
    """Refuse what is no fixed function of one record.

    Returns:
        the shape that it gives for one record.
    """
    prefix, last = found.prefix, found.prefix.stages()[-1].name
    with torch.no_grad():
        together = prefix(inputs.clone())
        if not isinstance(together, Tensor) or not together.is_floating_point() or len(together) != len(inputs):
            raise InputError(
                f"the frozen layers up to {last} must give real numbers [n, …], a row a record, got "
                f"{tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__}; {_WITHOUT}"
            )
        reversed_ = prefix(inputs.flip(0).clone()).flip(0)
        found.refuse_touched()
        alone = torch.cat([prefix(row.clone()) for row in inputs.split(1)])
        found.refuse_touched()
        again = prefix(inputs.clone())
    if not all(_close(one, other) for each in (reversed_, alone) for one, other in zip(each, together, strict=True)):
        raise InputError(
            f"the frozen layers up to {last} give a record other features alone than among others; use layers "
            f"that treat each record by itself, or {_WITHOUT}"
        )
    if not _close(again, together):
        raise InputError(
            f"the frozen layers up to {last} give the same records other features again; let forward depend "
            f"on inputs and weights alone, or {_WITHOUT}"
        )
    return tuple(together.shape[1:])


def _held(part: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, those that are not saved, too, and what has two names under both."""
    return {
        **dict(part.named_parameters(remove_duplicate=False)),
        **dict(part.named_buffers(remove_duplicate=False)),
    }


def _settings(part: nn.Module) -> list[tuple[str, list[tuple[str, object]]]]:
    """Numbers and words in plain attributes of all modules, which a layer of one's own may not show in its repr."""
    return [
        (name, [(key, value) for key, value in sorted(vars(module).items()) if isinstance(value, _PLAIN)])
        for name, module in part.named_modules()
        if not isinstance(module, Part)
    ]


def _close(one: Tensor, other: Tensor) -> bool:
    """The same to round-off, NaN included."""
    if one.shape != other.shape:
        return False
    one, other = one.detach().double().nan_to_num(), other.detach().double().nan_to_num()
    return bool((one - other).norm() <= _ROUND_OFF * other.norm() + 1e-30)


# What the frozen first layers make of the records, computed once and kept on the disk.
#
#     CACHE/README.txt            what this is, and that it is private
#     CACHE/private-data          a store: a row for each record of the data to train on, and of all that are views of
#     the
#                                 same records, such as a test part that was split off
#     CACHE/private-validation    of validation data from a place of their own
#     CACHE/private-test          of test data from a place of their own
#
# **As private as the records.** A row follows from one record and public weights, and mostly gives the record away. The
# folders are for their owner only, and nothing of them is released: a run's folder holds no row.
#
# A store is bound to the layers (stages, weights, shape of inputs) and to the records by their digests; another one is
# refused. Some rows are computed again when it is opened: what changed in the code since shows there. One that was not
# finished goes on where it stopped.


_BLOCK = 32  # records between two looks at the weights
_SOME = 6  # that are looked at
_DRIFT = 1e-3  # of the length of a row, by which other processors and libraries may round it
_OURS = ("README.txt", "private-")
_README = """\
PRIVATE. What the frozen first layers of a model make of private records, one row a record. It reveals about as much of
them as the records themselves, and no guarantee covers it: keep it where the records are, for the same eyes, and delete
it with them. sfumato makes it again where it is missing.
"""
_MEANING = {"layers": "other weights, or another cut as other layers are trained", "records": "other records"}
Progress = Callable[[str, int, int], None]
"""Gets which data, how many records are done, and of how many."""


class PrefixCache:
    """The folder, for one model.

    Args:
        folder: where rows are kept; it is made if it is not there.
        halves: the model.
        device: where the layers run.
        progress: gets how far it is.

    Raises:
        InputError: the folder is a file, or holds something else than a cache.
    """

    def __init__(self, folder: Path, halves: Split, *, device: str, progress: Progress | None = None) -> None:
        refuse_folder(folder)
        self._folder, self._split, self._device, self._progress = folder, halves, device, progress
        self._kept: dict[str, StoredRows] = {}

    def through(self, data: Any, name: str) -> Any:
        """The same data set, after the frozen layers.

        Args:
            data: of users or of examples.
            name: "data", "validation", "test" or "negatives".

        Raises:
            InputError: the rows that are kept are of other layers or records, or damaged; the layers change; or the
                folder cannot be written.
        """
        rows, digest = _rows(data), _digest(data)
        if digest not in self._kept:
            try:
                self._kept[digest] = self._stored(rows, digest, name)
            except OSError as error:  # else the message would name the run's folder, which is another one
                raise InputError(
                    f"prefix_cache {self._folder} cannot be written: {error.strerror or error}; make room and run the "
                    "same command again, or name another folder (--prefix-cache)"
                ) from None
        kept = self._kept[digest]
        if isinstance(data, UserDataset):
            return data.with_inputs(kept.rows, lambda: digest_of((digest, kept.digest())))
        return replace(data, inputs=(kept.rows,), vocabulary_sizes=(), columns=())

    def _stored(self, rows: Any, digest: str, name: str) -> StoredRows:
        self._begin()
        path = self._folder / f"private-{name}"
        shape = tuple(rows.shape[1:])
        kept = stored_rows(
            path,
            (self._split.shape, np.dtype(np.float32)),
            int(rows.shape[0]),
            {"layers": self._split.digest(shape), "records": digest, "input_shape": [*shape]},
            lambda start, stop: self._computed(rows[start:stop]),
            block=_BLOCK,
            progress=None if self._progress is None else (lambda done, of: self._progress(name, done, of)),  # pyright: ignore[reportOptionalCall]
            description=" ".join(_README.split()),
            meaning=_MEANING,
        )
        for place in _spread(int(rows.shape[0])):
            row, now = kept.rows[place : place + 1], self._computed(rows[place : place + 1])
            if not np.linalg.norm(np.nan_to_num(row - now)) <= _DRIFT * np.linalg.norm(np.nan_to_num(now)) + 1e-30:
                raise InputError(
                    f"{path} holds other rows than the layers give now (row {place}): their code has changed; delete "
                    "it, and it is made again"
                )
        return kept

    def _computed(self, rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return self._split.alone(to_tensor(rows).to(self._device)).float().cpu().numpy()

    def _begin(self) -> None:
        """The folder and the word of warning in it."""
        readme = self._folder / "README.txt"
        if not readme.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(readme, _README.encode(), private=True)


def refuse_folder(folder: Path) -> None:
    """Refuse a place for rows that is something else.

    Raises:
        InputError: it is a file, or holds what no cache does.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"prefix_cache must be a folder, and {folder} is a file; name another one")
    other = next((path.name for path in _sorted(folder) if not path.name.lstrip(".").startswith(_OURS)), None)
    if other is not None:  # pictures, which may be public, and shared together with what would come to lie there
        raise InputError(f"prefix_cache must be a new folder or a cache, and {folder} holds {other}; name another one")


def cut_for(model: torch.nn.Module, trainable: str, data: Any, device: str) -> Split:
    """A model in two, tried out on some of the records.

    Raises:
        InputError: as `split`; or the data have several inputs an example, or none.
    """
    return split(model, trainable, _some(_rows(data), device))


def _sorted(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def _rows(data: Any) -> Any:
    """The inputs of all records."""
    if isinstance(data, UserDataset):
        return data.inputs
    if not isinstance(data, ExampleDataset) or len(data.inputs) != 1 or data.input_names:
        raise InputError(
            "prefix_cache is for records of one input each, by position; leave it out (--prefix-cache) for several"
        )
    return data.inputs[0]


def _digest(data: Any) -> str:
    return data.whole_digest() if isinstance(data, UserDataset) else digest_of("inputs", data.inputs[0])


def _some(rows: Any, device: str) -> Tensor:
    """Some records, and placeholders: records may be many of a kind."""
    if not rows.shape[0]:
        raise InputError("there are no records to put through the frozen layers")
    real = to_tensor(np.concatenate([np.asarray(rows[place : place + 1]) for place in _spread(int(rows.shape[0]))]))
    return torch.cat([real, placeholder(real[:1].expand(2, *real.shape[1:]))]).to(device)


def _spread(count: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, _SOME).astype(np.int64)).tolist()
