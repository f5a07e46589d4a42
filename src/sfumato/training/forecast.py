"""A forecast before a run: the noise on what all rounds add up to, against the signal that they can add up to.

Only public facts are used: plan, sizes of the trained parameters, and the number of units. No record is looked at, so
a forecast costs nothing. The derivation, and what it leaves out, is in `docs/explanation/forecast.md`.

After T rounds the server has moved by the mean updates, summed: with bound C, m contributions a round, noise of std z·C
on each of d coordinates, and prefix variance v (T for independent noise),

    noise  = z·C·√(d·v) / m            the length of the noise's part
    signal = a·C·T                     the length of the common part of updates, each of length C
    ratio  = z·√(d·v) / (a·m·T)

with the alignment a: the length of the mean update of a cohort without its scatter, in clip norms. It is taken to be 1,
the most there can be. On the committed recipes about half of what training gains is then left at a ratio of 1, as
`benchmarks/forecasts.py` measures. So a ratio is no promise: far above 1 a run cannot learn, far below it noise is not
what limits it.

>>> from sfumato.clipping import Flat
>>> from sfumato.mechanisms import Gaussian
>>> from sfumato.sampling import Poisson
>>> from sfumato.training import PrivateSum
>>> few = PrivateSum(
...     sampler=Poisson(size=26, population=26), bound=Flat(norm=1.0), mechanism=Gaussian(noise_multiplier=52.0),
...     rounds=100)
>>> found = forecast(few, {"conv": 10_000, "dense": 30_000}, population=26)
>>> round(found.ratio, 1), found.population_needed, round(found.share_needed, 4)
(40.0, 1040, 0.0006)
>>> [(each.name, each.parameters, round(each.ratio, 1)) for each in found.groups]
[('dense', 30000, 49.0), ('conv', 10000, 28.3)]
>>> found.words(epsilon=8.0, unit="user").split("; ")
['At ε = 8 with 26 users the noise is 40 times the signal', 'about 1,040 users are needed, or train 0.062 % of the ...']
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato._check import InputError, between
from sfumato.accounting import guarantee
from sfumato.clipping.bounds import PerLayer
from sfumato.models import trainable_parameters

if TYPE_CHECKING:
    from torch import nn

    from sfumato.training.plan import Plan
    from sfumato.training.private_sum import PrivateSum

ALIGNMENT = 1.0
"""Length of what the updates of a cohort have in common, in clip norms: as if all pointed one way."""

_MOST_ROUNDS = 64  # times as many as planned, up to which a run's rounds are tried


@dataclass(frozen=True, kw_only=True)
class GroupForecast:
    """Parameters of one module.

    Attributes:
        name: of the module.
        parameters: how many numbers are trained.
        ratio: of noise to signal, with an equal share of the signal's energy in each module, or that of its bound.
    """

    name: str
    parameters: int
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What noise leaves of a run.

    Attributes:
        ratio: of noise to signal after all rounds, >= 0.
        parameters: how many numbers are trained.
        rounds: of the run.
        population: public number of units.
        groups: modules, those with the largest ratio first.
    """

    ratio: float
    parameters: int
    rounds: int
    population: int
    groups: tuple[GroupForecast, ...]

    @property
    def population_needed(self) -> int:
        """Units with which noise equals signal, at equal ε, rounds and share of units in a round."""
        return math.ceil(_rounded(self.population * self.ratio)) if self.ratio > 1 else self.population

    @property
    def share_needed(self) -> float:
        """Share of the parameters with which noise equals signal, in (0, 1]."""
        return min(1.0, self.ratio**-2) if self.ratio else 1.0

    def words(self, *, epsilon: float, unit: str) -> str:
        """The forecast in one sentence.

        Args:
            epsilon: of the whole run; infinite where it has none.
            unit: of the guarantee, in the singular.
        """
        if self.ratio == 0:
            return "There is no noise, so noise does not limit what the run learns."
        many = f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"
        units = many if self.population != 1 else unit
        found = f"{self.ratio:.2g} times" if self.ratio < 99.5 else f"{_rounded(self.ratio):,.0f} times"
        found = found if self.ratio >= 1 else f"{self.ratio:.2g} of"
        start = f"At ε = {epsilon:.3g} with {self.population:,} {units} the noise is {found} the signal"
        if self.ratio <= 1:
            return f"{start}."
        return (
            f"{start}; about {self.population_needed:,} {many} are needed, or train "
            f"{100 * self.share_needed:.2g} % of the parameters."
        )

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "noise_to_signal": self.ratio,
            "parameters": self.parameters,
            "rounds": self.rounds,
            "population": self.population,
            "population_needed": self.population_needed,
            "share_needed": self.share_needed,
            "groups": [vars(each) for each in self.groups],
        }


