"""A recurrent GAN of health records as a plan: its settings, its run, and the records that it generates.

There is no noise and no guarantee, and the statement says so.
"""

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ehr_baselines.copies import joined
from ehr_baselines.frames import Frames
from ehr_baselines.networks import SequenceNetworks
from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import RecordUnit
from sfumato.accounting import Event, NonPrivate
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.runs import Checkpoint, Run, share_cores
from sfumato.statement import Facts, Statement
from sfumato.statement.verdict import default_delta
from sfumato.synthesis.settings import LARGEST_RATE
from sfumato.synthesis.synthesizer import BLOCK, Conditions, in_blocks
from sfumato.synthesis.training import Progress, Stage, take, under

_SAVE_EVERY = 60.0


@dataclass(frozen=True, eq=False)
class BaselineSynthesizer:
    """Generates records.

    Attributes:
        settings: of the plan.
        frames: what the networks' numbers mean.
        networks: that learned.
    """

    settings: "BaselinePlan"
    frames: Frames
    networks: SequenceNetworks

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self.frames.scales.schema

    def sample(
        self,
        count: int,
        *,
        conditions: Mapping[str, Any] | None = None,
        seed: int | None = None,
        block: int = BLOCK,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[EHRDataset]:
        """New records, block by block.

        Args:
            count: of patients.
            conditions: on static columns, the outcome among them: a category, or (lowest, highest) of a number; records
                that do not meet them are dropped.
            seed: the same records again; None draws from the operating system.
            block: patients in a block; the last one may have fewer.
            progress: called with how many there are, and of how many.

        Raises:
            InputError: a condition names no column or category, or next to no record meets it.
        """
        wanted = Conditions(self.frames.scales.schema, conditions or {})

        def made(first: int, size: int, generator: torch.Generator) -> EHRDataset:
            def draw(count: int) -> tuple[EHRDataset, np.ndarray, np.ndarray]:
                outcome = self.frames.outcome_drawn(count, generator)
                frames = self.networks.drawn(count, outcome, generator)
                drawn = self.frames.records(frames, outcome if self.networks.conditional else None, generator)
                return drawn, drawn.static_numbers, drawn.static_codes

            return joined([drawn.take(places) for drawn, places in wanted.draw_until_met(size, draw)], first)

        return in_blocks(made, count, seed=seed, block=block, progress=progress)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts of a file that holds all of it."""
        scales, facts = self.frames.state()
        tensors = {f"scale.{name}": value for name, value in scales.items()}
        tensors |= {f"network.{name}": value for name, value in self.networks.kept().items()}
        return tensors, {"settings": self.settings.to_json(), "frames": facts}

    @classmethod
    def of(
        cls, settings: "BaselinePlan", tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
    ) -> "BaselineSynthesizer":
        """The synthesizer of a `state`, with the settings that it names."""
        frames = Frames.from_state(under("scale", tensors), facts["frames"])
        networks = settings.networks(frames)
        networks.load_state_dict(under("network", tensors), strict=False)
        return cls(settings, frames, networks)


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
class _Fitting:
    """One run, before it begins.

    Attributes:
        settings: of the plan.
        data: the records.
        about: public JSON for the model's file.
        progress: gets how far it is.
        save_every: seconds between checkpoints.
    """

    settings: "BaselinePlan"
    data: EHRDataset
    about: dict[str, Any]
    progress: Progress
    save_every: float

    def go(self, run: Run, *, resume: bool) -> BaselineResult:
        """The whole of it."""
        if run.team.size > 1:
            raise InputError("health records are learned from in one process, got several; start it without torchrun")
        run.between(self.settings.facts(len(self.data), self.data.schema.unit).adjacency)
        described = json.dumps(self.settings.to_json(), sort_keys=True) + self.data.fingerprint()
        fingerprint = hashlib.sha256(described.encode()).hexdigest()
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
            metadata={} if made is None else {**self.about, **facts},  # by which a report knows that it has ended
            complete=made is not None,
        )
        folder = None if run.folder is None else run.folder.path
        return BaselineResult(made, statement, run.history, made is not None, folder)


@dataclass(frozen=True, kw_only=True)
class BaselinePlan(ABC):
    """A plan that can be fitted; every one of its fields may be published.

    Attributes:
        hidden: width of the recurrent layers.
        layers: of each recurrent network.
        noise: random numbers that the generator gets for each visit.
        steps: of the generator, once it learns against the discriminator.
        batch_size: patients a step.
        learning_rate: of all networks.
        blur: deviation of the noise on frames that a discriminator sees, real or not (TimeGAN's sees no frames).
        longest: quantile of the numbers of visits at which records are cut, in (0, 1].
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    hidden: int = 64
    layers: int = 1
    noise: int = 16
    steps: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-3
    blur: float = 0.1
    longest: float = 0.99
    seed: int | None = None

    name: ClassVar[str]
    title: ClassVar[str]

    def __post_init__(self) -> None:
        _check.whole(**{name: getattr(self, name) for name in ("hidden", "layers", "noise", "steps", "batch_size")})
        _check.positive(learning_rate=self.learning_rate)
        _check.between(0.0, LARGEST_RATE, learning_rate=self.learning_rate)
        _check.non_negative(blur=self.blur)
        _check.between(0.0, 1.0, ends="(]", longest=self.longest)
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)

    @abstractmethod
    def networks(self, frames: Frames) -> SequenceNetworks:
        """The networks, with random weights from torch's generator."""

    @abstractmethod
    def stages(
        self, networks: Any, frames: Tensor, outcome: Tensor, source: RandomSource
    ) -> Sequence[tuple[str, Callable[[], Stage]]]:
        """What is learned one after the other, by names.

        Args:
            networks: of `networks`.
            frames: float [n, steps, width] in [0, 1].
            outcome: one-hot [n, categories].
            source: of what is drawn.
        """

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
            progress: gets the stage, how many of its steps are taken, and of how many.
            save_every: seconds between checkpoints, >= 0.

        Raises:
            InputError: a mistake in the plan, the data or the folder, or a stage diverged.
        """
        if not isinstance(data, EHRDataset):
            raise InputError(f"data must be health records (EHRDataset), got {type(data).__name__}")
        share_cores()
        recorded = {**self.to_json(), "about": about or {}}
        with Run.open(out, plan=recorded, seed=self.seed, resume=resume) as run:
            fitting = _Fitting(
                settings=self, data=data, about=about or {}, progress=progress or _silent, save_every=save_every
            )
            return fitting.go(run, resume=resume)

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **dataclasses.asdict(self)}

    def event(self) -> Event:
        """What the records' owner pays: there is no bound."""
        return NonPrivate()

    def facts(self, population: int, unit: RecordUnit) -> Facts:
        """What the statement has in addition to the ledger."""
        return Facts(
            unit=unit,
            adjacency="add_remove",
            population=population,
            delta=default_delta(population),
            sampling="every record is learned from",
            mechanism=f"{self.title}: records are generated by a model that saw them, without any guarantee",
        )


def _silent(what: str, done: int, of: int) -> None:
    """Report nothing."""
