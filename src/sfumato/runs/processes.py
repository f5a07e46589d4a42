"""Several processes on one cohort: `torchrun` splits the groups, one all-reduce a round puts the sum together.

Every process knows the run's key, so all draw the same cohort and the same noise, take the same server step and stay
equal without a broadcast. The noise is one draw in total: each process adds the same numbers to the same sum. A run
without torchrun is a team of one.

A process that dies ends the others: they notice at once where its connections break, and after `PATIENCE` where it only
falls silent.

References:
    DESIGN: "more than one machine: torch.distributed (torchrun, gloo/nccl)".
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Before a group begins: its functions keep the group of that moment as a default, for ever if there is one, and
# threads of gloo that are left at the interpreter's end may abort the process (exit -6, now and then).
import torch.distributed.nn.functional
from torch import Tensor

from sfumato._check import InputError, first_line

PATIENCE = timedelta(minutes=30)
"""How long to wait for a process that is silent: it may be measuring on a large test set."""


class Team:
    """The processes of one run.

    Attributes:
        rank: this process, from 0; rank 0 writes files and shows progress.
        size: number of processes.
    """

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self._started = False
        if self.size > 1 and not dist.is_initialized():
            with _one_line_errors():
                dist.init_process_group("gloo", timeout=PATIENCE)
            self._started = True

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    @property
    def part(self) -> slice:
        """This process's part of a list of work."""
        return slice(self.rank, None, self.size)

    def all_reduce(self, values: Tensor) -> Tensor:
        """Sum over the processes, in place."""
        if self.size > 1:
            with _one_line_errors():
                dist.all_reduce(values)
        return values

    def from_leader(self, value: Any) -> Any:
        """The leader's value (a small Python object), in every process."""
        if self.size == 1:
            return value
        box = [value]
        with _one_line_errors():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def broadcast(self, values: Tensor) -> Tensor:
        """The leader's tensor, in place, in every process."""
        if self.size > 1:
            with _one_line_errors():
                dist.broadcast(values, src=0)
        return values

    def refuse_difference(self, fingerprint: str) -> None:
        """Stop every process where one has another plan, model or data set.

        Raises:
            InputError: in all of them.
        """
        differs = torch.tensor([float(self.from_leader(fingerprint) != fingerprint)])
        if self.all_reduce(differs).item():
            raise InputError(
                "the processes of this run have different plans, models or data sets; give every one of them the same"
            )

    def close(self) -> None:
        """Leave the team."""
        if self._started:
            dist.destroy_process_group()
            self._started = False


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn the end of another process, as the network reports it, into one line."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"another process of this run has ended or cannot be reached ({first_line(error)}); see its "
            "output, then start all again with resume=True (--resume)"
        ) from None


def share_cores() -> None:
    """Give each of this machine's processes its part of the cores, unless the user has set the number of threads."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if local > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, _cores() // local))


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
