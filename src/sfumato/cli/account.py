"""`sfumato account` and `sfumato calibrate`: what a run costs each unit, and the one number of a run that is left open.

An event in words, for tables: what was released, on which sample.

>>> from sfumato.accounting import Gaussian
>>> in_words(Gaussian(1.1).poisson(0.01) * 1000)
'1,000 × gaussian (noise multiplier 1.1), Poisson sample 0.01'
>>> from sfumato.accounting import NoisyVote
>>> in_words(NoisyVote(noise_std=2.0))  # leaves out what was not passed
'1 × noisy vote (noise std 2, level agent)'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sfumato import accounting as acc
from sfumato._check import InputError, between, non_negative, positive, whole
from sfumato._files import read_json
from sfumato._types import Adjacency, CorrelatedName, MatrixName, Method
from sfumato.cli.console import Answer, SettingsError, Table, number
from sfumato.cli.parse import CommonOptions
from sfumato.statement.verdict import rounded_down, rounded_up

if TYPE_CHECKING:
    from sfumato.accounting.guarantees import Guarantee
    from sfumato.accounting.strategies import BandedToeplitz, Strategy
    from sfumato.report import ExtrapolationRow
    from sfumato.report.cost_curve import Point


_LONG = 60  # characters of one value


_MOST = 4  # numbers of one value that are shown


def in_words(event: acc.Event) -> str:
    """Every single event with its count; "nothing" for none."""
    parts = [f"{count:,} × {single_in_words(single)}" for single, count in acc.terms(event)]
    return " + ".join(parts) or "nothing"


def single_in_words(event: acc.Event) -> str:
    """One single event, without its count."""
    if isinstance(event, acc.Poisson):
        return f"{single_in_words(event.event)}, Poisson sample {event.sampling_rate:g}"
    if isinstance(event, acc.WithoutReplacement):
        return f"{single_in_words(event.event)}, {event.sample_size:,} of {event.population:,}"
    values = [(field.name, getattr(event, field.name)) for field in fields(event)]  # pyright: ignore[reportArgumentType]
    inside = ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in values if value not in ("", None))
    name = event.kind.replace("_", " ")
    return f"{name} ({inside})" if inside else name


def _value(value: Any) -> str:
    if isinstance(value, acc.Event):
        return in_words(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple) and len(value) > _MOST and all(isinstance(each, float) for each in value):
        return f"of {len(value):,} numbers"
    text = f"[{', '.join(map(_value, value))}]" if isinstance(value, tuple) else str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


# What `account` and `calibrate` share: a run of batches of examples, the delta to read it at, and groups.
#
# Guarantees the sampling rate and the steps of `sfumato dpsgd` with the same examples, batch size and epochs (or
# steps), and where delta is left out the delta that it would choose.


UNCHOSEN_DELTA = 1e-5


"""Where neither a delta nor a population is chosen."""


REMEDY = "choose it well below 1 / population"


@dataclass(frozen=True, kw_only=True)
class BatchOptions(CommonOptions):
    """A run on batches of examples.

    Attributes:
        examples: number of examples; with --batch-size, in the place of --sampling-rate.
        batch_size: examples in a batch, on average (Poisson sampling).
        epochs: how often each example is seen, on average; half an epoch is 0.5. In the place of --steps.
        examples_per_user: the unit is a user with up to this many examples, all of which may change at once.
        delta: in (0, 1), well below 1 / population; if left out, 0.01 / examples as in dpsgd, or 1e-5 where their
            number is not given.
    """

    examples: int | None = None
    batch_size: int | None = None
    epochs: float | None = None
    examples_per_user: int = 1
    delta: float | None = None

    def rate_and_steps(self, sampling_rate: float | None, steps: int | None) -> tuple[float | None, int | None]:
        """The sampling rate and the steps of the run, each by its own option or by the examples; None if by neither.

        Args:
            sampling_rate: as --sampling-rate has it, None where it was left out.
            steps: as --steps has it, likewise.

        Raises:
            InputError: one of the options is missing or given twice over, or is not possible.
        """
        given = {"--examples": self.examples, "--batch-size": self.batch_size}
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == len(given) and self.epochs is None:
            return sampling_rate, steps
        if missing:
            raise InputError(
                "--examples and --batch-size belong together, with --epochs or --steps; "
                f"give {' and '.join(missing)} too"
            )
        if sampling_rate is not None:
            raise InputError("--examples and --batch-size take the place of --sampling-rate; leave one of them out")
        if self.epochs is not None and steps is not None:
            raise InputError("--epochs takes the place of --steps; leave one of them out")
        examples, batch_size, epochs = self.examples or 0, self.batch_size or 0, self.epochs
        whole(examples=examples, batch_size=batch_size)
        if batch_size > examples:
            raise InputError(f"batch_size must be <= examples ({examples}), got {batch_size}")
        if epochs is None:
            return batch_size / examples, steps
        positive(epochs=epochs)
        if epochs * examples < batch_size:
            raise InputError(
                f"epochs must be at least one step, {batch_size / examples:.4g} for batches of {batch_size:,} of "
                f"{examples:,} examples, got {epochs:g}"
            )
        return batch_size / examples, math.ceil(epochs * examples / batch_size)

    def in_words(self, sampling_rate: float, steps: int) -> str:
        """What the run was taken to be, in one line.

        Args:
            sampling_rate: of a step.
            steps: of the run.
        """
        run = f"{steps:,} step{'' if steps == 1 else 's'} at sampling rate {sampling_rate:.4g}"
        if self.examples is None or self.batch_size is None:
            return f"taken to be: {run}"
        number = steps * self.batch_size / self.examples if self.epochs is None else self.epochs
        epochs = f"{number:.4g} epoch{'' if number == 1 else 's'}"
        return f"taken to be: {self.examples:,} examples, batches of {self.batch_size:,}, {epochs}: {run}"


@dataclass(frozen=True)
class ChosenDelta:
    """Where epsilon is read.

    Attributes:
        value: in (0, 1).
        note: which rule chose it, for people; empty where they did.
    """

    value: float
    note: str = ""


def chosen_delta(delta: float | None, population: int | None) -> ChosenDelta:
    """The delta of the options, or else the usual one.

    Args:
        delta: in (0, 1); None for the usual one.
        population: of the units, or None where it is not known.
    """
    from sfumato.statement.verdict import DEFAULT, default_delta

    if delta is not None:
        between(0, 1, ends="()", delta=delta, remedy=REMEDY)
        return ChosenDelta(delta)
    if population is not None:
        usual = default_delta(population)
        return ChosenDelta(usual, f"delta {usual:.4g} = {DEFAULT:g} / {population:,}, as sfumato dpsgd chooses it")
    return ChosenDelta(UNCHOSEN_DELTA, f"delta {UNCHOSEN_DELTA:g}, as none was given; {REMEDY}")


# What an event costs by every accountant that knows it, and how a command shows it.


METHODS: tuple[Method, ...] = ("pld", "rdp", "zcdp", "gaussian", "pure")


"""The accountants by name."""


_TWO_SIDED: tuple[Method, ...] = ("pld", "gaussian")  # whose lower bound costs next to nothing


_FPR = 0.01


@dataclass(frozen=True)
class Cost:
    """What one accountant reports.

    Attributes:
        method: its name.
        lower, upper: bounds on epsilon; lower is None where it gives none, both are None where it does not know.
        reason: why it does not know; empty where it does.
    """

    method: Method
    lower: float | None = None
    upper: float | None = None
    reason: str = ""


def cost_by(event: acc.Event, adjacency: Adjacency, delta: float, method: Method) -> Cost:
    try:
        promise = acc.guarantee(event, adjacency=adjacency, method=method)
        high = promise.epsilon(delta)
        low = promise.epsilon_interval(delta)[0] if method in _TWO_SIDED else 0.0
    except InputError as error:
        return Cost(method, reason=str(error))
    return Cost(method, low if low > 0 or high == 0 else None, high)


def attack(best: Guarantee) -> dict[str, float]:
    """What the guarantee means for an attacker who wants to know whether a unit took part."""
    gdp = best.gdp()
    caught = float(best.tpr(_FPR))
    return {"mu": gdp.mu, "regret": gdp.regret, "advantage": best.advantage(), "tpr_at_1_percent_fpr": caught}


def rho_name(promise: Guarantee) -> str:
    """What rho of an event is called: where losses are unbounded, zCDP has no amplification by sampling."""
    ignored = any(
        single.sampled and math.isinf(single.largest_loss(promise.adjacency)) for single, _ in acc.terms(promise.event)
    )
    return "rho_without_sampling" if ignored else "rho"


def by_method(costs: Sequence[Cost]) -> dict[str, Any]:
    return {
        "methods": {cost.method: cost.upper for cost in costs if not cost.reason},
        "lower": {cost.method: cost.lower for cost in costs if cost.lower is not None},
        "unknown": {cost.method: cost.reason for cost in costs if cost.reason},
    }


def shown(
    costs: Sequence[Cost], best: Guarantee, delta: ChosenDelta, attacks: dict[str, float]
) -> Iterator[str | Table]:
    """The accountants' table, the best of them, and what an attack can do.

    Args:
        costs: by method.
        best: the guarantee.
        delta: where epsilon is read.
        attacks: what an attack can do, by `attack`.
    """
    from sfumato.statement.verdict import percent

    def cell(value: float | None) -> str:
        return "-" if value is None else number(value)

    some = [cost for cost in costs if cost.upper is not None and math.isfinite(cost.upper)]
    rows = [[cost.method, cell(cost.lower), cell(cost.upper)] for cost in some]
    if rows:
        yield Table(["method", "lower", f"epsilon at delta {delta.value:.4g}"], rows)
        yield ""
    epsilon, rho = best.epsilon(delta.value), best.rho() if rho_name(best) == "rho" else None
    yield f"best: epsilon {number(epsilon)}" + ("" if rho is None else f"; rho {rho:.4g} (zCDP)")
    if math.isinf(attacks["mu"]):
        yield f"an attack can be right about one unit with an advantage of {attacks['advantage']:.3g}"
    else:
        yield f"no easier to attack than one Gaussian sum with mu = {attacks['mu']:.4g} (Gaussian DP)"
        yield (
            f"an attack with a false positive rate of {percent(_FPR)} finds at most "
            f"{percent(attacks['tpr_at_1_percent_fpr'])} of those that took part; its advantage is at most "
            f"{attacks['advantage']:.3g} (by the whole trade-off curve)"
        )
    if delta.note:
        yield delta.note


# `sfumato account tree` and `sfumato account matrix`: what a run whose rounds share noise costs each unit.


@dataclass(frozen=True, kw_only=True)
class StreamOptions(CommonOptions):
    """A run whose rounds share noise.

    Attributes:
        noise_multiplier: std of the noise before it is correlated (tree: of each node), divided by the clip norm.
        steps: rounds of the run; those without any participant count.
        max_participations: rounds with one unit, at most; without it, what the separation allows.
        min_separation: rounds between two of them, at least: y - x - 1 for rounds x < y. Papers on matrices say b for
            one more.
        delta: in (0, 1), well below 1 / population.
        population: for a delta of 0.01 / population where none is given.
        adjacency: how two neighbouring data sets differ: one unit blanked (zero_out), or one exchanged (replace).
            One unit more (add_remove) is refused: it would shift the others to other rounds.
    """

    noise_multiplier: float
    steps: int
    max_participations: int | None = None
    min_separation: int = 0
    delta: float | None = None
    population: int | None = None
    adjacency: Adjacency = "zero_out"

    def limits(self) -> acc.Participation:
        """What one unit may do.

        Raises:
            InputError: more participations than fit.
        """
        positive(noise_multiplier=self.noise_multiplier, remedy="for no noise, sfumato account --noise-multiplier 0")
        whole(steps=self.steps)
        limits = acc.Participation(
            rounds=self.steps, max_participations=self.max_participations, min_separation=self.min_separation
        )
        limits.refuse_unreachable()
        return limits


@dataclass(frozen=True, kw_only=True)
class TreeOptions(StreamOptions):
    """What a run with tree noise (DP-FTRL) costs each unit, without any amplification by sampling.

    Attributes:
        restart_every: rounds of a tree; then a new one begins.
        completion: fill a tree up with empty rounds before a new one begins.
        estimator: how prefix sums are read off: efficient (Honaker's) or plain. Costs nothing, decides the error.
    """

    restart_every: int | None = None
    completion: bool = False
    estimator: Literal["efficient", "plain"] = "efficient"


@dataclass(frozen=True, kw_only=True)
class MatrixOptions(StreamOptions):
    """What a run with noise by a matrix costs each unit, without any amplification by sampling.

    Attributes:
        strategy: banded, blt (buffered Toeplitz), bisr (banded inverse square root), square_root, or gaussian
            (independent noise).
        bands: banded and bisr; without it 16, or as many as the separation allows (bisr: the best number).
        buffers: blt; without it 4.
        prefix_error: what the coefficients keep small: the mean or the max error of the prefix sums.
        coefficients: instead of optimised ones: banded, the first column; blt, output scales and then decays; bisr, the
            first column of the inverse.
        unit_columns: banded: scale every column of the matrix to norm 1, for the noise multipliers of papers. Without
            it, the noise multiplier is for the columns as they were found or given.
    """

    strategy: MatrixName = "blt"
    bands: int | None = None
    buffers: int | None = None
    prefix_error: Literal["mean", "max"] = "mean"
    coefficients: tuple[float, ...] | None = None
    unit_columns: bool = False


def account_tree(options: TreeOptions) -> Answer:
    """Account the tree."""
    from sfumato.accounting.strategies import BinaryTree

    tree = BinaryTree(options.estimator, options.restart_every, options.completion)
    return _accounted(tree, options, f"tree noise, {options.estimator} estimator")


def account_matrix(options: MatrixOptions) -> Answer:
    """Find the matrix and account it."""
    from sfumato.accounting.strategies import BandedToeplitz

    strategy = _strategy(options)
    other = None
    if options.unit_columns and not isinstance(strategy, BandedToeplitz):
        raise InputError(f"--unit-columns is for --strategy banded, got {options.strategy}; leave it out")
    if options.strategy == "banded" and isinstance(strategy, BandedToeplitz):
        strategy, other = _in_both_ways(strategy, options)
    return _accounted(strategy, options, f"{options.strategy} noise", other)


def _strategy(options: MatrixOptions) -> Strategy:
    """By its coefficients, or the best of its kind."""
    from sfumato.accounting.strategies import Independent, square_root
    from sfumato.mechanisms import NOISES
    from sfumato.mechanisms.correlated import Correlated

    kind = NOISES.kinds.get(options.strategy)
    if kind is not None and issubclass(kind, Correlated):
        known = {field.name for field in fields(kind)} & {"bands", "buffers", "prefix_error", "coefficients"}
        return kind(**{name: getattr(options, name) for name in known}).strategy_for(options.limits())
    if options.coefficients is not None:
        raise InputError(f"coefficients are for banded, blt and bisr, got {options.strategy}; leave them out")
    return Independent() if options.strategy == "gaussian" else square_root(options.steps)


def _in_both_ways(strategy: BandedToeplitz, options: MatrixOptions) -> tuple[Strategy, _Other | None]:
    """The strategy that was asked for, and the one with or without columns of norm 1 that was not."""
    limits = options.limits()
    if options.unit_columns:
        return strategy.unit_columns(limits), _Other("as_found", "with columns as they were found or given", strategy)
    if limits.most > 1 and min(len(strategy.coefficients), limits.rounds) > limits.period:
        return strategy, None  # their sum for one unit does not follow from the norms
    words = "with columns of norm 1, as papers count noise (--unit-columns)"
    return strategy, _Other("unit_columns", words, strategy.unit_columns(limits))


@dataclass(frozen=True)
class _Other:
    """The same noise multiplier for a matrix with other columns.

    Attributes:
        name: in JSON.
        words: for people.
        strategy: with these columns.
    """

    name: str
    words: str
    strategy: Strategy


def _accounted(strategy: Strategy, options: StreamOptions, what: str, other: _Other | None = None) -> Answer:
    limits = options.limits()
    delta = chosen_delta(options.delta, options.population)
    event = strategy.event(options.noise_multiplier, limits)
    best = acc.guarantee(event, adjacency=options.adjacency)
    costs = [cost_by(event, options.adjacency, delta.value, method) for method in METHODS]
    attacks, squared = attack(best), strategy.squared_sensitivity(limits)
    variance = strategy.prefix_variance(limits.rounds)
    mean, worst = (options.noise_multiplier * math.sqrt(value) for value in (variance.mean(), variance.max()))
    others: dict[str, float] = {}
    if other is not None:
        there = acc.guarantee(other.strategy.event(options.noise_multiplier, limits), adjacency=options.adjacency)
        others[f"epsilon_{other.name}"] = there.epsilon(delta.value)
    about = {"delta": delta.value, "adjacency": options.adjacency, "event": event.to_json()}
    errors = {"squared_sensitivity": squared, "prefix_error_mean": mean, "prefix_error_max": worst}
    cost = {"epsilon": best.epsilon(delta.value), "rho": best.rho()}
    most = "1 round" if limits.most == 1 else f"{limits.most} rounds, {limits.min_separation} or more between two"
    above = [f"taken to be: {limits.rounds:,} rounds with {what}; one unit in at most {most}\n"]
    below = [] if other is None else [f"{other.words}: epsilon {number(others[f'epsilon_{other.name}'])}"]
    below.append(
        f"sensitivity: S^2 = {number(squared)} squared clip norms; error of prefix sums: {number(mean)} clip norms on "
        f"average (root mean square), {number(worst)} at most"
    )
    return Answer(
        {**cost, **others, **errors, **attacks, **about, **by_method(costs)},
        chain(above, shown(costs, best, delta, attacks), below),
    )


# `sfumato calibrate`: the one number of a run that is left open, so that the run meets a target.


_OPEN = {
    "noise_multiplier": ((0.05, 1e4), False),
    "steps": ((1, 1e9), True),
    "sampling_rate": ((1e-9, 1.0), False),
}


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(BatchOptions):
    """Find the noise, the steps or the sampling rate that meet a target. Give two of the three: --examples and
    --batch-size are a sampling rate, --epochs are steps. Give one target: --epsilon, --rho, --mu, --advantage or --tpr.

    Attributes:
        epsilon: target: the budget of the whole run, >= 0, at --delta.
        rho: target: rho of zCDP, > 0; sampling does not amplify it.
        mu: target: mu of the Gaussian mechanism that is at most as private, > 0.
        advantage: target: the most by which a membership test's true positive rate may exceed its false positive rate,
            in (0, 1).
        tpr: target: the largest true positive rate of a membership test at the false positive rate --fpr, in (0, 1).
        fpr: in (0, 1); where tpr is read, 0.01 if left out.
        noise_multiplier: std of the noise divided by the most that one unit can move the sum. Leave it out to find the
            smallest that will do.
        steps: noisy sums; leave it out to find the largest number.
        sampling_rate: probability that a unit takes part in a step (Poisson sampling), 1 for all; leave it out to
            find the largest.
        adjacency: how two neighbouring data sets differ: one unit more (add_remove), one exchanged (replace), or one
            blanked (zero_out).
    """

    epsilon: float | None = None
    rho: float | None = None
    mu: float | None = None
    advantage: float | None = None
    tpr: float | None = None
    fpr: float | None = None
    noise_multiplier: float | None = None
    steps: int | None = None
    sampling_rate: float | None = None
    adjacency: Adjacency = "add_remove"


def calibrate(options: CalibrateOptions) -> Answer:
    """Search the number that is left open."""
    from sfumato.accounting.calibration import Target

    given = _settings(options)
    limits, delta, fpr = _limits(options)
    goal = Target(**limits)
    open_names = [name for name, value in given.items() if value is None]
    if len(open_names) != 1:
        raise InputError(
            "give two of --noise-multiplier, --steps (or --epochs) and --sampling-rate (or --examples with "
            "--batch-size; 1 for no sampling); the third is searched"
        )
    name = open_names[0]
    whole(examples_per_user=options.examples_per_user)
    make = _maker(given, options.examples_per_user)
    bracket, integer = _OPEN[name]
    exact = acc.calibrate(make, **limits, adjacency=options.adjacency, bracket=bracket, integer=integer)
    found = int(exact) if integer else (rounded_up if name == "noise_multiplier" else rounded_down)(exact, 6)
    promise = acc.guarantee(make(found), adjacency=options.adjacency)
    if not goal.is_met(promise):  # the accountant's bounds are not quite monotone in the last digits
        found, promise = exact, acc.guarantee(make(exact), adjacency=options.adjacency)
    reached = {
        "epsilon": promise.epsilon(delta.value),
        rho_name(promise): promise.rho(),
        "mu": promise.gdp().mu,
        "advantage": promise.advantage(),
        "tpr": float(promise.tpr(fpr)),
    }
    run = {} if options.examples is None else {known: given[known] for known in ("sampling_rate", "steps")}
    run_of = {**given, name: found}
    where = {"epsilon": f" at delta {delta.value:.4g}", "tpr": f" at fpr {fpr:g}"}
    rows = [[f"{what.replace('_', ' ')}{where.get(what, '')}", _shown(value)] for what, value in reached.items()]
    lines = [
        f"{name} {found}: {goal.name} {goal.read(promise):.4g}{goal.where} ({options.adjacency})",
        options.in_words(float(run_of["sampling_rate"] or 0), int(run_of["steps"] or 0)),
        "",
        Table(["what it amounts to", "at most"], rows),
        *([f"\n{delta.note}"] if delta.note else []),
    ]
    data = {**run, name: found, **reached, "delta": delta.value, "fpr": fpr, "adjacency": options.adjacency}
    return Answer(data, lines)


def _limits(options: CalibrateOptions) -> tuple[dict[str, Any], ChosenDelta, float]:
    """The target as the library takes it, and where epsilon and tpr are read."""
    delta = chosen_delta(options.delta, options.examples)
    fpr = _FPR if options.fpr is None else options.fpr
    between(0, 1, ends="()", fpr=fpr)
    choices: dict[str, dict[str, Any]] = {}
    if options.epsilon is not None:
        choices["--epsilon"] = {"epsilon": options.epsilon, "delta": delta.value}
    if options.rho is not None:
        choices["--rho"] = {"rho": options.rho}
    if options.mu is not None:
        choices["--mu"] = {"mu": options.mu}
    if options.advantage is not None:
        choices["--advantage"] = {"advantage": options.advantage}
    if options.tpr is not None:
        choices["--tpr"] = {"tpr": options.tpr, "fpr": fpr}
    if len(choices) != 1:
        got = " and ".join(choices) or "none"
        raise InputError(f"give exactly one target, --epsilon, --rho, --mu, --advantage or --tpr; got {got}")
    return next(iter(choices.values())), delta, fpr


def _settings(options: CalibrateOptions) -> dict[str, float | None]:
    """The three numbers of the run; None for the one to search."""
    given: dict[str, float | None] = {name: getattr(options, name) for name in _OPEN}
    given["sampling_rate"], given["steps"] = options.rate_and_steps(options.sampling_rate, options.steps)
    return given


def _shown(value: float | None) -> str:
    return "none" if value is None else number(value)


def _maker(given: dict[str, float | None], examples_per_user: int) -> Callable[[float], acc.Event]:
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
        one = acc.Gaussian(chosen["noise_multiplier"]).poisson(chosen["sampling_rate"])
        return one.for_group(examples_per_user) * int(chosen["steps"])

    return make


# `sfumato account`: what a run costs each unit, by every accountant that knows it, side by side.


_KINDS = (".svg", ".png", ".pdf")


@dataclass(frozen=True, kw_only=True)
class AccountOptions(BatchOptions):
    """What a run costs each unit.

    Attributes:
        noise_multiplier: std of the noise divided by the most that one unit can move the sum; 0 for no noise.
        event: instead of the noise, a JSON file of what a step released. An event's to_json() gives it, and so does
            this command with --json.
        sampling_rate: probability that a unit takes part in a step (Poisson sampling), in [0, 1]; all if left out.
        steps: how often that was released, each time with fresh noise and a fresh sample; once if left out.
        sample_size: cohorts of exactly this size instead of Poisson sampling; needs --population.
        population: units that such cohorts are drawn from.
        adjacency: how two neighbouring data sets differ: one unit more (add_remove), one exchanged (replace), or one
            blanked (zero_out).
        plot: draw epsilon against the number of steps, from 1 up, into this .svg, .png or .pdf file.
    """

    noise_multiplier: float | None = None
    event: Path | None = None
    sampling_rate: float | None = None
    steps: int | None = None
    sample_size: int | None = None
    population: int | None = None
    adjacency: Adjacency = "add_remove"
    plot: Path | None = None


def account(options: AccountOptions) -> Answer:
    """Account what ran, and draw it."""
    whole(examples_per_user=options.examples_per_user)
    rate, steps = _rate_and_steps(options)
    delta = chosen_delta(options.delta, options.population if options.examples is None else options.examples)
    one = _step(options, rate).for_group(options.examples_per_user)
    event = one * steps
    best = acc.guarantee(event, adjacency=options.adjacency)
    if options.plot is not None:
        _refuse_plot(options.plot, steps)
    costs = [cost_by(event, options.adjacency, delta.value, method) for method in METHODS]
    attacks = attack(best)
    shuffled = _shuffled(options, steps, delta.value)
    curve: list[Point] = []
    if options.plot is not None:
        from sfumato.report.cost_curve import Point, draw, points  # late: only this needs matplotlib

        bounds = {cost.method: (cost.lower or 0.0, cost.upper) for cost in costs if cost.upper is not None}
        curve = points(one, delta.value, options.adjacency, Point(steps, bounds))
        draw(curve, options.plot, _title(options, rate, delta.value))
    data = {"epsilon": best.epsilon(delta.value), **attacks, "delta": delta.value, "adjacency": options.adjacency}
    data |= {"event": event.to_json(), rho_name(best): best.rho(), **by_method(costs)}
    above, below = [f"{_taken_to_be(options, rate, steps)}\n"], list[str]()
    if options.examples is not None:
        data |= {"sampling_rate": rate, "steps": steps}
    if curve:
        data |= {"plot": options.plot, "curve": [point.to_json() for point in curve]}
        below.append(f"plot: {options.plot}")
    if shuffled is not None:
        data["shuffled"] = shuffled
        below.append(
            f"shuffled batches instead, accounted without amplification ({shuffled['adjacency']}): "
            f"epsilon {number(float(shuffled['epsilon']))}"
        )
    return Answer(data, chain(above, shown(costs, best, delta, attacks), below))


def _refuse_plot(path: Path, steps: int) -> None:
    """Refuse a figure that could not be drawn, before anything is computed."""
    if steps < 2:
        raise InputError(f"--plot draws epsilon against steps and needs --steps of at least 2, got {steps}")
    if path.suffix.lower() not in _KINDS:
        raise InputError(
            f"--plot {path}: the figure is a {', '.join(_KINDS)} file; give a name that ends in one of them"
        )
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: there is no folder {path.parent}; make it first")


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


# `sfumato extrapolate`: what more clients a round and more people buy in privacy, as a table and a figure.


_SAMPLED: tuple[Method, ...] = ("pld", "rdp", "rdp_usual_orders", "zcdp")


_ONE_USER = tuple(method for method in _SAMPLED if method != "rdp_usual_orders")


@dataclass(frozen=True, kw_only=True)
class ExtrapolateOptions(CommonOptions):
    """Privacy against computation: epsilon when a tuned run gets more clients a round, on more people.

    The run that was tuned, and the larger ones to ask about. The defaults are the EMNIST run of Xu et al. (2022).

    Attributes:
        noise_multiplier: z, std of the noise divided by the clip norm, of the run that was tuned.
        rounds: T, how often the server steps.
        clients_per_round: K, virtual clients a round of the run that was tuned.
        users_per_client: m, users in a virtual client.
        populations: numbers of users N to ask about; 3e6 is a way to write three million.
        multipliers: factors c on both the clients a round and the noise, which keep the signal-to-noise ratio.
        noises: kinds of correlated noise (DP-FTRL) to compare with at equal utility. Their curves are in the figure.
        delta_exponent: delta is N to the power of minus this.
        figure: draw epsilon against the users of a round into this PNG file.
    """

    noise_multiplier: float = 0.62
    rounds: int = 200
    clients_per_round: int = 32
    users_per_client: int = 8
    populations: tuple[float, ...] = (3e6, 1e7)
    multipliers: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    noises: tuple[CorrelatedName, ...] = ()
    delta_exponent: float = 1.1
    figure: Path | None = None


def extrapolate(options: ExtrapolateOptions) -> Answer:
    """Ask about the larger runs."""
    from sfumato import report

    for population in options.populations:
        whole(population=population)
    if not options.populations or not options.multipliers:
        raise InputError("give at least one of --populations and one of --multipliers")
    rows = report.extrapolate(
        noise_multiplier=options.noise_multiplier,
        rounds=options.rounds,
        clients_per_round=options.clients_per_round,
        users_per_client=options.users_per_client,
        populations=[int(population) for population in options.populations],
        multipliers=options.multipliers,
        methods=_SAMPLED,
        noises=options.noises,
        delta_exponent=options.delta_exponent,
    )
    met = report.crossings(rows)
    if options.figure is not None:
        _draw(rows, options.figure)
    crossed = [{"population": people, "noise": noise, "users_per_round": users} for people, noise, users in met]
    data = {"rows": [row.to_json() for row in rows], "crossings": crossed, "figure": options.figure}
    below = [] if options.figure is None else [f"figure: {options.figure}"]
    return Answer(data, chain(_tables(rows), _crossings(rows, met), below))


def _draw(rows: Sequence[ExtrapolationRow], path: Path) -> None:
    from sfumato.report import extrapolation_figure

    if path.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"--figure {path}: the figure is a PNG or SVG file; give a name that ends in .png or .svg")
    if not path.parent.is_dir():
        raise InputError(f"--figure {path}: there is no folder {path.parent}; make it first")
    extrapolation_figure(rows, path)


def _tables(rows: Sequence[ExtrapolationRow]) -> Iterator[str | Table]:
    yield _table(
        rows,
        {
            "users a round": lambda row: f"{row.users_per_round:g}",
            "sampling rate": lambda row: f"{row.sampling_rate:.3g}",
            "noise": lambda row: f"{row.noise_multiplier:g}",
            "delta": lambda row: f"{row.delta:.3g}",
        },
    )
    yield "\nepsilon of one user, by method" + (" and for correlated noise" if rows[0].epsilon_correlated else "")
    sampled = {name: partial(_epsilon, kind="epsilon_user", name=name) for name in _ONE_USER}
    correlated = {name: partial(_epsilon, kind="epsilon_correlated", name=name) for name in rows[0].epsilon_correlated}
    yield _table(rows, sampled | correlated)
    yield "\nepsilon of a virtual client, by method"
    yield _table(rows, {name: partial(_epsilon, kind="epsilon", name=name) for name in _SAMPLED})
    yield (
        "\nThe paper's convention is the virtual client: there, neighbours differ in a whole virtual client, and one "
        "user inside a group can move the sum twice as far. Published figures by RDP are those of rdp_usual_orders; "
        "rdp takes more orders and is never larger."
    )


def _table(rows: Sequence[ExtrapolationRow], columns: Mapping[str, Callable[[ExtrapolationRow], str]]) -> Table:
    """One of several narrow tables, as all columns in one do not fit into a terminal."""
    lines = [[f"{row.population:,}", f"{row.multiplier:g}", *(cell(row) for cell in columns.values())] for row in rows]
    return Table(["people", "c", *columns], lines)


def _epsilon(row: ExtrapolationRow, *, kind: str, name: str) -> str:
    value = getattr(row, kind)[name]
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def _crossings(rows: Sequence[ExtrapolationRow], met: Sequence[tuple[int, str, float]]) -> Iterator[str]:
    if not rows[0].epsilon_correlated:
        return
    yield (
        "\nCorrelated noise (DP-FTRL) has the same error of prefix sums, assumes no sampling, and covers a user who "
        "contributes or contributes nothing; users take part as rarely as the population allows."
    )
    for population, noise, users in met:
        yield f"with {population:,} people, {noise} noise and sampled noise cost the same at {users:,.0f} users a round"
    if not met:
        yield "no two of these curves cross between the multipliers that were asked about"
