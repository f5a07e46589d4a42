"""`sfumato vote` and `sfumato tally`: agents answer public queries under noise, and one of the parties that count."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sfumato import runs
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato.algorithms import ALGORITHMS
from sfumato.cli.console import STOPPED, Answer, Table, bar, leads, notify, print_line, staged_bar
from sfumato.cli.models import ClassifierOptions, build_classifier, check_device, public_features, with_usual_model
from sfumato.cli.parse import CommonOptions
from sfumato.cli.results import baseline_rows, dry_run, evaluation_of, outcome, without_curves
from sfumato.cli.run_options import BudgetOptions, FolderOptions, about_run, free_folder, grouped, start_line
from sfumato.cli.sources import ClassOptions, ReadingOptions

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import ExampleDataset, UserDataset
    from sfumato.voting import Tally, VotingResult
    from sfumato.voting.plan import VotingPlan
    from sfumato.voting.run import Ready


# Options of the votes: who votes, on which public examples, with which models, and who counts.


@dataclass(frozen=True, kw_only=True)
class VoteData(ClassOptions, ReadingOptions):
    """Who votes, and on what.

    Attributes:
        agents: the private records, one user an agent. They are a packed store, a folder of pictures
            (FOLDER/<agent>/<class>/<picture>), an npz with inputs, users and labels, or a table with --user.
        pool: the public examples to ask about. They are a folder of pictures (FOLDER/<class>/<picture>), MNIST's idx
            files, an npz or .npy files with x_train (or x), or a table. Its labels are used for measuring only.
        unlabelled: the pool has no labels: a folder of pictures, an npz or npy of inputs, or a table with --input.
        test: labelled public examples to measure the student on; without it, the test part that the pool comes with.
        size: bring pictures to this side, or to this height and width.
        channels: convert pictures to grey (1) or RGB (3).
    """

    agents: str | None = None
    pool: str | None = None
    unlabelled: bool = False
    test: str | None = None
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] | None = None


@dataclass(frozen=True, kw_only=True)
class VoteRun(FolderOptions):
    """The run.

    Attributes:
        dry_run: print the plan, its noise and its statement, without a vote.
        talliers: who counts, as host:port of each of 3, 5, … tallier processes (sfumato tally). Without it, this
            process counts; or a number of them, which are started here and ended afterwards.
        certificate: for talliers elsewhere: of the one who runs the vote, in PEM.
        key: of the certificate.
        authority: certificate of who signed those of all talliers.
        without_tls: speak in the clear beyond this machine, in a network that encrypts by itself.
        owner: print what the vote cost for the votes as they were cast, too: private, for your eyes only.
        threads: agents that vote side by side; None for as many as there are cores.
        device: where to train: cpu, cuda, or cuda:1.
    """

    talliers: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    without_tls: bool = False
    owner: bool = False
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class VoteBudget(BudgetOptions):
    """The budget; or say how much noise with --noise-std.

    Attributes:
        epsilon: the budget of the whole vote for one agent, or for one record with --level instance; the noise is
            calibrated to it. --delta goes with it.
    """


@dataclass(frozen=True, kw_only=True)
class AgentModel(ClassifierOptions):
    """The models.

    Attributes:
        student_model: of the student: a name like --model; the agents' own unless given.
        model_seed: public; the first weights of agents and student follow from it.
    """

    student_model: str | None = None
    model_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class FeatureModel:
    """The features, and the student.

    Attributes:
        features: pixels, hog or scattering; squeezenet with --pretrained; or package.module:factory, an importable
            class or function without arguments that gives a frozen torch module. They are public, and never trained on
            the agents' records.
        pretrained: public weights of the features' network.
        model: of a student that sees the examples themselves: a name like --model of sfumato vote ae. It is short for
            --student-inputs inputs --student-model NAME.
        student_model: of the student: linear, on the features; or with --student-inputs inputs a name like --model.
        model_seed: public; the first weights of the student follow from it.
    """

    features: str = "pixels"
    pretrained: Path | None = None
    model: str | None = None
    student_model: str = "linear"
    model_seed: int = 0


@dataclass(frozen=True)
class VoteParts:
    """What was read."""

    agents: UserDataset
    pool: ExampleDataset
    test: ExampleDataset | None


def read_vote(options: VoteData, *, quiet: bool) -> VoteParts:
    """Open agents, pool and test.

    Raises:
        InputError: one is missing, not understood, or has other classes than the agents.
    """
    from sfumato.data.files import MissingPart
    from sfumato.voting.public_pool import with_public_classes, with_shared_numbers

    if options.agents is None or options.pool is None:
        missing = "--agents" if options.agents is None else "--pool"
        what = "private records, one user an agent" if options.agents is None else "public examples to ask about"
        raise InputError(f"which {what}? give {missing} PATH")
    agents = options.declare(options.load(options.agents, options.size, options.channels))
    if options.unlabelled:
        pool = _opened(options.pool, options, targets=False)
    else:
        try:
            pool = _examples(options.pool, "train", options, agents)
        except MissingPart as error:
            raise InputError(f"{error}; where the pool has no labels, give --unlabelled") from None
    agents = with_public_classes(agents, pool)
    pool = with_shared_numbers(pool, agents, options.pool)
    try:
        test = None if options.test is None else _examples(options.test, "train", options, agents)
        if test is None and not options.unlabelled:
            test = _examples(options.pool, "test", options, agents)
    except MissingPart:
        test = None
    if not quiet:
        for line in agents.summary():
            print_line(f"agents: {line}")
        print_line(f"pool: {pool.summary()[0]}" + ("" if test is None else f"; {len(test):,} more to test on"))
    return VoteParts(agents, pool, test)


def _examples(path: str, part: Literal["train", "test"], options: VoteData, agents: UserDataset) -> ExampleDataset:
    from sfumato.voting.public_pool import with_shared_numbers

    names = None if agents.label_names is None or agents.found else list(agents.label_names)
    found = _opened(path, options, part=part, label_names=names, label=options.label)
    return found if agents.found else with_shared_numbers(found, agents, path)


def _opened(path: str, options: VoteData, **more: Any) -> ExampleDataset:
    from sfumato import data as datasets

    with bar("reading") as progress:
        return datasets.open_examples(
            path,
            size=options.size,
            channels=options.channels,
            on_error=options.on_error,
            keep=options.keep,
            input=options.input,
            folder=options.folder,
            progress=progress,
            **more,
        )


def public_shape(pool: ExampleDataset, classes: int) -> ExampleDataset:
    """The pool as what models are built from: its shapes, and an output for each class."""
    return replace(pool, targets=np.zeros(len(pool), np.int64), num_classes=classes, label_names=None)


# `sfumato tally`: one of the parties that count votes together and see none.


@dataclass(frozen=True, kw_only=True)
class TallyOptions(CommonOptions):
    """Count votes with other talliers. Each sees shares that reveal nothing; together they open the noisy answers.

    Attributes:
        index: which of the talliers this one is, from 1.
        talliers: HOST:PORT of all of them, an odd number of at least 3; the same list everywhere.
        out: folder of its key and of what it was asked; keep it, and let no one else read it.
        listen: the address of this machine that it takes connections at.
        certificate: of this tallier, in PEM, in the name of its host.
        key: of the certificate.
        authority: certificate of who signed those of all talliers and agents.
        without_tls: speak in the clear beyond this machine, in a network that encrypts by itself.
        wait: seconds that the other talliers may take to be there.
        once: end when the first client is gone, rather than serve until stopped.
        seed: for simulation: noise that anyone can repeat protects no one.
    """

    index: int
    talliers: tuple[str, ...]
    out: Path
    listen: str = "127.0.0.1"
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    without_tls: bool = False
    wait: float = 60.0
    once: bool = False
    seed: int | None = None


def tally(options: TallyOptions) -> Answer:
    """Serve until stopped."""
    from sfumato.voting.multi_party.messages import Credentials  # late: --help needs no NumPy
    from sfumato.voting.multi_party.tallier import Settings, serve

    credentials = Credentials(
        certificate=options.certificate,
        key=options.key,
        authority=options.authority,
        without_tls=options.without_tls,
    )
    settings = Settings(
        place=options.index,
        talliers=options.talliers,
        folder=options.out,
        listen=options.listen,
        credentials=credentials,
        wait=options.wait,
        once=options.once,
        seed=options.seed,
    )
    serve(settings, ready=(lambda line: None) if options.json else print_line)
    return Answer({"index": options.index, "talliers": options.talliers, "seeded": options.seed is not None})


# `sfumato vote ae` and `sfumato vote knn`: agents answer public queries under noise, and a student learns of them.


_OF_TALLIERS = ("talliers", "certificate", "key", "authority", "without_tls")
LINEAR = "linear"


@functools.cache
def options_of(name: str) -> Any:
    """The class of all options of a plan's command."""
    agents = name == "ae_dpfl"
    how = f"What is asked, how {'agents train' if agents else 'neighbours vote'}, and what the student does"
    return grouped(
        run=(VoteRun, "Where the run goes, and who counts."),
        data=(VoteData, "Who votes, and on what."),
        model=(AgentModel, "The models.") if agents else (FeatureModel, "The features, and the student."),
        budget=(VoteBudget, "How private the vote is: --epsilon (and --delta below), or --noise-std below."),
        plan=(ALGORITHMS[name].load(), f"{how}; questions and noise decide the guarantee."),
    )


