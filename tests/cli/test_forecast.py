"""`sfumato forecast`, and the forecast of dry runs and at the start of a run."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from sfumato.cli.models import built_again
from sfumato.federated import FedAvg, FedRecon
from sfumato.training.forecast import trained_sizes

WORDS = ("--epochs", 1, "--cohort", 20, "--model", "lenet300_100", "--seed", 1)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("numbers") / "numbers.npz"
    np.savez(file, x=rng.normal(size=(120, 6)).astype(np.float32), y=rng.integers(0, 2, 120))
    return file


def given(numbers: Path, *more: object) -> tuple[object, ...]:
    return ("dpsgd", "--data", numbers, "--num-classes", 2, *WORDS, *more)


def stopped(sfumato, numbers: Path, out: Path) -> dict:
    """The plan.json of a run, without the run."""
    assert sfumato(*given(numbers, "--epsilon", 8, "--out", out)).code == 0
    return json.loads((out / "plan.json").read_text())


def test_a_dry_run_the_start_of_a_run_and_the_command_forecast_one_number(sfumato, numbers: Path, tmp_path: Path):
    tried = json.loads(sfumato(*given(numbers, "--epsilon", 8, "--dry-run", "--json")).out)["forecast"]
    assert tried["noise_to_signal"] > 1
    assert 6 * 300 + 300 in [each["parameters"] for each in tried["groups"]]
    shown = sfumato(*given(numbers, "--epsilon", 8, "--dry-run")).out
    assert f"\nforecast: {tried['words']}\n" in shown
    run = sfumato(*given(numbers, "--epsilon", 8, "--out", tmp_path / "run"))
    assert f"\nforecast: {tried['words']}\n" in run.out
    told = json.loads(sfumato("forecast", tmp_path / "run" / "plan.json", "--json").out)
    assert told["words"] == tried["words"]
    assert told["groups"] == tried["groups"]


def test_more_units_are_forecast_from_the_plan_alone(sfumato, numbers: Path, tmp_path: Path):
    stopped(sfumato, numbers, tmp_path / "run")
    plan = tmp_path / "run" / "plan.json"
    words = ("forecast", plan, "--epsilon", 8, "--json")
    few, many = (json.loads(sfumato(*words, "--population", n).out) for n in (100, 400))
    assert many["noise_to_signal"] < few["noise_to_signal"]
    half = json.loads(sfumato(*words, "--population", 100, "--parameters", few["parameters"] // 4).out)
    assert half["noise_to_signal"] == pytest.approx(few["noise_to_signal"] / 2, rel=1e-3)
    assert "rounds" in sfumato(*words[:-1], "--population", 100, "--rounds", 40).out


def test_what_cannot_be_forecast_is_one_line(sfumato, numbers: Path, tmp_path: Path):
    plan = stopped(sfumato, numbers, tmp_path / "run")
    assert "has ended; sfumato report" in sfumato("forecast", tmp_path / "run").line

    def line(*words: object, **changed: object) -> str:
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({**plan, **changed}))
        return sfumato("forecast", file, *words).line

    assert "has no population; give --population, the public number of examples" in line(population=None)
    unknown = line(about={**plan["about"], "model": "lenet300_10"})
    assert "cannot be built (model must be one of" in unknown
    assert "give --parameters COUNT" in unknown
    assert "(its 'model' is not stated)" in line(about=None)
    assert "a plan of 'ehr_safe'; a forecast is for fedavg" in line(plan="ehr_safe")
    assert "without noise" in line(plan="centralized")
    assert "--rounds needs --epsilon" in line("--rounds", 3)
    assert "has no noise; give --epsilon" in line(noise={**plan["noise"], "noise_multiplier": None})
    assert "there is no plan" in sfumato("forecast", tmp_path / "none").line


def test_parameters_of_each_user_s_own_are_not_counted():
    model = built_again({"model": "matrix_factorization", "item_count": 10, "input_shape": [1]})
    shared, whole = (trained_sizes(plan, model) for plan in (FedRecon(rounds=1, cohort=2), FedAvg(rounds=1, cohort=2)))
    local = FedRecon(rounds=1, cohort=2).local_parameters(model)
    assert {name for name in whole if name not in shared} == {name for name in whole if re.fullmatch(local, name)}
    assert 0 < len(shared) < len(whole)
