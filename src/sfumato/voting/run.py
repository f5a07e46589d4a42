"""The run of one vote: every agent's ballot, the tally as one phase of a run, and a student.

A `Voter` makes an agent's votes on the public queries from its own records alone.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._bar import Progress
from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.data import ExampleDataset, UserDataset
from sfumato.guard import Coupled, Findings, try_out
from sfumato.guard.guard import at, histories
from sfumato.guard.trial import Tolerance
from sfumato.metrics.baselines import CONSTANT, RANDOM, compared, mean_gain
from sfumato.metrics.classification import f1
from sfumato.runs import Checkpoint, Run
from sfumato.runs.checkpoint import digest
from sfumato.statement import Facts, Statement
from sfumato.statement.sentences import render
from sfumato.training.monitoring import trouble
from sfumato.training.supervised import measure, require_outputs
from sfumato.training.trainable import copied
from sfumato.voting.data_dependent import (
    DataDependentCost,
    ReleasedCost,
    VoteSensitivity,
    release_cost,
    threshold_cost,
    vote_cost,
)
from sfumato.voting.public_pool import positions_of, refuse_agents, with_public_classes, with_shared_numbers
from sfumato.voting.question import Added, Answers, Question, ballot_of
from sfumato.voting.student import train_student
from sfumato.voting.tally import Tally

if TYPE_CHECKING:
    from sfumato.voting.plan import VotingPlan


class Voter(Protocol):
    """Makes the vote of one agent at a time; agents do not see each other's records or votes."""

    def votes(self, agent: int) -> np.ndarray:
        """One agent's votes.

        Args:
            agent: its position among the agents.

        Returns:
            float [queries, classes], >= 0: a row adds up to at most 1. For several attributes: each in [0, 1].

        Raises:
            InputError: the agent's records are of no use; names the agent.
        """
        ...

    def trial(self, agent: int | None) -> np.ndarray:
        """What the user's module makes of one agent's records in a brief trial, before it becomes a vote.

        Args:
            agent: its position; None for public rows or placeholders in the place of an agent's records.

        Returns:
            float [k], the same k for all agents.
        """
        ...

    def fingerprint(self) -> str:
        """Digest of everything else that decides the votes: not the agents' records, the queries and the settings."""
        ...


