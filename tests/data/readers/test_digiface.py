"""DigiFace as its authors publish it."""

from collections.abc import Callable
from pathlib import Path

from sfumato.data import open_users


def test_digiface_identities_are_users(tmp_path: Path, picture: Callable, save: Callable) -> None:
    for identity in range(3):
        for n in range(4):
            save(tmp_path / "faces" / str(identity) / f"{n}.png", picture(10 * identity + n, 20, 20, 3))
    dataset = open_users(tmp_path / "faces", size=10, channels=1)
    assert list(dataset.user_ids) == list(dataset.label_names or ()) == ["0", "1", "2"]
    assert dataset.sizes.tolist() == [4] * 3
    assert dataset.input_shape == (10, 10, 1)
