"""Does what a user brings let one unit reach another? One check for every place where a user's code runs for one unit.

The clipped sum moves by no more than its bound when a unit comes or goes if what all others contribute stays. A model,
a loss, a data set or a loop that keeps something of a unit it has seen breaks this. The check has two halves, at the
start of a run:

1. In fresh processes (see `fresh`), which begin as this one does, the same units go through in two orders. Each unit
   must give the same in both, and the second time: so nothing that an earlier one leaves behind may count, wherever it
   is kept. Where there are no fresh processes, the two orders run here, one after the other, behind 2.
2. Placeholders, which hold the shapes and types of records and none of their values, are the first that go through in
   this process. What only the first call decides follows from them.

While a run goes on, `refuse_memory` compares, at some steps, what a few units give behind two histories that differ in
nothing but the records.

Where a process cannot be forked, and the user's code takes no placeholders, there is a gap; `Findings` names it, and
the statement has a sentence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.guard.fresh import histories, shared_files, watched, without_files
from sfumato.guard.trial import SAME_SHAPE, Coupled, Tolerance


class Subject(Protocol):
    """One place where a user's code runs for one unit.

    Attributes:
        kept: the message where a unit's outcome depends on those that came before, with the remedy.
        tolerance: how much of a difference is round-off; None where outcomes are equal to the last bit.
    """

    kept: str
    tolerance: Tolerance | None

    def placeholders(self) -> None:
        """Put placeholders through the user's code, which may raise whatever it raises."""

    def outcomes(self, units: Sequence[int]) -> Tensor:
        """What each of some units gives, in turn, float64 [n, k]; each begins with what every unit begins with."""
        ...


@dataclass(frozen=True)
class Findings:
    """What the check of a subject could try.

    Attributes:
        fresh: whether two orders were compared in fresh processes.
        placeholders: whether placeholders went through first.
        refusal: why the subject is refused; None where each unit gave the same in both orders.
    """

    fresh: bool
    placeholders: bool
    refusal: str | None = None

    def refuse(self) -> "Findings":
        """These findings.

        Raises:
            Coupled: a unit's outcome depends on those that came before it.
        """
        if self.refusal is not None:
            raise Coupled(self.refusal)
        return self

    def sentences(self, unit: str, *, untried: bool = False) -> list[Assumption]:
        """What the statement has to add; mostly nothing.

        Args:
            unit: whose contribution it is.
            untried: whether a trial in fresh processes failed later, though there are such processes.
        """
        if self.fresh:
            return [Assumption("some_untried", {"unit": unit})] if untried else []
        id = "no_fresh_processes" if self.placeholders else "no_fresh_processes_nor_placeholders"
        return [Assumption(id, {"unit": unit})]


def try_out(subject: Subject, units: Sequence[int], *, at_once: bool = True) -> Findings:
    """Compare units in two orders, and let placeholders be the first that go through in this process.

    Args:
        subject: what is tried.
        units: really different ones; two or more show something.
        at_once: False where fresh processes would share open files.

    Returns:
        what was found; a check that names the layer may come before `Findings.refuse`.
    """
    orders = [list(units), list(units)[::-1]]

    def work(order: Sequence[int]) -> Callable[[], Tensor]:
        return lambda: torch.stack([subject.outcomes(order), subject.outcomes(order)])

    refusal = None
    seen = watched([work(order) for order in orders], at_once=at_once)
    found = None if seen is None else [each.result for each in seen]
    files = [] if seen is None else shared_files(seen)
    if files:
        found = without_files([work(order) for order in orders], files) or found
    if found is not None and not _same(found, subject.tolerance):
        again = histories([work(orders[0])]) if not files else [found[0]]
        if again is not None and equal(again[0], found[0], subject.tolerance):
            refusal = subject.kept
        else:  # the code gives something else each time, as other checks report
            found = None
    taken = True
    try:
        subject.placeholders()
    except Exception:  # whatever the user's own code raises where it is given what no record is
        taken = False
    if found is None:
        try:
            same = _same([work(order)() for order in orders], subject.tolerance)
        except Exception as error:  # a tensor of an earlier operation was kept; anything else others report better
            same = not any(word in str(error) for word in ("vmap", "functorch"))
        refusal = refusal if same else subject.kept
    return Findings(fresh=found is not None, placeholders=taken, refusal=refusal)


def _same(found: Sequence[Tensor], tolerance: Tolerance | None) -> bool:
    """Whether each unit gave the same in both orders, both times; two tensors [2, n, k]."""
    forward, backward = found
    return equal(forward, backward.flip(1), tolerance) and equal(forward[:1], forward[1:], tolerance)


def equal(one: Tensor, other: Tensor, tolerance: Tolerance | None) -> bool:
    """Whether outcomes are the same; without a tolerance to the last bit."""
    if one.shape != other.shape:
        return False
    if tolerance is None:
        return torch.equal(one.nan_to_num(), other.nan_to_num())
    finite = other.isfinite()
    if not torch.equal(one.isfinite(), finite):
        return False
    scale = float(other.nan_to_num(0.0, 0.0, 0.0).abs().max()) if other.numel() else 0.0
    return tolerance.holds(one, other, scale)


def due(step: int, steps: int, source: RandomSource, *, seldom: bool = False) -> bool:
    """Whether a step is looked at: the first and the last one, and others by chance, more of them early.

    A step from 0 is looked at with chance 4 / (step + 4) + 1/64, or, where it costs fresh processes, half of that.
    Nobody without the run's key knows which ones.

    Args:
        step: from 0.
        steps: of the whole run.
        source: the run's randomness.
        seldom: half as often.
    """
    if step in (0, steps - 1):
        return True
    chance = (4.0 / (step + 4) + 1 / 64) / (2 if seldom else 1)
    return bool(source.stream("look", step, int(seldom)).uniform(1)[0] < chance)


Outcomes = Callable[[Sequence[int]], Tensor]
"""From units that go through first to what a few others give behind them, float64 [n, k]."""


class Looked(NamedTuple):
    """That two histories were compared, and what `now` gave in them."""

    now: Tensor | None


def refuse_memory(
    outcomes: Outcomes,
    befores: tuple[Sequence[int], Sequence[int]],
    message: str,
    tolerance: Tolerance | None = SAME_SHAPE,
    now: Callable[[], Tensor] | None = None,
) -> Looked | None:
    """While a run goes on: what a few units give behind one history and behind another of the same length.

    Args:
        outcomes: of the few, behind a history.
        befores: units of two histories.
        message: of the refusal.
        tolerance: as in `Subject`.
        now: runs first in both processes, and leaves the weights as they were; what it gives must be the same.

    Returns:
        what that gives; None where no two histories could be compared: there are no fresh processes, or the code
        raised something in one, or took too long.

    Raises:
        Coupled: they give something else; the step must not be released.
    """

    def work(before: Sequence[int]) -> tuple[Tensor | None, Tensor]:
        return None if now is None else now(), outcomes(before)

    works = [partial(work, before) for before in befores]
    found = histories(works)
    if found is None:
        return None
    (first, one), (_, other) = found
    if not equal(one, other, tolerance):
        again = histories(works[:1])
        if again is not None and equal(again[0][1], one, tolerance):
            raise Coupled(message)
    return Looked(first)
