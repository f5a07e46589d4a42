"""EHR-Safe is fitted, plainly and privately: its stages, their files and costs, and the sums of its gradients."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import Gaussian, NonPrivate
from sfumato.clipping import Flat
from sfumato.data import ehr_from_tables
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema, categorical, numeric
from sfumato.ledger import Ledger, ledger
from sfumato.report import write_report
from sfumato.report.run_record import read_run
from sfumato.runs import Facts, Run
from sfumato.sampling import Cohort
from sfumato.statement import Statement
from sfumato.synthesis import EHRSafe, Synthesizer, budget
from sfumato.synthesis.budget import Spending
from sfumato.synthesis.gradients import CriticGradients, SequenceGradients
from sfumato.synthesis.history import SAMPLES, digest_of_folder, note_evaluation, note_sample, restate, samples_of
from sfumato.synthesis.networks import Networks
from sfumato.synthesis.noisy_tables import Tables
from sfumato.synthesis.records import Records
from sfumato.synthesis.run import PlaceholderCodes, first_visits
from sfumato.synthesis.training import gan_optimizer
from sfumato.training import RoundContext
from slow import slow_but

# EHR-Safe is fitted: stages, their files, and the history of losses.


# A whole run: what it says, how it stops and goes on, and what it refuses.
def test_without_noise_the_statement_says_that_there_is_no_guarantee(patients, small, tmp_path: Path):
    result = small().fit(patients(40), out=tmp_path / "run")
    assert result.finished
    assert result.statement.epsilon == float("inf")
    assert "no differential privacy guarantee" in result.statement.assumptions[0]
    assert json.loads((tmp_path / "run" / "statement.json").read_text())["unit"] == "patient"


@pytest.mark.parametrize(
    ("stage", "settings"), [("sequences", {"learning_rate": 1e30}), ("gan", {"gan_learning_rate": 1e30})]
)
def test_a_stage_that_diverges_says_so_and_keeps_the_checkpoint_before_it(
    patients, small, tmp_path: Path, stage: str, settings: dict
):
    with pytest.raises(InputError, match=f"{stage!r} diverged in step .* lower {next(iter(settings))}") as refusal:
        small(**settings, category_encoder=False).fit(patients(40), out=tmp_path / "run", save_every=0.0)
    assert "\n" not in str(refusal.value)
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_stage_reports_how_far_it_is(patients, small):
    told: dict[str, list[tuple[int, int]]] = {}
    small().fit(patients(40), progress=lambda what, done, of: told.setdefault(what, []).append((done, of)))
    assert list(told) == ["categories", "sequences", "gan", "calibration"]
    for steps in told.values():
        assert [done for done, _ in steps] == list(range(steps[-1][1] + 1))


def test_the_file_of_a_run_draws_the_same_records_as_the_run(patients, small, tmp_path: Path):
    result = small().fit(patients(40), out=tmp_path / "run")
    (ours,) = result.synthesizer.sample(50, seed=3)
    (theirs,) = Synthesizer.load(tmp_path / "run").sample(50, seed=3)
    assert ours.fingerprint() == theirs.fingerprint()


def test_a_file_of_something_else_is_refused(tmp_path: Path):
    save_file({"x": np.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="holds no synthesizer"):
        Synthesizer.load(tmp_path)


def test_other_data_than_health_records_are_refused(small):
    with pytest.raises(InputError, match="EHRDataset"):
        small().fit(np.zeros((3, 3)))


def test_records_that_nothing_can_be_learned_from_are_refused(patients, small, tmp_path: Path):
    data = patients(20)
    numbers = data.numbers.copy()
    numbers[:, 1] = np.nan
    for wrong, told in ((data.take([3]), "there is one patient"), (replace(data, numbers=numbers), "'pulse' has no")):
        with pytest.raises(InputError, match=told):
            small().fit(wrong, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"latent_noise": -1.0}, {"rounding": 0.0}, {"gan_optimizer": "sgd"}])
def test_settings_out_of_range_are_refused(small, wrong: dict):
    with pytest.raises(InputError, match=next(iter(wrong))):
        small(**wrong)


# What is noted in a run after it: draws and figures, of a run with a guarantee and of one without.
ATTACK = {
    "name": "membership inference",
    "above": True,
    "measures": [
        {
            "name": "accuracy",
            "found": {"value": 0.7321, "low": 0.61, "high": 0.81},
            "ideal": {"value": 0.5, "low": 0.5, "high": 0.5},
        }
    ],
}
FOUND = {"sizes": {"synthetic": 40, "holdout": 30}, "attacks": [ATTACK]}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "visits.csv").write_text("x\n1\n")
    return tmp_path / "made"


def ended(folder: Path, *, private: bool) -> Path:
    """A run that has ended, with noise or without."""
    facts = Facts(
        unit="example", adjacency="add_remove", population=100, delta=1e-3, sampling="everyone", mechanism="a sum"
    )
    with Run.open(folder, plan={"plan": "ehr_safe"}) as run:
        run.start("fingerprint")
        run.spend(Gaussian(noise_multiplier=3.0) if private else NonPrivate())
        run.finish({"x": torch.zeros(1)}, facts)
    return folder


def draw(run: Path, made: Path, **changed) -> None:
    note_sample(run, made, **{"count": 40, "layout": "csv", "conditions": [], "seeded": False, **changed})


def answers(run: Path) -> dict[str, str]:
    return json.loads((run / "statement.json").read_text())["disclosure"]


def assert_bound(run: Path, before: Statement) -> None:
    """The ledger still backs the statement, whose promise is what it was."""
    after = Statement.load(run / "statement.json")
    assert after.digest == before.digest
    assert ledger.compare(Ledger.read(run / "ledger.jsonl"), after, run)


def test_draws_from_a_run_with_a_guarantee_cost_nothing_more_and_no_figure_gets_into_its_statement(tmp_path, made):
    run = ended(tmp_path / "run", private=True)
    before = Statement.load(run / "statement.json")
    draw(run, made)
    assert note_evaluation(run, FOUND, folder=made) is True
    told = answers(run)
    assert "40 patients were drawn from the model in 1 draw. They are post-processing" in told["released"]
    assert "they cost nothing more" in told["released"]
    assert told["released"].startswith(before.disclosure["released"])
    assert told["evaluation"].startswith(before.disclosure["evaluation"])
    assert "figures have no noise and are not covered" in told["evaluation"]
    assert not any(character.isdigit() for character in told["evaluation"].partition("The synthetic records")[2])
    assert "0.732" in (run / "evaluation.json").read_text()[:100_000]
    assert (run / "evaluation.json").stat().st_mode & 0o077 == 0
    assert_bound(run, before)


def test_a_run_without_a_guarantee_reports_the_attacks_next_to_their_ideals(tmp_path, made):
    run = ended(tmp_path / "run", private=False)
    before = Statement.load(run / "statement.json")
    draw(run, made)
    draw(run, made, count=1000)
    note_evaluation(run, FOUND, folder=made)
    told = answers(run)
    assert "1,040 patients were drawn from the model in 2 draws. They are not covered" in told["released"]
    assert "membership inference, accuracy: 0.732 (0.61 to 0.81), ideal 0.5 (above the ideal)." in told["evaluation"]
    assert "40 of them, as they were drawn, were attacked with 30 real patients" in told["evaluation"]
    assert_bound(run, before)


def test_what_is_reported_anew_takes_the_place_of_what_was_reported(tmp_path, made):
    run = ended(tmp_path / "run", private=False)
    draw(run, made)
    note_evaluation(run, FOUND, folder=made)
    first = answers(run)
    restate(run)
    assert answers(run) == first
    note_evaluation(run, {**FOUND, "attacks": [{**ATTACK, "above": False}]}, folder=made)
    told = answers(run)["evaluation"]
    assert "(no more than the ideal)" in told
    assert "(above the ideal)" not in told
    draw(run, made)
    assert answers(run)["released"].count("Synthetic records:") == 1


def test_other_records_are_reported_from_those_that_were_drawn(tmp_path, made):
    run = ended(tmp_path / "run", private=False)
    assert note_evaluation(run, FOUND, folder=made) is False
    draw(run, made)
    assert note_evaluation(run, FOUND, folder=made) is True
    before = digest_of_folder(made)
    (made / "visits.csv").write_text("x\n2\n")
    assert digest_of_folder(made) != before
    assert note_evaluation(run, FOUND, folder=made) is False
    (made / "visits.csv").write_text("x\n1\n")
    (made / "visits.csv").rename(made / "other.csv")
    assert digest_of_folder(made) != before


def test_a_damaged_file_and_a_folder_that_is_no_run_are_refused(tmp_path, made):
    with pytest.raises(InputError, match="it is not the folder of a run"):
        draw(tmp_path, made)
    run = ended(tmp_path / "run", private=False)
    draw(run, made)
    with open(run / SAMPLES, "a") as file:
        file.write("{\n")
    with pytest.raises(InputError, match=r"samples.jsonl, line 2 is damaged .*; delete the line"):
        samples_of(run)


# EHR-Safe is fitted privately: what its stages cost, and the sums of its gradients.

# A whole private run: what it costs and says, how it stops and goes on, and what it refuses.
SAVED = ("model.safetensors", "statement.json", "metrics.jsonl")
COUNT = 40


class StopAt:
    """Progress that presses Ctrl-C once."""

    def __init__(self, stage: str, step: int) -> None:
        self._at = (stage, step)

    def __call__(self, what: str, done: int, of: int) -> None:
        if (what, done) == self._at:
            os.kill(os.getpid(), signal.SIGINT)


def entries(folder: Path) -> list[dict]:
    lines = (json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines())
    return [line for line in lines if "event" in line]


@pytest.fixture(scope="module")
def run(ranged, private, tmp_path_factory):
    """A finished run and its folder, which tests only read."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    return private().fit(ranged(COUNT), out=folder), folder


