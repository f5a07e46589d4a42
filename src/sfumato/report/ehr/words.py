"""An evaluation of synthetic health records in plain words: three verdicts, the rules behind them, and their limits.

>>> said = fidelity_verdict(0.55, 0.52)
>>> said.word
'hard to tell apart'
"""

from dataclasses import dataclass

from sfumato.audit.ehr.attack import Attack
from sfumato.audit.ehr.utility import Utility
from sfumato.metrics.tabular.bootstrap import Interval
from sfumato.report.numbers import near

_HARD, _EASY = 0.6, 0.8
_CLOSE = 0.03

LIMITS = (
    "No differential privacy guarantee follows from this page: the attacks are examples, not a bound. Another attack, "
    "or one with more knowledge, may find more. A guarantee, if there is one, stands in the statement of the run that "
    "made the records.",
    "An attack that finds no more than its ideal may only be too weak for so many records. Its interval says how much "
    "it could have missed.",
    "Of so many measures, one in forty is above its ideal by chance alone.",
    "The distances look at a summary of each patient: what is told only by the order of visits in between is not "
    "attacked.",
    "Rare patients are more at risk than these averages say. The true positive rate at a low false positive rate looks "
    "at the few that are remembered best, as far as the number of patients allows.",
    "The figures were computed from real patients without noise. This page is not private.",
)


@dataclass(frozen=True)
class Verdict:
    """One of the three.

    Attributes:
        about: what it judges.
        word: the verdict.
        sentence: what it rests on.
        good: True, False or None for neither.
    """

    about: str
    word: str
    sentence: str
    good: bool | None

    @property
    def colour(self) -> str:
        """The class of its box."""
        return {True: "good", False: "poor", None: "fair"}[self.good]


RULES = (
    f"Fidelity: with an AUC up to {_HARD} a detector can hardly tell the records from real ones, above {_EASY} easily; "
    f"below {1 - _HARD:g} they are nearer to real ones than these are to each other, as copies are. Utility: as useful "
    f"as real where the interval of the gap holds 0 or less, nearly where the gap is at most {_CLOSE}. Attacks: above "
    "the ideal where the whole interval of the difference is."
)


def fidelity_verdict(detector: float | None, ideal: float | None) -> Verdict:
    """From the detector's AUC on synthetic and on held-out records."""
    if detector is None:
        return Verdict("Fidelity", "not judged", "Too few patients for a detector.", None)
    beside = "" if ideal is None else f" Held-out patients reach {near(ideal, 2)}."
    said = (
        f"A detector tells synthetic from real patients with an AUC of {near(detector, 2)}; guessing has 0.5.{beside}"
    )
    if detector < 1 - _HARD:  # trees that never saw a patient take its copy's side, which is the wrong one
        return Verdict("Fidelity", "copies of real patients", said, False)
    if detector <= _HARD:
        return Verdict("Fidelity", "hard to tell apart", said, True)
    if detector <= _EASY:
        return Verdict("Fidelity", "told apart", said, None)
    return Verdict("Fidelity", "easily told apart", said, False)


def utility_verdict(utility: Utility | None) -> Verdict:
    """From the gap of the best classifiers."""
    if utility is None:
        return Verdict("Utility", "not judged", "The schema names no outcome to predict.", None)
    best = max(each.real.value for each in utility.models)
    if utility.gap is None:
        said = (
            f"Nothing about {utility.outcome[0]} can be learned from the synthetic records. Real ones: {near(best, 3)}."
        )
        return Verdict("Utility", "none", said, False)
    made = max(each.synthetic.value for each in utility.models if each.synthetic)
    said = (
        f"The best classifier of {utility.outcome[0]} reaches an AUC of {near(made, 3)} when it learns from synthetic "
        f"patients, {near(best, 3)} from real ones, on real patients that were held out."
    )
    if utility.gap.low <= 0:
        return Verdict("Utility", "as useful as real", said, True)
    if utility.gap.value <= _CLOSE:
        return Verdict("Utility", "nearly as useful as real", said, None)
    return Verdict("Utility", "less useful than real", said, False)


def attacks_verdict(attacks: tuple[Attack, ...]) -> Verdict:
    """From the measures above their ideals."""
    above = [attack.name for attack in attacks if attack.above]
    if above:
        said = f"{' and '.join(above).capitalize()} found more than with real patients who were never seen."
        return Verdict("Attacks", f"{len(above)} of {len(attacks)} found something", said, False)
    said = (
        f"None of {len(attacks)} attacks found more than with real patients who were never seen. That is no guarantee."
    )
    return Verdict("Attacks", "nothing found", said, True)


def within(interval: Interval | None, digits: int = 3) -> str:
    """A figure with its interval; a dash for none."""
    if interval is None:
        return "–"
    value, low, high = (short(end, digits) for end in (interval.value, interval.low, interval.high))
    return value if interval.low == interval.high else f"{value} ({low} to {high})"


def short(value: float, digits: int = 3) -> str:
    """A figure of the size of one: what is below a ten thousandth is 0."""
    return near(round(value, 4), digits)


def plain(value: float | None, digits: int = 3) -> str:
    """A number; a dash for none."""
    return "–" if value is None else near(value, digits)


def percent(share: float | None) -> str:
    """A share in percent; a dash for none."""
    return "–" if share is None else f"{near(100 * share, 3)} %"
