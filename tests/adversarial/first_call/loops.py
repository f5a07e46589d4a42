"""Custom loops that keep something of the first batch, or that couple at some steps only."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from adversarial.first_call.specimen import FEATURES, LOOPS, Code, Dense, Turn, Value, add, mean, plain, shifted, table
from adversarial.specimens import each

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
for _name, _body in {
    "table of shapes in a variable": lambda: loop_variable(table),
    "table of shapes in the scheduler": lambda: of_the_scheduler(table),
    "table of shapes in the optimiser": lambda: of_the_optimizer(table),
    "losses kept for a log": lambda: history,
    "temperature by the number of steps": lambda: of_done,
}.items():
    add(f"loop: {_name}", ("loop",), lambda body=_body: _looped(body()), "nothing", expected="harmless", steps=4)


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
for _name, (_body, _options) in _STEPS.items():
    add(f"loop: {_name}", ("loop",), lambda body=_body: _looped(body()), "some steps", **_options)

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