def test_the_statement_is_for_a_patient_and_within_what_was_asked(run):
    result, folder = run
    statement = json.loads((folder / "statement.json").read_text())
    assert result.finished
    assert statement["unit"] == "patient"
    assert statement["adjacency"] == "add_remove"
    assert statement["delta"] == 1e-3
    assert 7.9 < statement["epsilon"] <= 8.0
    told = " ".join(line["text"] for line in statement["assumptions"])
    for words in ("a patient", "first 6 visits", "up to 1500 days", "written without looking at the records"):
        assert words in told.lower() or words in told


def test_a_schema_that_was_taken_from_the_records_is_refused_until_it_is_declared(private):
    visits = pd.DataFrame(
        [(i, t, "ab"[(i + t) % 2]) for i in range(20) for t in (0, 5)], columns=["id", "day", "stage"]
    )
    data = ehr_from_tables(visits, id="id", time="day", time_unit="days")
    with pytest.raises(InputError, match="must be declared, got 1 taken from the records"):
        private().try_out(data)
    with pytest.raises(InputError, match="must be declared"):
        private().fit(data)
    declared = replace(data, schema=Schema.from_yaml(data.schema.to_yaml()))
    told = " ".join(private().try_out(declared).assumptions)
    assert "declared without looking at the records" in told
    assert "No epsilon covers what of them" in told


