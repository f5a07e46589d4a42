"""Columns that tell anything: scikit-learn's trees fail on one in which every training record is missing.

>>> told_columns(np.array([[1.0, np.nan], [np.nan, np.nan]]))
array([ True, False])
"""

import numpy as np


def told_columns(features: np.ndarray) -> np.ndarray:
    """The columns in which some record has a value.

    Args:
        features: float [n, p] of the records to train on, NaN = missing.

    Returns:
        bool [p].
    """
    return np.asarray(~np.isnan(features).all(axis=0))
