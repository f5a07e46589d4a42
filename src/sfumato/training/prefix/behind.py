"""A course of training that goes on behind the frozen first layers of its model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from sfumato._bar import bar
from sfumato._check import InputError
from sfumato.runs import RunFolder, Team
from sfumato.runs.checkpoint import FROZEN, load_frozen
from sfumato.training.course import Course
from sfumato.training.prefix.cache import PrefixCache, cut_for
from sfumato.training.prefix.split import Split
from sfumato.training.told.callback import Callback
from sfumato.training.trainable import copied


def behind_prefix(
    course: Course, folder: Path, callback: Callback, *, run: Path | None, progress: bool
) -> tuple[Course, Callback]:
    """The course on what the frozen layers make of its records, with the rest of its model; it releases the whole.

    Of several processes, the first one makes what is not there yet, and the others wait for it.

    Args:
        course: on the records themselves.
        folder: where rows are kept.
        callback: is to be told of the whole model.
        run: the folder of a run that goes on: its frozen layers count, whatever the model begins with.
        progress: show on stderr how it goes.

    Returns:
        the course, and the callback for it.

    Raises:
        InputError: as `cut_for` and `PrefixCache`; or the plan or an opening change the records during the run.
    """
    if run is not None and isinstance(course.model, nn.Module):
        checkpoint, model = RunFolder(run).checkpoint, copied(course.model)
        if (checkpoint / FROZEN).exists():  # where it is not, the run says so in its own words
            try:
                model.load_state_dict(load_frozen(checkpoint), strict=False)
            except RuntimeError:
                raise InputError(
                    f"the checkpoint in {run} is from a model of other shapes; resume with the same one, or choose "
                    "another folder"
                ) from None
        course = replace(course, model=model)
    halves = refuse_uncut(course)
    with (
        _of_the_run(run),
        _in_turn() as leads,
        bar("records through the frozen layers", visible=progress and leads) as show,
    ):
        cache = PrefixCache(folder, halves, device=course.device, progress=lambda _, done, of: show(done, of))
        parts = {
            name: None if given is None else cache.through(given, name)
            for name, given in {"data": course.data, "validation": course.validation, "test": course.test}.items()
        }
        negatives = course.negatives
        if negatives is not None:
            negatives = negatives.through(lambda given: cache.through(given, "negatives"))
    course = replace(
        course, model=halves.rest, joined=halves.joined, beside=halves.beside(), negatives=negatives, **parts
    )
    return course, _OfTheWhole(callback, halves.joined)


def refuse_uncut(course: Course) -> Split:
    """The model of a course in two.

    Raises:
        InputError: it cannot be cut, or something before the cut changes in every round.
    """
    course.plan.refuse_prefix()
    if course.opening is not None:
        raise InputError(
            f"with an opening, the records are known after the {course.opening.phase} is released, so nothing can be "
            "kept of them before; leave out prefix_cache (--prefix-cache)"
        )
    assert isinstance(course.model, nn.Module)
    return cut_for(course.model, course.plan.trainable, course.data, course.device)


class _OfTheWhole(Callback):
    """Callbacks that are told of the whole model where a part of it is trained.

    Args:
        told: those.
        joined: puts a trained part into the whole.
    """

    def __init__(self, told: Callback, joined: Callable[[nn.Module], nn.Module]) -> None:
        self._told, self._joined = told, joined
        self.on_start, self.on_round, self.on_checkpoint = told.on_start, told.on_round, told.on_checkpoint
        self.on_end, self.assumptions = told.on_end, told.assumptions

    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        """Tell of the whole."""
        self._told.on_evaluation(row, self._joined(model))


@contextmanager
def _of_the_run(run: Path | None) -> Iterator[None]:
    """Say of a cache that is of no use that a run which goes on would refuse another one, too."""
    try:
        yield
    except InputError as error:
        if run is None:
            raise
        raise InputError(f"{error}; the run in {run} goes on with the layers and records that it began with") from None


@contextmanager
def _in_turn() -> Iterator[bool]:
    """The first process of a team alone, then the others; tells whether this is the first."""
    team = Team()
    try:
        if not team.leads:
            team.from_leader(None)
        yield team.leads
        if team.leads:
            team.from_leader(None)
    finally:
        team.close()
