"""The private sum: four parts of which what runs, what is recorded and what is accounted are all made.

>>> from sfumato.clipping import Flat
>>> from sfumato.mechanisms import Gaussian
>>> from sfumato.sampling import Poisson
>>> rounds = PrivateSum(
...     sampler=Poisson(size=10, population=1000), bound=Flat(norm=1.0), mechanism=Gaussian(noise_multiplier=1.1),
...     rounds=100)
>>> rounds.event(100) == rounds.entry(0) * 100
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.clipping import NormBound
from sfumato.clipping.bounds import COUNT_SENSITIVITY
from sfumato.mechanisms import Gaussian, Mechanism
from sfumato.sampling import Sampler, SingleUserClients, VirtualClients
from sfumato.training.table_training import SelectedTables

if TYPE_CHECKING:
    from sfumato.accounting import Event


@dataclass(frozen=True, kw_only=True)
class PrivateSum:
    """The parts of a private sum; what is accounted is derived from what runs.

    Attributes:
        sampler: who takes part, and how they are put together.
        bound: how much a contribution may weigh.
        mechanism: the noise; its multiplier is that of the whole round.
        rounds: how often.
        selection: counts that a round releases with its sum, to select rows of tables; None for none.
    """

    sampler: Sampler
    bound: NormBound
    mechanism: Mechanism
    rounds: int
    selection: SelectedTables | None = None

    def __post_init__(self) -> None:
        noise = self.mechanism.multiplier
        if noise > 0 and self.bound.norm is None:
            raise InputError(f"noise {noise:g} needs clipping: noise on an unbounded sum gives no guarantee")
        if self.selection is not None:
            self._refuse_selection()
        _ = self.event(1)  # refuses a mechanism that nothing is proven for with this sampler or this bound

    @property
    def grouping(self) -> SingleUserClients | VirtualClients:
        """How participants are put together, and by how many bounds one of them moves the sum."""
        return self.sampler.grouping

    @property
    def whole(self) -> bool:
        """Whether only the run as a whole costs something: its rounds share noise, or a unit is in few of them."""
        return self.mechanism.stream or self.sampler.participation(self.rounds) is not None

    @property
    def attained(self) -> bool:
        """Whether some records make the rounds cost what their event says; if not, it is an upper bound alone.

        A user who is alone in a virtual client moves the sum by one bound, and no choice of records rules that out.
        The event of noise that rounds share allows any rounds within the sampler's limits.
        """
        grouped = isinstance(self.grouping, VirtualClients)
        return not grouped and (not self.mechanism.stream or self.sampler.reaches_limits)

    @property
    def relative_sensitivity(self) -> float:
        """By how many contributions' bounds one unit moves the sum, between neighbours."""
        return self.grouping.relative_sensitivity(self.sampler.adjacency)

    def event(self, rounds: int) -> Event:
        """What the first so many rounds cost one unit; the whole run where its rounds share noise."""
        return self._event(self._unit_sensitivity, rounds)

    def contributor_event(self, rounds: int) -> Event:
        """The same for one whole contribution (the convention of papers on virtual clients)."""
        return self._event(1.0, rounds)

    def entry(self, round: int) -> Event | None:
        """What the ledger records before this round, from 0; None for nothing: the whole run is in round 0's."""
        if self.whole:
            return self.event(self.rounds) if round == 0 else None
        return self._single(self._unit_sensitivity, counted=self.counts(round))

    def counts(self, round: int) -> bool:
        """Whether this round also releases a noisy count, for the clip norm of the next one."""
        return self.bound.counted is not None and self.bound.counted.active(round)

    def sum_mechanism(self, round: int) -> Mechanism:
        """The noise on the sum: more than the round's multiplier where counts share the cost."""
        if self.selection is not None:
            return self._independent().sharing(self.selection_multiplier)
        if not self.counts(round):
            return self.mechanism
        return self._independent().sharing(self.count_mechanism().multiplier)

    @property
    def selection_multiplier(self) -> float:
        """The noise multiplier of the counts that select rows; 0 without noise."""
        assert self.selection is not None
        return self.selection.multipliers(self.mechanism.multiplier)[0]

    def count_mechanism(self) -> Gaussian:
        """The noise on the count, on a scale of what one contribution adds to it."""
        return Gaussian(noise_multiplier=self._count_noise_std / COUNT_SENSITIVITY, label="count noise")

    def record(self, round: int, clip_norm: float | None) -> dict[str, Any]:
        """What the ledger keeps of a round with its event: all of it public."""
        scale = self.scale(clip_norm)
        record: dict[str, Any] = {
            "round": round + 1,
            "clip_norm": clip_norm,
            "sensitivity": None if clip_norm is None else self.relative_sensitivity * scale,
            "noise_std": self.sum_mechanism(round).noise_std(scale),
            "denominator": self.grouping.clients,
        }
        if self.counts(round):
            record["count_noise_std"] = self._count_noise_std
        if self.selection is not None:
            record["selection_norm"] = self.selection.count_norm
            record["selection_noise_std"] = self.selection_multiplier * self.selection.count_norm
        if self.whole:
            record["rounds"] = self.rounds  # that the entry stands for
        return record

    def scale(self, clip_norm: float | None) -> float:
        """The norm that one contribution adds at most; 0 where there is no bound, and so no noise."""
        return 0.0 if clip_norm is None else self.bound.sensitivity(clip_norm)

    @property
    def _unit_sensitivity(self) -> float:
        """By how many bounds a unit that comes or goes moves the sum; accountants double it for replace themselves."""
        return self.relative_sensitivity / (2.0 if self.sampler.adjacency == "replace" else 1.0)

    @property
    def _count_noise_std(self) -> float:
        """Std of the noise on the count; 0 without privacy."""
        noise, rule = self.mechanism.multiplier, self.bound.counted
        if noise == 0 or rule is None:
            return 0.0
        return rule.count_noise_std(clients=self.grouping.clients, noise_multiplier=noise)

    def _event(self, sensitivity: float, rounds: int) -> Event:
        rule = self.bound.counted
        if self.selection is not None:
            return self._selecting(sensitivity) * rounds
        if rule is None and self.whole:
            return self.mechanism.event(sensitivity, self.sampler, self.rounds) * min(rounds, 1)
        if rule is None:
            return self.mechanism.event(sensitivity, self.sampler, rounds)
        if self.whole:
            raise InputError(
                f"adaptive clipping is accounted round by round, and a run with {self.sampler.describe()} and "
                f"{self.mechanism.describe()} is not; use clipping=flat with a norm of your own"
            )
        counted = rounds if rule.adapted_rounds is None else min(rounds, rule.adapted_rounds)
        with_count, without = (self._single(sensitivity, counted=each) for each in (True, False))
        return with_count * counted + without * (rounds - counted)

    def _selecting(self, sensitivity: float) -> Event:
        """One round of noisy counts of rows and a noisy sum, on one sample."""
        if self.mechanism.multiplier == 0:
            return self.mechanism.event(sensitivity, self.sampler, 1)
        noisy_sum = self._independent().sharing(self.selection_multiplier).single(sensitivity)
        return self.sampler.account(acc.joint(acc.Gaussian(self.selection_multiplier / sensitivity), noisy_sum))

    def _refuse_selection(self) -> None:
        if not isinstance(self.mechanism, Gaussian) or self.bound.counted is not None or self.whole:
            raise InputError(
                "tables=adafest is for independent noise in each round, with a fixed clip norm and cohort=poisson; use "
                "these, or tables=dense"
            )

    def _single(self, sensitivity: float, *, counted: bool) -> Event:
        """One round of independent noise, with its count or without."""
        if self.selection is not None:
            return self._selecting(sensitivity)
        if not counted or self.mechanism.multiplier == 0:
            return self.mechanism.event(sensitivity, self.sampler, 1)
        noisy_sum = self._independent().sharing(self.count_mechanism().multiplier).single(sensitivity)
        return self.sampler.account(acc.joint(noisy_sum, acc.ClipCount(self._count_noise_std / sensitivity)))

    def _independent(self) -> Gaussian:
        assert isinstance(self.mechanism, Gaussian)  # a count with another one is refused at once
        return self.mechanism
