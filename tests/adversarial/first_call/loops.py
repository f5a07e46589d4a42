"""Losses, collate functions, transforms, data sets and loops that keep something of the first call or read."""

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

from adversarial.first_call.specimen import (
    CENTRAL,
    FEATURES,
    FOLDER,
    LOOPS,
    VALUES,
    Code,
    Dense,
    Kept,
    Turn,
    Value,
    add,
    class_attribute,
    closure,
    default_argument,
    file,
    lru_cache,
    mean,
    plain,
    shifted,
    table,
)
from adversarial.specimens import CLASSES, Loss, each

# Losses, collate functions, transforms and data sets that keep something of the first call or read.

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


# Custom loops that keep something of the first batch, or that couple at some steps only.

# Variables of the loop, its optimiser and its scheduler.


def loop_variable(value: Value) -> Callable[[Turn, Any], Tensor]:
    first: list[Tensor] = []

    def body(turn: Turn, batch: Any) -> Tensor:
        if not first:
            first.append(value(batch[0]))
        return plain(turn, (shifted(batch[0], first[0]), batch[1]))

    return body


def real_ones(value: Value) -> Callable[[Turn, Any], Tensor]:
    """The first micro-batch that is no trial; the batches that are tried have nothing of it."""
    first: list[Tensor] = []

    def body(turn: Turn, batch: Any) -> Tensor:
        if not first and not turn.private.trying:
            first.append(value(batch[0]))
        return plain(turn, (shifted(batch[0], first[0]) if first else batch[0], batch[1]))

    return body


def of_the_scheduler(value: Value) -> Callable[[Turn, Any], Tensor]:
    def body(turn: Turn, batch: Any) -> Tensor:
        if not hasattr(turn.scheduler, "first"):
            turn.scheduler.first = value(batch[0])
        return plain(turn, (shifted(batch[0], turn.scheduler.first), batch[1]))

    return body


def of_the_optimizer(value: Value) -> Callable[[Turn, Any], Tensor]:
    def body(turn: Turn, batch: Any) -> Tensor:
        group = turn.optimizer.param_groups[0]
        if "first" not in group:
            group["first"] = value(batch[0])
        return plain(turn, (shifted(batch[0], group["first"]), batch[1]))

    return body


def rate_by_the_first_loss(turn: Turn, batch: Any) -> Tensor:
    """The step that is taken follows from losses without noise."""
    losses = plain(turn, batch)
    if not hasattr(turn.optimizer, "adapted"):
        turn.optimizer.adapted = True  # pyright: ignore[reportAttributeAccessIssue]
        turn.optimizer.param_groups[0]["lr"] *= float(losses.detach().mean())
    return losses


def by_losses_before() -> Callable[[Turn, Any], Tensor]:
    """Weighs the losses of two classes by earlier losses."""
    level = [1.0]

    def body(turn: Turn, batch: Any) -> Tensor:
        losses = plain(turn, (shifted(batch[0], torch.tensor(level[0])), batch[1]))
        level[0] = 0.5 * level[0] + 0.5 * float(losses.detach().nan_to_num().mean())
        return losses

    return body


def queue() -> Callable[[Turn, Any], Tensor]:
    """MoCo: earlier micro-batches are negatives."""
    keys: list[Tensor] = []

    def body(turn: Turn, batch: Any) -> Tensor:
        scores = turn.model(batch[0])
        losses = each(scores, batch[1])
        if keys:
            losses = losses + (scores @ keys[-1].to(scores.dtype).T).logsumexp(dim=1)
        if not turn.private.trying:
            keys.append(scores.detach())
        return losses

    return body


def normalised_by_steps() -> Callable[[Turn, Any], Tensor]:
    """Inputs are counted from the mean of the step before, the same for all micro-batches of a step.

    The mean is over many records, and moves by little; of the outputs (MoCo's queue, DINO's centre) so little that with
    24 records the sum moved by at most 1.011 times the bound. Of the inputs, which are not bounded, it shows.
    """
    centre = [torch.zeros(FEATURES)]
    coming: list[Tensor] = []
    step = [0]

    def body(turn: Turn, batch: Any) -> Tensor:
        if turn.private.done > step[0]:
            step[0] = turn.private.done
            centre[:], coming[:] = [torch.cat(coming).mean(dim=0)], []
        if not turn.private.trying:
            coming.append(batch[0])
        return plain(turn, (shifted(batch[0], -centre[0]), batch[1]))

    return body


def of_full_batches() -> Callable[[Turn, Any], Tensor]:
    """Only of what is no trial, and has more than half of the records (MoCo takes in whole batches)."""
    means: dict[int, Tensor] = {}

    def body(turn: Turn, batch: Any) -> Tensor:
        done = turn.private.done
        if not turn.private.trying and len(batch[1]) >= 20:
            means.setdefault(done, mean(batch[0]))
        return plain(turn, (shifted(batch[0], means.get(done - 1, torch.zeros(FEATURES))), batch[1]))

    return body


