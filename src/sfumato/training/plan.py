"""The plan of a training run: every number that decides its result and its privacy, in one frozen object.

A plan derives the sampler, the bound, the noise and the accounted event from the same fields, so they cannot
disagree. `fit` runs it. Everything in a plan may be published.

The loop knows neither users nor labels: a plan says how its data is checked and counted, and how a model is measured.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from torch import nn

from sfumato import _check
from sfumato._types import Unit
from sfumato.accounting.statement.delta import default_delta
from sfumato.training.contribution import Contribution
from sfumato.training.loop import Cadence, PrivateSum
from sfumato.training.run import Result, Run
from sfumato.training.schedule import Schedule
from sfumato.training.server import OptimizerFactory, ServerOptimizer

ContributionFactory = Callable[[nn.Module, Any, str, int], Contribution]
"""Builds a contribution from the model, the data, the device and the seed of fresh heads."""


class Measure(Protocol):
    """How good a model is on some data, as plain numbers."""

    def __call__(self, model: nn.Module, data: Any, *, curve: bool, device: str) -> dict[str, Any]:
        """A row of evaluation.json or metrics.jsonl; with `curve` also what takes more room."""
        ...


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How often; for plans that count in rounds.

    Attributes:
        rounds: how often the server steps.
    """

    rounds: int = 200


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all plans share; a subclass gives the private sum, the contribution, the server and the measure.

    Attributes:
        trainable: "all", "norm", "norm+first" or a regular expression on parameter names: what is trained and noised.
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
    def server(self) -> ServerOptimizer:
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
        """What the groups add."""
        raise NotImplementedError

    def check_data(self, data: Any) -> None:
        """Raise InputError if this plan cannot train on the data."""
        raise NotImplementedError

    def public_population(self, data: Any) -> int:
        """The public number of units that sampling is planned for."""
        return len(data)

    def measure(self, model: nn.Module, data: Any, *, curve: bool = False, device: str = "cpu") -> dict[str, Any]:
        """How good a model is; see `Measure`."""
        raise NotImplementedError

    def about_test(self, data: Any, row: dict[str, Any]) -> dict[str, Any]:
        """What evaluation.json tells of the test data beside the measurements; `row` is the first of them."""
        raise NotImplementedError

    def headline(self, row: dict[str, Any]) -> str:
        """A measurement in a few words, for the progress bar; empty if the row is none."""
        raise NotImplementedError

    def settled(self, population: int) -> Self:
        """The plan with everything decided that depends on the number of units; this is what runs and is kept."""
        return self

    def delta_for(self, population: int) -> float:
        """δ of the statement."""
        return default_delta(population)

    def refuse_unready(self, population: int) -> None:
        """Raise InputError if something that decides the guarantee is still open."""

    def assumptions(self) -> list[str]:
        """Sentences that the guarantee of this plan rests on, beside those of every plan."""
        return []

    def data_assumptions(self, data: Any) -> list[str]:
        """Sentences on what is taken to be public about the data."""
        return []

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **dataclasses.asdict(self)}

    def fit(
        self,
        model: nn.Module,
        data: Any,
        *,
        out: str | Path | None = None,
        resume: bool = False,
        validation: Any = None,
        test: Any = None,
        cadence: Cadence | None = None,
        progress: bool = False,
        server_optimizer: OptimizerFactory | None = None,
        about: dict[str, Any] | None = None,
        device: str = "cpu",
        measure: Measure | None = None,
        contribution: ContributionFactory | None = None,
    ) -> Result:
        """Train, and say what it cost.

        Args:
            model: any torch module that gives what the plan trains; it is copied, never changed.
            data: the private records.
            out: folder of the run; None keeps everything in memory.
            resume: go on from the checkpoint in `out`.
            validation: public data to measure during the run; what it shows is not covered by the guarantee.
            test: data to measure before the first and after the last round.
            cadence: when to evaluate and save.
            progress: show a progress bar on stderr.
            server_optimizer: builds any torch optimiser from the parameters, instead of the plan's by name.
            about: JSON that describes the model and the data, kept in plan.json.
            device: where to train.
            measure: how a model is measured, instead of the plan's own way.
            contribution: builds what the groups add, instead of the plan's own way; the bound on it must hold.

        Raises:
            InputError: a mistake in the plan, the data or the folder; nothing is lost.
        """
        self.check_data(data)
        plan = self.settled(self.public_population(data))
        run = Run(
            plan=plan,
            model=model,
            data=data,
            out=None if out is None else Path(out),
            validation=validation,
            test=test,
            cadence=cadence or Cadence(),
            show_progress=progress,
            server_optimizer=server_optimizer or plan.server,
            about=about or {},
            device=device,
            measure=measure or plan.measure,
            contribute=contribution or plan.contribution,
        )
        return run.go(resume=resume)
