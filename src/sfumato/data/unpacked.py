"""The one limit on what a packed file may unpack to: a small file must not take all memory.

>>> from pathlib import Path
>>> import tempfile
>>> file = Path(tempfile.mkdtemp()) / "x.npz"
>>> _ = file.write_bytes(bytes(1000))
>>> refuse_bomb(file, 1 << 28)
>>> refuse_bomb(file, 1 << 31)
Traceback (most recent call last):
...
sfumato._check.InputError: ... declares 2.1 GB in a file of 0.0 MB, more than 256 MiB and 200 times its size; ...
"""

import os
from pathlib import Path

from sfumato._check import InputError

_FREE = 1 << 28  # bytes that any file may unpack to
_RATIO = 200  # beyond that, how many times its size; pictures and tables pack to a tenth, zeros alone to a thousandth


def refuse_bomb(path: Path | str, declared: int) -> None:
    """Refuse to unpack far more than what there is to unpack.

    Args:
        path: the packed file.
        declared: the bytes that it says it unpacks to.

    Raises:
        InputError: it declares more than 256 MiB and 200 times its size, or more than the machine's memory.
    """
    size = Path(path).stat().st_size
    if declared > max(_FREE, _RATIO * size):
        raise InputError(
            f"{path} declares {declared / 1e9:.1f} GB in a file of {size / 1e6:.1f} MB, more than 256 MiB and {_RATIO} "
            "times its size; unpack it yourself if you trust it, and give a folder of .npy or plain files"
        )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if declared > memory:
        raise InputError(
            f"{path} unpacks to {declared / 1e9:.1f} GB, this machine has {memory / 1e9:.1f} GB of memory; unpack it, "
            "and give a folder of .npy or plain files"
        )
