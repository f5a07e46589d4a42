"""A data set in a folder of flat files that are mapped into memory: 10⁶ users open in well under two seconds.

    inputs.bin     the inputs, user after user, no header; shape and type are in store.json
    labels.bin     int64, one an input
    offsets.bin    int64, where each user starts, and the end
    users.bin, users.offsets.bin        the users' names: UTF-8 and where each starts
    classes.bin, classes.offsets.bin    the classes' names; absent without names
    groups.bin, groups.offsets.bin      the classes' groups; absent without groups
    skipped.jsonl  the files that packing left out, with the reason
    store.json     format, version, shape, dtype, counts, size of each file, digests
    verified.json  size, times and inode of inputs and labels when their digest was last known to be right

Nothing is read at the start but the index (offsets and names), to check its SHA-256; pages of the rest are
loaded when a user is asked for. All numbers are little-endian. A store is written beside its place and
renamed when it is whole, so a folder of that name is a finished store or none.
"""

import contextlib
import hashlib
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._files import beside, read_json, write_json
from sfumato.data.strings import Strings
from sfumato.data.users.dataset import UserDataset

FORMAT = "sfumato store"
VERSION = 1
INDEX = ("offsets", "users", "users.offsets", "classes", "classes.offsets", "groups", "groups.offsets")
VERIFIED = "verified.json"
_CHUNK = 1 << 22  # bytes read at a time for a digest


def open_store(path: Path | str, verify: bool = False) -> UserDataset:
    """Open a packed store.

    Args:
        path: the store's folder.
        verify: read every input and label too and compare the digest (as long as reading the whole store
            takes).

    Raises:
        InputError: there is no store, or it is unfinished, truncated, changed, or of a newer version.
    """
    path = Path(path)
    facts = _facts(path)
    for name, size in facts["files"].items():
        file = path / name
        found = file.stat().st_size if file.is_file() else None
        if found is None:
            raise InputError(f"the store {path} has lost {name}; pack it again")
        if found != size:
            raise InputError(f"{file} has {found:,} bytes, should have {size:,}: the store is damaged; pack it again")
    if index_digest(path) != facts["index_sha256"]:
        raise InputError(f"the index of the store {path} was changed after packing; pack it again")
    dataset = UserDataset(
        inputs=_map(path / "inputs.bin", facts["dtype"], (facts["examples"], *facts["shape"])),
        labels=_map(path / "labels.bin", "<i8", (facts["examples"],)),
        offsets=_map(path / "offsets.bin", "<i8", (facts["users"] + 1,)),
        names=_strings(path, "users") or Strings.from_list([]),
        num_classes=facts["classes"],
        label_names=_strings(path, "classes"),
        label_groups=_strings(path, "groups"),
        notes=tuple(facts["notes"]),
    )
    if verify:
        _verify(path, facts, dataset)
    return replace(dataset, contents=partial(_verified_digest, path, facts, dataset))


def is_store(path: Path) -> bool:
    """Whether a folder is, or was going to be, a store."""
    return (path / "store.json").exists() or (path / "state.json").exists() or partial_folder(path).exists()


def partial_folder(path: Path) -> Path:
    """Where a store is written until it is whole."""
    return beside(path, after=".partial")


def index_digest(path: Path) -> str:
    """SHA-256 of the index files, each preceded by its name and length."""
    digest = hashlib.sha256()
    for name in INDEX:
        file = path / f"{name}.bin"
        if file.exists():
            digest.update(f"{name}:{file.stat().st_size};".encode())
            with open(file, "rb") as content:
                while chunk := content.read(_CHUNK):
                    digest.update(chunk)
    return digest.hexdigest()


def chained(before: bytes, name: str, inputs: bytes, labels: bytes) -> bytes:
    """The content digest after one more user: a chain, so that packing can stop and go on anywhere.

    Args:
        before: the digest of the users so far, 32 bytes; zeros at the start.
        name: the user's name.
        inputs: SHA-256 of the user's inputs.
        labels: SHA-256 of the user's labels.
    """
    return hashlib.sha256(before + inputs + labels + name.encode("utf-8", "surrogateescape")).digest()


