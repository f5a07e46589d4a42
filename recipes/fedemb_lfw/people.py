"""Whose pairs recall on faces is made of, and by how much rows differ among other people of the same kind.

    people.py [--runs DIR] [--data FOLDER]

Writes people.json, for the page people.md, of the runs that run.py has left.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import numpy as np
import torch
from faces import Residual, faces
from run import FAR, IN_VIEWS, at, begun_at, embedded
from safetensors.torch import load_file
from torch import nn

from sfumato._files import write_json
from sfumato.data import UserDataset

FOLDER = Path(__file__).resolve().parent
START = "whitened by public faces"
CONTROL = f"public people alone, centralized, {IN_VIEWS}"
METHODS = (
    "centralized",
    f"centralized, {IN_VIEWS}",
    CONTROL,
    "FedEmb",
    at(8),
    f"{at(8)}, {IN_VIEWS}",
    f"{at(8)}, from public people",
    begun_at(1),
    begun_at(8),
)
PARTS = {"test": "unseen people", "validation": "people to choose by"}
REPLICATES = 200


@dataclass(frozen=True)
class Pairs:
    """All pairs of pictures of some people, the most similar ones first.

    Attributes:
        first, second: whose pictures, int64 [pairs].
        people: how many there are.
    """

    first: np.ndarray
    second: np.ndarray
    people: int

    @classmethod
    def of(cls, model: nn.Module, users: UserDataset) -> "Pairs":
        """By a model's embeddings."""
        vectors, labels = embedded(model, users)
        names, owner = np.unique(labels, return_inverse=True)
        i, j = np.triu_indices(len(vectors), 1)
        order = np.argsort(-(vectors @ vectors.T)[i, j], kind="stable")
        return cls(owner[i][order], owner[j][order], len(names))

    @property
    def genuine(self) -> np.ndarray:
        """Which pairs are of one person, bool [pairs]."""
        return self.first == self.second

    def recalls(self, weights: np.ndarray) -> tuple[float, float]:
        """Recall at `FAR` with each person so many times: over all genuine pairs, and as a mean over who has any.

        Args:
            weights: of people, float [people]; two different people make as many impostor pairs as both weights say.
        """
        genuine = self.genuine
        impostors = np.cumsum(np.where(genuine, 0.0, weights[self.first] * weights[self.second]))
        accepted = int(np.searchsorted(impostors, FAR * impostors[-1], side="right"))
        whose = self.first[genuine]
        right = np.bincount(whose, np.arange(len(genuine))[genuine] < accepted, minlength=self.people)
        of = np.bincount(whose, minlength=self.people)
        own = np.divide(right, of, out=np.zeros(self.people), where=of > 0)
        there = weights * (of > 0)
        return float(weights @ right / (weights @ of)), float(there @ own / there.sum())


def drawn_again(found: Sequence[Pairs]) -> np.ndarray:
    """Both recalls where people are drawn again, the same for each row: means over seeds, float [REPLICATES, 2]."""
    rng, means = np.random.default_rng(0), []
    for _ in range(REPLICATES):
        people = found[0].people
        weights = np.bincount(rng.integers(0, people, people), minlength=people).astype(float)
        means.append(np.mean([each.recalls(weights) for each in found], axis=0))
    return np.array(means)


def main() -> None:
    """Measure the runs that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs") / "fedemb_lfw" / "full", help="folder of the runs")
    parser.add_argument("--data", type=Path, help="folder of the shared data")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts, rows = faces(given.data), []
    for part, title in PARTS.items():
        users: UserDataset = getattr(parts, part)
        by_method = {START: [Pairs.of(Residual(), users)]}
        for method in METHODS:
            files = [cells.place_in(given.runs, method, seed) / "model.safetensors" for seed in range(given.seeds)]
            found = [Pairs.of(_model(file), users) for file in files if file.exists()]
            if len(found) == given.seeds:
                by_method[method] = found
        rows += rows_of(by_method, f"LFW, {title}, {_concentration(by_method[START][0])}")
    write_json(FOLDER / "people.json", rows)
    for row in rows:
        print(f"{row['dataset'][:24]}  {row['metric']:44} {row['method']:60} {row['mean']:.4f}")


def rows_of(by_method: dict[str, list[Pairs]], dataset: str) -> list[dict[str, Any]]:
    """Both recalls of each row, and how far they are from the public people's, with an interval over people."""
    values = {
        name: np.array([each.recalls(np.ones(each.people)) for each in found]) for name, found in by_method.items()
    }
    again = {name: drawn_again(found) for name, found in by_method.items()}
    same = {"dataset": dataset, **dict.fromkeys(("epsilon", "delta", "unit", "paper"))}
    rows: list[dict[str, Any]] = []
    for place, measure in enumerate(("all genuine pairs", "mean over people")):
        for name, found in values.items():
            row = {"method": name, **same, "measure": measure, "seeds": len(found)}
            rows.append({**row, "metric": f"recall@FAR={FAR:g}", **cells.mean_and_std(found[:, place].tolist())})
            if name in (START, CONTROL):
                continue
            gains = found[:, place] - values[CONTROL][:, place]
            low, high = np.quantile(again[name][:, place] - again[CONTROL][:, place], [0.025, 0.975]).round(4).tolist()
            metric = "recall above that of the public people alone"
            rows.append({**row, "metric": metric, **cells.mean_and_std(gains.tolist()), "low": low, "high": high})
    return rows


def _model(file: Path) -> nn.Module:
    model = Residual()
    model.load_state_dict(load_file(file), strict=False)
    return model.eval()


def _concentration(pairs: Pairs) -> str:
    """Whose the genuine pairs are."""
    of = np.sort(np.bincount(pairs.first[pairs.genuine], minlength=pairs.people))[::-1]
    one, five = (f"{of[:most].sum() / of.sum():.0%}" for most in (1, 5))
    return f"{of.sum():,} genuine pairs of {int((of > 0).sum())} people ({one} are one person's, {five} five people's)"


if __name__ == "__main__":
    main()
