"""A damaged file is read, or refused in one line: never a traceback, never memory that it does not hold.

Each reader gets some hundred damages of a good file: bits flipped, bytes overwritten, pieces cut out, doubled or
inserted, the end cut off; half of them where headers and directories are.
"""

import gzip
import io
import json
import os
import resource
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from sfumato._check import InputError
from sfumato.data import open_examples, open_users, split_users, write_examples, write_store
from sfumato.data.examples import ExampleDataset
from sfumato.data.readers.arrays import read_idx
from sfumato.data.users import UserDataset, from_arrays
from sfumato.models.weights import read_tensors
from slow import slow_but

TRIES = slow_but([30, 150], 30)  # damages a reader
MEMORY = 1 << 29  # bytes that all of them together may take beyond what was there before


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with one damage."""
    end = len(content)
    edge = int(rng.integers(0, min(end, 400)))
    at = int(rng.choice([edge, end - 1 - edge, rng.integers(0, end), rng.integers(0, end)]))
    size = int(rng.integers(1, 9))
    some = rng.integers(0, 256, size, np.uint8).tobytes()
    match int(rng.integers(0, 7)):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes([content[at] ^ 1 << int(rng.integers(0, 8))]) + content[at + 1 :]
        case 2:
            return content[:at] + some + content[at + size :]
        case 3:
            return content[:at] + bytes([int(rng.choice([0, 255]))]) * size + content[at + size :]
        case 4:
            return content[:at] + content[at + size :]
        case 5:
            return content[:at] + some + content[at:]
        case _:
            return content[:at] + content[at : at + 8 * size] + content[at:]


def _use(data: UserDataset | ExampleDataset) -> None:
    """All that a run asks of its data."""
    data.fingerprint()
    data.summary()
    if isinstance(data, UserDataset):
        assert len(list(data.user_ids)) == len(data)
        data.classes_present()
        for user in range(len(data)):
            data.examples(user)
    else:
        list(data.batches(16))


RNG = np.random.default_rng(7)
IMAGES = RNG.integers(0, 256, (12, 6, 6), np.uint8)
LABELS = np.arange(12) % 3
OWNERS = np.array([f"ü{i % 4}" for i in range(12)])


def _npz(folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", images=IMAGES, labels=LABELS, users=OWNERS)
    return folder / "x.npz"


def _npz_of_bytes(folder: Path) -> Path:
    owners, names = np.char.encode(OWNERS, "utf-8"), np.array(["0", "1", "2"])
    np.savez(folder / "x.npz", inputs=IMAGES[..., 0] / 3, labels=LABELS.astype("S"), users=owners, label_names=names)
    return folder / "x.npz"


def _npz_of_examples(folder: Path) -> Path:
    np.savez(folder / "x.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:3], y_test=LABELS[:3])
    return folder / "x.npz"


def _npy(folder: Path) -> Path:
    np.save(folder / "x.npy", IMAGES / 3)
    np.save(folder / "y.npy", LABELS)
    return folder


def _omniglot(folder: Path) -> Path:
    np.savez(
        folder / "x.npz", images=IMAGES, character=LABELS + 5, alphabet=LABELS // 2, drawer=np.arange(12),
        alphabet_names=np.array(["Greek", "Latin"]),
    )  # fmt: skip
    return folder / "x.npz"


def _idx(folder: Path) -> Path:
    for name, array in (("images-idx3", IMAGES), ("labels-idx1", LABELS.astype(np.uint8))):
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        (folder / f"train-{name}-ubyte").write_bytes(head + array.tobytes())
    return folder


def _idx_gz(folder: Path) -> Path:
    for file in list(_idx(folder).iterdir()):
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    return folder


def _h5(folder: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "fed_emnist_train.h5", "w") as file:
        for writer in range(3):
            group = file.create_group(f"examples/f{writer:04}")
            group["pixels"] = RNG.random((2, 28, 28), np.float32)
            group["label"] = np.array([1, 40], np.int32)
    return folder


def _leaf(folder: Path) -> Path:
    one = {"x": [[0.5] * 784, [0.25] * 784], "y": [3, 4.0]}
    (folder / "all.json").write_text(json.dumps({"users": ["a", "b"], "user_data": {"a": one, "b": one}}))
    return folder


def _store(folder: Path) -> Path:
    people = from_arrays(IMAGES, LABELS, OWNERS, label_names=["a", "b", "c"], label_groups=["g", "g", "h"])
    write_store(people, folder / "s")
    return folder / "s"


def _example_store(folder: Path) -> Path:
    write_examples(open_examples(_npz_of_examples(folder)), folder / "s")
    (folder / "x.npz").unlink()
    return folder / "s"


def _texts(folder: Path) -> Path:
    rows = [f'"{label}","some words, and “more” of them"' for label in LABELS]
    (folder / "x.csv").write_text("label,text\n" + "\n".join(rows))
    return folder / "x.csv"


def _texts_gz(folder: Path) -> Path:
    plain = _texts(folder)
    (folder / "x.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return folder / "x.csv.gz"


def _pictures(suffix: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for user in range(3):
            (folder / f"u{user}").mkdir()
            Image.fromarray(IMAGES[user]).resize((24, 24)).save(folder / f"u{user}" / f"0{suffix}")
        return folder

    return write


READERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], UserDataset | ExampleDataset]]] = {
    "npz of users": (_npz, open_users),
    "npz of bytes": (_npz_of_bytes, open_users),
    "npz of examples": (_npz_of_examples, open_examples),
    "npy": (_npy, open_examples),
    "Omniglot": (_omniglot, open_users),
    "idx": (_idx, open_examples),
    "idx.gz": (_idx_gz, open_examples),
    "HDF5": (_h5, open_users),
    "LEAF": (_leaf, open_users),
    "store": (_store, open_users),
    "store of examples": (_example_store, open_examples),
    "texts": (_texts, open_examples),
    "texts.gz": (_texts_gz, open_examples),
    **{suffix: (_pictures(suffix), open_users) for suffix in (".png", ".jpg", ".bmp", ".gif", ".pgm", ".tif", ".webp")},
}


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(reader: str, tries: int, tmp_path: Path) -> None:
    write, read = READERS[reader]
    place = write(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _use(read(place))
        rng = np.random.default_rng(sum(map(ord, reader)))
        files = sorted(file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size)
        good = {file: file.read_bytes() for file in files}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        refused = longer = 0
        for tried in range(1, tries + 1):
            file = files[int(rng.integers(len(files)))]
            bad = damaged(good[file], rng)
            file.write_bytes(bad)
            try:
                _use(read(place))
            except InputError as refusal:
                refused += 1
                longer += "\n" in str(refusal)
            except Exception as error:
                raise AssertionError(f"{reader}: damage {tried} of {file.name} gave a traceback") from error
            file.write_bytes(good[file])
        _use(read(place))
    assert longer == 0
    assert refused > tries // 10
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY


def test_an_npz_that_unpacks_to_a_thousand_times_its_size_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    header = io.BytesIO()
    shape = {"descr": "|u1", "fortran_order": False, "shape": (1 << 20, 1 << 9)}  # half a gigabyte
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        with packed.open("images.npy", "w") as entry:
            entry.write(header.getvalue())
            for _ in range(1 << 9):
                entry.write(bytes(1 << 20))
        for name in ("users.npy", "labels.npy"):
            packed.writestr(name, b"")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (open_users, open_examples):
        with pytest.raises(InputError, match=r"declares 0\.5 GB in a file of 0\.5 MB, above 256 MiB"):
            read(file)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 1 << 26


def test_a_gzipped_idx_gives_no_more_than_it_declares(tmp_path: Path) -> None:
    head = bytes([0, 0, 8, 1]) + np.array([10], ">u4").tobytes()
    (tmp_path / "long.gz").write_bytes(gzip.compress(head + bytes(1 << 24)))
    with pytest.raises(InputError, match="10 need 10"):
        read_idx(tmp_path / "long.gz")
    head = bytes([0, 0, 8, 2]) + np.array([1 << 20, 1 << 10], ">u4").tobytes()
    (tmp_path / "large.gz").write_bytes(gzip.compress(head))
    with pytest.raises(InputError, match=r"declares 1\.1 GB"):
        read_idx(tmp_path / "large.gz")


@pytest.mark.parametrize("pack_it", [np.savez, np.savez_compressed])
def test_an_npz_whose_checksum_is_wrong_is_refused(pack_it: Callable, tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    pack_it(file, images=IMAGES, users=OWNERS)
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as packed:
        at = packed.getinfo("images.npy").header_offset + 14  # where the local header keeps the CRC-32
        directory = packed.start_dir + 16
    for place in (at, directory):
        content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.npz cannot be read as npz: Bad CRC-32"):
        open_users(file)


def _png(width: int, height: int) -> bytes:
    """The header of a picture of any size, and nothing in it."""
    small = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(small, "PNG")
    head = b"IHDR" + struct.pack(">II", width, height) + small.getvalue()[24:29]
    return small.getvalue()[:12] + head + struct.pack(">I", zlib.crc32(head)) + small.getvalue()[33:]


@pytest.mark.parametrize("side", [10_000, 60_000])  # beyond Pillow's limit once, where it only warns, and by far
def test_a_picture_of_too_many_pixels_is_one_line_and_can_be_skipped(side: int, tmp_path: Path, recwarn) -> None:
    _pictures(".png")(tmp_path)
    (tmp_path / "u1" / "bomb.png").write_bytes(_png(side, side))
    for read in (open_users, open_examples):
        with pytest.raises(InputError, match=r"u1/bomb\.png has more pixels than Pillow's limit of 89,478,485"):
            read(tmp_path)
        assert read(tmp_path, on_error="skip").notes
    assert not recwarn


@pytest.mark.parametrize("labels", [[float("nan"), 1], [1.5, 1], ["a", 1], [1e300, 1], [[1], [2, 3]], [None, 1]])
def test_labels_that_are_no_classes_are_refused(labels: list, tmp_path: Path) -> None:
    people = {"a": {"x": [[0.5] * 784] * 2, "y": labels}}
    (tmp_path / "all.json").write_text(json.dumps({"users": ["a"], "user_data": people}))
    with pytest.raises(InputError, match="writer a"):
        open_users(tmp_path)


@pytest.mark.parametrize("labels", [[np.nan, 1.0], [1 << 40, 0], [np.uint64((1 << 64) - 1)] * 2])
def test_labels_of_arrays_that_are_no_classes_are_refused(labels: list, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=IMAGES[:2], users=np.arange(2), labels=np.array(labels))
    with pytest.raises(InputError, match="labels must be"):
        open_users(tmp_path / "x.npz")


def test_the_folder_that_one_stands_in_is_a_path_like_any_other(tmp_path: Path, monkeypatch) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    _pictures(".png")(photos)
    monkeypatch.chdir(photos)
    whole = open_users(photos).fingerprint()
    assert open_users(".").fingerprint() == whole
    assert open_examples(".").fingerprint() == open_examples(photos).fingerprint()
    open_users(".", store="../store", size=24)
    monkeypatch.chdir(tmp_path / "store")
    assert open_users(".").fingerprint() == open_users(tmp_path / "store").fingerprint()
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    with pytest.raises(InputError, match=r"\. is none of"):
        open_users(".")
    for write in (lambda: open_users(photos, store=".", size=24), lambda: write_examples(open_examples(photos), ".")):
        with pytest.raises(InputError, match="the folder you are in"):
            write()
    (tmp_path / "other.partial").mkdir()
    with pytest.raises(InputError, match="not finished"):
        open_users(tmp_path / "other")


def test_file_names_that_are_not_utf8_go_through_everything_and_names_of_users_are_refused(tmp_path: Path) -> None:
    root = os.fsdecode(os.fsencode(tmp_path) + b"/ph\xffotos")
    os.mkdir(root)
    _pictures(".png")(Path(root))
    for file in sorted(Path(root, "u1").iterdir()):
        os.rename(file, os.fsencode(file.parent) + b"/\xfe" + os.fsencode(file.name))
    people = open_users(root)
    store = os.fsdecode(os.fsencode(tmp_path) + b"/st\xffore")
    packed = open_users(root, store=store, size=24)
    for data in (people, packed, open_users(store)):
        _use(data)
        assert sum(map(len, split_users(data, test=0.4, seed=1))) == 3
    _use(open_examples(root))
    with pytest.raises(InputError, match="there is nothing at") as refusal:
        open_users(root + "none")
    assert "\n" not in str(refusal.value)
    os.rename(os.path.join(root, "u1"), os.fsencode(root) + b"/\xfe\xff")
    for read in (open_users, lambda path: open_users(path, store=tmp_path / "other", size=24)):
        with pytest.raises(InputError, match=r"the name of the user '.*' is no valid UTF-8"):
            read(root)


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("kind", [".pt", "old.pt", ".safetensors"])
def test_damaged_weights_are_read_or_refused_in_one_line(kind: str, tries: int, tmp_path: Path) -> None:
    file = tmp_path / f"weights{kind}"
    weights = {"layer.weight": torch.arange(60.0).reshape(6, 10), "layer.bias": torch.ones(6)}
    if kind == ".safetensors":
        save_file(weights, file)
    else:
        torch.save(weights, file, _use_new_zipfile_serialization=kind == ".pt")
    good, rng, refused = file.read_bytes(), np.random.default_rng(3), 0
    for tried in range(1, tries + 1):
        file.write_bytes(damaged(good, rng))
        try:
            read_tensors(file)
        except InputError as refusal:
            refused += "\n" not in str(refusal)
        except Exception as error:
            raise AssertionError(f"damage {tried} gave a traceback") from error
    assert refused > tries // 10
