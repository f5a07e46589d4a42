"""AE-DPFL and kNN-DPFL as plans: the questions, the noise, who is protected, what it costs, and how agents vote.

For each public query every agent casts one vote. The votes are added up, noise is added to every count, and the answer
is opened: one phase of one run, recorded before it happens and never asked again with fresh noise. A student that
learns from the answers alone costs nothing more.

- **Unit.** `level="agent"`: an agent with all of its records. `level="instance"`: one record of one agent.
- **Sensitivity.** As in `accounting.NoisyVote`; ballots are bounded where they are made (`voting.question`).
- **Sampling.** None: every agent is asked every query.
- **What depends on the data.** Neither the denominator (there is none: counts are compared, or a cut that is a share of
  the public number of agents) nor the number of answers that is paid for: with a threshold, `max_answers` are paid for
  whether so many are given or not.
- **An agent that is missing** is a ballot of nothing; whether one is missing is what the agent level hides.
- **Released** besides the student: the answers and which queries were asked. The agents' models are never released.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np

from sfumato import _check
from sfumato._bar import Progress, silent
from sfumato._check import InputError, whole
from sfumato._lazy import torch
from sfumato._parts import Kinds, changed, part, to_json
from sfumato._parts import plan as plan_of_parts
from sfumato._random import RandomSource
from sfumato._types import PLAN_FORMAT, Algorithm, Assumption, Level, Unit
from sfumato.training.supervised import FLAT, TRAININGS, Supervised
from sfumato.voting.adaptation import ADAPTATIONS, DANN
from sfumato.voting.student import STUDENTS, StudentTraining

if TYPE_CHECKING:
    from torch import nn

    from sfumato.accounting import Event, NoisyVote, VoteCostRelease, VoteThreshold
    from sfumato.data import ExampleDataset, UserDataset
    from sfumato.ledger import Budget
    from sfumato.runs import Alternative
    from sfumato.voting.neighbours import NeighbourVoter
    from sfumato.voting.question import Opens, Question
    from sfumato.voting.run import Ready, Voter, VotingResult
    from sfumato.voting.tally import Tally
    from sfumato.voting.trained import TrainedVoter

_SOFT_UNITS = 1 << 12
"""Units of a vote that is any number in [0, 1]."""


_HARD_UNITS = 16
"""Units of a vote for one class, and at least of one by neighbours."""


_SMOOTHNESS = 0.2
"""Of the sensitivity that a published cost is scaled by, times the order."""


_QUIETER = 3.0
"""How many times the answer's noise the threshold's has, unless given: a threshold is one number and can bear more."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """From how many votes on a query is answered (Confident-GNMax).

    Attributes:
        votes: answer a query only where its highest count, with noise of its own, reaches so many; None answers all.
        noise_std: standard deviation of that noise, in votes; None for three times that of the counts.
        answers: that are paid for and given at most; None for all queries.
    """

    votes: float | None = None
    noise_std: float | None = None
    answers: int | None = None

    def __post_init__(self) -> None:
        if self.votes is None:
            for name in ("noise_std", "answers"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} is for a threshold; give its votes, or leave it out")
            return
        _check.positive(votes=self.votes)
        if self.noise_std is not None:
            _check.positive(noise_std=self.noise_std)
        if self.answers is not None:
            whole(answers=self.answers)


@dataclass(frozen=True, kw_only=True)
class PublishedCost:
    """The release of what the answers cost for the votes as they were cast.

    Attributes:
        noise_std: of the release, in units of the cost's smooth sensitivity; None releases nothing.
        order: of the Rényi cost that is released, > 1.
    """

    noise_std: float | None = None
    order: float = 20.0

    def __post_init__(self) -> None:
        if self.noise_std is not None:
            _check.positive(noise_std=self.noise_std)
        _check.between(1.0, 1e6, ends="()", order=self.order)


THRESHOLDS = Kinds[Threshold]({"threshold": Threshold}, number="votes")
"""What is short for a threshold: its votes."""

PUBLISHED = Kinds[PublishedCost]({"publish_cost": PublishedCost}, number="noise_std")
"""What is short for the release of the cost: its noise."""


@plan_of_parts
class VotingPlan:
    """Fields of both plans.

    Attributes:
        queries: how many examples of the public pool are asked about. Without it, a command asks about 500, or about
            all that the pool has.
        noise_std: standard deviation, in votes, of the noise on every count; None until it is set or calibrated.
        level: whom the statement protects: an "agent" with all records, or one record ("instance").
        adjacency: "add_remove" or "replace".
        opens: "label", or "counts": all noisy counts, which cost the same and teach a student more.
        attributes: for records of which several attributes can hold: the most that one vote may weigh, tau. None for
            all attributes there are; leave it out for classes.
        cut: for attributes: the share of all agents' votes from which on one holds, in (0, 1).
        threshold: answer a query only where its highest count, with noise of its own, reaches so many votes.
        selection: which examples are asked about: "random", or "diverse" ones.
        selection_seed: public; decides which.
        publish_cost: also release what the answers cost for the votes as they were cast, with so much noise.
        student: how the student learns from the answers.
        delta: of the statement; None for 0.01 / units.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    queries: int = 500
    noise_std: float | None = None
    level: Level = "agent"
    adjacency: Literal["add_remove", "replace"] = "add_remove"
    opens: Literal["label", "counts"] = "label"
    attributes: int | None = None
    cut: float = 0.5
    threshold: Threshold = part(default=Threshold(), converter=THRESHOLDS)
    selection: Literal["random", "diverse"] = "random"
    selection_seed: int = 0
    publish_cost: PublishedCost = part(default=PublishedCost(), converter=PUBLISHED)
    student: StudentTraining = part(default=StudentTraining(), converter=STUDENTS)
    delta: float | None = None
    seed: int | None = None

    name: ClassVar[str] = "vote"
    title: ClassVar[str] = "vote"
    renamed: ClassVar[Mapping[str, str]] = {
        "threshold_noise_std": "threshold.noise_std",
        "max_answers": "threshold.answers",
        "publish_order": "publish_cost.order",
        **{f"student_{name}": f"student.{name}" for name in (*FLAT, "method", "smoothness", "radius")},
    }

    def __post_init__(self) -> None:
        whole(queries=self.queries)
        _check.one_of(get_args(Level), level=self.level)
        _check.one_of(("add_remove", "replace"), adjacency=self.adjacency)
        _check.one_of(("label", "counts"), opens=self.opens)
        _check.one_of(("random", "diverse"), selection=self.selection)
        _check.between(0.0, 1.0, ends="()", cut=self.cut)
        if self.noise_std is not None:
            _check.positive(noise_std=self.noise_std, remedy="a vote without noise reveals its agents' votes")
        whole(at_least=0, selection_seed=self.selection_seed)
        if self.attributes is not None:
            whole(attributes=self.attributes)
        if self.delta is not None:
            _check.between(0.0, 1.0, ends="()", delta=self.delta)
        if self.seed is not None:
            whole(at_least=0, seed=self.seed)
        if self.threshold.votes is not None and self.opens != "label":
            raise InputError(f"a threshold is for opens=label, got {self.opens}; leave one of them out")
        if self.answers > self.queries:
            raise InputError(f"threshold.answers must be <= queries ({self.queries}), got {self.answers}")
        self.student.refuse_loss("cross_entropy")
        self.cost_event()  # checks what it is released of

    @property
    def neighbours(self) -> int | None:
        """k of a vote by nearest neighbours; None where an agent votes as a whole."""
        return None

    @property
    def answers(self) -> int:
        """How many answers are paid for."""
        return self.threshold.answers or self.queries

    @property
    def unit(self) -> Unit:
        """Whom the statement protects."""
        return "agent" if self.level == "agent" else "example"

    def event(self) -> Event:
        """What the whole run costs one unit, whatever is answered.

        Raises:
            InputError: the noise is not set.
        """
        cost = self.cost_event()
        return self.answers_event() if cost is None else self.answers_event() + cost

    def answers_event(self) -> Event:
        """What all questions cost one unit, whatever is answered."""
        return self._event(self.level)

    def cost_event(self) -> VoteCostRelease | None:
        """What the release of the answers' cost costs; None where it is not released.

        Raises:
            InputError: that cost does not depend on the votes, or is not known.
        """
        from sfumato.accounting import VoteCostRelease

        noise = self.publish_cost.noise_std
        if noise is None:
            return None
        if self.opens == "counts" or self.threshold.votes is not None or self.attributes is not None:
            raise InputError(
                "publish_cost is for the winner of every query: leave out opens=counts, threshold and attributes, or "
                "publish_cost"
            )
        return VoteCostRelease(_SMOOTHNESS / self.publish_cost.order, noise, noise, self.level, self.adjacency)

    def _event(self, level: Level) -> Event:
        from sfumato.accounting import NoisyVote, VoteThreshold

        vote = NoisyVote(self._noise, level, self.neighbours, self.attributes) * self.answers
        if self.threshold.votes is None:
            return vote
        return VoteThreshold(self._threshold_noise, level, self.neighbours) * self.queries + vote

    def answer_event(self) -> NoisyVote:
        """What one answer costs."""
        from sfumato.accounting import NoisyVote

        return NoisyVote(self._noise, self.level, self.neighbours, self.attributes)

    def threshold_event(self) -> VoteThreshold | None:
        """What one comparison with the threshold costs; None without one."""
        from sfumato.accounting import VoteThreshold

        if self.threshold.votes is None:
            return None
        return VoteThreshold(self._threshold_noise, self.level, self.neighbours)

    def calibrate(self, *, epsilon: float, delta: float | None = None, population: int) -> Self:
        """A plan like this one whose noise meets (epsilon, delta) for one unit.

        Args:
            epsilon: of the whole vote, > 0.
            delta: in (0, 1); None for that of the plan, or 0.01 / population.
            population: public number of units: of agents, or of all their records at instance level.

        Raises:
            InputError: no noise reaches the budget, for one because the threshold alone costs more.
        """
        from sfumato.accounting import calibrate as calibrate_event

        _check.positive(epsilon=epsilon)
        _check.whole(population=population)
        chosen = self.delta_for(population) if delta is None else delta
        _check.between(0.0, 1.0, ends="()", delta=chosen)

        def event(noise_std: float) -> Event:
            return replace(self, noise_std=noise_std).event()

        noise = calibrate_event(event, epsilon=epsilon, delta=chosen, adjacency=self.adjacency)
        return replace(self, noise_std=noise, delta=chosen)

    def replace(self, **changes: Any) -> Self:
        """A plan like this one with some fields changed: plan.replace(threshold=30, student={"epochs": 20}).

        Raises:
            InputError: no such field, or a value of no use.
        """
        return changed(self, changes)

    def as_started(self, recorded: Mapping[str, Any]) -> Self:
        """The plan with the noise of the run that goes on, if only the last digits of a calibration differ."""
        from sfumato.runs.folder import as_started

        return as_started(self, recorded, "noise_std")

    def population_of(self, agents: UserDataset) -> int:
        """How many units there are: agents, or all of their records."""
        return len(agents) if self.level == "agent" else agents.num_examples

    def delta_for(self, population: int) -> float:
        """The chosen delta, or 0.01 / units."""
        from sfumato.statement.verdict import default_delta

        return default_delta(population) if self.delta is None else self.delta

    def with_attributes(self, attributes: int | None) -> Self:
        """The plan for records of so many attributes; None for classes.

        Raises:
            InputError: the plan is for the other kind of records, or for more attributes than there are.
        """
        if attributes is None:
            if self.attributes is not None:
                raise InputError(f"attributes={self.attributes} is for records with several; leave it out for classes")
            return self
        if self.threshold.votes is not None or self.publish_cost.noise_std is not None:
            raise InputError(
                "threshold and publish_cost are for classes; records with attributes have no single winner: leave them "
                "out"
            )
        if self.opens == "counts":
            raise InputError("opens=counts is for classes; of records with attributes leave it out")
        if self.attributes is not None and self.attributes > attributes:
            raise InputError(f"attributes must be <= {attributes}, as many as there are, got {self.attributes}")
        return replace(self, attributes=self.attributes or attributes)

    def units(self, *, hard: bool) -> int:
        """Lattice units of one whole vote, so that hard votes and those of neighbours are not rounded."""
        if self.neighbours is not None:
            return self.neighbours * -(-_HARD_UNITS // self.neighbours)
        return _HARD_UNITS if hard else _SOFT_UNITS

    def question(self, *, agents: int, classes: int, units: int, one_hot: bool) -> Question:
        """What the tally is asked, for so many agents.

        Raises:
            InputError: there are more classes than votes.
        """
        from sfumato.voting.question import Question

        if agents < 2:
            raise InputError("there is 1 agent, and no other votes among which its own could hide; ask more agents")
        if self.attributes is None and classes > agents:
            raise InputError(
                f"{classes} classes cannot be distinguished by {agents} votes under noise; ask more agents "
                "or for fewer classes"
            )
        several = self.attributes is not None
        opens: Opens = "attributes" if several and self.opens == "label" else self.opens
        return Question(
            queries=self.queries,
            classes=classes,
            agents=agents,
            units=units,
            opens=opens,
            noise_std=self._noise,
            threshold=self.threshold.votes,
            threshold_noise_std=None if self.threshold.votes is None else self._threshold_noise,
            max_answers=None if self.threshold.votes is None else self.answers,
            cut=self.cut * agents if opens == "attributes" else None,
            attributes=self.attributes,
            one_hot=one_hot,
        )

    def describe(self) -> str:
        """The mechanism, a text."""
        what = {"label": "the winner of each is released", "counts": "all noisy counts are released"}[self.opens]
        if self.attributes is not None and self.opens == "label":
            what = f"attributes at or above the cut are released, a vote weighing {self.attributes} of them at most"
        text = f"{self.title}: {self.queries} queries, Gaussian noise of {self._noise:.6g} votes on each count; {what}"
        if self.threshold.votes is None:
            return text
        return (
            f"{text} where the highest count reaches {self.threshold.votes:g} votes under noise of "
            f"{self._threshold_noise:.6g}, {self.answers} answers at most"
        )

    def alternatives(self) -> tuple[Alternative, ...]:
        """The same vote under other conventions."""
        from sfumato.accounting import ZCDP
        from sfumato.runs import Alternative

        other: Level = "instance" if self.level == "agent" else "agent"
        whom: Unit = "example" if other == "instance" else "agent"
        words = "one record of an agent" if other == "instance" else "an agent with all of its records"
        found = [Alternative(name=f"neighbours differ in {words}", unit=whom, event=self._event(other))]
        plain = self.attributes is None and self.threshold.votes is None and self.publish_cost.noise_std is None
        if plain and self.adjacency == "add_remove":
            printed = ZCDP(claimed_rho=self.answer_event().printed_rho() * self.answers)
            name = "as printed by Zhu et al. (2021), by Rényi accounting"
            found.append(Alternative(name=name, unit=self.unit, event=printed, method="rdp", whole=True))
        return tuple(found)

    def assumptions(self) -> tuple[Assumption, ...]:
        """Sentences that the guarantee of this way of voting rests on."""
        return ()

    def voter(self, ready: Ready, source: RandomSource) -> Voter:
        """Who makes the votes.

        Args:
            ready: what is asked of whom.
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
        from sfumato.voting.run import ready_to_vote, vote
        from sfumato.voting.tally import ClearTally

        begun = self if out is None else self.as_started(RunFolder(out).recorded(resume=resume))
        ready = ready_to_vote(begun, agents, pool, how, student=student, test=test, queries=queries, device=device)
        if threads is not None:
            whole(threads=threads)
        counted = tally or ClearTally()
        recorded = {
            "queries_given": None if queries is None else ready.queries.tolist(),
            "tally": counted.to_json(),
            **(about or {}),
        }
        share_cores()
        record = {**ready.plan.to_json(), "about": recorded}
        if resume and out is not None:
            RunFolder(out).refuse_another(record)
        with Run.open(out, plan=record, seed=self.seed, resume=resume, budget=budget) as run:
            return vote(
                ready,
                run,
                tally=counted,
                about=about or {},
                threads=threads or torch.get_num_threads(),
                progress=progress or silent,
                resume=resume,
            )

    def try_out(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        how: Any,
        *,
        student: nn.Module | None = None,
        test: ExampleDataset | None = None,
        device: str = "cpu",
    ) -> Ready:
        """What a vote would begin with; refuses what `fit` would refuse before anybody votes, whose arguments it has.

        Raises:
            InputError: as `fit`, for a mistake in the plan, the data or the models.
        """
        from sfumato.voting.run import ready_to_vote

        return ready_to_vote(self, agents, pool, how, student=student, test=test, queries=None, device=device)

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name; parts with their own fields."""
        return {"plan": self.name, "format": PLAN_FORMAT, **to_json(self)}

    @property
    def _noise(self) -> float:
        if self.noise_std is None:
            raise InputError("noise_std is not set; give one, or call calibrate(epsilon=…, population=…)")
        return self.noise_std

    @property
    def _threshold_noise(self) -> float:
        return self.threshold.noise_std or _QUIETER * self._noise


@plan_of_parts
class AEDPFL(VotingPlan):
    """Fields in addition to those of `VotingPlan`.

    Attributes:
        votes: "hard", for the likeliest class; or "soft", the model's probabilities.
        training: of an agent's model on its own records.
        adaptation: of the features to the pool while an agent trains; its weight, or None for none.
    """

    votes: Literal["hard", "soft"] = "hard"
    training: Supervised = part(default=Supervised(), converter=TRAININGS)
    adaptation: DANN = part(default=DANN(weight=None), converter=ADAPTATIONS)

    name: ClassVar[str] = "ae_dpfl"
    title: ClassVar[str] = "AE-DPFL"
    renamed: ClassVar[Mapping[str, str]] = {
        **VotingPlan.renamed,
        **{name: f"training.{name}" for name in (*FLAT, "label_smoothing")},
        "adaptation_weight": "adaptation",
        "adaptation_layer": "adaptation.layer",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of(("hard", "soft"), votes=self.votes)
        self.training.refuse_loss("cross_entropy")

    def assumptions(self) -> tuple[Assumption, ...]:
        return (Assumption("agents_alone"),)

    def is_hard(self, agents: UserDataset) -> bool:
        return self.votes == "hard" and not agents.of_attributes

    def voter(self, ready: Ready, source: RandomSource) -> TrainedVoter:
        from sfumato.training.supervised import require_outputs
        from sfumato.voting.trained import TrainedVoter

        agents, pool, model, device = ready.agents, ready.pool, ready.how, ready.device
        require_outputs(model, pool, classes=agents.num_classes, whose="model", device=device, where="the pool")
        return TrainedVoter(
            agents,
            pool,
            ready.queries,
            model,
            self.training,
            soft=self.votes == "soft",
            adaptation=self.adaptation,
            device=device,
            source=source,
        )


@plan_of_parts
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
        whole(neighbours=self.neighbours)
        _check.one_of(("euclidean", "cosine"), distance=self.distance)
        _check.one_of(("refuse", "share"), few_records=self.few_records)
        _check.one_of(("features", "inputs"), student_inputs=self.student_inputs)

    def assumptions(self) -> tuple[Assumption, ...]:
        return (Assumption("features_fixed"),)

    def units(self, *, hard: bool) -> int:
        from sfumato.voting.neighbours import ROW_LEVELS

        return super().units(hard=hard) if self.attributes is None else self.neighbours * ROW_LEVELS

    def voter(self, ready: Ready, source: RandomSource) -> NeighbourVoter:
        from sfumato.voting.neighbours import NeighbourVoter

        return NeighbourVoter(
            ready.agents,
            ready.pool.subset(ready.queries),
            neighbours=self.neighbours,
            features=ready.how,
            attributes=self.attributes,
            distance=self.distance,
            few_records=self.few_records,
            device=ready.device,
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
        matters="agents pool epsilon queries talliers out resume dry_run model adaptation",
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
