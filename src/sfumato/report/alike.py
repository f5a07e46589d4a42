"""Pictures that the model held for the most alike, before and after training, for people who would rather look.

They are copies of test pictures. A public page has them only where somebody says that the test data are public.
"""

from dataclasses import dataclass

from sfumato.report.evaluation import Picture, Score
from sfumato.report.record import RunRecord


@dataclass(frozen=True)
class Alike:
    """What is shown.

    Attributes:
        rows: for each picture that was asked for, itself and those nearest to it by each model; same order as `models`.
        models: "untrained", "trained".
        right: of all that are shown for a model, how many show the class that was asked for, as "7 of 30".
    """

    rows: list[tuple[Picture, list[tuple[Picture, ...]]]]
    models: list[str]
    right: list[str]


def alike(run: RunRecord) -> Alike | None:
    """What there is of a run; None where its test data are no pictures."""
    found = run.evaluation
    scores = [("untrained", found.untrained), ("trained", found.trained)] if found else []
    told: list[tuple[str, Score]] = [(name, score) for name, score in scores if score and score.nearest]
    if not told:
        return None
    asked = told[0][1].nearest
    told = [(name, score) for name, score in told if [p.png for p in score.nearest] == [p.png for p in asked]]
    rows = [(picture, [score.nearest[i].nearest for _, score in told]) for i, picture in enumerate(asked)]
    return Alike(rows, [name for name, _ in told], [_right(score) for _, score in told])


def _right(score: Score) -> str:
    near = [picture.same for asked in score.nearest for picture in asked.nearest]
    return f"{sum(near)} of {len(near)}"
