"""Whether a classifier tells synthetic records from real ones: the AUC of gradient-boosted trees on held-out folds.

0.5 is what real records of the same kind give; 1 is records that every tree tells. The scores are all of records that
the trees have not seen. Not private.
"""

import numpy as np

from sfumato._check import InputError
from sfumato.metrics.classification import roc_auc
from sfumato.metrics.tabular.bootstrap import Interval, bootstrap
from sfumato.metrics.tabular.told import told_columns

_FOLDS = 5
_REPLICATES = 200


def detector_auc(real: np.ndarray, synthetic: np.ndarray, rng: np.random.Generator) -> Interval:
    """The AUC with its interval.

    Args:
        real, synthetic: features, float [n, p] and [m, p]; NaN is missing, which the trees may use.
        rng: deals the folds.

    Raises:
        InputError: a side has fewer than 10 records.
    """
    if min(len(real), len(synthetic)) < 2 * _FOLDS:
        raise InputError(
            f"the detector needs {2 * _FOLDS} records on either side, got {len(real)} real and {len(synthetic)} "
            "synthetic ones; give more"
        )
    from sklearn.ensemble import HistGradientBoostingClassifier  # late: it takes a second to import

    features = np.concatenate([real, synthetic])
    made = np.r_[np.zeros(len(real), bool), np.ones(len(synthetic), bool)]
    fold = np.concatenate([rng.permutation(np.arange(len(side)) % _FOLDS) for side in (real, synthetic)])
    scores = np.zeros(len(features))
    for held_out in range(_FOLDS):
        rest, test = fold != held_out, fold == held_out
        trees = HistGradientBoostingClassifier(random_state=0, max_iter=60, early_stopping=False)  # type: ignore[arg-type]
        told = told_columns(features[rest])
        if told.any():
            trees.fit(features[rest][:, told], made[rest])
            scores[test] = trees.predict_proba(features[test][:, told])[:, 1]
    return _with_interval(scores, made, fold, rng)


def _with_interval(scores: np.ndarray, made: np.ndarray, fold: np.ndarray, rng: np.random.Generator) -> Interval:
    """Mean of the folds' AUCs: scores of different trees are not compared."""
    sides = [np.flatnonzero(~made), np.flatnonzero(made)]

    def mean_auc(*drawn: np.ndarray) -> float:
        rows = np.concatenate([side[each] for side, each in zip(sides, drawn, strict=True)])
        found = [rows[fold[rows] == each] for each in range(_FOLDS)]
        both = [each for each in found if 0 < made[each].sum() < len(each)]
        return float(np.mean([roc_auc(scores[each], made[each]) for each in both])) if both else float("nan")

    return bootstrap(mean_auc, [len(side) for side in sides], rng, replicates=_REPLICATES)
