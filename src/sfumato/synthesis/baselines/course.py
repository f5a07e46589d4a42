"""The course of a baseline's run: frames, its stages one after the other, the statement."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sfumato._check import InputError
from sfumato.accounting import Statement
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.runs import Checkpoint, Run
from sfumato.synthesis.baselines.frames import Frames
from sfumato.synthesis.baselines.settings import BaselineSettings
from sfumato.synthesis.baselines.synthesizer import BaselineSynthesizer
from sfumato.synthesis.steps import Progress, take, under


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """What a run leaves.

    Attributes:
        synthesizer: generates records; None where the run was stopped before its end.
        statement: what it cost the patients: there is no guarantee.
        history: losses, which are not private.
        finished: False if the run was asked to stop before its end.
        folder: the run's, or None.
    """

    synthesizer: BaselineSynthesizer | None
    statement: Statement
    history: list[dict[str, Any]]
    finished: bool
    folder: Path | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """One run, before it begins.

    Attributes:
        settings: of the plan.
        data: the records.
        about: public JSON for the model's file.
        progress: is told how far it is.
        save_every: seconds between checkpoints.
    """

    settings: BaselineSettings
    data: EHRDataset
    about: dict[str, Any]
    progress: Progress
    save_every: float

    def go(self, run: Run, *, resume: bool) -> BaselineResult:
        """The whole of it."""
        if run.team.size > 1:
            raise InputError("records are learned from in one process, got several (torchrun)")
        run.between(self.settings.facts(len(self.data), self.data.schema.unit).adjacency)
        told = json.dumps(self.settings.to_json(), sort_keys=True) + self.data.fingerprint()
        fingerprint = hashlib.sha256(told.encode()).hexdigest()
        saved = run.saved(fingerprint) if resume else None
        run.start(fingerprint)
        if saved is not None and saved.complete:  # its key is gone: nothing is learned again
            made = BaselineSynthesizer.of(self.settings, saved.tensors, saved.state["facts"])
            return self._result(run, made)
        if saved is None or not saved.state:
            run.spend(self.settings.event())
            run.save({}, {"stage": None})
        made = self._learned(run, saved if saved is not None and saved.state.get("stage") else None)
        if made is not None:
            tensors, facts = made.state()
            run.save(tensors, {"stage": None, "facts": facts}, complete=True)
        return self._result(run, made)

    def _learned(self, run: Run, saved: Checkpoint | None) -> BaselineSynthesizer | None:
        """What all stages lead to; None where the run was asked to stop."""
        settings, source = self.settings, run.source
        torch.manual_seed(source.seed64("baseline weights"))
        frames = Frames.fit(self.data, longest=settings.longest)
        if saved is None:
            cut = {"longest": frames.steps, "visits_cut": frames.lost(self.data)}
            run.note({"stage": "frames", "step": 0, "not_private": cut})
        networks = settings.networks(frames)
        stages = settings.stages(networks, frames.of(self.data), frames.outcome(self.data), source)
        begin = 0
        if saved is not None:
            networks.load_state_dict(under("network", saved.tensors))
            begin = [name for name, _ in stages].index(saved.state["stage"])

        def kept() -> dict[str, torch.Tensor]:
            return {f"network.{name}": value.clone() for name, value in networks.state_dict().items()}

        for place, (_, stage) in enumerate(stages[begin:]):
            here = saved if place == 0 else None
            if not take(run, stage(), kept, saved=here, progress=self.progress, save_every=self.save_every):
                return None
        return BaselineSynthesizer(settings, frames, networks)

    def _result(self, run: Run, made: BaselineSynthesizer | None) -> BaselineResult:
        tensors, facts = ({}, {}) if made is None else made.state()
        statement = run.finish(
            tensors,
            self.settings.facts(len(self.data), self.data.schema.unit),
            metadata={**self.about, **facts},
            complete=made is not None,
        )
        folder = None if run.folder is None else run.folder.path
        return BaselineResult(made, statement, run.history, made is not None, folder)
