"""DP-FEST: the rows of tables that most contributions read, chosen once from noisy counts; all others become one row.

A model then has k rows and one more for each table, so any optimiser and any `tables` of a plan will do, and a step is
as small as they are. Where it is publicly known which values are common, list them in the schema (`values`): that costs
nothing.

- **Unit.** That of the plan: an example, or a user with all examples. The run refuses a plan with another one.
- **Sensitivity.** A unit has a count of one for each distinct row that it reads, over all tables, times
  min(1, C₁/√(how many it reads)): a vector of norm C₁ at most. A unit that comes or goes moves the counts by that, one
  that is replaced by twice as much, which accountants know.
- **Noise.** Normal numbers of std σ₁·C₁ on the count of every row, read or not, from the stream `row counts` of the
  release. The number of rows of each table is public.
- **Event.** `Gaussian(σ₁)`, once, before the first step: it stands in the ledger before the counts are drawn, and adds
  up with the cost of the steps.
- **Who is counted.** All units of the data to train on, whether a step will draw them or not; those who are kept for
  validation and test are not.
- **What is released.** Which k rows have the highest noisy counts, without these. What a step sees of an example
  follows from the example and from what was released.
- **A run that goes on** reads the rows from its checkpoint, at no cost. If it died before they were kept, it draws them
  again with the same noise from the same records, which the fingerprint of the run makes sure of.

References:
    Ghazi, Huang, Kamath, Kumar, Manurangsi, Sinha, Zhang: Sparsity-Preserving Differentially Private Training of Large
    Embedding Models. NeurIPS 2023, arXiv 2311.08357 (section 3.1; there other rows stay as they began).

>>> from sfumato.data import examples_from_arrays
>>> ids = np.array([[3, 0], [3, 1], [3, 0], [7, 0]])
>>> data = examples_from_arrays(ids, [0, 1, 0, 1], num_classes=2, vocabulary_sizes=(9, 2))
>>> rule = FrequentRows(rows=2, noise_multiplier=2.0).initial_release(data)
>>> [each.round(2).tolist() for each in rule.counts(data)]  # 1/√2 for either row of an example
[[0.0, 0.0, 0.0, 2.12, 0.0, 0.0, 0.0, 0.71, 0.0], [2.12, 0.71]]
>>> kept = rule.prepare([np.array([3]), np.array([0])], data)
>>> kept.vocabulary_sizes, kept.examples([0, 1, 3])[0][0].tolist()
((2, 2), [[1, 1], [1, 0], [0, 1]])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError
from sfumato._files import write_json
from sfumato._lazy import scipy
from sfumato._random import RandomSource
from sfumato._types import Adjacency, Assumption, Unit
from sfumato.accounting import Event, Gaussian
from sfumato.clipping.bounds import ROUND_DOWN
from sfumato.data.examples import ExampleDataset, ExampleRows
from sfumato.runs import Run

PHASE = "frequent rows"
FILE = "frequent_rows.json"
"""Where a run puts the rows: for each table the ids that became 1, 2, …; all others are 0 in what the model reads."""

_BLOCK = 1 << 16  # units whose rows are looked at together


@dataclass(frozen=True, kw_only=True)
class FrequentRows:
    """How rows are chosen; with data (`initial_release`), the first release of a run (`RunOptions.initial_release`).

    Attributes:
        rows: k, how many are kept, of all tables together, >= 1.
        noise_multiplier: σ₁, std of the noise on a count divided by `count_norm`, > 0.
        count_norm: C₁, the norm that the counts of a unit are scaled to at most, > 0.
        unit: example or user, as the plan's: with `examples.per_user` it is the user.
        data: whose rows are counted; set by `initial_release`.
    """

    rows: int
    noise_multiplier: float
    count_norm: float = 1.0
    unit: Unit = "example"
    data: ExampleDataset | None = None

    def __post_init__(self) -> None:
        _check.whole(rows=self.rows)
        _check.positive(noise_multiplier=self.noise_multiplier, count_norm=self.count_norm)
        _check.one_of(("example", "user"), unit=self.unit)

    def initial_release(self, data: ExampleDataset) -> Self:
        """The choice as the first release of the run that trains on these data.

        Args:
            data: with a column of ids for each of its `vocabulary_sizes`.

        Raises:
            InputError: they have none, no users where these are the unit, or no more rows than are kept.
        """
        _ids_of(data)
        if self.unit == "user":
            _ = data.num_users
        if self.rows >= sum(data.vocabulary_sizes):
            raise InputError(
                f"rows must be below the {sum(data.vocabulary_sizes):,} rows of all tables, got {self.rows:,}; keep "
                "fewer, or train without this choice"
            )
        return replace(self, data=data)

    def counts(self, data: ExampleDataset) -> list[np.ndarray]:
        """How many units read each row, by table, float64 [V]: private; the vector of one unit has norm C₁ at most."""
        sizes = data.vocabulary_sizes
        found = [np.zeros(size) for size in sizes if size]
        for units, ids in self._blocks(data):
            pairs = [
                np.divmod(np.unique((units[:, None] * len(total) + part)[_counted(part)]), len(total))
                for part, total in zip(_by_table(ids, sizes), found, strict=True)
            ]
            each = sum(np.bincount(who, minlength=int(units[-1]) + 1) for who, _ in pairs)
            weights = np.minimum(1.0, self.count_norm * ROUND_DOWN / np.sqrt(np.maximum(each, 1)))
            for total, (who, rows) in zip(found, pairs, strict=True):
                total += np.bincount(rows, weights[who], minlength=len(total))
        return found

    def _blocks(self, data: ExampleDataset) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Units, int64 [n] from 0 in each block, and the ids that they read, [n, columns]; a unit is in one block."""
        place, _ = _ids_of(data)
        owners = np.arange(len(data)) if self.unit == "example" else data.owners
        assert owners is not None
        order = np.argsort(owners, kind="stable")
        ordered = owners[order]
        firsts = np.searchsorted(ordered, np.arange(0, int(ordered[-1]) + 1, _BLOCK))
        for start, end in zip(firsts, [*firsts[1:], len(order)], strict=True):
            inputs, _ = data.examples(order[start:end])
            yield ordered[start:end] - ordered[start], inputs[place]

    def release(self, run: Run, data: ExampleDataset, adjacency: Adjacency) -> list[np.ndarray]:
        """Release the rows to keep of each table, ids in rising order."""

        def draw(source: RandomSource) -> dict[str, Tensor]:
            noisy = np.concatenate(self.counts(data))
            source.stream("row counts").add_normal(noisy, std=self.noise_multiplier * self.count_norm)
            return {"rows": torch.from_numpy(np.sort(np.argsort(-noisy, kind="stable")[: self.rows]))}

        public = {"rows": self.rows, "count_norm": self.count_norm}
        rows = run.release(PHASE, self.event(adjacency), draw, **public)["rows"].numpy()
        sizes = [size for size in data.vocabulary_sizes if size]
        ends = np.cumsum(sizes)
        chosen = [
            rows[(end - size <= rows) & (rows < end)] - (end - size) for size, end in zip(sizes, ends, strict=True)
        ]
        if run.folder is not None and run.team.leads:
            write_json(run.folder.path / FILE, [each.tolist() for each in chosen])
        return chosen

    def prepare(self, found: Sequence[np.ndarray], data: ExampleDataset) -> ExampleDataset:
        """The same examples by the rows that were kept: ids 1, 2, … in the order of the old ones, and 0 for all others.

        In a column of several values 0 is for none, as before, so other values are left out.
        """
        place, ids = _ids_of(data)
        inputs = list(data.inputs)
        inputs[place] = _Renumbered(ids, data.vocabulary_sizes, found)
        left = iter(found)
        sizes = tuple(1 + len(next(left)) if size else 0 for size in data.vocabulary_sizes)
        return replace(data, inputs=tuple(inputs), vocabulary_sizes=sizes)

    # As the first release of a run (`training.InitialRelease`), with `release` and `prepare`.

    @property
    def phase(self) -> str:
        return PHASE

    @property
    def words(self) -> str:
        return (
            f"counts of the rows that each {self.unit} reads, of norm at most {self.count_norm:g}, noise multiplier "
            f"{self.noise_multiplier:.6g}, of which the {self.rows:,} largest choose the rows of tables"
        )

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return (Assumption("rows_counted"),)

    @property
    def placeholder(self) -> list[np.ndarray]:
        assert self.data is not None, "initial_release(data) sets it"
        return [np.arange(min(2, size)) for size in self.data.vocabulary_sizes if size]

    def resolved(self, delta: float) -> Self:
        return self

    def as_started(self, recorded: Mapping[str, Any]) -> Self:
        return self

    def warning(self, population: int) -> str:
        """Why the choice is hardly better than chance, from public numbers; "" where nothing speaks against it."""
        assert self.data is not None
        share = self.rows / sum(self.data.vocabulary_sizes)
        needed = self.noise_multiplier * self.count_norm * -float(scipy.special.ndtri(share))
        if needed < population * min(1.0, self.count_norm):
            return ""
        return (
            f"noise alone lifts {self.rows:,} rows above a count of {needed:,.0f}, and there are {population:,} "
            f"{self.unit}s; keep fewer rows or give less noise_multiplier"
        )

    def event(self, adjacency: Adjacency) -> Event:
        """What the choice costs one unit."""
        return Gaussian(self.noise_multiplier)

    def fingerprint(self) -> str:
        assert self.data is not None
        return f"{self._settings()} {self.data.fingerprint()}"

    def about(self, found: Sequence[np.ndarray] | None = None) -> dict[str, Any]:
        if found is None or self.data is None:
            return {"opening": {"phase": PHASE, **self._settings()}}
        return {"vocabulary_sizes": list(self.prepare(found, self.data).vocabulary_sizes)}

    def public(self, data: ExampleDataset) -> ExampleDataset:
        return data.subset([])

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("rows", "noise_multiplier", "count_norm", "unit")}


