"""What all logs share: what is told, by which process, and that a run outlives its log.

Told are the plan, and for each round what the guarantee covers: ε so far, clip norm, learning rate. Losses, cohort
sizes, shares that were clipped and seconds were computed without noise: they are logged with `private=True` only, under
names that begin with "private/", and are outside of the guarantee, as the statement of that run then says. So is what
was measured, unless the data to measure on are public.

How long a round took tells how many took part. So the times of the numbers are that of the start where a format lets
us choose; who can watch them arrive sees more.
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, final

from torch import nn

from sfumato._check import InputError, first_line
from sfumato.logs import scalars
from sfumato.runs.team import Team
from sfumato.training import Callback, Result


class Log(Callback):
    """Inherit from it for a log of your own: three methods.

    Args:
        private: log what was computed from private records without noise, too.
        public_evaluation: the data to measure on are public, so what was measured may be logged.

    Attributes:
        service: what keeps it.
        where: its place there.
        failures: what its library raises where it cannot write.
    """

    service: ClassVar[str]
    where: str
    failures: tuple[type[Exception], ...] = (OSError,)
    _REASON: ClassVar[int] = 200  # characters of what a library says

    def __init__(self, *, private: bool = False, public_evaluation: bool = False) -> None:
        self.private, self.public_evaluation = private, public_evaluation
        self._open = False

    @abstractmethod
    def begin(self, plan: Mapping[str, Any], done: int) -> None:
        """Open it.

        Args:
            plan: its fields.
            done: rounds that were done before; of a run that goes on, what comes after them comes again.
        """

    @abstractmethod
    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Write named numbers of a round."""

    @abstractmethod
    def end(self, round: int, numbers: Mapping[str, float], statement: str, *, finished: bool) -> None:
        """Write the last numbers and the statement, and close it.

        Args:
            round: rounds done.
            numbers: ε and δ of the statement, and what was measured.
            statement: its text.
            finished: whether all rounds ran.
        """

    @final
    def assumptions(self) -> list[str]:
        """What the statement says of a log that holds private numbers."""
        if not self.private:
            return []
        return [
            f"Losses, counts and times of the rounds were logged to {self.service}. They were computed without noise: "
            "against those who can read that log, no figure here holds."
        ]

    @final
    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Open it, in the first of several processes."""
        if not Team().leads:
            return
        try:
            self.begin(plan, done)
        except self.failures as error:
            raise self.unusable(error) from error
        self._open = True

    @final
    def on_round(self, row: dict[str, Any]) -> None:
        """Log a round."""
        self._write(row["round"], scalars.of_round(row, private=self.private))

    @final
    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        """Log what was measured on the validation data."""
        self._write(row["round"], self._measured(row, "validation"))

    @final
    def on_end(self, result: Result) -> None:
        """Log the statement, and close."""
        statement = result.statement
        numbers = {"statement/epsilon": statement.epsilon, "statement/delta": statement.delta}
        numbers = {name: value for name, value in numbers.items() if math.isfinite(value)}
        numbers |= self._measured(result.evaluation.get("trained", {}), "test")
        seen = result.evaluation.get("seen", {})
        numbers |= scalars.of_evaluation(seen, "seen", private=self.private, public=False)
        done = result.history[-1]["round"] if result.history else 0
        self._outlive(lambda: self.end(done, numbers, statement.text(), finished=result.finished))
        self._open = False

    def unusable(self, error: Exception) -> InputError:
        """The one line for a log that cannot be opened."""
        return InputError(f"{self._name} cannot be opened: {self._told(error)}; mend it, or leave this log out")

    @property
    def _name(self) -> str:
        return f"the log in {self.service} ({self.where})"

    def _measured(self, row: Mapping[str, Any], data: str) -> dict[str, float]:
        return scalars.of_evaluation(row, data, private=self.private, public=self.public_evaluation)

    def _write(self, round: int, numbers: Mapping[str, float]) -> None:
        if numbers:
            self._outlive(lambda: self.write(round, numbers))

    def _outlive(self, write: Callable[[], None]) -> None:
        """Write, if it is open; a log that breaks costs its rows and not the run."""
        if not self._open:
            return
        try:
            write()
        except self.failures as error:
            self._open = False
            warnings.warn(f"{self._name} takes no more ({self._told(error)}); the run goes on without it", stacklevel=4)

    def _told(self, error: Exception) -> str:
        return first_line(error)[: self._REASON]


def package(name: str, *, module: str, extra: str) -> Any:
    """A library that only this kind of log needs.

    Args:
        name: of the package.
        module: what to import.
        extra: of sfumato, that installs it.

    Raises:
        InputError: it is not there; says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"this log needs the package {name}, which cannot be imported ({first_line(error)}); install it with: "
            f"pip install 'sfumato[{extra}]'"
        ) from None
