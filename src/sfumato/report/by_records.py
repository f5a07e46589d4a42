"""How well people are served by how many records they have: people who never took part beside those who did.

What is known of those who took part is private, and is on no public page.
"""

from dataclasses import dataclass

from sfumato.metrics.shown import FIRST, NUMBERS
from sfumato.report import numbers
from sfumato.report.evaluation import Group, Score
from sfumato.report.record import RunRecord

_ALL = "all"


@dataclass(frozen=True)
class ByRecords:
    """A table.

    Attributes:
        header: names of columns.
        rows: the cells of each.
        private: whether people who took part are in it.
    """

    header: list[str]
    rows: list[list[str]]
    private: bool


def by_records(run: RunRecord, *, private: bool) -> ByRecords | None:
    """The table of a run whose model has a part of each person's own; None for others.

    Args:
        run: what ran.
        private: whether those who took part may be told of.
    """
    trained = run.evaluation.trained if run.evaluation else None
    if run.evaluation is None or trained is None or not trained.by_records:
        return None
    seen = run.evaluation.seen if private else None
    measure = next((name for name in (*FIRST, "accuracy") if name in trained.by_records[-1].measures), None)
    if measure is None:
        return None
    parts = [("never trained on", _groups(trained, measure))]
    if seen is not None:
        parts.append(("who took part (not private)", _groups(seen, measure)))
    named = NUMBERS.get(measure, measure)
    header = ["records of a person"]
    for who, _ in parts:
        header += [f"people {who}", named]
    ranges = list(dict.fromkeys(each for _, groups in parts for each in groups if each != _ALL))
    ranges.sort(key=lambda text: int(text.split()[0]))
    return ByRecords(header, [_row(each, parts, measure) for each in (*ranges, _ALL)], seen is not None)


def _groups(score: Score, measure: str) -> dict[str, Group]:
    every = {**score.numbers, **({} if score.accuracy is None else {"accuracy": score.accuracy})}
    found = {group.records: group for group in score.by_records}
    if measure in every:
        found[_ALL] = Group(_ALL, sum(group.users or 0 for group in score.by_records), every)  # whom it was measured on
    return found


def _row(records: str, parts: list[tuple[str, dict[str, Group]]], measure: str) -> list[str]:
    cells = [records]
    for _, groups in parts:
        group = groups.get(records)
        users = group.users if group else None
        value = group.measures.get(measure) if group else None
        cells += ["–" if users is None else f"{users:,}", "–" if value is None else numbers.near(value, 4)]
    return cells
