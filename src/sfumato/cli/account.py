"""`sfumato account`: what a run costs each unit, by every accountant that knows it, side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfumato import accounting as acc
from sfumato._check import InputError, between, non_negative, positive, whole
from sfumato._files import read_json
from sfumato._types import Adjacency
from sfumato.accounting.accountants.comparison.prv import PrvAccountant
from sfumato.accounting.guarantee import Guarantee, Method
from sfumato.cli import account_figure
from sfumato.cli.console import number, say, say_json, table
from sfumato.cli.parse import CommonOptions, parse

METHODS: tuple[Method, ...] = ("pld", "rdp", "zcdp", "gaussian", "pure")
"""The accountants by name."""

COMPARED: tuple[Method, ...] = ("prv", "buckets", "rdp_usual_orders")
"""Those that are there for comparison, and are never the tightest."""

_TWO_SIDED: tuple[Method, ...] = ("pld", "prv", "gaussian")  # whose lower bound costs next to nothing
_FPR = 0.01


@dataclass(frozen=True, kw_only=True)
class AccountOptions(CommonOptions):
    """What ran.

    Attributes:
        noise_multiplier: std of the noise divided by the most that one unit can move the sum; 0 for no noise.
        event: instead of the noise, a JSON file of what a step released: what an event's to_json() gives, or what this
            command prints with --json.
        examples: number of examples; with --batch-size and --epochs, in the place of --sampling-rate and --steps.
        batch_size: examples in a batch, on average (Poisson sampling).
        epochs: how often each example is seen, on average; half an epoch is 0.5.
        examples_per_user: the unit is a user with up to this many examples, all of which may change at once.
        sampling_rate: probability that a unit takes part in a step (Poisson sampling), in [0, 1]; 1 takes all.
        steps: how often that was released, each time with fresh noise and a fresh sample.
        delta: in (0, 1), well below 1 / population.
        sample_size: cohorts of exactly this size instead of Poisson sampling; needs --population.
        population: units that such cohorts are drawn from.
        adjacency: how two neighbouring data sets differ: one unit more (add_remove), one exchanged (replace), or one
            blanked (zero_out).
        compare: show the accountants that are there for comparison, too: prv, buckets, rdp_usual_orders.
        plot: draw epsilon against the number of steps, from 1 up, into this .svg, .png or .pdf file.
    """

    noise_multiplier: float | None = None
    event: Path | None = None
    examples: int | None = None
    batch_size: int | None = None
    epochs: float | None = None
    examples_per_user: int = 1
    sampling_rate: float = 1.0
    steps: int = 1
    delta: float = 1e-5
    sample_size: int | None = None
    population: int | None = None
    adjacency: Adjacency = "add_remove"
    compare: bool = False
    plot: Path | None = None


@dataclass(frozen=True)
class Cost:
    """What one accountant says.

    Attributes:
        method: its name.
        lower, upper: bounds on epsilon; lower is None where it gives none, both are None where it does not know.
        estimate: between the two and no bound; None as a rule.
        reason: why it does not know; empty where it does.
    """

    method: Method
    lower: float | None = None
    upper: float | None = None
    estimate: float | None = None
    reason: str = ""


def account(argv: Sequence[str]) -> int:
    options = parse(AccountOptions, argv, command="account", about="What a run costs each unit.")
    between(0, 1, ends="()", delta=options.delta, remedy="choose it well below 1 / population")
    whole(at_least=0, steps=options.steps)
    whole(examples_per_user=options.examples_per_user)
    options = _in_steps(options)
    one = _step(options).for_group(options.examples_per_user)
    event = one * options.steps
    best = acc.guarantee(event, adjacency=options.adjacency)
    if options.plot is not None:
        account_figure.check(options.plot, options.steps)
    all_methods = options.compare or options.plot is not None
    costs = [_cost(event, options, method) for method in (METHODS + COMPARED if all_methods else METHODS)]
    told = _attack(best)
    shuffled = _shuffled(options)
    curve: list[account_figure.Point] = []
    if options.plot is not None:
        bounds = {cost.method: (cost.lower or 0.0, cost.upper) for cost in costs if cost.upper is not None}
        curve = account_figure.points(
            one, options.delta, options.adjacency, account_figure.Point(options.steps, bounds)
        )
        account_figure.draw(curve, options.plot, _title(options))
    if options.json:
        about = {"delta": options.delta, "adjacency": options.adjacency, "event": event.to_json()}
        drawn = {"plot": options.plot, "curve": [point.to_json() for point in curve]} if curve else {}
        other = {} if shuffled is None else {"shuffled": shuffled}
        if options.examples is not None:
            other |= {"sampling_rate": options.sampling_rate, "steps": options.steps}
        epsilon = best.epsilon(options.delta)
        say_json({"epsilon": epsilon, "rho": best.rho(), **told, **about, **other, **_by_method(costs), **drawn})
        return 0
    _show(costs, best, options, told)
    if shuffled is not None:
        say(
            f"shuffled batches instead, accounted without amplification ({shuffled['adjacency']}): "
            f"epsilon {number(float(shuffled['epsilon']))}"
        )
    return 0


def _in_steps(options: AccountOptions) -> AccountOptions:
    """The options with a sampling rate and steps in the place of examples, batch size and epochs."""
    given = {"examples": options.examples, "batch_size": options.batch_size, "epochs": options.epochs}
    missing = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return options
    if missing:
        raise InputError(f"--examples, --batch-size and --epochs belong together; give {' and '.join(missing)} too")
    if options.sampling_rate != 1.0 or options.steps != 1 or options.sample_size is not None:
        raise InputError("--examples, --batch-size and --epochs take the place of --sampling-rate and --steps")
    examples, batch_size, epochs = options.examples or 0, options.batch_size or 0, options.epochs or 0.0
    whole(examples=examples, batch_size=batch_size)
    positive(epochs=epochs)
    if batch_size > examples:
        raise InputError(f"batch_size must be <= examples ({examples}), got {batch_size}")
    steps = math.ceil(epochs * examples / batch_size)
    return replace(options, sampling_rate=batch_size / examples, steps=steps)


def _shuffled(options: AccountOptions) -> dict[str, Any] | None:
    """The cost if each epoch were a shuffle: each example in one batch an epoch, and who sees it may know in which.

    None where that is not asked for, or not known. Batches of a fixed size have no place for one example more, so that
    instead of adding or removing an example it is blanked.
    """
    if options.epochs is None:
        return None
    one = _unsampled(options)
    adjacency: Adjacency = "zero_out" if options.adjacency == "add_remove" else options.adjacency
    if not isinstance(one, acc.NonPrivate) and one.gaussian_shift(adjacency) is None:
        return None
    run = one.for_group(options.examples_per_user) * math.ceil(options.epochs)  # at worst, a user is in one batch
    return {"adjacency": adjacency, "epsilon": acc.guarantee(run, adjacency).epsilon(options.delta)}


def _unsampled(options: AccountOptions) -> acc.Event:
    """What a step does with its sample."""
    if (options.noise_multiplier is None) == (options.event is None):
        raise InputError("give either --noise-multiplier (0 for no noise) or --event FILE")
    return _read(options.event) if options.event is not None else _noise(options.noise_multiplier)


def _step(options: AccountOptions) -> acc.Event:
    """What one step released."""
    one = _unsampled(options)
    if options.sample_size is None:
        if options.population is not None:
            raise InputError("--population belongs to --sample-size; Poisson sampling needs --sampling-rate only")
        return one.poisson(options.sampling_rate)
    if options.population is None or options.sampling_rate != 1.0:
        raise InputError("--sample-size needs --population and takes the place of --sampling-rate")
    return one.without_replacement(options.sample_size, options.population)


def _noise(noise_multiplier: float | None) -> acc.Event:
    non_negative(noise_multiplier=noise_multiplier)
    return acc.Gaussian(noise_multiplier) if noise_multiplier else acc.NonPrivate()


def _read(path: Path) -> acc.Event:
    try:
        value = read_json(path)
    except OSError as error:
        raise InputError(f"--event {path}: {error.strerror}; give a file with an event") from None
    except ValueError as error:
        raise InputError(f"--event {path} is not JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("event"), dict):
        value = value["event"]  # as this command prints it
    if not isinstance(value, dict):
        raise InputError(f"--event {path} must hold what an event's to_json() gives, got {str(value)[:60]}")
    try:
        return acc.event_from_json(value)
    except InputError as error:
        raise InputError(f"--event {path}: {error}") from None


def _cost(event: acc.Event, options: AccountOptions, method: Method) -> Cost:
    try:
        promise = acc.guarantee(event, adjacency=options.adjacency, method=method)
        high = promise.epsilon(options.delta)
        low = promise.epsilon_interval(options.delta)[0] if method in _TWO_SIDED else 0.0
    except InputError as error:
        return Cost(method, reason=str(error))
    estimate = None
    for each in promise.accountants:
        if isinstance(each, PrvAccountant):
            estimate = each.estimate(options.delta)
    return Cost(method, low if low > 0 or high == 0 else None, high, estimate)


def _attack(best: Guarantee) -> dict[str, float]:
    """What the guarantee means for somebody who wants to know whether a unit took part."""
    gdp = best.gdp()
    caught = float(best.tpr(_FPR))
    return {"mu": gdp.mu, "regret": gdp.regret, "advantage": best.advantage(), "tpr_at_1_percent_fpr": caught}


def _by_method(costs: Sequence[Cost]) -> dict[str, Any]:
    return {
        "methods": {cost.method: cost.upper for cost in costs if not cost.reason},
        "lower": {cost.method: cost.lower for cost in costs if cost.lower is not None},
        "estimate": {cost.method: cost.estimate for cost in costs if cost.estimate is not None},
        "unknown": {cost.method: cost.reason for cost in costs if cost.reason},
    }


def _show(costs: Sequence[Cost], best: Guarantee, options: AccountOptions, told: dict[str, float]) -> None:
    def cell(value: float | None) -> str:
        return "-" if value is None else number(value)

    some = [cost for cost in costs if cost.upper is not None and math.isfinite(cost.upper)]
    rows = [[cost.method, cell(cost.lower), cell(cost.upper)] for cost in some]
    if rows:
        table(["method", "lower", f"epsilon at delta {options.delta:g}"], rows)
        say()
    epsilon, rho = best.epsilon(options.delta), best.rho()
    say(f"best: epsilon {number(epsilon)}" + ("" if rho is None else f"; rho {rho:.4g} (zCDP, without sampling)"))
    if math.isinf(told["mu"]):
        say(f"an attack can be right about one unit with an advantage of {told['advantage']:.3g}")
    else:
        say(
            f"no easier to attack than mu = {told['mu']:.4g} (Gaussian DP): at a false positive rate of {_FPR:.0%} an "
            f"attack finds at most {told['tpr_at_1_percent_fpr']:.3g}; its advantage is at most {told['advantage']:.3g}"
        )
    if options.plot is not None:
        say(f"plot: {options.plot}")


def _title(options: AccountOptions) -> str:
    what = f"noise {options.noise_multiplier:g}" if options.event is None else options.event.name
    if options.sample_size is not None:
        how = f", {options.sample_size} of {options.population:,}"
    else:
        how = f", sampling rate {options.sampling_rate:g}" if options.sampling_rate < 1 else ""
    return f"{what}{how}, δ = {options.delta:g}, {options.adjacency}"
