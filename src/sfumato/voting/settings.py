"""What both ways of voting share: the questions, the noise, who is protected, and what it costs.

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
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import Assumption, Level, OptimizerName, Unit

if TYPE_CHECKING:
    from sfumato.accounting import Event, NoisyVote, VoteCostRelease, VoteThreshold
    from sfumato.data import UserDataset
    from sfumato.runs import Alternative
    from sfumato.voting.question import Opens, Question
    from sfumato.voting.student import StudentTraining


_SOFT_UNITS = 1 << 12
"""Units of a vote that is any number in [0, 1]."""


_HARD_UNITS = 16
"""Units of a vote for one class, and at least of one by neighbours."""


_SMOOTHNESS = 0.2
"""Of the sensitivity that a published cost is scaled by, times the order."""


_QUIETER = 3.0
"""How many times the answer's noise the threshold's has, unless given: a threshold is one number and can bear more."""


@dataclass(frozen=True, kw_only=True)
class VotingSettings:
    """Fields of both plans.

    Attributes:
        queries: how many examples of the public pool are asked about.
        noise_std: standard deviation, in votes, of the noise on every count; None until it is set or calibrated.
        level: whom the statement protects: an "agent" with all records, or one record ("instance").
        adjacency: "add_remove" or "replace".
        opens: "label", or "counts": all noisy counts, which cost the same and teach a student more.
        attributes: for records of which several attributes can hold: the most that one vote may weigh, tau. None for
            all attributes there are; leave it out for classes.
        cut: for attributes: the share of all agents' votes from which on one holds, in (0, 1).
        threshold: answer a query only where its highest count, with noise of its own, reaches so many votes.
        threshold_noise_std: that noise; three times `noise_std` unless given.
        max_answers: with a threshold: answers that are paid for and given at most; all queries unless given.
        selection: which examples are asked about: "random", or "diverse" ones.
        selection_seed: public; decides which.
        publish_cost: also release what the answers cost for the votes as they were cast, with so much noise. It is a
            std in units of the smooth sensitivity; None does not release it.
        publish_order: order of the Renyi cost that is released, > 1.
        student_epochs: passes of the student over the answered queries.
        student_batch_size: queries a step of the student.
        student_learning_rate: of the student's optimiser; it falls to zero along a cosine.
        student_optimizer: the student's torch optimiser.
        student_momentum: its momentum (Adam: first beta), in [0, 1).
        student_weight_decay: its weight decay.
        student_method: "supervised" learns from the answers alone, "smooth" from the pool's other examples, too. With
            "smooth", the student's predictions shall be sure, and equal between neighbours (VAT).
        student_smoothness: smooth: weight of these two terms.
        student_radius: smooth: how far neighbours lie, as a share of the examples' distance from their mean.
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
    threshold: float | None = None
    threshold_noise_std: float | None = None
    max_answers: int | None = None
    selection: Literal["random", "diverse"] = "random"
    selection_seed: int = 0
    publish_cost: float | None = None
    publish_order: float = 20.0
    student_epochs: int = 60
    student_batch_size: int = 32
    student_learning_rate: float = 0.02
    student_optimizer: OptimizerName = "sgd"
    student_momentum: float = 0.9
    student_weight_decay: float = 0.0
    student_method: Literal["supervised", "smooth"] = "supervised"
    student_smoothness: float = 1.0
    student_radius: float = 0.3
    delta: float | None = None
    seed: int | None = None

    name: ClassVar[str] = "vote"
    title: ClassVar[str] = "vote"

    def __post_init__(self) -> None:
        _check.whole(queries=self.queries)
        _check.one_of(get_args(Level), level=self.level)
        _check.one_of(("add_remove", "replace"), adjacency=self.adjacency)
        _check.one_of(("label", "counts"), opens=self.opens)
        _check.one_of(("random", "diverse"), selection=self.selection)
        _check.between(0.0, 1.0, ends="()", cut=self.cut)
        if self.noise_std is not None:
            _check.positive(noise_std=self.noise_std, remedy="a vote without noise reveals its agents' votes")
        _check.whole(at_least=0, selection_seed=self.selection_seed)
        if self.attributes is not None:
            _check.whole(attributes=self.attributes)
        if self.delta is not None:
            _check.between(0.0, 1.0, ends="()", delta=self.delta)
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)
        _ = self.student_training, self.cost_event()  # both check their fields
        self._check_threshold()

    def _check_threshold(self) -> None:
        if self.threshold is None:
            for name in ("threshold_noise_std", "max_answers"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} is for a threshold; give one, or leave it out")
            return
        _check.positive(threshold=self.threshold)
        if self.opens != "label":
            raise InputError(f"a threshold is for opens=label, got {self.opens}; leave one of them out")
        if self.threshold_noise_std is not None:
            _check.positive(threshold_noise_std=self.threshold_noise_std)
        if self.max_answers is not None:
            _check.whole(max_answers=self.max_answers)
            if self.max_answers > self.queries:
                raise InputError(f"max_answers must be <= queries ({self.queries}), got {self.max_answers}")

    @property
    def neighbours(self) -> int | None:
        """k of a vote by nearest neighbours; None where an agent votes as a whole."""
        return None

    @property
    def student_training(self) -> StudentTraining:
        """How the student learns."""
        from sfumato.voting.student import StudentTraining

        return StudentTraining(
            epochs=self.student_epochs,
            batch_size=self.student_batch_size,
            learning_rate=self.student_learning_rate,
            optimizer=self.student_optimizer,
            momentum=self.student_momentum,
            weight_decay=self.student_weight_decay,
            method=self.student_method,
            smoothness=self.student_smoothness,
            radius=self.student_radius,
        )

    @property
    def answers(self) -> int:
        """How many answers are paid for."""
        return self.queries if self.max_answers is None else self.max_answers

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

        if self.publish_cost is None:
            return None
        _check.positive(publish_cost=self.publish_cost)
        _check.between(1.0, 1e6, ends="()", publish_order=self.publish_order)
        if self.opens == "counts" or self.threshold is not None or self.attributes is not None:
            raise InputError(
                "publish_cost is for the winner of every query: leave out opens=counts, threshold and attributes, or "
                "publish_cost"
            )
        beta = _SMOOTHNESS / self.publish_order
        return VoteCostRelease(beta, self.publish_cost, self.publish_cost, self.level, self.adjacency)

    def _event(self, level: Level) -> Event:
        from sfumato.accounting import NoisyVote, VoteThreshold

        vote = NoisyVote(self._noise, level, self.neighbours, self.attributes) * self.answers
        if self.threshold is None:
            return vote
        return VoteThreshold(self._threshold_noise, level, self.neighbours) * self.queries + vote

    def answer_event(self) -> NoisyVote:
        """What one answer costs."""
        from sfumato.accounting import NoisyVote

        return NoisyVote(self._noise, self.level, self.neighbours, self.attributes)

    def threshold_event(self) -> VoteThreshold | None:
        """What one comparison with the threshold costs; None without one."""
        from sfumato.accounting import VoteThreshold

        return None if self.threshold is None else VoteThreshold(self._threshold_noise, self.level, self.neighbours)

    def calibrate(self, *, epsilon: float, delta: float | None = None, population: int) -> Self:
        """A plan like this one whose noise meets (epsilon, delta) for one unit.

        Args:
            epsilon: of the whole vote, > 0.
            delta: in (0, 1); None for 0.01 / population.
            population: public number of units: of agents, or of all their records at instance level.

        Raises:
            InputError: no noise reaches the budget, for one because the threshold alone costs more.
        """
        from sfumato.accounting import calibrate as calibrate_event
        from sfumato.statement.verdict import default_delta

        _check.positive(epsilon=epsilon)
        _check.whole(population=population)
        chosen = default_delta(population) if delta is None else delta
        _check.between(0.0, 1.0, ends="()", delta=chosen)
        base = dataclasses.replace(self, delta=chosen)

        def event(noise_std: float) -> Event:
            return dataclasses.replace(base, noise_std=noise_std).event()

        noise = calibrate_event(event, epsilon=epsilon, delta=chosen, adjacency=self.adjacency)
        return dataclasses.replace(base, noise_std=noise)

    def as_started(self, recorded: Mapping[str, Any]) -> Self:
        """The plan with the noise of the run that goes on, if only the last digits of a calibration differ."""
        from sfumato.runs.folder import as_started

        return as_started(self, recorded, "noise_std", "threshold_noise_std")

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
        if self.threshold is not None or self.publish_cost is not None:
            raise InputError(
                "threshold and publish_cost are for classes; records with attributes have no single winner: leave them "
                "out"
            )
        if self.opens == "counts":
            raise InputError("opens=counts is for classes; of records with attributes leave it out")
        if self.attributes is not None and self.attributes > attributes:
            raise InputError(f"attributes must be <= {attributes}, as many as there are, got {self.attributes}")
        return dataclasses.replace(self, attributes=self.attributes or attributes)

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
            threshold=self.threshold,
            threshold_noise_std=None if self.threshold is None else self._threshold_noise,
            max_answers=None if self.threshold is None else self.answers,
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
        if self.threshold is None:
            return text
        return (
            f"{text} where the highest count reaches {self.threshold:g} votes under noise of "
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
        plain = self.attributes is None and self.threshold is None and self.publish_cost is None
        if plain and self.adjacency == "add_remove":
            printed = ZCDP(claimed_rho=self.answer_event().printed_rho() * self.answers)
            name = "as printed by Zhu et al. (2021), by Rényi accounting"
            found.append(Alternative(name=name, unit=self.unit, event=printed, method="rdp", whole=True))
        return tuple(found)

    def assumptions(self) -> tuple[Assumption, ...]:
        """Sentences that the guarantee of this way of voting rests on."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **dataclasses.asdict(self)}

    @property
    def _noise(self) -> float:
        if self.noise_std is None:
            raise InputError("noise_std is not set; give one, or call calibrate(epsilon=…, population=…)")
        return self.noise_std

    @property
    def _threshold_noise(self) -> float:
        return _QUIETER * self._noise if self.threshold_noise_std is None else self.threshold_noise_std