class Agents:
    """The guard's `Subject` of a vote: each agent's brief trial is its own.

    Args:
        voter: makes the votes.
    """

    state_message = (
        "what an agent gives depends on which agents came before; let forward depend on its inputs and the weights "
        "alone, and keep no state"
    )
    tolerance: Tolerance | None = None

    def __init__(self, voter: Voter) -> None:
        self._voter = voter

    def placeholders(self) -> None:
        """An agent of public rows or placeholders."""
        self._voter.trial(None)

    def outcomes(self, units: Sequence[int]) -> Tensor:
        """Trials of agents in turn, float64 [n, k]."""
        found = []
        for unit in units:
            at(unit)
            found.append(torch.from_numpy(self._voter.trial(unit)).double())
        at(None)
        return torch.stack(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ready:
    """What a vote begins with, checked; agents, pool and test have the classes that are public.

    Attributes:
        plan: for the attributes of these records; its noise is set.
        agents: who votes, each with records of its own.
        pool: the public examples; what they are labelled as is used for measuring only.
        how: what agents vote by: a module, or public features.
        queries: int64 [queries], positions in the pool.
        question: what the tally is asked.
        student: the module to train on the answers, or None.
        lesson: the pool as the student sees it.
        test: labelled public examples, as the student sees them, to measure it on, or None.
        device: where agents and student train.
        findings: of the guard, about how agents vote; None until they are tried.
    """

    plan: VotingPlan
    agents: UserDataset
    pool: ExampleDataset
    how: Any
    queries: np.ndarray
    question: Question
    student: nn.Module | None
    lesson: ExampleDataset
    test: ExampleDataset | None
    device: str
    findings: Findings | None = None


def ready_to_vote(
    plan: VotingPlan,
    agents: UserDataset,
    pool: ExampleDataset,
    how: Any,
    *,
    student: nn.Module | None,
    test: ExampleDataset | None,
    queries: Sequence[int] | np.ndarray | None,
    device: str,
) -> Ready:
    """What fits together, before anything is written; the arguments are those of `VotingPlan.fit`.

    Raises:
        InputError: a mistake in the plan, the data or the models; or, by the guard, a module through which one agent's
            records change another agent's vote.
    """
    refuse_agents(agents, pool)
    agents = with_public_classes(agents, pool)
    pool = with_shared_numbers(pool, agents, "the pool")
    plan = plan.with_attributes(agents.num_classes if agents.of_attributes else None)
    places = positions_of(queries, pool, plan.queries, plan.selection, plan.selection_seed)
    hard = plan.is_hard(agents)
    question = plan.question(agents=len(agents), classes=agents.num_classes, units=plan.units(hard=hard), one_hot=hard)
    if test is not None:
        test = with_shared_numbers(test, agents, "the test")
        if test.input_shapes != pool.input_shapes:
            raise InputError(
                f"the test has inputs {test.input_shapes[0]}, the pool {pool.input_shapes[0]}; bring them to one shape"
            )
    lesson = pool
    if student is not None:
        lesson = plan.lesson(pool, how, device)
        require_outputs(student, lesson, classes=agents.num_classes, whose="student", device=device, where="the pool")
        test = None if test is None else plan.lesson(test, how, device)
    ready = Ready(
        plan=plan,
        agents=agents,
        pool=pool,
        how=how,
        queries=places,
        question=question,
        student=student,
        lesson=lesson,
        test=test,
        device=device,
    )
    voter = plan.voter(ready, RandomSource.from_os())
    return replace(ready, findings=try_out(Agents(voter), _tried_agents(agents)).refuse())


def _tried_agents(agents: UserDataset) -> list[int]:
    """Agents that are tried: of different sizes and two of one size, where there are some with several classes."""
    order = np.argsort(agents.sizes, kind="stable")
    several = [int(agent) for agent in order if len(np.unique(agents.examples(int(agent))[1], axis=0)) > 1]
    found = several or order.tolist()
    places = {0, len(found) // 3, 2 * len(found) // 3, len(found) - 1}
    sizes = agents.sizes[found]
    same_size = (place + 1 for place in sorted(places)[:-1] if sizes[place] == sizes[place + 1])
    return [found[place] for place in sorted({*places, *islice(same_size, 1)})]


# How good the answers and the student are, on public examples with labels.
#
# Nothing here is private: the answers are released, the student follows from them, and pool and test are public.


_WELL_AHEAD = 0.25  # share of the agents


def measured(ready: Ready, answers: Answers, student: nn.Module | None) -> dict[str, Any]:
    """Rows for evaluation.json: "answers", and of the student "untrained" and "trained".

    Args:
        ready: its pool's targets are the truth that answers are compared with, where it has some.
        answers: what was opened.
        student: as it was trained.
    """
    found: dict[str, Any] = {"answers": _of_answers(answers, ready.pool, ready.queries, ready.question.classes)}
    if ready.test is not None and ready.test.targets is not None:
        for name, model in (("untrained", ready.student), ("trained", student)):
            if model is not None:
                found[name] = measure(model, ready.test, device=ready.device)
    judged = "trained" if "trained" in found else "answers"
    found[judged] |= _likely_cause(ready, found)
    return found


def _likely_cause(ready: Ready, evaluation: dict[str, Any]) -> dict[str, str]:
    """Where the student, or the answers where no student was measured, are no better than a baseline: what to change.

    Noise on the difference of two counts is compared with the agents: a winner that a quarter of them is ahead with is
    rare among several classes.
    """
    if not trouble(None, evaluation):
        return {}
    answers, agents = evaluation["answers"], ready.question.agents
    noise = ready.question.noise_std
    if noise * 2**0.5 > agents * _WELL_AHEAD:
        cause = (
            f"noise of {noise:.3g} votes on each count of {agents:,}. Raise ε, ask fewer queries, or find more agents."
        )
    elif "baselines" in answers and not trouble(None, {"trained": answers}):
        cause = f"the student's training on {answers['answered']:,} answers. Ask more queries, or train longer."
    else:
        cause = "agents that know too little. Give each more records, another training, or better public features."
    return {"likely_cause": f"Likeliest cause: {cause}"}


def _of_answers(answers: Answers, pool: ExampleDataset, queries: np.ndarray, classes: int) -> dict[str, Any]:
    row: dict[str, Any] = {"queries": len(queries), "answered": int(answers.answered.sum())}
    if pool.targets is None or not answers.answered.any():
        return row
    truth = np.asarray(pool.targets)[queries]
    if truth.ndim == 2:
        if answers.labels is not None:
            row["micro_f1"] = f1(truth > 0, answers.labels)[0]
        return row
    found = answers.labels if answers.labels is not None else answers.counts.argmax(axis=1)  # pyright: ignore[reportOptionalMemberAccess]
    right, held = (found == truth)[answers.answered], truth[answers.answered]
    row["accuracy"] = float(right.mean())
    row["baselines"] = _baselines(right, held, classes)
    return row


def _baselines(right: np.ndarray, truth: np.ndarray, classes: int) -> dict[str, Any]:
    """What random answers and the most frequent class would get right of the queries that were answered."""
    most = truth == np.bincount(truth).argmax()
    return {
        name: compared({"accuracy": float(other.mean())}, {"accuracy": mean_gain(right - other)})
        for name, other in ((RANDOM, np.full(len(truth), 1 / classes)), (CONSTANT, most.astype(float)))
    }


# What a vote leaves, and what it cost on the votes that were cast, for the eyes of their owner.


@dataclass(frozen=True, eq=False)
class VotingResult:
    """What a vote leaves.

    Attributes:
        statement: what it cost whom.
        queries: int64 [queries], their positions in the pool; public.
        folder: the run's, or None.
        answers: what was opened for each of them; None where the run was stopped before.
        model: the student, in evaluation mode; None where none was trained.
        evaluation: of the answers and of the student, where the pool or a test has labels.
        finished: False if the run was asked to stop before its end.
        published: what the vote cost for the votes as they were cast, where the plan released it.
    """

    statement: Statement
    queries: np.ndarray
    folder: Path | None
    answers: Answers | None = None
    model: nn.Module | None = None
    evaluation: dict[str, Any] = field(default_factory=dict)
    finished: bool = False
    published: ReleasedCost | None = None
    _plan: VotingPlan = field(repr=False, kw_only=True)
    _added: Added = field(repr=False, kw_only=True)
    _sums: np.ndarray | None = field(default=None, repr=False)

    @property
    def trouble(self) -> str:
        """Why the student is of no use, a sentence; "" where nothing speaks against it. It follows the test data."""
        return trouble(None, self.evaluation)

    def cost(self) -> DataDependentCost:
        """What the vote cost for the votes as they were cast: private itself, and never a statement's epsilon.

        Raises:
            InputError: the votes are no longer known, or all noisy counts were opened, whose cost is the same for all
                votes.
            Unknown: votes for several attributes have no such cost.
        """
        return cost_of(self._plan, self._sums, self.answers, self._added)


def cost_of(plan: VotingPlan, sums: np.ndarray | None, answers: Answers | None, added: Added) -> DataDependentCost:
    """The data-dependent cost of a vote.

    Args:
        plan: that ran.
        sums: float [queries, classes], the counts in votes before noise; private.
        answers: what was opened.
        added: the noise in it.

    Raises:
        InputError: as for `VotingResult.cost`.
    """
    if sums is None or answers is None:
        raise InputError(
            "the votes are known only to the process that counted them, and are deleted when the run ends; ask the "
            "result of the first fit"
        )
    if plan.opens == "counts":
        raise InputError("all noisy counts were opened, which costs the same for all votes; read the statement")
    threshold = plan.threshold_event()
    if threshold is None:
        return vote_cost(sums, plan.answer_event(), plan.adjacency, noise_std=added.counts, step=added.step)
    assert plan.threshold.votes is not None
    asked = threshold_cost(
        sums, plan.threshold.votes, threshold, plan.adjacency, noise_std=added.threshold, step=added.step
    )
    if not answers.answered.any():
        return asked
    return asked + vote_cost(
        sums[answers.answered], plan.answer_event(), plan.adjacency, noise_std=added.counts, step=added.step
    )


# Publishing what a vote cost on the votes that were cast: a second release of the run, with noise and a cost.
#
# - **Unit, sensitivity.** Those of the votes; the noise follows the smooth sensitivity of the cost
#   (`voting.data_dependent`), which is computed from the votes and released with noise, too.
# - **What may be claimed.** A bound at this data set and with a stated confidence, not differential privacy: it stands
#   among a statement's alternatives. The statement's own epsilon counts this release.
# - **Order.** Chosen with the plan, before anybody votes.


PUBLISHING = "cost of votes"
"""What the ledger calls this release."""


_CONFIDENCE = 0.95
_NUMBERS = ("noisy_cost", "noisy_log_sensitivity", "cost_upper", "release_cost", "worst")


def publish(run: Run, plan: VotingPlan, sums: np.ndarray | None, answers: Answers, added: Added) -> ReleasedCost | None:
    """Release the cost of the answers, or read what a run that goes on has released; None where the plan does not ask.

    Args:
        run: has released the answers.
        plan: the vote's.
        sums: float [queries, classes], the counts in votes before noise; None where a run that is complete goes on.
        answers: what was opened.
        added: the noise in it.
    """
    event = plan.cost_event()
    if event is None:
        return None

    def draw(source: RandomSource) -> dict[str, torch.Tensor]:
        assert sums is not None
        sensitivity = VoteSensitivity(
            plan.answer_event(),
            plan.adjacency,
            classes=sums.shape[1],
            order=plan.publish_cost.order,
            noise_std=added.counts,
            step=added.step,
        )
        found = release_cost(
            sums,
            sensitivity,
            beta=event.beta,
            cost_noise=event.cost_noise,
            sensitivity_noise=event.sensitivity_noise,
            noise=source.stream("cost of votes"),
            confidence=_CONFIDENCE,
        )
        return {"numbers": torch.tensor([getattr(found, name) for name in _NUMBERS], dtype=torch.float64)}

    numbers = run.release(PUBLISHING, event, draw, queries=len(answers.answered))["numbers"].tolist()
    return ReleasedCost(
        level=plan.level,
        adjacency=plan.adjacency,
        order=plan.publish_cost.order,
        queries=len(answers.answered),
        confidence=_CONFIDENCE,
        **dict(zip(_NUMBERS, numbers, strict=True)),
    )


# The pipeline of one vote: every agent's ballot, the tally as one phase of a run, and a student of the answers.
#
# Ballots are private. Until the answers are released they are kept in the run's checkpoint, so that a run that goes on
# asks the same question about the same ballots: no agent votes twice, and no query meets fresh noise. When the run ends
# they are deleted. The name that a tally knows the ballots by stands in the ledger, and the noise is drawn under what
# stands there: two copies of a stopped run whose agents come to vote differently (another machine, another code of the
# same model) have different noise, and are two releases where ledgers are added up. The student starts from public
# weights and learns from the answers alone.


PHASE = "votes"
"""What the ledger calls the answers."""


FILE = "answers.csv"
"""The released answers, one line a query."""


_SAVE_EVERY = 60.0  # seconds between checkpoints while agents vote
_STUDENT = "student."
_PUBLIC_FIELDS = ("model", "features", "student_model", "student_inputs", "classes", "input_shapes", "version")
"""What the released student's file states of `about`: how to build it, and no paths of private data."""


def vote(
    ready: Ready,
    run: Run,
    *,
    tally: Tally,
    about: Mapping[str, Any],
    threads: int,
    progress: Progress,
    resume: bool,
) -> VotingResult:
    """All of a vote: the ballots are cast and saved, the answers released, then their cost, then a student is trained.

    Args:
        ready: what is asked of whom.
        run: whose releases the answers and their cost are.
        tally: who counts.
        about: JSON for the released model's file.
        threads: agents that vote side by side.
        progress: receives how far it is.
        resume: go on with the run.
    """
    plan, question = ready.plan, ready.question
    voter = plan.voter(ready, run.source.within("agents"))
    saved = run.begin(_fingerprint(ready, voter, tally), plan.adjacency, resume=resume, what="votes")
    added, folder = added_noise(tally, question), None if run.folder is None else run.folder.path
    ballots = None
    if not (complete := saved is not None and saved.complete):
        ballots = _cast(ready, run, voter, saved, threads, progress)
        if ballots is None:
            statement = run.finish({}, facts_of(ready, tally, finished=False), complete=False)
            return VotingResult(statement, ready.queries, folder, _plan=plan, _added=added)
    answers, seeded = _released(ready, run, tally, ballots, progress)
    sums = None if ballots is None else ballots.sum(axis=0, dtype=np.int64) / question.units
    del ballots
    cost = publish(run, plan, sums, answers, added)
    student = _learned(ready, run, answers, saved, progress)
    tensors = {} if student is None else {name: value.cpu() for name, value in student.state_dict().items()}
    if not complete:
        run.save({f"{_STUDENT}{name}": value for name, value in tensors.items()}, {"agents": 0}, complete=True)
    evaluation = measured(ready, answers, student)
    if run.folder is not None:
        write_atomic(run.folder.path / FILE, _table(ready, answers).encode())
        size = {} if ready.test is None else {"examples": len(ready.test), "classes": question.classes}
        for name, row in evaluation.items():
            run.folder.add_evaluation(name, row, {"data": "test", **size})
    facts = replace(facts_of(ready, tally), seeded=seeded)
    if cost is not None:
        facts = replace(facts, released=(cost.alternative(facts.delta),))
    public = {name: about[name] for name in _PUBLIC_FIELDS if name in about}
    return VotingResult(
        statement=run.finish(tensors, facts, metadata=public),
        queries=ready.queries,
        answers=answers,
        model=student,
        evaluation=evaluation,
        finished=True,
        folder=folder,
        published=cost,
        _plan=plan,
        _sums=sums,
        _added=added,
    )


def added_noise(tally: Tally, question: Question) -> Added:
    """The noise that this tally adds to the counts of this question."""
    confident = question.threshold is not None
    return Added(
        tally.added_noise(question.noise_units) / question.units,
        tally.added_noise(question.threshold_noise_units) / question.units if confident else None,
        1 / question.units,
    )


def _fingerprint(ready: Ready, voter: Voter, tally: Tally) -> str:
    """Of all that decides the answers and the student."""
    content = [
        json.dumps(ready.plan.to_json(), sort_keys=True),
        json.dumps(ready.question.to_json(), sort_keys=True),
        json.dumps(tally.to_json(), sort_keys=True),
        ready.agents.fingerprint(),
        ready.pool.fingerprint(),
        hashlib.sha256(ready.queries.tobytes()).hexdigest(),
        voter.fingerprint(),
        "" if ready.student is None else digest("", dict(ready.student.state_dict())),
    ]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def _cast(
    ready: Ready, run: Run, voter: Voter, saved: Checkpoint | None, threads: int, progress: Progress
) -> np.ndarray | None:
    """All ballots [agents, queries, classes]; None where the run was asked to stop before.

    Two agents' ballots are cast once more in fresh processes, before any agent has voted and after all have: they show
    whether an agent's vote depends on who voted before it.
    """
    agents, question = len(ready.agents), ready.question
    kept = {} if saved is None else saved.tensors
    kind = np.uint8 if question.units < 1 << 8 else np.int16 if question.units < 1 << 15 else np.int32
    ballots = np.zeros((agents, question.queries, question.classes), kind)
    done = 0
    if "ballots" in kept and saved is not None:
        done = int(saved.state["agents"])
        ballots[:done] = kept["ballots"].numpy()

    def save() -> None:
        run.save({"ballots": torch.from_numpy(ballots[:done].copy())}, {"agents": done})

    def bounded(agent: int, votes: np.ndarray) -> np.ndarray:
        return ballot_of(question, str(ready.agents.user_ids[agent]), votes)

    def anew(agent: int) -> list[np.ndarray] | None:
        """Its ballot in a fresh process; None where there is none."""
        return histories([lambda: bounded(agent, voter.votes(agent))])

    if saved is None:
        save()  # so that a vote that is killed soon can go on, too
    first = done
    before = {}
    if first < agents:  # not all were cast by an earlier process
        drawn = first + int(run.source.stream("look agents").integers(agents - first, 1)[0])
        before = {drawn: anew(drawn)}
    last = monotonic()
    progress("agents", done, agents)
    with ThreadPoolExecutor(threads) as workers:
        while done < agents:
            if run.asked_to_stop:
                save()
                return None
            together = range(done, min(done + 2 * threads, agents))
            for agent, votes in zip(together, workers.map(voter.votes, together), strict=True):
                ballots[agent] = bounded(agent, votes)
            done = together.stop
            progress("agents", done, agents)
            if monotonic() - last > _SAVE_EVERY or done == agents:
                save()
                last = monotonic()
    after = {first: anew(first)} if first < agents else {}
    for agent, found in (*before.items(), *after.items()):
        if found is not None and not np.array_equal(found[0], ballots[agent]):
            raise Coupled(Agents.state_message)
    return ballots


def _released(
    ready: Ready, run: Run, tally: Tally, ballots: np.ndarray | None, progress: Progress
) -> tuple[Answers, bool]:
    """The release, and whether its noise was a seeded tally's; a run that goes on reads what it has released."""
    question = ready.question

    def cast() -> Iterator[tuple[str, np.ndarray]]:
        assert ballots is not None
        for name, ballot in zip(ready.agents.user_ids, ballots, strict=True):
            yield str(name), ballot.astype(np.int64)

    def draw(source: RandomSource) -> dict[str, Tensor]:
        progress("tally", 0, 1)
        answers = tally.open(question, cast(), source=source, token=token)
        progress("tally", 1, 1)
        return {**_tensors(answers), "seeded": torch.tensor(tally.seeded)}

    token = "" if ballots is None else _token(question, run.source, ballots)
    event = ready.plan.answers_event()
    found = run.release(PHASE, event, draw, queries=question.queries, agents=question.agents, ballots=token)
    return _answers(found), bool(found["seeded"])


def _token(question: Question, source: RandomSource, ballots: np.ndarray) -> str:
    """The name of this question with these ballots: without the run's key it reveals nothing."""
    name = hashlib.blake2b(key=source.stream("tally token").bytes(32), digest_size=16)
    name.update(json.dumps(question.to_json(), sort_keys=True).encode())
    name.update(str(ballots.shape).encode())
    name.update(np.ascontiguousarray(ballots).data)
    return name.hexdigest()


def _learned(
    ready: Ready, run: Run, answers: Answers, saved: Checkpoint | None, progress: Progress
) -> nn.Module | None:
    """The student; a run that is complete has kept it."""
    if ready.student is None:
        return None
    if not answers.answered.any():
        warnings.warn(
            "no query reached the threshold, so there is no student; what the vote cost is spent: start a new run "
            "with a lower threshold",
            stacklevel=2,
        )
        return None
    if saved is not None and saved.complete:
        found = {name.removeprefix(_STUDENT): value for name, value in saved.tensors.items()}
        return _loaded(ready.student, found)
    progress("student", 0, 1)
    student = train_student(
        ready.student,
        ready.lesson,
        ready.queries,
        answers,
        ready.plan.student,
        source=run.source.within("student"),
        device=ready.device,
    )
    progress("student", 1, 1)
    return student


def _table(ready: Ready, answers: Answers) -> str:
    """The answers as CSV: the query's position in the pool, and its class, attributes or noisy counts."""
    text, places = io.StringIO(), ready.queries.tolist()
    names = ready.agents.label_names or [str(number) for number in range(ready.question.classes)]
    table = csv.writer(text, lineterminator="\n")
    if answers.counts is not None:
        table.writerow(["query", *names])
        rows = (answers.counts / ready.question.units).tolist()
        table.writerows([place, *row] for place, row in zip(places, rows, strict=True))
        return text.getvalue()
    assert answers.labels is not None
    if ready.question.opens == "attributes":
        table.writerow(["query", *names])
        table.writerows([place, *row] for place, row in zip(places, answers.labels.astype(int).tolist(), strict=True))
        return text.getvalue()
    table.writerow(["query", "answer"])
    table.writerows(
        [place, names[label]]
        for place, label, answered in zip(places, answers.labels.tolist(), answers.answered.tolist(), strict=True)
        if answered
    )
    return text.getvalue()


def facts_of(ready: Ready, tally: Tally, *, finished: bool = True) -> Facts:
    """What the statement of a vote states in addition to the ledger."""
    plan, population = ready.plan, ready.plan.population_of(ready.agents)
    return Facts(
        unit=plan.unit,
        adjacency=plan.adjacency,
        population=population,
        delta=plan.delta_for(population),
        sampling="every agent is asked every query",
        mechanism=plan.describe() if finished else f"{plan.describe()}; stopped before anything was asked",
        attained=False,  # an answer is less than the noisy counts that the cost is of
        assumptions=(
            Assumption("pool_public"),
            *plan.assumptions(),
            *_tried(ready.findings),
            *tally.assumptions(),
            *ready.agents.assumptions,
            *ready.pool.assumptions,
        ),
        alternatives=plan.alternatives() if finished else (),
        covered=Assumption("covers_votes"),
        rounding=Assumption("rounding_votes"),
        disclosure={
            "trust_model": render(tally.assumptions()[0]),
            "released": render(Assumption("released_answers")),
            "contribution": render(Assumption("contribution_ballot")),
            "sampling_as_run": render(Assumption("no_sampling")),
            "floating_point": render(Assumption("exact_votes")),
        },
    )


def _tried(findings: Findings | None) -> list[Assumption]:
    """What was tried of the agents' independence, and what was not; before a vote, what will be."""
    if findings is not None and (gaps := findings.sentences("agent")):
        return gaps
    return [Assumption("agents_tried")]


def _tensors(answers: Answers) -> dict[str, Tensor]:
    found = {"answered": answers.answered, "labels": answers.labels, "counts": answers.counts}
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in found.items() if value is not None}


def _answers(tensors: dict[str, Tensor]) -> Answers:
    found = {name: tensor.numpy() for name, tensor in tensors.items()}
    return Answers(found["answered"], found.get("labels"), found.get("counts"))


def _loaded(model: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    made = copied(model)
    made.load_state_dict(state)
    return made.eval()
