"""How epsilon is divided, and the noise of each part: three parts of one budget, composed exactly.

The tables alone cost `table_share` of epsilon; tables and autoencoder together 1 - `gan_share` of it; all three cost
epsilon, all at the same delta. Each noise multiplier is the least with which that is so, by the accountant that writes
the statement. Everything follows from the plan, the schema and the public number of patients.

**Statement.** What the statement of a private run of EHR-Safe states besides the ledger.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._numbers import is_close
from sfumato._types import Assumption, Stated
from sfumato.clipping import Flat
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.data.ehr.tables import assumption
from sfumato.data.ehr.values import FEW
from sfumato.mechanisms import Gaussian
from sfumato.sampling import Poisson
from sfumato.statement import Facts
from sfumato.statement.sentences import render
from sfumato.statement.verdict import default_delta, warn_if_too_large
from sfumato.synthesis.noisy_tables import Counting, Grids, Tables
from sfumato.synthesis.settings import EHRSafeSettings
from sfumato.training.private_sum import PrivateSum

SEQUENCES, GAN = "sequences", "gan"
"""What the ledger calls the rounds of the autoencoder and those of the critic."""


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What a run releases, in this order.

    Attributes:
        tables: the noisy counts.
        sequences: rounds of the autoencoder.
        gan: rounds of the critic.
        delta: of the guarantee.
        epsilons: what the tables cost, what they and the autoencoder cost, and what all cost, as planned.
    """

    tables: Tables
    sequences: PrivateSum
    gan: PrivateSum
    delta: float
    epsilons: tuple[float, float, float]

    @classmethod
    def of(cls, settings: EHRSafeSettings, schema: Schema, population: int, *, recorded: Any = None) -> Self:
        """What follows from a plan with epsilon, a public schema and a public number of patients.

        Args:
            settings: of the plan.
            schema: of the records.
            population: how many patients there are.
            recorded: `noise_multipliers` of a run that goes on, as its plan.json has them: they stay where a
                calibration ends in other digits today.

        Raises:
            InputError: the schema was taken from the records, a column has no range or nearly a category for each, or a
                batch is larger than the population.
        """
        assert settings.epsilon is not None
        assert settings.horizon is not None
        _refuse_private(schema, population)
        for name in ("batch_size", "gan_batch_size"):
            if getattr(settings.sizes, name) > population:
                raise InputError(
                    f"{name} must be at most the {population:,} patients of the records, got "
                    f"{getattr(settings.sizes, name)}; lower it"
                )
        grids = Grids.of(schema, cells=settings.cells, max_visits=settings.max_visits, horizon=settings.horizon)
        rounds = settings.sizes.epochs * -(-population // settings.sizes.batch_size)
        judged = settings.sizes.gan_steps * settings.sizes.critic_steps
        delta = default_delta(population) if settings.delta is None else settings.delta
        warn_if_too_large(delta, population)
        first, second, last = _shares(settings.epsilon, settings.table_share, settings.gan_share)
        rates = (settings.sizes.batch_size / population, settings.sizes.gan_batch_size / population)
        noise = _noise((first, second, last), delta, rates, (rounds, judged))
        if isinstance(recorded, list) and len(recorded) == len(noise) and all(map(is_close, noise, recorded)):
            noise = tuple(recorded)
        return cls(
            tables=Tables(
                counting=Counting(schema, grids, settings.max_visits),
                noise_multiplier=noise[0],
                horizon=settings.horizon,
            ),
            sequences=_rounds(settings.sizes.batch_size, population, settings.clip_norm, noise[1], rounds),
            gan=_rounds(settings.sizes.gan_batch_size, population, settings.gan_clip_norm, noise[2], judged),
            delta=delta,
            epsilons=(first, second, last),
        )

    @property
    def noise_multipliers(self) -> list[float]:
        """Of the tables, the autoencoder's rounds and the critic's."""
        rounds = [each.mechanism.multiplier for each in (self.sequences, self.gan)]
        return [self.tables.noise_multiplier, *rounds]

    def event(self) -> acc.Event:
        """All of it, for one patient."""
        return self.tables.event() + self.sequences.event(self.sequences.rounds) + self.gan.event(self.gan.rounds)


def _refuse_private(schema: Schema, population: int) -> None:
    """Refuse columns and categories that reveal records; the refusal follows from what is public alone."""
    if schema.inferred:
        raise InputError(
            f"with epsilon, columns must be declared, got {len(schema.columns)} taken from the records; write "
            "a schema (schema.save(FILE), --write-schema FILE), review and give it (schema=FILE, --schema "
            "FILE)"
        )
    for column in schema.columns:
        if len(column.categories) > FEW and 2 * len(column.categories) > population:
            raise InputError(
                f"with epsilon, {column.name!r} must have far fewer categories than {population:,} "
                f"{schema.unit}s, got {len(column.categories):,}, as names and ids have; group them, or leave the "
                "column out"
            )


def _shares(epsilon: float, tables: float, gan: float) -> tuple[float, float, float]:
    return epsilon * tables, epsilon * (1.0 - gan), epsilon


@lru_cache(maxsize=32)
def _noise(
    epsilons: tuple[float, float, float], delta: float, rates: tuple[float, float], rounds: tuple[int, int]
) -> tuple[float, float, float]:
    """The noise multipliers of the three parts."""
    tables = acc.calibrate(acc.Gaussian, epsilon=epsilons[0], delta=delta)
    first = acc.Gaussian(tables)
    sequences = acc.calibrate(
        lambda z: first + acc.Gaussian(z).poisson(rates[0]) * rounds[0], epsilon=epsilons[1], delta=delta
    )
    second = first + acc.Gaussian(sequences).poisson(rates[0]) * rounds[0]
    gan = acc.calibrate(
        lambda z: second + acc.Gaussian(z).poisson(rates[1]) * rounds[1], epsilon=epsilons[2], delta=delta
    )
    return tables, sequences, gan


def _rounds(batch: int, population: int, clip_norm: float, noise_multiplier: float, rounds: int) -> PrivateSum:
    return PrivateSum(
        sampler=Poisson(size=batch, population=population),
        bound=Flat(norm=clip_norm),
        mechanism=Gaussian(noise_multiplier=noise_multiplier),
        rounds=rounds,
    )


def _whose(schema: Schema) -> Assumption:
    """What one id is of, and whom that leaves out."""
    if schema.unit == "patient":
        return Assumption("one_patient")
    return Assumption("one_record_of_patient", {"unit": schema.unit, "id": schema.id})


def private_facts(settings: EHRSafeSettings, spending: Spending, data: EHRDataset, *, finished: bool = True) -> Facts:
    """The facts of a run.

    Args:
        settings: of the plan.
        spending: what was planned to be released.
        data: the records.
        finished: all that was planned was released.
    """
    first, gan, unit = spending.sequences, spending.gan, data.schema.unit
    visits = {"visits": settings.max_visits, "horizon": settings.horizon, "time_unit": data.schema.time_unit}
    assumptions: list[Stated] = [
        _whose(data.schema),
        Assumption("ehr_settings_public", {"unit": unit, "population": len(data)}),
        assumption(data.schema),
        *data.assumptions,
        Assumption("first_visits", {"unit": unit, **visits}),
        Assumption("noise_in_records"),
    ]
    if not finished:
        assumptions.append(Assumption("ehr_stopped_early"))
    return Facts(
        unit=unit,
        adjacency="add_remove",
        population=len(data),
        delta=spending.delta,
        sampling=(
            f"all for the tables; {first.sampler.describe()}, for the autoencoder; "
            f"{gan.sampler.describe()}, for the critic"
        ),
        mechanism=(
            f"EHR-Safe: one Gaussian sum of counts cut to norm {spending.tables.clip_norm:.6g}, noise multiplier "
            f"{spending.tables.noise_multiplier:.6g}; up to {first.rounds} Gaussian sums of the autoencoder's "
            f"gradients {first.bound.describe()}, noise multiplier {first.mechanism.multiplier:.6g}; up to "
            f"{gan.rounds} of the critic's {gan.bound.describe()}, noise multiplier "
            f"{gan.mechanism.multiplier:.6g}"
        ),
        covered=Assumption("covers_synthesizer"),
        assumptions=tuple(assumptions),
        disclosure={
            "contribution": render(Assumption("contribution_synthesizer", {"unit": unit})),
            "sampling_as_run": render(Assumption("samplers_as_run")),
        },
    )
