"""A plan with a guarantee: bound, noise, sampling and budget."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import Adjacency
from sfumato.accounting import Event, Participation, guarantee
from sfumato.accounting import calibrate as calibrate_event
from sfumato.accounting.strategies import (
    BandedToeplitz,
    BinaryTree,
    BufferedToeplitz,
    Independent,
    InverseBanded,
    Strategy,
)
from sfumato.accounting.strategy_search import DEFAULT_BANDS, by_name
from sfumato.clipping import (
    AdaptiveClipNorm,
    AutomaticClipNorm,
    ConstantClipNorm,
    NormBound,
    PerLayerClipNorm,
    QuantileRule,
)
from sfumato.data.domain import refuse_found
from sfumato.mechanisms.correlated import CorrelatedGaussian, in_words
from sfumato.mechanisms.gaussian import IndependentGaussian, Mechanism
from sfumato.runs.folder import alike, as_begun, is_number
from sfumato.sampling import (
    CyclicPoissonSampling,
    FixedSizeSampling,
    MinSeparationSampling,
    OwnClients,
    PoissonSampling,
    Sampler,
    ShuffledEpochs,
    VirtualClients,
)
from sfumato.statement.verdict import default_delta, warn_if_too_large
from sfumato.training.fit import TrainingPlan
from sfumato.training.private_sum import PrivateSum

# Settings that one choice of a plan reads: with another they would do nothing, and nobody would be told.
#
# Their default means that they were not given; a default of their own could not be told from the same value given.


def refuse_unused(plan: Any, choice: str, only_for: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse settings that belong to another choice than the plan's.

    Args:
        plan: a dataclass.
        choice: the field that decides, "noise" for example.
        only_for: by field, the values of the choice that read it.

    Raises:
        InputError: one of them was given.
    """
    chosen, defaults = getattr(plan, choice), unset(plan, only_for)
    for name, readers in only_for.items():
        if chosen not in readers and getattr(plan, name) != defaults[name]:
            raise InputError(
                f"{name} is for {choice}={' or '.join(readers)}, got {choice}={chosen}; leave it out, or choose that "
                f"{choice}"
            )


def unset(plan: Any, names: Mapping[str, object]) -> dict[str, Any]:
    """These fields as if they had not been given."""
    fields = type(plan).__dataclass_fields__
    return {name: fields[name].default for name in names}


# Which noise meets a budget with the least error, by the errors of all sums so far.
#
# A training run is moved by sums of its noisy updates, so what counts is the noise on these sums and not on single
# rounds. For each kind of noise the multiplier is calibrated to one and the same (ε, δ), rounds and participation; the
# error is z · √(mean over rounds of the variance of the prefix sum at unit noise), in clip norms. It is a prediction
# from public numbers: no record is looked at, and it costs nothing.


DESCENDED = 1e-5
"""How far apart the errors and the sensitivities of strategies at one minimum may be, and noise that follows them; 4e-7
was seen, of three kinds of processors."""


_AS_GOOD = 1e-7  # how far apart the products of both, which are made small, may be: 2e-11 was seen


@dataclass(frozen=True, kw_only=True)
class NoiseCost:
    """One kind of noise at the wanted budget.

    Attributes:
        noise: its name, as in a plan.
        settings: what was decided for it beside the name, in words; "" for nothing.
        noise_multiplier: z that meets the budget; None where nothing is known or reaches it.
        error: of the prefix sums, in clip norms; None likewise.
        reason: why it is not known; "" where it is.
        plan: the plan with this noise; None where it is not known.
    """

    noise: str
    settings: str
    noise_multiplier: float | None
    error: float | None
    reason: str
    plan: Any


def prefix_error(strategy: Strategy | None, noise_multiplier: float, rounds: int, error: str) -> float:
    """Error of the prefix sums in clip norms: the root of their mean ("mean") or largest ("max") variance."""
    variance = (strategy or Independent()).prefix_variance(rounds)
    return noise_multiplier * float(np.sqrt(variance.mean() if error == "mean" else variance.max()))


def do_the_same(one: Strategy | None, two: Strategy | None, limits: Participation, error: str) -> bool:
    """Whether two strategies differ by no more than where two descents to one minimum ended.

    Args:
        one, two: of one kind; None for independent noise.
        limits: what one unit may do.
        error: "mean" or "max", which the descent made small.
    """
    both = [strategy or Independent() for strategy in (one, two)]
    (error_one, error_two) = (prefix_error(strategy, 1.0, limits.rounds, error) for strategy in both)
    (moved_one, moved_two) = (float(np.sqrt(strategy.squared_sensitivity(limits))) for strategy in both)
    return (
        alike(error_one, error_two, DESCENDED)
        and alike(moved_one, moved_two, DESCENDED)
        and alike(error_one * moved_one, error_two * moved_two, _AS_GOOD)
    )


