"""Made-up patients in a folder, a plan that learns them in a moment, and a run of it."""

from pathlib import Path

import pytest

from made_up_patients import records
from sfumato.cli.main import main
from sfumato.data.ehr.folders import write_folder

SMALL = (
    "--epochs", 2, "--gan-steps", 20, "--category-steps", 10, "--hidden", 12, "--latent", 8, "--gan-hidden", 16,
    "--noise", 8, "--embedding", 4, "--static-embedding", 4, "--gan-batch-size", 32, "--calibrated-on", 60,
    "--threads", 1,
)  # fmt: skip


@pytest.fixture(scope="session")
def small() -> tuple[object, ...]:
    """Options of a plan that learns in a moment."""
    return SMALL


@pytest.fixture(scope="session")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 120 patients; tests only read it."""
    folder = tmp_path_factory.mktemp("records") / "patients"
    write_folder(records(120, 1), folder, "csv", synthetic=False)
    return folder


@pytest.fixture(scope="session")
def learned(patients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a seeded run on them; tests only read it, or copy it."""
    folder = tmp_path_factory.mktemp("runs") / "learned"
    words = ["ehr", "fit", "--data", patients, *SMALL, "--seed", 3, "--out", folder, "--holdout-share", 0.4]
    assert main([str(word) for word in words]) == 0
    return folder
