"""LabelDP-Pro: DP-SGD for private labels, whose noisy gradients are projected onto what labels could have given.

Each step draws every row with the same probability, clips the gradient of each one's loss, adds the gradients up, adds
Gaussian noise and divides by the planned batch size. The mean is then replaced by the nearest combination of gradients
that labels could have given on another batch of inputs, which are public. Most of the noise points elsewhere, and is
gone.

Unit: the label of one row, replaced by any other label; the rows, their inputs and their number are public. A label
moves the sum by at most 2·C in the rounds that draw its row, and not at all in others. Who is drawn is secret: rows
take part by coins of their own at the rate cohort.size / rows, the sum is divided by cohort.size in every round, and an
empty draw releases noise and takes a step. So a step is a Gaussian of noise multiplier z on a Poisson sample under
replacement, the mixture (1−q)·N(0, z²) + q·N(1, z²) against (1−q)·N(0, z²) + q·N(−1, z²). The projection reads the
noisy mean, the model and inputs, and costs nothing. Released are the models after all steps.

>>> plan = LabelDPPro(steps=100, cohort=64, noise=1.0)
>>> rounds = plan.private_sum(population=6400)
>>> rounds.event(1), rounds.sampler.adjacency, rounds.record(0, 1.0)["sensitivity"]
(Poisson(event=Gaussian(noise_multiplier=1.0), sampling_rate=0.01), 'replace', 2.0)

References:
    Ghazi, Huang, Kamath, Kumar, Manurangsi, Zhang: LabelDP-Pro: Learning with Label Differential Privacy via
    Projections. ICLR 2024 (there: AltConv for the hull of an independent batch).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import part, plan
from sfumato._types import Algorithm, Assumption, Stated, Unit
from sfumato.central.dpsgd import DPSGD
from sfumato.sampling import COHORTS, FixedSize, Poisson, Sampler
from sfumato.training.table_training import TABLES, DenseTables

if TYPE_CHECKING:
    from torch import nn

    from sfumato.central.projection import ProjectedContribution
    from sfumato.central.tasks import LossPerExample
    from sfumato.data import ExampleDataset


@plan
class LabelDPPro(DPSGD):
    """DP-SGD that hides labels alone, with a projection; fields in addition to those of `DPSGD`.

    Attributes:
        projection: onto the "span" of the gradients that labels could have given, or onto their convex "hull". The hull
            is smaller, and needs an average of several noisy means.
        public_batch: rows whose inputs decide which mean gradients are possible. Each step draws them anew,
            independently of the private batch. All rows where there are fewer, 0 for no projection.
        averaging: decay of the moving average of noisy means that is projected, in [0, 1). An average has less noise
            and lags behind the model; 0 projects each one by itself.
        projection_steps: steps of the search for the nearest one, at most.
        projection_tolerance: where the search ends, as a share of its start, in (0, 1): of the slopes (span), or of the
            distance to the noisy mean (hull).
    """

    cohort: Sampler = part(default=Poisson(size=256, adjacency="replace"), converter=COHORTS)
    projection: Literal["span", "hull"] = "span"
    public_batch: int = 256
    averaging: float = 0.0
    projection_steps: int = 20
    projection_tolerance: float = 0.05

    name: ClassVar[str] = "labeldp_pro"
    unit: ClassVar[Unit] = "label"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of(("span", "hull"), projection=self.projection)
        _check.whole(at_least=0, public_batch=self.public_batch)
        _check.between(0.0, 1.0, ends="[)", averaging=self.averaging)
        _check.whole(projection_steps=self.projection_steps)
        _check.between(0.0, 1.0, ends="()", projection_tolerance=self.projection_tolerance)
        if self.task != "classes":
            raise InputError(
                f"task={self.task} has no classes that a label could be one of; use task=classes, or for numbers "
                "sfumato dpsgd or labels that are randomised"
            )
        if not isinstance(self.tables, DenseTables):
            raise InputError(
                f"tables={TABLES.word(self.tables)} is for dpsgd: a projection needs the noise of all rows; use "
                "tables=dense"
            )
        if not isinstance(self.cohort, Poisson | FixedSize):
            raise InputError(
                f"cohort={COHORTS.word(self.cohort)} is not known for a label that is replaced; use cohort=poisson, or "
                "fixed_size"
            )
        if isinstance(self.cohort, Poisson):  # who is present is public
            object.__setattr__(self, "cohort", replace(self.cohort, adjacency="replace"))

    def takes(self, data: ExampleDataset) -> tuple[str, ...]:
        """Classes: gradients are projected onto what every label of every class could give."""
        return data.found

    def contribution(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model: nn.Module, data: ExampleDataset, device: str, head_seed: int, *, loss: LossPerExample | None = None
    ) -> ProjectedContribution:
        """Clipped gradients of examples, and the projection of their noisy mean.

        Raises:
            InputError: another loss than cross entropy.
        """
        from sfumato.central.projection import ProjectedContribution
        from sfumato.central.tasks import cross_entropy

        if loss not in (None, cross_entropy):
            raise InputError("labeldp_pro knows the gradients of cross entropy only; leave the loss out, or use dpsgd")
        return ProjectedContribution(
            public_batch=self.public_batch,
            onto=self.projection,
            averaging=self.averaging,
            projection_steps=self.projection_steps,
            projection_tolerance=self.projection_tolerance,
            model=model,
            data=data,
            device=device,
            trainable=self.trainable,
            examples=self.examples,
        )

    def open(self, *given: Any, **options: Any) -> NoReturn:
        """Not for a loop of one's own, whose loss is not known.

        Raises:
            InputError: always.
        """
        raise InputError("labeldp_pro has no loop of your own: it knows the gradients of cross entropy only; use dpsgd")

    def assumptions(self) -> list[Stated]:
        """What is public besides the model."""
        return [*super().assumptions(), Assumption("inputs_public")]


ALGORITHM = Algorithm(
    name="labeldp_pro",
    package="sfumato.central",
    plan="LabelDPPro",
    records="examples",
    title="LabelDP-Pro",
    summary="train a model where labels alone are private, below epsilon 1 (LabelDP-Pro)",
    about="Train a classifier where inputs are public and labels are not (LabelDP-Pro). Each step adds noise to "
    "a sum of clipped gradients. It takes the nearest mean gradient that any labels could have given.",
    example="sfumato labeldp pro --data glyphs --epsilon 0.5 --delta 1e-5 --epochs 5 --dry-run",
    matters="data model epsilon epochs cohort server.learning_rate public_batch out resume dry_run",
    command="labeldp pro",
)
