"""One self-contained page about synthetic health records: how faithful, how useful, what three attacks find.

It has no scripts, makes no requests and is readable on paper. It was computed from real patients without noise and says
so at the top; it is written for its owner's eyes. Three verdicts come first, with their rules.

>>> made, held_out, independent = Interval(0.55, 0.5, 0.6), Interval(0.52, 0.48, 0.56), Interval(0.95, 0.9, 1.0)
>>> fidelity_verdict(made, held_out, independent).word
'hard to distinguish'
"""

from dataclasses import dataclass
from pathlib import Path

from sfumato.audit.ehr.attacks import Attack
from sfumato.audit.ehr.evaluate import Evaluation
from sfumato.audit.ehr.fidelity import LIMITS as KS_LIMITS
from sfumato.audit.ehr.fidelity import ColumnFit, Fidelity, Summary
from sfumato.audit.ehr.utility import Utility
from sfumato.metrics.tabular import AssociationGap, Cdf, Interval, NumericFit
from sfumato.report.charts import Axis, BarGroup, Series, bar_chart, line_chart, square, swatch
from sfumato.report.figures import Figure
from sfumato.report.numbers import near, up
from sfumato.report.page import fill, refuse_folder, write_page

_HARD, _EASY = 0.6, 0.8
_AS_USEFUL, _NEARLY = 0.03, 0.1
"""Losses of AUC that the test patients must exclude."""

