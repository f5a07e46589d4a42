"""The exchange of computation for privacy: what more clients a round, on more people, would cost each of
them.

A model that was tuned with K clients a round and noise multiplier z keeps its signal-to-noise ratio when both
grow by a factor c. Then the sampling rate is c K m / N and the noise multiplier c z, and epsilon falls with c
and with the population N: privacy is bought with computation (Xu et al. 2022, Section 4; McMahan et al. 2018,
Section 4).

Each row has two epsilons. The paper's neighbour is a whole virtual client of m users. One user inside a group
can move the group's clipped update by twice the clip norm, so for one user the noise multiplier counts half
(m > 1).

A row also has the cost of correlated noise (DP-FTRL) at equal utility, without any promise on sampling. Its multiplier
is the one with which the sums of all rounds so far carry as much noise on average (root mean square). Units take part
at the largest separation that the population allows, N // (c K m) rounds. Where its curve crosses that of sampled
noise, one choice becomes better than the other.

>>> rows = extrapolate(noise_multiplier=0.62, rounds=200, clients_per_round=32, users_per_client=8,
...                    populations=[3_000_000], multipliers=[1, 2], methods=["rdp"])
>>> [(row.users_per_round, round(row.epsilon["rdp"], 2)) for row in rows]
[(256, 2.1), (512, 0.48)]
"""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_args

from sfumato._check import InputError, one_of, positive, whole
from sfumato._types import CorrelatedName, Method
from sfumato.accounting.events import Event, Gaussian
from sfumato.accounting.events.sensitivity import Participation
from sfumato.accounting.guarantees import Guarantee, guarantee
from sfumato.accounting.strategies import BinaryTree, Independent, Strategy
from sfumato.accounting.strategy_search import banded_inverse_square_root, optimize_banded, optimize_blt