def train(options: Any) -> Answer:
    """Run the command of a plan of the registry."""
    command = ALGORITHMS[options.plan.name].words
    run: VoteRun = options.run
    check_device(run.device)
    if run.threads is not None:
        torch.set_num_threads(max(1, run.threads))
    refuse_undecided(options)
    options = _with_student(options)
    out = free_folder(command.replace(" ", "-"), run)
    already = run.resume is not None and runs.RunFolder(out).has_ended()
    parts = read_vote(options.data, quiet=run.json)
    if isinstance(options.model, AgentModel):
        options = with_usual_model(options, parts.pool)
    plan = _resolved_plan(options, parts)
    how, student = _models(options, plan, parts)
    if run.dry_run:
        ready = plan.try_out(parts.agents, parts.pool, how, student=student, test=parts.test, device=run.device)
        return _dry_run(ready)
    line = None if run.json else start_line(out, command)
    with _tally(run, out) as tally, staged_bar(line, "agents") as progress:
        result = plan.fit(
            parts.agents,
            parts.pool,
            how,
            student=student,
            test=parts.test,
            out=out,
            resume=run.resume is not None,
            tally=tally,
            about=_about(options, parts),
            device=run.device,
            threads=run.threads,
            progress=progress,
        )
    if not result.finished:
        notify(f"stopped while agents voted; go on with: sfumato {command} --resume {out}")
        return STOPPED
    if not leads():
        return Answer()
    evaluation = evaluation_of(out)
    lines = _answers(result, evaluation, owner=run.owner)
    return outcome(out, result.statement, already=already, above=lines, evaluation=without_curves(evaluation))


