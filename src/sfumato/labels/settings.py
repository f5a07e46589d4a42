"""What is randomised, and how: the settings of `randomize_table` and of its command."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import Event, PureDP, guarantee
from sfumato.labels.histogram import NoisyHistogram
from sfumato.labels.phase import Response
from sfumato.mechanisms.randomized_response import BinnedResponse, GridLaplace, LabelResponse
from sfumato.mechanisms.randomized_response.bins import MOST_VALUES
from sfumato.mechanisms.randomized_response.words import LEAST_EPSILON, require_epsilon

_VALUES = 256  # of a grid that nobody chose


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """How labels are randomised.

    Attributes:
        label: the column of labels; all others stay as they are.
        epsilon: of one label, all that is released of it together, in [1e-6, 500].
        classes: what a label can be, public. Numbers with --low and --high need none.
        public_classes: take the classes that the table has, and declare them public: who has the only label of a class
            is then not hidden.
        prior: a table of public probabilities: columns class and probability, or a row for each label and a column for
            each class. Without it, or a counted one, all classes are as likely.
        prior_epsilon: count the labels first, under noise, and take that for the prior; a part of epsilon, 0.05 or less
            is often enough.
        groups: with --prior-epsilon: a public column; the labels of each of its values are counted alone.
        clusters: with --prior-epsilon: so many clusters of public features, and the labels of each are counted alone.
        features: of these clusters, a .npy of numbers with a row for each row of the table; public.
        smoothing: share of the prior that is spread over all classes evenly, in [0, 1].
        low: labels are numbers from this one on, public; those below count as it.
        high: and up to this one, public; those above count as it.
        values: so many numbers from low to high, evenly spaced, to which labels are rounded; 256 unless given.
        method: best keeps the labels, or cuts numbers into the bins, that are best for the prior; rr keeps all of them;
            laplace adds noise to numbers.
        loss: what bins are best for.
        shuffle: write the rows in a random order, for a table whose order follows from its labels. It stays secret only
            if no column counts the rows; files that are read by the number of the row no longer fit.
    """

    label: str
    epsilon: float
    classes: tuple[str, ...] | None = None
    public_classes: bool = False
    prior: Path | None = None
    prior_epsilon: float | None = None
    groups: str | None = None
    clusters: int | None = None
    features: Path | None = None
    smoothing: float = 0.0
    low: float | None = None
    high: float | None = None
    values: int | None = None
    method: Literal["best", "rr", "laplace"] = "best"
    loss: Literal["squared", "absolute", "poisson"] = "squared"
    shuffle: bool = False

    def require_valid(self) -> None:
        """Refuse what does not go together.

        Raises:
            InputError: tells what.
        """
        require_epsilon(self.epsilon)
        _check.between(0, 1, smoothing=self.smoothing)
        _check.one_of(("best", "rr", "laplace"), method=self.method)
        if self.of_numbers:
            self._require_range()
        else:
            self._require_classes()
        if self.prior_epsilon is not None:
            require_epsilon(self.prior_epsilon)
            left_for_labels(self.epsilon, self.histogram)
        if self.prior is not None and self.prior_epsilon is not None:
            raise InputError("give prior (public) or prior_epsilon (counted under noise), not both")
        if self.prior is None and self.prior_epsilon is None and self.smoothing:
            raise InputError("smoothing is for a prior; give prior or prior_epsilon, or leave it out")
        if self.groups is not None and self.prior_epsilon is None:
            raise InputError("groups are counted under noise; give prior_epsilon, too, or leave groups out")
        self._require_clusters()
        if self.groups == self.label:
            raise InputError(f"groups must be a public column, got the label {self.label!r}")
        if self.method != "best" and (self.prior is not None or self.prior_epsilon is not None):
            raise InputError(f"method {self.method} uses no prior; leave the prior out, or take the method best")

    def _require_clusters(self) -> None:
        if (self.clusters is None) != (self.features is None):
            raise InputError("clusters are of public features: give clusters and features, or leave both out")
        if self.clusters is None:
            return
        _check.whole(clusters=self.clusters)
        if self.prior_epsilon is None:
            raise InputError("clusters are counted under noise; give prior_epsilon, too, or leave clusters out")
        if self.groups is not None:
            raise InputError("give groups or clusters, not both")

    def _require_range(self) -> None:
        if self.low is None or self.high is None:
            raise InputError("numbers need both ends of their range; give low and high")
        if not -math.inf < self.low < self.high < math.inf:
            raise InputError(f"low must be below high, and both finite, got {self.low:g} and {self.high:g}")
        _check.whole(at_least=2, values=self.count)
        _check.between(2, MOST_VALUES, values=self.count)
        if self.classes is not None or self.public_classes:
            raise InputError("labels are classes or numbers: leave classes out, or low and high")
        if self.groups is not None or self.clusters is not None:
            raise InputError("bins are the same for all numbers; leave groups out, and clusters")

    def _require_classes(self) -> None:
        asked = {"values": self.values is not None, "method laplace": self.method == "laplace"}
        for name, given in {**asked, f"loss {self.loss}": self.loss != "squared"}.items():
            if given:
                raise InputError(f"{name} is for numbers; give low and high, too, or leave it out")
        if self.classes is None and not self.public_classes:
            raise InputError(
                "which classes are there? give classes, or public_classes to declare that those in the table are "
                "public; for numbers give low and high"
            )
        if self.classes is not None and self.public_classes:
            raise InputError("give classes or public_classes, not both")

    @property
    def of_numbers(self) -> bool:
        """Whether labels are numbers."""
        return self.low is not None or self.high is not None

    @property
    def count(self) -> int:
        """Of the values of a number."""
        return _VALUES if self.values is None else self.values

    @property
    def grid(self) -> np.ndarray:
        """The values of a number, float64 [count]."""
        assert self.low is not None
        assert self.high is not None
        return np.linspace(self.low, self.high, self.count)

    @property
    def histogram(self) -> NoisyHistogram | None:
        """How labels are counted for the prior, if they are."""
        if self.prior_epsilon is None:
            return None
        return NoisyHistogram(epsilon=self.prior_epsilon, smoothing=self.smoothing)

    @property
    def label_epsilon(self) -> float:
        """What is left for the labels, such that what the ledger adds up to is not above epsilon."""
        return left_for_labels(self.epsilon, self.histogram)

    def response(self, classes: int, prior: np.ndarray | None) -> Response:
        """What turns labels into reports.

        Args:
            classes: how many there are, or values of a number.
            prior: of all rows, for numbers; None for a uniform one.
        """
        epsilon = self.label_epsilon
        if not self.of_numbers:
            return LabelResponse(epsilon=epsilon, classes=classes, size=classes if self.method == "rr" else None)
        if self.method == "laplace":
            assert self.low is not None
            assert self.high is not None
            return GridLaplace(epsilon=epsilon, low=self.low, high=self.high, count=self.count)
        if self.method == "rr":
            return BinnedResponse.plain(self.grid, epsilon=epsilon)
        prior = np.full(classes, 1 / classes) if prior is None else prior
        return BinnedResponse.best(self.grid, prior, epsilon=epsilon, loss=self.loss)

    def event(self) -> Event:
        """What all that is released of a label costs it."""
        labels = PureDP(self.label_epsilon, "replace")
        return labels if self.histogram is None else self.histogram.event() + labels

    def in_words(self, classes: int) -> str:
        """The mechanism, for the statement."""
        if self.of_numbers:
            what = f"{self.count} values from {self.low:g} to {self.high:g}"
            ways = {"best": f"in bins that are best for the {self.loss} loss", "rr": "each by itself"}
        else:
            what = f"{classes} classes"
            ways = {"best": "of which the best number for the prior is reported", "rr": "all of which are reported"}
        told = (
            f"randomised response on {what}, {ways[self.method]}" if self.method in ways else f"Laplace noise on {what}"
        )
        counted = "" if self.histogram is None else "; the prior is a histogram with discrete Laplace noise"
        return f"{told}, epsilon {self.label_epsilon:.6g}{counted}"

    def plan(self, classes: tuple[str, ...] | None) -> dict[str, Any]:
        """What plan.json holds; all of it is public."""
        settings = {each.name: getattr(self, each.name) for each in fields(LabelSettings)}
        names = {name: file.name for name, file in settings.items() if isinstance(file, Path)}
        return {"plan": "labeldp randomize", **settings, **names, "classes": classes}


def left_for_labels(epsilon: float, histogram: NoisyHistogram | None) -> float:
    """What a counted prior leaves of epsilon, such that what the ledger adds up to is not above it.

    Raises:
        InputError: the prior leaves nothing.
    """
    if histogram is None:
        return float(epsilon)
    if histogram.epsilon > epsilon - LEAST_EPSILON:
        raise InputError(
            f"prior_epsilon must be below epsilon, {epsilon:g}, of which it is a part, got {histogram.epsilon:g}; 0.05 "
            "is often enough"
        )
    left, counted = float(epsilon) - histogram.epsilon, histogram.event()
    while guarantee(counted + LabelResponse(epsilon=left, classes=2).event(), "replace").epsilon(0.0) > epsilon:
        left = math.nextafter(left, 0.0)
    return left
