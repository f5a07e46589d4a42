"""What is trained on faces: the last layer, the last blocks, adapters of low rank, or all of the network.

trained.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--data FOLDER] writes trained.json. What is frozen is computed
once (`prefix_cache`). See README.md.
"""

import dataclasses
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import torch
from faces import pictures
from network import Network
from run import ALONE, COSINES, DELTA, FAR, GROUPS, recall

from sfumato import models
from sfumato._check import InputError
from sfumato._files import read_json, write_json
from sfumato.federated import Centralized, FedEmb, Verification
from sfumato.training import RunOptions

FOLDER = Path(__file__).resolve().parent
QUICKLY = 700  # pictures
TRAINED = {
    "the last layer": ("residual", 0),
    "adapters of rank 4 in the last block, the last layer": ("lora|residual", 4),
    "the last block and layer": ("last_blocks:1+residual", 0),
    "the last two blocks and the last layer": ("last_blocks:2+residual", 0),
    "all": ("all", 0),
}
"""What is trained, and the rank of adapters (0: none)."""


RATES = {"the last block and layer": 10.0, "the last two blocks and the last layer": 10.0}
"""The server's rate of private rows that move far more numbers than the last layer, by choose_trained.py."""
CONTROL_RATES = {"the last layer": 0.05, "the last two blocks and the last layer": 0.005}
"""The rate of rows that train on public people alone: of the last layer an earlier one of run.py, of blocks by
choose_trained.py."""


@dataclass(frozen=True)
class Row:
    """What is trained, and how.

    Attributes:
        trained: a name of TRAINED.
        plan: before its noise; a centralized one trains on the public people alone.
        epsilon: for one person; None without noise.
    """

    trained: str
    plan: FedEmb | Centralized
    epsilon: float | None

    @property
    def method(self) -> str:
        """In the table."""
        if isinstance(self.plan, Centralized):
            return "public people alone, centralized"
        return "FedEmb, m = 16" if self.epsilon is None else f"DP-FedEmb, m = 1, ε = {self.epsilon:g}"


def alone(trained: str) -> FedEmb:
    """The private plan before its noise."""
    return ALONE.replace(server={"learning_rate": RATES.get(trained, ALONE.server.learning_rate)})


def control(trained: str) -> Row:
    """What public people alone teach, where the same moves: what is above it, private people have added."""
    rate = CONTROL_RATES[trained]
    return Row(trained, Centralized(rounds=200, cohort=256, server={"learning_rate": rate}, **COSINES), None)


ROWS = {
    f"{row.method}: {row.trained}": row
    for row in (
        *(Row(trained, GROUPS, None) for trained in TRAINED),
        # "all" would be 180,000 pictures through all of the network, with the negatives
        *(Row(trained, alone(trained), 8.0) for trained in TRAINED if trained != "all"),
        *(control(trained) for trained in CONTROL_RATES),
    )
}
UNTRAINED = "nothing"
"""The row of the network as it begins."""
LONE = [
    UNTRAINED,
    *(name for name, row in ROWS.items() if row.trained != "the last layer" and isinstance(row.plan, FedEmb)),
]
"""Rows with one seed: five to twenty minutes each, or without any."""


def plan_of(row: Row, population: int, *, quick: bool) -> FedEmb | Centralized:
    """The plan that runs."""
    spec, _ = TRAINED[row.trained]
    plan = dataclasses.replace(row.plan, trainable=spec)
    if isinstance(plan, Centralized):
        return plan.replace(rounds=2, cohort=8) if quick else plan
    if row.trained == "all":  # the whole network's rounding, enlarged by whitening, differs with who shares a batch
        plan = plan.replace(client={"at_once": 1})
    if quick:
        plan = plan.replace(rounds=2, cohort=2)
    return plan if row.epsilon is None else plan.calibrate(epsilon=row.epsilon, delta=DELTA, population=population)


def network_of(row: Row, path: Path | None) -> Network:
    """Before training."""
    model, (_, rank) = Network(path), TRAINED[row.trained]
    if rank:
        models.add_lora(model, rank=rank, layers=r"features\.12\.", generator=torch.Generator().manual_seed(0))
    return model


def fitted(row: Row, seed: int, folder: Path, caches: Path, quick: bool, path: Path | None) -> dict[str, float]:
    """Train a row with one seed, or go on with it: recall on the people to choose by, and in the test."""
    train, friends, validation, test = pictures(path, most=QUICKLY if quick else None)
    public = isinstance(row.plan, Centralized)
    result = dataclasses.replace(plan_of(row, len(train), quick=quick), seed=seed).fit(
        network_of(row, path),
        friends if public else train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        options=RunOptions(
            task=Verification(fars=(FAR,)),
            negatives=friends if isinstance(row.plan, FedEmb) and row.plan.client.negatives else None,
            evaluate_every=0,
            checkpoint_every=10,
            prefix_cache=None if row.trained == "all" else caches / _cache(row.trained, public=public),
        ),
    )
    return {"validation": recall(result.model, validation), "test": recall(result.model, test)}


def _cache(trained: str, *, public: bool) -> str:
    """Its folder: one for each cut of the network and each part of the people."""
    return f"{list(TRAINED).index(trained)}{'-public' if public else ''}"


def cell(name: str, seed: int, folder: Path, quick: bool, path: Path | None) -> None:
    """One cell of the table; one that was measured is not measured again."""
    if (folder / "faces.json").exists():
        return
    if name == UNTRAINED:
        _, _, validation, test = pictures(path, most=QUICKLY if quick else None)
        folder.mkdir(parents=True, exist_ok=True)
        begun = Network(path)
        write_json(folder / "faces.json", {"validation": recall(begun, validation), "test": recall(begun, test)})
        return
    while True:  # seeds of a row that begin together share a cache, which one of them writes
        try:
            found = fitted(ROWS[name], seed, folder, folder.parent / "caches", quick, path)
        except InputError as error:
            if "another process is writing" not in str(error):
                raise
            time.sleep(10)
        else:
            write_json(folder / "faces.json", found)
            return


def table(place: Callable[[str, int], Path], seeds: int, quick: bool, path: Path | None = None) -> list[dict[str, Any]]:
    """A row for each plan and what it trains, and one for the network before it.

    Rows whose runs are not all here, as with --only, stay as trained.json has them.
    """
    kept = cells.kept_rows(None if quick else FOLDER / "trained.json")
    found = []
    for name in [UNTRAINED, *ROWS]:
        runs = [place(name, seed) for seed in range(1 if name in LONE else seeds)]
        row = ROWS.get(name)
        reported = "before training" if row is None else row.method
        begun = {"method": UNTRAINED if row is None else row.trained, "dataset": f"LFW, unseen people; {reported}"}
        before = cells.row_before(kept, (begun["dataset"], begun["method"]), (run / "faces.json" for run in runs))
        if before is not None:
            found.append(before)
            continue
        recalls = [read_json(run / "faces.json") for run in runs]
        statement = {} if row is None or row.epsilon is None else read_json(runs[0] / "statement.json")
        found.append(
            {
                **begun,
                "metric": f"recall@FAR={FAR:g}",
                **cells.mean_and_std([each["test"] for each in recalls]),
                "validation": cells.mean_and_std([each["validation"] for each in recalls])["mean"],
                "seeds": len(runs),
                **{key: statement.get(key) for key in ("epsilon", "delta", "unit")},
                "paper": None,
            }
        )
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    cells.main(FOLDER, [UNTRAINED, *ROWS], cell, table, data="optional", results="trained.json", lone=LONE)
