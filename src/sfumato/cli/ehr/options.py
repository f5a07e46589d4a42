"""Options of plans that learn from health records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from sfumato._check import InputError
from sfumato.algorithms import SYNTHETIC
from sfumato.cli.ehr.patients import PatientOptions
from sfumato.cli.parse import CommonOptions

P = TypeVar("P")

DEFAULT = next(iter(SYNTHETIC))
"""The plan where nobody chooses one."""

_BASELINES = ("timegan", "rcgan", "crnngan")  # plans of earlier versions, whose runs are still there


def refuse_baseline(plan: object, run: Path) -> None:
    """Refuse the run of a plan that is in a recipe now.

    Raises:
        InputError: it is one; names the recipe.
    """
    if plan in _BASELINES:
        raise InputError(f"{run} is a run of {plan}, which only recipes/ehr_baselines reads and goes on with; use that")


@dataclass(frozen=True, kw_only=True)
class SynthesisRun(CommonOptions):
    """The run.

    Attributes:
        model: what learns, by its plan's name; --help-all behind it shows its own options.
        out: folder of the run; it must be new or empty. Without it, the next free one of runs/COMMAND-1, -2, …
        resume: go on with the run in this folder; everything else is read from its plan.json.
        dry_run: read the records, print the plan and its statement, and learn nothing.
        checkpoint_minutes: save at the latest after so many minutes.
        threads: CPU threads; None leaves it to torch.
    """

    model: str = DEFAULT
    out: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    checkpoint_minutes: float = 1.0
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class SynthesisTraining(Generic[P]):
    """Options of a plan that learns from health records.

    Attributes:
        run: Where the run goes, and how it is watched and saved.
        data: The records, and which patients are held out to measure by.
        plan: What learns, and how.
    """

    run: SynthesisRun
    data: PatientOptions
    plan: P