def refuse_undecided(options: Any) -> None:
    """Refuse a vote whose privacy is not chosen, or chosen twice."""
    epsilon, noise = options.budget.epsilon, options.plan.noise_std
    if epsilon is None and noise is None:
        raise InputError(
            "choose how private the vote is: --epsilon 3 (calibrates the noise) or --noise-std 25 (noise on "
            "each count, in votes)"
        )
    if epsilon is not None and noise is not None:
        raise InputError("give --epsilon (the noise is calibrated to it) or --noise-std, not both")


def _with_student(options: Any) -> Any:
    """All options, with the student that --model of a vote by neighbours names."""
    chosen = options.model
    if not isinstance(chosen, FeatureModel) or chosen.model is None:
        return options
    if chosen.student_model not in (LINEAR, chosen.model):
        raise InputError(
            f"--model {chosen.model} and --student-model {chosen.student_model} both name the student; give one of them"
        )
    return replace(
        options,
        model=replace(chosen, student_model=chosen.model),
        plan=replace(options.plan, student_inputs="inputs"),
    )


def _resolved_plan(options: Any, parts: VoteParts) -> VotingPlan:
    from sfumato.voting.public_pool import different_examples

    plan, epsilon = options.plan, options.budget.epsilon
    plan = plan.with_attributes(parts.agents.num_classes if parts.agents.of_attributes else None)
    if "queries" not in options.run.chosen:
        plan = replace(plan, queries=min(plan.queries, len(different_examples(parts.pool.inputs[0]))))
    if epsilon is None:
        return plan
    return plan.calibrate(epsilon=epsilon, delta=plan.delta, population=plan.population_of(parts.agents))


def _models(options: Any, plan: VotingPlan, parts: VoteParts) -> tuple[Any, nn.Module]:
    """What every agent starts from, or the features; and the student."""
    from sfumato.data import to_tensor
    from sfumato.models import features_of

    chosen, quiet = options.model, options.run.json
    shape = public_shape(parts.pool, parts.agents.num_classes)
    seed = chosen.model_seed
    if plan.neighbours is None:
        model = build_classifier(chosen, shape, seed, load=True, quiet=quiet)
        if chosen.student_model is None:
            return model, build_classifier(chosen, shape, seed, load=True, quiet=True)
        student = ClassifierOptions(model=chosen.student_model)
        return model, build_classifier(student, shape, seed, load=True, quiet=quiet)
    how = public_features(chosen.features, chosen.pretrained, chosen.model_seed, flag="--pretrained")
    if options.plan.student_inputs == "inputs":
        named = ClassifierOptions(model="lenet5" if chosen.student_model == LINEAR else chosen.student_model)
        return how, build_classifier(named, shape, seed, load=True, quiet=quiet)
    if chosen.student_model != LINEAR:
        raise InputError(
            f"on features the student is linear, got --student-model {chosen.student_model}; add --student-inputs "
            "inputs for a model of the examples themselves"
        )
    (first,), _ = parts.pool.examples(range(1))
    width = features_of(how, to_tensor(first), device=options.run.device).shape[1]
    return how, _linear(width, parts.agents.num_classes)


