"""Federated EMNIST: handwritten digits and letters by 3,400 writers, in the two formats that it is published in.

In both, each writer's examples are divided into a train part and a test part. sfumato's unit is the writer, so the two
parts are merged into one user; counting them as two would halve what the guarantee says about a person.

- `emnist_tff`: TensorFlow Federated's `fed_emnist_train.h5` and `fed_emnist_test.h5` (Caldas et al. 2018 after Cohen et
  al. 2017): `examples/<writer>/pixels` float32 [n, 28, 28] with paper = 1, `examples/<writer>/label` [n].
- `emnist_leaf`: LEAF's FEMNIST, JSON files
  `{"users": […], "user_data": {writer: {"x": [[784 numbers], …], "y": […]}}}`.

The 62 classes are 0–9, A–Z, a–z. The authors' run of DP-FedEmb trains on classes 0–35 and tests on 36–61:
`emnist_tff(folder, classes=range(36))` and `classes=range(36, 62)`.
"""

import itertools
import string
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._files import read_json
from sfumato.data.files import refuse_bomb
from sfumato.data.records import Reader, some
from sfumato.data.safeguards import name_notes, refuse_same_files, refuse_shared, refuse_twice
from sfumato.data.store.build import write_users
from sfumato.data.users import UserDataset, from_arrays

CLASSES = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SIDE = 28

Writers = Iterator[tuple[str, np.ndarray, np.ndarray]]
"""(writer, uint8 [n, 28, 28, 1], int64 [n]), each writer once."""


def emnist_tff(
    path: Path | str | Sequence[Path | str],
    classes: Sequence[int] | None = None,
    *,
    invert: bool = False,
    store: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """TensorFlow Federated's HDF5 files, by h5py.

    Args:
        path: the folder that holds `fed_emnist*_train.h5` and `fed_emnist*_test.h5`, or the files themselves.
        classes, invert, store, progress: as in `open_users`; paper is 255 unless inverted, as in the files.

    Returns:
        one user a writer, sorted by name, the train part before the test part.

    Raises:
        InputError: h5py is not installed, no such files, or files of another layout.
    """
    try:
        import h5py
    except ImportError:
        raise InputError("reading .h5 files needs h5py; install it with: pip install h5py") from None
    files = _files(path, "fed_emnist*_train.h5", "fed_emnist*_test.h5")
    opened: list[Any] = []
    known: list[set[str]] = []
    try:
        for file in files:
            try:
                opened.append(h5py.File(file, "r")["examples"])
                known.append(set(opened[-1]))
            except Exception:  # h5py raises whatever a damaged file leads it to
                raise InputError(f"{file} is not a federated EMNIST file: it has no readable examples group") from None
        names = sorted(set().union(*known))
        name_notes(names)
        for file, group, inside in zip(files, opened, known, strict=True):
            _refuse_links(file, group, sorted(inside))

        def writers() -> Writers:
            for name in names:
                try:
                    parts = [group[name] for group, names in zip(opened, known, strict=True) if name in names]
                    for part, key in itertools.product(parts, ("pixels", "label")):
                        refuse_bomb(part.file.filename, part[key].nbytes)
                    pixels = np.concatenate([part["pixels"][()] for part in parts])
                    labels = np.concatenate([part["label"][()] for part in parts])
                except InputError:
                    raise
                except Exception as error:  # h5py raises whatever a damaged file leads it to
                    raise InputError(f"writer {name} in {files[0].parent} cannot be read: {error}") from None
                yield name, _bytes(pixels, name, invert), _labels(labels, name)

        return _collect(writers(), len(names), files, classes, store, progress)
    finally:
        for group in opened:
            group.file.close()


def _refuse_links(file: Path, group: Any, names: Sequence[str]) -> None:
    """Refuse pictures that two writers have by a link within a file."""
    from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]

    owners: dict[tuple[int, int], str] = {}
    for name in names:
        try:
            facts = h5o.get_info(group[name]["pixels"].id)
        except Exception:  # reading reports it
            continue
        other = owners.setdefault((facts.fileno, facts.addr), name)
        if other != name:
            refuse_shared(f"{file} {other} (user {other!r})", f"{file} {name} (user {name!r})")


