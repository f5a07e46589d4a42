"""Projects, URIs and places that are of no use are refused before anything runs; needs no service."""

import sys
from types import SimpleNamespace

import pytest

from sfumato._check import InputError
from sfumato.integrations import MLflow, WandB
from sfumato.integrations.loggers import Place


@pytest.mark.parametrize("project", ["", "a/b/c", "faces?", "a" * 129, "team/"])
def test_a_project_that_wandb_refuses_is_one_line(monkeypatch, project):
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(errors=SimpleNamespace(Error=RuntimeError)))
    WandB("team/faces")
    with pytest.raises(InputError, match="PROJECT or ENTITY/PROJECT"):
        WandB(project)


def test_a_password_does_not_get_into_the_plan():
    with pytest.raises(InputError, match="MLFLOW_TRACKING_PASSWORD") as told:
        MLflow("faces", uri="https://me:secret@example.org/mlflow")
    assert "secret" not in str(told.value)


def test_a_database_in_no_folder_is_one_line(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        MLflow("faces", uri=f"sqlite:///{tmp_path}/none/mlflow.db")


def test_a_place_is_found_again_and_services_do_not_mix(tmp_path):
    Place(tmp_path, "wandb:faces").keep("abc")
    Place(tmp_path, "mlflow:#faces").keep("def")
    assert Place(tmp_path, "wandb:faces").known == "abc"
    assert Place(tmp_path, "wandb:other").known is None
    assert Place(None, "wandb:faces").known is None


def test_a_damaged_list_of_places_is_one_line(tmp_path):
    (tmp_path / "logs.json").write_text("{")
    with pytest.raises(InputError, match=r"logs\.json is damaged"):
        _ = Place(tmp_path, "wandb:faces").known
