"""The training commands: one for every algorithm of the registry."""

import dataclasses
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from sfumato import models
from sfumato._check import InputError, non_negative, whole
from sfumato._files import write_atomic
from sfumato._random import RandomSource
from sfumato._types import Adjacency, Stated
from sfumato.accounting import Event
from sfumato.algorithms import ALGORITHMS, command_of
from sfumato.cli.console import STOPPED, Answer, bar, leads, notify, number, print_line, table
from sfumato.cli.models import (
    about_classifier,
    build,
    build_classifier,
    build_output_model,
    check_device,
    embedding_dim_of,
    is_table,
    public_sizes,
    refuse_idle_adapters,
    refuse_no_model,
    with_usual_model,
)
from sfumato.cli.results import dry_run, measured
from sfumato.cli.run_options import (
    EmbeddingRun,
    TrainingRun,
    about_run,
    free_folder,
    open_logs,
    start_line,
    use_threads,
)
from sfumato.cli.sources import (
    ExampleParts,
    Parts,
    counted_vocabulary,
    fitted,
    kind_of,
    public_lists,
    read_example_parts,
    read_parts,
    refuse_share,
    refuse_uncountable,
)
from sfumato.data import ExampleDataset, UserDataset
from sfumato.data.domain import BUILT
from sfumato.federated import FedRecon, Verification
from sfumato.federated.losses import without_head
from sfumato.federated.vocabulary import FILE as VOCABULARY_FILE
from sfumato.integrations import Log
from sfumato.mechanisms import Auto
from sfumato.models.weights import refuse_missing
from sfumato.runs import RunFolder
from sfumato.statement import Statement, make_statement
from sfumato.training import Callback, Contribution, InitialRelease, ModelBuilder, NoiseCost, Plan, RunOptions, Task
from sfumato.training.defaults import table_norm
from sfumato.training.fit import facts_of
from sfumato.training.forecast import forecast_of, spent, trained_sizes

# The kinds of records that a training command can have: their options, their reader, and the models for them.


@dataclass(frozen=True, kw_only=True)
class RecordKind:
    """What differs between training on users and on examples.

    Attributes:
        read: the parts of the data, from all options.
        fit: the plan with what follows from the kind of the data, from it, the data and the names of chosen fields.
        build: the model, from all options, the fitted plan, the data and the seed.
        about: what plan.json states of the model, from all options, the fitted plan and the data, so that it can be
            built again.
        task: how a model is measured, from all options and the fitted plan; None for the plan's own way.
        takes: what of the data's domain the run is built by, from the fitted plan and the data (`data.domain`).
        lists: public lists next to plan.json, by the file's name, from the fitted plan and the data.
    """

    read: Callable[..., Any]
    fit: Callable[[Any, Any, Collection[str]], Plan]
    build: Callable[[Any, Any, Any, int | None], nn.Module]
    about: Callable[[Any, Any, Any], dict[str, Any]]
    task: Callable[[Any, Any], Task | None]
    takes: Callable[[Any, Any], Sequence[str]]
    lists: Callable[[Any, Any], Mapping[str, Sequence[str]]]


def _build_of_users(options: Any, plan: Any, data: UserDataset, seed: int | None) -> nn.Module:
    run: TrainingRun = options.run
    if not without_head(plan.loss):
        if run.resume is None and not models.is_custom_model(options.model.model):
            refuse_idle_adapters(options.model, plan.trainable)
        loads = run.resume is None
        return build(options.model, data.input_shape, seed, load=loads, quiet=run.json, trainable=plan.trainable)
    model = build_output_model(
        options.model, data, seed, load=run.resume is None, quiet=run.json, oov_buckets=options.data.oov_buckets
    )
    own = getattr(model, "local_parameters", "")
    if own and data.of_values and not isinstance(plan, FedRecon):
        raise InputError(
            f"{options.model.model} has a part of each user's own ({own}), which {plan.name} would share; use sfumato "
            "fedrecon, or in Python a model with users=… on data.with_user_column"
        )
    return model


def _build_classifier(options: Any, plan: Any, data: ExampleDataset, seed: int | None) -> nn.Module:
    run: TrainingRun = options.run
    return build_classifier(
        options.model,
        data,
        seed,
        load=run.resume is None,
        quiet=run.json,
        reading=options.data,
        trainable=plan.trainable,
    )


