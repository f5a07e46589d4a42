"""A plan with a guarantee: bound, noise, sampling and budget."""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any, Literal, Self

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import Event
from sfumato.accounting import calibrate as calibrate_event
from sfumato.accounting.statement.delta import default_delta, is_too_large
from sfumato.clipping import AdaptiveClipNorm, ConstantClipNorm, NormBound
from sfumato.mechanisms import GaussianMechanism
from sfumato.sampling import FixedSizeSampling, OwnClients, PoissonSampling, Sampler, VirtualClients
from sfumato.training.loop import PrivateSum
from sfumato.training.plan import Plan


@dataclass(frozen=True, kw_only=True)
class PrivatePlan(Plan):
    """Fields that decide the guarantee.

    Attributes:
        sampling: "poisson" (independent coins) or "fixed" (a cohort of exactly the planned size).
        clip_norm: C, bound on the L2 norm of a contribution; None for a run without privacy.
        noise_multiplier: z, std of the noise divided by C; None until it is set or calibrated, 0 for no noise and no
            guarantee.
        adaptive_clip_quantile: let the clip norm follow this quantile of the norms, starting from clip_norm.
        adaptive_clip_learning_rate: rate of its geometric update.
        adaptive_clip_count_noise: std of the noise on its count; None for a twentieth of the contributions, or the
            noise multiplier where that is larger.
        adaptive_clip_rounds: adapt in the first so many rounds only; None for all.
        population: N, the public number of units; None takes the number present.
        delta: δ of the statement; None for 0.01 / N.
    """

    sampling: Literal["poisson", "fixed"] = "poisson"
    clip_norm: float | None = 1.0
    noise_multiplier: float | None = None
    adaptive_clip_quantile: float | None = None
    adaptive_clip_learning_rate: float = 0.2
    adaptive_clip_count_noise: float | None = None
    adaptive_clip_rounds: int | None = None
    population: int | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of(("poisson", "fixed"), sampling=self.sampling)
        _check.positive(adaptive_clip_learning_rate=self.adaptive_clip_learning_rate)
        if self.adaptive_clip_quantile is not None:
            _check.between(0.0, 1.0, adaptive_clip_quantile=self.adaptive_clip_quantile)
        if self.adaptive_clip_count_noise is not None:
            _check.positive(adaptive_clip_count_noise=self.adaptive_clip_count_noise)
        if self.adaptive_clip_rounds is not None:
            _check.whole(adaptive_clip_rounds=self.adaptive_clip_rounds)
        if self.noise_multiplier is not None:
            _check.non_negative(noise_multiplier=self.noise_multiplier)
        if self.population is not None:
            _check.whole(population=self.population)
        if self.delta is not None:
            _check.between(0.0, 1.0, ends="()", delta=self.delta)
        if self.clip_norm is None and self.noise_multiplier:
            raise InputError(
                f"noise_multiplier {self.noise_multiplier:g} needs a clip_norm; set one, or use noise_multiplier=0 "
                "for a run without privacy"
            )
        _ = self.clip  # checks the bound's fields

    @property
    def grouping(self) -> OwnClients | VirtualClients:
        """How sampled units are put together."""
        raise NotImplementedError

    def cohort(self, population: int) -> int:
        """Planned units a round.

        Raises:
            InputError: more than there are.
        """
        raise NotImplementedError

    @property
    def clip(self) -> NormBound:
        """The bound on contributions."""
        if self.adaptive_clip_quantile is None:
            return ConstantClipNorm(clip_norm=self.clip_norm)
        if self.clip_norm is None:
            raise InputError("adaptive clipping needs a clip_norm to start from; set clip_norm, 1.0 for example")
        return AdaptiveClipNorm(
            initial=self.clip_norm,
            quantile=self.adaptive_clip_quantile,
            clients=self.grouping.clients,
            noise_multiplier=self.noise_multiplier or 0.0,
            learning_rate=self.adaptive_clip_learning_rate,
            count_noise=self.adaptive_clip_count_noise,
            rounds=self.adaptive_clip_rounds,
        )

    def sampler(self, population: int) -> Sampler:
        """Who takes part, for a public population."""
        cohort = self.cohort(population)
        if self.sampling == "fixed":
            return FixedSizeSampling(size=cohort, population=population)
        return PoissonSampling(sampling_rate=cohort / population, population=population)

    def private_sum(self, population: int) -> PrivateSum:
        """The parts of a round, for a public population."""
        return PrivateSum(
            sampler=self.sampler(population),
            grouping=self.grouping,
            clip=self.clip,
            mechanism=GaussianMechanism(noise_multiplier=self.noise_multiplier or 0.0),
            rounds=self.rounds_for(population),
        )

    def rounds_for(self, population: int) -> int:
        """How often the server steps, for a public population."""
        raise NotImplementedError

    def calibrate(self, *, epsilon: float, delta: float | None = None, population: int) -> Self:
        """A plan like this one whose noise meets (ε, δ) for one unit.

        Args:
            epsilon: budget of the whole run, > 0.
            delta: in (0, 1); None for 0.01 / population.
            population: public number of units.

        Raises:
            InputError: no noise reaches the budget; the message tells the smallest ε in reach.
        """
        _check.positive(epsilon=epsilon)
        _check.whole(population=population)
        if self.clip_norm is None:
            raise InputError("a private run needs a clip_norm; set it, 1.0 for example, and calibrate again")
        chosen = default_delta(population) if delta is None else delta
        _check.between(0.0, 1.0, ends="()", delta=chosen)
        base = dataclasses.replace(self, noise_multiplier=None, delta=chosen, population=population)
        # The count's noise limits z from above; it does not change what a given z costs.
        plain = base._without_count()

        def event(noise_multiplier: float) -> Event:
            return dataclasses.replace(plain, noise_multiplier=noise_multiplier).private_sum(population).event()

        adjacency, rounds = self.sampler(population).adjacency, self.rounds_for(population)
        noise = calibrate_event(lambda z: event(z) * rounds, epsilon=epsilon, delta=chosen, adjacency=adjacency)
        return dataclasses.replace(base, noise_multiplier=noise)

    def _without_count(self) -> Self:
        """The same plan with a clip norm that stays."""
        return dataclasses.replace(self, adaptive_clip_quantile=None)

    def public_population(self, data: Any) -> int:
        """The declared population, or the number of units present."""
        if self.population is not None and self.population < len(data):
            warnings.warn(
                f"more {self.unit}s are present than the declared population {self.population}: cohorts are larger "
                "than planned, and delta is chosen for too few; declare a larger one",
                stacklevel=2,
            )
        return self.population or len(data)

    def delta_for(self, population: int) -> float:
        """The chosen δ, or 0.01 / N."""
        return default_delta(population) if self.delta is None else self.delta

    def refuse_unready(self, population: int) -> None:
        """Refuse a run whose noise nobody has decided on."""
        if self.noise_multiplier is None:
            raise InputError(
                "noise_multiplier is not set; call calibrate(epsilon=…, population=…), or use noise_multiplier=0 "
                "for a run without privacy"
            )
        if self.delta is not None and is_too_large(self.delta, population) and self.noise_multiplier:
            remedy = f"leave it out for {default_delta(population):g}"
            warnings.warn(f"delta {self.delta:g} is not well below 1/{population}; {remedy}", stacklevel=2)
