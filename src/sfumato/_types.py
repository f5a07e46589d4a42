"""Names for the few values that many packages pass on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Adjacency = Literal["add_remove", "replace", "zero_out"]
"""How two data sets may differ in one unit: present or absent, exchanged, or blanked."""

RecordUnit = Literal["patient", "stay", "admission", "record"]
"""What one health record is of."""

Unit = Literal["example", "user", "virtual_client", "agent", "identity", "label"] | RecordUnit
"""Whose presence a guarantee hides."""

Method = Literal["auto", "pld", "rdp", "rdp_usual_orders", "zcdp", "gaussian", "pure"]
"""Accountants by name; auto is the tightest of those that know an event."""

MatrixName = Literal["banded", "blt", "bisr", "square_root", "gaussian"]
"""Matrices of noise that is correlated over rounds."""

CorrelatedName = Literal["tree", "banded", "blt", "bisr"]
"""Kinds of noise that is correlated over rounds."""

OptimizerName = Literal["sgd", "adam", "adamw", "nadam", "adagrad", "rmsprop", "yogi"]
"""Optimizers that plans know by name."""

Level = Literal["agent", "instance"]
"""Whose presence a vote hides: an agent with all of its data, or one example of one agent."""

PLAN_FORMAT = 2
"""Of the plan.json of training runs: 1 had flat fields, 2 has parts."""


@dataclass(frozen=True)
class Assumption:
    """A sentence of a statement, by its id in `sfumato.statement.sentences`; a plain string has the author's own words.

    Attributes:
        id: of the sentence.
        values: public values that fill its placeholders: text and numbers.
    """

    id: str
    values: Mapping[str, str | int | float] = field(default_factory=dict, hash=False)


Stated = Assumption | str
"""What a guarantee rests on: a sentence of the catalogue, or the author's own words."""


def stated_to_json(sentences: Iterable[Stated]) -> list[Any]:
    """A list that JSON can write."""
    return [each if isinstance(each, str) else {"id": each.id, "values": dict(each.values)} for each in sentences]


def stated_from_json(values: Iterable[Any]) -> tuple[Stated, ...]:
    """What `stated_to_json` wrote; older files hold text alone."""
    return tuple(each if isinstance(each, str) else Assumption(each["id"], each["values"]) for each in values)
