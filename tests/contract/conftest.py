"""Runs that several tests of the battery look at; they only read them, or copy them."""

from pathlib import Path
from typing import Any

import pytest

from contract.specimens import fit
from sfumato.training import Result


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory):
    """`fitted(name, **changes)`: a run of the specimen in a folder, the same one for the same changes."""
    runs: dict[Any, Result] = {}

    def run(name: str, **changes: Any) -> Result:
        key = (name, *sorted(changes.items()))
        if key not in runs:
            runs[key] = fit(name, tmp_path_factory.mktemp("runs") / name, **changes)
        return runs[key]

    return run


@pytest.fixture(scope="session")
def folder_of(fitted):
    """The same: its folder."""

    def folder(name: str, **changes: Any) -> Path:
        return fitted(name, **changes).folder

    return folder
