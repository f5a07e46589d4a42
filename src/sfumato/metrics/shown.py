"""The measures of models that give numbers, as people read them: the terminal and the page say them alike.

>>> list(REGRESSION.values())
['RMSE', 'MAE', 'R²']
"""

REGRESSION = {"rmse": "RMSE", "mae": "MAE", "r2": "R²"}
RATINGS = {"within_half": "within ½"}
COUNTS = {
    "poisson_log_loss": "Poisson log loss",
    "deviance_explained": "deviance explained",
    "mean_rate": "mean rate",
    "mean_count": "mean count",
}
OWN = {"loss": "loss"}
TOKENS = {"accuracy_no_oov_no_eos": "accuracy without oov and eos", "perplexity": "perplexity"}
ATTRIBUTES = {"micro_f1": "micro F1", "macro_f1": "macro F1", "mean_average_precision": "mean average precision"}

NUMBERS = {**REGRESSION, **RATINGS, **COUNTS, **OWN, **TOKENS, **ATTRIBUTES}
"""All of them: key of a row → name."""

FIRST = tuple(next(iter(measures)) for measures in (REGRESSION, COUNTS, OWN))
"""Of each kind the one that comes first; the smaller the better."""

EXPLAINED = ("r2", "deviance_explained")
"""Shares that are explained of what a constant leaves: 0 is no better than the best constant."""
