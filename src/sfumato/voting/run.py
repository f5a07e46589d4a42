"""The run of one vote: every agent's ballot, the tally as one phase of a run, and a student.

A `Voter` makes an agent's votes on the public queries from its own records alone.
"""

import csv
import hashlib
import io
import json
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._bar import Progress
from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.data import ExampleDataset, UserDataset
from sfumato.guard import Coupled, Findings
from sfumato.guard.guard import at, histories
from sfumato.guard.trial import Tolerance
from sfumato.metrics.baselines import CONSTANT, RANDOM, compared, mean_gain
from sfumato.metrics.classification import f1
from sfumato.runs import Checkpoint, Run
from sfumato.runs.checkpoint import digest
from sfumato.statement import Facts, Statement
from sfumato.statement.sentences import render
from sfumato.training.supervised import measure
from sfumato.training.trainable import copied
from sfumato.voting.data_dependent import (
    DataDependentCost,
    ReleasedCost,
    VoteSensitivity,
    release_cost,
    threshold_cost,
    vote_cost,
)
from sfumato.voting.question import Added, Answers, Question, ballot_of
from sfumato.voting.settings import VotingSettings
from sfumato.voting.student import train_student
from sfumato.voting.tally import Tally


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


# How good the answers and the student are, on public examples with labels.
#
# Nothing here is private: the answers are released, the student follows from them, and pool and test are public.


__all__ = ["measure", "measured"]


