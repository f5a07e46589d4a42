"""The plan of a training run: every number that decides its result and its privacy, in one frozen object.

A plan derives the sampler, the bound, the noise and the accounted event from the same fields, so they cannot
disagree. Everything in a plan may be published. `TrainingPlan` runs it.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import Stated, Unit
from sfumato.statement.verdict import default_delta
from sfumato.training.contribution import Contribution, Task
from sfumato.training.private_sum import PrivateSum
from sfumato.training.server import Optimizer, Schedule

ContributionFactory = Callable[[nn.Module, Any, str, int], Contribution]
"""Builds a contribution from the model, the data, the device and the seed of fresh heads."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How often; for plans that count in rounds.

    Attributes:
        rounds: how often the server steps.
    """

    rounds: int = 200


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all plans share; a subclass gives the private sum, the contribution, the server and the task.

    Attributes:
        trainable: what is trained and noised: "all", "norm", "first", "last", "last_blocks:2", a regular expression on
            parameter names ("lora" and "projection" name what `models` adds), or several joined by "+".
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    trainable: str = "all"
    seed: int | None = None

    name: ClassVar[str] = "plan"
    unit: ClassVar[Unit] = "user"
    model_fields: ClassVar[tuple[str, ...]] = ("model", "input_shape", "version")
    """What a released model's file tells of `about`: how to build the model, and no paths of private data."""

    def __post_init__(self) -> None:
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)

    @property
    def server(self) -> Optimizer:
        """The server's optimiser."""
        raise NotImplementedError

    def rate_schedule(self, rounds: int) -> Schedule | None:
        """How the server's learning rate goes; None leaves it as it is."""
        return None

    @property
    def average_decay(self) -> float | None:
        """Decay of the moving average that is released instead of the last parameters; None for none."""
        return None

    def private_sum(self, population: int) -> PrivateSum:
        """The parts of a round, for a public number of units."""
        raise NotImplementedError

    def contribution(self, model: nn.Module, data: Any, device: str, head_seed: int) -> Contribution:
        """What the cohort adds."""
        raise NotImplementedError

    def takes(self, data: Any) -> tuple[str, ...]:
        """What the run itself is built by of all that was found in the records (`data.domain`), beside its model."""
        return ()

    def refuse_found(self, found: Sequence[str]) -> None:
        """Refuse to build by what was found in records, where a guarantee is given."""

    def negatives_of(self, negatives: Any, data: Any) -> Any:
        """Public examples that join the records in every round, made ready for `contribution` and checked against them.

        Raises:
            InputError: the plan takes none, or not these.
        """
        raise InputError(f"{self.name} takes no public negatives, which are for fedemb; leave them out")

    def beside(self, negatives: Any) -> ContributionFactory:
        """`contribution` with what `negatives_of` has made."""
        raise NotImplementedError

    def default_task(self) -> Task:
        """What the data must be, and how a model is measured."""
        raise NotImplementedError

    def public_population(self, data: Any) -> int:
        """The public number of units that sampling is planned for."""
        return len(data)

    def for_population(self, population: int) -> Self:
        """The plan with everything decided that depends on the number of units; this is what runs and is kept."""
        return self

    def as_begun(self, recorded: Mapping[str, Any], population: int) -> Self:
        """The plan with what a search found as the run in whose folder this was recorded has it.

        Args:
            recorded: what plan.json holds.
            population: public number of units.
        """
        return self

    def delta_for(self, population: int) -> float:
        """δ of the statement."""
        return default_delta(population)

    def refuse_unready(self, population: int) -> None:
        """Raise InputError if something that decides the guarantee is still open."""

    def refuse_prefix(self) -> None:
        """Raise InputError if records are changed in every round before the model gets them, as augmentations do."""

    def assumptions(self) -> list[Stated]:
        """Sentences that the guarantee of this plan rests on, beside those of every plan."""
        return []

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **dataclasses.asdict(self)}
