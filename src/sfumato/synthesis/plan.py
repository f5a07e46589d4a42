"""EHR-Safe as a plan: from health records to a synthesizer, in one run.

With `epsilon` everything that is learned from records has noise added, and one statement says what the whole run costs
a patient. Without it there is no guarantee, and the statement says so: what was generated can reveal the patients that
were learned from, most of all of rare ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato._bar import Progress, silent
from sfumato._check import InputError
from sfumato._types import Algorithm
from sfumato.synthesis.settings import EHRSafeSettings

if TYPE_CHECKING:
    from sfumato.data.ehr.dataset import EHRDataset
    from sfumato.statement import Statement
    from sfumato.synthesis.run import EHRSafeResult


_SAVE_EVERY = 60.0
_NOISE = "noise_multipliers"  # in plan.json: of the tables, the autoencoder and the critic


@dataclass(frozen=True, kw_only=True)
class EHRSafe(EHRSafeSettings):
    """The plan; its fields are those of `EHRSafeSettings`."""

    def fit(
        self,
        data: EHRDataset,
        *,
        out: Path | str | None = None,
        resume: bool = False,
        about: dict[str, Any] | None = None,
        progress: Progress | None = None,
        save_every: float = _SAVE_EVERY,
    ) -> EHRSafeResult:
        """Learn from health records.

        Args:
            data: the records.
            out: the run's folder; None keeps all in memory.
            resume: go on with the run in `out`.
            about: JSON for plan.json and the model's file; public.
            progress: called with the stage ("categories", "sequences", "gan", "calibration", and "tables" first with
                epsilon), how much of it is done, and of how much.
            save_every: seconds between checkpoints, >= 0.

        Raises:
            InputError: a mistake in the plan, the data or the folder, nothing can be learned from the data
                (`refuse_unlearnable`; not asked with epsilon), or a stage diverged.
        """
        from sfumato.data.ehr.dataset import EHRDataset
        from sfumato.data.ehr.values import refuse_unlearnable
        from sfumato.runs import Run, RunFolder, share_cores
        from sfumato.synthesis.budget import Spending
        from sfumato.synthesis.run import EHRSafeRun

        if not isinstance(data, EHRDataset):
            raise InputError(f"data must be health records (EHRDataset), got {type(data).__name__}")
        if self.epsilon is None:  # with epsilon, not refusing would reveal a patient
            refuse_unlearnable(data)
        share_cores()
        settings = self.sized(len(data))
        written: dict[str, Any] = {**settings.to_json(), "about": about or {}}
        spending = None
        if self.epsilon is not None:
            recorded = {} if out is None else RunFolder(out).recorded(resume=resume)
            spending = Spending.of(settings, data.schema, len(data), recorded=recorded.get(_NOISE))
            written[_NOISE] = spending.noise_multipliers
        this = EHRSafeRun(
            settings=settings,
            data=data,
            about=about or {},
            progress=progress or silent,
            save_every=save_every,
            spending=spending,
        )
        with Run.open(out, plan=written, seed=self.seed, resume=resume) as run:
            return this.go(run, resume=resume)

    def try_out(self, data: EHRDataset) -> Statement:
        """What `fit` would state at its end; nothing is learned or written.

        Args:
            data: the records; of them only the schema, the number of patients and their assumptions are read.

        Raises:
            InputError: as `fit`, for a mistake in the plan or the schema.
        """
        from sfumato.statement.facts import make_statement
        from sfumato.synthesis.budget import Spending, private_facts

        source = "os" if self.seed is None else "seeded"
        if self.epsilon is None:
            return make_statement(self.event(), self.facts(len(data), data.schema.unit), noise_source=source)
        settings = self.sized(len(data))
        spending = Spending.of(settings, data.schema, len(data))
        return make_statement(spending.event(), private_facts(settings, spending, data), noise_source=source)


ALGORITHM = Algorithm(
    name="ehr_safe",
    package="sfumato.synthesis",
    plan="EHRSafe",
    records="ehr",
    title="EHR-Safe",
    summary="learn from health records, to make new ones like them",
    about="Learn from health records, to make new ones like them. They have visits at irregular times, missing values, "
    "and what does not change about a patient. Some patients are held out to measure by. Synthetic is not private: "
    "without noise there is no guarantee, and the statement says so.",
    example="sfumato ehr fit --data patients --dry-run",
    matters="data events id time holdout_share out resume dry_run epsilon horizon",
    command="ehr fit",
    reader="Synthesizer.load",
)
