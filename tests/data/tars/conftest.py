"""Tars that are written member by member."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write_tar(tmp_path: Path) -> Callable[..., Path]:
    """Writes (name, content) into a tar of the folder."""

    def write(members: list[tuple[str, bytes]], name: str = "a.tar", format: int = tarfile.PAX_FORMAT) -> Path:
        with tarfile.open(tmp_path / name, "w", format=format) as tar:
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return tmp_path / name

    return write
