"""`sfumato account`: what a run costs each unit, by every accountant that knows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from sfumato import accounting as acc
from sfumato._check import InputError, between, non_negative, whole
from sfumato._types import Adjacency
from sfumato.accounting.guarantee import Method
from sfumato.cli.console import number, say, say_json, table
from sfumato.cli.parse import CommonOptions, parse

METHODS: tuple[Method, ...] = tuple(method for method in get_args(Method) if method != "auto")
"""The accountants by name."""


@dataclass(frozen=True, kw_only=True)
class AccountOptions(CommonOptions):
    """What ran.

    Attributes:
        noise_multiplier: std of the noise divided by the most that one unit can move the sum; 0 for no noise.
        sampling_rate: probability that a unit takes part in a step (Poisson sampling), in [0, 1]; 1 takes all.
        steps: how many noisy sums were released.
        delta: in (0, 1), well below 1 / population.
        sample_size: cohorts of exactly this size instead of Poisson sampling; needs --population.
        population: units that such cohorts are drawn from.
        adjacency: how two neighbouring data sets differ: one unit more (add_remove), one exchanged (replace), or one
            blanked (zero_out).
    """

    noise_multiplier: float
    sampling_rate: float = 1.0
    steps: int = 1
    delta: float = 1e-5
    sample_size: int | None = None
    population: int | None = None
    adjacency: Adjacency = "add_remove"


def account(argv: Sequence[str]) -> int:
    """Run the command."""
    options = parse(AccountOptions, argv, command="account", about="What a run costs each unit.")
    between(0, 1, ends="()", delta=options.delta, remedy="choose it well below 1 / population")
    event = _event(options)
    best = acc.guarantee(event, adjacency=options.adjacency)
    epsilon = best.epsilon(options.delta)
    by_method = {name: cost for name in METHODS if (cost := _cost(event, options, name)) is not None}
    if options.json:
        say_json(
            {
                "epsilon": epsilon,
                "delta": options.delta,
                "rho": best.rho(),
                "adjacency": options.adjacency,
                "methods": by_method,
                "event": event.to_json(),
            }
        )
        return 0
    table(["method", f"epsilon at delta {options.delta:g}"], [[name, number(cost)] for name, cost in by_method.items()])
    rho = best.rho()
    say(f"\nbest: epsilon {number(epsilon)}" + ("" if rho is None else f"; rho {rho:.4g} (zCDP, without sampling)"))
    return 0


def _event(options: AccountOptions) -> acc.Event:
    non_negative(noise_multiplier=options.noise_multiplier)
    whole(at_least=0, steps=options.steps)
    one: acc.Event = acc.Gaussian(options.noise_multiplier) if options.noise_multiplier else acc.NonPrivate()
    if options.sample_size is None:
        return one.poisson(options.sampling_rate) * options.steps
    if options.population is None or options.sampling_rate != 1.0:
        raise InputError("--sample-size needs --population and takes the place of --sampling-rate")
    return one.without_replacement(options.sample_size, options.population) * options.steps


def _cost(event: acc.Event, options: AccountOptions, method: Method) -> float | None:
    """Epsilon by one accountant; None where it does not know the event."""
    try:
        return acc.guarantee(event, adjacency=options.adjacency, method=method).epsilon(options.delta)
    except InputError:
        return None