def _read_examples(options: Any, *, quiet: bool) -> ExampleParts:
    plan = options.plan
    return read_example_parts(
        options.data,
        classes=plan.task == "classes",
        labels_alone=plan.unit == "label",
        quiet=quiet,
        on_demand=options.run.dry_run,
    )


def _fitted_to_examples(plan: Any, data: ExampleDataset, chosen: Collection[str]) -> Plan:
    """The plan with the clip norm of tables, where none was chosen."""
    if plan.name != "dpsgd" or not is_table(data):
        return plan
    if any(name.partition(".")[0] == "clipping" for name in chosen):
        return plan
    norm = table_norm(plan.task, noise=plan.noise.noise_multiplier != 0)
    return dataclasses.replace(plan, clipping=dataclasses.replace(plan.clipping, norm=norm))


def _about_users(options: Any, plan: Any, data: UserDataset) -> dict[str, Any]:
    if without_head(plan.loss):
        sizes = public_sizes(data)
        if options.data.counts_vocabulary:  # the size is known when the words are
            sizes.pop("vocabulary_size")
        return sizes
    dimensions = None if models.is_custom_model(options.model.model) else embedding_dim_of(options.model)
    return {"input_shape": data.input_shape, "embedding_dim": dimensions}


def _recall(options: Any, plan: Any) -> Verification | None:
    return Verification(fars=options.run.far) if isinstance(plan.default_task(), Verification) else None


def _lists(plan: Any, data: UserDataset) -> Mapping[str, Sequence[str]]:
    return public_lists(data) if isinstance(plan, FedRecon) else {}


RECORD_KINDS = {
    "users": RecordKind(
        read=lambda options, *, quiet: read_parts(options.data, quiet=quiet, on_demand=options.run.dry_run),
        fit=lambda plan, data, given: fitted(plan, kind_of(data), given),
        build=_build_of_users,
        about=_about_users,
        task=_recall,
        takes=lambda plan, data: data.found if without_head(plan.loss) else plan.takes(data),
        lists=_lists,
    ),
    "examples": RecordKind(
        read=_read_examples,
        fit=_fitted_to_examples,
        build=_build_classifier,
        about=lambda options, plan, data: about_classifier(data),
        task=lambda options, plan: None,
        takes=lambda plan, data: data.found,
        lists=lambda plan, data: {},
    ),
}
"""By the registry's word for them."""


# What a training command decides before it trains: the noise of its rounds, and what it releases first.


@dataclass(frozen=True)
class FirstRelease:
    """What a run releases before its rounds, with its noise.

    Attributes:
        event: what it costs one unit, for an adjacency.
        release: it on the parts of the data; on None, to report what it costs.
        about: what plan.json states, so that a run that goes on has the same.
        summary: a line for the end of the run, from its folder.
    """

    event: Callable[[Adjacency], Event]
    release: Callable[[Any], InitialRelease]
    about: Mapping[str, Any]
    summary: Callable[[Path], str] = lambda out: ""


FirstOf = Callable[[Any, int], FirstRelease | None]
"""What comes first, from all options with the plan's usual sizes and the public number of units; None for nothing."""


def vocabulary_first(options: Any, population: int) -> FirstRelease | None:
    """The vocabulary, where the run counts it."""
    rule = counted_vocabulary(options, population)
    if rule is None:
        return None

    def summary(out: Path) -> str:
        words = len((out / VOCABULARY_FILE).read_text("utf-8").splitlines())
        return f"vocabulary: {words:,} words, counted under noise, in {out / VOCABULARY_FILE}"

    return FirstRelease(
        event=rule.event,
        release=lambda parts: rule.initial_release(*(parts.texts if parts else ())),
        about={"vocabulary_noise": rule.noise_multiplier},  # a run that goes on knows no epsilon to choose it by
        summary=summary,
    )


@dataclass(frozen=True)
class ResolvedPlan:
    """What a run is, with all its noise.

    Attributes:
        plan: what is trained.
        first: what is released before; None for nothing.
    """

    plan: Plan
    first: FirstRelease | None

    def initial_release(self, parts: Any = None) -> InitialRelease | None:
        """The first release of a run on these records; without them, to report what it costs."""
        return None if self.first is None else self.first.release(parts)


