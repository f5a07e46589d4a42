import numpy as np
import pandas as pd
import pytest
from PIL import Image

from sfumato._check import InputError
from sfumato.data import open_examples


def test_a_folder_of_pictures_an_array_and_a_column_have_no_labels(tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for shade in range(3):
        Image.new("L", (6, 4), 40 * shade).save(pictures / f"{shade}.png")
    np.save(tmp_path / "x.npy", np.ones((5, 2), np.float32))
    np.savez(tmp_path / "x.npz", inputs=np.ones((5, 2), np.float32), other=np.zeros(3))
    pd.DataFrame({"v": [[0.5, 1.5], [2.5, 3.5]], "name": ["a", "b"]}).to_parquet(tmp_path / "x.parquet")
    found = open_examples(pictures, targets=False)
    assert found.input_shapes == ((4, 6, 1),)
    assert found.examples([2, 0])[0][0][:, 0, 0, 0].tolist() == [80, 0]
    assert found.targets is None
    for name, count in (("x.npy", 5), ("x.npz", 5)):
        assert (
            len(open_examples(tmp_path / name, targets=False)),
            open_examples(tmp_path / name, targets=False).targets,
        ) == (count, None)
    rows = open_examples(tmp_path / "x.parquet", targets=False, input="v")
    assert rows.targets is None
    assert rows.examples([1])[0][0].tolist() == [[2.5, 3.5]]


def test_a_file_that_is_no_picture_is_named_or_skipped_and_counted(tmp_path):
    Image.new("L", (6, 4)).save(tmp_path / "a.png")
    (tmp_path / "b.txt").write_text("words")
    with pytest.raises(InputError, match=r"b\.txt"):
        open_examples(tmp_path, targets=False)
    found = open_examples(tmp_path, targets=False, on_error="skip")
    assert len(found) == 1
    assert "skipped 1 file: b.txt (is not a picture)" in found.notes[0]


@pytest.mark.parametrize("name", ["nothing.npz", "words.txt", "empty", "odd.npz"])
def test_what_holds_no_inputs_is_refused(name, tmp_path):
    (tmp_path / "words.txt").write_text("words")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "odd.npz", weights=np.zeros(3))
    with pytest.raises(InputError):
        open_examples(tmp_path / name, targets=False)
