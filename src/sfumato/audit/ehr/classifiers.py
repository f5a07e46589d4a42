"""The four kinds of classifiers that say what records are worth: three of the flat table, and a GRU of the visits.

Each is trained with the settings that stand here, chosen once and not on anybody's data. What is missing is a value of
its own for the trees; for the others it is the column's median, with a column that says so.
"""

from typing import Any

import numpy as np

from sfumato.audit.ehr.features import Features
from sfumato.audit.ehr.flatten import flatten
from sfumato.audit.ehr.gru import GruClassifier
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.metrics.tabular.told import told_columns

MODELS = ("gradient-boosted trees", "random forest", "logistic regression", "GRU")


def scores_of_test(model: str, records: EHRDataset, outcome: np.ndarray, test: EHRDataset, seed: int) -> np.ndarray:
    """Train one of `MODELS`, and score test patients.

    Args:
        model: its name.
        records: to train on.
        outcome: 0 or 1 of each of them, both of them present.
        test: whom to score; the schema's outcome is hidden from the classifier.
        seed: of what it draws.

    Returns:
        float64 [test patients]; higher means that the outcome is more likely.
    """
    hidden = (records.schema.outcome,) if records.schema.outcome else ()
    if model == "GRU":
        return GruClassifier(hidden, seed).fit(records, outcome).scores(test)
    flat, other = (flatten(side).without(*hidden) for side in (records, test))
    features = Features(flat)
    known, asked = features.of(flat), features.of(other)
    told = told_columns(known)  # always some: the number of visits is never missing
    fitted = _tabular(model, len(flat), seed).fit(known[:, told], outcome)
    return np.asarray(fitted.predict_proba(asked[:, told])[:, 1], np.float64)


def _tabular(model: str, patients: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # late: a second to import
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import QuantileTransformer

    if model == "gradient-boosted trees":
        return HistGradientBoostingClassifier(learning_rate=0.05, max_leaf_nodes=15, random_state=seed)
    filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    if model == "random forest":
        return make_pipeline(filled, RandomForestClassifier(200, min_samples_leaf=3, random_state=seed))
    ranks = QuantileTransformer(n_quantiles=min(100, patients), output_distribution="normal", random_state=seed)
    return make_pipeline(filled, ranks, LogisticRegression(C=0.1, max_iter=1000))
