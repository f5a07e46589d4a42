"""What commands read, and where they keep it."""

import warnings
from pathlib import Path

import numpy as np

from sfumato.cli.sources import DataOptions, read_parts
from sfumato.data import open_users


def test_a_store_is_written_of_the_data_alone(tmp_path: Path) -> None:
    for name, count in (("a", 8), ("b", 4)):
        np.savez(tmp_path / f"{name}.npz", inputs=np.ones((count, 3)), users=range(count), labels=[0] * count)
    options = DataOptions(data=str(tmp_path / "a.npz"), test=str(tmp_path / "b.npz"), store=tmp_path / "store")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the test has names of the training data
        parts = read_parts(options, quiet=True)
    assert parts.test is not None
    assert (len(open_users(tmp_path / "store")), len(parts.train), len(parts.test)) == (8, 8, 4)
