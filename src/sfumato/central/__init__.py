"""Algorithms of one holder of the data: what examples contribute to the private sum."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.central.dpsgd import DPSGD
    from sfumato.central.examples import ExampleContribution
    from sfumato.central.frequent_rows import FrequentRows
    from sfumato.central.labeldp_pro import LabelDPPro
    from sfumato.central.tasks import (
        IGNORED,
        Classification,
        Counts,
        CustomLoss,
        LossPerExample,
        Regression,
        cross_entropy,
        language_model_loss,
        multi_label_loss,
        poisson_loss,
        predict,
        squared_error,
        token_loss,
    )

__all__ = [
    "DPSGD",
    "IGNORED",
    "Classification",
    "Counts",
    "CustomLoss",
    "ExampleContribution",
    "FrequentRows",
    "LabelDPPro",
    "LossPerExample",
    "Regression",
    "cross_entropy",
    "language_model_loss",
    "multi_label_loss",
    "poisson_loss",
    "predict",
    "squared_error",
    "token_loss",
]
__getattr__, __dir__ = lazily(__name__)