def measured(
    answers: Answers,
    pool: ExampleDataset,
    queries: np.ndarray,
    student: nn.Module | None,
    untrained: nn.Module | None,
    test: ExampleDataset | None,
    *,
    classes: int,
    device: str,
) -> dict[str, Any]:
    """Rows for evaluation.json: "answers", and of the student "untrained" and "trained".

    Args:
        answers: what was opened.
        pool: its targets are the truth that answers are compared with, where it has some.
        queries: int64 [queries], positions in it.
        student: as it was trained.
        untrained: as it began.
        test: to measure both on; None for no row of theirs.
        classes: that the agents vote for.
        device: where to compute.
    """
    found: dict[str, Any] = {"answers": _of_answers(answers, pool, queries, classes)}
    if test is not None and test.targets is not None:
        for name, model in (("untrained", untrained), ("trained", student)):
            if model is not None:
                found[name] = measure(model, test, device=device)
    return found


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
        answers: what was opened for each of them; None where the run was stopped before.
        model: the student, in evaluation mode; None where none was trained.
        evaluation: of the answers and of the student, where the pool or a test has labels.
        finished: False if the run was asked to stop before its end.
        folder: the run's, or None.
        published: what the vote cost for the votes as they were cast, where the plan released it.
    """

    statement: Statement
    queries: np.ndarray
    answers: Answers | None
    model: nn.Module | None
    evaluation: dict[str, Any]
    finished: bool
    folder: Path | None
    published: ReleasedCost | None
    _plan: VotingSettings = field(repr=False)
    _sums: np.ndarray | None = field(repr=False)
    _added: Added = field(repr=False)

    def cost(self) -> DataDependentCost:
        """What the vote cost for the votes as they were cast: private itself, and never a statement's epsilon.

        Raises:
            InputError: the votes are no longer known, or all noisy counts were opened, whose cost is the same for all
                votes.
            Unknown: votes for several attributes have no such cost.
        """
        return cost_of(self._plan, self._sums, self.answers, self._added)


def cost_of(plan: VotingSettings, sums: np.ndarray | None, answers: Answers | None, added: Added) -> DataDependentCost:
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
    assert plan.threshold is not None
    asked = threshold_cost(sums, plan.threshold, threshold, plan.adjacency, noise_std=added.threshold, step=added.step)
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


def publish(
    run: Run, plan: VotingSettings, sums: np.ndarray | None, answers: Answers, added: Added
) -> ReleasedCost | None:
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
            order=plan.publish_order,
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
        order=plan.publish_order,
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Vote:
    """One vote, before it begins.

    Attributes:
        plan: whose noise is set.
        agents: who votes, each with records of its own.
        pool: the public examples; what they are labelled as is used for measuring only.
        queries: int64 [queries], positions in the pool.
        voter: how an agent votes.
        question: what the tally is asked.
        tally: who counts.
        findings: of the guard, about the voter.
        student: the module to train on the answers, or None.
        lesson: the pool as the student sees it.
        test: labelled public examples, as the student sees them, to measure it on, or None.
        about: JSON for plan.json and the released model's file.
        device: where the student learns.
        threads: agents that vote side by side.
        progress: receives how far it is.
    """

    plan: VotingSettings
    agents: UserDataset
    pool: ExampleDataset
    queries: np.ndarray
    voter: Voter
    question: Question
    tally: Tally
    findings: Findings
    student: nn.Module | None
    lesson: ExampleDataset
    test: ExampleDataset | None
    about: dict[str, Any]
    device: str
    threads: int
    progress: Progress

    def go(self, run: Run, *, resume: bool) -> VotingResult:
        """The whole of it."""
        saved = run.begin(self._fingerprint(), self.plan.adjacency, resume=resume, what="votes")
        complete = saved is not None and saved.complete
        ballots = None if complete else self._gathered(run, saved)
        if ballots is None and not complete:
            return self._result(run, None, None, None, {}, finished=False)
        answers, seeded = self._answers(run, ballots)
        sums = None if ballots is None else ballots.sum(axis=0, dtype=np.int64) / self.question.units
        del ballots
        cost = publish(run, self.plan, sums, answers, self._added)
        student = self._learned(run, answers, saved)
        return self._finish(run, answers, cost, sums, student, seeded=seeded, again=complete)

    def _fingerprint(self) -> str:
        content = [
            json.dumps(self.plan.to_json(), sort_keys=True),
            json.dumps(self.question.to_json(), sort_keys=True),
            json.dumps(self.tally.to_json(), sort_keys=True),
            self.agents.fingerprint(),
            self.pool.fingerprint(),
            hashlib.sha256(self.queries.tobytes()).hexdigest(),
            self.voter.fingerprint(),
            "" if self.student is None else digest("", dict(self.student.state_dict())),
        ]
        return hashlib.sha256("\n".join(content).encode()).hexdigest()

    def _gathered(self, run: Run, saved: Checkpoint | None) -> np.ndarray | None:
        """All ballots [agents, queries, classes]; None where the run was asked to stop before."""
        agents, question = len(self.agents), self.question
        kept = {} if saved is None else saved.tensors
        kind = np.uint8 if question.units < 1 << 8 else np.int16 if question.units < 1 << 15 else np.int32
        ballots = np.zeros((agents, question.queries, question.classes), kind)
        done = 0
        if "ballots" in kept and saved is not None:
            done = int(saved.state["agents"])
            ballots[:done] = kept["ballots"].numpy()

        def save() -> None:
            run.save({"ballots": torch.from_numpy(ballots[:done].copy())}, {"agents": done})

        if saved is None:
            save()  # so that a vote that is killed soon can go on, too
        drawn, alone = self._ballot_before_all(done, run.source)
        last, first = monotonic(), done
        self.progress("agents", done, agents)
        with ThreadPoolExecutor(self.threads) as workers:
            while done < agents:
                if run.asked_to_stop:
                    save()
                    return None
                together = range(done, min(done + 2 * self.threads, agents))
                for agent, votes in zip(together, workers.map(self.voter.votes, together), strict=True):
                    ballots[agent] = ballot_of(question, str(self.agents.user_ids[agent]), votes)
                done = together.stop
                self.progress("agents", done, agents)
                if monotonic() - last > _SAVE_EVERY or done == agents:
                    save()
                    last = monotonic()
        if first < agents:  # not all were cast by an earlier process
            behind = histories([lambda: self._ballot(first)])
            for agent, found in ((drawn, alone), (first, behind)):
                if found is not None and not np.array_equal(found[0], ballots[agent]):
                    raise Coupled(Agents.state_message)
        return ballots

    def _ballot(self, agent: int) -> np.ndarray:
        """The ballot of an agent, [queries, classes]."""
        return ballot_of(self.question, str(self.agents.user_ids[agent]), self.voter.votes(agent))

    def _ballot_before_all(self, first: int, source: RandomSource) -> tuple[int, list[np.ndarray] | None]:
        """In a fresh process: the ballot of an agent that votes later here, before any agent has voted.

        Args:
            first: the agent that votes first in this process.
            source: of the choice of the agent.

        Returns:
            the agent, and its ballot; None where there is no fresh process, or no agent is left.
        """
        left = len(self.agents) - first
        if left < 1:
            return first, None
        agent = first + int(source.stream("look agents").integers(left, 1)[0])
        return agent, histories([lambda: self._ballot(agent)])

    def _answers(self, run: Run, ballots: np.ndarray | None) -> tuple[Answers, bool]:
        """The release, and whether its noise was a seeded tally's; a run that goes on reads what it has released."""
        question = self.question

        def cast() -> Iterator[tuple[str, np.ndarray]]:
            assert ballots is not None
            for name, ballot in zip(self.agents.user_ids, ballots, strict=True):
                yield str(name), ballot.astype(np.int64)

        def draw(source: RandomSource) -> dict[str, Tensor]:
            self.progress("tally", 0, 1)
            answers = self.tally.open(question, cast(), source=source, token=token)
            self.progress("tally", 1, 1)
            return {**_tensors(answers), "seeded": torch.tensor(self.tally.seeded)}

        token = "" if ballots is None else self._token(run.source, ballots)
        event = self.plan.answers_event()
        found = run.release(PHASE, event, draw, queries=question.queries, agents=question.agents, ballots=token)
        return _answers(found), bool(found["seeded"])

    def _token(self, source: RandomSource, ballots: np.ndarray) -> str:
        """The name of this question with these ballots: without the run's key it reveals nothing."""
        name = hashlib.blake2b(key=source.stream("tally token").bytes(32), digest_size=16)
        name.update(json.dumps(self.question.to_json(), sort_keys=True).encode())
        name.update(str(ballots.shape).encode())
        name.update(np.ascontiguousarray(ballots).data)
        return name.hexdigest()

    def _learned(self, run: Run, answers: Answers, saved: Checkpoint | None) -> nn.Module | None:
        """The student; a run that is complete has kept it."""
        if self.student is None:
            return None
        if saved is not None and saved.complete and answers.answered.any():
            found = {name.removeprefix(_STUDENT): value for name, value in saved.tensors.items()}
            return _loaded(self.student, found)
        if not answers.answered.any():
            warnings.warn(
                "no query reached the threshold, so there is no student; what the vote cost is spent: start a new run "
                "with a lower threshold",
                stacklevel=2,
            )
            return None
        self.progress("student", 0, 1)
        student = train_student(
            self.student,
            self.lesson,
            self.queries,
            answers,
            self.plan.student_training,
            source=run.source.within("student"),
            device=self.device,
        )
        self.progress("student", 1, 1)
        return student

    def _finish(
        self,
        run: Run,
        answers: Answers,
        cost: ReleasedCost | None,
        sums: np.ndarray | None,
        student: nn.Module | None,
        *,
        seeded: bool,
        again: bool,
    ) -> VotingResult:
        tensors = {} if student is None else {name: value.cpu() for name, value in student.state_dict().items()}
        if not again:
            run.save({f"{_STUDENT}{name}": value for name, value in tensors.items()}, {"agents": 0}, complete=True)
        evaluation = measured(
            answers,
            self.pool,
            self.queries,
            student,
            self.student,
            self.test,
            classes=self.question.classes,
            device=self.device,
        )
        if run.folder is not None:
            write_atomic(run.folder.path / FILE, self._csv(answers).encode())
            for name, row in evaluation.items():
                run.folder.add_evaluation(name, row, self._about_test)
        return self._result(
            run, answers, sums, student, evaluation, finished=True, tensors=tensors, cost=cost, seeded=seeded
        )

    @property
    def _added(self) -> Added:
        question = self.question
        confident = question.threshold is not None
        return Added(
            self.tally.added_noise(question.noise_units) / question.units,
            self.tally.added_noise(question.threshold_noise_units) / question.units if confident else None,
            1 / question.units,
        )

    @cached_property
    def _about_test(self) -> dict[str, Any]:
        size = {} if self.test is None else {"examples": len(self.test), "classes": self.question.classes}
        return {"data": "test", **size}

    def _result(
        self,
        run: Run,
        answers: Answers | None,
        sums: np.ndarray | None,
        student: nn.Module | None,
        evaluation: dict[str, Any],
        *,
        finished: bool,
        tensors: dict[str, Tensor] | None = None,
        cost: ReleasedCost | None = None,
        seeded: bool = False,
    ) -> VotingResult:
        facts = replace(
            facts_of(self.plan, self.agents, self.pool, self.tally, self.findings, finished=finished), seeded=seeded
        )
        if cost is not None:
            facts = replace(facts, released=(cost.alternative(facts.delta),))
        public = {name: self.about[name] for name in _PUBLIC_FIELDS if name in self.about}
        statement = run.finish(tensors or {}, facts, metadata=public, complete=finished)
        return VotingResult(
            statement=statement,
            queries=self.queries,
            answers=answers,
            model=student,
            evaluation=evaluation,
            finished=finished,
            folder=None if run.folder is None else run.folder.path,
            _plan=self.plan,
            published=cost,
            _sums=sums,
            _added=self._added,
        )

    def _csv(self, answers: Answers) -> str:
        """The answers as a table: the query's position in the pool, and its class, attributes or noisy counts."""
        text = io.StringIO()
        names = self.agents.label_names or [str(number) for number in range(self.question.classes)]
        table = csv.writer(text, lineterminator="\n")
        if answers.counts is not None:
            table.writerow(["query", *names])
            rows = (answers.counts / self.question.units).tolist()
            table.writerows([place, *row] for place, row in zip(self.queries.tolist(), rows, strict=True))
        elif self.question.opens == "attributes":
            assert answers.labels is not None
            table.writerow(["query", *names])
            held = answers.labels.astype(int).tolist()
            table.writerows([place, *row] for place, row in zip(self.queries.tolist(), held, strict=True))
        else:
            assert answers.labels is not None
            table.writerow(["query", "answer"])
            table.writerows(
                [place, names[label]]
                for place, label, answered in zip(
                    self.queries.tolist(), answers.labels.tolist(), answers.answered.tolist(), strict=True
                )
                if answered
            )
        return text.getvalue()


def facts_of(
    plan: VotingSettings,
    agents: UserDataset,
    pool: ExampleDataset,
    tally: Tally,
    findings: Findings | None = None,
    *,
    finished: bool = True,
) -> Facts:
    """What the statement of a vote states in addition to the ledger."""
    population = plan.population_of(agents)
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
            *_tried(findings),
            *tally.assumptions(),
            *agents.assumptions,
            *pool.assumptions,
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