def resolved_plan(options: Any, population: int, first: FirstOf = vocabulary_first) -> ResolvedPlan:
    """The plan with its noise, and what comes before it.

    Args:
        options: all options of the command.
        population: public number of units.
        first: what comes before it.

    Raises:
        InputError: the privacy of the run is not chosen, chosen twice, or no noise is enough.
    """
    plan = options.plan
    if not plan.private:
        return ResolvedPlan(plan, None)
    plan = plan.with_usual_sizes(population, options.run.chosen)
    options = dataclasses.replace(options, plan=plan)
    refuse_undecided(options)
    refuse_uncountable(options)
    found = first(options, population)
    epsilon = options.budget.epsilon
    if epsilon is None:
        return ResolvedPlan(plan, found)
    before = None if found is None else found.event(plan.sampler(population).adjacency)
    budget = {"epsilon": epsilon, "delta": plan.delta, "population": population, "before": before}
    with bar("calibrating the noise"):
        if not isinstance(plan.noise, Auto):
            return ResolvedPlan(plan.calibrate(**budget), found)
        rows = plan.compare_noise(**budget)
    if not options.run.json:
        _show_noise(rows)
    return ResolvedPlan(rows[0].plan, found)


def refuse_undecided(options: Any) -> None:
    """Refuse a run whose privacy is not chosen, or chosen twice."""
    epsilon, noise = options.budget.epsilon, options.plan.noise.noise_multiplier
    if epsilon is None and noise is None:
        raise InputError(
            "choose how private the run is: --epsilon 8 (calibrates the noise), --noise 1 (a noise "
            "multiplier) or --noise 0 (no guarantee)"
        )
    if epsilon is not None:
        options.plan.refuse_budget(epsilon)
    if epsilon is None and isinstance(options.plan.noise, Auto):
        raise InputError("--noise auto takes the noise with the least error at a budget: give --epsilon, or a --noise")
    if epsilon is not None and noise is not None:
        raise InputError("give --epsilon (the noise is calibrated to it) or a noise multiplier (--noise), not both")


def _show_noise(rows: Sequence[NoiseCost]) -> None:
    """The kinds of noise that meet the budget, and the one that is taken."""
    known = [row for row in rows if row.error is not None]
    error = "error of prefix sums (clip norms)"
    table(
        ["noise", "noise multiplier", error],
        [[row.settings or row.noise, number(row.noise_multiplier or 0.0), number(row.error or 0.0)] for row in known],
    )
    unknown: dict[str, list[str]] = {}
    for row in rows[len(known) :]:
        unknown.setdefault(row.reason.removeprefix(f"noise={row.noise} "), []).append(row.noise)
    for reason, names in unknown.items():
        print_line(f"not {', '.join(names)}: {reason}")
    print_line(f"noise: {known[0].settings or known[0].noise}, which has the least error at this budget\n")


# The message at the start of a run. A run that stops before it exists does not print how to go on.


class StartMessage(Callback):
    """Prints where a run is and how it goes on after a stop, as soon as that is true.

    Args:
        out: the run's folder.
        command: that trains it.
        already: the run is finished.
        quiet: print nothing.
        forecast: a sentence of what noise leaves of the run; "" for none.

    Attributes:
        done: whether the run has begun.
    """

    def __init__(self, out: Path, command: str, *, already: bool, quiet: bool, forecast: str = "") -> None:
        self._line = None if quiet else start_line(out, command, ended="trained or measured" if already else None)
        if forecast and self._line is not None:
            self._line += f"\nforecast: {forecast}"
        self.done = False

    def show(self) -> None:
        """Print it, unless it was printed."""
        if self._line is not None:
            print_line(self._line)
            self._line = None

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Print it now at the latest."""
        self.done = True
        self.show()


def stopped_in_cache(cache: Path, model: Any, seed: int | None, *, resume: Path | None) -> str:
    """What to do after a stop while records went through the frozen layers.

    Args:
        cache: the folder of `--prefix-cache`.
        model: the options of the model.
        seed: of the run.
        resume: the folder of a run that was to go on; None for a new one.
    """
    stopped = "stopped while the records went through the frozen layers"
    weights = getattr(model, "weights", None) or getattr(model, "pretrained", None)
    if seed is None and resume is None and weights is None:
        return (
            f"{stopped}, and no run has begun; without --weights and --seed these layers are others each time, so "
            f"delete {cache} and start again, with one of them"
        )
    run = "" if resume is not None else ", and no run has begun"
    return f"{stopped}{run}; run the same command again, and {cache} goes on where it stopped"


class PublicLists(Callback):
    """Written as soon as the folder is there.

    Args:
        folder: of the run.
        lists: names by the file's name.

    Raises:
        InputError: a name has a line break.
    """

    def __init__(self, folder: Path, lists: Mapping[str, Sequence[str]]) -> None:
        for file, names in lists.items():
            if (broken := next((name for name in names if len(name.splitlines()) != 1), None)) is not None:
                raise InputError(f"the name {broken!r} is no line of {file}, which has one a line; change it")
        self._folder, self._lists = folder, lists

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Write them, in the first of several processes."""
        if leads():
            for name, names in self._lists.items():
                write_atomic(self._folder / name, "".join(f"{each}\n" for each in names).encode())


