"""The plan of a training run: every number that decides its result and its privacy, in one frozen object.

A plan derives the sampler, the bound, the noise and the accounted event from the same fields, so they cannot
disagree. `fit` runs it. Everything in a plan may be published.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from sfumato import _check
from sfumato._types import Unit
from sfumato.data import UserDataset
from sfumato.training.contribution import Contribution
from sfumato.training.loop import Cadence, PrivateSum
from sfumato.training.run import Result, Run
from sfumato.training.server import OptimizerFactory, ServerOptimizer


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all plans share. A subclass gives the parts of the private sum, the contribution and the server.

    Attributes:
        rounds: how often the server steps.
        trainable: "all", "norm", "norm+first" or a regular expression on parameter names: what is trained and noised.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    rounds: int = 200
    trainable: str = "all"
    seed: int | None = None

    name: ClassVar[str] = "plan"
    unit: ClassVar[Unit] = "user"

    def __post_init__(self) -> None:
        _check.whole(rounds=self.rounds)
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)

    @property
    def server(self) -> ServerOptimizer:
        """The server's optimiser."""
        raise NotImplementedError

    def private_sum(self, population: int) -> PrivateSum:
        """The parts of a round, for a public number of units."""
        raise NotImplementedError

    def contribution(self, model: nn.Module, users: UserDataset, device: str, head_seed: int) -> Contribution:
        """What the groups add."""
        raise NotImplementedError

    def public_population(self, users: UserDataset) -> int:
        """The public number of units that sampling is planned for."""
        return len(users)

    def delta_for(self, population: int) -> float:
        """δ of the statement."""
        return default_delta(population)

    def refuse_unready(self, population: int) -> None:
        """Raise InputError if something that decides the guarantee is still open."""

    def assumptions(self) -> list[str]:
        """Sentences that the guarantee of this plan rests on, beside those of every plan."""
        return []

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **dataclasses.asdict(self)}

    def fit(
        self,
        model: nn.Module,
        users: UserDataset,
        *,
        out: str | Path | None = None,
        resume: bool = False,
        validation: UserDataset | None = None,
        test: UserDataset | None = None,
        fars: tuple[float, ...] = (1e-3,),
        cadence: Cadence | None = None,
        progress: bool = False,
        server_optimizer: OptimizerFactory | None = None,
        about: dict[str, Any] | None = None,
        device: str = "cpu",
    ) -> Result:
        """Train, and say what it cost.

        Args:
            model: maps inputs to embeddings [n, d]; it is copied, never changed.
            users: the private records.
            out: folder of the run; None keeps everything in memory.
            resume: go on from the checkpoint in `out`.
            validation: public data to measure during the run; what it shows is not covered by the guarantee.
            test: data to measure before the first and after the last round.
            fars: false accept rates to report recall at.
            cadence: when to evaluate and save.
            progress: show a progress bar on stderr.
            server_optimizer: builds any torch optimiser from the parameters, instead of the plan's by name.
            about: JSON that describes the model and the data, kept in plan.json.
            device: where to train.

        Raises:
            InputError: a mistake in the plan, the data or the folder; nothing is lost.
        """
        run = Run(
            plan=self,
            model=model,
            users=users,
            out=None if out is None else Path(out),
            validation=validation,
            test=test,
            fars=fars,
            cadence=cadence or Cadence(),
            show_progress=progress,
            server_optimizer=server_optimizer or self.server,
            about=about or {},
            device=device,
        )
        return run.go(resume=resume)


def default_delta(population: int) -> float:
    """N^-1.1, the convention of the papers."""
    return population**-1.1
