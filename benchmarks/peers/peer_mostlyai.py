"""Health records with mostlyai-engine: a model of the static table, and a sequential one of the visits under it.

    peer_mostlyai.py TASK.json

The task names two Parquet files to learn from and two to write, the columns' kinds, a seed, minutes and how many. The
time of the first visit goes with the static columns, and a visit has the time since the one before. Prints a JSON line.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from mostlyai.engine import TabularARGN

START, GAP, KEY = "first visit", "time since the last visit", "patient"
SHARE_OF_STATIC = 0.1  # of the minutes
CATEGORICAL, NUMERIC = "TABULAR_CATEGORICAL", "TABULAR_NUMERIC_AUTO"


def main() -> None:
    """Learn, generate, write."""
    warnings.simplefilter("ignore")
    task = json.loads(Path(sys.argv[1]).read_text())
    visits, static = pd.read_parquet(task["visits"]), pd.read_parquet(task["static"])
    key, clock, kinds = task["id"], task["time"], task["kinds"]
    visits = visits.sort_values([key, clock], kind="stable").reset_index(drop=True)
    static = static.merge(visits.groupby(key)[clock].first().rename(START).reset_index(), on=key)
    visits[GAP] = visits.groupby(key)[clock].diff().fillna(0.0)
    encodings = {name: CATEGORICAL if kind["categories"] else NUMERIC for name, kind in kinds.items()}
    for table in (visits, static):
        for name in set(table.columns) & set(kinds):
            if kinds[name]["categories"]:
                table[name] = table[name].map(lambda value: None if pd.isna(value) else str(value))
    columns = [name for name in static.columns if name in kinds] + [START]
    types = {name: encodings.get(name, NUMERIC) for name in columns}
    started = time.perf_counter()
    common = {"device": "cpu", "random_state": task["seed"]}
    people = TabularARGN(tgt_encoding_types=types, max_training_time=SHARE_OF_STATIC * task["minutes"], **common).fit(
        static[columns]
    )
    measured = [name for name in visits.columns if name in kinds] + [GAP]
    sequences = TabularARGN(
        tgt_context_key=key,
        tgt_encoding_types={name: encodings.get(name, NUMERIC) for name in measured},
        ctx_data=static[[key, *columns]],
        ctx_primary_key=key,
        ctx_encoding_types=types,
        max_training_time=(1 - SHARE_OF_STATIC) * task["minutes"],
        **common,
    ).fit(visits[[key, *measured]])
    fitted = time.perf_counter()
    rare = {"rare_category_replacement_method": "SAMPLE"}
    made = people.sample(n_samples=task["count"], **rare)
    made.insert(0, key, [f"synthetic-{place + 1:06}" for place in range(len(made))])
    rows = sequences.sample(ctx_data=made, **rare)
    sampled = time.perf_counter()
    rows = rows[rows[key].isin(made[key])].reset_index(drop=True)
    rows[clock] = times(rows, made, key)
    made = made[made[key].isin(rows[key])]
    for table, path in ((rows, task["made_visits"]), (made, task["made_static"])):
        found = {name: cells(table[name], kinds[name]) for name in table.columns if name in kinds}
        kept = {key: table[key], **({clock: table[clock]} if table is rows else {}), **found}
        pd.DataFrame(kept).to_parquet(path, index=False)
    print(
        json.dumps(
            {
                "fit_seconds": fitted - started,
                "sample_seconds": sampled - fitted,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "patients": len(made),
            }
        )
    )


def times(rows: pd.DataFrame, made: pd.DataFrame, key: str) -> np.ndarray:
    """Times of visits that ascend, float64 [rows]: gaps of zero or less, or missing ones, count as the least one."""
    gaps = pd.to_numeric(rows[GAP], errors="coerce").to_numpy(np.float64)
    least = gaps[gaps > 0].min() if (gaps > 0).any() else 1.0
    gaps = np.where(gaps > 0, gaps, least)
    first = ~rows[key].duplicated().to_numpy()
    starts = pd.to_numeric(made.set_index(key)[START], errors="coerce").fillna(0.0).clip(lower=0.0)
    gaps = pd.Series(np.where(first, rows[key].map(starts).to_numpy(np.float64), gaps))
    return gaps.groupby(rows[key].to_numpy(), sort=False).cumsum().to_numpy()


def cells(column: pd.Series, kind: dict) -> pd.Series:
    """Values of a column's kind; what is none of its categories is missing."""
    if kind["categories"]:
        return column.map(lambda value: str(value) if str(value) in kind["categories"] else None)
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    return numbers.round() if kind["whole"] else numbers


if __name__ == "__main__":
    main()
