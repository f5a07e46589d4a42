"""Randomised labels as a phase of a run: released once, kept in the run, free to train on in any way.

A run that goes on finds the labels that it has drawn, and neither draws nor pays again. If it died before they were
kept, it draws the same ones: the n-th label has the n-th word of the run's stream.

>>> from sfumato.labels.response import LabelResponse
>>> response = LabelResponse(epsilon=2.0, classes=3)
>>> with Run.open(None, plan={"plan": "labels"}, seed=1) as run:
...     _ = run.start("what identifies plan and data")
...     reports = randomized(run, response, np.array([0, 1, 2, 2, 1, 0]))
...     statement = run.finish({}, label_facts(population=6, mechanism="randomised response"))
>>> reports.tolist(), statement.unit, statement.epsilon, statement.delta
([0, 1, 1, 2, 2, 0], 'label', 2.0, 0.0)
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from sfumato._random import RandomSource, Stream
from sfumato._types import Assumption, Stated
from sfumato.accounting import Event
from sfumato.labels.response import LabelResponse
from sfumato.runs import Run
from sfumato.statement import Facts
from sfumato.statement.sentences import render

PHASE = "labels"
"""The name of the release, in a run and in its ledger."""


_ROWS = 1 << 20  # labels whose words are in memory at once
_RELEASED = "The randomised labels, the ledger and the plan"
_DISCLOSURE: dict[str, str] = {
    "trust_model": render(Assumption("trust_randomiser")),
    "contribution": render(Assumption("contribution_report")),
    "sampling_as_run": render(Assumption("every_label_once")),
    "floating_point": render(Assumption("exact_reports")),
}


class Response(Protocol):
    """What turns labels into reports, and what that costs one label."""

    def event(self) -> Event: ...

    def draw(self, labels: np.ndarray, words: np.ndarray) -> np.ndarray: ...


def words_of(source: RandomSource) -> Stream:
    """The words of a phase's labels, in the order of the rows."""
    return source.stream("label words")


def reports_of(
    response: Response, labels: np.ndarray, words: Stream, prior: np.ndarray | None = None, *, threads: int = 1
) -> np.ndarray:
    """The reports of the next rows.

    Args:
        response: to them.
        labels: int64 [n].
        words: of the phase; n of them are taken.
        prior: float [classes] or [n, classes], for a response to classes only.
        threads: to compute on.
    """
    drawn = words.uint64(len(labels))
    if isinstance(response, LabelResponse):
        return response.draw(labels, drawn, prior, threads=threads)
    return response.draw(labels, drawn)


def randomized(
    run: Run,
    response: Response,
    labels: np.ndarray,
    prior: np.ndarray | None = None,
    *,
    threads: int = 1,
    **public: Any,
) -> np.ndarray:
    """Release labels that are in memory.

    Args:
        run: an open run that has started; its ledger gets the cost.
        response: to each label.
        labels: int64 [rows], private.
        prior: as for `reports_of`, public or released before.
        threads: to compute on.
        public: for the ledger.

    Returns:
        the reports [rows], int64 for classes, float64 for numbers; those of the first time if asked again.

    Raises:
        InputError: a label is outside the classes, or the prior is none.
    """

    def draw(source: RandomSource) -> dict[str, torch.Tensor]:
        words, parts = words_of(source), []
        for start in range(0, max(len(labels), 1), _ROWS):
            rows = slice(start, start + _ROWS)
            own = prior[rows] if prior is not None and prior.ndim == 2 else prior
            parts.append(reports_of(response, labels[rows], words, own, threads=threads))
        return {"labels": torch.from_numpy(np.concatenate(parts))}

    return run.release(PHASE, response.event(), draw, **public)["labels"].numpy()


def label_facts(
    *,
    population: int,
    mechanism: str,
    assumptions: Sequence[Stated] = (),
    trained: bool = False,
    shuffled: bool = False,
    recorded: bool = False,
    earlier: int = 0,
) -> Facts:
    """What the statement holds on labels that were randomised, next to the ledger.

    Args:
        population: how many rows there are.
        mechanism: in words.
        assumptions: more of them, as those of the data.
        trained: whether the run releases a model, too.
        shuffled: whether rows were written in a random order, and their own one was not tested.
        recorded: whether earlier releases were looked for in a record.
        earlier: how many were found and are in the ledger.
    """
    counted = (
        {} if not earlier else {"other_releases": render(Assumption("other_releases_counted", {"count": earlier}))}
    )
    released = "The model, the randomised labels, the ledger and the plan" if trained else _RELEASED
    return Facts(
        unit="label",
        adjacency="replace",
        population=population,
        delta=0.0,
        sampling="every label once",
        mechanism=mechanism,
        assumptions=(
            Assumption("label_only_shuffled" if shuffled else "label_only"),
            Assumption("rows_shuffled" if shuffled else "row_order"),
            Assumption("draws_recorded", {"count": earlier}) if recorded else Assumption("one_draw"),
            Assumption("label_domain"),
            *assumptions,
        ),
        disclosure={
            **_DISCLOSURE,
            **counted,
            "released": render(Assumption("released_reports", {"files": released})),
        },
        covered=Assumption("covers_labels_and_model" if trained else "covers_labels"),
        rounding=Assumption("rounding_labels"),
    )