def test_a_column_with_nearly_a_category_for_each_patient_is_refused(private, ranged):
    data = ranged(COUNT)
    names = categorical("name", [f"person {i}" for i in range(COUNT)])
    told = replace(
        data,
        schema=replace(data.schema, static=(*data.schema.static, names)),
        static_codes=np.column_stack([data.static_codes, np.arange(COUNT)]),
    )
    with pytest.raises(InputError, match="'name' must have far fewer categories than 40 patients"):
        private().try_out(told)


def test_a_delta_that_could_publish_whole_patients_is_warned_of(ranged, private):
    with pytest.warns(UserWarning, match=f"delta 0.5 is not well below 1/{COUNT}; leave it out for 0.00025"):
        private(delta=0.5).try_out(ranged(COUNT))


def test_epsilon_is_that_of_the_events_in_the_ledger_accounted_anew(run, ranged, private):
    """By another accountant's upper bound it is not less, and by the same one it is what the statement says."""
    result, folder = run
    spending = Spending.of(private(), ranged(COUNT).schema, COUNT)
    found = entries(folder)
    rounds = {phase: [entry for entry in found if entry["phase"] == phase] for phase in ("tables", "sequences", "gan")}
    assert [len(each) for each in rounds.values()] == [1, 5, 6]
    tables, first, last = spending.tables, spending.sequences, spending.gan
    z = [each.mechanism.noise_multiplier for each in (first, last)]
    by_hand = acc.Gaussian(tables.noise_multiplier) + acc.Gaussian(z[0]).poisson(8 / COUNT) * 5
    by_hand = by_hand + acc.Gaussian(z[1]).poisson(8 / COUNT) * 6
    assert Ledger.read(folder / "ledger.jsonl").event() == by_hand
    assert acc.guarantee(by_hand).epsilon(1e-3) == pytest.approx(result.statement.epsilon, rel=1e-9)
    assert acc.guarantee(by_hand, method="rdp").epsilon(1e-3) >= result.statement.epsilon_lower
    for part, entry in (("sequences", rounds["sequences"][0]), ("gan", rounds["gan"][0])):
        parts = {"sequences": first, "gan": last}[part]
        assert entry["noise_std"] == parts.mechanism.noise_multiplier * parts.bound.norm
        assert entry["denominator"] == 8


