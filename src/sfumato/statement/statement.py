"""The statement: what a run promises to each unit, in JSON and in words that a privacy officer can read.

Guarantees nothing by itself; it repeats what the accountants found, names the unit and lists what is assumed.
All of its fields may be published. Its numbers are plain numbers: a cost that depends on the data cannot be put in.

>>> statement = Statement(
...     unit="user", adjacency="add_remove", epsilon=2.0, delta=1e-6, sampling="Poisson, rate 0.01",
...     mechanism="Gaussian noise, multiplier 1.1", noise_source="operating system CSPRNG")
>>> Statement.from_json(statement.to_json()) == statement
True

The questions that a disclosure of differential privacy has to answer, and the text where no answer was given.

Guarantees that no question is left out: what the author of a run did not answer reads "not stated", never as if all
were well. The questions follow the reporting practice of Ponomareva et al. 2023, "How to DP-fy ML", section 5.3 (the
setting, the definition as it was instantiated, the accounting, what can be verified), the hazards of NIST SP 800-226
(2025: trust model, unit, correlated units, randomness and floating point), and public registries of deployments.

>>> answers = complete({"public_data": "None: all weights were drawn at random."})
>>> answers["public_data"], answers["preprocessing"]
('None: all weights were drawn at random.', 'not stated by the author of this run')

A statement in at most eight lines for a terminal: who is protected, how well, on what it rests, what is left out.

A run that was stopped has one more, which comes first. Guarantees the words of the verdict and no others. The whole
text is in the files, and the last line says where.

>>> from sfumato.accounting.events import Gaussian
>>> event = Gaussian(1.1).poisson(0.01) * 100
>>> statement = Statement(
...     unit="user", adjacency="add_remove", epsilon=0.98, delta=1e-6, sampling="Poisson, rate 0.01",
...     mechanism="100 Gaussian sums", noise_source="operating system CSPRNG", assumptions=("N is public.",))
>>> print(*brief(statement, event), sep="\\n")
Strong protection for one person with all of their examples: epsilon 0.98, delta 1e-06.
At 1 % false positives, any membership test finds at most 1.42 % of members.
It rests on: Poisson, rate 0.01; operating system CSPRNG; 1 condition in the statement.
Not covered: what was computed without noise (metrics, evaluations, checkpoints); other releases.

A statement as blocks of facts, sentences and tables, and how they are written: as plain text and as Markdown.

Terminal, page and Markdown show the same blocks, so that they cannot disagree.

>>> block = Block("Guarantee", facts=(("Delta", "1e-06"),), lines=("It holds.",), bullets=("One condition.",))
>>> print(plain([block]))
Guarantee
  Delta: 1e-06
  It holds.
  - One condition.
>>> print(markdown([block]))
**Guarantee**
<BLANKLINE>
- Delta: 1e-06
<BLANKLINE>
It holds.
<BLANKLINE>
- One condition.
"""

import hashlib
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError, between, one_of, whole
from sfumato._files import read_json, write_json
from sfumato._types import Assumption
from sfumato.accounting.events import Event
from sfumato.statement.sentences import RenderedSentence, render
from sfumato.statement.verdict import (
    FPR,
    Verdict,
    judge,
    large_delta,
    membership,
    rounded_down,
    rounded_up,
    scale_in_words,
)

_COLUMNS_OF_TEXT = 100
_NUMERIC = "0123456789∞–"


