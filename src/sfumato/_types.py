"""Names for the few values that many packages pass on."""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
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


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What a system declares of itself, in the module of its plan, to have a command, a page and a place in the tests.

    `sfumato.algorithms` reads declarations from the sources, so that all values are literals.

    Attributes:
        name: of the plan.
        package, plan: where the plan's class is: `from {package} import {plan}`.
        records: what it trains on in rounds: data sets by "users", or of "examples"; who votes: "agents"; or what is
            randomised before anything is trained: "labels"; or health records that new ones are made like: "ehr"; or
            several organisations' records: "silos". Says which reader and models a command has.
        title: its name in headings; a guarantee puts "DP-" in front, unless it is in the name.
        summary: one line for the overview of commands.
        about: the first paragraph of the command's help.
        example: one use of the command, in its help.
        matters: the options that the short help shows, by field name, with blanks between them; --help-all shows the
            others, too.
        command: the words of the command, where they are not the plan's name.
        reader: of health records: what reads that which the plan has learned, in the same package. It takes the folder
            of a run or its model's file, and gives something whose `sample` draws records block by block and whose
            `schema` lists their columns.
    """

    name: str
    package: str
    plan: str
    records: Literal["users", "examples", "agents", "labels", "ehr", "silos"]
    title: str
    summary: str
    about: str
    example: str
    matters: str
    command: str | None = None
    reader: str | None = None

    @property
    def words(self) -> str:
        """Of the command."""
        return self.command or self.name

    def load(self) -> Any:
        """The plan's class."""
        return self._found(self.plan)

    def read(self, path: Path) -> Any:
        """What the plan has learned in a run that has ended."""
        assert self.reader is not None
        return self._found(self.reader)(path)

    def _found(self, name: str) -> Any:
        return attrgetter(name)(importlib.import_module(self.package))
