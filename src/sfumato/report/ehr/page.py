"""One self-contained page about synthetic health records: how faithful, how useful, what three attacks find.

It has no scripts, makes no requests and is readable on paper. It was computed from real patients without noise and says
so at the top; it is written for its owner's eyes.
"""

from pathlib import Path

from sfumato.audit.ehr.evaluate import Evaluation
from sfumato.audit.ehr.fidelity import LIMITS, ColumnFit, Fidelity, Summary
from sfumato.metrics.tabular.associations import AssociationGap
from sfumato.metrics.tabular.columns import NumericFit
from sfumato.report.ehr import words
from sfumato.report.ehr.figures import MOST_CDFS, attacks_figure, cdf_figures, projection_figures, utility_figure
from sfumato.report.template import fill, refuse_folder, write_page


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
    detectors = [side.detector and side.detector.value for side in (fidelity.synthetic, fidelity.ideal)]
    return fill(
        "ehr.html",
        about=about,
        sizes=evaluation.sizes,
        seed=evaluation.seed,
        verdicts=[
            words.fidelity_verdict(*detectors),
            words.utility_verdict(utility),
            words.attacks_verdict(evaluation.attacks),
        ],
        rules=words.RULES,
        limits=words.LIMITS,
        together=_together(fidelity),
        columns=[_column(each) for each in fidelity.columns],
        cdfs=cdf_figures(fidelity),
        most_cdfs=MOST_CDFS,
        projections=projection_figures(fidelity),
        utility=utility,
        models=[(each.model, words.within(each.real), words.within(each.synthetic)) for each in utility.models]
        if utility
        else [],
        gap=words.within(utility.gap) if utility else "",
        utility_chart=utility_figure(utility) if utility else None,
        attacks=_attacks(evaluation),
        attacks_chart=attacks_figure(evaluation.attacks),
    )


def summary_rows(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """(measure, of synthetic records, its ideal) of the whole evaluation, as the terminal shows them."""
    rows = _together(evaluation.fidelity)
    for each in evaluation.utility.models if evaluation.utility else ():
        rows.append((f"{each.model}, AUC", words.within(each.synthetic), words.within(each.real)))
    for attack in evaluation.attacks:
        for measure in attack.measures:
            mark = " (above the ideal)" if measure.above else ""
            name = f"{attack.name}: {measure.name}"
            rows.append((name, f"{words.within(measure.found)}{mark}", words.within(measure.ideal)))
    return rows


def _together(fidelity: Fidelity) -> list[tuple[str, str, str]]:
    """(what, of synthetic records, of those held out)."""
    sides = fidelity.synthetic, fidelity.ideal

    def gap(side: Summary, numeric: bool) -> str:
        found: AssociationGap = side.correlation if numeric else side.association
        names = fidelity.correlation_columns if numeric else fidelity.association_columns
        if found.mean is None or found.pair is None:
            return "–"
        first, second = (names[place] for place in found.pair)
        return f"{words.short(found.mean, 2)}; at most {words.short(found.largest or 0.0, 2)}, {first} with {second}"

    rows = [
        (f"numeric columns with KS < {limit:g}", *(words.percent(side.good[place]) for side in sides))
        for place, limit in enumerate(LIMITS)
    ]
    rows.append(("mean error of the shares that are missing", *(words.percent(side.missing_error) for side in sides)))
    rows.append(("gap of rank correlations, mean", *(gap(side, True) for side in sides)))
    rows.append(("gap of Cramér’s V between categories, mean", *(gap(side, False) for side in sides)))
    rows.append(("detector, AUC", *(words.within(side.detector) for side in sides)))
    return [(what, made, held) for what, made, held in rows]


def _column(column: ColumnFit) -> tuple[str, ...]:
    """The cells of a row; the first is its name."""
    fit = column.fit
    if isinstance(fit, NumericFit):
        mean = f"{words.plain(fit.real_mean)} → {words.plain(fit.synthetic_mean)}"
        std = f"{words.plain(fit.real_std)} → {words.plain(fit.synthetic_std)}"
    else:
        mean = std = "–"
    missing = f"{words.percent(fit.real_missing)} → {words.percent(fit.synthetic_missing)}"
    kind = f"{column.part}, {'KS' if column.numeric else 'total variation'}"
    return (column.name, kind, mean, std, missing, words.plain(fit.distance), words.plain(column.ideal))


def _attacks(evaluation: Evaluation) -> list[tuple[str, str, str, str, str]]:
    return [
        (
            f"{attack.name}: {measure.name}",
            words.within(measure.found),
            words.within(measure.ideal),
            words.within(measure.excess),
            "above the ideal" if measure.above else "no more than the ideal",
        )
        for attack in evaluation.attacks
        for measure in attack.measures
    ]
