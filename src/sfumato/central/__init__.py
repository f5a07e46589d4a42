"""Algorithms of one holder of the data: what examples contribute to the private sum."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.central.dpsgd import DPSGD
    from sfumato.central.examples import ExampleContribution, predict
    from sfumato.central.labeldp_pro import LabelDPPro
    from sfumato.central.losses import (
        IGNORED,
        LossPerExample,
        cross_entropy,
        language_model_loss,
        multi_label_loss,
        poisson_loss,
        squared_error,
        token_loss,
    )
    from sfumato.central.tasks import Classification, Counts, OwnLoss, Regression

__all__ = [
    "DPSGD",
    "IGNORED",
    "Classification",
    "Counts",
    "ExampleContribution",
    "LabelDPPro",
    "LossPerExample",
    "OwnLoss",
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
