"""What `account` and `calibrate` share: a run told as epochs over examples, the delta to read it at, and groups.

Guarantees the sampling rate and the steps of `sfumato dpsgd` with the same examples, batch size and epochs, and where
delta is left out the delta that it would choose.
"""

import math
from dataclasses import dataclass

from sfumato._check import InputError, between, positive, whole
from sfumato.accounting.statement.delta import DEFAULT, default_delta
from sfumato.cli.parse import CommonOptions

UNCHOSEN_DELTA = 1e-5
"""Where nobody chose a delta, and nobody told of how many."""

REMEDY = "choose it well below 1 / population"


@dataclass(frozen=True, kw_only=True)
class BatchOptions(CommonOptions):
    """A run of epochs over examples.

    Attributes:
        examples: number of examples; with --batch-size and --epochs, in the place of --sampling-rate and --steps.
        batch_size: examples in a batch, on average (Poisson sampling).
        epochs: how often each example is seen, on average; half an epoch is 0.5.
        examples_per_user: the unit is a user with up to this many examples, all of which may change at once.
        delta: in (0, 1), well below 1 / population; if left out, 0.01 / examples as in dpsgd, or 1e-5 where their
            number is not told.
    """

    examples: int | None = None
    batch_size: int | None = None
    epochs: float | None = None
    examples_per_user: int = 1
    delta: float | None = None

    def rate_and_steps(self) -> tuple[float, int] | None:
        """The sampling rate and the steps of these epochs; None where none were given.

        Raises:
            InputError: a part of the three is missing, or is not possible.
        """
        given = {"examples": self.examples, "batch_size": self.batch_size, "epochs": self.epochs}
        missing = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is None]
        if len(missing) == len(given):
            return None
        if missing:
            raise InputError(f"--examples, --batch-size and --epochs belong together; give {' and '.join(missing)} too")
        examples, batch_size, epochs = self.examples or 0, self.batch_size or 0, self.epochs or 0.0
        whole(examples=examples, batch_size=batch_size)
        positive(epochs=epochs)
        if batch_size > examples:
            raise InputError(f"batch_size must be <= examples ({examples}), got {batch_size}")
        if epochs * examples < batch_size:
            raise InputError(
                f"epochs must be at least one step, {batch_size / examples:.4g} for batches of {batch_size:,} of "
                f"{examples:,} examples, got {epochs:g}"
            )
        return batch_size / examples, math.ceil(epochs * examples / batch_size)

    def in_words(self, sampling_rate: float, steps: int) -> str:
        """What the run was taken to be, in one line.

        Args:
            sampling_rate: of a step.
            steps: of the run.
        """
        run = f"{steps:,} step{'' if steps == 1 else 's'} at sampling rate {sampling_rate:.4g}"
        if self.examples is None or self.batch_size is None or self.epochs is None:
            return f"taken to be: {run}"
        epochs = f"{self.epochs:g} epoch{'' if self.epochs == 1 else 's'}"
        return f"taken to be: {self.examples:,} examples, batches of {self.batch_size:,}, {epochs}: {run}"


@dataclass(frozen=True)
class ChosenDelta:
    """Where epsilon is read.

    Attributes:
        value: in (0, 1).
        note: which rule chose it, for people; empty where they did.
    """

    value: float
    note: str = ""


def chosen_delta(given: float | None, population: int | None) -> ChosenDelta:
    """The delta that was given, or else what is usual.

    Args:
        given: in (0, 1); None for the usual one.
        population: of the units, or None where it is not known.
    """
    if given is not None:
        between(0, 1, ends="()", delta=given, remedy=REMEDY)
        return ChosenDelta(given)
    if population is not None:
        delta = default_delta(population)
        return ChosenDelta(delta, f"delta {delta:.4g} = {DEFAULT:g} / {population:,}, as sfumato dpsgd chooses it")
    return ChosenDelta(UNCHOSEN_DELTA, f"delta {UNCHOSEN_DELTA:g}, as none was given; {REMEDY}")