class _Renumbered:
    """Ids by the rows that were kept, made when they are asked for."""

    def __init__(self, rows: ExampleRows, sizes: Sequence[int], found: Sequence[np.ndarray]) -> None:
        self._rows, self._sizes, self._found = rows, sizes, found
        self.shape, self.dtype = rows.shape, np.dtype(np.int64)

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The rows at these positions, int64 [n, columns]."""
        parts = []
        for part, kept in zip(_by_table(self._rows[rows], self._sizes), self._found, strict=True):
            at = np.searchsorted(kept, part)
            there = np.append(kept, -1)[at] == part
            parts.append(np.where(there & _counted(part), at + 1, 0))
        return np.concatenate(parts, axis=1)


def _ids_of(data: ExampleDataset) -> tuple[int, ExampleRows]:
    """Which of the inputs are the ids, and these.

    Raises:
        InputError: no input has a column for each of the vocabulary sizes.
    """
    columns = (len(data.vocabulary_sizes),)
    for place, rows in reversed([*enumerate(data.inputs)]):  # ids stand after numbers, which may be whole, too
        if data.vocabulary_sizes and tuple(rows.shape[1:]) == columns and rows.dtype.kind in "iu":
            return place, rows
    raise InputError(
        f"rows are chosen of tables whose vocabulary_sizes have one number a column of ids, got {data}; declare the "
        "columns as categories"
    )


def _by_table(ids: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """The ids [n, columns] of each table, int64 [n, its columns], within its rows, as models of tables read them."""
    starts = [place for place, size in enumerate(sizes) if size]
    ends = [*starts[1:], len(sizes)]
    return [ids[:, start:end].astype(np.int64) % sizes[start] for start, end in zip(starts, ends, strict=True)]


def _counted(part: np.ndarray) -> np.ndarray:
    """Which ids of a table stand for a row, bool [n, its columns]: of several values, 0 is for none."""
    return np.ones(part.shape, bool) if part.shape[1] == 1 else part != 0
