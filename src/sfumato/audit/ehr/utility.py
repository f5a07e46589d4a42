"""What synthetic records are worth: classifiers of the outcome, trained on them and tested on real patients (TSTR).

Beside it stand the same classifiers trained on the real records (TRTR) and tested on the same held-out patients. Four
kinds: gradient-boosted trees, a random forest, logistic regression (all on the flat table), and a GRU over the visits.
Patients without an outcome are left out. Intervals come from drawing the test patients again, the same ones for both
sides; the classifiers stay as they are.

References:
    Esteban, Hyland, Rätsch: Real-valued (medical) time series generation with recurrent conditional GANs. 2017
    (train on synthetic, test on real).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.audit.ehr.classifiers import MODELS, scores_of_test
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.metrics.classification import roc_auc
from sfumato.metrics.tabular.bootstrap import Interval, bootstrap

_REPLICATES = 200


@dataclass(frozen=True, kw_only=True)
class ModelUtility:
    """One kind of classifier; AUC on real held-out patients.

    Attributes:
        model: its name.
        real: trained on real records (TRTR).
        synthetic: trained on synthetic ones (TSTR); None where these have one outcome only.
    """

    model: str
    real: Interval
    synthetic: Interval | None

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Utility:
    """All kinds of classifiers.

    Attributes:
        outcome: the column that is predicted, and the category that counts as the event.
        models: in the order of `MODELS`.
        gap: AUC of the best model trained on real records − that of the best one trained on synthetic records, each
            the best of its side on the test; None where the synthetic records have one outcome only.
        test_patients, events: held-out patients with an outcome, and those of them with the event.
        warnings: sentences about what could not be measured as it should.
    """

    outcome: tuple[str, str]
    models: tuple[ModelUtility, ...]
    gap: Interval | None
    test_patients: int
    events: int
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


def utility(
    real: EHRDataset,
    holdout: EHRDataset,
    synthetic: EHRDataset,
    seed: int,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Utility | None:
    """TSTR against TRTR; None where the schema names no outcome.

    Args:
        real: what the generator was trained on.
        holdout: real patients that it has not seen, to test on.
        synthetic: what it made.
        seed: of the classifiers and of the intervals.
        progress: told (done, total) classifiers.

    Raises:
        InputError: real records, or those held out, have one outcome only.
    """
    schema = real.schema
    if schema.outcome is None:
        return None
    sides = [_with_outcome(side) for side in (real, holdout, synthetic)]
    for name, side in zip(("real", "held-out"), sides, strict=False):
        if not side.both:
            raise InputError(f"all {name} records have one {schema.outcome!r}; give more, or a schema without outcome")
    warnings = [
        f"{side.left_out} {name} records have no {schema.outcome!r} and are left out here."
        for name, side in zip(("real", "held-out", "synthetic"), sides, strict=True)
        if side.left_out
    ]
    trained, test, made = sides
    if not made.both:
        warnings.append(
            f"The synthetic records do not have both categories of {schema.outcome!r}: nothing about it can be learned "
            "from them, and there is no AUC of training on them."
        )
    teachers = [trained, made] if made.both else [trained]
    scores: list[list[np.ndarray]] = []
    for teacher in teachers:
        scores.append([])
        for model in MODELS:
            scores[-1].append(scores_of_test(model, teacher.records, teacher.outcome, test.records, seed))
            if progress:
                progress(sum(map(len, scores)), len(teachers) * len(MODELS))
    each = [[_interval(test.outcome, seed, [one]) for one in side] for side in scores]
    return Utility(
        outcome=(
            schema.outcome,
            next(column.categories[1] for column in schema.static if column.name == schema.outcome),
        ),
        models=tuple(
            ModelUtility(model=model, real=each[0][place], synthetic=each[1][place] if made.both else None)
            for place, model in enumerate(MODELS)
        ),
        gap=_interval(test.outcome, seed, *scores) if made.both else None,
        test_patients=len(test.outcome),
        events=int(test.outcome.sum()),
        warnings=tuple(warnings),
    )


@dataclass(frozen=True)
class _Side:
    records: EHRDataset
    outcome: np.ndarray
    left_out: int

    @property
    def both(self) -> bool:
        return 0 < self.outcome.sum() < len(self.outcome)


def _with_outcome(records: EHRDataset) -> _Side:
    """The patients whose outcome is known; all of them, without outcomes, where nobody's is."""
    place = [column.name for column in records.schema.static_categorical].index(str(records.schema.outcome))
    known = np.flatnonzero(records.static_codes[:, place] >= 0)
    left_out = len(records) - len(known)
    if not len(known):
        return _Side(records, np.empty(0, np.int64), left_out)
    records = records.take(known) if left_out else records
    return _Side(records, records.outcome(), left_out)


def _interval(
    truth: np.ndarray, seed: int, scores: list[np.ndarray], others: list[np.ndarray] | None = None
) -> Interval:
    """Of the best AUC of some scores, less the best one of others; with one seed, of the same test patients."""
    outcomes = [np.flatnonzero(truth == value) for value in (0, 1)]

    def best(*rows: np.ndarray) -> float:
        drawn = np.concatenate([side[row] for side, row in zip(outcomes, rows, strict=True)])
        first = max(roc_auc(each[drawn], truth[drawn]) for each in scores)
        return first - max(roc_auc(each[drawn], truth[drawn]) for each in others) if others else first

    return bootstrap(best, [len(side) for side in outcomes], np.random.default_rng(seed), replicates=_REPLICATES)
