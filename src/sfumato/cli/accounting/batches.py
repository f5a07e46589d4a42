"""What `account` and `calibrate` share: a run of batches of examples, the delta to read it at, and groups.

Guarantees the sampling rate and the steps of `sfumato dpsgd` with the same examples, batch size and epochs (or steps),
and where delta is left out the delta that it would choose.
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
    """A run on batches of examples.

    Attributes:
        examples: number of examples; with --batch-size, in the place of --sampling-rate.
        batch_size: examples in a batch, on average (Poisson sampling).
        epochs: how often each example is seen, on average; half an epoch is 0.5. In the place of --steps.
        examples_per_user: the unit is a user with up to this many examples, all of which may change at once.
        delta: in (0, 1), well below 1 / population; if left out, 0.01 / examples as in dpsgd, or 1e-5 where their
            number is not told.
    """

    examples: int | None = None
    batch_size: int | None = None
    epochs: float | None = None
    examples_per_user: int = 1
    delta: float | None = None

    def rate_and_steps(self, sampling_rate: float | None, steps: int | None) -> tuple[float | None, int | None]:
        """The sampling rate and the steps of the run, each by its own option or by the examples; None if by neither.

        Args:
            sampling_rate: as --sampling-rate has it, None where it was left out.
            steps: as --steps has it, likewise.

        Raises:
            InputError: one of the options is missing or given twice over, or is not possible.
        """
        given = {"--examples": self.examples, "--batch-size": self.batch_size}
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == len(given) and self.epochs is None:
            return sampling_rate, steps
        if missing:
            raise InputError(
                "--examples and --batch-size belong together, with --epochs or --steps; "
                f"give {' and '.join(missing)} too"
            )
        if sampling_rate is not None:
            raise InputError("--examples and --batch-size take the place of --sampling-rate; leave one of them out")
        if self.epochs is not None and steps is not None:
            raise InputError("--epochs takes the place of --steps; leave one of them out")
        examples, batch_size, epochs = self.examples or 0, self.batch_size or 0, self.epochs
        whole(examples=examples, batch_size=batch_size)
        if batch_size > examples:
            raise InputError(f"batch_size must be <= examples ({examples}), got {batch_size}")
        if epochs is None:
            return batch_size / examples, steps
        positive(epochs=epochs)
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
        if self.examples is None or self.batch_size is None:
            return f"taken to be: {run}"
        number = steps * self.batch_size / self.examples if self.epochs is None else self.epochs
        epochs = f"{number:.4g} epoch{'' if number == 1 else 's'}"
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
