"""Options of the votes: who votes, on which public examples, with which models, and who counts."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from sfumato import data as datasets
from sfumato._check import InputError
from sfumato.cli.console import bar, say
from sfumato.cli.options.classes import ClassOptions
from sfumato.cli.options.classifiers import ClassifierOptions
from sfumato.cli.options.training import BudgetOptions
from sfumato.cli.options.users import ReadingOptions
from sfumato.cli.parse import CommonOptions
from sfumato.data import ExampleDataset, UserDataset
from sfumato.data.readers.part import MissingPart
from sfumato.voting.classes import numbered_alike, with_public_classes
from sfumato.voting.fit import VotingPlan

P = TypeVar("P", bound=VotingPlan)


@dataclass(frozen=True, kw_only=True)
class VoteData(ClassOptions, ReadingOptions):
    """Who votes, and on what.

    Attributes:
        agents: the private records, one user an agent: a packed store, a folder of pictures
            (FOLDER/<agent>/<class>/<picture>), an npz with inputs, users and labels, or a table with --user.
        pool: the public examples to ask about: a folder of pictures (FOLDER/<class>/<picture>), MNIST's idx files, an
            npz or a folder of .npy with x_train (or x), or a table. Its labels are used for measuring only.
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
class VoteRun(CommonOptions):
    """The run.

    Attributes:
        out: folder of the run; it must be new or empty. Without it, the next free one of runs/vote-ae-1 (vote-knn-1),
            -2, …
        resume: go on with the run in this folder; everything else is read from its plan.json.
        dry_run: print the plan, its noise and its statement; nobody votes.
        talliers: who counts, as host:port of each of 3, 5, … tallier processes (sfumato tally). Without it, this
            process counts; or a number of them, which are started here and ended afterwards.
        certificate: for talliers elsewhere: of whoever runs the vote, in PEM.
        key: of the certificate.
        authority: certificate of who signed those of all talliers.
        without_tls: speak in the clear beyond this machine, in a network that encrypts by itself.
        owner: print what the vote cost for the votes as they were cast, too: private, for your eyes only.
        threads: agents that vote side by side; None for as many as there are cores.
        device: where to train: cpu, cuda, or cuda:1.
    """

    out: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    talliers: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    without_tls: bool = False
    owner: bool = False
    threads: int | None = None
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class VoteBudget(BudgetOptions):
    """The budget; or say how much noise with --noise-std.

    Attributes:
        epsilon: the budget of the whole vote for one agent, or for one record with --level instance; the noise is
            calibrated to it. Beside it, --delta.
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
        student_model: of the student: linear, on the features; or with --student-inputs inputs a name like --model of
            sfumato vote ae.
        model_seed: public; the first weights of the student follow from it.
    """

    features: str = "pixels"
    pretrained: Path | None = None
    student_model: str = "linear"
    model_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class AgentVote(Generic[P]):
    """Options of a vote by agents that train.

    Attributes:
        run: Where the run goes, and who counts.
        data: Who votes, and on what.
        model: The models.
        budget: How private the vote is: --epsilon (and --delta below), or --noise-std below.
        plan: What is asked, how agents train, and what the student does; questions and noise decide the guarantee.
    """

    run: VoteRun
    data: VoteData
    model: AgentModel
    budget: VoteBudget
    plan: P


@dataclass(frozen=True, kw_only=True)
class NeighbourVote(Generic[P]):
    """Options of a vote by nearest neighbours.

    Attributes:
        run: Where the run goes, and who counts.
        data: Who votes, and on what.
        model: The features, and the student.
        budget: How private the vote is: --epsilon (and --delta below), or --noise-std below.
        plan: What is asked, how neighbours vote, and what the student does; questions and noise decide the guarantee.
    """

    run: VoteRun
    data: VoteData
    model: FeatureModel
    budget: VoteBudget
    plan: P


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
    if options.agents is None or options.pool is None:
        missing = "--agents" if options.agents is None else "--pool"
        what = "private records, one user an agent" if options.agents is None else "public examples to ask about"
        raise InputError(f"which {what}? give {missing} PATH")
    agents = options.declare(options.load(options.agents, options.size, options.channels))
    pool = (
        _without_labels(options.pool, options)
        if options.unlabelled
        else _examples(options.pool, "train", options, agents)
    )
    agents = with_public_classes(agents, pool)
    pool = numbered_alike(pool, agents, options.pool)
    try:
        test = None if options.test is None else _examples(options.test, "train", options, agents)
        if test is None and not options.unlabelled:
            test = _examples(options.pool, "test", options, agents)
    except MissingPart:
        test = None
    if not quiet:
        for line in agents.summary():
            say(f"agents: {line}")
        say(f"pool: {pool.summary()[0]}" + ("" if test is None else f"; {len(test):,} more to test on"))
    return VoteParts(agents, pool, test)


def _examples(path: str, part: Literal["train", "test"], options: VoteData, agents: UserDataset) -> ExampleDataset:
    names = None if agents.label_names is None or agents.found else list(agents.label_names)
    with bar("reading") as progress:
        found = datasets.load_examples(
            path,
            part,
            size=options.size,
            channels=options.channels,
            on_error=options.on_error,
            label_values=names,
            input=options.input,
            label=options.label,
            folder=options.folder,
            progress=progress,
        )
    return found if agents.found else numbered_alike(found, agents, path)


def _without_labels(path: str, options: VoteData) -> ExampleDataset:
    with bar("reading") as progress:
        return datasets.unlabelled(
            path,
            size=options.size,
            channels=options.channels,
            on_error=options.on_error,
            input=options.input,
            folder=options.folder,
            progress=progress,
        )


def public_shape(pool: ExampleDataset, classes: int) -> ExampleDataset:
    """The pool as what models are built from: its shapes, and an output for each class."""
    return replace(pool, targets=np.zeros(len(pool), np.int64), num_classes=classes, label_names=None)


def sources(kind: type[Any]) -> Any:
    """The class of all options for a plan."""
    return AgentVote[kind] if kind.name == "ae_dpfl" else NeighbourVote[kind]  # type: ignore[valid-type]