def forecast(
    private_sum: PrivateSum,
    sizes: Mapping[str, int],
    *,
    population: int,
    silos: float = 1,
    alignment: float = ALIGNMENT,
) -> Forecast:
    """Compare noise and signal of a run.

    Args:
        private_sum: the parts of the run, with its noise.
        sizes: how many numbers each trained parameter has, by its name.
        population: public number of units, >= 1; of all silos.
        silos: runs whose updates are averaged, each with noise of its own, >= 1; their mean number.
        alignment: length of what updates have in common, in clip norms, in (0, 1].

    Raises:
        InputError: a number is out of range, or nothing is trained.
    """
    between(0.0, 1.0, ends="(]", alignment=alignment)
    names = list(sizes)
    if not sum(sizes.values()):
        raise InputError("sizes must have at least one number that is trained, got none; name the trained parameters")
    noise = noise_to_signal(private_sum, 1, alignment=alignment) / math.sqrt(silos)
    modules: dict[str, int] = {}
    for name, size in sizes.items():
        module = name.rpartition(".")[0] or name
        modules[module] = modules.get(module, 0) + size
    shares = _shares(private_sum, names, list(modules))
    groups = [
        GroupForecast(name=name, parameters=size, ratio=noise * math.sqrt(size) / share)
        for (name, size), share in zip(modules.items(), shares, strict=True)
    ]
    return Forecast(
        ratio=noise * math.sqrt(sum(sizes.values())),
        parameters=sum(sizes.values()),
        rounds=private_sum.rounds,
        population=population,
        groups=tuple(sorted(groups, key=lambda each: -each.ratio)),
    )


def noise_to_signal(private_sum: PrivateSum, numbers: int, *, alignment: float = ALIGNMENT) -> float:
    """The ratio of noise to signal after all rounds.

    Args:
        private_sum, alignment: as for `forecast`.
        numbers: how many are trained, >= 0.
    """
    mechanism, rounds = private_sum.sum_mechanism(0), private_sum.rounds
    if mechanism.multiplier == 0:
        return 0.0
    variance = mechanism.prefix_variance(rounds)
    total = rounds if variance is None else float(np.asarray(variance)[-1])
    noise = mechanism.noise_std(1.0) * math.sqrt(total * numbers) / private_sum.grouping.clients  # in clip norms
    return noise / (alignment * rounds)


def trained_sizes(plan: Plan, model: nn.Module) -> dict[str, int]:
    """How many numbers of each parameter a plan trains on the server."""
    local: Any = getattr(plan, "local_parameters", None)
    own = None if local is None else local(model)
    named = trainable_parameters(model, plan.trainable)
    return {name: each.numel() for name, each in named if not own or re.fullmatch(own, name) is None}


def spent(plan: Plan, population: int) -> float:
    """ε of the whole run."""
    whole = plan.private_sum(population)
    return guarantee(whole.event(whole.rounds), whole.sampler.adjacency).epsilon(plan.delta_for(population))


def forecast_of(plan: Plan, population: int, sizes: Mapping[str, int]) -> Forecast:
    """The forecast of a plan for a population, with its noise."""
    return forecast(plan.private_sum(population), sizes, population=population)


def _shares(private_sum: PrivateSum, names: list[str], modules: list[str]) -> list[float]:
    """The length of each module's part of a signal of length 1."""
    bound = private_sum.bound
    if isinstance(bound, PerLayer) and len(bound.groups(names)) == len(modules):
        return bound.bounds(len(modules), 1.0)
    return [1 / math.sqrt(len(modules))] * len(modules)


def _rounded(value: float) -> float:
    """To three digits."""
    digits = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0 else 1.0
    return round(value / digits) * digits


def rounds_needed(
    plan: Any, sizes: Mapping[str, int], *, epsilon: float, population: int, alignment: float = ALIGNMENT
) -> int | None:
    """The least of 2, 4, … 64 times as many rounds with which the signal exceeds the noise, at equal ε.

    More rounds need more noise in each of them, and may not help at all.

    Args:
        plan: with its rounds; its noise is calibrated anew.
        sizes, population, alignment: as for `forecast`.
        epsilon: of the whole run, > 0.

    Returns:
        the rounds; None where not even 64 times as many are enough.
    """
    field = "steps" if hasattr(plan, "steps") else "rounds"
    rounds, times = plan.rounds_for(population), 1
    while times < _MOST_ROUNDS:
        times *= 2
        more = {field: rounds * times} | ({"epochs": None} if hasattr(plan, "epochs") else {})
        longer = replace(plan, **more).calibrate(epsilon=epsilon, delta=plan.delta, population=population)
        found = forecast(longer.private_sum(population), sizes, population=population, alignment=alignment)
        if found.ratio <= 1:
            return rounds * times
    return None