@dataclass(frozen=True, kw_only=True)
class ExtrapolationRow:
    """One point of the figure: a population and a factor c.

    Attributes:
        population: users, N.
        multiplier: the factor c on clients a round and on the noise.
        users_per_round: expected cohort, c K m.
        sampling_rate: c K m / N.
        noise_multiplier: c z, for a virtual client.
        delta: N to the power of -`delta_exponent`.
        epsilon: by method, for a virtual client (the paper's convention).
        epsilon_user: by method, for one user.
        epsilon_correlated: by the kind of correlated noise, for one user at equal utility: neighbours by zero_out, no
            sampling is assumed.
    """

    population: int
    multiplier: float
    users_per_round: float
    sampling_rate: float
    noise_multiplier: float
    delta: float
    epsilon: dict[str, float]
    epsilon_user: dict[str, float]
    epsilon_correlated: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can write."""
        return asdict(self)


def extrapolate(
    *,
    noise_multiplier: float,
    rounds: int,
    clients_per_round: int,
    users_per_client: int,
    populations: Iterable[int],
    multipliers: Iterable[float],
    methods: Iterable[Method] = ("rdp", "zcdp"),
    noises: Iterable[CorrelatedName] = (),
    delta_exponent: float = 1.1,
) -> list[ExtrapolationRow]:
    """Epsilon for every population and factor, populations outermost.

    Args:
        noise_multiplier: z of the run that was tuned, > 0.
        rounds: T.
        clients_per_round: K, virtual clients a round.
        users_per_client: m, users in a virtual client.
        populations: numbers of users, N.
        multipliers: factors c > 0.
        methods: accountants to compare, as in `guarantee`.
        noises: kinds of correlated noise to compare with: "tree", "banded", "blt", "bisr".
        delta_exponent: delta is N to the power of minus this.

    Raises:
        InputError: a cohort is larger than its population, or a number is out of its range.
    """
    positive(noise_multiplier=noise_multiplier, delta_exponent=delta_exponent)
    whole(rounds=rounds, clients_per_round=clients_per_round, users_per_client=users_per_client)
    populations = _several("populations", populations)
    multipliers, methods = _several("multipliers", multipliers), _several("methods", methods)
    noises = _several("noises", noises)
    for noise in noises:
        one_of(get_args(CorrelatedName), noises=noise)
    for population in populations:
        whole(at_least=2, population=population)
    for factor in multipliers:
        positive(multiplier=factor)
    base = int(clients_per_round) * int(users_per_client)
    positive(users_in_a_round=base)
    for population in populations:
        for factor in multipliers:
            if factor * base > population:
                raise InputError(
                    f"a round of {factor:g} x {clients_per_round} clients x {users_per_client} users needs "
                    f"{factor * base:g} users, the population is {population}; lower the multiplier or leave that "
                    "population out"
                )

    def row(population: int, factor: float) -> ExtrapolationRow:
        rate = factor * base / population
        z = factor * noise_multiplier
        delta = float(population) ** -float(delta_exponent)

        def epsilons(event: Event) -> dict[str, float]:
            return {method: guarantee(event, method=method).epsilon(delta) for method in methods}

        client = Gaussian(z).poisson(rate) * rounds
        sensitivity = 1.0 if users_per_client == 1 else 2.0
        user = client if users_per_client == 1 else Gaussian(z / sensitivity).poisson(rate) * rounds
        separation = int(population / (factor * base))
        return ExtrapolationRow(
            population=population,
            multiplier=factor,
            users_per_round=factor * base,
            sampling_rate=rate,
            noise_multiplier=z,
            delta=delta,
            epsilon=epsilons(client),
            epsilon_user=epsilons(user),
            epsilon_correlated={
                noise: _correlated(noise, z / sensitivity, rounds, separation).epsilon(delta) for noise in noises
            },
        )

    return [row(population, factor) for population in populations for factor in multipliers]


def crossings(rows: Iterable[ExtrapolationRow], method: Method = "pld") -> list[tuple[int, str, float]]:
    """Where sampled noise becomes better than correlated noise, or the other way round.

    Args:
        rows: of `extrapolate`.
        method: the accountant of sampled noise.

    Returns:
        population, kind of noise, and the users a round at which the two curves meet, between two of the rows:
        interpolated by straight lines on logarithmic axes.
    """
    found = []
    ordered = sorted(rows, key=lambda row: (row.population, row.users_per_round))
    for left, right in itertools.pairwise(ordered):
        for noise in left.epsilon_correlated if left.population == right.population else ():
            before, after = (_logarithm_of_ratio(row, noise, method) for row in (left, right))
            if before * after < 0:
                part = before / (before - after)
                users = math.log(left.users_per_round) * (1 - part) + math.log(right.users_per_round) * part
                found.append((left.population, noise, math.exp(users)))
    return found


def _logarithm_of_ratio(row: ExtrapolationRow, noise: str, method: Method) -> float:
    one, other = row.epsilon_user[method], row.epsilon_correlated[noise]
    usable = 0 < one < math.inf and 0 < other < math.inf
    return math.log(one / other) if usable else math.nan


_STRATEGIES: dict[CorrelatedName, Callable[[Participation], Strategy]] = {
    "tree": lambda limits: BinaryTree(),
    "banded": optimize_banded,
    "blt": optimize_blt,
    "bisr": banded_inverse_square_root,
}


def _correlated(noise: CorrelatedName, independent: float, rounds: int, separation: int) -> Guarantee:
    """The guarantee of correlated noise whose prefix sums are as noisy as those of independent noise."""
    limits = Participation(rounds=rounds, max_participations=None, min_separation=separation - 1)
    strategy = _STRATEGIES[noise](limits)
    one, other = (float(each.prefix_variance(rounds).mean()) for each in (Independent(), strategy))
    return guarantee(strategy.event(independent * math.sqrt(one / other), limits), "zero_out")


_Item = TypeVar("_Item")


def _several(name: str, values: Iterable[_Item]) -> list[_Item]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list, got {values!r}; put a single value into brackets")
    return list(values)
