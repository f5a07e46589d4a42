"""Settings of learning in stages from labels that are randomised once (LP-MST), and what they cost one label.

The rows are divided into disjoint parts, one a stage. The labels of the first part are randomised by a prior that knows
nothing, or by clusters of public inputs; those of a later part by what the model of the stage before says of their
inputs. So each label is randomised in one stage, with the whole epsilon: the stages are parallel, and the cost is that
of one of them.

- **Unit.** One label; inputs are public, and so are the number of rows and the parts.
- **Neighbours.** A label is replaced by any other one. Earlier reports are the same for both neighbours of a label in a
  later part, and later ones are made of them: adaptive, and still parallel.
- **Event.** `PureDP` of what the histogram of clusters leaves, with the first stage; the others cost nothing more.
- **Model.** It sees inputs and reports alone, so training, dropping reports and mixing them is free.

>>> StagesSettings(epsilon=2.0, stages=(0.65, 0.35)).label_epsilon
2.0

References:
    Ghazi, Golowich, Kumar, Manurangsi, Zhang: Deep Learning with Label Differential Privacy. NeurIPS 2021,
    arXiv 2102.06062. Algorithm 4.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import Event
from sfumato.labels.histogram import NoisyHistogram
from sfumato.labels.settings import left_for_labels
from sfumato.mechanisms.randomized_response import LabelResponse
from sfumato.mechanisms.randomized_response.words import require_epsilon
from sfumato.training import OptimizerName, Supervised

_OFF = 1e-9


@dataclass(frozen=True, kw_only=True)
class StagesSettings:
    """Fields of the plan.

    Attributes:
        epsilon: of one label, all that is released of it together, in [1e-6, 500].
        stages: the share of the rows in each stage, adding up to 1; one number is LP-1ST.
        temperature: by which the model's logits are divided before they are a prior, > 0.
        clusters: so many clusters of public features have a prior of their own in the first stage; 0 starts from a
            uniform prior.
        prior_epsilon: of epsilon, what counting the labels of the clusters costs.
        drop_unlikely: leave out earlier reports that the model finds less likely than the mean k* of its priors.
        warm_start: each stage goes on from the weights of the one before; else from the first ones.
        epochs: passes over the labelled rows in each stage.
        batch_size: rows a step.
        learning_rate: of the optimiser; it falls to zero in each stage with schedule="cosine".
        optimizer: torch optimiser by name.
        momentum: its momentum (Adam: first beta), in [0, 1).
        weight_decay: its weight decay.
        schedule: of the learning rate in each stage.
        mixup: alpha of mixup; 0 for none.
        shuffle: put the rows into a random, secret order first, for data whose order follows from their labels.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    epsilon: float
    stages: tuple[float, ...] = (0.65, 0.35)
    temperature: float = 0.5
    clusters: int = 0
    prior_epsilon: float = 0.05
    drop_unlikely: bool = True
    warm_start: bool = True
    epochs: int = 20
    batch_size: int = 256
    learning_rate: float = 0.05
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "cosine"
    mixup: float = 0.0
    shuffle: bool = False
    seed: int | None = None

    name: ClassVar[str] = "lp_mst"
    of_classes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        _check.positive(temperature=self.temperature)
        _check.whole(at_least=0, clusters=self.clusters)
        if not (self.stages and abs(sum(self.stages) - 1) <= _OFF and min(self.stages) > 0):  # NaN, too
            raise InputError(f"stages must be shares > 0 that add up to 1, got {self.stages}; 0.65 0.35, for example")
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)
        _ = self.training, self.label_epsilon  # both check their fields

    @property
    def training(self) -> Supervised:
        """How the model of a stage trains."""
        return Supervised(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            optimizer=self.optimizer,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            mixup=self.mixup,
        )

    @property
    def histogram(self) -> NoisyHistogram | None:
        """How the clusters' labels are counted; None without clusters."""
        return NoisyHistogram(epsilon=self.prior_epsilon) if self.clusters else None

    @property
    def label_epsilon(self) -> float:
        """What is left for the reports."""
        return left_for_labels(self.epsilon, self.histogram)

    def response(self, classes: int) -> LabelResponse:
        """What randomises a label: RRWithPrior."""
        return LabelResponse(epsilon=self.label_epsilon, classes=classes)

    def events(self, classes: int) -> list[Event]:
        """What is paid for, in this order: the counts of the clusters, and the labels."""
        counted = [] if self.histogram is None else [self.histogram.event()]
        return [*counted, self.response(classes).event()]

    def parts(self, rows: int, order: np.ndarray) -> list[np.ndarray]:
        """The rows of each stage, int64, disjoint.

        Args:
            rows: how many there are.
            order: a public permutation of them.

        Raises:
            InputError: a stage has none.
        """
        ends = np.rint(np.cumsum(self.stages) * rows).astype(int)[:-1]
        parts = np.split(order, ends)
        if min(map(len, parts)) == 0:
            raise InputError(f"a stage of {self.stages} has none of {rows} rows; use fewer stages, or more rows")
        return parts

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **asdict(self)}
