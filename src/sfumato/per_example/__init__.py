"""Per-example gradient norms and clipped sums in one backward pass; checks that examples stand alone."""

from sfumato.per_example.checks.not_seen import not_seen
from sfumato.per_example.checks.recheck import Recheck
from sfumato.per_example.checks.self_check import SelfCheck, self_check
from sfumato.per_example.coverage import covered, layers_of, problems
from sfumato.per_example.engine import Recording
from sfumato.per_example.rule import Layer

__all__ = [
    "Layer",
    "Recheck",
    "Recording",
    "SelfCheck",
    "covered",
    "layers_of",
    "not_seen",
    "problems",
    "self_check",
]
