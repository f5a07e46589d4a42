"""The course of a private run: noisy tables, the rounds of the autoencoder, those of the critic, the calibration.

Each is a phase of one run, in one ledger. A run that was stopped goes on where it was, bit for bit: tables that were
released are read and not drawn again, and rounds draw what is theirs. What needs no record (first weights, the
calibration on generated records) is made again from the run's key. Embeddings of categories need none, either, and are
kept in checkpoints: another library or number of threads would learn others, and then the sum of a round that is
repeated would be another one under the same noise.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import Statement
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.runs import Checkpoint, Run
from sfumato.synthesis.ehr_safe.course import EHRSafeResult
from sfumato.synthesis.ehr_safe.networks import Networks
from sfumato.synthesis.ehr_safe.private.autoencoder import CATEGORIES, SequenceGradients
from sfumato.synthesis.ehr_safe.private.critic import CODEC, CriticGradients
from sfumato.synthesis.ehr_safe.private.facts import private_facts
from sfumato.synthesis.ehr_safe.private.first_visits import first_visits
from sfumato.synthesis.ehr_safe.private.made_up_codes import MadeUpCodes
from sfumato.synthesis.ehr_safe.private.spending import GAN, SEQUENCES, Spending
from sfumato.synthesis.ehr_safe.records import Records
from sfumato.synthesis.ehr_safe.settings import EHRSafeSettings
from sfumato.synthesis.ehr_safe.stages import Categories, gan_optimizer
from sfumato.synthesis.ehr_safe.synthesizer import Synthesizer
from sfumato.synthesis.steps import Progress
from sfumato.training import Cadence, Callback, Contribution, Optimizer
from sfumato.training.loop import Loop
from sfumato.training.private_sum import PrivateSum
from sfumato.training.schedule import Schedule
from sfumato.training.server import OptimizerFactory, Server
from sfumato.training.told.cost_so_far import CostSoFar, before_rounds

_DRAWS = 4  # latent vectors of each patient, from different draws of the stochastic scales
_ENCODED = 256  # patients that are encoded at once


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateCourse:
    """One run, before it begins.

    Attributes:
        settings: of the plan, with epsilon.
        data: the records.
        about: public JSON for the model's file.
        progress: is told how far it is.
        save_every: seconds between checkpoints.
        spending: what it releases, and under which noise.
    """

    settings: EHRSafeSettings
    data: EHRDataset
    about: dict[str, Any]
    progress: Progress
    save_every: float
    spending: Spending

    def go(self, run: Run, *, resume: bool) -> EHRSafeResult:
        """The whole of it."""
        if run.team.size > 1:
            raise InputError("records are learned from in one process, got several (torchrun)")
        settings, spending = self.settings, self.spending
        run.between("add_remove")
        fingerprint = self._fingerprint()
        saved = run.saved(fingerprint) if resume else None
        run.start(fingerprint)
        if saved is not None and saved.complete:  # its key is gone: nothing is learned again
            return self._finish(run, spending, Synthesizer.of(saved.tensors, saved.state["facts"]))
        made = self._learned(run, spending, fingerprint, saved)
        if made is None:
            statement = run.finish({}, private_facts(settings, spending, self.data, finished=False), complete=False)
            return self._result(run, None, statement)
        tensors, facts = made.state()
        run.save(tensors, {"facts": facts}, complete=True)
        return self._finish(run, spending, made)

    def _fingerprint(self) -> str:
        told = json.dumps(self.settings.to_json(), sort_keys=True) + self.data.fingerprint()
        return hashlib.sha256(told.encode()).hexdigest()

    def _learned(self, run: Run, spending: Spending, fingerprint: str, saved: Checkpoint | None) -> Synthesizer | None:
        """What all phases lead to; None where the run was asked to stop."""
        settings, source = self.settings, run.source
        horizon = spending.tables.horizon
        data = first_visits(self.data, max_visits=settings.max_visits, horizon=horizon)
        self.progress("tables", 0, 1)
        scales = spending.tables.release(run, data)
        torch.manual_seed(source.seed64("private weights"))
        networks = Networks(settings, data.schema)
        kept = {} if saved is None else _learned_before(saved)
        categories = kept.get(CATEGORIES)
        if categories is None:
            categories = self._learn_categories(networks, source)
        _put(categories, _category_parameters(networks))
        records = Records(data, scales, masks=settings.masks)
        codec = kept.get(CODEC)
        if codec is None:
            first = SequenceGradients(networks.codec, categories, records, settings, fingerprint)
            optimizer = Optimizer(name="adam", learning_rate=settings.learning_rate, momentum=0.9)
            theta = first.trained.initial.clone()
            if not self._rounds(run, spending.sequences, first, optimizer, theta, SEQUENCES, spending.delta, saved):
                return None
            codec = theta
        torch.nn.utils.vector_to_parameters(codec, networks.codec.parameters())
        latents = latents_by_patient(networks, records, source)
        optimizer = gan_optimizer(settings)
        learned = {CATEGORIES: categories, CODEC: codec}
        second = CriticGradients(
            networks.critic, networks.generator, latents, learned, settings, optimizer, fingerprint
        )
        theta = second.trained.initial.clone()
        if not self._rounds(run, spending.gan, second, optimizer, theta, GAN, spending.delta, saved):
            return None
        second.settle(theta, source)
        torch.nn.utils.vector_to_parameters(theta, networks.critic.parameters())
        return Synthesizer.calibrated(
            settings,
            scales,
            networks,
            source,
            lambda done, of: self.progress("calibration", done, of),
            lambda: run.asked_to_stop,
        )

    def _learn_categories(self, networks: Networks, source: RandomSource) -> Tensor:
        """The parameters of both codecs, float [size]; no record is read."""
        codes = MadeUpCodes.of(self.data.schema, source.seed64("private categories"))
        stage = Categories(self.settings, (networks.static, networks.temporal), codes, source)
        for step in range(stage.steps):
            self.progress(stage.name, step, stage.steps)
            stage.step(step)
        return torch.cat([torch.zeros(0), *(each.detach().flatten() for each in _category_parameters(networks))])

    def _rounds(
        self,
        run: Run,
        private_sum: PrivateSum,
        contribution: Contribution,
        optimizer: OptimizerFactory,
        theta: Tensor,
        phase: str,
        delta: float,
        saved: Checkpoint | None,
    ) -> bool:
        """The rounds of a phase that are left; False where the run was asked to stop."""
        schedule = Schedule(kind="cosine" if phase == SEQUENCES else "constant", rounds=private_sum.rounds)
        loop = Loop(
            private_sum=private_sum,
            contribution=contribution,
            server=Server(optimizer, contribution.trained.views(theta), schedule=schedule),
            theta=theta,
            run=run,
            phase=phase,
            callback=_Told(self.progress, phase, private_sum.rounds),
            last=False,
        )
        if saved is not None and saved.state.get("phase") == phase:
            loop.resume(saved)
        self.progress(phase, loop.round, private_sum.rounds)
        cost = CostSoFar(private_sum, delta, before_rounds(run.spent(), private_sum, loop.round))
        cadence = Cadence(checkpoint_every=0, checkpoint_minutes=self.save_every / 60)
        loop.rounds(cadence, epsilon_so_far=cost.after)
        return loop.finished

    def _finish(self, run: Run, spending: Spending, made: Synthesizer) -> EHRSafeResult:
        tensors, facts = made.state()
        told = private_facts(self.settings, spending, self.data)
        return self._result(run, made, run.finish(tensors, told, metadata={**self.about, **facts}))

    def _result(self, run: Run, made: Synthesizer | None, statement: Statement) -> EHRSafeResult:
        return EHRSafeResult(
            synthesizer=made,
            statement=statement,
            history=run.history,
            finished=made is not None,
            folder=None if run.folder is None else run.folder.path,
        )


class _Told(Callback):
    """Tells the progress of a phase."""

    def __init__(self, progress: Progress, phase: str, rounds: int) -> None:
        self._progress, self._phase, self._rounds = progress, phase, rounds

    def on_round(self, row: dict[str, Any]) -> None:
        self._progress(self._phase, row["round"], self._rounds)


def _category_parameters(networks: Networks) -> list[Tensor]:
    return [*networks.static.parameters(), *networks.temporal.parameters()]


def _put(vector: Tensor, parameters: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, part in zip(parameters, vector.split([each.numel() for each in parameters]), strict=True):
            parameter.copy_(part.view_as(parameter))


def _learned_before(saved: Checkpoint) -> dict[str, Tensor]:
    """What a checkpoint of rounds keeps of what was learned before them."""
    names = {f"contribution.{name}": name for name in (CATEGORIES, CODEC)}
    return {name: saved.tensors[full] for full, name in names.items() if full in saved.tensors}


def latents_by_patient(networks: Networks, records: Records, source: RandomSource) -> Tensor:
    """Latent vectors of all patients, each from its own record, float [draws, patients, latent]; private."""
    found = torch.empty(_DRAWS, len(records), networks.codec.sizes.latent)
    with torch.inference_mode():
        for draw in range(_DRAWS):
            drawn = records.draw(source.seed64("private encoded", draw))
            for rows in records.in_blocks(_ENCODED):
                found[draw, torch.from_numpy(rows)] = networks.codec.encode(records.batch(rows, drawn))
    return found
