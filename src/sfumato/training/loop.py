"""The private-sum loop: sample, contribute, clip, add noise, step, record. The only one.

For every round, in this order: the cohort is drawn; its groups contribute and are clipped; the sums of all processes
are put together; the cost is written to the ledger; only then is noise added and the sum used. The noisy sum is
divided by the planned number of contributions. An empty cohort goes the same way: it releases noise and takes a step.

Everything random is a function of the run's key and the round, so a run that was killed and resumed from a checkpoint
repeats the rounds since then bit for bit: the same cohort, the same noise, the same ledger.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import Event, Ledger
from sfumato.clipping import NormBound
from sfumato.mechanisms import GaussianMechanism
from sfumato.runs import checkpoint as checkpoints
from sfumato.runs.folder import RunFolder
from sfumato.runs.interrupt import Interrupt
from sfumato.runs.team import Team
from sfumato.sampling import OwnClients, Sampler, VirtualClients
from sfumato.training.contribution import Contribution, RoundSum, counts
from sfumato.training.server import Server


@dataclass(frozen=True, kw_only=True)
class PrivateSum:
    """The five parts of a private sum; what is accounted is derived from what runs.

    Attributes:
        sampler: who takes part.
        grouping: how participants are put together, and by how many clip norms one of them moves the sum.
        clip: the bound.
        mechanism: the noise; its multiplier is that of the whole round.
        rounds: how often.
    """

    sampler: Sampler
    grouping: OwnClients | VirtualClients
    clip: NormBound
    mechanism: GaussianMechanism
    rounds: int

    def __post_init__(self) -> None:
        noise = self.mechanism.noise_multiplier
        if noise > 0 and self.first_clip_norm is None:
            raise InputError(f"noise_multiplier {noise:g} needs a clip_norm: noise on an unbounded sum protects nobody")
        self.clip.check(noise, self.grouping.clients)

    @property
    def contributions_moved(self) -> float:
        """By how many contributions' bounds one unit moves the sum."""
        return self.grouping.contributions_moved(self.sampler.adjacency)

    def event(self) -> Event:
        """One round, for one unit."""
        # Accountants double the sensitivity of an event for "replace" themselves.
        doubled = 2.0 if self.sampler.adjacency == "replace" else 1.0
        return self.sampler.account(self.mechanism.event(self.contributions_moved / doubled))

    def client_event(self) -> Event:
        """One round, for one whole contribution (the convention of papers on virtual clients)."""
        return self.sampler.account(self.mechanism.event())

    @property
    def first_clip_norm(self) -> float | None:
        """The bound of round 0."""
        return self.clip.start

    def sensitivity(self, clip_norm: float | None) -> float:
        """The norm that one contribution adds at most; 0 where there is no bound, and so no noise."""
        return 0.0 if clip_norm is None else self.clip.sensitivity(clip_norm)

    def sum_mechanism(self, round_index: int) -> GaussianMechanism:
        """The noise on the sum: more than the round's multiplier where a count shares the cost."""
        noise = self.mechanism.noise_multiplier
        return GaussianMechanism(noise_multiplier=self.clip.sum_multiplier(noise, round_index))


@dataclass
class Progress:
    """Where a run stands.

    Attributes:
        round: rounds done.
        theta: parameter vector, float [size].
        clip_norm: bound of the next round.
        history: rows of metrics.jsonl.
        stopped: whether somebody asked it to stop before the end.
    """

    round: int
    theta: torch.Tensor
    clip_norm: float | None
    history: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """When to look and when to save.

    Attributes:
        evaluate_every: rounds between evaluations on the validation data; 0 for never.
        checkpoint_every: rounds between checkpoints; 0 leaves it to the clock.
        checkpoint_minutes: save at the latest after so many minutes.
    """

    evaluate_every: int = 0
    checkpoint_every: int = 10
    checkpoint_minutes: float = 5.0