# The training commands: one for every algorithm of the registry.
#
# The fields of the plan's class are the command's options, and their docstrings its help. What is needed to go on with
# a run (the data, the split, the model) is kept in plan.json under "about", as it was given.


_UNWATCHED = "--evaluate-every needs validation data: give --validation-share 0.1, for example"


def train(options: Any, *, command: str | None = None, first: FirstOf = vocabulary_first) -> Answer:
    """Run the training command of an algorithm of the registry.

    Args:
        options: all of them.
        command: that trains it; None for the algorithm's own.
        first: what is released before the rounds.
    """
    name = options.plan.name
    kind = RECORD_KINDS[ALGORITHMS[name].records]
    run: TrainingRun = options.run
    _check(run)
    use_threads(run.threads)
    out = free_folder(name, run)
    logs = open_logs(run.log, out, private=run.log_private, public_evaluation=run.public_evaluation)
    if run.dry_run and options.data.data is None and getattr(options.plan, "population", None):
        if models.is_custom_model(options.model.model):
            models.custom_model(options.model.model, RandomSource.from_os())  # without records, at least it is there
        return _dry_run(resolved_plan(options, options.plan.population, first), None, options)
    already = run.resume is not None and RunFolder(out).has_ended()  # refuses one that was closed
    planned = _before_reading(options, first)
    try:
        parts = kind.read(options, quiet=run.json)
    except InputError as error:
        raise _missing_records(options, error) from None
    options = with_usual_model(options, parts.train)
    population = options.plan.public_population(parts.train)
    chosen = planned or resolved_plan(options, population, first)
    chosen = dataclasses.replace(chosen, plan=kind.fit(chosen.plan, parts.train, run.chosen))
    plan, initial_release = chosen.plan, chosen.initial_release(parts)
    task = kind.task(options, plan) or plan.default_task()
    task.check(parts.train)  # before a model is built that would not fit them

    def build(data: Any) -> nn.Module:
        return kind.build(options, plan, data, plan.seed)

    model = build(parts.train) if initial_release is None else build
    if not already:
        plan.refuse_found(kind.takes(plan, parts.train))
    if run.evaluate_every and parts.validation is None:
        raise InputError(_UNWATCHED)
    if run.dry_run:
        watch = None if run.evaluate_every == 0 else parts.validation
        settings = RunOptions(**run.settings(), task=task, initial_release=initial_release, negatives=_negatives(parts))
        with bar("trying out model and data"):
            tried = plan.try_out(model, parts.train, validation=watch, test=parts.test, options=settings)
        return _dry_run(chosen, parts, options, tried)
    return _fit(
        chosen, model, task, parts, out, options, kind, logs, command=command or command_of(name), already=already
    )


def _missing_records(options: Any, error: InputError) -> InputError:
    """The line for records that a run which goes on does not find where they were; else the error itself."""
    if options.run.resume is None:
        return error
    for name in ("data", "test", "negatives"):
        place = getattr(options.data, name, None)
        if isinstance(place, str) and not Path(place).exists() and f"there is nothing at {place}" in str(error):
            return InputError(
                f"there is nothing at {place}, where the run in {options.run.resume} had its records; say where they "
                f"are now, with --{name}"
            )
    return error


