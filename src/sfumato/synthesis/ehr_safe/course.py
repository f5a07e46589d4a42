"""The course of a run: scales, categories, sequences, the GAN, the calibration; then the statement.

Each stage goes on where a stopped run left it, bit for bit: what came before is kept as it was learned, and what
follows from it and from the records is made again. A checkpoint is written now and then, and where somebody asks the
run to stop. A stage that diverges ends the run, and the checkpoint before it stays.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato.accounting import Statement
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.runs import Checkpoint, Run
from sfumato.synthesis.ehr_safe.networks import Networks
from sfumato.synthesis.ehr_safe.records import Records
from sfumato.synthesis.ehr_safe.scales import Scales
from sfumato.synthesis.ehr_safe.settings import EHRSafeSettings
from sfumato.synthesis.ehr_safe.stages import Adversaries, Categories, Sequences, latents_of
from sfumato.synthesis.ehr_safe.synthesizer import Synthesizer
from sfumato.synthesis.steps import Progress, Stage, take, under


@dataclass(frozen=True, eq=False)
class EHRSafeResult:
    """What a run leaves.

    Attributes:
        synthesizer: generates records; None where the run was stopped before its end.
        statement: what it cost the patients.
        history: losses, which are not private.
        finished: False if the run was asked to stop before its end.
        folder: the run's, or None.
    """

    synthesizer: Synthesizer | None
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

    settings: EHRSafeSettings
    data: EHRDataset
    about: dict[str, Any]
    progress: Progress
    save_every: float

    def go(self, run: Run, *, resume: bool) -> EHRSafeResult:
        """The whole of it."""
        if run.team.size > 1:
            raise InputError("records are learned from in one process, got several (torchrun)")
        run.between(self.settings.facts(len(self.data), self.data.schema.unit).adjacency)
        fingerprint = self._fingerprint()
        saved = run.saved(fingerprint) if resume else None
        run.start(fingerprint)
        if saved is not None and saved.complete:  # its key is gone: nothing is learned again
            return self._finish(run, Synthesizer.of(saved.tensors, saved.state["facts"]))
        if saved is None or not saved.state:
            run.spend(self.settings.event())
            run.save({}, {"stage": None})
        made = self._learned(run, saved if saved is not None and saved.state.get("stage") else None)
        if made is None:
            statement = run.finish({}, self.settings.facts(len(self.data), self.data.schema.unit), complete=False)
            return self._result(run, None, statement)
        tensors, facts = made.state()
        run.save(tensors, {"stage": None, "facts": facts}, complete=True)
        return self._finish(run, made)

    def _fingerprint(self) -> str:
        told = json.dumps(self.settings.to_json(), sort_keys=True) + self.data.fingerprint()
        return hashlib.sha256(told.encode()).hexdigest()

    def _learned(self, run: Run, saved: Checkpoint | None) -> Synthesizer | None:
        """What all stages lead to; None where the run was asked to stop."""
        settings, source = self.settings, run.source
        torch.manual_seed(source.seed64("ehr weights"))
        scales = Scales.fit(
            self.data,
            stochastic=settings.stochastic_normalisation,
            rounding=settings.rounding,
            min_count=settings.min_count,
            summed=settings.summed,
        )
        networks = Networks(settings, self.data.schema)
        records = Records(self.data, scales, masks=settings.masks)
        stages: list[Callable[[], Stage]] = [
            lambda: Categories(settings, (networks.static, networks.temporal), records, source),
            lambda: Sequences(settings, networks.codec, records, source),
            lambda: Adversaries(
                settings, networks.generator, networks.critic, latents_of(networks.codec, records, source), source
            ),
        ]
        if saved is not None:
            networks.load(under("network", saved.tensors))
            networks.critic.load_state_dict(under("critic", saved.tensors))
        names = ["categories", "sequences", "gan"]
        begin = 0 if saved is None else names.index(saved.state["stage"])
        for place in range(begin, len(stages)):
            stage = stages[place]()
            if not self._taken(run, networks, stage, saved if place == begin else None):
                return None
        return Synthesizer.calibrated(
            settings,
            scales,
            networks,
            source,
            lambda done, of: self.progress("calibration", done, of),
            lambda: run.asked_to_stop,
        )

    def _taken(self, run: Run, networks: Networks, stage: Stage, saved: Checkpoint | None) -> bool:
        """Take the steps of a stage that are left; False where the run was asked to stop."""

        def kept() -> dict[str, Tensor]:
            tensors = {f"network.{name}": value for name, value in networks.state().items()}
            return tensors | {f"critic.{name}": value.clone() for name, value in networks.critic.state_dict().items()}

        return take(run, stage, kept, saved=saved, progress=self.progress, save_every=self.save_every)

    def _finish(self, run: Run, made: Synthesizer) -> EHRSafeResult:
        tensors, facts = made.state()
        metadata = {**self.about, **facts}
        statement = run.finish(tensors, self.settings.facts(len(self.data), self.data.schema.unit), metadata=metadata)
        return self._result(run, made, statement)

    def _result(self, run: Run, made: Synthesizer | None, statement: Statement) -> EHRSafeResult:
        return EHRSafeResult(
            synthesizer=made,
            statement=statement,
            history=run.history,
            finished=made is not None,
            folder=None if run.folder is None else run.folder.path,
        )
