"""The charts of the page: distribution functions, projections, bars of classifiers and of attacks."""

from sfumato.audit.ehr.attack import Attack
from sfumato.audit.ehr.fidelity import Fidelity
from sfumato.audit.ehr.utility import Utility
from sfumato.metrics.tabular.columns import Cdf
from sfumato.report.chart import Axis, Series, line_chart, swatch
from sfumato.report.ehr.bars import Group, bar_chart, square
from sfumato.report.figures import Figure
from sfumato.report.numbers import near

MOST_CDFS = 24
_PARTS = {"static": "Static columns", "temporal": "Visits"}


def cdf_figures(fidelity: Fidelity) -> list[Figure]:
    """Of the numeric columns that are furthest apart, these first."""
    found = [(each.fit.distance or 0.0, each.name, each.cdf) for each in fidelity.columns if each.cdf]
    found.sort(key=lambda each: -each[0])
    return [_cdf(f"cdf-{place}", *each) for place, each in enumerate(found[:MOST_CDFS])]


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


def projection_figures(fidelity: Fidelity) -> list[Figure]:
    """Both clouds over each other, for static columns and for visits."""
    found = []
    for part, projection in fidelity.projections.items():
        lines = [
            Series(label, [x for x, _ in points], [y for _, y in points], place, loose=True, fine=True)
            for place, (label, points) in enumerate((("real", projection.real), ("synthetic", projection.synthetic)))
        ]
        title = f"{_PARTS[part]}, t-SNE"
        svg = line_chart(f"tsne-{part}", title, Axis("first coordinate"), Axis("second coordinate"), lines)
        found.append(Figure(title, svg, [(swatch(line), line.label) for line in lines]))
    return found


def utility_figure(utility: Utility) -> Figure:
    """AUC of each classifier, trained on real and on synthetic records."""
    groups = [Group(each.model, (each.real, each.synthetic)) for each in utility.models]
    series = ("trained on real", "trained on synthetic")
    lowest = min(value.low for group in groups for value in group.values if value)
    limits = (0.5 if lowest >= 0.5 else 0.0, 1.0)
    title = "AUC on real patients who were held out"
    return Figure(
        title, bar_chart("tstr", title, groups, series, limits), [(square(0), series[0]), (square(1), series[1])]
    )


def attacks_figure(attacks: tuple[Attack, ...]) -> Figure:
    """What each attack found, and its ideal."""
    groups = [
        Group(f"{attack.name}: {measure.name}", (measure.ideal, measure.found))
        for attack in attacks
        for measure in attack.measures
    ]
    series = ("ideal", "found")
    title = "What the attacks found, and their ideals"
    return _bars("attacks", title, groups, series, (0.0, 1.0))


def _bars(name: str, title: str, groups: list[Group], series: tuple[str, str], limits: tuple[float, float]) -> Figure:
    legend = [(square(place), label) for place, label in enumerate(series)]
    return Figure(title, bar_chart(name, title, groups, series, limits), legend)
