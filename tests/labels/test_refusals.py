"""What responses, priors, domains and plans refuse, in one line that names the value."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sfumato._check import InputError
from sfumato.labels import LPMST, Classes, Counted, Grid, LabelSettings, RROnBins, clusters
from sfumato.labels.domains import ClassCoding
from sfumato.labels.numbers import BinnedResponse, GridLaplace
from sfumato.labels.response import LabelResponse, unbiased_targets

CLASSES = ("cat", "dog", "owl")
THREE = LabelResponse(epsilon=1.0, classes=3)


def with_usual(make: Callable[..., Any], **usual: Any) -> Callable[[dict[str, Any]], Any]:
    """Makes something of the usual fields, of which some are changed."""
    return lambda changes: make(**{**usual, **changes})


def best(*, values: list[float], prior: list[float], **fields: Any) -> BinnedResponse:
    return BinnedResponse.best(np.array(values), np.array(prior), **fields)


def binned(bins: list[int], outputs: int) -> BinnedResponse:
    return BinnedResponse(epsilon=1.0, values=np.array([1.0, 2.0]), bins=np.array(bins), outputs=np.zeros(outputs))


def drawn(labels: list[float], prior: Any = None) -> np.ndarray:
    words = np.zeros(len(labels), np.uint64)
    return THREE.draw(np.array(labels), words, None if prior is None else np.array(prior))


def settings(changes: dict[str, Any]) -> LabelSettings:
    usual = {} if "domain" in changes else {"domain.names": CLASSES}
    return LabelSettings(**{"label": "y", "epsilon": 1.0, **usual, **changes})


def grid(**fields: Any) -> dict[str, Any]:
    return {"domain": {"kind": "grid", "low": 0.0, "high": 1.0, **fields}}


REFUSED: dict[str, tuple[Callable[[Any], Any], list[tuple[Any, str]]]] = {
    "a response to classes": (
        with_usual(LabelResponse, epsilon=1.0, classes=3),
        [
            ({"epsilon": 0.0}, "epsilon must be > 0, got 0.0"),
            ({"epsilon": math.inf}, "epsilon must be > 0 and finite, got inf"),
            ({"epsilon": 1e-9}, r"epsilon must be in \[1e-06, 500\], got 1e-09"),
            ({"epsilon": math.nan}, "epsilon must be a number, got nan"),
            ({"classes": 1}, "classes must be a whole number >= 2, got 1; with one class there is nothing to hide"),
            ({"size": 4}, r"size must be in \[1, 3\], got 4"),
            ({"size": 0}, "size must be a whole number >= 1, got 0"),
        ],
    ),
    "a prior": (
        lambda prior: drawn([0, 1], prior),
        [
            ([0.5, 0.5], "prior must have one number for each of the 3 classes, got 2"),
            ([0.5, 0.3, 0.1], "prior must sum to 1, got 0.9; divide it by its sum"),
            ([0.7, 0.5, -0.2], r"prior must hold numbers in \[0, 1\], got -0.2"),
            ([0.5, 0.5, math.nan], "got nan"),
            ([0.5, 0.5, math.inf], "got inf"),
            ([[0.2, 0.3, 0.5], [0.2, 0.3, 0.4]], "prior of row 1 must sum to 1, got 0.9"),
            ([[0.2, 0.3, 0.5]], "prior must have a row for each of the 2 labels, got 1"),
            ([[[0.2, 0.3, 0.5]]], "floats"),
            ([1, 0, 0], "floats"),
        ],
    ),
    "labels": (drawn, [([0, 3], "position 1 must be in 0 … 2, got 3"), ([0.5], "whole numbers")]),
    "the best bins": (
        with_usual(best, values=[1.0, 2.0], prior=[0.5, 0.5], epsilon=1.0, loss="squared"),
        [
            ({"values": [1.0]}, "values must be 2 to 2048 numbers"),
            ({"values": [2.0, 1.0]}, "ascending"),
            ({"values": [1.0, math.nan]}, "finite"),
            ({"values": [-1.0, 1.0], "loss": "poisson"}, "values must be >= 0, got -1; take another loss"),
            ({"loss": "hinge"}, "loss must be one of squared, absolute, poisson, got hinge"),
            ({"prior": [0.5, 0.4]}, "sum to 1"),
            ({"epsilon": 0}, "epsilon must be > 0"),
        ],
    ),
    "bins": (
        lambda parts: binned(*parts),
        [
            (([1, 1], 1), "bins must begin with 0 and go up by 0 or 1"),
            (([0, 2], 3), "bins must begin with 0 and go up by 0 or 1"),
            (([0, 1], 1), "outputs must have one number for each of 2 bins"),
        ],
    ),
    "Laplace noise": (
        with_usual(GridLaplace, epsilon=1.0, low=0.0, high=1.0, count=3),
        [
            ({"low": 2.0}, "low must be below high"),
            ({"high": math.inf}, "finite"),
            ({"count": 1}, "count must be a whole number >= 2"),
            ({"count": 5000}, r"count must be in \[2, 2048\]"),
            ({"epsilon": 41}, r"epsilon must be in \[0, 40\], got 41; beyond, 64 bits do not hold the tails"),
        ],
    ),
    "reports that are to be undone": (
        unbiased_targets,
        [
            (THREE.probabilities(np.array([0.55, 0.25, 0.2])), "do not distinguish all labels"),
            (np.ones((3, 2)), "as many of both"),
        ],
    ),
    "counts": (
        with_usual(Counted),
        [
            ({"epsilon": 0}, "epsilon must be > 0"),
            ({"smoothing": 2}, r"smoothing must be in \[0, 1\], got 2"),
            ({"clusters": 0}, "clusters must be a whole number >= 1, got 0"),
            ({"clusters": 3, "groups": "g"}, "groups and clusters exclude each other"),
        ],
    ),
    "clusters": (
        lambda given: clusters(given[0], count=given[1], seed=0),
        [
            ((np.zeros((3, 2)), 4), "count must be at most the number of rows, 3, got 4"),
            ((np.full((3, 2), np.nan), 2), "finite"),
            ((np.zeros(3), 2), "rows, features"),
            ((np.zeros((3, 2)), 0), "count must be a whole number >= 1"),
        ],
    ),
    "declared classes": (
        with_usual(Classes, names=("no", "yes")),
        [
            ({"public": True}, "names and public exclude each other"),
            ({"method": "laplace"}, "method must be one of best, rr, got laplace"),
        ],
    ),
    "a grid": (
        with_usual(Grid, low=0.0, high=1.0),
        [
            ({"low": 1.0}, "low must be below high, and both finite, got 1 and 1"),
            ({"high": math.inf}, "finite"),
            ({"values": 1}, "values must be a whole number >= 2, got 1"),
            ({"values": 4096}, r"values must be in \[2, 2048\], got 4096"),
            ({"method": "staircase"}, "method must be one of best, rr, laplace, got staircase"),
            ({"loss": "log"}, "loss must be one of squared, absolute, poisson, got log"),
        ],
    ),
    "settings": (
        settings,
        [
            ({"epsilon": 0.0}, "epsilon must be > 0"),
            ({"epsilon": float("inf")}, "finite"),
            ({"domain": "classes"}, "which classes are there"),
            ({"domain.public": True}, "names and public exclude each other"),
            ({"domain": "numbers"}, "domain must be one of classes, grid, got numbers"),
            ({"domain": {"kind": "grid", "low": 0.0}}, "domain grid needs high"),
            ({"domain.values": 3}, "values is for domain=grid, got domain=classes"),
            ({"domain.loss": "absolute"}, "loss is for domain=grid, got domain=classes"),
            ({"domain.method": "laplace"}, "domain.method must be one of best, rr, got laplace"),
            ({**grid(low=1.0), "label": "y"}, "low must be below high"),
            (grid(values=1), "values must be a whole number >= 2"),
            (grid(names=("a", "b")), "names is for domain=classes, got domain=grid"),
            ({**grid(), "prior": Counted(groups="g")}, "leave prior.groups out"),
            ({"prior": 1.0}, "the prior's epsilon must be below epsilon, 1, of which it is a part, got 1"),
            ({"prior": 0.0}, "prior.epsilon must be > 0"),
            ({"prior": "counts"}, "prior must be one of uniform, public, counted"),
            ({"prior": "public"}, "prior public needs table"),
            ({"prior": "p.csv", "prior.epsilon": 0.1}, "epsilon is for prior=counted, got prior=public"),
            ({"prior.groups": "g"}, "groups is for prior=counted, got prior=uniform"),
            ({"prior.smoothing": 0.1}, "smoothing is for prior=public or counted, got prior=uniform"),
            ({"prior": 0.1, "prior.groups": "y"}, "prior.groups must be a public column"),
            ({"prior": 0.1, "prior.smoothing": 2.0}, "prior.smoothing must be in"),
            ({"prior": 0.1, "prior.clusters": 3}, "give prior.clusters and prior.features"),
            ({"prior": 0.1, "prior.features": Path("f.npy")}, "give prior.clusters and prior.features"),
            ({"prior": {"kind": "counted", "clusters": 3, "groups": "g"}}, "groups and clusters exclude each other"),
            (
                {"prior": {"kind": "counted", "clusters": 0, "features": "f.npy"}},
                "clusters must be a whole number >= 1",
            ),
            ({"domain.method": "rr", "prior": 0.1}, "method rr uses no prior"),
            ({"classes": CLASSES}, r'classes is now domain=\{"names": …\}'),
            ({"prior_epsilon": 0.1}, "prior_epsilon is now prior=…"),
        ],
    ),
    "classes of a column": (
        lambda given: ClassCoding(*given),
        [
            ((["a"], pa.string()), "classes must be a whole number >= 2, got 1"),
            ((["a", "b", "a"], pa.string()), "got 'a' twice"),
            ((["1", "01"], pa.int64()), "twice"),
            ((["1", "two"], pa.int64()), "classes must be of the label's type, int64"),
            ((["1", "300"], pa.int8()), "classes must be of the label's type, int8"),
        ],
    ),
    "cells that are no classes": (
        lambda cells: ClassCoding(["a", "b"], pa.string()).numbers(pa.array(cells), "the label", 10),
        [
            (["a", "x"], "the label at position 11 is 'x', which is none of the classes a, b; add it to them"),
            (["a", None], r"the label is missing \(null\) at position 11; fill it in or drop the row"),
        ],
    ),
    "cells that are no numbers": (
        lambda cells: Grid(low=0.0, high=1.0, values=2).numbers(pa.array(cells), "the label", 5),
        [
            ([1.0, math.nan], "the label at position 6 is nan"),
            ([1.0, None], "missing"),
            (["1", "much"], "the label must be numbers for domain=grid: .*; else choose domain=classes"),
        ],
    ),
    "LP-MST": (
        with_usual(LPMST, epsilon=2.0),
        [
            ({"epsilon": 0.0}, "epsilon must be > 0, got 0.0"),
            ({"epsilon": math.inf}, "epsilon must be > 0 and finite, got inf"),
            ({"stages": (0.5, 0.6)}, "stages must be shares > 0 that add up to 1"),
            ({"stages": ()}, "stages must be shares > 0 that add up to 1"),
            ({"stages": (1.2, -0.2)}, "stages must be shares > 0 that add up to 1"),
            ({"stages": "0.5"}, "stages must be shares > 0 that add up to 1, got 0.5"),
            ({"stages": (1, "a")}, "stages must be shares > 0 that add up to 1"),
            ({"prior_epsilon": 0.3}, "prior_epsilon 0.3 is for the prior of clusters"),
            ({"temperature": 0.0}, "temperature must be > 0, got 0.0"),
            ({"clusters": 5, "prior_epsilon": 3.0}, "the prior's epsilon must be below epsilon, 2,"),
            ({"training.mixup": -1.0}, "mixup must be >= 0"),
            ({"training.loss": "squared"}, "loss"),
        ],
    ),
    "RR on bins": (
        with_usual(RROnBins, epsilon=3.0, low=0.0, high=10.0, values=21),
        [
            ({"epsilon": 0.0}, "epsilon must be > 0"),
            ({"epsilon": math.inf}, "epsilon must be > 0 and finite"),
            ({"low": 10.0}, "low must be below high"),
            ({"high": math.inf}, "finite"),
            ({"values": 1}, "values must be a whole number >= 2"),
            ({"values": 4096}, r"values must be in \[2, 2048\]"),
            ({"method": "staircase"}, "method must be one of"),
            ({"loss": "log"}, "loss must be one of"),
            ({"loss": "poisson", "low": -1.0}, "low=-1"),
            ({"loss": "absolute", "unbiased": True}, "unbiased numbers are for loss=squared"),
            ({"prior_epsilon": 3.0}, "the prior's epsilon must be below epsilon, 3,"),
            ({"prior_epsilon": -0.1}, "prior_epsilon must be >= 0"),
            ({"epsilon": 41.0, "method": "laplace"}, "tails"),
            ({"training.learning_rate": 0.0}, "training.learning_rate"),
            ({"training.loss": "absolute"}, "loss is squared"),
            ({"training.label_smoothing": 0.1}, "label_smoothing"),
            ({"epochs": 3}, "epochs is now training="),
            ({"schedule": "constant"}, "schedule is now training="),
            ({"seed": -1}, "seed must be a whole number >= 0"),
        ],
    ),
}
"""Of each kind of thing: what makes it, what it may not be made of, and the message."""

CASES = [(name, number) for name, (_, cases) in REFUSED.items() for number in range(len(cases))]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_what_cannot_be_is_refused_in_a_line_that_names_it(name: str, number: int):
    make, cases = REFUSED[name]
    given, message = cases[number]
    with pytest.raises(InputError, match=message) as refusal:
        make(given)
    assert "\n" not in str(refusal.value)
