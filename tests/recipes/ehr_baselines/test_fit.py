"""A whole run of each recurrent GAN: what it says, how it stops and goes on, and what it refuses."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ehr_baselines import CRNNGAN, RCGAN, BaselinePlan, TimeGAN, load_baseline
from ehr_baselines.turns import Turns

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.synthesis import EHRSafe, Synthesizer
from sfumato.synthesis.training import Diverged

SAVED = ("model.safetensors", "statement.json", "metrics.jsonl")


class StopAt:
    """Progress that presses Ctrl-C once."""

    def __init__(self, stage: str, step: int) -> None:
        self._at = (stage, step)

    def __call__(self, what: str, done: int, of: int) -> None:
        if (what, done) == self._at:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("kind", ["timegan", "rcgan", "crnngan"])
def test_the_statement_says_that_there_is_no_guarantee(patients, quick, kind: str, tmp_path: Path):
    result = quick(kind).fit(patients(40), out=tmp_path / "run")
    assert result.finished
    assert result.statement.epsilon == float("inf")
    assert "no differential privacy guarantee" in result.statement.assumptions[0]
    assert result.statement.mechanism.startswith(quick(kind).title)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stage", "step"),
    [
        ("timegan", "embedding", 0),
        ("timegan", "supervised", 2),
        ("timegan", "joint", 3),
        ("rcgan", "gan", 5),
        ("crnngan", "pretraining", 4),
        ("crnngan", "gan", 0),
        ("crnngan", "gan", 4),
    ],
)
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    patients, quick, tmp_path: Path, sigint, kind: str, stage: str, step: int
):
    data, plan = patients(40), quick(kind)
    plan.fit(data, out=tmp_path / "whole")
    stopped = plan.fit(data, out=tmp_path / "stopped", progress=StopAt(stage, step))
    assert not stopped.finished
    assert stopped.synthesizer is None
    assert plan.fit(data, out=tmp_path / "stopped", resume=True).finished
    for name in SAVED:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize("kind", ["timegan", "rcgan", "crnngan"])
def test_a_run_that_has_ended_learns_nothing_again_and_its_file_draws_the_same(
    patients, quick, tmp_path: Path, kind: str
):
    data, plan = patients(30), quick(kind)
    result = plan.fit(data, out=tmp_path / "run")

    def refuse(what: str, done: int, of: int) -> None:
        raise AssertionError(what)

    again = plan.fit(data, out=tmp_path / "run", resume=True, progress=refuse)
    found = [
        next(each.sample(50, seed=3)).fingerprint()
        for each in (result.synthesizer, again.synthesizer, load_baseline(tmp_path / "run"))
    ]
    assert len(set(found)) == 1


def test_other_records_do_not_go_on_with_a_run(patients, quick, tmp_path: Path):
    quick("rcgan").fit(patients(30), out=tmp_path / "run")
    with pytest.raises(InputError, match="another plan, model or data set"):
        quick("rcgan").fit(patients(30, seed=1), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(("kind", "stage"), [("timegan", "joint"), ("rcgan", "gan"), ("crnngan", "gan")])
def test_a_stage_that_diverges_says_so_and_keeps_the_checkpoint_before_it(
    patients, quick, tmp_path: Path, kind: str, stage: str
):
    plan = quick(kind, learning_rate=1e37)
    with pytest.raises(InputError, match=f"{stage!r} diverged in step .* lower learning_rate"):
        plan.fit(patients(40), out=tmp_path / "run", save_every=0.0)
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_loss_of_a_side_that_waits_may_diverge_too():
    """No gradient of it is taken, which would be refused."""
    losses = {"loss": 1.0, "fooled": float("inf")}
    turns = Turns("gan", 1, {}, lambda index, random: losses, RandomSource.from_seed(0))
    with pytest.raises(Diverged):
        turns.step(0)


def test_the_metrics_say_how_many_visits_were_cut(patients, quick):
    data = patients(60)
    row = quick("rcgan", longest=0.5).fit(data).history[0]["not_private"]
    steps = int(np.quantile(data.lengths, 0.5, method="higher"))
    assert row["longest"] == steps
    assert row["visits_cut"] == pytest.approx(np.maximum(data.lengths - steps, 0).sum() / data.lengths.sum())


def test_a_run_of_something_else_is_refused(patients, tmp_path: Path):
    few: dict[str, Any] = {"hidden": 8, "latent": 4, "gan_hidden": 8, "category_steps": 2, "epochs": 1, "gan_steps": 2}
    EHRSafe(**few, batch_size=16, calibrated_on=50, seed=1).fit(patients(30), out=tmp_path / "run")
    with pytest.raises(InputError, match="holds no baseline; take the folder of a run of TimeGAN, RC-GAN, C-RNN-GAN"):
        load_baseline(tmp_path / "run")
    quick = RCGAN(steps=1, hidden=4, noise=2, batch_size=4, seed=1)
    quick.fit(patients(30), out=tmp_path / "other")
    with pytest.raises(InputError, match="holds no synthesizer"):
        Synthesizer.load(tmp_path / "other")


def test_other_data_than_health_records_are_refused():
    with pytest.raises(InputError, match="EHRDataset"):
        TimeGAN().fit(np.zeros((3, 3)))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (TimeGAN, {"gamma": -1.0}),
        (TimeGAN, {"embedding_steps": 0}),
        (RCGAN, {"longest": 0.0}),
        (RCGAN, {"learning_rate": 0.0}),
        (RCGAN, {"learning_rate": 3e38}),
        (CRNNGAN, {"frozen_below": 1.5}),
        (CRNNGAN, {"pretraining_steps": 0}),
    ],
)
def test_settings_out_of_range_are_refused(kind: type[BaselinePlan], wrong: dict):
    with pytest.raises(InputError, match=next(iter(wrong))):
        kind(**wrong)
