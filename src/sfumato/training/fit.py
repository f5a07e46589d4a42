"""Fitting a plan to data: one run, from the first check to the released files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sfumato._check import InputError
from sfumato.accounting import Budget
from sfumato.runs import Run, RunFolder, share_cores
from sfumato.training.contribution import Contribution
from sfumato.training.course import Course, ModelBuilder
from sfumato.training.loop import Cadence
from sfumato.training.opening import Opening
from sfumato.training.plan import ContributionFactory, Plan
from sfumato.training.prefix.behind import behind_prefix, refuse_uncut
from sfumato.training.prefix.cache import refuse_folder
from sfumato.training.result import Result
from sfumato.training.server import OptimizerFactory
from sfumato.training.task import Task
from sfumato.training.told.callback import Callback, Callbacks

_NEGATIVES = "negatives_digest"  # in plan.json, beside the path


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Plan):
    """A plan that trains a model by rounds of a private sum."""

    def fit(
        self,
        model: nn.Module | ModelBuilder,
        data: Any,
        *,
        out: str | Path | None = None,
        resume: bool = False,
        validation: Any = None,
        test: Any = None,
        cadence: Cadence | None = None,
        progress: bool = False,
        server_optimizer: OptimizerFactory | None = None,
        about: dict[str, Any] | None = None,
        device: str = "cpu",
        budget: Budget | None = None,
        task: Task | None = None,
        contribution: ContributionFactory | None = None,
        opening: Opening | None = None,
        negatives: Any = None,
        callbacks: Sequence[Callback] = (),
        prefix_cache: str | Path | None = None,
    ) -> Result:
        """Train, and say what it cost.

        Args:
            model: any torch module that gives what the plan trains; it is copied, never changed. With an opening, a
                function that builds it from what is public of the data to train on, as they are after the opening: the
                shape of inputs and the number of classes, no record.
            data: the private records.
            out: folder of the run; None keeps everything in memory.
            resume: go on from the checkpoint in `out`.
            validation: public data to measure during the run; what it shows is not covered by the guarantee.
            test: data to measure before the first and after the last round.
            cadence: when to evaluate and save.
            progress: show progress on stderr: a bar on a terminal, a line every half minute elsewhere.
            server_optimizer: builds any torch optimiser from the parameters, instead of the plan's by name.
            about: JSON that describes the model and the data, kept in plan.json.
            device: where to train.
            budget: what the run may cost; a round beyond it is refused.
            task: what the data must be and how a model is measured, instead of the plan's own.
            contribution: builds what the cohort adds, instead of the plan's own way.
            opening: what the run releases first, under the same ledger and statement, and what its data and its model
                follow from: a vocabulary (`PrivateVocabulary.opening`).
            negatives: public data whose classes join every client's head; for a plan with negatives_per_client.
            callbacks: are told of rounds, measurements and checkpoints; see `sfumato.training.Callback`.
            prefix_cache: a folder for what the frozen first layers make of the records (`training.prefix`): made once,
                used by every round and every run with the same layers and records. It is as private as the records.
                The run costs and releases the same; None puts every record through the whole model in every round.

        Raises:
            InputError: a mistake in the plan, the data or the folder; nothing is lost.
        """
        course = self._course(
            model,
            data,
            validation,
            test,
            about or {},
            device,
            task,
            contribution,
            server_optimizer,
            opening,
            negatives,
        )
        told_of: Callback = Callbacks(callbacks)
        told = {**course.about, **({} if course.opening is None else course.opening.about())}
        goes_on = Path(out) if resume and out is not None else None
        if goes_on is not None:
            course = course.as_begun(RunFolder(goes_on).recorded(resume=True))
        if course.negatives is not None:
            told[_NEGATIVES] = course.negatives.fingerprint()
            if goes_on is not None:
                _refuse_other_negatives(RunFolder(goes_on), course.negatives)
        plan = {**course.plan.to_json(), "about": told}
        if goes_on is not None:
            RunFolder(goes_on).refuse_another(plan)
        share_cores()
        if prefix_cache is not None:
            _refuse_within_run(Path(prefix_cache), out)
            course, told_of = behind_prefix(course, Path(prefix_cache), told_of, run=goes_on, progress=progress)
        with Run.open(out, plan=plan, seed=self.seed, resume=resume, budget=budget) as run:
            return course.go(run, cadence or Cadence(), resume=resume, progress=progress, callback=told_of)

    def try_out(
        self,
        model: nn.Module | ModelBuilder,
        data: Any,
        *,
        validation: Any = None,
        test: Any = None,
        device: str = "cpu",
        task: Task | None = None,
        contribution: ContributionFactory | None = None,
        opening: Opening | None = None,
        negatives: Any = None,
        prefix_cache: str | Path | None = None,
    ) -> Contribution:
        """All that `fit` does before its first round, on the same model and data; nothing is trained or written.

        Args:
            model: as for `fit`, like the others.
            data: the private records.
            validation: as there; measured once.
            test: as there; measured once.
            device: where to train.
            task: instead of the plan's own.
            contribution: instead of the plan's own way.
            opening: as there; it is tried out with something made up, and releases nothing.
            negatives: as there.
            prefix_cache: as there; the model is cut, and no record is put through it but some.

        Returns:
            what a cohort would add.

        Raises:
            InputError: what `fit` would refuse before its first round.
        """
        course = self._course(model, data, validation, test, {}, device, task, contribution, None, opening, negatives)
        share_cores()
        if prefix_cache is not None:
            refuse_folder(Path(prefix_cache))
            refuse_uncut(course)
        with Run.open(None, plan=course.plan.to_json(), seed=self.seed) as run:
            first, parts = course.rehearsed(run)
            first.measure_before(run, parts)
            return parts.contribution

    def _course(
        self,
        model: nn.Module | ModelBuilder,
        data: Any,
        validation: Any,
        test: Any,
        about: dict[str, Any],
        device: str,
        task: Task | None,
        contribution: ContributionFactory | None,
        optimizer: OptimizerFactory | None,
        opening: Opening | None,
        negatives: Any,
    ) -> Course:
        """What stays the same while a run goes on; refuses data of no use."""
        task = task or self.default_task()
        given_data = {"data": data, "validation": validation, "test": test, "negatives": negatives}
        for name, given in given_data.items():
            _refuse_arrays(given, name, self.unit)
        if negatives is not None:
            if contribution is not None:
                raise InputError("give negatives or a contribution of your own, not both")
            negatives = self.negatives_of(negatives, data)
        _refuse_other_model(model, opening)
        task.check(data)
        if not isinstance(model, nn.Module):
            self.refuse_found(getattr(data, "found", ()))
        population = self.public_population(data)
        plan = self.for_population(population)
        return Course(
            plan=plan,
            population=population,
            task=task,
            model=model,
            data=data,
            validation=validation,
            test=test,
            about=about,
            device=device,
            contribute=contribution,
            negatives=negatives,
            optimizer=optimizer,
            opening=None if opening is None else opening.decided(plan.delta_for(population)),
        )


def _refuse_other_model(model: Any, opening: Opening | None) -> None:
    """Refuse a module that is there before what decides its size, and a function where nothing calls it."""
    if opening is not None and (isinstance(model, nn.Module) or not callable(model)):
        raise InputError(
            f"with an opening, the model is built after the {opening.phase} is released: give a function of the data, "
            f"lambda data: models.lstm(vocabulary_size=data.num_classes), got {type(model).__name__}"
        )
    if opening is None and not isinstance(model, nn.Module):
        remedy = "a function that builds one is for a run with an opening"
        if isinstance(model, type):
            remedy = f"make one of the class: {model.__name__}()"
        raise InputError(f"model must be a torch module, got {type(model).__name__}; {remedy}")


def _refuse_other_negatives(folder: RunFolder, negatives: Any) -> None:
    """Refuse to go on beside other public examples than before."""
    then, now = (folder.read_plan().get("about") or {}).get(_NEGATIVES), negatives.fingerprint()
    if then not in (None, now):
        raise InputError(
            f"the negatives differ from those that the run in {folder.path} began with (SHA-256 {then[:12]}… then, "
            f"{now[:12]}… now); give the same ones again (negatives=, --negatives), or start a new run in another "
            "folder"
        )


def _refuse_within_run(prefix_cache: Path, out: str | Path | None) -> None:
    """Refuse private rows within the folder of a run."""
    if out is not None and prefix_cache.resolve().is_relative_to(Path(out).resolve()):
        raise InputError(
            f"prefix_cache must lie outside of the run's folder, got {prefix_cache} in {out}: its rows are as private "
            "as the records, and the folder of a run holds none of these; name another one (--prefix-cache)"
        )


def _refuse_arrays(given: Any, name: str, unit: str) -> None:
    """Refuse what other libraries train on: it does not say what one unit is, or how often a loader shows it."""
    if not isinstance(given, tuple | list | dict | np.ndarray | Tensor | DataLoader | Dataset):
        return
    if unit in ("example", "label"):
        remedy = (
            "make a data set with sfumato.data.examples_from_arrays(x, y, num_classes=…), or train in a loop of your "
            "own with plan.open(model, optimizer, dataset)"
        )
    else:
        remedy = "make a data set of users with sfumato.data.from_arrays"
    raise InputError(f"{name} must be a data set of sfumato, got {type(given).__name__}; {remedy}")
