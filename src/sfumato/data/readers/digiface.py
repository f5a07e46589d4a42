"""DigiFace-1M (Bae et al., WACV 2023): drawn faces in folders `<identity>/<n>.png`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sfumato.data.image_files import OnError
from sfumato.data.readers.image_folder import CACHE_BYTES, image_folder
from sfumato.data.users.dataset import UserDataset


def digiface(
    path: Path | str,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    *,
    cache_bytes: int = CACHE_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """DigiFace-1M: `path/<identity>/<n>.png`; user = class = identity.

    Refused: a name that is blank or no valid UTF-8, and one file under two users by any link. Counted in `notes`: names
    that differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing one,
    and a file twice for one user. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        path: the folder of identities; a part of the data set is enough.
        size: side or (height, width) to scale to; None keeps 112×112.
        channels: 1 or 3 to convert to; None keeps the files' own.
        on_error: "refuse" or "skip" files that are not readable pictures.
        cache_bytes: memory for decoded pictures. For all 720,000 pictures use `pack` instead.
        progress: called with (pictures checked, pictures).

    Raises:
        InputError: as `image_folder`.
    """
    return image_folder(path, size, channels, on_error, cache_bytes=cache_bytes, progress=progress)
