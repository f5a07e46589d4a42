"""`sfumato account`: what a run costs each unit, by every accountant that knows it, side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato import accounting as acc
from sfumato._check import InputError, non_negative, whole
from sfumato._files import read_json
from sfumato._types import Adjacency
from sfumato.cli.accounting import figure
from sfumato.cli.accounting.batches import BatchOptions, chosen_delta
from sfumato.cli.accounting.costs import COMPARED, METHODS, attack, by_method, cost_by, rho_name, show
from sfumato.cli.console import SettingsError, number, say, say_json
from sfumato.cli.parse import parse


@dataclass(frozen=True, kw_only=True)
class AccountOptions(BatchOptions):
    """What ran.

    Attributes:
        noise_multiplier: std of the noise divided by the most that one unit can move the sum; 0 for no noise.
        event: instead of the noise, a JSON file of what a step released: what an event's to_json() gives, or what this
            command prints with --json.
        sampling_rate: probability that a unit takes part in a step (Poisson sampling), in [0, 1]; all if left out.
        steps: how often that was released, each time with fresh noise and a fresh sample; once if left out.
        sample_size: cohorts of exactly this size instead of Poisson sampling; needs --population.
        population: units that such cohorts are drawn from.
        adjacency: how two neighbouring data sets differ: one unit more (add_remove), one exchanged (replace), or one
            blanked (zero_out).
        compare: show the accountant of published figures, too: rdp_usual_orders.
        plot: draw epsilon against the number of steps, from 1 up, into this .svg, .png or .pdf file.
    """

    noise_multiplier: float | None = None
    event: Path | None = None
    sampling_rate: float | None = None
    steps: int | None = None
    sample_size: int | None = None
    population: int | None = None
    adjacency: Adjacency = "add_remove"
    compare: bool = False
    plot: Path | None = None


def account(argv: Sequence[str]) -> int:
    options = parse(AccountOptions, argv, command="account", about="What a run costs each unit.")
    whole(examples_per_user=options.examples_per_user)
    rate, steps = _rate_and_steps(options)
    delta = chosen_delta(options.delta, options.population if options.examples is None else options.examples)
    one = _step(options, rate).for_group(options.examples_per_user)
    event = one * steps
    best = acc.guarantee(event, adjacency=options.adjacency)
    if options.plot is not None:
        figure.check(options.plot, steps)
    asked = METHODS + COMPARED if options.compare else METHODS
    costs = [cost_by(event, options.adjacency, delta.value, method) for method in asked]
    told = attack(best)
    shuffled = _shuffled(options, steps, delta.value)
    curve: list[figure.Point] = []
    if options.plot is not None:
        bounds = {cost.method: (cost.lower or 0.0, cost.upper) for cost in costs if cost.upper is not None}
        curve = figure.points(one, delta.value, options.adjacency, figure.Point(steps, bounds))
        figure.draw(curve, options.plot, _title(options, rate, delta.value))
    if options.json:
        about = {"delta": delta.value, "adjacency": options.adjacency, "event": event.to_json()}
        drawn = {"plot": options.plot, "curve": [point.to_json() for point in curve]} if curve else {}
        other = {} if shuffled is None else {"shuffled": shuffled}
        if options.examples is not None:
            other |= {"sampling_rate": rate, "steps": steps}
        epsilon = best.epsilon(delta.value)
        about |= {rho_name(best): best.rho()}
        say_json({"epsilon": epsilon, **told, **about, **other, **by_method(costs), **drawn})
        return 0
    say(f"{_taken_to_be(options, rate, steps)}\n")
    show(costs, best, delta, told)
    if options.plot is not None:
        say(f"plot: {options.plot}")
    if shuffled is not None:
        say(
            f"shuffled batches instead, accounted without amplification ({shuffled['adjacency']}): "
            f"epsilon {number(float(shuffled['epsilon']))}"
        )
    return 0


def _rate_and_steps(options: AccountOptions) -> tuple[float, int]:
    """The sampling rate and the steps that are accounted."""
    rate, steps = options.rate_and_steps(options.sampling_rate, options.steps)
    if options.examples is not None and options.sample_size is not None:
        raise InputError("--sample-size takes the place of --examples and --batch-size; leave one of them out")
    if options.examples is not None and steps is None:
        raise InputError("--examples and --batch-size do not say how long the run was; give --epochs or --steps too")
    steps = 1 if steps is None else steps
    whole(at_least=0, steps=steps)
    return 1.0 if rate is None else rate, steps


def _shuffled(options: AccountOptions, steps: int, delta: float) -> dict[str, Any] | None:
    """The cost if each epoch were a shuffle: each example in one batch an epoch, and who sees it may know in which.

    None where that is not asked for, or not known. Batches of a fixed size have no place for one example more, so that
    instead of adding or removing an example it is blanked.
    """
    if options.examples is None or options.batch_size is None:
        return None
    # at worst, a user is in one batch of each epoch, and the last batch of an epoch that is not full is left out
    epochs = steps / (options.examples // options.batch_size) if options.epochs is None else options.epochs
    one = _unsampled(options)
    adjacency: Adjacency = "zero_out" if options.adjacency == "add_remove" else options.adjacency
    if not isinstance(one, acc.NonPrivate) and one.gaussian_shift(adjacency) is None:
        return None
    run = one.for_group(options.examples_per_user) * math.ceil(epochs)
    return {"adjacency": adjacency, "epsilon": acc.guarantee(run, adjacency).epsilon(delta)}


def _unsampled(options: AccountOptions) -> acc.Event:
    """What a step does with its sample."""
    if (options.noise_multiplier is None) == (options.event is None):
        raise InputError("give either --noise-multiplier (0 for no noise) or --event FILE")
    return _read(options.event) if options.event is not None else _noise(options.noise_multiplier)


def _step(options: AccountOptions, rate: float) -> acc.Event:
    """What one step released."""
    one = _unsampled(options)
    if options.sample_size is None:
        if options.population is not None:
            raise InputError("--population belongs to --sample-size; Poisson sampling needs --sampling-rate only")
        return one.poisson(rate)
    if options.population is None or rate != 1.0:
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
        raise SettingsError(f"--event {path}: {error}") from None


def _taken_to_be(options: AccountOptions, rate: float, steps: int) -> str:
    if options.sample_size is None:
        return options.in_words(rate, steps)
    times = f"{steps:,} step{'' if steps == 1 else 's'}"
    return f"taken to be: {times} with cohorts of {options.sample_size:,} of {options.population:,}"


def _title(options: AccountOptions, rate: float, delta: float) -> str:
    what = f"noise {options.noise_multiplier:g}" if options.event is None else options.event.name
    if options.sample_size is not None:
        how = f", {options.sample_size} of {options.population:,}"
    else:
        how = f", sampling rate {rate:g}" if rate < 1 else ""
    return f"{what}{how}, δ = {delta:.4g}, {options.adjacency}"
