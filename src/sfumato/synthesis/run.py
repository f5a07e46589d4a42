"""One run: scales, categories, sequences, the GAN, the calibration; then the statement.

Without epsilon these are stages, which learn from the records as they are. With epsilon they are noisy tables and the
rounds of the autoencoder and of the critic, each a phase of one run in one ledger, and what needs no record.

A stopped run resumes where it was, bit for bit. It reads what was learned before, and computes again what follows from
that and from the records. A checkpoint is written now and then, and where somebody asks the run to
stop. A stage that diverges ends the run, and the checkpoint before it stays.

With epsilon, tables that were released are read and not drawn again, and rounds draw what is theirs. What needs no
record (first weights, the calibration on generated records) is made again from the run's key. Embeddings of categories
need none, either, and are kept in checkpoints: another library or number of threads would learn others, and then the
sum of a round that is repeated would be another one under the same noise.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sfumato._bar import Progress
from sfumato._random import RandomSource
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Column, Schema
from sfumato.runs import Checkpoint, Run
from sfumato.statement import Facts, Statement
from sfumato.synthesis.budget import GAN, SEQUENCES, Spending, private_facts
from sfumato.synthesis.gradients import CATEGORIES, CODEC, CriticGradients, SequenceGradients
from sfumato.synthesis.networks import Networks, SequenceCodec
from sfumato.synthesis.records import Records
from sfumato.synthesis.scales import Scales
from sfumato.synthesis.settings import EHRSafeSettings
from sfumato.synthesis.summaries import SUMMED_AS
from sfumato.synthesis.synthesizer import Synthesizer
from sfumato.synthesis.training import Adversaries, Categories, Sequences, Stage, gan_optimizer, take, under
from sfumato.training import Cadence, Callback, Contribution, Optimizer
from sfumato.training.loop import Loop
from sfumato.training.monitoring import CostSoFar, before_rounds
from sfumato.training.private_sum import PrivateSum
from sfumato.training.server import OptimizerFactory, Schedule, Server

_DRAWS = 4  # latent vectors of each patient, from different draws of the stochastic scales
_ENCODED = 256  # patients that are encoded at once
_PLACEHOLDERS = 2048  # rows of categories


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
class EHRSafeRun:
    """One run, before it begins.

    Attributes:
        settings: of the plan.
        data: the records.
        about: public JSON for the model's file.
        progress: is called with how far it is.
        save_every: seconds between checkpoints.
        spending: what it releases, and under which noise; None without epsilon.
    """

    settings: EHRSafeSettings
    data: EHRDataset
    about: dict[str, Any]
    progress: Progress
    save_every: float
    spending: Spending | None

    def go(self, run: Run, *, resume: bool) -> EHRSafeResult:
        """The whole of it."""
        fingerprint = self._fingerprint()
        saved = run.begin(fingerprint, self._facts().adjacency, resume=resume, what="synthetic records")
        if saved is not None and saved.complete:  # its key is gone: nothing is learned again
            return self._finish(run, Synthesizer.of(saved.tensors, saved.state["facts"]))
        if self.spending is None:
            made = self._trained(run, saved)
        else:
            made = self._privately_trained(run, self.spending, fingerprint, saved)
        if made is None:
            return self._result(run, None, run.finish({}, self._facts(finished=False), complete=False))
        tensors, facts = made.state()
        run.save(tensors, {"facts": facts}, complete=True)
        return self._finish(run, made)

    def _facts(self, *, finished: bool = True) -> Facts:
        if self.spending is None:
            return self.settings.facts(len(self.data), self.data.schema.unit)
        return private_facts(self.settings, self.spending, self.data, finished=finished)

    def _fingerprint(self) -> str:
        identity = json.dumps(self.settings.to_json(), sort_keys=True) + self.data.fingerprint()
        if self.settings.summed:
            identity += SUMMED_AS
        return hashlib.sha256(identity.encode()).hexdigest()

    def _finish(self, run: Run, made: Synthesizer) -> EHRSafeResult:
        tensors, facts = made.state()
        return self._result(run, made, run.finish(tensors, self._facts(), metadata={**self.about, **facts}))

    def _result(self, run: Run, made: Synthesizer | None, statement: Statement) -> EHRSafeResult:
        return EHRSafeResult(
            synthesizer=made,
            statement=statement,
            history=run.history,
            finished=made is not None,
            folder=None if run.folder is None else run.folder.path,
        )

    def _trained(self, run: Run, saved: Checkpoint | None) -> Synthesizer | None:
        """What all stages lead to; None where the run was asked to stop."""
        settings, source = self.settings, run.source
        if saved is None or not saved.state:
            run.spend(settings.event())
            run.save({}, {"stage": None})
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
        stages: dict[str, Callable[[], Stage]] = {
            "categories": lambda: Categories(settings, (networks.static, networks.temporal), records, source),
            "sequences": lambda: Sequences(settings, networks.codec, records, source),
            "gan": lambda: Adversaries(
                settings, networks.generator, networks.critic, latents(networks.codec, records, source), source
            ),
        }
        names = list(stages)
        if saved is not None and saved.state.get("stage"):
            networks.load(under("network", saved.tensors))
            networks.critic.load_state_dict(under("critic", saved.tensors))
            names = names[names.index(saved.state["stage"]) :]
        else:
            saved = None
        for name in names:
            if not self._stage(run, networks, stages[name](), saved):
                return None
            saved = None  # it was of the first stage that was left
        return self._calibrated(run, scales, networks)

    def _stage(self, run: Run, networks: Networks, stage: Stage, saved: Checkpoint | None) -> bool:
        """Take the steps of a stage that are left; False where the run was asked to stop."""

        def network_tensors() -> dict[str, Tensor]:
            tensors = {f"network.{name}": value for name, value in networks.state().items()}
            return tensors | {f"critic.{name}": value.clone() for name, value in networks.critic.state_dict().items()}

        return take(run, stage, network_tensors, saved=saved, progress=self.progress, save_every=self.save_every)

    def _privately_trained(
        self, run: Run, spending: Spending, fingerprint: str, saved: Checkpoint | None
    ) -> Synthesizer | None:
        """What all phases lead to; None where the run was asked to stop."""
        settings, source = self.settings, run.source
        data = first_visits(self.data, max_visits=settings.max_visits, horizon=spending.tables.horizon)
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
            optimizer = Optimizer(name="adam", learning_rate=settings.sizes.learning_rate, momentum=0.9)
            theta = first.trained.initial.clone()
            if not self._rounds(run, spending.sequences, first, optimizer, theta, SEQUENCES, spending.delta, saved):
                return None
            codec = theta
        torch.nn.utils.vector_to_parameters(codec, networks.codec.parameters())
        optimizer = gan_optimizer(settings)
        second = CriticGradients(
            networks.critic,
            networks.generator,
            latents_by_patient(networks.codec, records, source),
            {CATEGORIES: categories, CODEC: codec},
            settings,
            optimizer,
            fingerprint,
        )
        theta = second.trained.initial.clone()
        if not self._rounds(run, spending.gan, second, optimizer, theta, GAN, spending.delta, saved):
            return None
        second.settle(theta, source)
        torch.nn.utils.vector_to_parameters(theta, networks.critic.parameters())
        return self._calibrated(run, scales, networks)

    def _learn_categories(self, networks: Networks, source: RandomSource) -> Tensor:
        """The parameters of both codecs, float [size]; no record is read."""
        codes = PlaceholderCodes.of(self.data.schema, source.seed64("private categories"))
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
            callback=_PhaseProgress(self.progress, phase, private_sum.rounds),
            last=False,
        )
        if saved is not None and saved.state.get("phase") == phase:
            loop.resume(saved)
        self.progress(phase, loop.round, private_sum.rounds)
        cost = CostSoFar(private_sum, delta, before_rounds(run.spent(), private_sum, loop.round))
        cadence = Cadence(checkpoint_every=0, checkpoint_minutes=self.save_every / 60)
        loop.rounds(cadence, epsilon_so_far=cost.after)
        return loop.finished

    def _calibrated(self, run: Run, scales: Scales, networks: Networks) -> Synthesizer | None:
        return Synthesizer.calibrated(
            self.settings,
            scales,
            networks,
            run.source,
            lambda done, of: self.progress("calibration", done, of),
            lambda: run.asked_to_stop,
        )


def first_visits(data: EHRDataset, *, max_visits: int, horizon: float) -> EHRDataset:
    """The records that a private run looks at: no more visits of a patient than that, and none after the horizon.

    The first visit is kept whenever it was; after the horizon it counts as having been then. Each patient is cut by the
    patient's own record alone, so no patient's coming or going changes what is kept of another one.

    Args:
        data: the records.
        max_visits: of a patient, >= 1.
        horizon: the latest time of a visit, > 0.
    """
    order = np.arange(len(data.times)) - np.repeat(data.offsets[:-1], data.lengths)
    kept = (order < max_visits) & ((order == 0) | (data.times <= horizon))
    lengths = np.bincount(data.owners[kept], minlength=len(data))
    return replace(
        data,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=np.minimum(data.times[kept], horizon),
        numbers=data.numbers[kept],
        codes=data.codes[kept],
    )


@dataclass(frozen=True, eq=False)
class PlaceholderCodes:
    """Rows of categories to learn embeddings from that are no patient's: every one as likely as any other.

    An embedding of categories has to distinguish them and to give them back, and needs no record for that. So it costs
    nothing.

    Attributes:
        static_codes: int64 [rows, categorical static columns], -1 where missing.
        codes: int64 [rows, categorical temporal columns].
    """

    static_codes: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, schema: Schema, seed: int) -> Self:
        """Some rows, by their seed; a missing value is as likely as one category."""
        random = np.random.default_rng(seed)

        def rows(columns: tuple[Column, ...]) -> np.ndarray:
            drawn = [random.integers(-1, len(column.categories), _PLACEHOLDERS) for column in columns]
            return np.column_stack(drawn) if drawn else np.empty((_PLACEHOLDERS, 0), np.int64)

        return cls(rows(schema.static_categorical), rows(schema.temporal_categorical))


def latents(codec: SequenceCodec, records: Records, source: RandomSource) -> Tensor:
    """Latent vectors of all patients, several draws of each, [draws × patients, latent]; the longest records first."""
    order = np.concatenate(list(records.in_blocks(_ENCODED)))
    seeds = [source.seed64("ehr encoded", draw) for draw in range(_DRAWS)]
    return _encoded(codec, records, seeds)[:, torch.from_numpy(order)].flatten(0, 1)


def latents_by_patient(codec: SequenceCodec, records: Records, source: RandomSource) -> Tensor:
    """Latent vectors of all patients, each from its own record, float [draws, patients, latent]; private."""
    return _encoded(codec, records, [source.seed64("private encoded", draw) for draw in range(_DRAWS)])


def _encoded(codec: SequenceCodec, records: Records, seeds: list[int]) -> Tensor:
    """Latent vectors of all patients, float [seeds, patients, latent], a draw of the scales for each seed."""
    found = torch.empty(len(seeds), len(records), codec.sizes.latent)
    with torch.inference_mode():
        for draw, seed in enumerate(seeds):
            drawn = records.draw(seed)
            for rows in records.in_blocks(_ENCODED):
                found[draw, torch.from_numpy(rows)] = codec.encode(records.batch(rows, drawn))
    return found


class _PhaseProgress(Callback):
    """Passes on the progress of a phase."""

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
