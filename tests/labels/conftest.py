"""A small table with a label, in every format."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 500


@pytest.fixture
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "y": pa.array(rng.choice(["cat", "dog", "owl"], ROWS, p=[0.6, 0.3, 0.1])),
            "x": rng.random(ROWS),
            "g": pa.array(rng.choice(["a", "b"], ROWS)),
        }
    )


@pytest.fixture
def parquet(table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a file that is read in five blocks."""
    monkeypatch.setattr("sfumato.labels.files._PARQUET_ROWS", 100)
    path = tmp_path / "table.parquet"
    pq.write_table(table, path)
    return path
