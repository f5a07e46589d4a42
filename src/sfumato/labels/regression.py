"""What a regression on randomised numbers costs, and what its reports say.

- **Unit.** One label; inputs are public, and so are the number of rows, the range and the grid.
- **Neighbours.** A label is replaced by any other one; those outside of the range count as its ends.
- **Event.** `PureDP` of what the histogram of all labels leaves, and the histogram's own: together epsilon. The model
  sees inputs, reports and the histogram alone, so training and undoing bias are free.
- **Bias.** Bins are those whose reports have the least expected loss for labels that follow the prior, and such reports
  are drawn to the middle: the mean report of a label is that of its own bin by a share of only (e^epsilon - 1) /
  (e^epsilon + d - 1), for d bins, and the mean of all bins' for the rest; the squared loss learns that. Laplace reports
  have the right mean but near the ends of the range, beyond which they are moved to these. Shrunken predictions are
  good where reports are few, and wrong where many rows look alike. With `unbiased`, a model is trained on other numbers
  for the reports, whose mean is that of the label's bin (least squares by the prior): then the squared loss learns the
  mean label of rows that look alike, at the price of more noise. Other losses have none: a median is no mean, and a
  Poisson loss has no least value for a number below zero.

>>> RegressionSettings(epsilon=2.0, low=0.0, high=10.0).labels.label_epsilon
1.95

References:
    Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan, Zhang: Regression with Label Differential Privacy. ICLR 2023,
    arXiv 2212.06074. Algorithms 1 and 2.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import Event
from sfumato.labels.phase import Response
from sfumato.labels.settings import LabelSettings
from sfumato.mechanisms.randomized_response import BinnedResponse, GridLaplace, unbiased_numbers
from sfumato.mechanisms.randomized_response.words import WORDS
from sfumato.training import OptimizerName, Supervised

_COLUMN = "targets"
"""Where labels are, which settings ask for: a data set's targets."""


@dataclass(frozen=True, kw_only=True)
class RegressionSettings:
    """Fields of the plan.

    Attributes:
        epsilon: of one label, all that is released of it together, in [1e-6, 500].
        low: labels are numbers from this one on, public; those below count as it.
        high: and up to this one, public; those above count as it.
        values: so many numbers from low to high, evenly spaced, to which labels are rounded. Fewer are counted better.
        method: best reports the bins that are best for the counted labels; rr all values; laplace adds noise.
        prior_epsilon: of epsilon, what counting all labels for the method best costs; 0 takes all values for as likely.
        loss: that bins are best for and the model is trained by. With poisson, the model's output is the logarithm of
            a rate.
        unbiased: train on numbers whose mean is the label's (or its bin's) in place of the reports; noisier. For the
            squared loss.
        epochs: passes over the rows.
        batch_size: rows a step.
        learning_rate: of the optimiser; it falls to zero with schedule="cosine".
        optimizer: torch optimiser by name.
        momentum: its momentum (Adam: first beta), in [0, 1).
        weight_decay: its weight decay.
        schedule: of the learning rate.
        shuffle: put the rows into a random, secret order first, for data whose order follows from their labels.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    epsilon: float
    low: float
    high: float
    values: int = 64
    method: Literal["best", "rr", "laplace"] = "best"
    prior_epsilon: float = 0.05
    loss: Literal["squared", "absolute", "poisson"] = "squared"
    unbiased: bool = False
    epochs: int = 20
    batch_size: int = 256
    learning_rate: float = 0.05
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "cosine"
    shuffle: bool = False
    seed: int | None = None

    name: ClassVar[str] = "rr_on_bins"
    of_classes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check.non_negative(prior_epsilon=self.prior_epsilon)
        self.labels.require_valid()
        if self.loss == "poisson" and self.low < 0:
            raise InputError(f"loss=poisson is for numbers >= 0, got low={self.low:g}; take another loss")
        if self.unbiased and self.loss != "squared":
            raise InputError(f"unbiased numbers are for loss=squared, got {self.loss}; leave unbiased out")
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)
        _ = self.training, self.labels.response(self.values, None)  # both check their fields

    @property
    def labels(self) -> LabelSettings:
        """How labels are randomised."""
        counted = self.method == "best" and self.prior_epsilon > 0
        return LabelSettings(
            label=_COLUMN,
            epsilon=self.epsilon,
            low=self.low,
            high=self.high,
            values=self.values,
            method=self.method,
            loss=self.loss,
            prior_epsilon=self.prior_epsilon if counted else None,
        )

    @property
    def training(self) -> Supervised:
        """How the model trains on the reports."""
        return Supervised(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            optimizer=self.optimizer,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            loss=self.loss,
        )

    def events(self) -> list[Event]:
        """What is paid for, in this order: the histogram, and the labels."""
        histogram = self.labels.histogram
        counted = [] if histogram is None else [histogram.event()]
        return [*counted, self.labels.response(self.values, None).event()]

    def with_right_mean(self, response: Response, reports: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
        """Numbers in place of reports, float64 [rows]; see `unbiased`.

        Args:
            response: that gave them.
            reports: float64 [rows].
            prior: float64 [values], that bins were chosen by; None for an even one.
        """
        assert isinstance(response, BinnedResponse | GridLaplace)
        shown = response.outputs if isinstance(response, BinnedResponse) else response.values
        known, column = np.unique(shown, return_inverse=True)  # two bins may be reported as one number
        chances = np.zeros((len(known), self.values))
        np.add.at(chances, column, (response.weights() / WORDS).astype(np.float64).T)
        prior = np.full(self.values, 1 / self.values) if prior is None else prior
        return unbiased_numbers(chances.T, self.labels.grid, prior)[np.searchsorted(known, reports)]

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **asdict(self)}