def test_the_budget_is_divided_as_the_plan_says(ranged, private):
    plan = private(table_share=0.2, gan_share=0.5)
    spending = Spending.of(plan, ranged(COUNT).schema, COUNT)
    first, second = spending.tables.event(), spending.sequences.event(spending.sequences.rounds)
    for event, wanted in ((first, 1.6), (first + second, 4.0), (spending.event(), 8.0)):
        found = acc.guarantee(event).epsilon(1e-3)
        assert wanted * 0.999 < found <= wanted


def test_cohorts_are_drawn_as_they_are_accounted(run, ranged, private):
    """40 patients at a rate of 0.2 in 11 rounds: each of the two tails is rarer than 1 in 100,000."""
    result, _ = run
    rows = [row for row in result.history if "round" in row]
    assert [row["phase"] for row in rows] == ["sequences"] * 5 + ["gan"] * 6
    drawn = sum(row["not_private"]["examples"] for row in rows)
    assert 50 < drawn < 132
    assert len({row["not_private"]["examples"] for row in rows}) > 1
    assert rows[-1]["epsilon"] == pytest.approx(result.statement.epsilon, rel=1e-6)


def test_a_run_does_not_go_on_where_records_are_summed_up_by_other_numbers(patients, small, tmp_path, monkeypatch):
    small().fit(patients(40), out=tmp_path / "run")
    monkeypatch.setattr("sfumato.synthesis.run.SUMMED_AS", "shares")
    with pytest.raises(InputError, match="another plan"):
        small().fit(patients(40), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(("stage", "step"), slow_but([("sequences", 0), ("gan", 3)], ("gan", 3)))
def test_a_run_goes_on_under_its_noise_where_a_calibration_ends_in_other_digits_today(
    ranged, private, tmp_path, sigint, monkeypatch, stage, step
):
    data, plan = ranged(COUNT), private()
    plan.fit(data, out=tmp_path / "whole")
    stopped = plan.fit(data, out=tmp_path / "stopped", progress=StopAt(stage, step))
    assert stopped.statement.epsilon < 8.0
    found = budget._noise
    monkeypatch.setattr(budget, "_noise", lambda *given: tuple(z * (1 + 1e-10) for z in found(*given)))
    assert plan.fit(data, out=tmp_path / "stopped", resume=True).finished
    whole, stopped = ([entry["event"] for entry in entries(tmp_path / name)] for name in ("whole", "stopped"))
    assert stopped == whole
    kept = json.loads((tmp_path / "stopped" / "plan.json").read_text())["noise_multipliers"]
    assert kept == Spending.of(plan, data.schema, COUNT, recorded=kept).noise_multipliers
    assert kept != Spending.of(plan, data.schema, COUNT).noise_multipliers
    other = [1.001 * z for z in kept]
    assert other != Spending.of(plan, data.schema, COUNT, recorded=other).noise_multipliers


def test_two_runs_draw_two_noises(ranged, private):
    data, plan = ranged(COUNT), replace(private(), seed=None)
    one, other = (plan.fit(data).synthesizer.scales for _ in range(2))
    assert not np.array_equal(one.rates, other.rates)


def test_what_was_learned_is_found_again_and_generates(run):
    _, folder = run
    loaded = Synthesizer.load(folder)
    records = next(loaded.sample(30, seed=1))
    assert len(records) == 30
    assert records.lengths.max() <= 6
    assert records.times.max() <= 1500
    numbers = records.numbers[~np.isnan(records.numbers).any(axis=1)]
    assert (numbers >= [0.0, 1.0, 30.0]).all()
    assert (numbers <= [30.0, 6.0, 150.0]).all()


def test_the_page_of_a_run_draws_no_line_through_rounds_of_two_phases(run, tmp_path):
    page = write_report([run[1]], tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Patients in the data" in page
    assert "one patient" in page
    metrics = read_run(run[1]).metrics
    assert metrics is not None
    assert metrics.rounds == []


def test_a_trial_reports_the_cost_and_learns_nothing(ranged, private):
    data = ranged(COUNT)
    told = private().try_out(data)
    assert 7.9 < told.epsilon <= 8.0
    assert told.unit == "patient"
    assert private().try_out(ranged(COUNT, seed=9)).epsilon == told.epsilon
    assert replace(private(), epsilon=None, delta=None, horizon=None).try_out(data).epsilon == float("inf")


def test_a_plan_with_epsilon_does_not_say_that_it_costs_everything(private):
    with pytest.raises(InputError, match="try_out"):
        private().event()


def test_one_patient_is_enough(ranged, private):
    plan = private(batch_size=1, gan_batch_size=1)
    result = plan.fit(ranged(1))
    assert result.finished
    assert len(next(result.synthesizer.sample(5, seed=1))) == 5


@pytest.mark.parametrize("patients", [1, 9, 96, 3_000])
def test_sizes_that_are_left_out_follow_from_noise_and_patients(patients):
    plain, noisy = EHRSafe(gan_steps=7), EHRSafe(epsilon=8.0, horizon=48.0, gan_steps=7)
    assert plain.sized(patients).sizes == plain.sized(1).sizes
    found = noisy.sized(patients).sizes
    assert found.batch_size == found.gan_batch_size == max(1, patients // 10)
    assert (found.gan_steps, plain.sized(patients).gan_steps) == (7, 7)
    assert found.critic_steps * 150 < plain.sized(patients).sizes.critic_steps * 4_000
    assert noisy.sized(patients).sized(patients) == noisy.sized(patients)
    with pytest.raises(ValueError, match="ask for sized"):
        _ = noisy.sizes


def test_a_run_with_sizes_left_out_states_them_and_goes_on_with_them(ranged, private, tmp_path):
    names = ("epochs", "batch_size", "gan_batch_size", "learning_rate", "average_decay")
    plan = replace(private(gan_steps=2), **dict.fromkeys(names))
    result = plan.fit(ranged(COUNT), out=tmp_path / "run")
    written = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert [written[name] for name in names] == [6, 4, 4, 4e-3, 0.95]
    assert result.statement.epsilon == pytest.approx(plan.try_out(ranged(COUNT)).epsilon)
    again = plan.fit(ranged(COUNT), out=tmp_path / "run", resume=True)
    assert again.statement.epsilon == result.statement.epsilon


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": None}, "give horizon"),
        ({"horizon": 1e300}, "horizon must be"),
        ({"horizon": 1e-300}, "horizon must be"),
        ({"horizon": float("nan")}, "horizon must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"table_share": 0.6, "gan_share": 0.4}, "leave nothing of epsilon"),
        ({"rounding": 0.5}, "rounding and min_count"),
        ({"min_count": 3}, "rounding and min_count"),
        ({"stochastic_normalisation": False}, "stochastic_normalisation"),
        ({"epsilon": None}, "give epsilon, too"),
        ({"clip_norm": 0.0}, "clip_norm must be"),
        ({"max_visits": 0}, "max_visits must be"),
        ({"cells": 1}, "cells must be"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(private, settings, message):
    with pytest.raises(InputError, match=message):
        private(**settings)


def test_a_batch_of_more_than_all_patients_is_refused(ranged, private):
    with pytest.raises(InputError, match="gan_batch_size must be at most the 40 patients"):
        private(gan_batch_size=41).fit(ranged(COUNT))


def test_ranges_are_asked_for_before_anything_is_written(ranged, private, tmp_path):
    data = ranged(COUNT)
    bare = replace(data.schema, static=tuple(replace(column, range=None) for column in data.schema.static))
    with pytest.raises(InputError, match="got none for age"):
        private().fit(replace(data, schema=bare), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


X, Y = numeric("x", range=(0.0, 1.0)), numeric("y", whole=True, range=(-3.0, 300.0))
C, D = categorical("c", ["a"]), categorical("d", ["a", "b", "c"])


@pytest.mark.parametrize(
    ("static", "temporal"),
    slow_but(
        [((), (X,)), ((), (C,)), ((), (D,)), ((X,), (Y,)), ((D,), (X,)), ((C, replace(X, name="z")), (X, Y, D))],
        ((), (D,)),
        ((X,), (Y,)),
    ),
)
def test_any_kind_of_columns_is_learned(private, static, temporal):
    schema = Schema(id="i", time="t", time_unit="days", static=static, temporal=temporal)
    rng, n = np.random.default_rng(0), 20
    lengths = rng.integers(1, 5, n)
    offsets, visits = np.concatenate([[0], np.cumsum(lengths)]), int(lengths.sum())
    data = EHRDataset(
        schema=schema,
        ids=tuple(map(str, range(n))),
        static_numbers=rng.random((n, len(schema.static_numeric))),
        static_codes=rng.integers(-1, 1, (n, len(schema.static_categorical))),
        offsets=offsets,
        times=np.arange(visits, dtype=float),
        numbers=np.where(rng.random((visits, len(schema.temporal_numeric))) < 0.3, np.nan, 1.0),
        codes=rng.integers(-1, 1, (visits, len(schema.temporal_categorical))),
    )
    result = private().fit(data)
    assert len(next(result.synthesizer.sample(10, seed=1))) == 10


class Begun(BaseException):
    """The rounds of the critic have begun, with this randomness."""

    def __init__(self, source: RandomSource) -> None:
        super().__init__()
        self.key = source.key


def test_the_critic_of_another_autoencoder_draws_another_noise(ranged, private, monkeypatch):
    """Copies of a run that died may repeat the autoencoder's rounds with another rounding; what they made goes into
    the critic's sums, and under one noise the difference of two of them would leave without any."""

    def begin(_, context: RoundContext):
        raise Begun(context.source)

    def key(moved: float) -> bytes:
        monkeypatch.setattr(CriticGradients, "clipped_sum", begin)
        monkeypatch.setattr(SequenceGradients, "after_noise", lambda self, mean, *_: mean.add_(moved))
        with pytest.raises(Begun) as found:
            private().fit(ranged(COUNT))
        return found.value.key

    alike, again, another = (key(moved) for moved in (0.0, 0.0, 1e-6))
    assert alike == again
    assert alike != another


def test_what_is_released_follows_from_the_three_sums_alone(ranged, private, tmp_path, monkeypatch):
    """Other records give the same model where the sums that get noise are replaced by zeros, and another one where
    they are not."""

    def model(seed: int, name: str) -> bytes:
        private().fit(ranged(COUNT, seed=seed), out=tmp_path / f"{name} {seed}")
        return (tmp_path / f"{name} {seed}" / "model.safetensors").read_bytes()

    assert model(1, "whole") != model(2, "whole")

    def emptied(kind: type) -> None:
        whole = kind.clipped_sum

        def nothing(*given, **named):
            found = whole(*given, **named)
            (found if isinstance(found, torch.Tensor) else found.total).zero_()
            return found

        monkeypatch.setattr(kind, "clipped_sum", nothing)

    for kind in (Tables, SequenceGradients, CriticGradients):
        emptied(kind)
    assert model(1, "emptied") == model(2, "emptied")


@pytest.mark.parametrize("cut", [{"max_visits": 3}, {"horizon": 100.0}])
def test_what_comes_later_is_not_looked_at(ranged, private, tmp_path, cut):
    data, plan = ranged(COUNT), private(**cut)
    earlier = first_visits(data, max_visits=plan.max_visits, horizon=plan.horizon)
    assert len(earlier.times) < len(data.times)
    for name, records in (("whole", data), ("earlier", earlier)):
        plan.fit(records, out=tmp_path / name)
    whole, alone = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "earlier"))
    assert whole == alone


@pytest.mark.slow
def test_a_run_that_goes_on_takes_the_codecs_of_categories_as_they_were(ranged, private, tmp_path, monkeypatch):
    """Another library would learn others, and the rounds that are repeated would have other sums under the same
    noise."""
    data, plan = ranged(COUNT), private()
    plan.fit(data, out=tmp_path / "whole")
    for stage, step in (("sequences", 3), ("gan", 3)):
        folder = tmp_path / stage

        def die(what: str, done: int, of: int, at=(stage, step)) -> None:
            if (what, done) == at:
                raise MemoryError

        with pytest.raises(MemoryError):
            plan.fit(data, out=folder, save_every=0.0, progress=die)
        with monkeypatch.context() as patch:
            patch.setattr(PlaceholderCodes, "of", lambda *_: pytest.fail("learned again"))
            assert plan.fit(data, out=folder, resume=True).finished
        assert (folder / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


# The gradients that are cut: those of one patient at a time, whoever else is there.
ROWS = 24


@pytest.fixture
def parts(ranged, private):
    """Networks with weights that are not those of a beginning, and records under noisy scales."""

    def make(**settings):
        plan, data = private(**settings), ranged(ROWS)
        spending = Spending.of(plan, data.schema, len(data))
        cut = first_visits(data, max_visits=plan.max_visits, horizon=plan.horizon)
        noisy = spending.tables.clipped_sum(cut).numpy() + np.random.default_rng(0).normal(
            size=sum(spending.tables.counting.sizes().values())
        )
        torch.manual_seed(0)
        networks = Networks(plan, data.schema)
        with torch.no_grad():
            for part in (networks.codec, networks.critic):
                for value in part.parameters():
                    value.add_(0.1 * torch.randn_like(value))
        return plan, networks, Records(cut, spending.tables.scales(noisy), masks=plan.masks)

    return make


def critic_of(plan, networks, latents) -> CriticGradients:
    return CriticGradients(networks.critic, networks.generator, latents, {}, plan, gan_optimizer(plan), "here")


@pytest.mark.parametrize("settings", [{}, {"layers": 2}, {"category_encoder": False}, {"masks": False}])
def test_gradients_of_the_autoencoder_are_those_of_one_patient_at_a_time(parts, settings):
    """Against ordinary backward passes of single patients, who are padded with nobody."""
    plan, networks, records = parts(**settings)
    given = SequenceGradients(networks.codec, torch.zeros(0), records, plan, "here")
    drawn = records.draw(3)
    noise = 0.1 * torch.randn(ROWS, plan.latent)
    assert len(set(records.lengths.tolist())) > 3  # padding matters
    recording, losses = given.recorded(np.arange(ROWS), drawn, noise)
    parameters = list(networks.codec.parameters())
    sums = recording.weighted_sum(torch.ones(ROWS), given.trained.parameters)
    total, norms = [torch.zeros_like(value) for value in parameters], []
    for place in range(ROWS):
        loss = networks.codec.losses(
            records.batch(np.array([place]), drawn),
            noise[place : place + 1],
            time_weight=plan.time_weight,
            visits=records.scales.visits,
        )
        torch.testing.assert_close(loss[0].detach(), losses[place], rtol=1e-4, atol=1e-4)
        found = torch.autograd.grad(loss.sum(), parameters, allow_unused=True, materialize_grads=True)
        norms.append(torch.cat([each.flatten() for each in found]).double().norm().square())
        for one, each in zip(total, found, strict=True):
            one.add_(each)
    torch.testing.assert_close(recording.squared_norms(), torch.stack(norms), rtol=1e-3, atol=1e-6)
    for name, ours, theirs in zip(given.trained.layout.names, sums, total, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3, msg=lambda told, name=name: f"{name}: {told}")


def test_gradients_of_the_critic_are_those_of_one_patient_at_a_time(parts):
    """Against autograd, twice, on `Critic.losses`: the penalty's part among them."""
    plan, networks, _ = parts()
    real, made = torch.tanh(torch.randn(ROWS, plan.latent)), torch.tanh(torch.randn(ROWS, plan.latent))
    between = torch.rand(ROWS, 1)
    given = critic_of(plan, networks, real[None])
    found = given.gradients(real, made, between)
    parameters = list(networks.critic.parameters())
    for place in range(ROWS):
        one = slice(place, place + 1)
        loss = networks.critic.losses(real[one], made[one], between[one], penalty=plan.gradient_penalty)
        wanted = torch.autograd.grad(loss.sum(), parameters, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(found[place], torch.cat([each.flatten() for each in wanted]), rtol=1e-4, atol=1e-5)


def sums(given, clip_norm: float, patients: list[int], round: int = 0):
    """The clipped sum of these patients."""
    return given.clipped_sum(
        RoundContext(
            given.trained.initial.clone(),
            Cohort.of_single_units(np.array(patients, np.int64)),
            round,
            Flat(norm=clip_norm),
            clip_norm,
            RandomSource.from_seed(2),
        ),
    )


def test_a_patient_more_moves_the_autoencoders_sum_by_the_clip_norm_at_most(parts):
    plan, networks, records = parts()
    given = SequenceGradients(networks.codec, torch.zeros(0), records, plan, "here")
    for place in (0, int(records.lengths.argmax()), int(records.lengths.argmin())):
        others = [other for other in range(ROWS) if other != place]
        moved = sums(given, 0.5, list(range(ROWS))).total - sums(given, 0.5, others).total
        assert 0.49 < moved.norm() <= 0.5 * 1.001


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_no_wild_patient_adds_more_than_the_clip_norm(ranged, private, scale):
    """One with 10,000 visits that go up and down from end to end, one with nothing, one alone at the horizon: each by
    itself, and in company, at ordinary weights and at those of a run that goes astray."""
    plan, data = private(max_visits=300), ranged(6)
    visits = 10_000

    def wild(name: str, numbers: np.ndarray, codes: np.ndarray, times: np.ndarray, static: float) -> EHRDataset:
        return EHRDataset(
            schema=data.schema,
            ids=(name,),
            static_numbers=np.full((1, 1), static),
            static_codes=np.full((1, 3), -1 if np.isnan(static) else 1),
            offsets=np.array([0, len(times)]),
            times=times,
            numbers=numbers,
            codes=codes,
        )

    turn = np.where(np.arange(visits) % 2, 1e300, -1e300)[:, None] * np.ones(3)
    people = [
        data,
        wild("turns", turn, (np.arange(visits) % 4)[:, None], np.arange(visits) * 1e-3, 1e300),
        wild("same", np.full((visits, 3), 3.0), np.zeros((visits, 1), int), np.arange(visits) * 1e-9, 50.0),
        wild("nothing", np.full((400, 3), np.nan), np.full((400, 1), -1), np.arange(400.0), np.nan),
        wild("late", np.full((1, 3), -1e300), np.full((1, 1), 3), np.array([1e300]), -1e300),
    ]
    parts = {
        name: np.concatenate([getattr(each, name) for each in people])
        for name in ("static_numbers", "static_codes", "times", "numbers", "codes")
    }
    lengths = np.concatenate([each.lengths for each in people])
    everybody = EHRDataset(
        schema=data.schema,
        ids=tuple(one for each in people for one in each.ids),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        **parts,
    )
    spending = Spending.of(plan, data.schema, len(everybody))
    cut = first_visits(everybody, max_visits=plan.max_visits, horizon=plan.horizon)
    scales = spending.tables.scales(spending.tables.clipped_sum(cut).numpy())
    torch.manual_seed(0)
    networks = Networks(plan, data.schema)
    with torch.no_grad():
        for value in networks.codec.parameters():
            value.mul_(scale)
    given = SequenceGradients(networks.codec, torch.zeros(0), Records(cut, scales), plan, "here")
    alone = [sums(given, 0.5, [place]) for place in range(len(everybody))]
    for share in alone:
        assert share.tally["units"] == 1
        assert share.total.norm() <= 0.5
    finite = [share for share in alone if not share.tally["non_finite"]]
    assert len(finite) == len(alone)
    assert max(float(share.total.norm()) for share in alone) > 0.49
    together = sums(given, 0.5, list(range(len(everybody)))).total
    for place in range(len(everybody)):
        others = [other for other in range(len(everybody)) if other != place]
        assert (together - sums(given, 0.5, others).total).norm() <= 0.5 * 1.001


def test_a_patient_more_moves_the_critics_sum_by_the_clip_norm_at_most(parts):
    """One of them with numbers beyond what an encoder gives."""
    plan, networks, _ = parts()
    latents = torch.tanh(torch.randn(2, ROWS, plan.latent))
    latents[:, 5] = 1e6
    given = critic_of(plan, networks, latents)
    for place in (0, 5, ROWS - 1):
        others = [other for other in range(ROWS) if other != place]
        moved = sums(given, 0.5, list(range(ROWS)), 1).total - sums(given, 0.5, others, 1).total
        assert 0.49 < moved.norm() <= 0.5 * 1.001


@pytest.mark.parametrize("value", [1e30, float("nan"), float("inf")])
def test_a_patient_with_impossible_numbers_is_cut_or_left_out(parts, value):
    plan, networks, _ = parts()
    latents = torch.full((1, ROWS, plan.latent), value)
    given = critic_of(plan, networks, latents)
    share = sums(given, 0.5, [3])
    assert share.total.norm() <= 0.5 * 1.001
    assert torch.isfinite(share.total).all()


def test_an_empty_cohort_adds_nothing(parts):
    plan, networks, records = parts()
    for given in (
        SequenceGradients(networks.codec, torch.zeros(0), records, plan, "here"),
        critic_of(plan, networks, torch.zeros(1, ROWS, plan.latent)),
    ):
        share = sums(given, 0.5, [], 1)
        assert share.total.abs().max() == 0
        assert share.tally["units"] == 0


def test_the_generator_learns_from_the_critic_alone(parts):
    """With the same critic it takes the same step, whoever is in the cohort and whatever their latent vectors are."""
    plan, _, _ = parts()
    found = []
    for patients, latents in (
        ([], torch.zeros(1, ROWS, plan.latent)),
        ([1, 5], torch.ones(1, ROWS, plan.latent)),
    ):
        _, networks, _ = parts()
        given = critic_of(plan, networks, latents)
        before = given.tensors()["generator.parameters"]
        sums(given, 0.5, patients, plan.critic_steps)
        found.append(given.tensors()["generator.parameters"])
        assert not torch.equal(before, found[-1])
    assert torch.equal(*found)
