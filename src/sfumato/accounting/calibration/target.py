"""What a run may cost at most: one number that can be read off a guarantee, and its limit.

Guarantees that a target is met only by a certified bound: each number is an upper bound for the unit of the guarantee.

>>> from sfumato.accounting.events import Gaussian
>>> from sfumato.accounting.guarantee import guarantee
>>> goal = target(tpr=0.05, fpr=0.01)
>>> str(goal), goal.is_met(guarantee(Gaussian(1.0))), goal.is_met(guarantee(Gaussian(2.0)))
('tpr 0.05 at fpr 0.01', False, True)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from sfumato._check import InputError, between, non_negative, positive
from sfumato.accounting.guarantee import Guarantee

CHOICES = "epsilon with delta, rho, mu, advantage, tpr with fpr, or success"


@dataclass(frozen=True)
class Target:
    """A limit for one number of a guarantee.

    Attributes:
        name: of the number.
        limit: the largest value allowed.
        where: at what it is read, for messages; "" where nothing is to be said.
        read: the number of a guarantee, an upper bound; inf where there is none.
        floor: the number where nothing was released.
    """

    name: str
    limit: float
    where: str
    read: Callable[[Guarantee], float]
    floor: float = 0.0

    def is_met(self, promise: Guarantee) -> bool:
        """Whether a guarantee stays within the limit."""
        return self.read(promise) <= self.limit

    def __str__(self) -> str:
        return f"{self.name} {self.limit:g}{self.where}"


def target(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    advantage: float | None = None,
    tpr: float | None = None,
    fpr: float | None = None,
    success: float | None = None,
    prior: float | None = None,
) -> Target:
    """The one target that is given; arguments as for `sfumato.accounting.calibration.calibrate`.

    Raises:
        InputError: none or several are given, one lacks its companion, or a value is outside its range.
    """
    limits = {"epsilon": epsilon, "rho": rho, "mu": mu, "advantage": advantage, "tpr": tpr, "success": success}
    given = [name for name, limit in limits.items() if limit is not None]
    if len(given) != 1:
        what = f"got {' and '.join(given)}" if given else "got none"
        raise InputError(f"give exactly one target, {CHOICES}; {what}")
    (name,) = given
    for companion, value, owner in (("delta", delta, "epsilon"), ("fpr", fpr, "tpr"), ("prior", prior, "success")):
        if value is not None and name != owner:
            raise InputError(f"{companion} belongs to the target {owner}, got it with {name}; leave it out")
    match name:
        case "epsilon":
            non_negative(epsilon=epsilon)
            at = _needed("epsilon", delta=delta)
            between(0, 1, ends="()", delta=at, remedy="choose it well below 1 / population")
            if epsilon == 0:  # the same question, which is cheaper and more precise to answer this way round
                return Target("delta", float(at), " at epsilon 0", lambda promise: promise.delta(0.0))
            return Target(name, _limit(epsilon), f" at delta {at:g}", lambda promise: promise.epsilon(at))
        case "rho":
            positive(rho=rho)
            return Target(name, _limit(rho), "", _rho)
        case "mu":
            positive(mu=mu)
            return Target(name, _limit(mu), "", lambda promise: promise.gdp().mu)
        case "advantage":
            between(0, 1, ends="()", advantage=advantage)
            return Target(name, _limit(advantage), "", lambda promise: promise.advantage())
        case "tpr":
            at = _needed("tpr", fpr=fpr)
            between(0, 1, ends="()", fpr=at)
            between(0, 1, ends="()", tpr=tpr)
            return Target(name, _limit(tpr), f" at fpr {at:g}", lambda promise: float(promise.tpr(at)), at)
        case _:
            at = 0.5 if prior is None else prior
            between(0, 1, ends="()", prior=at)
            between(0, 1, ends="()", success=success)
            return Target(
                name, _limit(success), f" at prior {at:g}", lambda promise: promise.bayes_success(at), max(at, 1 - at)
            )


def _limit(value: float | None) -> float:
    assert value is not None
    return float(value)


def _needed(owner: str, **companion: float | None) -> float:
    ((name, value),) = companion.items()
    if value is None:
        raise InputError(f"the target {owner} needs {name} too; give both")
    return value


def _rho(promise: Guarantee) -> float:
    rho = promise.rho()
    return math.inf if rho is None else rho
