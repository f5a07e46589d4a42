"""Examples written to a store come back the same; a damaged store is refused."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import examples_from_arrays, open_examples, open_users, write_examples
from sfumato.data.store.opened import ExampleWriter


def test_a_written_store_gives_the_same_records(tmp_path: Path, pictures) -> None:
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
    (tmp_path / "store" / "examples.arrow").unlink()
    with pytest.raises(InputError, match=r"has lost examples\.arrow"):
        open_examples(tmp_path / "store")


def test_a_damaged_store_is_refused_in_one_line(tmp_path: Path, pictures) -> None:
    write_examples(examples_from_arrays(*pictures), tmp_path / "a")
    file = tmp_path / "a" / "examples.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(InputError, match="the store is damaged"):
        open_examples(tmp_path / "a")
    for place in range(200, len(whole), 300):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError, match=r"pack it again"):
            open_examples(tmp_path / "a")
    file.write_bytes(whole)
    open_examples(tmp_path / "a")
    (tmp_path / "a" / "store.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        open_examples(tmp_path / "a")


def test_examples_without_users_are_not_taken_for_users(tmp_path: Path, pictures) -> None:
    write_examples(examples_from_arrays(*pictures), tmp_path / "a")
    with pytest.raises(InputError, match="not divided by user; open them with open_examples"):
        open_users(tmp_path / "a")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, pictures) -> None:
    with ExampleWriter([(6, 5, 1)], [np.uint8], tmp_path / "a") as writer:
        writer.add([pictures[0][..., None]], pictures[1])
        assert [path.name for path in tmp_path.iterdir()] == ["a.partial"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("targets", [None, np.arange(40.0), np.arange(80).reshape(40, 2)])
def test_several_inputs_and_any_targets_are_columns_for_others(tmp_path: Path, targets: np.ndarray | None) -> None:
    polars = pytest.importorskip("polars")
    inputs = (np.arange(120.0).reshape(40, 3), np.arange(40 * 7).reshape(40, 7))
    data = examples_from_arrays(inputs, targets, classes=False, vocabulary_sizes=(280,))
    write_examples(data, tmp_path / "a")
    frame = polars.read_ipc(tmp_path / "a" / "examples.arrow")
    assert frame.columns == ["target"] * (targets is not None) + ["inputs_0", "inputs_1"]
    for column, array in zip(frame.columns[::-1], [*inputs[::-1], targets], strict=False):
        assert (frame[column].to_numpy() == array).all()