def _check(run: TrainingRun) -> None:
    if run.evaluate_every is not None:
        whole(at_least=0, evaluate_every=run.evaluate_every)
    whole(at_least=0, checkpoint_every=run.checkpoint_every)
    non_negative(checkpoint_minutes=run.checkpoint_minutes)
    check_device(run.device)


def _before_reading(options: Any, first: FirstOf) -> ResolvedPlan | None:
    """Refuse what can be refused without the records: to read them may take long.

    Returns:
        the plan with its noise, where the population is declared; None where it has to be counted first.
    """
    refuse_uncountable(options)
    if options.run.resume is None and "model" in options.run.chosen:  # another one follows from the data
        refuse_no_model(options.model)
    weights = getattr(options.model, "weights", None) or getattr(options.model, "pretrained", None)
    if weights is not None and options.run.resume is None:  # a run that goes on has weights of its own
        refuse_missing(weights)
    if options.plan.private:
        refuse_undecided(options)
        _refuse_other_budget(options)
    shares = {"test_share": options.data.test_share, "validation_share": options.data.validation_share}
    refuse_share(**{name: share for name, share in shares.items() if share is not None})
    if options.run.evaluate_every and not options.data.validation_share:
        raise InputError(_UNWATCHED)
    declared = getattr(options.plan, "population", None)
    if declared is None:
        return None
    planned = resolved_plan(options, declared, first)
    planned.plan.private_sum(declared)  # refuses a cohort that is larger than that
    return planned


def _refuse_other_budget(options: Any) -> None:
    """Refuse to go on with a run under another epsilon than the one that its noise was calibrated to."""
    epsilon = options.budget.epsilon
    if options.run.resume is None or epsilon is None:
        return
    about = RunFolder(options.run.resume).read_plan().get("about") or {}
    wanted = about.get("epsilon_wanted", epsilon)
    if wanted != epsilon:
        started = "a noise multiplier (--noise)" if wanted is None else f"--epsilon {wanted:g}"
        raise InputError(
            f"the run in {options.run.resume} was started with {started}, and goes on under that only, got --epsilon "
            f"{epsilon:g}; leave --epsilon out, or start a new run"
        )


def _fit(
    chosen: ResolvedPlan,
    model: nn.Module | ModelBuilder,
    task: Task,
    parts: Any,
    out: Path,
    options: Any,
    kind: RecordKind,
    logs: Sequence[Log],
    *,
    command: str,
    already: bool,
) -> Answer:
    from safetensors import SafetensorError  # late: without the extra, the message is to name torch

    run: TrainingRun = options.run
    resume = f"sfumato {command} --resume {out}"
    plan, initial_release = chosen.plan, chosen.initial_release(parts)
    rounds = plan.private_sum(plan.public_population(parts.train)).rounds
    start_message = StartMessage(
        out, command, already=already, quiet=run.json, forecast=_forecast(plan, model, parts, options)
    )
    if initial_release is not None or run.resume is not None:  # else there is no run before all checks are passed
        start_message.show()
    try:
        result = plan.fit(
            model,
            parts.train,
            out=out,
            resume=run.resume is not None,
            validation=parts.validation,
            test=parts.test,
            options=RunOptions(
                **run.settings(),
                progress=True,
                about=_about(options, kind.about(options, plan, parts.train), chosen.first),
                task=task,
                initial_release=initial_release,
                negatives=_negatives(parts),
                callbacks=[start_message, PublicLists(out, kind.lists(plan, parts.train)), *logs],
            ),
        )
    except KeyboardInterrupt:
        if start_message.done:  # asked twice, or while it was measured: the round in hand was not waited for
            notify(f"stopped at once; go on with: {resume}")
            return STOPPED
        if run.prefix_cache is None:
            raise
        notify(stopped_in_cache(run.prefix_cache, options.model, plan.seed, resume=run.resume))
        return STOPPED
    except BrokenPipeError:
        raise InputError(
            f"output pipe closed; resume with: {resume}, and send the output to a file or to "
            "a program that reads all of it"
        ) from None
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{out} cannot be written: {getattr(error, 'strerror', None) or error}; what was saved before is whole: "
            f"make room and go on with: {resume}"
        ) from None
    if not result.finished:
        done = result.history[-1]["round"] if result.history else 0
        notify(
            f"stopped after round {done} of {rounds}; go on with: {resume}; or end it for "
            f"good with: sfumato close {out}"
        )
        return STOPPED
    if chosen.first is not None and leads() and not run.json and (line := chosen.first.summary(out)):
        print_line(line)
    return measured(result.statement, out, task, already=already)


