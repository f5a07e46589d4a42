"""`sfumato account tree` and `sfumato account matrix`: what a run whose rounds share noise costs each unit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sfumato import accounting as acc
from sfumato._check import InputError, positive, whole
from sfumato._types import Adjacency
from sfumato.accounting.strategies import BandedToeplitz, BinaryTree, MatrixName, Strategy, by_name
from sfumato.cli.accounting.batches import chosen_delta
from sfumato.cli.accounting.costs import METHODS, attack, by_method, cost_by, show
from sfumato.cli.console import number, say, say_json
from sfumato.cli.parse import CommonOptions, parse


@dataclass(frozen=True, kw_only=True)
class StreamOptions(CommonOptions):
    """A run whose rounds share noise.

    Attributes:
        noise_multiplier: std of the noise before it is correlated (tree: of each node), divided by the clip norm.
        steps: rounds of the run; those in which nobody took part count.
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
    """Tree aggregation.

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
    """Matrix mechanisms.

    Attributes:
        strategy: banded, blt (buffered Toeplitz), bisr (banded inverse square root), square_root, or gaussian
            (independent noise).
        bands: banded and bisr; without it 16, or as many as the separation allows (bisr: the best number).
        buffers: blt; without it 4.
        prefix_error: what the coefficients keep small: the mean or the max error of the prefix sums.
        coefficients: instead of optimised ones: banded, the first column; blt, output scales and then decays; bisr, the
            first column of the inverse.
        unit_columns: banded: scale every column of the matrix to norm 1, as papers do, whose noise multipliers are for
            such columns; without it, the noise multiplier is for the columns as they were found or given.
    """

    strategy: MatrixName = "blt"
    bands: int | None = None
    buffers: int | None = None
    prefix_error: Literal["mean", "max"] = "mean"
    coefficients: tuple[float, ...] | None = None
    unit_columns: bool = False


def account_tree(argv: Sequence[str]) -> int:
    about = "What a run with tree noise (DP-FTRL) costs each unit, without any amplification by sampling."
    options = parse(TreeOptions, argv, command="account tree", about=about)
    tree = BinaryTree(options.estimator, options.restart_every, options.completion)
    return _tell(tree, options, f"tree noise, {options.estimator} estimator")


def account_matrix(argv: Sequence[str]) -> int:
    about = "What a run with noise by a matrix costs each unit, without any amplification by sampling."
    options = parse(MatrixOptions, argv, command="account matrix", about=about)
    strategy = by_name(
        options.strategy,
        options.limits(),
        bands=options.bands,
        buffers=options.buffers,
        prefix_error=options.prefix_error,
        coefficients=options.coefficients,
    )
    other = None
    if options.unit_columns and not isinstance(strategy, BandedToeplitz):
        raise InputError(f"--unit-columns is for --strategy banded, got {options.strategy}; leave it out")
    if options.strategy == "banded" and isinstance(strategy, BandedToeplitz):
        strategy, other = _in_both_ways(strategy, options)
    return _tell(strategy, options, f"{options.strategy} noise", other)


def _in_both_ways(strategy: BandedToeplitz, options: MatrixOptions) -> tuple[Strategy, "_Other | None"]:
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


def _tell(strategy: Strategy, options: StreamOptions, what: str, other: _Other | None = None) -> int:
    limits = options.limits()
    delta = chosen_delta(options.delta, options.population)
    event = strategy.event(options.noise_multiplier, limits)
    best = acc.guarantee(event, adjacency=options.adjacency)
    costs = [cost_by(event, options.adjacency, delta.value, method) for method in METHODS]
    told, squared = attack(best), strategy.squared_sensitivity(limits)
    variance = strategy.prefix_variance(limits.rounds)
    mean, worst = (options.noise_multiplier * math.sqrt(value) for value in (variance.mean(), variance.max()))
    others: dict[str, float] = {}
    if other is not None:
        there = acc.guarantee(other.strategy.event(options.noise_multiplier, limits), adjacency=options.adjacency)
        others[f"epsilon_{other.name}"] = there.epsilon(delta.value)
    if options.json:
        about = {"delta": delta.value, "adjacency": options.adjacency, "event": event.to_json()}
        errors = {"squared_sensitivity": squared, "prefix_error_mean": mean, "prefix_error_max": worst}
        say_json(
            {"epsilon": best.epsilon(delta.value), "rho": best.rho()}
            | {**others, **errors, **told, **about, **by_method(costs)}
        )
        return 0
    most = "1 round" if limits.most == 1 else f"{limits.most} rounds, {limits.min_separation} or more between two"
    say(f"taken to be: {limits.rounds:,} rounds with {what}; one unit in at most {most}\n")
    show(costs, best, delta, told)
    if other is not None:
        say(f"{other.words}: epsilon {number(others[f'epsilon_{other.name}'])}")
    say(
        f"sensitivity: S^2 = {number(squared)} squared clip norms; error of prefix sums: {number(mean)} clip norms on "
        f"average (root mean square), {number(worst)} at most"
    )
    return 0
