"""What examples contribute: their gradients, each clipped, added up in micro-batches.

Unit: an example. Each adds a vector of L2 norm at most the bound's sensitivity to the sum, whatever it holds; one
with a gradient that is not finite adds nothing. A model that lets one example change another one's gradient is
refused before the first step, by its layers and by experiment. The sum of a batch of any size takes the memory of one
micro-batch, and is the same for every size of the micro-batch up to float round-off.

Dropout and other draws of the model are independent from row to row; what rows share is refused, since who shares it
changes when an example comes or goes. Who else is present decides which draw an example meets, and not how it is
distributed: the bound holds for each outcome of the draws, which are not released.

What a model keeps in parameters, buffers and attributes of its own is put back between two micro-batches.

**Memory.** What the tensors of a computation take at their peak, wherever they are held. Tensors that are made within
the context count from the operation that makes them until they are freed; scratch memory inside an operation does not.

>>> with LiveMemory() as seen:
...     total = (torch.ones(1000) * 2).sum()
>>> seen.peak
8000
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch  # for the doctest
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Stated
from sfumato.clipping import ClippedSum
from sfumato.guard import Coupled, Recheck, SelfCheck, due
from sfumato.guard.guard import equal, histories
from sfumato.guard.trial import SINGLE, SameNoise, seed_dropout
from sfumato.models import add_statistics_gradient
from sfumato.per_example import Recording, covered
from sfumato.per_example.workspace import out_of_memory
from sfumato.training import Contribution, Trainable
from sfumato.training.contribution import RoundContext


class LiveMemory(TorchDispatchMode):
    """A context around a computation.

    Attributes:
        peak: bytes, the most at one time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at what is alive behind it."""
        outputs = func(*args, **(kwargs or {}))
        self._live = {key: held for key, held in self._live.items() if not held[0].expired()}
        for output in tree_leaves(outputs):
            if isinstance(output, Tensor):
                storage = output.untyped_storage()
                self._live.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.peak = max(self.peak, sum(size for _, size in self._live.values()))
        return outputs


# How many examples go through the model at once: measured against a memory budget, and less when memory runs out.
#
# It changes what a step costs in time and memory, and no result beyond float round-off, unless the model draws random
# numbers: it draws for a micro-batch at a time. Then a run keeps the size that it began with.


_SAFETY = 3.5  # on a GPU
_MOMENTS = 4.5  # on a CPU, for what is alive for a moment only: gradients on their way, scratch memory
_SCATTERED = 1.5  # what the allocator takes for tensors of many sizes
_CPU_BUDGET = 1 << 29
_LARGEST = 4096  # beyond it nothing gets faster


def default_budget(device: torch.device) -> int:
    """Bytes for a micro-batch: half of the free memory of a GPU, 512 MiB on a CPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return _CPU_BUDGET