_LIMITS = (
    "No differential privacy guarantee follows from this page: the attacks are examples, not a bound. Another attack, "
    "or one with more knowledge, may find more. A guarantee, if there is one, stands in the statement of the run that "
    "made the records.",
    "An attack that finds no more than its ideal may only be too weak for so many records. Its interval says how much "
    "it could have missed.",
    "Of so many measures, one in forty is above its ideal by chance alone.",
    "The distances look at a summary of each patient: what only the order of visits in between shows is not attacked.",
    "Rare patients are more at risk than these averages say. The true positive rate at a low false positive rate looks "
    "at the few that are remembered best, as far as the number of patients allows.",
    "The figures were computed from real patients without noise. This page is not private.",
)
_MOST_CDFS = 24
_HEADINGS = {"static": "Static columns", "temporal": "Visits"}
_RULES = (
    f"Fidelity: with an AUC up to {_HARD} a detector can hardly distinguish the records from real ones, above {_EASY} "
    f"easily; below {1 - _HARD:g} they are nearer to real ones than these are to each other, as copies are. Where its "
    f"interval is not below that of independent columns, the records are no nearer to real ones than those are. "
    f"Utility: as useful as real where the interval of the gap excludes a loss of AUC above {_AS_USEFUL}, nearly where "
    f"it excludes one above {_NEARLY}, less useful where it lies above {_AS_USEFUL}. "
    f"Attacks: above the ideal where the whole interval of the difference is."
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


def write_ehr_page(evaluation: Evaluation, out: Path | str, *, about: str = "") -> Path:
    """Write the page.

    Args:
        evaluation: what was measured.
        out: the file.
        about: a line on which records these are.

    Returns:
        the file's path.

    Raises:
        InputError: the page cannot be written there.
    """
    out = Path(out)
    refuse_folder(out, "records.html")
    write_page(out, render(evaluation, about=about), private=True)
    return out


def render(evaluation: Evaluation, *, about: str = "") -> str:
    """The page's HTML; arguments as for `write_ehr_page`."""
    fidelity, utility = evaluation.fidelity, evaluation.utility
    return fill(
        "ehr.html",
        about=about,
        sizes=evaluation.sizes,
        seed=evaluation.seed,
        verdicts=verdicts(evaluation),
        rules=_RULES,
        limits=_LIMITS,
        together=_fidelity_rows(fidelity),
        columns=[_column(each) for each in fidelity.columns],
        cdfs=_cdf_figures(fidelity),
        most_cdfs=_MOST_CDFS,
        projections=_projection_figures(fidelity),
        utility=utility,
        models=[(each.model, *map(_within, (each.real, each.synthetic, each.baseline))) for each in utility.models]
        if utility
        else [],
        gap=_within(utility.gap) if utility else "",
        utility_chart=_utility_figure(utility) if utility else None,
        attacks=_attacks(evaluation),
        attacks_chart=_attacks_figure(evaluation.attacks),
    )


def verdicts(evaluation: Evaluation) -> list[Verdict]:
    """On fidelity, utility and attacks."""
    sides = evaluation.fidelity.synthetic, evaluation.fidelity.ideal, evaluation.fidelity.baseline
    return [
        fidelity_verdict(*(side and side.detector for side in sides)),
        utility_verdict(evaluation.utility),
        attacks_verdict(evaluation.attacks),
    ]


def summary_rows(evaluation: Evaluation) -> list[tuple[str, str, str, str]]:
    """(measure, of synthetic records, its ideal, of independent columns), as the terminal shows them."""
    rows = _fidelity_rows(evaluation.fidelity)
    for each in evaluation.utility.models if evaluation.utility else ():
        rows.append((f"{each.model}, AUC", _within(each.synthetic), _within(each.real), _within(each.baseline)))
    for attack in evaluation.attacks:
        for measure in attack.measures:
            mark = " (above the ideal)" if measure.above else ""
            name = f"{attack.name}: {measure.name}"
            rows.append((name, f"{_within(measure.found)}{mark}", _within(measure.ideal), ""))
    return rows


def _fidelity_rows(fidelity: Fidelity) -> list[tuple[str, str, str, str]]:
    """(what, of synthetic records, of those held out, of independent columns)."""
    sides = fidelity.synthetic, fidelity.ideal, fidelity.baseline

    def gap(side: Summary | None, numeric: bool) -> str:
        if side is None:
            return "–"
        found: AssociationGap = side.correlation if numeric else side.association
        names = fidelity.correlation_columns if numeric else fidelity.association_columns
        if found.mean is None or found.pair is None:
            return "–"
        first, second = (names[place] for place in found.pair)
        return f"{_short(found.mean, 2)}; at most {_short(found.largest or 0.0, 2)}, {first} with {second}"

    rows = [
        (f"numeric columns with KS < {limit:g}", *(_percent(side.good[place]) if side else "–" for side in sides))
        for place, limit in enumerate(KS_LIMITS)
    ]
    rows.append(
        (
            "mean error of the shares that are missing",
            *(_percent(side.missing_error) if side else "–" for side in sides),
        )
    )
    rows.append(("gap of rank correlations, mean", *(gap(side, True) for side in sides)))
    rows.append(("gap of Cramér’s V between categories, mean", *(gap(side, False) for side in sides)))
    rows.append(("detector, AUC", *(_within(side.detector if side else None) for side in sides)))
    return [(what, made, held, other) for what, made, held, other in rows]


def _column(column: ColumnFit) -> tuple[str, ...]:
    """The cells of a row; the first is its name."""
    fit = column.fit
    if isinstance(fit, NumericFit):
        mean = f"{_plain(fit.real_mean)} → {_plain(fit.synthetic_mean)}"
        std = f"{_plain(fit.real_std)} → {_plain(fit.synthetic_std)}"
    else:
        mean = std = "–"
    missing = f"{_percent(fit.real_missing)} → {_percent(fit.synthetic_missing)}"
    kind = f"{column.part}, {'KS' if column.numeric else 'total variation'}"
    return (column.name, kind, mean, std, missing, _plain(fit.distance), _plain(column.ideal))


def _attacks(evaluation: Evaluation) -> list[tuple[str, str, str, str, str]]:
    return [
        (
            f"{attack.name}: {measure.name}",
            _within(measure.found),
            _within(measure.ideal),
            _within(measure.excess),
            "above the ideal" if measure.above else "no more than the ideal",
        )
        for attack in evaluation.attacks
        for measure in attack.measures
    ]


def fidelity_verdict(detector: Interval | None, ideal: Interval | None, baseline: Interval | None) -> Verdict:
    """From the detector's AUC on synthetic and on held-out records, and on independent columns."""
    if detector is None:
        return Verdict("Fidelity", "not judged", "Too few patients for a detector.", None)
    reached = "" if ideal is None else f" Held-out patients reach {near(ideal.value, 2)}."
    reached += "" if baseline is None else f" Independent columns reach {near(baseline.value, 2)}."
    said = (
        f"A detector distinguishes synthetic from real patients with an AUC of {near(detector.value, 2)}; guessing has "
        f"0.5.{reached}"
    )
    if detector.value < 1 - _HARD:  # trees that never saw a patient take its copy's side, which is the wrong one
        return Verdict("Fidelity", "copies of real patients", said, False)
    if baseline is not None and detector.value > _HARD and detector.high >= baseline.low:
        said += (
            " Likeliest cause: the noise, if epsilon was given (take more patients, fewer columns or "
            "a larger epsilon), or too few steps (--epochs, --gan-steps)."
        )
        return Verdict("Fidelity", "no nearer to real patients than independent columns", said, False)
    if detector.value <= _HARD:
        return Verdict("Fidelity", "hard to distinguish", said, True)
    if detector.value <= _EASY:
        return Verdict("Fidelity", "distinguishable", said, None)
    return Verdict("Fidelity", "easy to distinguish", said, False)


def utility_verdict(utility: Utility | None) -> Verdict:
    """The smallest loss of AUC that the test patients exclude (a test of equivalence, TOST).

    The gap's interval of 95 % excludes a larger loss at the level 2.5 %. That it holds 0 is no evidence of equality:
    with few patients it always does.

    References:
        Schuirmann: A comparison of the two one-sided tests procedure and the power approach. 1987.
    """
    if utility is None:
        return Verdict("Utility", "not judged", "The schema names no outcome to predict.", None)
    best = max(each.real.value for each in utility.models)
    if utility.gap is None:
        said = (
            f"Nothing about {utility.outcome[0]} can be learned from the synthetic records. Real ones: {near(best, 3)}."
        )
        return Verdict("Utility", "none", said, False)
    made = max(each.synthetic.value for each in utility.models if each.synthetic)
    gap, gain = utility.gap, utility.gain
    said = (
        f"The best classifier of {utility.outcome[0]} reaches an AUC of {near(made, 3)} when it learns from synthetic "
        f"patients, {near(best, 3)} from real ones, on real patients that were held out. A loss above "
        f"{up(max(gap.high, 0.0), 2)} is excluded."
    )
    if gain is not None and gain.low <= 0:
        said += " Independent columns, which say nothing of the outcome, are not measurably worse."
        if gap.low > _AS_USEFUL:
            return Verdict("Utility", "no more useful than independent columns", said, False)
        if gap.high <= _NEARLY:
            return Verdict("Utility", "as useful as real, and as independent columns", said, None)
    if gap.high <= _AS_USEFUL:
        return Verdict("Utility", "as useful as real", said, True)
    if gap.high <= _NEARLY:
        return Verdict("Utility", "nearly as useful as real", said, None)
    if gap.low > _AS_USEFUL:
        return Verdict("Utility", "less useful than real", said, False)
    return Verdict("Utility", "undecided with so few patients", said, None)


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


def _cdf_figures(fidelity: Fidelity) -> list[Figure]:
    """Of the numeric columns, those with the largest distance first."""
    found = [(each.fit.distance or 0.0, each.name, each.cdf) for each in fidelity.columns if each.cdf]
    found.sort(key=lambda each: -each[0])
    return [_cdf(f"cdf-{place}", *each) for place, each in enumerate(found[:_MOST_CDFS])]


def _cdf(name: str, distance: float, column: str, points: Cdf) -> Figure:
    lines = []
    for place, (label, shares) in enumerate((("real", points.real), ("synthetic", points.synthetic))):
        # Steps: a distribution function is level between two values.
        x = [value for value in points.at for _ in (0, 1)]
        y = [share for before, share in zip((0.0, *shares), shares, strict=False) for share in (before, share)]
        lines.append(Series(label, x, y, place, place))
    title = f"{column}: KS {near(distance, 2)}"
    svg = line_chart(name, title, Axis("value"), Axis("share of values up to it", low=0, high=1), lines)
    return Figure(title, svg, [(swatch(line), line.label) for line in lines])


def _projection_figures(fidelity: Fidelity) -> list[Figure]:
    """Both clouds over each other, for static columns and for visits."""
    found = []
    for part, projection in fidelity.projections.items():
        lines = [
            Series(label, [x for x, _ in points], [y for _, y in points], place, loose=True, fine=True)
            for place, (label, points) in enumerate((("real", projection.real), ("synthetic", projection.synthetic)))
        ]
        title = f"{_HEADINGS[part]}, t-SNE"
        svg = line_chart(f"tsne-{part}", title, Axis("first coordinate"), Axis("second coordinate"), lines)
        found.append(Figure(title, svg, [(swatch(line), line.label) for line in lines]))
    return found


def _utility_figure(utility: Utility) -> Figure:
    """AUC of each classifier, trained on real and on synthetic records."""
    groups = [BarGroup(each.model, (each.real, each.synthetic)) for each in utility.models]
    series = ("trained on real", "trained on synthetic")
    lowest = min(value.low for group in groups for value in group.values if value)
    limits = (0.5 if lowest >= 0.5 else 0.0, 1.0)
    return _bars("tstr", "AUC on real patients who were held out", groups, series, limits)


def _attacks_figure(attacks: tuple[Attack, ...]) -> Figure:
    """What each attack found, and its ideal."""
    groups = [
        BarGroup(f"{attack.name}: {measure.name}", (measure.ideal, measure.found))
        for attack in attacks
        for measure in attack.measures
    ]
    return _bars("attacks", "What the attacks found, and their ideals", groups, ("ideal", "found"), (0.0, 1.0))


def _bars(
    name: str, title: str, groups: list[BarGroup], series: tuple[str, str], limits: tuple[float, float]
) -> Figure:
    legend = [(square(place), label) for place, label in enumerate(series)]
    return Figure(title, bar_chart(name, title, groups, series, limits), legend)


def _within(interval: Interval | None, digits: int = 3) -> str:
    """A figure with its interval; a dash for none."""
    if interval is None:
        return "–"
    value, low, high = (_short(end, digits) for end in (interval.value, interval.low, interval.high))
    return value if interval.low == interval.high else f"{value} ({low} to {high})"


def _short(value: float, digits: int = 3) -> str:
    """A figure of the size of one: what is below a ten thousandth is 0."""
    return near(round(value, 4), digits)


def _plain(value: float | None, digits: int = 3) -> str:
    """A number; a dash for none."""
    return "–" if value is None else near(value, digits)


def _percent(share: float | None) -> str:
    """A share in percent; a dash for none."""
    return "–" if share is None else f"{near(100 * share, 3)} %"