@dataclass(frozen=True)
class Block:
    """One part of a statement; a part that is empty is not shown.

    Attributes:
        title: its heading.
        facts: (name, value) pairs.
        lines: sentences.
        bullets: one sentence or a few each.
        table: rows of cells, the header first.
        after: a sentence that follows the bullets.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    lines: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    after: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.facts or self.lines or self.bullets or self.table or self.after)


def plain(blocks: Iterable[Block], width: int = _COLUMNS_OF_TEXT) -> str:
    """Text for a terminal or a file, at most so many columns wide; the rows of a wider table are bullets."""
    return "\n\n".join("\n".join(_plain_lines(block, width)) for block in blocks if not block.empty)


def _plain_lines(block: Block, width: int) -> list[str]:
    def wrapped(text: str, first: str = "  ", others: str = "  ") -> list[str]:
        return textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
        )

    lines = [block.title]
    for name, value in block.facts:
        lines += wrapped(f"{name}: {value}", others="    ")
    for line in block.lines:
        lines += wrapped(line)
    for bullet in block.bullets:
        lines += wrapped(bullet, "  - ", "    ")
    lines += wrapped(block.after) if block.after else []
    columns = [f"  {line}" for line in _columns(block.table)]
    if max(map(len, columns), default=0) <= width:
        return [*lines, *columns]
    header, *rows = block.table
    for row in rows:
        cells = (f"{name} {cell}" if cell[0] in _NUMERIC else cell for name, cell in zip(header[1:], row[1:]))
        lines += wrapped(f"{row[0]}: {', '.join(cells)}", "  - ", "    ")
    return lines


def _columns(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def markdown(blocks: Iterable[Block]) -> str:
    """The same for a page in Markdown: a bold title, lists and a table."""
    return "\n\n".join("\n\n".join(_markdown(block)) for block in blocks if not block.empty)


def _markdown(block: Block) -> list[str]:
    parts = [f"**{block.title}**", "\n".join(f"- {name}: {value}" for name, value in block.facts), *block.lines]
    parts += ["\n".join(f"- {bullet}" for bullet in block.bullets), block.after]
    if block.table:
        rows = [block.table[0], ["---"] * len(block.table[0]), *block.table[1:]]
        parts.append("\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows))
    return [part for part in parts if part]


NOT_STATED = "not stated by the author of this run"
"""The answer to a question without an answer."""


QUESTIONS: dict[str, str] = {
    "trust_model": "Who sees the records, or sums of them without noise, and is trusted with them?",
    "released": "What is released, and is every part of it covered?",
    "contribution": "How much can one unit contribute, and what makes sure of it?",
    "several_units": "Can one person be several units, or do units belong together?",
    "sampling_as_run": "Is the sampling that ran the sampling that is accounted?",
    "hyperparameter_tuning": "How were the settings chosen, and are the runs that served to choose them counted?",
    "preprocessing": "Did the preparation of the data look at private records?",
    "evaluation": "Were private records used to measure, to select or to stop, and is that covered?",
    "public_data": "Was other data used, pretrained weights included, and whose records are in it?",
    "other_releases": "What else is released from the same records, and over what time?",
    "budget_choice": "Who chose epsilon and delta, and why are they acceptable?",
    "cryptographic_noise": "Does the randomness come from a cryptographic source that no one can repeat?",
    "floating_point": "Is the noise safe against attacks on the rounding of numbers?",
    "verification": "What can an outsider verify?",
}
"""Questions that the numbers of a statement do not answer, by the name of their answer."""


def complete(answers: Mapping[str, str]) -> dict[str, str]:
    """An answer to every question, in their order.

    Args:
        answers: by the names in `QUESTIONS`; one sentence or two each, for the public.

    Raises:
        InputError: there is no such question, or an answer is not text.
    """
    if not isinstance(answers, Mapping):
        raise InputError(f"disclosure must hold answers by name, such as public_data, got {answers!r}")
    for name, answer in answers.items():
        if name not in QUESTIONS:
            raise InputError(f"there is no question {name!r}; the questions are {', '.join(QUESTIONS)}")
        if not isinstance(answer, str) or not answer.strip():
            raise InputError(f"the answer to {name} must be a sentence, got {answer!r}; leave it out if there is none")
    return {name: answers.get(name, NOT_STATED) for name in QUESTIONS}


_UNITS = {
    "example": "one example",
    "user": "one person with all of their examples",
    "virtual_client": "one virtual client (a group of people)",
    "agent": "one agent with all of its data",
    "identity": "one identity with all of its examples",
    "patient": "one patient with all visits",
    "stay": "one stay with all that was recorded in it (a patient may have several)",
    "admission": "one admission with all that was recorded in it (a patient may have several)",
    "record": "one record with all that it holds (a patient may have several)",
    "label": "the label of one example (the rest of the example is not protected)",
}
_ADJACENCIES = {
    "add_remove": "is in the data or not",
    "replace": "is in the data or is exchanged for another one",
    "zero_out": "contributes or contributes nothing",
}


VERSION = 2
SCHEMA = "urn:sfumato:statement:2"
"""The form of statement.json: a JSON schema, docs/reference/statement.schema.json, with a filled example."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a run promises.

    Attributes:
        unit: whose presence is hidden: example, user, virtual_client, agent, identity, patient, stay, admission, record
            or label.
        adjacency: add_remove, replace or zero_out.
        epsilon: certified upper bound, >= 0; inf for no guarantee.
        delta: in [0, 1].
        epsilon_lower: certified lower bound on the same, or None.
        rho: zCDP, or None.
        sampling: how units were chosen, in words.
        mechanism: what noise was added to what, in words.
        noise_source: where the randomness came from: a sentence of the catalogue, or words.
        assumptions: sentences that must hold for the numbers to be true, and on what they leave out: of the catalogue
            (`sfumato.statement.sentences.render`), or in the author's own words.
        alternatives: the same run under other conventions: dictionaries of JSON values, each with a "name"
            and its own numbers ("unit", "epsilon", "delta" …).
        population: units in the data, if that number is public; a delta that is not well below 1 / population gets
            a warning.
        disclosure: answers to the questions that the other fields do not answer, by the names in
            `sfumato.statement.QUESTIONS`; those without an answer read "not stated".
        tpr_at_1_percent_fpr: the largest true positive rate of any test of membership at a false positive rate of
            0.01, from the trade-off curve of what was released (`Guarantee.tpr`), or None where only epsilon and
            delta are known.
        ledger: what it was made of, {"entries": how many, "head": hash of the last one}, or None without a ledger.
        version: of the file's form: 2, or 1 for a file from before sentences had ids, whose bytes and digest it keeps.
    """

    unit: str
    adjacency: str
    epsilon: float
    delta: float
    epsilon_lower: float | None = None
    rho: float | None = None
    sampling: str
    mechanism: str
    noise_source: str
    assumptions: tuple[str, ...] = ()
    alternatives: tuple[dict[str, Any], ...] = field(default=(), hash=False)
    population: int | None = None
    disclosure: Mapping[str, str] = field(default_factory=dict, hash=False)
    tpr_at_1_percent_fpr: float | None = None
    ledger: Mapping[str, Any] | None = field(default=None, hash=False)
    version: int = VERSION

    def __post_init__(self) -> None:
        one_of(_UNITS, unit=self.unit)
        one_of(_ADJACENCIES, adjacency=self.adjacency)
        for name in ("epsilon", "delta", "epsilon_lower", "rho", "tpr_at_1_percent_fpr"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _plain_number(name, value))
        between(0, math.inf, epsilon=self.epsilon)
        between(0, 1, delta=self.delta)
        if self.epsilon_lower is not None:
            between(0, self.epsilon, epsilon_lower=self.epsilon_lower)
        if self.rho is not None:
            between(0, math.inf, rho=self.rho)
        if self.tpr_at_1_percent_fpr is not None:
            between(0, 1, tpr_at_1_percent_fpr=self.tpr_at_1_percent_fpr)
        if self.version not in (1, VERSION):
            raise InputError(f"version must be 1 or {VERSION}, got {self.version!r:.80}; read it with its own sfumato")
        for name in ("sampling", "mechanism"):
            _require_text(name, getattr(self, name))
        object.__setattr__(self, "noise_source", _rendered("noise_source", self.noise_source))
        if self.population is not None:
            whole(at_least=0, population=self.population)
            object.__setattr__(self, "population", int(self.population))
        if self.ledger is not None:
            _require_ledger(self.ledger)
        said = [_rendered("an assumption", assumption) for assumption in _listed("assumptions", self.assumptions)]
        for other in _listed("alternatives", self.alternatives):
            _require_alternative(other)
        object.__setattr__(self, "disclosure", complete(self.disclosure))
        if self.version > 1 and not any(sentence.id == "delta_too_large" for sentence in said):
            said += map(render, large_delta(self.epsilon, self.delta, self.unit, self.population))
        object.__setattr__(self, "assumptions", tuple(said))
        object.__setattr__(self, "alternatives", tuple(_native(other) for other in self.alternatives))

    @property
    def sentences(self) -> tuple[RenderedSentence, ...]:
        """`assumptions`, each with its id."""
        return tuple(map(render, self.assumptions))

    @property
    def seeded(self) -> bool:
        """Whether the randomness can be repeated, which is for simulation only."""
        return render(self.noise_source).id == "randomness_seeded"

    def verdict(self, event: Event | None = None) -> Verdict:
        """What an attacker gains, and whether anything is promised at all.

        Args:
            event: what was released, from the ledger; it shows more than the statement, and is held against it.
        """
        return judge(
            unit=self.unit,
            adjacency=self.adjacency,
            epsilon=self.epsilon,
            delta=self.delta,
            population=self.population,
            seeded=self.seeded,
            tpr=self.tpr_at_1_percent_fpr,
            event=event,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that was promised; answers to questions, which can be added later, are no part of it."""
        promised = {name: value for name, value in self.to_json().items() if name != "disclosure"}
        try:
            text = json.dumps(promised, sort_keys=True, allow_nan=False)
        except ValueError:
            raise InputError("the statement holds a number that is not finite; take a whole copy") from None
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can write, as docs/reference/statement.schema.json has it; inf is the string "inf"."""
        values: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.version == 1:
            del values["version"]
            return _plain(values)
        values["noise_source"] = render(self.noise_source).to_json()
        values["assumptions"] = [sentence.to_json() for sentence in self.sentences]
        return {"$schema": SCHEMA, **_plain(values)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Statement":
        """The statement that `to_json` wrote.

        Raises:
            InputError: a field is missing, unknown or impossible.
        """
        if not isinstance(value, Mapping):
            raise InputError(f"not a statement: {type(value).__name__} instead of named fields")
        version = value.get("version", 1)
        if version == 1 and ("$schema" in value or "version" in value):
            raise InputError("a statement of version 1 has neither $schema nor version; take a whole copy")
        if version != 1 and value.get("$schema") != SCHEMA:
            given = value.get("$schema")
            raise InputError(f"$schema must be {SCHEMA}, got {given!r:.80}; read it with the version that wrote it")
        known = {item.name for item in fields(cls)} | {"$schema"}
        unknown = sorted(map(str, set(value) - known))
        if unknown:
            raise InputError(f"a statement has no field {unknown[0]!r:.80}; it was written by another version")
        values = {**_numbers(value), "version": version}
        values.pop("$schema", None)
        for name in ("assumptions", "alternatives"):
            values[name] = _listed(name, values.get(name, ()))
        if version == 1:
            values["assumptions"] = tuple(_sentence_of("an assumption", each) for each in values["assumptions"])
        else:
            values["assumptions"] = tuple(map(RenderedSentence.from_json, values["assumptions"]))
            values["noise_source"] = RenderedSentence.from_json(values.get("noise_source"))
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"not a statement: {error}") from None

    def save(self, path: Path | str) -> None:
        """Write the JSON, whole or not at all."""
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: Path | str) -> "Statement":
        """Read what `save` wrote.

        Raises:
            InputError: the file is damaged or holds something else.
        """
        if not isinstance(path, str | Path):
            raise InputError(f"a statement is read from a path, got {path!r:.80}")
        path = Path(path)
        try:
            return cls.from_json(read_json(path))
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); give the statement.json of a run") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is no whole statement: {error!s:.500}; take a whole copy") from None

    def answer(self, **answers: str) -> "Statement":
        """The statement with these answers, added to those that it has.

        Args:
            answers: by the names in `sfumato.statement.QUESTIONS`.

        Raises:
            InputError: there is no such question, or an answer is not text.
        """
        given = {name: text for name, text in self.disclosure.items() if text != NOT_STATED}
        return replace(self, disclosure={**given, **answers})

    def questions(self) -> list[tuple[str, str]]:
        """(question, answer): all that a disclosure has to state, the guarantee first."""
        promised = "nothing: epsilon is infinite"
        if math.isfinite(self.epsilon):
            promised = f"epsilon {_upper(self.epsilon, 4)} at delta {_upper(self.delta, 3)}, an upper bound"
            if self.epsilon_lower is not None:
                promised += f"; no accounting can show less than {rounded_down(self.epsilon_lower, 4):.4g}"
        return [
            ("What is promised?", promised),
            ("To whom: what is the unit of privacy?", _UNITS[self.unit]),
            (
                "Which data sets are neighbours?",
                f"those that differ in whether this unit {_ADJACENCIES[self.adjacency]}",
            ),
            ("How were units sampled?", self.sampling),
            ("What was released with which noise?", self.mechanism),
            ("Where does the randomness come from?", self.noise_source),
            *((question, self.disclosure[name]) for name, question in QUESTIONS.items()),
            ("What else has to hold?", " ".join(map(_sentence, self.assumptions)) or NOT_STATED),
        ]

    def questions_markdown(self) -> str:
        """The questions and answers as a table in Markdown."""
        rows = [(question.replace("|", "\\|"), answer.replace("|", "\\|")) for question, answer in self.questions()]
        return "\n".join(["| question | answer |", "| --- | --- |", *(f"| {q} | {a} |" for q, a in rows), ""])

    def text(self, event: Event | None = None) -> str:
        """The five blocks as plain text, wrapped."""
        return plain(self.blocks(event))

    def markdown(self, event: Event | None = None) -> str:
        """The five blocks in Markdown."""
        return markdown(self.blocks(event))

    def blocks(self, event: Event | None = None) -> tuple[Block, ...]:
        """All that is stated, in five blocks: what is promised, by what, under which conditions, and what is left out.

        Args:
            event: what was released, from the ledger, if it is at hand.
        """
        mechanism = (("Sampling", self.sampling), ("Noise", self.mechanism), ("Randomness", self.noise_source))
        return (
            self._guarantee(self.verdict(event)),
            Block("Mechanism", facts=mechanism),
            self._conditions(),
            Block("Not covered", bullets=self._left_out()),
            self._other_accounting(),
        )

    def _guarantee(self, verdict: Verdict) -> Block:
        title = f"{verdict.title}. {verdict.void}" if verdict.void else verdict.title  # first, so that no one misses it
        facts = [("Verdict", title), ("Unit", _UNITS[self.unit])]
        lines: list[str] = []
        if math.isfinite(self.epsilon):
            lower = "" if self.epsilon_lower is None else f"{rounded_down(self.epsilon_lower, 4):.4g}"
            least = f" (no accounting of this mechanism shows less than {lower})" if lower else ""
            facts += [("Epsilon", f"{_upper(self.epsilon, 4)}{least}"), ("Delta", _upper(self.delta, 3))]
            lines += [render(Assumption("if_random"))] if self.seeded and not verdict.contradicted else []
            lines.append(membership(self.unit, FPR, verdict.tpr))
            lines += [] if verdict.void else [scale_in_words()]
        facts.append(("Neighbours", f"data sets that differ in whether this unit {_ADJACENCIES[self.adjacency]}"))
        warnings = [said for said in self._of("guarantee") if not (self.seeded and render(said).id == "seeded_run")]
        return Block("Guarantee", tuple(facts), (*lines, *warnings))

    def _conditions(self) -> Block:
        """The unusual ones in full, and the usual ones by their names."""
        usual = [said.sentence.usual for said in self.sentences if said.sentence and said.sentence.usual]
        full = tuple(
            _sentence(said)
            for said in self.sentences
            if said.sentence is None or (said.sentence.block == "assumptions" and not said.sentence.usual)
        )
        names = "; ".join(dict.fromkeys(usual))
        return Block("Assumptions", bullets=full, after=f"The usual ones ({USUAL}): {names}." if usual else "")

    def _left_out(self) -> tuple[str, ...]:
        if math.isinf(self.epsilon):
            partly = tuple(said for said in self.sentences if said.id == "only_clusters_covered")
            return partly or (render(Assumption("nothing_covered")),)
        if self.version == 1:
            return ()
        two = Assumption("two_units", {"epsilon": _upper(2 * self.epsilon, 4)})
        return (*self._of("not_covered"), *map(render, (Assumption("operator"), Assumption("learned_of_all"), two)))

    def _other_accounting(self) -> Block:
        lines, table = ((render(Assumption("first_row")),), self.conventions()) if self.alternatives else ((), ())
        return Block("Other accounting", lines=lines, table=table)

    def _of(self, block: str) -> tuple[str, ...]:
        return tuple(said for said in self.sentences if said.sentence and said.sentence.block == block)

    def conventions(self) -> tuple[tuple[str, ...], ...]:
        """A table of the same run under all conventions: its header, and the statement as its first row."""
        first: dict[str, Any] = {
            "name": "this statement",
            "unit": self.unit,
            "adjacency": self.adjacency,
            "accountant": "tightest valid",
            "epsilon": self.epsilon,
            "delta": self.delta,
        }
        rows = [first, *self.alternatives]
        names = [*first, *sorted({name for row in rows for name in row} - set(first))]
        titles = {"name": "Convention", "epsilon": "ε", "delta": "δ"}
        header = tuple(titles.get(name, name.capitalize()) for name in names)
        return (header, *(tuple(_cell(name, row.get(name)) for name in names) for row in rows))


USUAL = "docs/how-to/read-a-statement.md has them in full, and so has statement.json"


_ACCOUNTANTS = {"auto": "tightest valid", "rdp": "Rényi", "zcdp": "zCDP", "pld": "privacy loss"}


def _cell(name: str, item: Any) -> str:
    if item is None:
        return "–"
    match name:
        case "unit":
            return f"one {str(item).replace('_', ' ')}"
        case "accountant":
            return _ACCOUNTANTS.get(item, str(item))
        case "adjacency":
            return str(item).replace("_", " / ")
    if isinstance(item, float):
        return "∞" if item == math.inf else _short(name, item)
    return str(item)


def unit_in_words(unit: str) -> str:
    """As in "one person with all of their examples"."""
    return _UNITS[unit]


_NUMBERS = {"epsilon", "delta", "rho", "epsilon_lower"}


def _upper(value: float, digits: int) -> str:
    """An upper bound in so many digits, rounded up."""
    return f"{rounded_up(value, digits):.{digits}g}"


def _plain_number(name: str, value: Any) -> float:
    """A number as it is; anything that only turns into one, data-dependent costs among it, is refused."""
    if type(value) in (int, float) or isinstance(value, np.floating | np.integer):
        given: dict[str, Any] = {name.replace(" ", "_"): value}
        between(0, math.inf, **given)
        return float(value)
    raise InputError(
        f"{name} must be a number, got {type(value).__name__}; a statement holds costs that do not depend on the data"
    )


def _require_ledger(ledger: object) -> None:
    if not isinstance(ledger, Mapping) or ledger.keys() != {"entries", "head"}:
        raise InputError(f"ledger must be its entries and its head, got {ledger!r:.80}")
    whole(at_least=0, entries=ledger["entries"])
    if not (isinstance(ledger["head"], str) and re.fullmatch("[0-9a-f]{64}", ledger["head"])):
        raise InputError(f"head of the ledger must be 64 hexadecimal digits, got {ledger['head']!r:.80}")


def _require_alternative(other: object) -> None:
    if not isinstance(other, Mapping):
        raise InputError(f"an alternative must be a dictionary with a name and its numbers, got {other!r:.80}")
    for name, value in other.items():
        if name in _NUMBERS and value is not None:
            _plain_number(f"{name} of an alternative", value)
        _require_plain(f"{name} of an alternative", value)


def _require_plain(name: str, value: object) -> None:
    """Refuse what JSON cannot hold, so that nothing that is marked as not private enters by another name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _require_plain(f"{key} in {name}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            _require_plain(name, item)
    elif isinstance(value, float | np.floating) and math.isnan(value):
        raise InputError(f"{name} must be a number, got nan")
    elif not (value is None or isinstance(value, str | bool | int | float | np.floating | np.integer)):
        raise InputError(f"{name} must be text, a number or a list of them, got {type(value).__name__}")


def _native(value: Any) -> Any:
    """The same in Python's own types, which JSON can write."""
    if isinstance(value, Mapping):
        return {str(name): _native(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_native(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _rendered(name: str, value: str) -> RenderedSentence:
    _require_text(name, value)
    return render(value)


def _sentence_of(name: str, value: object) -> RenderedSentence:
    """A sentence of a file without ids, as it is."""
    _require_text(name, value)
    return RenderedSentence(str(value))


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, got {value!r:.80}")


def _listed(name: str, values: object) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list, got {values!r:.80}; put a single one into brackets")
    return tuple(values)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _short(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return _upper(value, 3 if name == "delta" else 4) if name in _NUMBERS - {"epsilon_lower"} else f"{value:.4g}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(item) for item in value]
    infinite = {"inf": math.inf, "-inf": -math.inf}
    return infinite.get(value, value) if isinstance(value, str) else value


_WIDTH = 120
MOST_LINES = 8


def brief(
    statement: Statement, event: Event | None = None, *, stopped: str = "", trouble: str = "", where: str = ""
) -> list[str]:
    """The lines.

    Args:
        statement: what was promised.
        event: what was released, from the ledger, if it is at hand.
        stopped: how far a run came that was stopped before its end, a sentence; "" for one that is finished.
        trouble: why the model is of no use, a sentence; "" if nothing is known against it.
        where: where the whole text is.
    """
    verdict = statement.verdict(event)
    lines = _wrapped(stopped) + _wrapped(trouble)
    if math.isinf(statement.epsilon):
        lines += [f"{verdict.title}.", *_wrapped(verdict.sentence)]
    else:
        unit = unit_in_words(statement.unit)
        numbers = f"epsilon {rounded_up(statement.epsilon, 4):.4g}, delta {rounded_up(statement.delta, 3):.3g}"
        stated = f". Stated for {unit}:" if verdict.void else f" for {unit}:"
        lines += [f"{verdict.title}{stated} {numbers}."]
        lines += _wrapped(verdict.sentence) + _wrapped(verdict.delta_too_large)
        conditions = len(statement.assumptions)
        rests = f"{conditions} condition{'' if conditions == 1 else 's'} in the statement"
        lines += [f"It rests on: {statement.sampling}; {statement.noise_source}; {rests}."]
        lines += ["Not covered: what was computed without noise (metrics, evaluations, checkpoints); other releases."]
    if where:
        lines += [f"The whole text: {where}"]
    return lines


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, _WIDTH, break_long_words=False, break_on_hyphens=False)