def suggested(bytes_per_example: int, budget: int) -> int:
    """The micro-batch that fits, at least 1.

    >>> suggested(1 << 20, 1 << 28)
    256
    """
    return max(1, min(_LARGEST, budget // max(1, bytes_per_example)))


def measured(run: Callable[[int, AbstractContextManager[Any]], int], device: torch.device) -> int:
    """Bytes that one example takes in a forward and backward pass.

    Args:
        run: puts so many examples through, with its forward pass within the context that it is given; gives the bytes
            that are held in the end for the clipped sum.
        device: where it runs.
    """
    if device.type == "cuda":
        peaks = []
        for count in (2, 4):
            torch.cuda.reset_peak_memory_stats(device)
            run(count, nullcontext())
            peaks.append(torch.cuda.max_memory_allocated(device))
        return int(max(1, peaks[1] - peaks[0]) / 2 * _SAFETY)
    totals, peaks = [], []
    for count in (1, 3):
        seen: dict[int, int] = {}

        def pack(tensor: Tensor, seen: dict[int, int] = seen) -> Tensor:
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        # The backward pass stays outside: layers that are run again there, vectorised, bear no such hooks.
        live = LiveMemory()
        held = run(count, _both(live, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)))
        totals.append(sum(seen.values()) + held)
        peaks.append(live.peak)
    kept, alive = totals[1] - totals[0], peaks[1] - peaks[0]  # the difference: parameters are in both
    # A part without gradients keeps nothing for the backward pass, and may still take the most.
    return int(max(1, kept * _MOMENTS, alive * _SCATTERED) / 2)


@contextmanager
def _both(one: AbstractContextManager[Any], other: AbstractContextManager[Any]) -> Iterator[None]:
    with one, other:
        yield


_ALL = 16  # micro-batches of the first and the last step that are looked at, at most
_SOME = 3  # drawn ones of another step
_BEHIND = 8  # examples or more that go through before a step that is looked at, a micro-batch at a time


class GradientSum(Contribution):
    """The `Contribution` of DP-SGD; a subclass reads examples and gives their losses.

    Args:
        trained: the model.
        population: examples present.

    Attributes:
        micro_batch: examples at once.
        copies: how often an example goes through the model in a step.
        untried: whether a trial in fresh processes failed, or took too long.
    """

    copies: int = 1
    micro_batch: int

    def __init__(self, trained: Trainable, population: int, device: torch.device) -> None:
        self.trained, self.population = trained, population
        self.model = trained.model
        self._device = device
        self._reference: Tensor | None = None
        self.untried = False
        _refuse_kinds(trained)

    def read(self, examples: np.ndarray, key: int) -> Any:
        """What the model and the loss need of some examples.

        Args:
            examples: their places, int64 [n].
            key: of the step, for what is drawn while they are read.
        """
        raise NotImplementedError

    def losses_of(self, rows: Any) -> Tensor:
        """The losses of what `read` gave, [n], by a forward pass of the model."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Called before each step: the mode in which the model is trained."""
        self.model.train()

    def between(self) -> None:
        """Called before each micro-batch of a step, outside of any recording; mostly nothing."""

    def as_in_step(self, step: int) -> AbstractContextManager[None]:
        """A context in which a micro-batch that is only tried looks like one of this step; mostly it does anyway."""
        return nullcontext()

    def later_steps(self, step: int) -> Sequence[int]:
        """As in which steps, in turn, micro-batches are tried before a step; empty where all steps look the same."""
        return ()

    def _begin(
        self,
        check: SelfCheck,
        *,
        micro_batch: int | None,
        memory_budget: int | None,
        first: Callable[[int], np.ndarray],
    ) -> None:
        """Decide how many examples go through at once, and look at a full micro-batch.

        Args:
            check: what the self-check found.
            micro_batch: examples at once; None measures how many fit into the memory budget.
            memory_budget: MiB; None for the device's.
            first: gives at most so many examples from all over the data, of which a micro-batch is looked at.
        """
        self._layers, self._findings, self._spread = check.layers, check.findings, first
        budget = default_budget(self._device) if memory_budget is None else memory_budget << 20
        self.bytes_per_example = measured(self._try, self._device)
        self.micro_batch = suggested(self.bytes_per_example, budget) if micro_batch is None else micro_batch
        self._recheck = Recheck(self.model, check)
        places = first(self.micro_batch)
        self._recheck.at_start(len(places), lambda some: self._measured(places[list(some)], 0))
        self.trained.refuse_changed()
        self.trained.forget()

    def clipped_sum(self, context: RoundContext) -> ClippedSum:
        """The sum of the examples' bounded gradients; each contributor is one example."""
        theta, round, source = context.theta, context.round, context.source
        self.trained.load(theta)
        self.prepare()
        share = context.new_sum(self.trained.layout, self.trained.tables.sums())
        share.counts = self.trained.tables.counts()
        examples, key = context.cohort.units, reading_key(source, round)
        looked_at = self._looked_at(len(examples), round, source)
        if (looked_at or not round) and due(round, self.rounds, source, seldom=True):
            part = examples[: max(self.micro_batch, _BEHIND)]
            if not round and len(part) < _BEHIND:  # a small draw must not leave out what comes before the first step
                part = self._spread(_BEHIND)
            with self.trained.tables.tried_out():
                self._look_before(part, round, key)
        start = 0
        while start < len(examples):
            part = examples[start : start + self.micro_batch]
            self.between()
            seed_dropout(source.seed64("dropout", round, int(part[0])), self._device)
            added = self._micro_batch(part, key, share)
            self.trained.put_back(theta)
            if added is None:
                self._shrink(len(part))
                continue
            last = start + len(part) == len(examples)
            if looked_at and (last or any(start <= place < start + len(part) for place in looked_at)):

                def measure(places: Sequence[int], at: np.ndarray = part) -> tuple[Tensor, Tensor]:
                    return self._measured(at[list(places)], key)

                self._recheck.while_training(round, added, measure)
                self.trained.put_back(theta)
            start += len(part)
        share.tally.add(examples=len(examples) * self.copies)
        return share

    def assumptions(self) -> list[Stated]:
        """What could not be tried."""
        return [*self._findings.sentences("example", untried=self.untried)]

    def _looked_at(self, examples: int, round: int, source: RandomSource) -> tuple[int, ...]:
        """Places in a step's batch whose micro-batches are looked at, with the last one; none for most steps."""
        if not due(round, self.rounds, source):
            return ()
        if round in (0, self.rounds - 1):
            return tuple(range(0, examples, self.micro_batch))[:_ALL]
        drawn = source.stream("look micro-batch", round).uniform(_SOME)
        return 0, *(int(place * examples) for place in drawn)

    def _look_before(self, part: np.ndarray, round: int, key: int) -> None:
        """Before a step, in fresh processes: what the first micro-batch leaves behind, and what earlier ones have left.

        Raises:
            Coupled: examples give something else behind one half of it than behind the other, or something else at the
                first weights than before any example went through.
        """

        def measure(places: Sequence[int]) -> tuple[Tensor, Tensor]:
            return self._measured(part[list(places)], key)

        beginning = None if self._reference is None else self._at_the_beginning
        here = [partial(self.as_in_step, round)]
        looked = self._recheck.refuse_memory(len(part), measure, here, beginning, self.micro_batch)
        others = [partial(self.as_in_step, step) for step in self.later_steps(round)]
        if others:  # on its own: code may fail at a step that it is not at
            later = self._recheck.refuse_memory(len(part), measure, others, micro_batch=self.micro_batch)
            self.untried |= later is None
        self.untried |= looked is None
        now = None if looked is None else looked.now
        if now is not None and self._reference is not None and not equal(now, self._reference, SINGLE):
            raise Coupled(
                f"at step {round + 1} the same examples and weights give other losses or gradients; compute each "
                "loss from its own example, and let schedules follow done"
            )

    def _take_reference(self, places: np.ndarray) -> None:
        """Before anything goes through here: what some examples give at the first weights, in a fresh process."""
        self._layers, self._back = covered(self.model), places
        self._reference = self._afresh(self._at_the_beginning)

    def _afresh(self, work: Callable[[], Any]) -> Any:
        """What some work gives in a fresh process; None where it could not be done there, as is said then."""
        found = histories([work])
        self.untried |= found is None
        return None if found is None else found[0]

    def _at_the_beginning(self) -> Tensor:
        """Losses and norms of some examples at the first weights, float64 [n, 2]; the weights are as before then."""
        with self.trained.as_it_began():
            self.prepare()
            with SameNoise(len(self._back)):
                losses, squares = self._measured(self._back, 0)
            self.trained.forget()
        return torch.stack([losses.detach().double().cpu(), squares.double().cpu().sqrt()], dim=1)

    def after_noise(self, mean: Tensor, round: int, source: RandomSource) -> None:
        """What runs through the statistics of public batch norm, from the noisy gradient and the public inputs."""
        parts = self.trained.with_public_inputs()
        if not parts:
            return
        seed_dropout(source.seed64("statistics", round), self._device)  # the same in every process
        views = self.trained.views(mean)
        for parameter, view in zip(self.trained.parameters, views, strict=True):
            parameter.grad = view.to(parameter.dtype)
        for part in parts:
            add_statistics_gradient(part)
        for parameter, view in zip(self.trained.parameters, views, strict=True):
            assert parameter.grad is not None
            view.copy_(parameter.grad)
            parameter.grad = None

    def settings(self) -> dict[str, Any]:
        """The micro-batch decides the last bits of a sum; what could not be tried stays said."""
        return {"micro_batch": self.micro_batch, "untried": self.untried}

    def restore_settings(self, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """The micro-batch of the run that goes on."""
        self.micro_batch = int(settings.get("micro_batch", self.micro_batch))
        self.untried |= bool(settings.get("untried"))

    def _micro_batch(self, examples: np.ndarray, key: int, share: ClippedSum) -> tuple[Tensor, Tensor] | None:
        """Add some examples' bounded gradients to the sum.

        Returns:
            their losses and squared norms, [n] each; None if memory ran out before anything was added.
        """
        every = [*self.trained.parameters, *self.trained.tables.placeholders(self.model)]
        parameters = [[every[i] for i in group] for group in share.groups]
        try:
            recording, losses = self._recorded(examples, key)
            # One group is the whole model, whose norm is cheaper to find at once.
            chosen = parameters if len(parameters) > 1 else [None]
            squares = torch.stack([recording.squared_norms(group) for group in chosen])
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                return None
            raise
        weights, parts = share.weigh(squares.sqrt()), share.parts()
        # From here on nothing is tried again: a part of the sum must not be added twice.
        try:
            for weight, group, its_parameters in zip(weights, share.groups, parameters, strict=True):
                recording.add_to([parts[i] for i in group], weight, its_parameters)
            self._count_rows(recording, share)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise InputError(
                f"memory ran out while {len(examples)} gradients were added up; set micro_batch to less than that"
            ) from None
        share.tally.add(loss=torch.where(torch.isfinite(losses), losses, 0.0).sum(dtype=torch.float64))
        return losses, squares.sum(dim=0)

    def _count_rows(self, recording: Recording, share: ClippedSum) -> None:
        """Count the rows of tables that each example reads, where these select what a step changes."""
        if share.counts is None:
            return
        tables = self.trained.tables
        read = {
            name: recording.rows_read(parameter)
            for name, parameter in zip(tables.names, tables.placeholders(self.model), strict=True)
        }
        share.counts.add({name: rows for name, rows in read.items() if rows is not None})

    def _recorded(
        self, examples: np.ndarray, key: int, watch: AbstractContextManager[Any] | None = None
    ) -> tuple[Recording, Tensor]:
        """A recorded forward pass, within `watch` if that is given, and backward pass; and the losses [n]."""
        rows = self.read(examples, key)
        self.trained.forget()  # whatever is tried begins as a micro-batch of a step does
        with Recording(self._layers, len(examples)) as recording:
            with watch or nullcontext():
                losses = self.losses_of(rows)
            recording.backward(losses)
        return recording, losses.detach()

    def _measured(self, examples: np.ndarray, key: int) -> tuple[Tensor, Tensor]:
        """Losses and squared norms of some examples, [n] each."""
        recording, losses = self._recorded(examples, key)
        return losses, recording.squared_norms()

    def _try(self, count: int, watch: AbstractContextManager[Any]) -> int:
        """A pass of so many examples, the first one again and again; the bytes that are held for the sum."""
        with torch.random.fork_rng(devices=[]):
            return self._recorded(np.zeros(count, np.int64), 0, watch)[0].bytes_held()

    def _shrink(self, tried: int) -> None:
        if tried == 1:
            raise InputError(
                "memory runs out with a single example in a step; use a smaller model, train fewer of its parameters "
                "(trainable), or make room"
            )
        if self._recheck.draws():  # by micro-batch: the same round with others is another sum under the same noise
            raise InputError(
                f"memory ran out with {tried} examples at once, and dropout fixes their number; start anew with "
                f"examples.micro_batch={tried // 2} (--examples.micro-batch), or resume with more memory"
            )
        self.micro_batch = tried // 2
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(f"memory ran out with {tried} examples at once; going on with {self.micro_batch}", stacklevel=3)


def _refuse_kinds(trained: Trainable) -> None:
    """Refuse parameters whose per-example gradients would be wrong or cannot be had, before anything runs.

    Raises:
        InputError: parameters in half precision, or a table whose gradients are sparse.
    """
    for name, parameter in zip(trained.layout.names, trained.parameters, strict=True):
        if parameter.dtype in (torch.float16, torch.bfloat16):
            kind = str(parameter.dtype).removeprefix("torch.")
            raise InputError(
                f"parameter {name} is {kind}, in which round-off hides what one example changes; train in float32 "
                "(model.float()), with examples.precision=bfloat16 or autocast for the model's own arithmetic"
            )
    ids = {id(parameter) for parameter in trained.parameters}
    for name, layer in trained.model.named_modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse and id(layer.weight) in ids:
            raise InputError(
                f"layer {name!r} is an {type(layer).__name__} with sparse=True, which has no per-example "
                "gradients; build it with sparse=False (the clipped sum stays sparse)"
            )


def reading_key(source: RandomSource, step: int) -> int:
    """Of a step, for what is drawn while its examples are read, 64 bits."""
    return source.seed64("augmentation", step)
