"""RR on bins: regression on private numbers, of which each is randomised once.

- **Unit.** One label; inputs are public, and so are the number of rows, the range and the grid.
- **Neighbours.** A label is replaced by any other one; those outside of the range count as its ends.
- **Event.** `PureDP` of what the histogram of all labels leaves, and the histogram's own: together epsilon. The model
  sees inputs, reports and the histogram alone, so training and undoing bias are free.
- **Bias.** Bins are those whose reports have the least expected loss for labels that follow the prior, and such reports
  are drawn to the middle: the mean report of a label is that of its own bin by a share of only (e^epsilon - 1) /
  (e^epsilon + d - 1), for d bins, and the mean of all bins' for the rest; the squared loss learns that. Laplace reports
  have the right mean but near the ends of the range, beyond which they are moved to these. Shrunken predictions are
  good where reports are few, and wrong where many rows look similar. With `unbiased`, a model is trained on other
  numbers for the reports, whose mean is that of the label's bin (least squares by the prior): then the squared loss
  learns the mean label of rows that look similar, at the price of more noise. Other losses have none: a median is no
  mean, and a Poisson loss has no least value for a number below zero.
- **Resume.** Histogram and reports are releases of the run: a run that goes on finds them, and draws none again.
- **Released.** The reports, the histogram, and the model.

>>> RROnBins(epsilon=2.0, low=0.0, high=10.0).label_epsilon
1.95
>>> import torch
>>> _ = torch.manual_seed(0)  # of the initial weights
>>> from sfumato.data import examples_from_arrays
>>> inputs = np.random.default_rng(0).uniform(size=(2000, 1)).astype(np.float32)
>>> data = examples_from_arrays(inputs, 10 * inputs[:, 0])
>>> plan = RROnBins(epsilon=3.0, low=0.0, high=10.0, values=21, training={"epochs": 5}, seed=0)
>>> result = plan.fit(torch.nn.Linear(1, 1), data, test=data)
>>> result.statement.unit, result.statement.epsilon, result.evaluation["trained"]["rmse"] < 1.5
('label', 3.0, True)

References:
    Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan, Zhang: Regression with Label Differential Privacy. ICLR 2023,
    arXiv 2212.06074. Algorithms 1 and 2.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import part, plan
from sfumato._random import RandomSource
from sfumato._types import Algorithm
from sfumato.labels.plan import (
    LabelPlan,
    Learning,
)
from sfumato.training.supervised import FLAT, TRAININGS, Supervised

if TYPE_CHECKING:
    from torch import nn

    from sfumato.labels.domains import Grid
    from sfumato.labels.priors import Prior
    from sfumato.labels.response import Response
    from sfumato.training.supervised import Inputs


_TRAINING = Supervised(batch_size=256, learning_rate=0.05, schedule="cosine")
_TRIAL_STEPS = 100  # on placeholder numbers


@plan
class RROnBins(LabelPlan):
    """The plan. It has no clusters, and takes no features.

    Attributes:
        epsilon: of one label, all that is released of it together, in [1e-6, 500].
        low: labels are numbers from this one on, public; those below count as it.
        high: and up to this one, public; those above count as it.
        values: so many numbers from low to high, evenly spaced, to which labels are rounded. Fewer are counted better.
        method: best reports the bins that are best for the counted labels; rr all values; laplace adds noise.
        prior_epsilon: what counting all labels for the method best costs: an epsilon out of the total, no share of it;
            0 takes all values for as likely.
        loss: that bins are best for and the model is trained by. With poisson, the model's output is the logarithm of
            a rate.
        unbiased: train on numbers whose mean is the label's (or its bin's) in place of the reports; noisier. For the
            squared loss.
        training: of the model on the reports.
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
    training: Supervised = part(default=_TRAINING, converter=TRAININGS)
    shuffle: bool = False
    seed: int | None = None

    name: ClassVar[str] = "rr_on_bins"
    of_classes: ClassVar[bool] = False
    renamed: ClassVar[Mapping[str, str]] = {name: f"training.{name}" for name in FLAT}

    def __post_init__(self) -> None:
        from sfumato.labels.response import require_epsilon

        _check.non_negative(prior_epsilon=self.prior_epsilon)
        require_epsilon(self.epsilon)
        if self.loss == "poisson" and self.low < 0:
            raise InputError(f"loss=poisson is for numbers >= 0, got low={self.low:g}; take another loss")
        if self.unbiased and self.loss != "squared":
            raise InputError(f"unbiased numbers are for loss=squared, got {self.loss}; leave unbiased out")
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)
        self.training.refuse_loss(self.loss)
        _ = self.supervised, self.response(self.values)  # both check their fields

    @property
    def domain(self) -> Grid:
        """What a number can be, and how it is reported."""
        from sfumato.labels.domains import Grid

        return Grid(low=self.low, high=self.high, values=self.values, method=self.method, loss=self.loss)

    @property
    def supervised(self) -> Supervised:
        """How the model trains on the reports, with the plan's loss."""
        return dataclasses.replace(self.training, loss=self.loss)

    @property
    def prior(self) -> Prior:
        from sfumato.labels.priors import Counted, Uniform

        counted = self.method == "best" and self.prior_epsilon > 0
        return Counted(epsilon=self.prior_epsilon) if counted else Uniform()

    @property
    def log_rates(self) -> bool:
        return self.loss == "poisson"

    def response(self, classes: int, prior: np.ndarray | None = None) -> Response:
        """What randomises a number, by a prior of all of them; None for an even one."""
        return self.domain.response(self.label_epsilon, classes, prior)

    def learner(self) -> type[Regression]:
        """In one stage."""
        return Regression

    def with_right_mean(self, response: Response, reports: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
        """Numbers in place of reports, float64 [rows]; see `unbiased`.

        Args:
            response: that gave them.
            reports: float64 [rows].
            prior: float64 [values], that bins were chosen by; None for an even one.
        """
        from sfumato.labels.numbers import BinnedResponse, GridLaplace
        from sfumato.labels.response import WORDS, unbiased_numbers

        assert isinstance(response, BinnedResponse | GridLaplace)
        shown = response.outputs if isinstance(response, BinnedResponse) else response.values
        known, column = np.unique(shown, return_inverse=True)  # two bins may be reported as one number
        chances = np.zeros((len(known), self.values))
        np.add.at(chances, column, (response.weights() / WORDS).astype(np.float64).T)
        prior = np.full(self.values, 1 / self.values) if prior is None else prior
        return unbiased_numbers(chances.T, self.domain.grid, prior)[np.searchsorted(known, reports)]


class Regression(Learning):
    """A run's counts, reports and model, in one stage."""

    plan: RROnBins

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_divergence()

    def read_labels(self) -> tuple[np.ndarray, int]:
        """Their places on the grid."""
        from sfumato.data.inputs import refuse_not_finite

        data, plan = self.data, self.plan
        if data.targets is None or data.num_classes is not None or data.targets.ndim != 1:
            raise InputError(
                f"labels must be one number for each example, got {data}; classes are for sfumato labeldp train "
                "(LPMST), or read them with classes=False"
            )
        numbers = np.asarray(data.targets, np.float64)
        refuse_not_finite(numbers, "labels")
        return plan.domain.places(numbers), plan.values

    def refuse_features(self) -> None:
        if self.features is not None:
            raise InputError("features are for clusters, and bins are the same for all rows; leave them out")

    def mechanism(self) -> str:
        plan = self.plan
        counted = "; the prior is a histogram with discrete Laplace noise" if plan.prior.events() else ""
        return f"{plan.domain.in_words(plan.values)}, epsilon {plan.label_epsilon:.6g}{counted}"

    def prior(self, stage: int, model: nn.Module) -> np.ndarray | None:
        """How likely the values are by the noisy histogram, float64 [values]."""
        counted = self.counted(np.zeros_like(self.labels), 1)
        return None if counted is None else counted[0]

    def release(self, stage: int, prior: np.ndarray | None) -> np.ndarray:
        from sfumato.labels.response import randomized

        return randomized(self.run, self.plan.response(self.classes, prior), self.labels, rows=len(self.data))

    def learn(self, stage: int, model: nn.Module, prior: np.ndarray | None, reports: np.ndarray) -> nn.Module:
        """From the reports, or from numbers with the right mean."""
        plan, targets = self.plan, reports
        if plan.unbiased:
            targets = plan.with_right_mean(plan.response(self.classes, prior), reports, prior)
        inputs, _ = self.data.examples(np.arange(len(self.data)))
        source = self.run.source.within("regression")
        trained = plan.supervised.fit(
            self.model, inputs, targets, source=source, device=self.device, watch=self.watch(stage)
        )
        if self._strayed(trained, inputs, targets):
            warnings.warn(
                "the model diverged, further from the reports than before its training; in the next run, lower "
                f"training.learning_rate ({plan.training.learning_rate:g}) or take another optimizer (the labels' "
                "cost counts)",
                stacklevel=2,
            )
        return trained

    def _refuse_divergence(self) -> None:
        """Refuse a training that diverges, by its first steps on placeholder numbers, before labels are paid for.

        Raises:
            InputError: it does.
        """
        plan, source = self.plan, RandomSource.from_seed(0)
        places = source.stream("made-up numbers").integers(plan.values, len(self.data))  # old name
        inputs, _ = self.data.examples(np.arange(len(self.data)))
        steps = min(_TRIAL_STEPS, plan.training.steps_for(len(self.data)))
        training = dataclasses.replace(plan.supervised, steps=steps)
        targets = plan.domain.grid[places]
        source = source.within("rehearsal")  # old name
        trained = training.fit(self.model, inputs, targets, source=source, device=self.device)
        if self._strayed(trained, inputs, targets):
            raise InputError(
                f"training.learning_rate {plan.training.learning_rate:g} makes the model diverge in {steps} steps on "
                f"placeholder numbers from {plan.low:g} to {plan.high:g}; lower it, or take adam (no label was drawn)"
            )

    def _strayed(self, trained: nn.Module, inputs: Inputs, targets: np.ndarray) -> bool:
        """Whether a model has left the range, and is further from its targets than before, or nowhere."""
        from sfumato.training.supervised import outputs
        from sfumato.training.trainable import copied

        def error(model: nn.Module) -> float:
            found = outputs(model, inputs, device=self.device).astype(np.float64).reshape(-1)
            with np.errstate(over="ignore", invalid="ignore"):
                return float(np.abs((np.exp(found) if self.plan.log_rates else found) - targets).mean())

        width = self.plan.high - self.plan.low
        return not error(trained) <= error(copied(self.model).to(self.device)) + width


ALGORITHM = Algorithm(
    name="rr_on_bins",
    package="sfumato.labels",
    plan="RROnBins",
    records="labels",
    title="RR on bins",
    summary="train a regression on public inputs whose numbers are private (label DP)",
    about="Randomise private numbers of public inputs, each once, and train on the reports. A report is a number of a "
    "few bins that are best for a noisy histogram (RR on bins), the number with Laplace noise, or one of all values.",
    example="sfumato labeldp regress --data ml-latest-small --model neural --low 0.5 --high 5 --values 10 "
    "--epsilon 2 --shuffle",
    matters="data model epsilon low high values method out resume dry_run",
    command="labeldp regress",
)
