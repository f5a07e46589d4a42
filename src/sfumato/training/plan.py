"""The plan of a training run: every number that decides its result and its privacy, in one frozen object.

A plan is made of the parts that run: who takes part (`cohort`), how much each may weigh (`clipping`), the noise, and
the optimiser that takes the steps (`server`). Once the number of units is known, they are the private sum: the objects
that draw, clip and add noise are those from which the event is derived that is accounted, so they cannot disagree.
Everything in a plan may be published.

A part may be given by what is short for it (`sfumato._parts`): clipping=0.5, noise="blt", cohort={"size": 64}.

Plans of earlier versions had flat fields; `current` puts them into the parts that they belong to now. Runs of earlier
versions are read (report, personalise); they do not resume.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sfumato import _check, accounting
from sfumato._check import InputError
from sfumato._numbers import is_close, is_number
from sfumato._parts import KINDS, Choice, changed, part, plan, to_json
from sfumato._types import PLAN_FORMAT, Adjacency, Stated, Unit
from sfumato.accounting.strategies import Strategy
from sfumato.accounting.strategy_search import DEFAULT_BANDS
from sfumato.clipping import CLIPPINGS, Adaptive, Flat, NormBound
from sfumato.data.domain import refuse_found
from sfumato.mechanisms import NOISES, Auto, Banded, Gaussian, Mechanism
from sfumato.mechanisms.correlated import Correlated, limits_of
from sfumato.sampling import COHORTS, CyclicPoisson, Poisson, Sampler
from sfumato.statement.verdict import default_delta, warn_if_too_large
from sfumato.training.private_sum import PrivateSum
from sfumato.training.server import OPTIMIZERS, NoiseLimited, Optimizer

if TYPE_CHECKING:
    from torch import nn

    from sfumato.accounting import Event, Participation
    from sfumato.training.contribution import Contribution, Task
    from sfumato.training.fit import ModelBuilder, Result, RunOptions
    from sfumato.training.server import OptimizerFactory

_NUDGES = 8  # of noise, past a rounding

DESCENDED = 1e-5
"""How far the errors and the sensitivities of strategies at one minimum may differ, and noise that follows them; 4e-7
was seen, of three kinds of processors."""

_AS_GOOD = 1e-7  # by how much the products of both, which are made small, may differ: 2e-11 was seen


@plan
class Plan:
    """What all plans share; a subclass gives the contribution, the rounds and the task.

    Attributes:
        cohort: who takes part in a round, and how many: a number of contributions (examples or clients), a word, or a
            sampler of `sfumato.sampling`. "poisson" tosses independent coins, and "cyclic_poisson" does so within parts
            that take turns. "fixed_size" draws exactly so many. "shuffled" goes through epochs in random order.
            "min_separation" takes any who have checked in and have not taken part for a while. Correlated noise needs
            cyclic_poisson, shuffled or min_separation.
        clipping: the bound on a contribution: a norm, a word, a bound of `sfumato.clipping`, or None for a run without
            privacy. "flat" bounds the whole, "per_layer" each layer's part. "automatic" brings all to one length.
            "adaptive" follows a quantile of their norms by a noisy count.
        noise: a noise multiplier (0 for no noise and no guarantee), a word, or noise of `sfumato.mechanisms`.
            "gaussian" draws it anew in every round. "tree", "banded", "blt" and "bisr" correlate it, so that later
            rounds take back what earlier ones added. "auto" takes the one with the least error that meets the budget.
            The multiplier may be left to `calibrate`.
        server: the optimiser that takes a step on the noisy mean: its name, its rate, or an `Optimizer`.
        trainable: what is trained and noised: "all", "norm", "first", "last", "last_blocks:2", or a regular expression
            on parameter names. "+" joins several. "lora" and "projection" name what `models` adds.
        population: N, the public number of units; None takes the number present.
        delta: δ of the statement; None for 0.01 / N.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    cohort: Sampler = part(default=Poisson(), converter=COHORTS)
    clipping: NormBound = part(default=Flat(), converter=CLIPPINGS)
    noise: Mechanism = part(default=Gaussian(), converter=NOISES)
    server: Optimizer = part(default=Optimizer(), converter=OPTIMIZERS)
    trainable: str = "all"
    population: int | None = None
    delta: float | None = None
    seed: int | None = None

    name: ClassVar[str] = "plan"
    unit: ClassVar[Unit] = "user"
    private: ClassVar[bool] = True
    """Whether the plan is one with a guarantee; a baseline without is not."""
    model_fields: ClassVar[tuple[str, ...]] = ("model", "input_shape", "version")
    """What a released model's file holds of `about`: how to build the model, and no paths of private data."""
    highest_rate: ClassVar[float] = 1.0
    """What a learning rate that is left open is at most, unless `rate_for` states another."""
    renamed: ClassVar[Mapping[str, str]] = {
        "clip_norm": "clipping",
        "clip_gamma": "clipping.gamma",
        "layer_shares": "clipping.shares",
        "adaptive_clip_quantile": "clipping.quantile",
        "adaptive_clip_learning_rate": "clipping.learning_rate",
        "adaptive_clip_count_noise": "clipping.count_noise",
        "adaptive_clip_rounds": "clipping.adapted_rounds",
        "noise_multiplier": "noise",
        "bands": "noise.bands",
        "buffers": "noise.buffers",
        "tree_estimator": "noise.estimator",
        "tree_restart": "noise.restart",
        "tree_completion": "noise.completion",
        "prefix_error": "noise.prefix_error",
        "coefficients": "noise.coefficients",
        "column_scales": "noise.column_scales",
        "sampling": "cohort",
        "reshuffle": "cohort.reshuffle",
        "parts": "cohort.parts",
        "min_separation": "cohort.min_separation",
        "max_participations": "cohort.max_participations",
        "availability": "cohort.availability",
        "drop_out": "cohort.drop_out",
    }
    """Fields of earlier versions, and where they are now."""
    choices: ClassVar[Mapping[str, Choice]]
    """By field, which words and numbers are short for a part."""

    def __post_init__(self) -> None:
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)
        if self.population is not None:
            _check.whole(population=self.population)
        if self.delta is not None:
            _check.between(0.0, 1.0, ends="()", delta=self.delta)
        if not isinstance(self.trainable, str):
            raise InputError(f"trainable must be a text, got {self.trainable!r:.60}; for every parameter write all")
        z = self.noise.noise_multiplier
        if self.clipping.norm is None and z:
            raise InputError(
                f"noise {z:g} needs clipping; give a norm, 1.0 for example, or use noise=0 for a run without privacy"
            )
        if self.clipping.norm is None and not isinstance(self.clipping, Flat):
            raise InputError(f"clipping={CLIPPINGS.word(self.clipping)} needs a norm; set it, 1.0 for example")
        if self.clipping.counted is not None:
            self.clipping.counted.count_noise_std(clients=self.cohort.size, noise_multiplier=z or 0.0)

    def optimizer_for(self, private_sum: PrivateSum) -> OptimizerFactory:
        """The optimiser with its rate resolved, for these rounds."""
        if self.server.learning_rate is not None:
            return self.server
        noise = private_sum.mechanism
        variance = noise.prefix_variance(private_sum.rounds)
        return NoiseLimited(
            replace(self.server, learning_rate=self.rate_for(private_sum.rounds)),
            noise_std=noise.multiplier * (private_sum.bound.norm or 0.0) / private_sum.grouping.clients,
            rounds=private_sum.rounds,
            variance=None if variance is None or not noise.stream else float(variance.max()),
        )

    def rate_for(self, rounds: int) -> float:
        """What a learning rate that is left open is at most, for so many rounds."""
        return self.highest_rate

    def with_usual_sizes(self, population: int, chosen: Collection[str] = ()) -> Self:
        """The plan with the sizes that follow from the public number of units (`training.defaults`).

        Args:
            population: public number of units.
            chosen: fields that were set by hand, as "cohort.size"; they stay.
        """
        return self

    def rounds_for(self, population: int) -> int:
        """How often the server steps, for a public population."""
        raise NotImplementedError

    def contribution(
        self, model: nn.Module, data: Any, device: str, head_seed: int, negatives: Any = None
    ) -> Contribution:
        """What the cohort adds.

        Args:
            model: to be trained; it is copied.
            data: the private records.
            device: where to train.
            head_seed: of fresh heads.
            negatives: what `with_negatives` made; None for none.
        """
        raise NotImplementedError

    def default_task(self) -> Task:
        """What the data must be, and how a model is measured."""
        raise NotImplementedError

    def takes(self, data: Any) -> tuple[str, ...]:
        """What the run itself is built by of all that was found in the records (`data.domain`), with its model."""
        return ()

    def with_negatives(self, negatives: Any, data: Any) -> Any:
        """Public examples that join the records in every round, checked against them.

        Raises:
            InputError: the plan takes none, or not these.
        """
        raise InputError(f"{self.name} takes no public negatives, which are for fedemb; leave them out")

    def refuse_prefix(self) -> None:
        """Raise InputError if records are changed in every round before the model gets them, as augmentations do."""

    def assumptions(self) -> list[Stated]:
        """Sentences that the guarantee of this plan rests on, with those of every plan."""
        return []

    def sampler(self, population: int) -> Sampler:
        """Who takes part, for a public population."""
        return self.cohort.planned(population, self.rounds_for(population), self.noise.parts)

    def private_sum(self, population: int) -> PrivateSum:
        """The parts of a round, for a public population."""
        sampler, rounds = self.sampler(population), self.rounds_for(population)
        return PrivateSum(
            sampler=sampler, bound=self.clipping, mechanism=self.noise.planned(sampler, rounds), rounds=rounds
        )

    def for_population(self, population: int) -> Self:
        """The plan with everything resolved that depends on the number of units: limits, and coefficients of noise."""
        return self._planned(population)

    def _planned(self, population: int) -> Self:
        sampler = self.sampler(population)
        return replace(self, cohort=sampler, noise=self.noise.planned(sampler, self.rounds_for(population)))

    def public_population(self, data: Any) -> int:
        """The declared population, or the number of units present."""
        present = self.units_in(data)
        if self.population is not None and self.population < present:
            warnings.warn(
                f"more {self.unit}s are present than the declared population {self.population}: cohorts are larger "
                "than planned, and delta is chosen for too few; declare a larger one",
                stacklevel=2,
            )
        return self.population or present

    @property
    def of_examples(self) -> bool:
        """Whether rows of examples are tried for independence, and not clients."""
        return self.unit in ("example", "label")

    def units_in(self, data: Any) -> int:
        """How many units are present."""
        return len(data)

    def delta_for(self, population: int) -> float:
        """The chosen δ, or 0.01 / N."""
        return default_delta(population) if self.delta is None else self.delta

    def refuse_unready(self, population: int) -> None:
        """Refuse a run whose noise is not decided."""
        if isinstance(self.noise, Auto):
            self.noise.planned(self.cohort, 1)
        if self.noise.noise_multiplier is None:
            raise InputError(
                "noise is not set; call calibrate(epsilon=…, population=…), or use noise=0 for a run without privacy"
            )
        if self.delta is not None and self.noise.noise_multiplier:
            warn_if_too_large(self.delta, population)

    def refuse_found(self, found: Sequence[str]) -> None:
        """Refuse to build by what was found in records, unless there is no noise and no guarantee.

        Raises:
            InputError: with the option that declares it.
        """
        if self.private and self.noise.noise_multiplier != 0:
            refuse_found(found)

    def refuse_budget(self, epsilon: float) -> None:
        """Refuse a budget that no population mends: none above 0, or for a sum without a bound."""
        _check.positive(epsilon=epsilon)
        if self.clipping.norm is None:
            raise InputError("a private run needs clipping; set it, 1.0 for example, and calibrate again")

    def calibrate(
        self, *, epsilon: float, delta: float | None = None, population: int, before: Event | None = None
    ) -> Self:
        """A plan like this one whose noise meets (ε, δ) for one unit.

        Args:
            epsilon: budget of the whole run, > 0.
            delta: in (0, 1); None for that of the plan, or 0.01 / population.
            population: public number of units.
            before: what the run releases before its rounds (`InitialRelease.event`); the budget is for both together.

        Raises:
            InputError: no noise reaches the budget; the message gives the smallest ε in reach.
        """
        self.refuse_budget(epsilon)
        _check.whole(population=population)
        chosen = self.delta_for(population) if delta is None else delta
        _check.between(0.0, 1.0, ends="()", delta=chosen)
        base = replace(self, noise=replace(self.noise, noise_multiplier=None), delta=chosen, population=population)
        if isinstance(base.noise, Auto):
            rows = base.compare_noise(epsilon=epsilon, delta=chosen, population=population, before=before)
            return rows[0].plan
        base = base._planned(population)
        # The count's noise limits z from above; it does not change what a given z costs.
        adaptive = isinstance(base.clipping, Adaptive)
        plain = Flat(norm=base.clipping.norm) if adaptive else base.clipping
        rounds = base.rounds_for(population)

        def event(noise_multiplier: float, bound: NormBound = plain) -> Event:
            mechanism = replace(base.noise, noise_multiplier=noise_multiplier)
            whole = PrivateSum(sampler=base.cohort, bound=bound, mechanism=mechanism, rounds=rounds).event(rounds)
            return whole if before is None else before + whole

        adjacency = base.cohort.adjacency
        if before is not None:
            _refuse_spent(before, adjacency, epsilon, chosen)
        noise = accounting.calibrate(event, epsilon=epsilon, delta=chosen, adjacency=adjacency)
        if adaptive:  # of equal cost, but rounded in another way by the accountants
            for _ in range(_NUDGES):
                if accounting.guarantee(event(noise, base.clipping), adjacency).epsilon(chosen) <= epsilon:
                    break
                noise *= 1 + 1e-8
        return replace(base, noise=replace(base.noise, noise_multiplier=noise))

    def compare_noise(
        self, *, epsilon: float, delta: float | None = None, population: int, before: Event | None = None
    ) -> list[NoiseCost]:
        """Every kind of noise at one budget, least error first; those of which nothing is known come last.

        A training run is moved by sums of its noisy updates, so what counts is the noise on these sums and not on
        single rounds. For each kind the multiplier is calibrated to one and the same (ε, δ), rounds and participation;
        the error is z · √(mean over rounds of the variance of the prefix sum at unit noise), in clip norms. It is a
        prediction from public numbers: no record is looked at, and it costs nothing.

        Args:
            epsilon, delta, population, before: as for `calibrate`.

        Raises:
            InputError: no kind of noise meets the budget.
        """
        limits = self.sampler(population).participation(self.rounds_for(population))
        error = getattr(self.noise, "prefix_error", "mean")
        rows = [
            self._noise_cost(candidate, error, epsilon, delta, population, before)
            for candidate in self._candidates(limits, error)
        ]
        rows.sort(key=lambda row: (row.error is None, row.error or 0.0))
        if rows[0].error is None:
            raise InputError(rows[0].reason)
        return rows

    def _candidates(self, limits: Participation | None, error: Any) -> list[Mechanism]:
        """Each kind of noise, and more bands than usual where there is room."""
        kinds = [kind() for kind in NOISES.kinds.values() if kind is not Auto]
        found = [replace(kind, prefix_error=error) if hasattr(kind, "prefix_error") else kind for kind in kinds]
        banded = Banded(prefix_error=error)
        cyclic = isinstance(self.cohort, CyclicPoisson)
        if isinstance(self.cohort, CyclicPoisson) and self.cohort.parts is None:
            found += [replace(banded, bands=bands) for bands in (2, 4, 16, 32)]
        elif limits is not None and not cyclic and limits.period > DEFAULT_BANDS:
            found.append(replace(banded, bands=min(limits.period, 4 * DEFAULT_BANDS)))
        return found

    def _noise_cost(
        self,
        candidate: Mechanism,
        error: str,
        epsilon: float,
        delta: float | None,
        population: int,
        before: Event | None,
    ) -> NoiseCost:
        word = NOISES.word(candidate)
        try:
            plan = replace(self, noise=candidate).calibrate(
                epsilon=epsilon, delta=delta, population=population, before=before
            )
        except InputError as refused:
            return NoiseCost(noise=word, settings="", noise_multiplier=None, error=None, reason=str(refused), plan=None)
        return NoiseCost(
            noise=word,
            settings=plan.noise.settings(),
            noise_multiplier=plan.noise.multiplier,
            error=prefix_error(plan.noise, plan.rounds_for(population), error),
            reason="",
            plan=plan,
        )

    def as_started(self, recorded: Mapping[str, Any], population: int) -> Self:
        """The plan with the noise multiplier and the coefficients of the run that goes on, if only a search differs.

        Descent comes to other coefficients with other threads where many are equally good (buffers of one decay, or of
        no weight), so what they do is compared: their error and their sensitivity.

        Args:
            recorded: what plan.json holds.
            population: public number of units.
        """
        noise = recorded.get("noise")
        if not isinstance(noise, Mapping) or noise.get("kind") != NOISES.word(self.noise):
            return self
        z, own = noise.get("noise_multiplier"), self.noise
        if not isinstance(own, Correlated):
            return replace(self, noise=replace(own, noise_multiplier=z)) if is_close(own.noise_multiplier, z) else self
        names = [name for name in ("coefficients", "column_scales") if hasattr(own, name)]
        kept = {name: _numbers(noise.get(name)) for name in names}
        if kept == {name: getattr(own, name) for name in names}:
            return replace(self, noise=replace(own, noise_multiplier=z)) if is_close(own.noise_multiplier, z) else self
        if kept["coefficients"] is None or not is_close(own.noise_multiplier, z, DESCENDED):
            return self
        sampler, rounds = self.sampler(population), self.rounds_for(population)
        try:
            begun = replace(self, noise=replace(own, noise_multiplier=z, **kept))
            made: Any = [each.noise.planned(sampler, rounds) for each in (self, begun)]
        except InputError:  # a plan.json that somebody changed
            return self
        error = getattr(own, "prefix_error", "mean")
        same = do_the_same(made[0].strategy, made[1].strategy, limits_of(sampler, rounds), error)
        return begun if same else self

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name; parts with the word of their kind."""
        return {"plan": self.name, "format": PLAN_FORMAT, **to_json(self)}

    def replace(self, **changes: Any) -> Self:
        """A plan like this one with some fields changed.

        Args:
            changes: as for the plan itself; what is short for a part changes this plan's part, not that of a new plan:
                plan.replace(noise=0.5, cohort={"size": 64}, **{"client.learning_rate": 0.1}).

        Raises:
            InputError: no such field, or a value of no use.
        """
        return changed(self, changes)

    @classmethod
    def from_json(cls, recorded: Mapping[str, Any]) -> Self:
        """The plan that `to_json` gave, whatever else the file holds."""
        fields = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in recorded.items() if name in fields})

    def fit(
        self,
        model: nn.Module | ModelBuilder,
        data: Any,
        *,
        validation: Any = None,
        test: Any = None,
        out: Any = None,
        resume: bool = False,
        options: RunOptions | None = None,
    ) -> Result:
        """Train, and report what it cost.

        Args:
            model: any torch module that gives what the plan trains; it is copied, never changed. With an initial
                release (`RunOptions.initial_release`), a function that builds it from what is public of the data to
                train on: the shape of inputs and the number of classes, no record.
            data: the private records.
            validation: public data to measure during the run; what it shows is not covered by the guarantee.
            test: data to measure before the first and after the last round.
            out: folder of the run; None keeps everything in memory.
            resume: go on from the checkpoint in `out`.
            options: where and how the run goes: device, progress, checkpoints, callbacks, caches.

        Raises:
            InputError: a mistake in the plan, the data or the folder; nothing is lost.
        """
        from sfumato.training.fit import run_plan

        return run_plan(self, model, data, validation=validation, test=test, out=out, resume=resume, options=options)

    def try_out(
        self,
        model: nn.Module | ModelBuilder,
        data: Any,
        *,
        validation: Any = None,
        test: Any = None,
        options: RunOptions | None = None,
    ) -> Contribution:
        """All that `fit` does before its first round, on the same model and data; nothing is trained or written.

        It measures on about 256 records of the validation and test data.

        Args:
            model, data, validation, test, options: as for `fit`.

        Returns:
            what a cohort would add.

        Raises:
            InputError: what `fit` would refuse before its first round.
        """
        from sfumato.training.fit import try_out

        return try_out(self, model, data, validation=validation, test=test, options=options)


@dataclass(frozen=True, kw_only=True)
class NoiseCost:
    """One kind of noise at the wanted budget.

    Attributes:
        noise: its word, as in a plan.
        settings: what was decided for it, in words; "" for nothing.
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


