"""Per-example gradient norms and clipped sums in one backward pass; checks that examples stand alone."""

from sfumato.per_example.checks.not_seen import NOT_SEEN
from sfumato.per_example.checks.recheck import Recheck
from sfumato.per_example.checks.self_check import SelfCheck, self_check
from sfumato.per_example.coverage import covered, layers_of, problems
from sfumato.per_example.engine import Recording
from sfumato.per_example.rule import Layer

__all__ = [
    "NOT_SEEN",
    "Layer",
    "Recheck",
    "Recording",
    "SelfCheck",
    "covered",
    "layers_of",
    "problems",
    "self_check",
]