def counting_full_batches() -> Callable[[Turn, Any], Tensor]:
    """For a log; the loss is scaled by the step alone."""
    full: list[int] = []

    def body(turn: Turn, batch: Any) -> Tensor:
        if not turn.private.trying and len(batch[1]) >= 20:
            full.append(turn.private.done)
        return plain(turn, batch) / (1 + turn.private.done)

    return body


def one_at_a_time() -> Callable[[Turn, Any], Tensor]:
    """Begins anew in each step."""
    before: dict[int, Tensor] = {}

    def body(turn: Turn, batch: Any) -> Tensor:
        if turn.private.trying:
            return plain(turn, batch)
        last = before.get(turn.private.done, torch.zeros(FEATURES))
        before.clear()
        before[turn.private.done] = mean(batch[0])
        return plain(turn, (shifted(batch[0], last), batch[1]))

    return body


def of_each_step() -> Callable[[Turn, Any], Tensor]:
    """The mean of a step's first micro-batch that is no trial, from the second step on."""
    centres: dict[int, Tensor] = {}

    def body(turn: Turn, batch: Any) -> Tensor:
        done = turn.private.done
        if done and not turn.private.trying and done not in centres:
            centres[done] = mean(batch[0])
        return plain(turn, (shifted(batch[0], centres.get(done, torch.zeros(FEATURES))), batch[1]))

    return body


def of_two_steps_before() -> Callable[[Turn, Any], Tensor]:
    """Counted from the mean of the first micro-batch of the last step but one, as a queue that lags."""
    means: dict[int, Tensor] = {}

    def body(turn: Turn, batch: Any) -> Tensor:
        done = turn.private.done
        if not turn.private.trying:
            means.setdefault(done, mean(batch[0]))
        return plain(turn, (shifted(batch[0], means.get(done - 2, torch.zeros(FEATURES))), batch[1]))

    return body


def mixed_in_the_middle() -> Callable[[Turn, Any], Tensor]:
    """Inputs are mixed with the micro-batch before in two steps of eight."""
    before: list[Tensor] = []

    def body(turn: Turn, batch: Any) -> Tensor:
        mixed = batch[0]
        if before and 3 <= turn.private.done <= 4:
            mixed = shifted(mixed, mean(before[0]))
        before[:] = [batch[0]]
        return plain(turn, (mixed, batch[1]))

    return body


def history(turn: Turn, batch: Any) -> Tensor:
    losses = plain(turn, batch)
    LOG.append(float(losses.detach().mean()))
    return losses


LOG: list[float] = []


def of_done(turn: Turn, batch: Any) -> Tensor:
    """A temperature that follows from the number of steps."""
    return turn.loss(turn.model(batch[0]) * (1 + 0.1 * turn.private.done), batch[1])


def _looped(body: Callable[[Turn, Any], Tensor]) -> Code:
    return Code(model=Dense(), body=body)


add("loop: mean of the first batch in a variable", LOOPS, lambda: _looped(loop_variable(mean)), "the first call")
add("loop: mean of the first batch that is no trial", ("loop",), lambda: _looped(real_ones(mean)), "the first step")
add(
    "loop: mean of the first batch in the scheduler",
    ("loop",),
    lambda: _looped(of_the_scheduler(mean)),
    "the first call",
)
add(
    "loop: mean of the first batch in the optimiser",
    ("loop",),
    lambda: _looped(of_the_optimizer(mean)),
    "the first call",
)
add("loop: learning rate by the first loss", ("loop",), lambda: _looped(rate_by_the_first_loss), "the first call")
add("loop: level of earlier losses", ("loop",), lambda: _looped(by_losses_before()), "all calls before", steps=4)
add("loop: queue of earlier batches", ("loop",), lambda: _looped(queue()), "steps before", steps=4)
add("loop: mean of the step before", ("loop",), lambda: _looped(normalised_by_steps()), "the step before", steps=4)
add("loop: mean of the last step but one", ("loop",), lambda: _looped(of_two_steps_before()), "steps before", steps=6)
add(
    "loop: mixed with the micro-batch before in steps 3 and 4",
    ("loop",),
    lambda: _looped(mixed_in_the_middle()),
    "micro-batches before",
    steps=8,
)
add(
    "loop: mean of the last full batch of the step before",
    ("loop",),
    lambda: _looped(of_full_batches()),
    "the step before",
    steps=5,
)
add(
    "loop: full batches counted",
    ("loop",),
    lambda: _looped(counting_full_batches()),
    "nothing",
    expected="harmless",
    steps=5,
)
add("loop: one at a time", ("loop",), lambda: _looped(plain), "nothing", expected="harmless", steps=3, micro_batch=1)
add(
    "loop: mean of the micro-batch before, one at a time",
    ("loop",),
    lambda: _looped(one_at_a_time()),
    "the micro-batch before",
    steps=3,
    micro_batch=1,
)
for _micro_batch in (None, 8):
    add(
        f"loop: mean of each step's first micro-batch of {_micro_batch or 'all'}",
        LOOPS,
        lambda: _looped(of_each_step()),
        "the micro-batch itself, or the first one of the step",
        steps=4,
        micro_batch=_micro_batch,
    )
