"""Scalars, hyperparameters and the statement in an event file of TensorBoard.

A run that goes on writes into the same folder; the rounds that it repeats take the place of those that were there.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato.logs.log import Log, package
from sfumato.logs.scalars import of_plan

_RESULTS = {"statement/epsilon": 0.0, "statement/delta": 0.0}


class TensorBoard(Log):
    """Into a folder that `tensorboard --logdir` shows.

    Args:
        folder: of this run; a run that begins anew hides what an earlier one has written there.
        private: log what is private, too: see `Log`.
        public_evaluation: see `Log`.

    Raises:
        InputError: tensorboard is not installed, or the folder is a file.
    """

    service = "TensorBoard"

    def __init__(self, folder: str | Path, *, private: bool = False, public_evaluation: bool = False) -> None:
        super().__init__(private=private, public_evaluation=public_evaluation)
        self._folder = Path(folder)
        self.where = str(self._folder)
        self._torch = package("tensorboard", module="torch.utils.tensorboard", extra="tensorboard")
        self._summary = package("tensorboard", module="torch.utils.tensorboard.summary", extra="tensorboard")
        taken = next((path for path in (self._folder, *self._folder.parents) if path.exists()), None)
        if taken is not None and not taken.is_dir():
            raise InputError(f"TensorBoard needs a folder, and {taken} is a file; give another path")

    def begin(self, plan: Mapping[str, Any], done: int) -> None:
        """The folder; the event file begins with the first numbers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._time = None if self.private else time.time()
        begun, started, self._ended = self._summary.hparams(of_plan(plan), _RESULTS)
        self._first = () if done else (begun, started)
        self._writer: Any = None

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Scalars; on the disk at once, so that a run that is killed and goes on leaves no gap."""
        if self._writer is None:  # what comes again takes the place of what was there from here on
            _wait_for_a_later_name(self._folder)
            self._writer = self._torch.SummaryWriter(self._folder, purge_step=round)
            for each in self._first:
                self._writer.file_writer.add_summary(each, 0, self._time)
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round, walltime=self._time)
        self._writer.flush()

    def end(self, round: int, numbers: Mapping[str, float], statement: str, *, finished: bool) -> None:
        """The statement as a text, its ε and δ as scalars; not again where no round was left to do."""
        if self._writer is None:
            return
        self.write(round, numbers)
        self._writer.add_text("statement", statement, round, walltime=self._time)
        if finished:
            self._writer.file_writer.add_summary(self._ended, round, self._time)
        self._writer.close()


def _wait_for_a_later_name(folder: Path) -> None:
    """Event files are read in the order of their names, in which the second comes first: no two begin in the same."""
    while any(folder.glob(f"events.out.tfevents.{int(time.time()):010d}.*")):
        time.sleep(0.05)