def content_digest(dataset: UserDataset) -> str:
    """The chained digest of all inputs, labels and names, in hexadecimal."""
    chain = bytes(32)
    for user, name in enumerate(dataset.user_ids):
        inputs, labels = dataset.examples(user)
        own = hashlib.sha256(np.ascontiguousarray(inputs).data), hashlib.sha256(labels.astype("<i8").data)
        chain = chained(chain, name, own[0].digest(), own[1].digest())
    return chain.hex()


def note_verified(path: Path, looks: dict[str, Any]) -> None:
    """Write down how files looked whose digest is right; if that cannot be, they are read again next time."""
    with contextlib.suppress(OSError):
        write_json(path / VERIFIED, looks)


def looks_of(path: Path, content_sha256: str) -> dict[str, Any]:
    """What a change of inputs or labels changes too: the time of the last change of an inode cannot be set back."""
    found = {name: os.stat(path / name) for name in ("inputs.bin", "labels.bin")}
    return {
        "content_sha256": content_sha256,
        "files": {name: [f.st_size, f.st_mtime_ns, f.st_ctime_ns, f.st_ino] for name, f in found.items()},
    }


def _verified_digest(path: Path, facts: dict[str, Any], dataset: UserDataset) -> str:
    """The digest that packing computed. All is read again only where the files look different from when they were read.

    So a copied store is read once, and one whose bytes were changed is refused. What no look shows is a change by
    somebody who writes to the disk below the file system, or sets the clock back.
    """
    known = None
    with contextlib.suppress(OSError, ValueError):
        known = read_json(path / VERIFIED)
    if known != looks_of(path, facts["content_sha256"]):
        _verify(path, facts, dataset)
    return facts["content_sha256"] + facts["index_sha256"]


def _verify(path: Path, facts: dict[str, Any], dataset: UserDataset) -> None:
    looks = looks_of(path, facts["content_sha256"])  # before they are read: a change in the meantime shows next time
    if content_digest(dataset) != facts["content_sha256"]:
        raise InputError(f"inputs or labels of the store {path} were changed after packing; pack it again")
    note_verified(path, looks)


def seal(facts: dict[str, Any]) -> str:
    """SHA-256 of the facts in store.json, which makes an edited line visible."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _facts(path: Path) -> dict[str, Any]:
    file = path / "store.json"
    if not file.exists():
        unfinished = path if (path / "state.json").exists() else partial_folder(path)
        if unfinished.exists():
            raise InputError(f"the store {path} is not finished; run the same pack command again to finish it")
        if not path.exists():
            raise InputError(f"there is no store at {path}; make one with: sfumato data pack FOLDER {path}")
        raise InputError(f"{path} is not a store: it has no store.json; pack a folder of pictures into one")
    try:
        facts = json.loads(file.read_text())
    except (OSError, ValueError):
        raise InputError(f"{file} cannot be read as JSON: the store is damaged; pack it again") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"{file} does not describe a store of sfumato; pack the pictures again")
    if facts.get("version") != VERSION:
        raise InputError(
            f"the store {path} has format version {facts.get('version')}, this sfumato reads {VERSION}; "
            "pack it again or use the sfumato that wrote it"
        )
    sealed = facts.pop("sha256", None)
    if sealed != seal(facts):
        raise InputError(f"{file} was changed after packing; pack the store again")
    return facts


def _map(file: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if 0 in shape or file.stat().st_size == 0:
        return np.zeros(shape, np.dtype(dtype))
    return np.memmap(file, np.dtype(dtype), "r", shape=shape)


def _strings(path: Path, name: str) -> Strings | None:
    content, offsets = path / f"{name}.bin", path / f"{name}.offsets.bin"
    if not offsets.exists():
        return None
    count = offsets.stat().st_size // 8
    return Strings(_map(content, "u1", (content.stat().st_size,)), _map(offsets, "<i8", (count,)))
