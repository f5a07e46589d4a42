"""What MLflow holds of a run, also of one that was killed and goes on."""

import json

import pytest

from sfumato._check import InputError
from sfumato.integrations import MLflow
from sfumato.training import Callback

mlflow = pytest.importorskip("mlflow", reason="needs the mlflow extra")
pytest.importorskip("sqlalchemy", reason="MLflow keeps its database with it")


class Kill(Callback):
    def on_round(self, row):
        if row["round"] == 5:
            raise KeyboardInterrupt


@pytest.fixture
def uri(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


def run_of(uri: str):
    client = mlflow.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("faces").experiment_id])
    return client, found


def test_a_run_has_its_plan_rounds_and_statement_there(fit, uri):
    result = fit(MLflow("faces", uri=uri))
    client, found = run_of(uri)
    assert found.info.status == "FINISHED"
    assert found.data.params["noise_multiplier"] == "1.0"
    assert found.data.tags["statement"] == result.statement.text()[:5000]
    assert found.data.metrics["statement/epsilon"] == result.statement.epsilon
    told = client.get_metric_history(found.info.run_id, "epsilon")
    rows = [(row["round"], row["epsilon"]) for row in result.history if "epsilon" in row]
    assert sorted((each.step, each.value) for each in told) == rows
    assert len({each.timestamp for each in told}) == 1
    assert not [name for name in found.data.metrics if name.startswith(("private", "validation", "test"))]


def test_a_run_that_was_killed_and_goes_on_has_each_step_once(fit, uri, tmp_path):
    log = {"uri": uri, "run": tmp_path / "run", "public_evaluation": True}
    with pytest.raises(KeyboardInterrupt):
        fit(MLflow("faces", **log), Kill(), out=tmp_path / "run")
    fit(MLflow("faces", **log), out=tmp_path / "run", resume=True)
    client, found = run_of(uri)
    assert found.info.run_name == "run"
    assert found.info.run_id in json.loads((tmp_path / "run" / "logs.json").read_text()).values()
    steps = {
        name: sorted(each.step for each in client.get_metric_history(found.info.run_id, name))
        for name in ("epsilon", "validation/accuracy", "statement/epsilon")
    }
    assert steps == {
        "epsilon": [1, 2, 3, 4, 5, 6],
        "validation/accuracy": [0, 3, 6],
        "statement/epsilon": [6],
    }


def test_a_uri_of_no_use_is_one_line():
    with pytest.raises(InputError, match=r"strange://somewhere.*cannot be opened.*unsupported URI"):
        MLflow("faces", uri="strange://somewhere")
