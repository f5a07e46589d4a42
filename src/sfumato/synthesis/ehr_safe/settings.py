"""All settings of EHR-Safe, in one frozen object; every one of them may be published.

The defaults are for thousands of intensive-care stays and two cores. The paper's own network for such stays is
`layers=3, hidden=128, latent=512`.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sfumato import _check
from sfumato._types import Unit
from sfumato.accounting import Event, NonPrivate
from sfumato.accounting.statement.delta import default_delta
from sfumato.runs import Facts


@dataclass(frozen=True, kw_only=True)
class EHRSafeSettings:
    """The settings.

    Attributes:
        stochastic_normalisation: numbers by their distribution function; False by their range, to compare.
        category_encoder: categories through an embedding; False one-hot, to compare.
        masks: what is missing is generated, too; False fills it in and generates no missing value, to compare.
        summaries: what each record comes to (means, extremes, counts) is drawn before its visits, which are told given
            it and brought to it; False tells visits without, as the paper does.
        rounding: numbers that are not whole are rounded to multiples of it before anything is learned; None does not.
        min_count: observations that a number has to stand for before it can be generated; 1 generates those of one
            patient, too.
        static_embedding: width of the embedding of static categories.
        embedding: width of that of a visit's categories.
        category_steps: of the training of both.
        hidden: width of the recurrent layers.
        layers: of the recurrent networks.
        latent: numbers that a patient's whole record becomes.
        latent_noise: std of what is added to them before they are decoded, while the autoencoder learns and for new
            records alike: so near ones mean nearly the same, and what the GAN misses by less does no harm.
        epochs: of the autoencoder.
        batch_size: patients a step.
        learning_rate: of the autoencoder and of embeddings.
        time_weight: weight of the gaps between visits in the loss.
        noise: numbers that the generator makes latent vectors of.
        gan_hidden: width of the generator and of the critic.
        gan_steps: of the generator.
        critic_steps: of the critic for each of the generator.
        gan_batch_size: latent vectors a step.
        gan_learning_rate: of both.
        gan_optimizer: "adam" or "rmsprop".
        gradient_penalty: weight of the critic's.
        average_decay: of the moving average of the generator, which is what is kept.
        calibrated_on: generated patients in each pass of the calibration; three times as many in its last one.
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
    epochs: int = 15
    batch_size: int = 32
    learning_rate: float = 2e-3
    time_weight: float = 0.1
    noise: int = 64
    gan_hidden: int = 256
    gan_steps: int = 4000
    critic_steps: int = 5
    gan_batch_size: int = 128
    gan_learning_rate: float = 2e-4
    gan_optimizer: Literal["adam", "rmsprop"] = "adam"
    gradient_penalty: float = 10.0
    average_decay: float = 0.999
    calibrated_on: int = 1000
    seed: int | None = None

    name: ClassVar[str] = "ehr_safe"
    unit: ClassVar[Unit] = "example"

    def __post_init__(self) -> None:
        whole = "min_count static_embedding embedding category_steps hidden layers latent epochs batch_size noise"
        whole += " gan_hidden gan_steps critic_steps gan_batch_size calibrated_on"
        _check.whole(**{name: getattr(self, name) for name in whole.split()})
        _check.positive(learning_rate=self.learning_rate, gan_learning_rate=self.gan_learning_rate)
        _check.positive(time_weight=self.time_weight)
        _check.non_negative(latent_noise=self.latent_noise, gradient_penalty=self.gradient_penalty)
        _check.between(0.0, 1.0, ends="[)", average_decay=self.average_decay)
        _check.one_of(("adam", "rmsprop"), gan_optimizer=self.gan_optimizer)
        if self.rounding is not None:
            _check.positive(rounding=self.rounding)
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **dataclasses.asdict(self)}

    def event(self) -> Event:
        """What the records' owner pays: there is no bound."""
        return NonPrivate()

    def facts(self, population: int) -> Facts:
        """What the statement tells beside the ledger."""
        return Facts(
            unit=self.unit,
            adjacency="add_remove",
            population=population,
            delta=default_delta(population),
            sampling="every record is learned from",
            mechanism="EHR-Safe without noise: records are generated by a model that saw them, without any guarantee",
        )
