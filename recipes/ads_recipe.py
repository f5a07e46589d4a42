"""What the recipes of ads share: rows of a table over ε, the relative increase of a loss, and a figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cells
import numpy as np

from sfumato._files import read_json
from sfumato.report.plots import COLOURS, save


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table, and its figure.

    Attributes:
        folder: where run.py and results.json lie.
        file: name of the figure.
        dataset: as the table names it.
        methods: the rows, in order; those without ε are dotted lines of the figure.
        plain: the method without privacy, whose mean loss is what others are compared with.
        measures: key of what a cell wrote → name in the table, where it wrote one; the first is the loss.
        increase: name of the relative increase of the loss.
        axis: what the figure calls the loss.
    """

    folder: Path
    file: str
    dataset: str
    methods: Sequence[str]
    plain: str
    measures: Mapping[str, str]
    increase: str
    axis: str

    def __call__(self, place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
        """All rows; draws the figure."""
        measured = {
            name: [read_json(place(name, seed) / "measured.json") for seed in range(seeds)] for name in self.methods
        }
        loss = next(iter(self.measures))
        ideal = float(np.mean([found[0][loss] for found in measured[self.plain]]))
        rows = []
        for name, found in measured.items():
            for each in zip(*found, strict=True):
                for key, metric in self.measures.items():
                    if key not in each[0]:
                        continue
                    rows.append(self._row(metric, name, [one[key] for one in each], each[0]))
                increases = [100 * (one[loss] / ideal - 1) for one in each]
                rows.append(self._row(self.increase, name, increases, each[0]))
        self._draw(rows, place(self.plain, 0).parent if quick else self.folder)
        return rows

    def _row(self, metric: str, name: str, found: list[float], reported: dict[str, Any]) -> dict[str, Any]:
        return {
            "method": name,
            "dataset": self.dataset,
            "metric": metric,
            **cells.mean_and_std(found),
            "seeds": len(found),
            "epsilon_wanted": reported["wanted"],
            "epsilon": reported.get("epsilon"),
            "delta": reported.get("delta"),
            "unit": reported["unit"],
            "paper": None,
        }

    def _draw(self, rows: list[dict[str, Any]], folder: Path) -> None:
        """The loss against ε, with dotted lines of methods without ε."""

        def fill(figure: Any) -> None:
            axes = figure.subplots()
            loss, private = next(iter(self.measures.values())), 0
            for number, name in enumerate(self.methods):
                mine = [row for row in rows if (row["method"], row["metric"]) == (name, loss)]
                if mine[0]["epsilon_wanted"] is None:
                    axes.axhline(mine[0]["mean"], color=COLOURS[5 + number], linewidth=0.8, linestyle=":", label=name)
                    continue
                x, y, spread = ([row[key] for row in mine] for key in ("epsilon_wanted", "mean", "std"))
                axes.errorbar(x, y, spread, color=COLOURS[private], marker="o", markersize=3, capsize=2, label=name)
                private += 1
            axes.set_xscale("log")
            axes.set_xlabel("ε")
            axes.set_ylabel(self.axis)
            axes.legend(frameon=False, fontsize=7)

        save(folder / self.file, (5.6, 3.6), fill)
