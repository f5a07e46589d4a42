"""`sfumato calibrate`: the one number of a run that is left open, so that the run meets a target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from sfumato import accounting as acc
from sfumato._check import InputError, between, positive, whole
from sfumato._rounding import rounded_down, rounded_up
from sfumato._types import Adjacency
from sfumato.accounting.calibration.target import target
from sfumato.cli.accounting.batches import BatchOptions, ChosenDelta, chosen_delta
from sfumato.cli.accounting.costs import rho_name
from sfumato.cli.console import number, say, say_json, table
from sfumato.cli.parse import parse

_OPEN = {
    "noise_multiplier": ((0.05, 1e4), False),
    "steps": ((1, 1e9), True),
    "sampling_rate": ((1e-9, 1.0), False),
}


class _Limits(TypedDict, total=False):
    epsilon: float
    delta: float
    rho: float
    mu: float
    advantage: float
    tpr: float
    fpr: float


_FPR = 0.01


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(BatchOptions):
    """One target, and two of the three numbers of a run (or batches of examples); the third is searched.

    Attributes:
        epsilon: target: the budget of the whole run, >= 0, at --delta.
        rho: target: rho of zCDP, > 0; sampling does not amplify it.
        mu: target: mu of the Gaussian mechanism that is at most as private, > 0.
        advantage: target: the most by which a membership test's true positive rate may exceed its false positive rate,
            in (0, 1).
        tpr: target: the largest true positive rate of a membership test at the false positive rate --fpr, in (0, 1).
        fpr: in (0, 1); where tpr is read, 0.01 if left out.
        noise_multiplier: std of the noise divided by the most that one unit can move the sum; leave it out to find
            the smallest that will do.
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


def calibrate(argv: Sequence[str]) -> int:
    about = (
        "The noise, the steps or the sampling rate that meet a target: give two of the three (--examples and "
        "--batch-size are a sampling rate, --epochs are steps), and one target (--epsilon, --rho, --mu, --advantage or "
        "--tpr)."
    )
    options = parse(CalibrateOptions, argv, command="calibrate", about=about)
    given = _given(options)
    limits, delta, fpr = _limits(options)
    goal = target(**limits)
    open_names = [name for name, value in given.items() if value is None]
    if len(open_names) != 1:
        raise InputError(
            "give two of --noise-multiplier, --steps and --sampling-rate (1 for no sampling); the third is searched. "
            "--examples with --batch-size take the place of --sampling-rate, and --epochs that of --steps"
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
    if options.json:
        run = {} if options.examples is None else {known: given[known] for known in ("sampling_rate", "steps")}
        say_json({**run, name: found, **reached, "delta": delta.value, "fpr": fpr, "adjacency": options.adjacency})
        return 0
    say(f"{name} {found}: {goal.name} {goal.read(promise):.4g}{goal.where} ({options.adjacency})")
    run_of = {**given, name: found}
    say(options.in_words(float(run_of["sampling_rate"] or 0), int(run_of["steps"] or 0)))
    say()
    where = {"epsilon": f" at delta {delta.value:.4g}", "tpr": f" at fpr {fpr:g}"}
    rows = [[f"{what.replace('_', ' ')}{where.get(what, '')}", _shown(value)] for what, value in reached.items()]
    table(["what it amounts to", "at most"], rows)
    if delta.note:
        say(f"\n{delta.note}")
    return 0


def _limits(options: CalibrateOptions) -> tuple[_Limits, ChosenDelta, float]:
    """The target as the library takes it, and where epsilon and tpr are read."""
    delta = chosen_delta(options.delta, options.examples)
    fpr = _FPR if options.fpr is None else options.fpr
    between(0, 1, ends="()", fpr=fpr)
    choices: dict[str, _Limits] = {}
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


def _given(options: CalibrateOptions) -> dict[str, float | None]:
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