def _linear(width: int, classes: int) -> nn.Module:
    """A linear model that begins at zero."""
    from torch import nn

    made = nn.Linear(width, classes)
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    return made


def _about(options: Any, parts: VoteParts) -> dict[str, Any]:
    """What plan.json states with the plan: enough to read the data and build the models again."""
    run: VoteRun = options.run
    return about_run(
        options.data,
        options.model,
        **{name: getattr(run, name) for name in _OF_TALLIERS},
        threads=run.threads,
        device=run.device,
        epsilon_wanted=options.budget.epsilon,
        classes=parts.agents.num_classes,
        outputs=parts.agents.num_classes,
        input_shapes=parts.pool.input_shapes,
        vocabulary_sizes=(),
    )


@contextmanager
def _tally(run: VoteRun, out: Path) -> Iterator[Tally]:
    from sfumato.voting import ClearTally

    if not run.talliers:
        yield ClearTally()
        return
    from sfumato.voting.multi_party.tally import MultiPartyTally  # late: it needs mpyc

    if len(run.talliers) == 1 and run.talliers[0].isdigit():
        folder = out.with_name(f"{out.name}-talliers")  # a vote that goes on finds them with their keys
        with MultiPartyTally.local(int(run.talliers[0]), folder=folder) as tally:
            yield tally
        if runs.RunFolder(out).has_ended():
            shutil.rmtree(folder)
        return
    yield MultiPartyTally(
        run.talliers,
        certificate=run.certificate,
        key=run.key,
        authority=run.authority,
        without_tls=run.without_tls,
    )


def _dry_run(ready: Ready) -> Answer:
    from sfumato.statement import make_statement
    from sfumato.voting import ClearTally
    from sfumato.voting.run import facts_of

    facts = facts_of(ready, ClearTally())
    statement = make_statement(ready.plan.event(), facts, noise_source="os" if ready.plan.seed is None else "seeded")
    return dry_run(ready.plan, statement, "no votes were cast and nothing was written")


def _answers(result: VotingResult, evaluation: dict[str, Any], *, owner: bool) -> Iterator[str | Table]:
    """What was answered, how good the student is, and what the run released of the cost of its answers."""
    answers = evaluation.get("answers", {})
    line = f"answers: {answers.get('answered', 0):,} of {len(result.queries):,} queries"
    known = {name: value for name, value in answers.items() if isinstance(value, float)}
    line += "".join(f", {name.replace('_', ' ')} {value:.4f}" for name, value in known.items())
    trivial = answers.get("baselines", {})
    reached = ", ".join(f"{name} {row['accuracy']:.4f}" for name, row in trivial.items())
    yield f"{line} (baselines: {reached})" if reached else line
    models = [name for name in ("untrained", "trained") if name in evaluation]
    from sfumato.training.monitoring import trouble

    if not models and (sentence := trouble(None, evaluation)):
        yield sentence
    if not models and result.model is not None:
        yield "no test data, so the student was not measured; give some (--test)"
    if models:
        keys = [name for name, value in evaluation[models[-1]].items() if isinstance(value, float)]
        rows = [
            [name, *(f"{evaluation[name][key]:.4f}" if key in evaluation[name] else "" for key in keys)]
            for name in models
        ]
        rows += baseline_rows(evaluation[models[-1]], keys)
        yield Table(["student", *(key.replace("_", " ") for key in keys)], rows)
    delta = result.statement.delta
    if result.published is not None:
        yield (
            f"released: at most epsilon {result.published.epsilon(delta):.4f} for the votes as they were cast, with "
            f"confidence {result.published.confidence:g}; a bound at this data set, not differential privacy"
        )
    if not owner:
        return
    try:
        cost = result.cost().epsilon(delta)
    except InputError as error:
        yield f"for the owner: {error}"
        return
    yield (
        f"for the owner, not private, never to be published: epsilon {cost.value:.4f} for the votes as they were cast "
        f"(the statement's holds for any votes: {result.statement.epsilon:.4f})"
    )
