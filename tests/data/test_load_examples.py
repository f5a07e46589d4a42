"""The door to examples knows stores by user and refuses what nobody can read."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import (
    from_arrays,
    load_examples,
    write_store,
)


def test_the_door_knows_stores_by_user_and_refuses_the_rest(tmp_path: Path) -> None:
    users = from_arrays(np.zeros((4, 3, 3), np.uint8), [0, 1, 1, 2], ["b", "a", "b", "c"])
    write_store(users, tmp_path / "users")
    assert load_examples(tmp_path / "users").targets.tolist() == [1, 0, 1, 2]
    for name, content, message in [
        ("a.txt", b"", "is none of: a folder"),
        ("a.npz", b"zip?", "cannot be read as npz"),
        ("a.parquet", b"", "needs a schema"),
        ("b.csv", b"age,sex,label\n3,m,1\n", "needs a schema"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            load_examples(tmp_path / name)
    with pytest.raises(InputError, match="there is nothing at"):
        load_examples(tmp_path / "none")
    with pytest.raises(InputError, match="part must be one of train, test"):
        load_examples(tmp_path / "users", "valid")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not divided into train and test"):
        load_examples(tmp_path / "users", "test")
