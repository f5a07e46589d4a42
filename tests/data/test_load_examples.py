"""The door to examples knows stores by user and refuses what nobody can read."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import from_arrays, open_examples, write_store


def test_the_door_knows_stores_by_user_and_refuses_the_rest(tmp_path: Path) -> None:
    users = from_arrays(np.zeros((4, 3, 3), np.uint8), [0, 1, 1, 2], ["b", "a", "b", "c"])
    write_store(users, tmp_path / "users")
    assert open_examples(tmp_path / "users").targets.tolist() == [1, 0, 1, 2]
    for name, content, message in [
        ("a.txt", b"", "is none of: a folder"),
        ("a.npz", b"zip?", "cannot be read as npz"),
        ("a.parquet", b"", "give a schema"),
        ("b.csv", b"age,sex,label\n3,m,1\n", "give a schema"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            open_examples(tmp_path / name)
    with pytest.raises(InputError, match="there is nothing at"):
        open_examples(tmp_path / "none")
    with pytest.raises(InputError, match="part must be one of train, test"):
        open_examples(tmp_path / "users", "valid")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not divided into train and test"):
        open_examples(tmp_path / "users", "test")


def test_what_the_data_have_no_use_for_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 8, 8), np.uint8), y=[0, 1, 0, 1])
    write_store(from_arrays(np.zeros((2, 3, 3), np.uint8), [0, 1], ["b", "a"]), tmp_path / "users")
    (tmp_path / "texts.csv").write_text("label,text\na,some words of this\nb,more words of that\n")
    for place, option, name in [
        ("a.npz", {"size": 28}, "size"),
        ("a.npz", {"channels": 1}, "channels"),
        ("a.npz", {"schema": {"x": {"kind": "target"}}}, "schema"),
        ("users", {"size": (4, 4)}, "size"),
        ("texts.csv", {"channels": 3}, "channels"),
    ]:
        with pytest.raises(InputError, match=f"{name}=.* is for .*{place} is .*; leave it out"):
            open_examples(tmp_path / place, **option)