def emnist_leaf(
    path: Path | str | Sequence[Path | str],
    classes: Sequence[int] | None = None,
    *,
    invert: bool = False,
    store: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """LEAF's FEMNIST; one JSON file at a time is parsed.

    Args:
        path: the folder that holds `train/*.json` and `test/*.json` (or `*.json`), or the files themselves.
        classes, invert, store, progress: as in `emnist_tff`.

    Returns:
        one user a writer, sorted by name; the parts of a writer in the order of the files, train before test.

    Raises:
        InputError: no such files, or files of another layout.
    """
    files = _files(path, "train/*.json", "test/*.json", "*.json")
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for file in files:
        for name, data in _leaf(file).items():
            try:
                pixels, labels = np.asarray(data["x"], np.float32), np.asarray(data["y"], np.float64)
            except (KeyError, TypeError, ValueError, OverflowError):
                raise InputError(f"writer {name} in {file} has no x and y of numbers") from None
            parts.setdefault(name, []).append((_bytes(pixels, name, invert), _labels(labels, name)))

    def writers() -> Writers:
        for name in sorted(parts):
            images, labels = zip(*parts.pop(name), strict=True)
            yield name, np.concatenate(images), np.concatenate(labels)

    return _collect(writers(), len(parts), files, classes, store, progress)


def _collect(
    writers: Writers,
    count: int,
    files: Sequence[Path],
    classes: Sequence[int] | None,
    store: Path | str | None,
    progress: Callable[[int, int], None] | None,
) -> UserDataset:
    names = CLASSES[:10] if "digitsonly" in files[0].name else CLASSES

    def checked() -> Writers:
        for done, (name, images, labels) in enumerate(writers, 1):
            if len(images) != len(labels):
                raise InputError(f"writer {name} has {len(images)} images and {len(labels)} labels")
            if len(labels) and not (labels.min() >= 0 and labels.max() < len(names)):
                raise InputError(f"writer {name} has a label outside of 0 … {len(names) - 1}")
            if progress is not None:
                progress(done, count)
            yield name, images, labels

    shape = (_SIDE, _SIDE, 1)
    if store is not None:
        dataset = write_users(checked(), store, shape, np.dtype(np.uint8), label_names=list(names))
    else:
        dataset = _in_memory(checked(), names, files[0])
    return dataset if classes is None else dataset.select_classes(classes)


def _in_memory(writers: Writers, names: str, file: Path) -> UserDataset:
    parts = [(name, own, numbers) for name, own, numbers in writers if len(own)]
    if not parts:
        raise InputError(f"{file.parent} has no users: the files hold no writer with examples")
    users, images, labels = zip(*parts, strict=True)
    owners = np.repeat(np.array(users), [len(own) for own in images])
    return from_arrays(np.concatenate(images), np.concatenate(labels), owners, label_names=list(names))


def _bytes(pixels: np.ndarray, writer: str, invert: bool) -> np.ndarray:
    """Numbers in [0, 1] as uint8 [n, 28, 28, 1]."""
    if pixels.ndim == 0 or pixels.dtype.kind not in "biuf":
        raise InputError(f"writer {writer} has pixels that are no numbers [n, 28, 28] or [n, 784]")
    if pixels.size % (_SIDE * _SIDE) or (pixels.size and pixels.shape[0] * _SIDE * _SIDE != pixels.size):
        raise InputError(f"writer {writer} has pixels of shape {pixels.shape}, should be [n, 28, 28] or [n, 784]")
    if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):  # NaN fails too
        raise InputError(f"writer {writer} has pixels outside of [0, 1]: these are not EMNIST's numbers")
    images = np.rint(pixels.astype(np.float32) * 255).astype(np.uint8).reshape(-1, _SIDE, _SIDE, 1)
    return 255 - images if invert else images


def _labels(labels: np.ndarray, writer: str) -> np.ndarray:
    """Class numbers as int64 [n]."""
    if labels.dtype.kind not in "iuf" or not (np.isfinite(labels) & (labels == np.rint(labels))).all():
        raise InputError(f"writer {writer} has labels that are not whole numbers")
    return np.clip(labels, -1, 1 << 30).astype(np.int64).reshape(-1)


def _leaf(file: Path) -> dict[str, Any]:
    try:
        data = read_json(file)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{file} is not a LEAF file: it cannot be read as JSON: {reason}") from None
    users = data.get("user_data") if isinstance(data, dict) else None
    if not isinstance(users, dict):
        raise InputError(f'{file} is not a LEAF file: it has no "user_data"')
    listed = data.get("users")
    if isinstance(listed, list):
        refuse_twice(map(str, listed), "user", lambda place: f'{file} "users" {place}')
    return users


def _files(path: Path | str | Sequence[Path | str], *patterns: str) -> list[Path]:
    """The files in the order of the patterns, each pattern's sorted."""
    if not isinstance(path, Path | str):
        files = [Path(file) for file in path]
    elif Path(path).is_dir():
        files = [file for pattern in patterns for file in sorted(Path(path).glob(pattern))]
    else:
        files = [Path(path)]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None or not files:
        raise InputError(f"there is no file {missing or Path(str(path)) / patterns[0]}; give the folder or the files")
    refuse_same_files(files)
    return files


_OPTIONS = ("classes", "invert", "store", "progress")


def _holds(source: object, ending: str, *patterns: str) -> bool:
    """Whether a source is a file, several files or a folder of this format."""
    if isinstance(source, list | tuple):
        return all(isinstance(each, str | Path) and Path(each).suffix == ending for each in source)
    return isinstance(source, Path) and (
        source.suffix == ending or any(any(source.glob(pattern)) for pattern in patterns)
    )


TFF = Reader(
    name="federated EMNIST (.h5)",
    recognises=lambda source, options: (
        isinstance(source, Path) and (source.suffix == ".h5" or any(source.glob("fed_emnist*.h5")))
    ),
    read=lambda source, options: emnist_tff(source, **some(options, *_OPTIONS)),
    endings=(".h5",),
    options=frozenset({"size", "channels", "classes", "invert"}),
)
LEAF = Reader(
    name="federated EMNIST (LEAF)",
    recognises=lambda source, options: _holds(source, ".json", "train/*.json", "*.json"),
    read=lambda source, options: emnist_leaf(source, **some(options, *_OPTIONS)),
    endings=(".json",),
    options=TFF.options,
)
