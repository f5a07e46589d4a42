"""`sfumato ads train --frequent-rows`: a click model of the rows that most units read (DP-FEST).

Noisy counts choose the rows. That is the first release of the run: one ledger, one statement and one ε cover it and the
steps. With --epsilon the choice may cost a share of the budget by itself, and the noise of the steps is calibrated with
it. The ids that were kept are in the run's frequent_rows.json, by which `sfumato ads evaluate` translates rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato import accounting, runs
from sfumato._check import InputError, positive, whole
from sfumato._files import read_json
from sfumato.central import FrequentRows
from sfumato.central.frequent_rows import FILE
from sfumato.cli.console import bar
from sfumato.cli.training import FirstRelease, refuse_undecided
from sfumato.mechanisms import Auto
from sfumato.models import is_custom_model

if TYPE_CHECKING:
    from sfumato.data import ExampleDataset

_SHARE = 0.3
"""Of epsilon, for the choice by itself; the steps then have about a twentieth more noise."""


def rows_first(options: Any, population: int) -> FirstRelease:
    """The choice of rows, with its noise, as what the run releases first.

    Args:
        options: of the command.
        population: public number of units.

    Raises:
        InputError: no noise is enough for the budget.
    """
    plan, noise = options.plan, options.ads.frequent_rows_noise
    if noise is None:
        delta, adjacency = plan.delta_for(population), plan.sampler(population).adjacency
        with bar("calibrating the noise"):
            noise = accounting.calibrate(
                accounting.Gaussian, epsilon=_SHARE * options.budget.epsilon, delta=delta, adjacency=adjacency
            )
    rule = FrequentRows(rows=options.ads.frequent_rows, noise_multiplier=noise, unit=plan.unit)
    return FirstRelease(
        event=rule.event,
        release=lambda parts: rule if parts is None else rule.initial_release(parts.train),
        about={"frequent_rows": rule.rows, "frequent_rows_noise": rule.noise_multiplier},
    )


def refuse_with_rows(options: Any) -> None:
    """Refuse what does not go with a choice of rows; without the records."""
    ads, run = options.ads, options.run
    whole(frequent_rows=ads.frequent_rows)
    if ads.frequent_rows_noise is not None:
        positive(frequent_rows_noise=ads.frequent_rows_noise)
    refuse_undecided(options)
    if is_custom_model(options.model.model) or options.model.pretrained is not None:
        given = "--pretrained" if options.model.pretrained is not None else f"--model {options.model.model}"
        raise InputError(
            f"{given} has tables of a fixed size, which --frequent-rows decides in the run; take ctr or dlrm without "
            "weights, or use RunOptions.initial_release in Python"
        )
    if options.plan.noise.noise_multiplier == 0:
        raise InputError("--noise 0 hides no one, so --frequent-rows cannot either; give --epsilon, or a --noise")
    if isinstance(options.plan.noise, Auto):
        raise InputError("--noise auto does not know of --frequent-rows; give a kind of noise, such as gaussian")
    if ads.frequent_rows_noise is None and options.budget.epsilon is None:
        raise InputError(
            "--frequent-rows with a noise multiplier (--noise) needs a --frequent-rows-noise, 10 for example; with "
            "--epsilon it is chosen"
        )
    if run.resume is not None:
        began = (runs.RunFolder(run.resume).read_plan().get("about") or {}).get("frequent_rows")
        if began != ads.frequent_rows:
            raise InputError(
                f"the run in {run.resume} began with {'all' if began is None else f'{began:,}'} rows and goes on with "
                f"these, got --frequent-rows {ads.frequent_rows}; leave it out, or start a new run"
            )


def as_read(rows: ExampleDataset, about: Mapping[str, Any], run: Path) -> ExampleDataset:
    """Rows as the model of a run reads them: by those that it chose, where it chose any.

    Args:
        rows: as the run read its own.
        about: of its plan.json.
        run: its folder.

    Raises:
        InputError: the file of the chosen rows is missing, or of other tables.
    """
    kept = about.get("frequent_rows")
    if kept is None:
        return rows
    file = run / FILE
    if not file.exists():
        raise InputError(f"{file} is missing, by which the model of {run} reads its rows; copy it there")
    found = [np.asarray(each, np.int64) for each in read_json(file)]
    if len(found) != sum(map(bool, rows.vocabulary_sizes)):
        raise InputError(f"{file} has {len(found)} tables, and the rows have others; copy the run's own file there")
    return FrequentRows(rows=kept, noise_multiplier=about["frequent_rows_noise"]).prepare(found, rows)
