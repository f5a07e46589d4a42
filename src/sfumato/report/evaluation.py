"""evaluation.json: how good the models of a run are on test data, and what attacks on synthetic records found."""

import base64
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from sfumato.metrics.shown import NUMBERS
from sfumato.report.numbers import finite
from sfumato.training.told.seen import SEEN


@dataclass(frozen=True)
class Group:
    """People with about as many records each.

    Attributes:
        records: how many, as "10 to 29".
        users: how many people, or None.
        measures: by name; those that are finite.
    """

    records: str
    users: int | None
    measures: dict[str, float]


@dataclass(frozen=True)
class Picture:
    """A picture of the test data.

    Attributes:
        label: its class.
        png: in base64.
        same: whether it shows the class that was asked for.
        nearest: of one that was asked for: those with the most similar embeddings, nearest first.
    """

    label: str
    png: str
    same: bool = True
    nearest: tuple["Picture", ...] = ()


@dataclass(frozen=True)
class Score:
    """One model on the test data.

    Attributes:
        recall: false accept rate (as text) → recall.
        auc: area under the ROC curve, or None.
        fpr, tpr: the curve, possibly empty.
        accuracy, log_loss: of a classifier, or None.
        numbers: measure of `metrics.shown` → value, of a model of numbers; those that are finite.
        not_finite: test examples that gave no finite output.
        by_records: by how many records people have, for models with a part of their own.
        nearest: pictures that were asked for, with those nearest to them.
    """

    recall: dict[str, float]
    auc: float | None
    fpr: list[float]
    tpr: list[float]
    accuracy: float | None = None
    log_loss: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    not_finite: int = 0
    by_records: tuple[Group, ...] = ()
    nearest: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class AttackFound:
    """What an attack on synthetic records found.

    Attributes:
        name: of the attack and of its measure.
        found, ideal: (value, lower end, upper end) with the synthetic records, and where nothing can have leaked.
        above: whether one of its measures is above its ideal.
    """

    name: str
    found: tuple[float, float, float]
    ideal: tuple[float, float, float]
    above: bool


@dataclass(frozen=True)
class Evaluation:
    """evaluation.json.

    Attributes:
        about: counts of images, users, classes and pairs, those that are known.
        untrained, trained: None if not measured.
        seen: the trained model on people who took part, which is private; None if not measured.
        stages: the models of the first, second, … stage, of a run that has some.
        attacks: on the records that the run made, the first measure of each.
    """

    about: dict[str, int]
    untrained: Score | None
    trained: Score | None
    seen: Score | None = None
    stages: tuple[Score, ...] = ()
    attacks: tuple[AttackFound, ...] = ()


def evaluation(value: Any) -> Evaluation:
    """What evaluation.json holds.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: it is not what a run writes.
    """
    names = ("images", "examples", "users", "classes", "genuine_pairs", "impostor_pairs")
    about = {name: int(value[name]) for name in names if value.get(name) is not None}
    untrained, trained, seen = (
        _score(value[name]) if name in value else None for name in ("untrained", "trained", SEEN)
    )
    stages = takewhile(value.__contains__, (f"stage {number}" for number in count(1)))
    attacks = tuple(map(_attack, value.get("synthetic", {}).get("attacks", ())))
    return Evaluation(about, untrained, trained, seen, tuple(_score(value[name]) for name in stages), attacks)


def _attack(value: Any) -> AttackFound:
    measure = value["measures"][0]
    found, ideal = (
        (float(measure[side]["value"]), float(measure[side]["low"]), float(measure[side]["high"]))
        for side in ("found", "ideal")
    )
    return AttackFound(f"{value['name']}: {measure['name']}", found, ideal, bool(value["above"]))


def _score(value: Any) -> Score:
    curve = value.get("roc") or {"fpr": [], "tpr": []}
    fpr, tpr = [float(x) for x in curve["fpr"]], [float(y) for y in curve["tpr"]]
    if len(fpr) != len(tpr):
        raise ValueError(f"the ROC curve has {len(fpr)} rates of one kind and {len(tpr)} of the other")
    recall = {f"{float(far):g}": float(share) for far, share in value.get("recall_at_far", {}).items()}
    numbers = {name: number for name in NUMBERS if (number := finite(value.get(name))) is not None}
    if not (recall or numbers or {"accuracy", "not_finite", "values"}.intersection(value)):
        raise KeyError("recall_at_far, no accuracy and no other measure")
    area, accuracy, log_loss = (finite(value.get(name)) for name in ("auc", "accuracy", "log_loss"))
    groups = tuple(map(_group, value.get("by_records") or ()))
    nearest = tuple(map(_picture, value.get("nearest") or ()))
    lost = int(value.get("not_finite") or 0)
    return Score(recall, area, fpr, tpr, accuracy, log_loss, numbers, lost, groups, nearest)


def _picture(value: Any) -> Picture:
    png = str(value["picture"])
    base64.b64decode(png, validate=True)  # refuses what is none
    same = bool(value.get("same", True))
    return Picture(str(value["label"]), png, same, tuple(map(_picture, value.get("nearest") or ())))


def _group(value: Any) -> Group:
    measures = {name: number for name in (*NUMBERS, "accuracy") if (number := finite(value.get(name))) is not None}
    return Group(str(value["records"]), int(value["users"]), measures)
