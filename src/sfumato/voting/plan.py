"""AE-DPFL and kNN-DPFL as plans: from agents and a public pool to a vote that runs.

AE-DPFL: every agent trains a model of its own, and votes with it.

- **Unit.** An agent with all of its records; or one record, whose absence may change its agent's whole vote.
- **Sensitivity.** 1 for an agent that comes or goes, sqrt(2) where it is replaced, and sqrt(2) for one record under
  every adjacency: the model is trained anew without it. A soft vote is a distribution, so the same bounds hold.
- **What an agent's training may use.** Its own records, the public weights it starts from and the public pool. Nothing
  of another agent enters it, so its vote moves by its own records only.

>>> plan = AEDPFL(queries=500).calibrate(epsilon=3.0, delta=1e-3, population=200)
>>> round(plan.noise_std, 2)
23.19

References:
    Zhu, Yu, Tsai, Pittaluga, Faraki, Chandraker, Wang: Voting-based Approaches for Differentially Private Federated
    Learning. 2021, arXiv 2010.04851. Algorithm 1.

kNN-DPFL: an agent votes by the labels of its nearest records in a public feature space; nothing is trained.

- **Unit.** One record (the default), or an agent with all of its records.
- **Sensitivity.** sqrt(2)/k for one record: it makes way for one other neighbour, of one kind of label or another. For
  an agent 1, sqrt(2) where it is replaced. Both rest on features that are a fixed public function of one record, on
  ties that are broken by what records hold, and on distances that no other record can round in another way; see
  `voting.neighbours`. A vote is divided by k, however many records an agent has. Of attributes each
  record's row weighs tau at most, before rows are added up.

>>> KNNDPFL(neighbours=8, noise_std=25.0).answer_event().sensitivity("add_remove") * 8 == 2**0.5
True

References:
    Zhu et al. 2021, arXiv 2010.04851. Algorithm 2. Their cost of one record has k where the sensitivity gives k^2; a
    statement has the latter, and the printed one next to it.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from sfumato import _check
from sfumato._bar import Progress, silent
from sfumato._check import InputError, whole
from sfumato._lazy import torch
from sfumato._random import RandomSource
from sfumato._types import Algorithm, Assumption, Level, OptimizerName
from sfumato.voting.settings import VotingSettings

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import ExampleDataset, UserDataset
    from sfumato.guard import Findings
    from sfumato.ledger import Budget
    from sfumato.training.supervised import Supervised
    from sfumato.voting.neighbours import NeighbourVoter
    from sfumato.voting.question import Question
    from sfumato.voting.run import Voter, VotingResult
    from sfumato.voting.tally import Tally
    from sfumato.voting.trained import DANN, TrainedVoter


# From a plan, agents and a pool to a vote that runs; refuses what does not fit together before anything is written.


@dataclass(frozen=True, kw_only=True)
class VotingPlan(VotingSettings):
    """A way of voting that can run; it says how an agent votes."""

    def voter(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        queries: np.ndarray,
        how: Any,
        source: RandomSource,
        device: str,
    ) -> Voter:
        """Who makes the votes.

        Args:
            agents, pool, how, device: as for `fit`.
            queries: int64 [queries], positions in the pool.
            source: of the agents' own draws.

        Raises:
            InputError: `how` is of no use for these agents.
        """
        raise NotImplementedError

    def is_hard(self, agents: UserDataset) -> bool:
        """Whether every vote is for one class."""
        return False

    def lesson(self, examples: ExampleDataset, how: Any, device: str) -> ExampleDataset:
        """Public examples as the student sees them."""
        return examples

    def fit(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        how: Any,
        *,
        student: nn.Module | None = None,
        test: ExampleDataset | None = None,
        queries: Sequence[int] | np.ndarray | None = None,
        out: Path | str | None = None,
        resume: bool = False,
        tally: Tally | None = None,
        budget: Budget | None = None,
        about: dict[str, Any] | None = None,
        device: str = "cpu",
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> VotingResult:
        """Let all agents vote, open the answers, train the student.

        Args:
            agents: users, one an agent; labels are classes, or attributes (bool).
            pool: public examples of the agents' shape; labels, where it has some, are never trained on.
            how: AE-DPFL: the module that every agent's training starts from, with one output a class. kNN-DPFL: a name
                of `sfumato.models.FEATURES`, or a frozen module whose weights are public.
            student: what learns from the answers, one output a class; None for the answers alone.
            test: labelled public examples to measure the student on.
            queries: positions in the pool, instead of a choice by the plan.
            out: the run's folder; None keeps all in memory.
            resume: go on with the run in `out`.
            tally: who counts; None counts in this process.
            budget: what the run may cost.
            about: JSON for plan.json and the student's file; public.
            device: where to train.
            threads: agents that vote side by side; None for as many as there are cores.
            progress: receives what is in progress ("agents", "tally", "student"), how much is done, and of how much.

        Raises:
            InputError: a mistake in the plan, the data, the models or the folder; or the tally failed. Nothing is lost.
        """
        from sfumato.runs import Run, RunFolder, share_cores
        from sfumato.voting.run import Vote
        from sfumato.voting.tally import ClearTally

        begun = self if out is None else self.as_started(RunFolder(out).recorded(resume=resume))
        ready = begun._ready(agents, pool, how, student=student, test=test, queries=queries, device=device)
        if threads is not None:
            whole(threads=threads)
        counted = tally or ClearTally()
        recorded = {
            "queries_given": None if queries is None else ready.queries.tolist(),
            "tally": counted.to_json(),
            **(about or {}),
        }
        share_cores()
        plan = ready.plan
        record = {**plan.to_json(), "about": recorded}
        if resume and out is not None:
            RunFolder(out).refuse_another(record)
        with Run.open(out, plan=record, seed=plan.seed, resume=resume, budget=budget) as run:
            return Vote(
                plan=plan,
                agents=ready.agents,
                pool=ready.pool,
                queries=ready.queries,
                voter=plan.voter(ready.agents, ready.pool, ready.queries, how, run.source.within("agents"), device),
                question=ready.question,
                tally=counted,
                findings=ready.findings,
                student=student,
                lesson=ready.lesson,
                test=ready.test,
                about=about or {},
                device=device,
                threads=threads or torch.get_num_threads(),
                progress=progress or silent,
            ).go(run, resume=resume)

    def try_out(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        how: Any,
        *,
        student: nn.Module | None = None,
        test: ExampleDataset | None = None,
        device: str = "cpu",
    ) -> None:
        """Refuse what `fit` would refuse before anybody votes; the arguments are its own.

        Raises:
            InputError: as `fit`, for a mistake in the plan, the data or the models.
        """
        self._ready(agents, pool, how, student=student, test=test, queries=None, device=device)

    def _ready(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        how: Any,
        *,
        student: nn.Module | None,
        test: ExampleDataset | None,
        queries: Sequence[int] | np.ndarray | None,
        device: str,
    ) -> _Ready:
        """What fits together, before anything is written."""
        from sfumato.guard import try_out
        from sfumato.training.supervised import require_outputs
        from sfumato.voting.public_pool import with_public_classes, with_shared_numbers
        from sfumato.voting.run import Agents

        refuse_agents(agents, pool)
        agents = with_public_classes(agents, pool)
        pool = with_shared_numbers(pool, agents, "the pool")
        plan = self.with_attributes(agents.num_classes if agents.of_attributes else None)
        places = _queries(plan, pool, queries)
        hard = plan.is_hard(agents)
        question = plan.question(
            agents=len(agents), classes=agents.num_classes, units=plan.units(hard=hard), one_hot=hard
        )
        if test is not None:
            test = with_shared_numbers(test, agents, "the test")
            if test.input_shapes != pool.input_shapes:
                raise InputError(
                    f"the test has inputs {test.input_shapes[0]}, the pool {pool.input_shapes[0]}; bring them to one "
                    "shape"
                )
        lesson = pool if student is None else plan.lesson(pool, how, device)
        if student is not None:
            require_outputs(
                student, lesson, classes=agents.num_classes, whose="student", device=device, where="the pool"
            )
            test = None if test is None else plan.lesson(test, how, device)
        voter = plan.voter(agents, pool, places, how, RandomSource.from_os(), device)
        findings = try_out(Agents(voter), _tried(agents)).refuse()
        return _Ready(plan, agents, pool, places, question, findings, lesson, test)


@dataclass(frozen=True)
class _Ready:
    """What a vote begins with; all have the classes that are public."""

    plan: VotingPlan
    agents: UserDataset
    pool: ExampleDataset
    queries: np.ndarray
    question: Question
    findings: Findings
    lesson: ExampleDataset
    test: ExampleDataset | None


def _tried(agents: UserDataset) -> list[int]:
    """Agents that are tried: of different sizes and two of one size, where there are some with several classes."""
    order = np.argsort(agents.sizes, kind="stable")
    several = [int(agent) for agent in order if len(np.unique(agents.examples(int(agent))[1], axis=0)) > 1]
    found = several or order.tolist()
    places = {0, len(found) // 3, 2 * len(found) // 3, len(found) - 1}
    sizes = agents.sizes[found]
    same_size = (place + 1 for place in sorted(places)[:-1] if sizes[place] == sizes[place + 1])
    return [found[place] for place in sorted({*places, *islice(same_size, 1)})]


def _queries(plan: VotingSettings, pool: ExampleDataset, given: Sequence[int] | np.ndarray | None) -> np.ndarray:
    from sfumato.voting.public_pool import choose, refuse_duplicates

    if given is None:
        return choose(pool.inputs[0], plan.queries, plan.selection, plan.selection_seed)
    places = refuse_duplicates(given, len(pool))
    if len(places) != plan.queries:
        raise InputError(f"the plan has queries={plan.queries}, and {len(places)} were given; make them one number")
    return places


def refuse_agents(agents: UserDataset, pool: ExampleDataset) -> None:
    """Refuse agents that cannot vote on this pool, each in one line; warns of agents that know one class only."""
    from sfumato.data import ExampleDataset, UserDataset

    if not isinstance(agents, UserDataset):
        raise InputError(
            f"agents must be a data set of users, one an agent, got {type(agents).__name__}; make one with "
            "sfumato.data.from_arrays"
        )
    if not isinstance(pool, ExampleDataset):
        raise InputError(
            f"the pool must be single examples (ExampleDataset), got {type(pool).__name__}; make one with "
            "sfumato.data.examples_from_arrays"
        )
    if agents.of_values or (agents.of_sequences and not agents.of_attributes):
        raise InputError(f"agents vote for classes or attributes, got {agents}; ratings and texts have neither")
    found = " and ".join(f"{shape} {kind}" for shape, kind in zip(pool.input_shapes, pool.dtypes, strict=True))
    if len(pool.inputs) != 1 or pool.input_shapes[0] != agents.input_shape or pool.dtypes[0] != agents.dtype:
        raise InputError(
            f"the pool has inputs {found}, the agents {agents.input_shape} {agents.dtype}; bring them to one shape and "
            "type: size and channels of pictures, floats for numbers"
        )
    empty = np.flatnonzero(agents.sizes == 0)
    if len(empty):
        raise InputError(
            f"agent {agents.user_ids[int(empty[0])]!r} has no records, so it has nothing to vote by; leave it out"
        )
    alone = []
    for agent in range(len(agents)):
        inputs, labels = agents.examples(agent)
        _refuse_not_finite(inputs, f"agent {agents.user_ids[agent]!r}")
        if not agents.of_attributes and len(np.unique(labels)) == 1:
            alone.append(agent)
    if alone:
        warnings.warn(
            f"{len(alone)} of {len(agents)} agents have records of one class only, agent "
            f"{agents.user_ids[alone[0]]!r} for one, and will vote for it whatever is asked",
            stacklevel=2,
        )


def _refuse_not_finite(inputs: np.ndarray, whose: str) -> None:
    wrong = ~np.isfinite(inputs.reshape(len(inputs), -1)).all(axis=1)
    if wrong.any():
        raise InputError(
            f"{whose} has records with NaN or infinity, {int(wrong.sum())} of {len(inputs)}, the first at its place "
            f"{int(np.argmax(wrong))}; fill them in or leave them out"
        )


@dataclass(frozen=True, kw_only=True)
class AEDPFL(VotingPlan):
    """Fields in addition to those of `VotingPlan`.

    Attributes:
        votes: "hard", for the likeliest class; or "soft", the model's probabilities.
        epochs: passes of an agent over its records.
        batch_size: records a step.
        learning_rate: of an agent's optimiser.
        optimizer: an agent's torch optimiser.
        momentum: its momentum (Adam: first beta), in [0, 1).
        weight_decay: its weight decay.
        schedule: of the learning rate, "constant" or "cosine" down to zero.
        label_smoothing: the share of a label that goes to all classes evenly.
        adaptation_weight: weight of domain adaptation to the pool while an agent trains (DANN); None for none.
        adaptation_layer: name of the layer whose input are the features that adapt; None for the last linear one.
    """

    votes: Literal["hard", "soft"] = "hard"
    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 0.02
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    label_smoothing: float = 0.0
    adaptation_weight: float | None = None
    adaptation_layer: str | None = None

    name: ClassVar[str] = "ae_dpfl"
    title: ClassVar[str] = "AE-DPFL"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of(("hard", "soft"), votes=self.votes)
        _ = self.training, self.adaptation  # both check their fields

    @property
    def training(self) -> Supervised:
        """How an agent trains."""
        from sfumato.training.supervised import Supervised

        names = [each.name for each in dataclasses.fields(Supervised) if hasattr(self, each.name)]
        return Supervised(**{name: getattr(self, name) for name in names})

    @property
    def adaptation(self) -> DANN | None:
        """Domain adaptation to the pool while it trains; None for none."""
        from sfumato.voting.trained import DANN

        if self.adaptation_weight is not None:
            return DANN(weight=self.adaptation_weight, layer=self.adaptation_layer)
        if self.adaptation_layer is not None:
            raise InputError("adaptation_layer is for domain adaptation; give adaptation_weight, 1 for example")
        return None

    def assumptions(self) -> tuple[Assumption, ...]:
        return (Assumption("agents_alone"),)

    def is_hard(self, agents: UserDataset) -> bool:
        return self.votes == "hard" and not agents.of_attributes

    def voter(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        queries: np.ndarray,
        how: Any,
        source: RandomSource,
        device: str,
    ) -> TrainedVoter:
        from sfumato.training.supervised import require_outputs
        from sfumato.voting.trained import TrainedVoter

        require_outputs(how, pool, classes=agents.num_classes, whose="model", device=device, where="the pool")
        return TrainedVoter(
            agents,
            pool,
            queries,
            how,
            self.training,
            soft=self.votes == "soft",
            adaptation=self.adaptation,
            device=device,
            source=source,
        )


@dataclass(frozen=True, kw_only=True)
class KNNDPFL(VotingPlan):
    """Fields in addition to those of `VotingPlan`.

    Attributes:
        neighbours: k, how many records vote for an agent, >= 1.
        distance: "euclidean" or "cosine".
        few_records: "refuse" agents with fewer than k records, or let them vote with a "share": n/k of a vote.
        student_inputs: whether the student sees the "features" of an example or its "inputs".
    """

    level: Level = "instance"
    neighbours: int = 8  # pyright: ignore[reportIncompatibleMethodOverride]
    distance: Literal["euclidean", "cosine"] = "euclidean"
    few_records: Literal["refuse", "share"] = "refuse"
    student_inputs: Literal["features", "inputs"] = "features"

    name: ClassVar[str] = "knn_dpfl"
    title: ClassVar[str] = "kNN-DPFL"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.whole(neighbours=self.neighbours)
        _check.one_of(("euclidean", "cosine"), distance=self.distance)
        _check.one_of(("refuse", "share"), few_records=self.few_records)
        _check.one_of(("features", "inputs"), student_inputs=self.student_inputs)

    def assumptions(self) -> tuple[Assumption, ...]:
        return (Assumption("features_fixed"),)

    def units(self, *, hard: bool) -> int:
        from sfumato.voting.neighbours import ROW_LEVELS

        return super().units(hard=hard) if self.attributes is None else self.neighbours * ROW_LEVELS

    def voter(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        queries: np.ndarray,
        how: Any,
        source: RandomSource,
        device: str,
    ) -> NeighbourVoter:
        from sfumato.voting.neighbours import NeighbourVoter

        return NeighbourVoter(
            agents,
            pool.subset(queries),
            neighbours=self.neighbours,
            features=how,
            attributes=self.attributes,
            distance=self.distance,
            few_records=self.few_records,
            device=device,
        )

    def lesson(self, examples: ExampleDataset, how: Any, device: str) -> ExampleDataset:
        from sfumato.data import to_tensor
        from sfumato.models import features_of

        if self.student_inputs == "inputs":
            return examples
        (inputs,), _ = examples.examples(np.arange(len(examples)))
        return replace(examples, inputs=(features_of(how, to_tensor(inputs), device=device),))


ALGORITHMS = (
    Algorithm(
        name="ae_dpfl",
        package="sfumato.voting",
        plan="AEDPFL",
        records="agents",
        title="AE-DPFL",
        summary="agents that each train a model label public examples by a noisy vote; a student learns from it",
        about="Label public examples by the votes of agents, each with a model of its own (AE-DPFL). Train a student "
        "on the noisy answers. The agents' models and votes are never released.",
        example="sfumato vote ae --agents agents.npz --pool pool.npz --epsilon 3 --delta 1e-3 --dry-run",
        matters="agents pool epsilon queries talliers out resume dry_run model adaptation_weight",
        command="vote ae",
    ),
    Algorithm(
        name="knn_dpfl",
        package="sfumato.voting",
        plan="KNNDPFL",
        records="agents",
        title="kNN-DPFL",
        summary="agents label public examples by their nearest records under noise; a student learns from it",
        about="Label public examples by the votes of agents' nearest records in a public feature space (kNN-DPFL). "
        "Train a student on the noisy answers.",
        example="sfumato vote knn --agents agents.npz --pool pool.npz --features hog --epsilon 1 --dry-run",
        matters="agents pool epsilon queries talliers out resume dry_run features neighbours",
        command="vote knn",
    ),
)
