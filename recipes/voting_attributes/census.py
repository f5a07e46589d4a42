"""The census table: seven attributes of a person, predicted from columns that none of them is read from.

Rows are divided by a public seed: agents get equal parts of the private rows; pool, validation and test are the
server's. Numbers are scaled by the public pool alone.
"""

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells

from sfumato.data import ExampleDataset, UserDataset, examples_from_arrays, from_arrays

AGENTS, RECORDS = 100, 200
POOL, VALIDATION = 2000, 2000
DEGREE = 13
"""Years of education, as the table numbers them, from which on a person has a degree (Bachelors)."""


@dataclass(frozen=True, eq=False)
class World:
    """Agents with private rows, and the server's three parts."""

    agents: UserDataset
    pool: ExampleDataset
    validation: ExampleDataset
    test: ExampleDataset


def read() -> pd.DataFrame:
    """All rows."""
    return pd.read_csv(cells.SHARED / "adult.csv.gz", sep=", ", engine="python")


def attributes(table: pd.DataFrame) -> pd.DataFrame:
    """What is to be predicted, a column of booleans each."""
    status = table["marital-status"]
    return pd.DataFrame(
        {
            "income above 50K": table["Salary"] == ">50K",
            "married": status.isin(["Married-civ-spouse", "Married-AF-spouse"]),
            "never married": status == "Never-married",
            "female": table["sex"] == "Female",
            "degree": table["education-num"] >= DEGREE,
            "works more than 40 hours": table["hours-per-week"] > 40,
            "lives with parents": table["relationship"] == "Own-child",
        }
    )


def features(table: pd.DataFrame) -> pd.DataFrame:
    """What they are predicted from: columns that none of the attributes is read from.

    Left out are, next to those columns, education (education-num in words) and fnlwgt, a weight of the sampling.
    """
    kinds = [pd.get_dummies(table[name], prefix=name) for name in ("workclass", "occupation", "race")]
    numbers = pd.DataFrame(
        {
            "age": table["age"],
            "gain": np.log1p(table["capital-gain"]),
            "loss": np.log1p(table["capital-loss"]),
            "born in the United States": table["native-country"] == "United-States",
        }
    )
    return pd.concat([numbers, *kinds], axis=1).astype(np.float32)


@cache
def world() -> World:
    """Agents, pool, validation and test."""
    table = read()
    table = table.iloc[np.random.default_rng(0).permutation(len(table))].reset_index(drop=True)
    reported, known = attributes(table), features(table)
    private = AGENTS * RECORDS
    pool, validation, test = np.split(np.arange(private, len(table)), [POOL, POOL + VALIDATION])
    public = known.to_numpy()[pool]
    deviation = public.std(axis=0)
    inputs = (known.to_numpy() - public.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    labels = reported.to_numpy()
    agents = from_arrays(
        inputs[:private],
        labels[:private],
        [f"agent {place // RECORDS:02d}" for place in range(private)],
        label_names=list(reported.columns),
    )
    return World(
        agents,
        *(examples_from_arrays(inputs[part], labels[part].astype(np.float32)) for part in (pool, validation, test)),
    )