# Which noise a plan adds: fields, the strategy that they name, and the mechanism that is made of it.


NoiseName = Literal["gaussian", "tree", "banded", "blt", "bisr", "auto"]
NOISE_ONLY_FOR: dict[str, tuple[str, ...]] = {
    "bands": ("banded", "bisr"),
    "buffers": ("blt",),
    "tree_estimator": ("tree",),
    "tree_restart": ("tree",),
    "tree_completion": ("tree",),
    "prefix_error": ("banded", "blt", "bisr", "auto"),
    "coefficients": ("banded", "blt", "bisr"),
    "column_scales": ("banded",),
}
"""Fields that some kinds of noise read."""


DEFAULT_PARTS = 8
"""Parts of cyclic Poisson sampling, and bands of its noise, where neither is given."""


@dataclass(frozen=True, kw_only=True)
class NoiseChoice:
    """Fields that decide how the noise of one round and the next belong together.

    Attributes:
        noise: "gaussian" draws it anew in every round; "tree", "banded", "blt" and "bisr" correlate it, so that later
            rounds take back what earlier ones added (DP-FTRL), which needs sampling that limits how often a unit takes
            part; "auto" takes the one with the least error that meets the budget.
        bands: banded and bisr: vectors that the noise is made of; None for 16, or as many as the separation allows
            (bisr: the best number).
        buffers: blt: vectors that the noise is made of; None for 4.
        tree_estimator: tree: "efficient" (Honaker's) or "plain"; None for efficient.
        tree_restart: tree: rounds of a tree; then a new one begins, and the server forgets its momentum. None for one
            tree.
        tree_completion: tree: fill a tree up with empty rounds before a new one begins.
        prefix_error: what the coefficients keep small: the "mean" or the "max" of the errors of all sums so far; None
            for mean.
        coefficients: of the strategy: banded, its first column; blt, output scales and then decays; bisr, the first
            column of its inverse. None optimises them for the rounds and the participation at hand.
        column_scales: banded: a factor on each column of the strategy, one for each round.
    """

    noise: NoiseName = "gaussian"
    bands: int | None = None
    buffers: int | None = None
    tree_estimator: Literal["efficient", "plain"] | None = None
    tree_restart: int | None = None
    tree_completion: bool = False
    prefix_error: Literal["mean", "max"] | None = None
    coefficients: tuple[float, ...] | None = None
    column_scales: tuple[float, ...] | None = None

    def check_noise(self) -> None:
        """Refuse values of no use, and settings of another kind of noise than the chosen one.

        Raises:
            InputError: there is one.
        """
        _check.one_of(get_args(NoiseName), noise=self.noise)
        refuse_unused(self, "noise", NOISE_ONLY_FOR)
        for name in ("bands", "buffers", "tree_restart"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})
        if self.tree_estimator is not None:
            _check.one_of(("efficient", "plain"), tree_estimator=self.tree_estimator)
        if self.prefix_error is not None:
            _check.one_of(("mean", "max"), prefix_error=self.prefix_error)
        if self.tree_completion and self.tree_restart is None:
            raise InputError(
                "tree_completion needs tree_restart: a single tree is never completed; set it, or leave both"
            )
        if self.column_scales is not None and self.coefficients is None:
            raise InputError("column_scales need coefficients; give both, or leave both out")
        if self.coefficients is not None:
            _ = self.strategy(Participation(rounds=1))  # refuses what is no strategy

    def strategy(self, limits: Participation) -> Strategy | None:
        """The strategy for a run with these limits; None for noise that is drawn anew.

        Raises:
            InputError: there is none of this kind.
        """
        match self.noise:
            case "gaussian" | "auto":
                return None
            case "tree":
                if self.tree_restart is not None and self.tree_restart >= limits.rounds:
                    raise InputError(
                        f"tree_restart={self.tree_restart} comes after the last of {limits.rounds} rounds; leave it "
                        "out for a single tree"
                    )
                return BinaryTree(
                    estimator=self.tree_estimator or "efficient",
                    restart_every=self.tree_restart,
                    completion=self.tree_completion,
                )
            case name:
                return by_name(
                    name,
                    limits,
                    bands=self.bands,
                    buffers=self.buffers,
                    prefix_error=self.prefix_error or "mean",
                    coefficients=self.coefficients,
                    column_scales=self.column_scales,
                )

    def noise_walk(self, rounds: int) -> float | None:
        """The largest variance of a sum of rounds' noise, in that of z; None where rounds are independent, or the
        strategy is still open."""
        if self.noise != "tree" and self.coefficients is None:
            return None
        strategy = self.strategy(Participation(rounds=rounds))
        return None if strategy is None else float(strategy.prefix_variance(rounds).max())