def prefix_error(noise: Mechanism, rounds: int, error: str) -> float:
    """Error of the prefix sums in clip norms: the root of their mean ("mean") or largest ("max") variance."""
    variance = noise.prefix_variance(rounds)
    assert variance is not None
    return noise.multiplier * float(np.sqrt(variance.mean() if error == "mean" else variance.max()))


def do_the_same(one: Strategy, two: Strategy, limits: Participation, error: str) -> bool:
    """Whether two strategies differ by no more than where two descents to one minimum ended.

    Args:
        one, two: of one kind.
        limits: what one unit may do.
        error: "mean" or "max", which the descent made small.
    """
    variances = [strategy.prefix_variance(limits.rounds) for strategy in (one, two)]
    (error_one, error_two) = (float(np.sqrt(v.mean() if error == "mean" else v.max())) for v in variances)
    (sensitivity_one, sensitivity_two) = (
        float(np.sqrt(strategy.squared_sensitivity(limits))) for strategy in (one, two)
    )
    return (
        is_close(error_one, error_two, DESCENDED)
        and is_close(sensitivity_one, sensitivity_two, DESCENDED)
        and is_close(error_one * sensitivity_one, error_two * sensitivity_two, _AS_GOOD)
    )


def _refuse_spent(before: Event, adjacency: Adjacency, epsilon: float, delta: float) -> None:
    """Refuse a budget of which nothing is left for the rounds."""
    cost = accounting.guarantee(before, adjacency).epsilon(delta)
    if cost >= epsilon:
        raise InputError(
            f"the initial release costs epsilon {cost:.4g} at delta {delta:g}, and the whole run may cost "
            f"{epsilon:g}; give it more noise, or allow more epsilon"
        )