def _about(options: Any, data: dict[str, Any], first: FirstRelease | None) -> dict[str, Any]:
    """What plan.json states with the plan: enough to build the model and read the data again."""
    run: TrainingRun = options.run
    return about_run(
        options.data,
        options.model,
        **({"far": run.far} if isinstance(run, EmbeddingRun) else {}),
        **run.settings(),
        log=run.log,
        log_private=run.log_private,
        public_evaluation=run.public_evaluation,
        **data,
        **({"epsilon_wanted": _epsilon_wanted(options)} if options.plan.private else {}),
        **({} if first is None else first.about),
    )


def _forecast(plan: Plan, model: nn.Module | ModelBuilder, parts: Any, options: Any) -> str:
    """The forecast of a new run whose model is known, in a sentence; "" for another one."""
    if not plan.private or options.run.resume is not None or not isinstance(model, nn.Module):
        return ""
    population = plan.public_population(parts.train)
    found = forecast_of(plan.for_population(population), population, trained_sizes(plan, model))
    return found.words(epsilon=spent(plan.for_population(population), population), unit=plan.unit)


def _epsilon_wanted(options: Any) -> float | None:
    """What the noise was calibrated to; a run that goes on knows it from its plan.json."""
    if options.run.resume is None or options.budget.epsilon is not None:
        return options.budget.epsilon
    return (RunFolder(options.run.resume).read_plan().get("about") or {}).get("epsilon_wanted")


def _negatives(parts: Any) -> UserDataset | None:
    return parts.negatives if isinstance(parts, Parts) else None


def _dry_run(chosen: ResolvedPlan, parts: Any, options: Any, tried: Contribution | None = None) -> Answer:
    """The plan, what it would state, and the forecast where a model was tried out."""
    plan, initial_release = chosen.plan, chosen.initial_release(parts)
    population = plan.public_population(parts.train) if parts else options.plan.population
    plan.refuse_unready(population)
    plan = plan.for_population(population)
    assumptions: list[Stated] = [BUILT] if parts and parts.train.found else []
    assumptions += plan.default_task().assumptions(parts.train) if parts else []
    assumptions += [] if tried is None else tried.assumptions()
    if parts and (negatives := _negatives(parts)) is not None:
        assumptions = [*assumptions, plan.with_negatives(negatives, parts.train).assumption()]
    statement = _promise(plan, population, initial_release, assumptions)
    done = "model and data were tried out; " if parts else ""
    first = {} if initial_release is None else initial_release.about()
    if tried is not None and plan.private:
        layout = tried.trained.layout
        found = forecast_of(plan, population, dict(zip(layout.names, layout.sizes, strict=True)))
        words = found.words(epsilon=statement.epsilon, unit=plan.unit)
        first |= {"forecast": {**found.to_json(), "words": words}}
    above = []
    if tried is not None and plan.server.learning_rate is None:
        limited: Any = plan.optimizer_for(plan.private_sum(population))
        rate = limited.rate(sum(tried.trained.layout.sizes))
        first |= {"learning_rate": rate}
        above.append(f"learning rate: {rate:.4g}, as is usual for so many steps, such a clip norm and so much noise")
    return dry_run(plan, statement, f"{done}nothing was trained or written", above=above, **first)


def _promise(
    plan: Plan, population: int, initial_release: InitialRelease | None, data_assumptions: Sequence[Stated]
) -> Statement:
    """The statement of the whole plan, before it runs."""
    private_sum = plan.private_sum(population)
    facts = facts_of(
        plan,
        private_sum,
        rounds=private_sum.rounds,
        population=population,
        delta=plan.delta_for(population),
        initial_release=initial_release,
        data_assumptions=data_assumptions,
    )
    event = private_sum.event(private_sum.rounds)
    if initial_release is not None:
        event = initial_release.event(facts.adjacency) + event
        if warning := initial_release.warning(population):
            warnings.warn(warning, stacklevel=2)
    return make_statement(event, facts, noise_source="os" if plan.seed is None else "seeded")
