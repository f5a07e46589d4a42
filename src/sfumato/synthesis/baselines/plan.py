"""A baseline as a plan: from health records to a synthesizer, in one run.

There is no noise and no guarantee, and the statement says so.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.runs import Run, share_cores
from sfumato.synthesis.baselines.course import BaselineResult, Course
from sfumato.synthesis.baselines.settings import BaselineSettings
from sfumato.synthesis.steps import Progress

_SAVE_EVERY = 60.0


@dataclass(frozen=True, kw_only=True)
class BaselinePlan(BaselineSettings):
    """A plan that can be fitted; its fields are those of `BaselineSettings`, and those of each GAN."""

    def fit(
        self,
        data: EHRDataset,
        *,
        out: Path | str | None = None,
        resume: bool = False,
        about: dict[str, Any] | None = None,
        progress: Progress | None = None,
        save_every: float = _SAVE_EVERY,
    ) -> BaselineResult:
        """Learn from health records.

        Args:
            data: the records.
            out: the run's folder; None keeps all in memory.
            resume: go on with the run in `out`.
            about: JSON for plan.json and the model's file; public.
            progress: is told the stage, how many of its steps are taken, and of how many.
            save_every: seconds between checkpoints, >= 0.

        Raises:
            InputError: a mistake in the plan, the data or the folder, or a stage diverged.
        """
        if not isinstance(data, EHRDataset):
            raise InputError(f"data must be health records (EHRDataset), got {type(data).__name__}")
        share_cores()
        told = {**self.to_json(), "about": about or {}}
        with Run.open(out, plan=told, seed=self.seed, resume=resume) as run:
            course = Course(
                settings=self, data=data, about=about or {}, progress=progress or _silent, save_every=save_every
            )
            return course.go(run, resume=resume)


def _silent(what: str, done: int, of: int) -> None:
    """Tell nobody."""
