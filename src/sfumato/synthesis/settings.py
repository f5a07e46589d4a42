"""All settings of EHR-Safe, in one frozen object; every one of them may be published.

The defaults are for thousands of intensive-care stays and two cores; with noise some follow from the number of patients
(`Sizes.of`). The paper's own network for such stays is
`layers=3, hidden=128, latent=512`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import RecordUnit

if TYPE_CHECKING:
    from sfumato.accounting import Event
    from sfumato.runs import Facts


_LEAST_TIME = 1e-9  # in any unit; networks read times in single precision

LARGEST_RATE = 1e37
"""A learning rate at most: ten times it, which a first step of Adam takes, is a number of single precision."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of `EHRSafeSettings` that follow from the data and the noise where they are not given.

    Attributes:
        epochs, batch_size, learning_rate, gan_hidden, gan_steps, critic_steps, gan_batch_size, gan_learning_rate,
            average_decay: as there.
    """

    epochs: int = 15
    batch_size: int = 32
    learning_rate: float = 2e-3
    gan_hidden: int = 256
    gan_steps: int = 4000
    critic_steps: int = 5
    gan_batch_size: int = 128
    gan_learning_rate: float = 2e-4
    average_decay: float = 0.999

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The fields."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def of(cls, settings: EHRSafeSettings, patients: int) -> Self:
        """What is given, and the rules for the rest.

        Without noise the defaults of this class. With noise, which is added once a step, few large batches: a tenth of
        all patients, and a small critic of few steps. recipes/ehr_private chose these numbers.

        Args:
            settings: of the plan.
            patients: public number of patients, >= 1.
        """
        rules: dict[str, Any] = {}
        if settings.epsilon is not None:
            tenth = max(1, patients // 10)
            rules = {**_NOISY, "batch_size": tenth, "gan_batch_size": tenth}
        given = {name: value for name in cls.names() if (value := getattr(settings, name)) is not None}
        return cls(**{**rules, **given})


_NOISY = {
    "epochs": 6,
    "learning_rate": 4e-3,
    "gan_hidden": 128,
    "gan_steps": 150,
    "critic_steps": 2,
    "gan_learning_rate": 1e-3,
    "average_decay": 0.95,
}
"""With noise."""

_RATES = ("learning_rate", "gan_learning_rate")


@dataclass(frozen=True, kw_only=True)
class EHRSafeSettings:
    """The settings.

    Attributes:
        stochastic_normalisation: numbers by their distribution function; without it by their range, to compare.
        category_encoder: categories through an embedding; without it one-hot, to compare.
        masks: what is missing is generated, too; without it all is filled in and nothing is missing, to compare.
        summaries: draw summary features of each record (means, extremes, counts) before its visits, which follow them
            and are adjusted to them. Without them visits are generated alone, as in the paper. With epsilon there are
            none: its tables do not count them.
        rounding: numbers that are not whole are rounded to multiples of it before anything is learned; None does not.
        min_count: observations that a number has to stand for before it can be generated; 1 generates those of one
            patient, too.
        static_embedding: width of the embedding of static categories.
        embedding: width of that of a visit's categories.
        category_steps: of the training of both.
        hidden: width of the recurrent layers.
        layers: of the recurrent networks.
        latent: numbers that a patient's whole record becomes.
        latent_noise: std of what is added to them before they are decoded, in training and for new records. So near
            ones mean nearly the same, and what the GAN misses by less does no harm.
        epochs: of the autoencoder. This, and what else may be None, follows from `epsilon` and the number of patients
            by `Sizes.of`.
        batch_size: patients a step.
        learning_rate: of the autoencoder and of embeddings.
        time_weight: weight of the gaps between visits in the loss.
        noise: numbers that the generator makes latent vectors of.
        gan_hidden: width of the generator and of the critic.
        gan_steps: of the generator.
        critic_steps: of the critic for each of the generator.
        gan_batch_size: latent vectors a step.
        gan_learning_rate: of the generator and of the critic.
        gan_optimizer: "adam" or "rmsprop".
        gradient_penalty: weight of the critic's.
        average_decay: of the moving average of the generator, which is what is kept.
        calibrated_on: generated patients in each pass of the calibration; three times as many in its last one.
        epsilon: what the whole run may cost a patient, > 0; None learns without noise and without a guarantee.
        delta: of the guarantee, in (0, 1); None for the usual one, well below 1 / patients.
        horizon: with epsilon: the latest time of a visit that is learned from, in the schema's unit, 1e-9 to 1e9;
            public.
        max_visits: with epsilon: how many visits of a patient are learned from, the first ones; public.
        cells: with epsilon: into how many cells the range of a number is divided.
        table_share: with epsilon: how much of it the tables of numbers and shares cost, in (0, 1).
        gan_share: with epsilon: how much of it the GAN costs, in (0, 1); the autoencoder has what is left.
        clip_norm: with epsilon: norm to which the gradient of one patient is clipped, for the autoencoder.
        gan_clip_norm: the same for the critic.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    stochastic_normalisation: bool = True
    category_encoder: bool = True
    masks: bool = True
    summaries: bool = True
    rounding: float | None = None
    min_count: int = 1
    static_embedding: int = 16
    embedding: int = 16
    category_steps: int = 500
    hidden: int = 128
    layers: int = 1
    latent: int = 32
    latent_noise: float = 0.4
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    time_weight: float = 0.1
    noise: int = 64
    gan_hidden: int | None = None
    gan_steps: int | None = None
    critic_steps: int | None = None
    gan_batch_size: int | None = None
    gan_learning_rate: float | None = None
    gan_optimizer: Literal["adam", "rmsprop"] = "adam"
    gradient_penalty: float = 10.0
    average_decay: float | None = None
    calibrated_on: int = 1000
    epsilon: float | None = None
    delta: float | None = None
    horizon: float | None = None
    max_visits: int = 100
    cells: int = 32
    table_share: float = 0.1
    gan_share: float = 0.3
    clip_norm: float = 1.0
    gan_clip_norm: float = 1.0
    seed: int | None = None

    name: ClassVar[str] = "ehr_safe"

    def __post_init__(self) -> None:
        whole = "min_count static_embedding embedding category_steps hidden layers latent epochs batch_size noise"
        whole += " gan_hidden gan_steps critic_steps gan_batch_size calibrated_on max_visits"
        given = {name: value for name in whole.split() if (value := getattr(self, name)) is not None}
        _check.whole(**given)
        rates = {name: value for name in _RATES if (value := getattr(self, name)) is not None}
        _check.positive(**rates)
        _check.between(0.0, LARGEST_RATE, **rates)
        _check.positive(time_weight=self.time_weight)
        _check.non_negative(latent_noise=self.latent_noise, gradient_penalty=self.gradient_penalty)
        if self.average_decay is not None:
            _check.between(0.0, 1.0, ends="[)", average_decay=self.average_decay)
        _check.one_of(("adam", "rmsprop"), gan_optimizer=self.gan_optimizer)
        if self.rounding is not None:
            _check.positive(rounding=self.rounding)
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)
        _check.whole(at_least=2, cells=self.cells)
        _check.between(0.0, 1.0, ends="()", table_share=self.table_share, gan_share=self.gan_share)
        _check.positive(clip_norm=self.clip_norm, gan_clip_norm=self.gan_clip_norm)
        if self.epsilon is None:
            self._refuse_without_epsilon()
        else:
            self._refuse_with_epsilon()

    def _refuse_without_epsilon(self) -> None:
        for name in ("delta", "horizon"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} is for a run with a guarantee; give epsilon, too, or leave {name} out")

    def _refuse_with_epsilon(self) -> None:
        _check.positive(epsilon=self.epsilon)
        if self.delta is not None:
            _check.between(0.0, 1.0, ends="()", delta=self.delta)
        if self.horizon is None:
            raise InputError(
                "with epsilon the latest time of a visit has to be public: give horizon, in the schema's unit of time"
            )
        _check.between(_LEAST_TIME, 1 / _LEAST_TIME, horizon=self.horizon)
        if self.table_share + self.gan_share >= 1:
            raise InputError(
                f"table_share {self.table_share:g} and gan_share {self.gan_share:g} leave nothing of epsilon for the "
                "autoencoder; lower one of them"
            )
        if not self.stochastic_normalisation:
            raise InputError("with epsilon numbers are scaled by noisy tables; leave stochastic_normalisation as it is")
        if self.rounding is not None or self.min_count != 1:
            raise InputError(
                "rounding and min_count are for a run without a guarantee; with epsilon the tables hold cells of "
                "public ranges: set their number by cells"
            )

    def sized(self, patients: int) -> Self:
        """The same settings with a number for each that is None.

        Args:
            patients: public number of patients, >= 1.
        """
        sizes = Sizes.of(self, patients)
        return dataclasses.replace(self, **{name: getattr(sizes, name) for name in Sizes.names()})

    @property
    def sizes(self) -> Sizes:
        """The numbers that `sized` fills in; raises ValueError before that."""
        found = {name: getattr(self, name) for name in Sizes.names()}
        if missing := [name for name, value in found.items() if value is None]:
            raise ValueError(f"{', '.join(missing)} must be known; ask for sized(patients) first")
        return Sizes(**found)

    @property
    def summed(self) -> bool:
        """Whether records have summaries."""
        return self.summaries and self.epsilon is None

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **dataclasses.asdict(self)}

    def event(self) -> Event:
        """What the records' owner pays without epsilon: there is no bound.

        Raises:
            InputError: there is epsilon; then the cost follows from the schema and the number of patients, too.
        """
        from sfumato.accounting import NonPrivate

        if self.epsilon is not None:
            raise InputError(
                "with epsilon the noise follows from the number of patients and the schema, too; ask "
                "EHRSafe.try_out(data) for the cost"
            )
        return NonPrivate()

    def facts(self, population: int, unit: RecordUnit) -> Facts:
        """What the statement of a run without epsilon states besides the ledger."""
        from sfumato.runs import Facts
        from sfumato.statement.verdict import default_delta

        return Facts(
            unit=unit,
            adjacency="add_remove",
            population=population,
            delta=default_delta(population),
            sampling="every record is learned from",
            mechanism="EHR-Safe without noise: records are generated by a model that saw them, without any guarantee",
        )
