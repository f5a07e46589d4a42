"""Which cases of a test belong to the quick part; `make test-slow` runs the others.

>>> [len(case.marks) for case in slow_but(["a", "b", "c"], "b")]
[1, 0, 1]
>>> [case.values for case in one_in(3, "ab", [1, 2, 3]) if not case.marks]
[('a', 1), ('b', 3)]
"""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def slow_but(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """The cases as parameters, tuples as one each, all of them marked slow but for those that are named."""
    return [_parameter(case, case not in quick) for case in cases]


def one_in(count: int, *axes: Iterable[Any]) -> list[Any]:
    """Every combination of the axes; of `count` that follow each other along any axis, all but one are slow."""
    numbered = itertools.product(*(enumerate(axis) for axis in axes))
    return [_parameter([value for _, value in each], sum(place for place, _ in each) % count != 0) for each in numbered]


def by_profile(count: int) -> int:
    """So many examples of a property under the profile `full`, a fifth of them under `quick`, but three at least."""
    return min(count, max(3, count * settings().max_examples // 100))


def _parameter(case: Any, slow: bool) -> Any:
    values = case if isinstance(case, (tuple, list)) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow if slow else ())
