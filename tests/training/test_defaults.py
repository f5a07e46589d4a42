"""Sizes and rates that follow from public numbers."""

import inspect
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato import data
from sfumato._check import InputError
from sfumato.central import DPSGD, LabelDPPro
from sfumato.cli.main import main
from sfumato.cli.run_options import training_options
from sfumato.cli.sources import fitted
from sfumato.cli.training import resolved_plan
from sfumato.federated import FedAvg, FedEmb, FedRecon
from sfumato.training import defaults
from sfumato.training.server import MAX_NOISE_NORM

RULES = (
    defaults.usual_batch,
    defaults.usual_steps,
    defaults.usual_rate,
    defaults.fitting_clients,
    defaults.usual_lstm,
    defaults.table_norm,
)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_reads_public_numbers_and_words_alone(rule):
    assert all(
        each.annotation in ("int", "float", "str", "bool", int, float, str, bool)
        for each in inspect.signature(rule).parameters.values()
    )


@pytest.mark.parametrize("units", [2, 3, 26, 142, 1_000, 60_000, 1_000_000])
@pytest.mark.parametrize("kind", [DPSGD, LabelDPPro, FedEmb, FedAvg, FedRecon])
def test_every_population_gets_a_cohort_that_can_be_drawn(kind, units):
    for noise in (0.0, 1.0):
        plan = kind(noise=noise).with_usual_sizes(units)
        assert plan.private_sum(units).sampler.units <= units


def test_a_chosen_size_stays():
    assert DPSGD(cohort=10).with_usual_sizes(10_000, ["cohort"]).cohort.size == 10
    assert FedEmb(cohort=40).with_usual_sizes(26, ["cohort.size"]).cohort.size == 40


def test_own_parts_of_values_are_rebuilt_by_a_few_large_steps_where_none_were_chosen():
    published = FedRecon().client.local
    usual = fitted(FedRecon(), "values", ["client.local.parameters", "client.local.support_share"]).client.local
    assert usual == replace(published, **defaults.VALUES_REBUILT)
    for kind in ("texts", "classes"):
        assert fitted(FedRecon(), kind, []).client.local == published
    for name in ("steps", "epochs", "batch_size", "learning_rate", "joint"):
        assert fitted(FedRecon(), "values", [f"client.local.{name}"]).client.local == published


def test_the_command_takes_the_batch_of_its_population():
    words = ["--epsilon", "8", "--population", "60000"]
    assert resolved_plan(training_options("dpsgd", words), 60_000).plan.cohort.size == 2048
    assert resolved_plan(training_options("dpsgd", [*words, "--cohort", "99"]), 60_000).plan.cohort.size == 99


def test_clients_of_texts_take_steps_of_their_own_rate_and_few_users_a_small_model(tmp_path, capsys):
    words = ["--data", "turns.csv", "--text", "characters"]
    client = training_options("fedavg", words).plan.client
    assert (client.learning_rate, client.momentum) == (defaults.TEXT_CLIENT_RATE, 0.0)
    assert training_options("fedavg", [*words, "--client.learning-rate", "0.1"]).plan.client.learning_rate == 0.1
    assert training_options("fedavg", ["--data", "faces"]).plan.client.learning_rate == 0.005
    rows = "".join(f"user {user},what user {user} wrote\n" for user in range(8))
    (tmp_path / "turns.csv").write_text(f"user,text\n{rows}", "utf-8")
    assert main(["fedavg", "--data", str(tmp_path / "turns.csv"), *words[2:], "--noise", "1", "--dry-run"]) == 0
    assert "model: lstm (hidden=128, layers=1), as is usual" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shape", "words", "norm"),
    [
        ((3,), (), 10.0),
        ((3,), ("--clipping", "1"), 1.0),
        ((3,), ("--noise", "0"), 20.0),
        ((3,), ("--task", "counts"), 20.0),
        ((3,), ("--task", "regression"), 1.0),
        ((12, 12, 1), (), 1.0),
    ],
    ids=["table", "chosen", "no noise", "counts", "regression", "pictures"],
)
def test_rows_of_tables_are_clipped_to_a_norm_of_their_own(shape, words, norm, tmp_path, capsys):
    rng, task = np.random.default_rng(0), "--task" in words
    x = rng.normal(size=(40, *shape)).astype(np.float32) if len(shape) == 1 else rng.integers(0, 255, (40, *shape))
    y = np.arange(40) % 2
    if task:
        y = y if "counts" in words else rng.normal(size=40).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=x if len(shape) == 1 else x.astype(np.uint8), y=y)
    classes = () if task else ("--num-classes", "2")
    budget = () if "--noise" in words else ("--epsilon", "8")
    given = ["dpsgd", "--data", str(tmp_path / "rows.npz"), *classes, *words, *budget, "--dry-run", "--json"]
    assert main(given) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["plan"]["clipping"]["norm"] == norm
    assert 0 < done["learning_rate"] <= 4 / np.sqrt(norm)


def test_a_larger_batch_in_equal_passes_has_a_higher_rate():
    rates = [DPSGD(epochs=10, cohort=size).rate_for(size_steps(size)) for size in (256, 2048)]
    assert rates[0] == 1.0
    assert rates[1] > 1.4


def size_steps(size):
    return DPSGD(epochs=10, cohort=size).rounds_for(26_048)


def test_noise_limits_the_rate():
    plan = DPSGD(noise=50.0, cohort=16, steps=300)
    factory = plan.optimizer_for(plan.private_sum(1000))
    expected = MAX_NOISE_NORM * 16 / (50.0 * np.sqrt(300 * 10_000))
    assert factory.rate(10_000) == pytest.approx(expected)


def test_the_model_learns_as_well_with_a_large_batch_and_the_rate_left_open():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(2_000, 8)).astype(np.float32)
    labels = (inputs @ rng.normal(size=8) > 0).astype(int)
    records = data.examples_from_arrays(inputs, labels)
    train, test = records.subset(range(1_600)), records.subset(range(1_600, 2_000))
    found = {}
    for size in (64, 800):
        torch.manual_seed(0)
        plan = DPSGD(epochs=10, cohort=size, noise=0.5, seed=1)
        found[size] = plan.fit(torch.nn.Linear(8, 2), train, test=test).evaluation["trained"]["accuracy"]
    assert min(found.values()) > 0.9
    assert abs(found[64] - found[800]) < 0.05


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["dpsgd", "--model", "lnet5"], "did you mean lenet5"),
        (["dpsgd", "--model", "ctr", "--model-options", "hiden=3"], "ctr has no option hiden"),
        (["dpsgd", "--model", "no_such_module_here:net"], "No module named 'no_such_module_here'"),
        (["fedavg", "--model", "lnet"], "did you mean lenet"),
        (["fedrecon", "--model", "matrix_factorization", "--model-options", "factor=3"], "has no option factor"),
    ],
)
def test_a_wrong_model_is_refused_before_records_are_read(words, reason, tmp_path, capsys):
    assert main([*words, "--data", str(tmp_path / "missing"), "--noise", "0"]) == 2
    assert reason in capsys.readouterr().err


def test_an_optimiser_that_divides_by_a_norm_gets_a_rate_of_its_own():
    plan = DPSGD(noise=0.0, server="adam", steps=10)
    assert plan.optimizer_for(plan.private_sum(1000)).rate(100) == pytest.approx(0.002)
    with pytest.raises(InputError):
        DPSGD(server={"learning_rate": 0.0})
