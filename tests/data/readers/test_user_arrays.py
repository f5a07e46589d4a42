"""Users in an npz file: what the keys mean, and damaged files in one line."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import open_users


def test_arrays_in_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=[0, 1, 0, 1, 0, 1], users=["b", "a", "b", "a", "c", "c"])
    dataset = open_users(tmp_path / "a.npz")
    assert (dataset.examples(0)[0] == images[[1, 3]]).all()
    assert open_users(tmp_path / "a.npz", size=4, channels=1).input_shape == (4, 4, 1)
    np.savez(tmp_path / "b.npz", inputs=np.ones((3, 2), np.float32), users=[5, 5, 9])
    own = open_users(tmp_path / "b.npz")
    assert [own.examples(u)[1].tolist() for u in range(2)] == [[0, 0], [1]]  # each user is a class
    with pytest.raises(InputError, match="for pictures"):
        open_users(tmp_path / "b.npz", size=4)


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "keys.npz", pixels=np.ones(3))
    np.savez(tmp_path / "pickle.npz", images=np.array([{}], object), users=[0])
    np.savez(tmp_path / "shares.npz", images=np.ones((4, 8, 8), np.float32), users=[0, 0, 1, 1])
    np.savez(tmp_path / "good.npz", inputs=np.random.default_rng(0).random((50, 50)), users=np.arange(50))
    content = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[:3000])
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "flipped.npz").write_bytes(content[:5000] + b"????" + content[5004:])
    for name, message in [
        ("shares", r"must be uint8.*got float32 \(4, 8, 8\); scale pixels.*name the array inputs"),
        ("keys", "has the keys pixels; needed are"), ("pickle", "cannot be read as npz"), ("cut", "cannot be read"),
        ("text", "cannot be read"), ("flipped", "cannot be read"), ("absent", "there is no file"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=message) as refusal:
            open_users(tmp_path / f"{name}.npz")
        assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="has the keys pixels; needed are"):
        open_users(tmp_path / "keys.npz")
