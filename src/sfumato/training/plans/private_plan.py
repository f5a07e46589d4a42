"""A plan with a guarantee: bound, noise, sampling and budget."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import Adjacency
from sfumato.accounting import Event, Participation, guarantee
from sfumato.accounting import calibrate as calibrate_event
from sfumato.accounting.statement.delta import default_delta, warn_if_too_large
from sfumato.accounting.strategies import DEFAULT_BANDS, Strategy
from sfumato.clipping import (
    AdaptiveClipNorm,
    AutomaticClipNorm,
    ConstantClipNorm,
    NormBound,
    PerLayerClipNorm,
    QuantileRule,
)
from sfumato.data.domain import refuse_found
from sfumato.mechanisms.gaussian import CorrelatedGaussian, IndependentGaussian, Mechanism, in_words
from sfumato.runs.searched import alike, as_begun, is_number
from sfumato.sampling import OwnClients, Sampler, VirtualClients
from sfumato.training.fit import TrainingPlan
from sfumato.training.plans.noise_choice import DEFAULT_PARTS, NOISE_ONLY_FOR, NoiseChoice, coefficients_of
from sfumato.training.plans.noise_comparison import DESCENDED, NoiseCost, do_the_same, prefix_error
from sfumato.training.plans.participants import Participants
from sfumato.training.plans.unused import refuse_unused, unset
from sfumato.training.private_sum import PrivateSum

_ONLY_FOR: dict[str, tuple[str, ...]] = {
    "layer_shares": ("per_layer",),
    "clip_gamma": ("automatic",),
    "adaptive_clip_quantile": ("adaptive",),
    "adaptive_clip_learning_rate": ("adaptive",),
    "adaptive_clip_count_noise": ("adaptive",),
    "adaptive_clip_rounds": ("adaptive",),
}
"""Fields that one kind of clipping reads."""

_NUDGES = 8  # of noise, past a rounding


@dataclass(frozen=True, kw_only=True)
class PrivatePlan(NoiseChoice, Participants, TrainingPlan):
    """Fields that decide the guarantee, beside those of `Participants` and `NoiseChoice`.

    Attributes:
        clip_norm: C, bound on the L2 norm of a contribution; None for a run without privacy.
        noise_multiplier: z, std of the noise divided by C; None until it is set or calibrated, 0 for no noise and no
            guarantee.
        clipping: "flat" bounds a contribution, "per_layer" each layer's part of it, "automatic" brings all of them to
            one length, "adaptive" follows a quantile of their norms with a noisy count.
        clip_gamma: automatic clipping: the norm at which a contribution counts half; None for 0.01.
        layer_shares: per-layer clipping: relative bounds of the layers in the order of the model; None for equal ones.
        adaptive_clip_quantile: adaptive clipping: the share of contributions that should be left whole; None for 0.5.
        adaptive_clip_learning_rate: adaptive clipping: rate of the geometric update that starts from clip_norm; None
            for 0.2.
        adaptive_clip_count_noise: adaptive clipping: std of the noise on the count; None for a twentieth of the
            contributions, or the noise multiplier where that is larger.
        adaptive_clip_rounds: adaptive clipping: adapt in the first so many rounds only; None for all.
        population: N, the public number of units; None takes the number present.
        delta: δ of the statement; None for 0.01 / N.
    """

    clip_norm: float | None = 1.0
    noise_multiplier: float | None = None
    clipping: Literal["flat", "per_layer", "automatic", "adaptive"] = "flat"
    clip_gamma: float | None = None
    layer_shares: tuple[float, ...] | None = None
    adaptive_clip_quantile: float | None = None
    adaptive_clip_learning_rate: float | None = None
    adaptive_clip_count_noise: float | None = None
    adaptive_clip_rounds: int | None = None
    population: int | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_participants()
        self.check_noise()
        _check.one_of(("flat", "per_layer", "automatic", "adaptive"), clipping=self.clipping)
        if self.clip_gamma is not None:
            _check.positive(clip_gamma=self.clip_gamma)
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
        _ = self._quantile  # checks its fields, whether it is used or not
        refuse_unused(self, "clipping", _ONLY_FOR)
        if self.bound.quantile is not None:
            self.bound.quantile.count_noise_std(
                clients=self.grouping.clients, noise_multiplier=self.noise_multiplier or 0.0
            )

    @property
    def grouping(self) -> OwnClients | VirtualClients:
        """How sampled units are put together."""
        raise NotImplementedError

    def cohort_size(self, population: int) -> int:
        """Planned units a round.

        Raises:
            InputError: more than there are.
        """
        raise NotImplementedError

    @property
    def bound(self) -> NormBound:
        """The bound on contributions."""
        if self.clip_norm is None:
            if self.clipping != "flat":
                raise InputError(f"clipping={self.clipping} needs a clip_norm; set it, 1.0 for example")
            return ConstantClipNorm(clip_norm=None)
        if self.clipping == "per_layer":
            return PerLayerClipNorm(clip_norm=self.clip_norm, shares=self.layer_shares)
        if self.clipping == "automatic":
            return AutomaticClipNorm(clip_norm=self.clip_norm, **_given(gamma=self.clip_gamma))
        if self.clipping == "adaptive":
            return AdaptiveClipNorm(initial=self.clip_norm, rule=self._quantile)
        return ConstantClipNorm(clip_norm=self.clip_norm)

    @property
    def _quantile(self) -> QuantileRule:
        return QuantileRule(
            **_given(
                quantile=self.adaptive_clip_quantile,
                learning_rate=self.adaptive_clip_learning_rate,
                count_noise=self.adaptive_clip_count_noise,
                rounds=self.adaptive_clip_rounds,
            )
        )

    def sampler(self, population: int) -> Sampler:
        """Who takes part, for a public population."""
        plan = self._with_participants(population)
        return plan.participants(
            size=plan.cohort_size(population), population=population, rounds=plan.rounds_for(population)
        )

    def private_sum(self, population: int) -> PrivateSum:
        """The parts of a round, for a public population."""
        return PrivateSum(
            sampler=self.sampler(population),
            grouping=self.grouping,
            bound=self.bound,
            mechanism=self._mechanism(population),
            rounds=self.rounds_for(population),
        )

    def for_population(self, population: int) -> Self:
        """The plan with everything decided that depends on the number of units: limits, and coefficients of noise."""
        return self._with_noise(population)

    def as_begun(self, recorded: Mapping[str, Any], population: int) -> Self:
        """The plan with the noise multiplier and the coefficients of the run that goes on, if only a search differs.

        Descent comes to other coefficients with other threads where many are equally good (buffers of one decay, or of
        no weight), so what they do is compared: their error and their sensitivity.
        """
        own = {"coefficients": self.coefficients, "column_scales": self.column_scales}
        kept = {name: _numbers(recorded.get(name)) for name in own}
        if own == kept:
            return as_begun(self, recorded, "noise_multiplier")
        noise = recorded.get("noise_multiplier")
        if kept["coefficients"] is None or not alike(self.noise_multiplier, noise, DESCENDED):
            return self
        try:
            begun = dataclasses.replace(self, noise_multiplier=noise, **kept)
            made = (self.strategy_for(population), begun.strategy_for(population))
        except InputError:  # a plan.json that somebody changed
            return self
        error = self.prefix_error or "mean"
        return begun if do_the_same(*made, self._limits(population), error) else self

    def strategy_for(self, population: int) -> Strategy | None:
        """How the noise of the rounds belongs together; None where each has its own.

        Raises:
            InputError: the sampling does not limit how often a unit takes part, or there is no such strategy.
        """
        if self.noise == "gaussian":
            return None
        if self.noise == "auto":
            raise InputError("noise=auto is decided by calibrate(epsilon=…, population=…); call it, or choose a noise")
        plan, limits = self._with_participants(population), self._limits(population)
        if plan.sampling == "cyclic" and plan.noise == "banded" and plan.bands is None:
            plan = dataclasses.replace(plan, bands=plan.parts)
        return plan.strategy(limits)

    def _limits(self, population: int) -> Participation:
        """What one unit may do, as a strategy is judged by it."""
        rounds = self.rounds_for(population)
        limits = self._with_participants(population).sampler(population).participation(rounds)
        if limits is None:
            raise InputError(
                f"noise={self.noise} needs sampling that limits how often a unit takes part, got "
                f"sampling={self.sampling}; use sampling=min_separation or shuffled, or noise=gaussian"
            )
        if self.sampling == "cyclic":  # a turn is over before the next one: one column counts
            return Participation(rounds=rounds, max_participations=1)
        return limits

    def _with_noise(self, population: int) -> Self:
        plan = self._with_participants(population)
        return dataclasses.replace(plan, **coefficients_of(plan.strategy_for(population)))

    def _with_participants(self, population: int) -> Self:
        bands = self.bands or (len(self.coefficients) if self.coefficients else None)
        open_parts = 1 if self.noise == "gaussian" else bands or DEFAULT_PARTS
        return self.with_participants(size=self.cohort_size(population), population=population, bands=open_parts)

    def _mechanism(self, population: int) -> Mechanism:
        noise, strategy = self.noise_multiplier or 0.0, self.strategy_for(population)
        if strategy is None:
            return IndependentGaussian(noise_multiplier=noise)
        return CorrelatedGaussian(strategy=strategy, noise_multiplier=noise, rounds=self.rounds_for(population))

    def rounds_for(self, population: int) -> int:
        """How often the server steps, for a public population."""
        raise NotImplementedError

    def calibrate(
        self, *, epsilon: float, delta: float | None = None, population: int, before: Event | None = None
    ) -> Self:
        """A plan like this one whose noise meets (ε, δ) for one unit.

        Args:
            epsilon: budget of the whole run, > 0.
            delta: in (0, 1); None for 0.01 / population.
            population: public number of units.
            before: what the run releases before its rounds (`Opening.event`); the budget is for both together.

        Raises:
            InputError: no noise reaches the budget; the message tells the smallest ε in reach.
        """
        self.refuse_budget(epsilon)
        _check.whole(population=population)
        chosen = default_delta(population) if delta is None else delta
        _check.between(0.0, 1.0, ends="()", delta=chosen)
        base = dataclasses.replace(self, noise_multiplier=None, delta=chosen, population=population)
        if base.noise == "auto":
            rows = base.compare_noise(epsilon=epsilon, delta=chosen, population=population, before=before)
            return rows[0].plan
        base = base._with_noise(population)
        # The count's noise limits z from above; it does not change what a given z costs.
        plain = base
        if base.clipping == "adaptive":
            plain = dataclasses.replace(base, clipping="flat", **unset(base, _ONLY_FOR))

        def event(noise_multiplier: float, like: Self = plain) -> Event:
            rounds = dataclasses.replace(like, noise_multiplier=noise_multiplier).private_sum(population)
            whole = rounds.event(rounds.rounds)
            return whole if before is None else before + whole

        adjacency = self.sampler(population).adjacency
        if before is not None:
            _refuse_spent(before, adjacency, epsilon, chosen)
        noise = calibrate_event(event, epsilon=epsilon, delta=chosen, adjacency=adjacency)
        if base is not plain:  # of equal cost, but rounded in another way by the accountants
            for _ in range(_NUDGES):
                if guarantee(event(noise, base), adjacency).epsilon(chosen) <= epsilon:
                    break
                noise *= 1 + 1e-8
        return dataclasses.replace(base, noise_multiplier=noise)

    def compare_noise(
        self, *, epsilon: float, delta: float | None = None, population: int, before: Event | None = None
    ) -> list[NoiseCost]:
        """Every kind of noise at one budget, least error first; those of which nothing is known come last.

        Args:
            epsilon, delta, population, before: as for `calibrate`.

        Raises:
            InputError: no kind of noise meets the budget.
        """
        limits = self.sampler(population).participation(self.rounds_for(population))
        rows = [
            self._noise_cost(candidate, epsilon, delta, population, before) for candidate in self._candidates(limits)
        ]
        rows.sort(key=lambda row: (row.error is None, row.error or 0.0))
        if rows[0].error is None:
            raise InputError(rows[0].reason)
        return rows

    def _candidates(self, limits: Participation | None) -> list[Self]:
        """This plan with each kind of noise, and more bands than usual where there is room."""
        plain = dataclasses.replace(self, **unset(self, NOISE_ONLY_FOR), noise="gaussian")
        error = self.prefix_error
        found = [plain, dataclasses.replace(plain, noise="tree")]
        found += [dataclasses.replace(plain, noise=name, prefix_error=error) for name in ("banded", "blt", "bisr")]
        banded = found[2]
        if self.sampling == "cyclic" and self.parts is None:
            found += [dataclasses.replace(banded, bands=bands) for bands in (2, 4, 16, 32)]
        elif limits is not None and self.sampling != "cyclic" and limits.period > DEFAULT_BANDS:
            found.append(dataclasses.replace(banded, bands=min(limits.period, 4 * DEFAULT_BANDS)))
        return found

    def _noise_cost(
        self, candidate: Self, epsilon: float, delta: float | None, population: int, before: Event | None
    ) -> NoiseCost:
        try:
            plan = candidate.calibrate(epsilon=epsilon, delta=delta, population=population, before=before)
            strategy, rounds = plan.strategy_for(population), plan.rounds_for(population)
        except InputError as refused:
            return NoiseCost(
                noise=candidate.noise, settings="", noise_multiplier=None, error=None, reason=str(refused), plan=None
            )
        noise = plan.noise_multiplier or 0.0
        return NoiseCost(
            noise=plan.noise,
            settings="" if strategy is None else in_words(strategy),
            noise_multiplier=noise,
            error=prefix_error(strategy, noise, rounds, self.prefix_error or "mean"),
            reason="",
            plan=plan,
        )

    def refuse_found(self, found: Sequence[str]) -> None:
        """Refuse to build by what was found in records, unless there is no noise and no guarantee.

        Raises:
            InputError: with the option that declares it.
        """
        if self.noise_multiplier != 0:
            refuse_found(found)

    def refuse_budget(self, epsilon: float) -> None:
        """Refuse a budget that no population mends: none above 0, or for a sum without a bound."""
        _check.positive(epsilon=epsilon)
        if self.clip_norm is None:
            raise InputError("a private run needs a clip_norm; set it, 1.0 for example, and calibrate again")

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
        if self.delta is not None and self.noise_multiplier:
            warn_if_too_large(self.delta, population)


def _refuse_spent(before: Event, adjacency: Adjacency, epsilon: float, delta: float) -> None:
    """Refuse a budget of which nothing is left for the rounds."""
    cost = guarantee(before, adjacency).epsilon(delta)
    if cost >= epsilon:
        raise InputError(
            f"what is released before the rounds costs epsilon {cost:.4g} at delta {delta:g}, and epsilon "
            f"{epsilon:g} is for all; give it more noise, or allow more epsilon"
        )


def _given(**settings: Any) -> dict[str, Any]:
    """Those that are not None; the others keep the default of what they are given to."""
    return {name: value for name, value in settings.items() if value is not None}


def _numbers(kept: Any) -> tuple[float, ...] | None:
    """A list of numbers in plan.json; None where it holds none."""
    return tuple(kept) if isinstance(kept, list) and all(map(is_number, kept)) else None
