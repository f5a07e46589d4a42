"""Specimens of the systems that work in stages, and not in rounds: votes, private labels, health records."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

import made_up_patients
import small_runs
from sfumato.data import examples_from_arrays, from_arrays
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.federated import PrivacyFace
from sfumato.labels import LPMST, LabelSettings, RROnBins, randomize_table
from sfumato.synthesis import EHRSafe
from sfumato.voting import AEDPFL, KNNDPFL

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """How the battery meets a system that works in stages.

    Attributes:
        start: runs it in a folder, with records of a seed; more fields change the plan.
        stops: where it may die, as stage and step of its progress; the first one stands for all in the quick part.
        others: fields of other plans.
        anew: whether a run that goes on does its stage anew, with the random numbers and the reports that it has.
        asked: whether Ctrl-C stops it at the next step with a result, and not at once.
    """

    start: Callable[..., Any]
    stops: tuple[tuple[str, int], ...]
    others: tuple[dict[str, Any], ...]
    anew: bool = False
    asked: bool = False


def _fit(plan: Any, given: Callable[[int], tuple[Any, ...]], **options: Any) -> Callable[..., Any]:
    def start(
        folder: Path, *, records: int = 0, resume: bool = False, progress: Progress | None = None, **changes: Any
    ) -> Any:
        chosen = replace(plan, **changes)
        return chosen.fit(*given(records), out=folder / "run", resume=resume, progress=progress, **options)

    return start


def _seeded(inputs: int, outputs: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(inputs, outputs)


def _agents(how: Callable[[], Any]) -> Callable[[int], tuple[Any, ...]]:
    return lambda seed: (small_runs.agents(seed=seed), small_runs.pool(), how())


def _classes(seed: int) -> tuple[Any, ...]:
    inputs, labels = small_runs.blobs(90, seed)
    order = np.random.default_rng(seed).permutation(90)
    return _seeded(2, 3), examples_from_arrays(inputs[order], labels[order], num_classes=small_runs.CLASSES)


def _numbers(seed: int) -> tuple[Any, ...]:
    inputs = np.random.default_rng(seed).uniform(-1, 1, (300, 1)).astype(np.float32)
    return _seeded(1, 1), examples_from_arrays(inputs, 5 + 3 * inputs[:, 0])


_RANGES = {"age": (0.0, 110.0), "bili": (0.0, 30.0), "albumin": (1.0, 6.0), "weight": (30.0, 150.0)}


def patients(count: int, seed: int = 1) -> EHRDataset:
    """Made-up patients whose schema has ranges and was declared."""
    data = made_up_patients.records(count, seed)
    static, temporal = (
        tuple(replace(column, range=_RANGES.get(column.name)) for column in columns)
        for columns in (data.schema.static, data.schema.temporal)
    )
    schema = replace(data.schema, static=static, temporal=temporal)
    return replace(data, schema=schema, assumptions=("The schema was written without looking at the records.",))


def _table(
    folder: Path,
    *,
    records: int = 0,
    resume: bool = False,
    progress: Progress | None = None,
    seed: int | None = 3,
    **changes: Any,
) -> Any:
    folder.mkdir(exist_ok=True)
    labels = np.random.default_rng(records).choice(["cat", "dog", "owl"], 500, p=[0.6, 0.3, 0.1])
    pq.write_table(pa.table({"y": labels}), folder / "table.parquet")
    chosen = LabelSettings(**{"label": "y", "epsilon": 1.0, "domain.names": ("cat", "dog", "owl"), **changes})
    told = None if progress is None else lambda done, rows: progress("rows", done, rows)
    out = folder / "noisy.parquet"
    return randomize_table(folder / "table.parquet", out, chosen, seed=seed, resume=resume, progress=told)


def _faces(name: str, count: int, seed: int) -> Any:
    """Identities with pictures near one of their own."""
    rng = np.random.default_rng(seed)
    base = np.repeat(rng.integers(0, 256, (count, 4, 4, 1)), 3, axis=0)
    pictures = np.clip(base + rng.normal(0, 20, base.shape), 0, 255).astype(np.uint8)
    return from_arrays(pictures, np.repeat(np.arange(count), 3), np.repeat([f"{name}{n:02d}" for n in range(count)], 3))


def _silos(folder: Path, *, records: int = 0, **changes: Any) -> Any:
    covered = changes.pop("covered", True)
    base = {"rounds": 2, "seed": 1, "sharing": {"epsilon": 4.0, "threshold": 3, "groups": 3}, "client.batch_size": 8}
    base |= {"cohort": {"size": 2, "users_per_client": 3}, "noise": 1.5} if covered else {}
    given = {name: changes.pop(name) for name in ("resume", "progress") if name in changes}
    silos = {name: _faces(name, 12, records + seed) for seed, name in enumerate("abc")}
    model = nn.Sequential(nn.Flatten(), _seeded(16, 4))
    plan = PrivacyFace(**base).replace(**changes)
    return plan.fit(model, silos, public=_faces("public", 12, 99), out=folder / "run", **given)


_STEPS = {"epochs": 4, "batch_size": 64, "learning_rate": 0.1}
_VOTE = {"queries": 20, "noise_std": 1.5, "student.epochs": 10, "seed": 3}
_EHR = {"hidden": 8, "latent": 6, "noise": 6, "gan_hidden": 8, "embedding": 3, "static_embedding": 3, "seed": 1}
_EHR |= {"category_steps": 5, "epochs": 1, "batch_size": 8, "gan_steps": 4, "critic_steps": 2, "calibrated_on": 30}
_PRIVATE = {"epsilon": 8.0, "delta": 1e-3, "cells": 8, "max_visits": 6, "horizon": 1500.0}

PIPELINES: dict[str, Pipeline] = {
    "ae_dpfl": Pipeline(
        start=_fit(
            AEDPFL(training={"epochs": 5, "learning_rate": 0.2}, **_VOTE),
            _agents(small_runs.model),
            student=small_runs.model(1),
            threads=1,
        ),
        stops=(("agents", 4), ("tally", 0), ("tally", 1), ("student", 0), ("student", 1)),
        others=({"noise_std": 1.6}, {"seed": 4}),
    ),
    "knn_dpfl": Pipeline(
        start=_fit(KNNDPFL(neighbours=3, **_VOTE), _agents(lambda: "pixels"), student=small_runs.model(1), threads=1),
        stops=(("agents", 4), ("tally", 1)),
        others=({"neighbours": 4}, {"seed": 4}),
    ),
    "privacyface": Pipeline(
        start=_silos,
        stops=(("silos", 1), ("silos", 2), ("rounds", 1)),
        others=({"rounds": 3}, {"seed": 4}),
        asked=True,
    ),
    "privacyface without noise": Pipeline(
        start=lambda folder, **changes: _silos(folder, covered=False, **changes),
        stops=(("silos", 1), ("rounds", 1)),
        others=({"scheme": "fedsgd"}, {"seed": 4}),
        asked=True,
    ),
    "table": Pipeline(start=_table, stops=(("rows", 300),), others=({"epsilon": 2.0},), anew=True),
    "table by groups": Pipeline(
        start=lambda folder, **changes: _table(folder, **{"prior": 0.1, **changes}),
        stops=(("rows", 300),),
        others=({"prior": 0.2},),
        anew=True,
    ),
    "lp_mst": Pipeline(
        start=_fit(
            LPMST(epsilon=2.0, stages=(0.5, 0.3, 0.2), training={"epochs": 4, "batch_size": 32}, seed=1), _classes
        ),
        stops=(("stages", 2), ("stages", 1), ("stages", 3)),
        others=({"training.epochs": 5}, {"seed": 4}),
    ),
    "rr_on_bins": Pipeline(
        start=_fit(
            RROnBins(epsilon=3.0, low=0.0, high=10.0, values=21, training=_STEPS, seed=1),
            _numbers,
        ),
        stops=(("steps", 3),),
        others=({"values": 11}, {"seed": 4}),
        anew=True,
    ),
    "ehr_safe without noise": Pipeline(
        start=_fit(EHRSafe(gan_batch_size=32, **_EHR), lambda seed: (patients(40, seed),), save_every=0.0),
        stops=(("gan", 3), ("categories", 4), ("sequences", 0), ("sequences", 5), ("gan", 0), ("calibration", 5)),
        others=({"epochs": 2}, {"seed": 4}),
        asked=True,
    ),
    "ehr_safe": Pipeline(
        start=_fit(EHRSafe(gan_batch_size=8, **_EHR, **_PRIVATE), lambda seed: (patients(40, seed),), save_every=0.0),
        stops=(("gan", 3), ("tables", 0), ("categories", 3), ("sequences", 3), ("gan", 0), ("calibration", 2)),
        others=({"clip_norm": 2.0}, {"seed": 4}),
        asked=True,
    ),
}