for _loop_name, _body in {
    "table of shapes in a variable": lambda: loop_variable(table),
    "table of shapes in the scheduler": lambda: of_the_scheduler(table),
    "table of shapes in the optimiser": lambda: of_the_optimizer(table),
    "losses kept for a log": lambda: history,
    "temperature by the number of steps": lambda: of_done,
}.items():
    add(f"loop: {_loop_name}", ("loop",), lambda body=_body: _looped(body()), "nothing", expected="harmless", steps=4)


# Coupling that follows the step, the size or the call.


def centred(turn: Turn, batch: Any) -> Tensor:
    return plain(turn, (shifted(batch[0], -batch[0].mean(dim=0)), batch[1]))


def contrastive(turn: Turn, batch: Any) -> Tensor:
    """InfoNCE: the other records of the batch are negatives."""
    scores = turn.model(batch[0])
    unit = F.normalize(scores, dim=1)
    return each(unit @ unit.T / 0.1, torch.arange(len(scores))) + each(scores, batch[1])


def at(condition: Callable[[Turn, Any], bool], coupled: Callable[[Turn, Any], Tensor] = centred) -> Any:
    return lambda turn, batch: coupled(turn, batch) if condition(turn, batch) else plain(turn, batch)


def fixmatch(turn: Turn, batch: Any) -> Tensor:
    """Pseudo-labels where the model is sure, divided by how many there are; it is sure of none at the start."""
    scores = turn.model(batch[0].clamp(-3, 3))
    shares = scores.detach().softmax(dim=1)
    mask = (shares.amax(dim=1) > 0.7).to(scores.dtype)
    return each(scores, batch[1]) + 20 * mask * each(scores, shares.argmax(dim=1)) / mask.sum().clamp(min=1)


def own_mask(turn: Turn, batch: Any) -> Tensor:
    scores = turn.model(batch[0].clamp(-3, 3))
    shares = scores.detach().softmax(dim=1)
    return each(scores, batch[1]) + (shares.amax(dim=1) > 0.9) * each(scores, shares.argmax(dim=1))


def of_the_micro_batch_before() -> Callable[[Turn, Any], Tensor]:
    """Within a step: the fourth of six micro-batches has the mean of the third one."""
    before: list[Tensor] = []

    def body(turn: Turn, batch: Any) -> Tensor:
        coupled = turn.private.done > 0 and turn.index == 3 and before
        by = before[0] if coupled else torch.zeros(())
        if turn.index == 2:
            before[:] = [mean(batch[0])]
        return plain(turn, (shifted(batch[0], by), batch[1]))

    return body


_STEPS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "contrastive loss at every third step": (
        lambda: at(lambda turn, _: turn.private.done > 0 and turn.private.done % 3 == 0, contrastive),
        {"steps": 8},
    ),
    "coupled after 130 steps": (lambda: at(lambda turn, _: turn.private.done > 130), {"steps": 134, "grows": 1.0}),
    "coupled in the last step": (
        lambda: at(lambda turn, _: turn.private.done == turn.private.planned - 1),
        {"steps": 7},
    ),
    "coupled at every seventh step": (lambda: at(lambda turn, _: turn.private.done % 7 == 6), {"steps": 8}),
    "coupled from the second epoch": (lambda: at(lambda turn, _: turn.private.done >= 1), {"steps": 3}),
    "coupled at one step": (lambda: at(lambda turn, _: turn.private.done == 3), {"steps": 6}),
    "coupled in batches larger than 20": (lambda: at(lambda _, batch: len(batch[1]) > 20), {}),
    "coupled in batches that are not full": (
        lambda: at(lambda turn, batch: turn.private.done > 0 and len(batch[1]) < 10),
        {"micro_batch": 10, "steps": 4},
    ),
    "FixMatch's mask.sum()": (lambda: fixmatch, {"steps": 16, "grows": 1.15}),
    "the micro-batch before, in the fourth of six": (of_the_micro_batch_before, {"micro_batch": 4, "steps": 4}),
    "coupled in the fourth of six micro-batches": (
        lambda: at(lambda turn, _: turn.private.done > 0 and turn.index == 3),
        {"micro_batch": 4, "steps": 4},
    ),
}
for _loop_name, (_body, _options) in _STEPS.items():
    add(f"loop: {_loop_name}", ("loop",), lambda body=_body: _looped(body()), "some steps", **_options)

add(
    "loop: FixMatch's own mask",
    ("loop",),
    lambda: _looped(own_mask),
    "nothing",
    expected="harmless",
    steps=8,
    grows=1.15,
)
add(
    "loop: another loss at every third step",
    ("loop",),
    lambda: _looped(at(lambda turn, _: turn.private.done % 3 == 2, of_done)),
    "nothing",
    expected="harmless",
    steps=6,
)
add(
    "loop: another loss in the last step",
    ("loop",),
    lambda: _looped(at(lambda turn, _: turn.private.done == turn.private.planned - 1, of_done)),
    "nothing",
    expected="harmless",
    steps=4,
)