def coefficients_of(strategy: Strategy | None) -> dict[str, tuple[float, ...] | None]:
    """The fields of a plan that say the strategy again."""
    match strategy:
        case BandedToeplitz():
            return {"coefficients": strategy.coefficients, "column_scales": strategy.column_scales}
        case BufferedToeplitz():
            return {"coefficients": (*strategy.output_scales, *strategy.buffer_decays)}
        case InverseBanded():
            return {"coefficients": strategy.inverse_coefficients}
        case _:
            return {}


# Who takes part in a plan's rounds: fields, and the sampler that they name.


SamplingName = Literal["poisson", "fixed", "shuffled", "cyclic", "min_separation"]
_ONLY_FOR: dict[str, tuple[str, ...]] = {
    "reshuffle": ("shuffled",),
    "parts": ("cyclic",),
    **dict.fromkeys(("min_separation", "max_participations", "availability", "drop_out"), ("min_separation",)),
}
"""Fields that one kind of sampling reads."""


@dataclass(frozen=True, kw_only=True)
class Participants:
    """Fields that decide who takes part in a round.

    Attributes:
        sampling: "poisson" (independent coins), "fixed" (a cohort of exactly the planned size), "shuffled" (epochs in
            random order), "cyclic" (Poisson coins within parts that take turns) or "min_separation" (whoever has
            checked in and has not taken part for a while). Correlated noise needs one of the last three.
        reshuffle: shuffled: a new order for each epoch. One order for all keeps a unit's rounds an epoch
            apart, which costs less with correlated noise.
        parts: cyclic: how many parts take turns; None for as many as the noise has bands.
        min_separation: rounds between two participations of a unit, at least; None for as many as keep cohorts full.
        max_participations: rounds that a unit takes part in, at most; None for what the separation allows.
        availability: simulated probability that a unit has checked in; None for 1.
        drop_out: simulated probability that one that was chosen does not report; None for 0.
    """

    sampling: SamplingName = "poisson"
    reshuffle: bool = True
    parts: int | None = None
    min_separation: int | None = None
    max_participations: int | None = None
    availability: float | None = None
    drop_out: float | None = None

    def check_participants(self) -> None:
        """Refuse values of no use, and settings of another sampling than the chosen one.

        Raises:
            InputError: there is one.
        """
        _check.one_of(get_args(SamplingName), sampling=self.sampling)
        refuse_unused(self, "sampling", _ONLY_FOR)
        for name, least in {"parts": 1, "min_separation": 0, "max_participations": 1}.items():
            if getattr(self, name) is not None:
                _check.whole(at_least=least, **{name: getattr(self, name)})
        if self.availability is not None:
            _check.between(0.0, 1.0, ends="(]", availability=self.availability)
        if self.drop_out is not None:
            _check.between(0.0, 1.0, ends="[)", drop_out=self.drop_out)

    def with_participants(self, *, size: int, population: int, bands: int) -> Self:
        """The same with open limits decided: the widest separation that keeps cohorts full, a part for each band."""
        if self.sampling == "min_separation" and self.min_separation is None:
            return dataclasses.replace(self, min_separation=max(0, population // size - 1))
        if self.sampling == "cyclic" and self.parts is None:
            return dataclasses.replace(self, parts=bands)
        return self

    def participants(self, *, size: int, population: int, rounds: int) -> Sampler:
        """The sampler.

        Args:
            size: planned units a round.
            population: the public number of units.
            rounds: of the run.

        Raises:
            InputError: there is no such sampler.
        """
        match self.sampling:
            case "poisson":
                return PoissonSampling(sampling_rate=size / population, population=population)
            case "fixed":
                return FixedSizeSampling(size=size, population=population)
            case "shuffled":
                return ShuffledEpochs(size=size, population=population, rounds=rounds, reshuffle=self.reshuffle)
            case "cyclic":
                return CyclicPoissonSampling(size=size, population=population, parts=self.parts or 1, rounds=rounds)
            case "min_separation":
                return MinSeparationSampling(
                    size=size,
                    population=population,
                    min_separation=self.min_separation or 0,
                    max_participations=self.max_participations,
                    rounds=rounds,
                    availability=1.0 if self.availability is None else self.availability,
                    drop_out=self.drop_out or 0.0,
                )


_FIELDS_OF_CLIPPING: dict[str, tuple[str, ...]] = {
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
        refuse_unused(self, "clipping", _FIELDS_OF_CLIPPING)
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
            plain = dataclasses.replace(base, clipping="flat", **unset(base, _FIELDS_OF_CLIPPING))

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
