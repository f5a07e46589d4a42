"""What a training command decides before it trains: the noise of its rounds, and the vocabulary it counts first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato._check import InputError
from sfumato.cli.console import number, say, table
from sfumato.cli.options.vocabulary import counted_vocabulary, refuse_uncountable
from sfumato.federated import PrivateVocabulary
from sfumato.training import NoiseCost, Opening, PrivatePlan, TrainingPlan


@dataclass(frozen=True)
class Decided:
    """What a run is, with all its noise.

    Attributes:
        plan: what is trained.
        vocabulary: what is counted before; None for nothing.
    """

    plan: TrainingPlan
    vocabulary: PrivateVocabulary | None

    def opening(self, parts: Any = None) -> Opening | None:
        """The first release of a run on these records; without them, to tell what it costs."""
        return None if self.vocabulary is None else self.vocabulary.opening(*(parts.texts if parts else ()))


def decided(options: Any, population: int) -> Decided:
    """The plan with its noise, and what comes before it.

    Args:
        options: all options of the command.
        population: public number of units.

    Raises:
        InputError: nobody has chosen how private the run is, two have, or no noise is enough.
    """
    plan = options.plan
    if not isinstance(plan, PrivatePlan):
        return Decided(plan, None)
    refuse_undecided(options)
    refuse_uncountable(options)
    vocabulary = counted_vocabulary(options, population)
    epsilon = options.budget.epsilon
    if epsilon is None:
        return Decided(plan, vocabulary)
    before = None if vocabulary is None else vocabulary.event(plan.sampler(population).adjacency)
    budget = {"epsilon": epsilon, "delta": plan.delta, "population": population, "before": before}
    if plan.noise != "auto":
        return Decided(plan.calibrate(**budget), vocabulary)
    rows = plan.compare_noise(**budget)
    if not options.run.json:
        _show_noise(rows)
    return Decided(rows[0].plan, vocabulary)


def refuse_undecided(options: Any) -> None:
    """A run whose privacy nobody has chosen, or two have."""
    epsilon, noise = options.budget.epsilon, options.plan.noise_multiplier
    if epsilon is None and noise is None:
        raise InputError(
            "how private shall the run be? give --epsilon 8 (the noise is calibrated to it), --noise-multiplier 1, "
            "or --noise-multiplier 0 for a run without any guarantee"
        )
    if epsilon is not None:
        options.plan.refuse_budget(epsilon)
    if epsilon is None and options.plan.noise == "auto":
        raise InputError("--noise auto takes the noise with the least error at a budget: give --epsilon, or a --noise")
    if epsilon is not None and noise is not None:
        raise InputError("give --epsilon (the noise is calibrated to it) or --noise-multiplier, not both")


def _show_noise(rows: Sequence[NoiseCost]) -> None:
    """The kinds of noise that meet the budget, and the one that is taken."""
    known = [row for row in rows if row.error is not None]
    error = "error of prefix sums (clip norms)"
    table(
        ["noise", "noise multiplier", error],
        [[row.settings or row.noise, number(row.noise_multiplier or 0.0), number(row.error or 0.0)] for row in known],
    )
    unknown: dict[str, list[str]] = {}
    for row in rows[len(known) :]:
        unknown.setdefault(row.reason.removeprefix(f"noise={row.noise} "), []).append(row.noise)
    for reason, names in unknown.items():
        say(f"not {', '.join(names)}: {reason}")
    say(f"noise: {known[0].settings or known[0].noise}, which has the least error at this budget\n")