class Loop:
    """Runs the rounds of a `PrivateSum`; see the module.

    Args:
        private_sum: what happens in a round and what it costs.
        contribution: what the groups add.
        source: the run's randomness.
        server: takes the step; writes through to `progress.theta`.
        team: the processes.
        fingerprint: of plan and data, for the checkpoint.
        ledger, folder: None keeps everything in memory.
    """

    def __init__(
        self,
        *,
        private_sum: PrivateSum,
        contribution: Contribution,
        source: RandomSource,
        server: Server,
        team: Team,
        fingerprint: str,
        ledger: Ledger | None,
        folder: RunFolder | None,
    ) -> None:
        self.sum = private_sum
        self.contribution = contribution
        self.source = source
        self.server = server
        self.team = team
        self.fingerprint = fingerprint
        self.ledger = ledger
        self.folder = folder

    def run(
        self,
        progress: Progress,
        cadence: Cadence,
        *,
        epsilon_so_far: Callable[[int], float | None],
        evaluate: Callable[[int], dict[str, Any]] | None,
        show: Callable[[dict[str, Any]], None],
        resumed: bool = False,
    ) -> Progress:
        """Do the rounds that are left, or those until somebody asks to stop.

        Args:
            progress: where to begin; changed in place.
            cadence: when to evaluate and save.
            epsilon_so_far: ε after so many rounds, for the metrics.
            evaluate: measures `contribution.model` after a round; None for never.
            show: is told every row of the metrics.
            resumed: the run goes on from a checkpoint.
        """
        saved_at = time.monotonic()
        with Interrupt() as interrupt:  # from before the first checkpoint on: a signal finds a run that can go on
            if not resumed:
                self._evaluate(progress, cadence, evaluate, show)
                self.save(progress)
            while progress.round < self.sum.rounds and not progress.stopped:
                started = time.monotonic()
                clip_norm = progress.clip_norm
                result = self._round(progress, interrupt)
                row = {
                    "round": progress.round,
                    "epsilon": epsilon_so_far(progress.round),
                    "clip_norm": clip_norm,
                    "cohort_planned": self.sum.grouping.clients,
                    # How long a round takes tells how many people took part.
                    "not_private": {**result.statistics(), "seconds": round(time.monotonic() - started, 4)},
                }
                self._note(progress, row, show)
                last = progress.round == self.sum.rounds
                self._evaluate(progress, cadence, evaluate, show)
                progress.stopped = result.stop and not last
                due = cadence.checkpoint_every and progress.round % cadence.checkpoint_every == 0
                late = time.monotonic() - saved_at > 60 * cadence.checkpoint_minutes
                if due or late or last or progress.stopped:
                    self.save(progress)
                    saved_at = time.monotonic()
        return progress

    def save(self, progress: Progress) -> None:
        """Write a checkpoint, if the run has a folder."""
        if self.folder is None or not self.team.leads:
            return
        tensors, numbers = self.server.state()
        numbers |= {f"contribution.{name}": value for name, value in self.contribution.settings().items()}
        checkpoints.save(
            self.folder.checkpoint,
            checkpoints.Checkpoint(
                round=progress.round,
                clip_norm=progress.clip_norm,
                ledger_entries=len(self.ledger) if self.ledger is not None else 0,
                ledger_head=self.ledger.head if self.ledger is not None else "",
                metrics_lines=self.folder.metrics_lines,
                fingerprint=self.fingerprint,
                tensors={"theta": progress.theta, **tensors},
                numbers=numbers,
            ),
        )

    def _round(self, progress: Progress, interrupt: Interrupt) -> RoundSum:
        index, clip_norm = progress.round, progress.clip_norm
        users = self.sum.sampler.draw(self.contribution.population, self.source.stream("sampling", index))
        groups = self.sum.grouping.group(users, self.source, index)
        share = self.contribution.clipped_sum(progress.theta, self.team.share(groups), index, clip_norm, self.source)
        others = self.team.all_reduce(counts(share, interrupt.asked))
        result = RoundSum.of(self.team.all_reduce(share.clipped.total), others)
        if self.ledger is not None:
            self.ledger.append(self.sum.event(), **self._record(index, clip_norm))
        mechanism = self.sum.sum_mechanism(index)
        noisy = mechanism.release(result.total, self.sum.sensitivity(clip_norm), self.source.stream("noise", index))
        mean = noisy.div_(self.sum.grouping.clients)
        self.contribution.complete(mean, index, self.source)
        self.server.step(self.contribution.views(mean), index)
        self.contribution.reuse(noisy)
        # Least and largest in one pass; NaN passes through both.
        if not all(torch.isfinite(end) for end in torch.aminmax(progress.theta)):
            raise InputError(
                f"the model became NaN or infinite in round {index + 1}; start a new run with a lower server learning "
                "rate or less noise (what this one has released still counts)"
            )
        progress.clip_norm = self._next_clip_norm(index, clip_norm, result)
        progress.round = index + 1
        return result

    def _next_clip_norm(self, index: int, clip_norm: float | None, result: RoundSum) -> float | None:
        clip = self.sum.clip
        if clip_norm is None or not clip.counts(index):
            return clip_norm
        noise = float(self.source.stream("count noise", index).normal(1)[0]) if clip.count_std else 0.0
        count = result.below - result.units / 2
        return clip.updated(clip_norm, noisy_count=count + clip.count_std * noise)

    def _record(self, index: int, clip_norm: float | None) -> dict[str, Any]:
        """What the ledger keeps of a round beside its event: all of it public."""
        sensitivity = self.sum.sensitivity(clip_norm)
        record: dict[str, Any] = {
            "round": index + 1,
            "clip_norm": clip_norm,
            "sensitivity": None if clip_norm is None else self.sum.contributions_moved * sensitivity,
            "noise_std": self.sum.sum_mechanism(index).noise_std(sensitivity),
            "denominator": self.sum.grouping.clients,
        }
        if self.sum.clip.counts(index):
            record["count_noise_std"] = self.sum.clip.count_std
        return record

    def _evaluate(
        self,
        progress: Progress,
        cadence: Cadence,
        evaluate: Callable[[int], dict[str, Any]] | None,
        show: Callable[[dict[str, Any]], None],
    ) -> None:
        every, last = cadence.evaluate_every, progress.round == self.sum.rounds
        if evaluate and every and (progress.round % every == 0 or last):
            self.contribution.load(self.server.released(progress.theta))
            try:
                row = evaluate(progress.round)
            except InputError as error:
                if progress.round == 0:  # the data is at fault; later on it is the model
                    raise
                warnings.warn(f"round {progress.round} could not be measured: {error}", stacklevel=2)
                return
            self._note(progress, {"round": progress.round, **row}, show)

    def _note(self, progress: Progress, row: dict[str, Any], show: Callable[[dict[str, Any]], None]) -> None:
        progress.history.append(row)
        if self.team.leads:
            if self.folder is not None:
                self.folder.add_metrics(row)
            show(row)