def _numbers(values: Any) -> tuple[float, ...] | None:
    """A list of numbers in plan.json; None where it holds none."""
    return tuple(values) if isinstance(values, list) and all(map(is_number, values)) else None


# Plans that earlier versions wrote.


_PATHS = {
    "clip_norm": "clipping.norm",
    "clipping": "clipping.kind",
    "noise": "noise.kind",
    "noise_multiplier": "noise.noise_multiplier",
    "sampling": "cohort.kind",
    "optimizer": "server.name",
    "loss": "client.loss.kind",
}
"""Where old fields are now, if `Plan.renamed` names another one."""

_WORDS = {"fixed": "fixed_size", "cyclic": "cyclic_poisson"}
"""Words of samplings that were renamed."""


def current(recorded: Mapping[str, Any], kind: type[Plan]) -> dict[str, Any]:
    """The plan of a plan.json as it would be written now.

    Args:
        recorded: what plan.json holds, of this version or an earlier one.
        kind: the plan's class.
    """
    if recorded.get("format") == PLAN_FORMAT:
        return dict(recorded)
    found: dict[str, Any] = {"format": PLAN_FORMAT}
    for name, value in recorded.items():
        path = _PATHS.get(name, kind.renamed.get(name, name))
        if name not in _PATHS and "." in path and value is None:
            continue  # it was not given
        *outer, last = path.split(".")
        place = found
        for each in outer:
            place = place.setdefault(each, {})
        place[last] = _WORDS.get(value, value) if path == "cohort.kind" else value
    return _of_its_kinds(found, kind)


def _of_its_kinds(settings: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Without the fields of other kinds of parts, which an earlier version wrote too, also in parts of parts."""
    found = dict(settings)
    for field in dataclasses.fields(kind):
        kinds, value = field.metadata.get(KINDS), found.get(field.name)
        if kinds is None or not isinstance(value, dict):
            continue
        word = value.get("kind", next(iter(kinds.kinds)) if len(kinds.kinds) == 1 else None)
        if word in kinds.kinds:
            own = {name: each for name, each in value.items() if name == "kind" or word in kinds.having(name)}
            found[field.name] = _of_its_kinds(own, kinds.kinds[word])
    return found
