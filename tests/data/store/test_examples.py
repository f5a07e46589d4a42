"""Examples written to a folder come back the same; a damaged folder is refused."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import (
    examples_from_arrays,
    open_examples,
    write_examples,
)


def test_a_written_folder_gives_the_same_records(tmp_path: Path, pictures) -> None:
    rng = np.random.default_rng(1)
    arrays = (pictures[0], rng.normal(size=(50, 2)).astype(np.float32), rng.integers(0, 9, (50, 3)))
    data = examples_from_arrays(
        arrays, pictures[1], label_names=["a", "b", "c", "ü"], vocabulary_sizes=(9, 9, 9), columns=[[], ["p"], ["q"]]
    ).subset([4, 2, 44])
    written = write_examples(data, tmp_path / "store")
    for copy in (written, open_examples(tmp_path / "store")):
        assert copy.fingerprint() == data.fingerprint()
        assert list(copy.label_names or ()) == ["a", "b", "c", "ü"]
        assert (copy.vocabulary_sizes, copy.columns) == (data.vocabulary_sizes, data.columns)
        assert copy.assumptions == data.assumptions
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    with pytest.raises(InputError, match="not empty"):
        write_examples(data, tmp_path / "store")
    (tmp_path / "store" / "targets.npy").unlink()
    with pytest.raises(InputError, match=r"no file .*targets\.npy"):
        open_examples(tmp_path / "store")


def test_a_damaged_folder_is_refused_in_one_line(tmp_path: Path, pictures) -> None:
    write_examples(examples_from_arrays(*pictures), tmp_path / "a")
    file = tmp_path / "a" / "inputs0.npy"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot be read as npy"):
        open_examples(tmp_path / "a")
    np.save(file, pictures[0][:7])
    with pytest.raises(InputError, match="should have 50 examples"):
        open_examples(tmp_path / "a")
    (tmp_path / "a" / "examples.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        open_examples(tmp_path / "a")
