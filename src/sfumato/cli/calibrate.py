"""`sfumato calibrate`: the one number of a run that is left open, so that the run meets a budget."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from sfumato import accounting as acc
from sfumato._check import InputError, between, positive, whole
from sfumato._types import Adjacency
from sfumato.cli.console import say, say_json
from sfumato.cli.parse import CommonOptions, parse

_OPEN = {
    "noise_multiplier": ((0.05, 1e4), False),
    "steps": ((1, 1e9), True),
    "sampling_rate": ((1e-9, 1.0), False),
}


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(CommonOptions):
    """A budget, and two of the three numbers of a run; the third is searched.

    Attributes:
        epsilon: the budget of the whole run, >= 0.
        delta: in (0, 1), well below 1 / population.
        noise_multiplier: std of the noise divided by the most that one unit can move the sum; leave it out to find
            the smallest that will do.
        steps: noisy sums; leave it out to find the largest number.
        sampling_rate: probability that a unit takes part in a step (Poisson sampling), 1 for all; leave it out to
            find the largest.
        adjacency: how two neighbouring data sets differ: one unit more (add_remove), one exchanged (replace), or one
            blanked (zero_out).
    """

    epsilon: float
    delta: float = 1e-5
    noise_multiplier: float | None = None
    steps: int | None = None
    sampling_rate: float | None = None
    adjacency: Adjacency = "add_remove"


def calibrate(argv: Sequence[str]) -> int:
    """Run the command."""
    about = "The noise, the steps or the sampling rate that meet a budget: give two of the three."
    options = parse(CalibrateOptions, argv, command="calibrate", about=about)
    given = {name: getattr(options, name) for name in _OPEN}
    open_names = [name for name, value in given.items() if value is None]
    if len(open_names) != 1:
        raise InputError(
            "give two of --noise-multiplier, --steps and --sampling-rate (1 for no sampling); the third is searched"
        )
    name = open_names[0]
    make = _maker(given)
    bracket, integer = _OPEN[name]
    exact = acc.calibrate(
        make,
        epsilon=options.epsilon,
        delta=options.delta,
        adjacency=options.adjacency,
        bracket=bracket,
        integer=integer,
    )
    found = int(exact) if integer else _rounded(exact, up=name == "noise_multiplier")
    epsilon = acc.guarantee(make(found), adjacency=options.adjacency).epsilon(options.delta)
    if options.json:
        say_json({name: found, "epsilon": epsilon, "delta": options.delta, "adjacency": options.adjacency})
        return 0
    say(f"{name} {found}: epsilon {epsilon:.4g} at delta {options.delta:g} ({options.adjacency})")
    return 0


def _maker(given: dict[str, float | None]) -> Callable[[float], acc.Event]:
    """The run's event for a value of the number that is left open."""
    for known, value in given.items():
        if known == "steps" and value is not None:
            whole(steps=value)
        elif known == "sampling_rate" and value is not None:
            between(0, 1, ends="(]", sampling_rate=value)
        elif value is not None:
            positive(noise_multiplier=value)

    def make(number: float) -> acc.Event:
        chosen = {key: number if value is None else value for key, value in given.items()}
        return acc.Gaussian(chosen["noise_multiplier"]).poisson(chosen["sampling_rate"]) * int(chosen["steps"])

    return make


def _rounded(value: float, *, up: bool) -> float:
    """Six digits, rounded to the side that costs less."""
    digits = 5 - math.floor(math.log10(value))
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=rounding))
