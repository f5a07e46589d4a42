"""What makes a folder a store: a sealed description, sizes, and digests that show any change of what was packed.

    examples.arrow  a row an example: user, target, inputs
    users.arrow     a row a user: name, where the user's rows start, how many there are; absent without users
    classes.arrow   a row a class: name, group; absent without either
    names.arrow     a row an example: its name, such as the path of its picture; absent without
    pictures.bin    bytes of pictures that are kept encoded (`encoded.py`); absent without
    items.arrow     a row for each item that inputs name by its number; absent without items
    skipped.jsonl   the files that packing left out, with the reason
    store.json      format, version, columns, counts, size of each file, digests, and a seal over all of it
    verified.json   size, times and inode of examples.arrow when its digest was last known to be right

A store is written next to its place and renamed when it is whole, so a folder of that name is a finished store or none.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._files import read_json, sibling, write_json

FORMAT = "sfumato store"
VERSION = 2
_ENCODED = (
    3  # the version of a store whose examples refer to encoded pictures, which readers of 2 would take for inputs
)
EXAMPLES, USERS, CLASSES, ITEMS = "examples.arrow", "users.arrow", "classes.arrow", "items.arrow"
NAMES, PICTURES = "names.arrow", "pictures.bin"
_FACTS, _VERIFIED = "store.json", "verified.json"
_OLD = "examples.json"  # of folders of .npy files, as examples were once written
_CHUNK = 1 << 22  # bytes read at a time for a digest
_THREADS = 8


def is_store(path: Path) -> bool:
    """Whether a folder is, was, or was going to be, a store."""
    return any((path / name).exists() for name in (_FACTS, "state.json", _OLD)) or partial_folder(path).exists()


def partial_folder(path: Path) -> Path:
    """Where a store is written until it is whole."""
    return sibling(path, after=".partial")


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    """Seal and write the description of a store."""
    version = _ENCODED if "encoded" in facts else VERSION
    write_json(path / _FACTS, {**facts, "format": FORMAT, "version": version, "sha256": seal(facts)})


def seal(facts: dict[str, Any]) -> str:
    """SHA-256 of what store.json says, which makes an edited line visible."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_facts(path: Path) -> dict[str, Any]:
    """The description of a finished store whose files are there, of the right size, with an index as it was written.

    Raises:
        InputError: there is no store, or it is unfinished, truncated, changed, or of another version.
    """
    file = path / _FACTS
    if not file.exists():
        unfinished = path if (path / "state.json").exists() else partial_folder(path)
        if unfinished.exists():
            raise InputError(f"the store {path} is not finished; run the same pack command again to finish it")
        if (path / _OLD).exists():
            raise InputError(f"{path} was written by an older sfumato, as .npy files; write it again from its source")
        if not path.exists():
            raise InputError(f"there is no store at {path}; make one with: sfumato data pack FOLDER {path}")
        raise InputError(f"{path} is not a store: it has no {_FACTS}; pack a folder of pictures into one")
    try:
        facts = read_json(file)
    except (OSError, ValueError):
        raise InputError(f"{file} cannot be read as JSON: the store is damaged; pack it again") from None
    if not isinstance(facts, dict) or facts.pop("format", None) != FORMAT:
        raise InputError(f"{file} does not describe a store of sfumato; pack the pictures again")
    version = facts.pop("version", None)
    if version not in (VERSION, _ENCODED):
        raise InputError(
            f"the store {path} has format version {str(version)[:20]}, this sfumato reads {VERSION} and {_ENCODED}; "
            "pack it again or use the sfumato that wrote it"
        )
    if facts.pop("sha256", None) != seal(facts):
        raise InputError(f"{file} was changed after packing; pack the store again")
    for name, size in facts["files"].items():
        held = path / name
        found = held.stat().st_size if held.is_file() else None
        if found is None:
            raise InputError(f"the store {path} has lost {name}; pack it again")
        if found != size:
            raise InputError(f"{held} has {found:,} bytes, should have {size:,}: the store is damaged; pack it again")
    named = NAMES in facts["files"]
    if index_digest(path) != facts["index_sha256"] or (named and file_digest(path / NAMES) != facts["names_sha256"]):
        raise InputError(f"the index of the store {path} was changed after packing; pack it again")
    return facts


def index_digest(path: Path) -> str:
    """SHA-256 of the tables of users, classes and items, each preceded by its name and length."""
    digest = hashlib.sha256()
    for name in (USERS, CLASSES, ITEMS):
        file = path / name
        if file.exists():
            digest.update(f"{name}:{file.stat().st_size};".encode())
            with open(file, "rb") as content:
                while chunk := content.read(_CHUNK):
                    digest.update(chunk)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def chained(before: bytes, piece: Any) -> bytes:
    """The content digest after one more piece of the file: a chain, so that packing can stop and go on anywhere.

    Args:
        before: the digest of the pieces so far, 32 bytes; zeros at the start.
        piece: the bytes that come next.
    """
    return hashlib.sha256(before + hashlib.sha256(piece).digest()).digest()


def content_digest(content: np.ndarray, ends: np.ndarray) -> str:
    """The chained digest of a mapped file, in hexadecimal.

    Args:
        content: uint8 [bytes].
        ends: int64, where each piece ends.
    """

    def piece_digest(piece: tuple[int, int]) -> bytes:
        return hashlib.sha256(content[piece[0] : piece[1]].data).digest()

    chain = bytes(32)
    pieces = zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        for digest in pool.map(piece_digest, pieces):
            chain = hashlib.sha256(chain + digest).digest()
    return chain.hex()


def looks_of(path: Path, content_sha256: str) -> dict[str, Any]:
    """What a change of the examples changes too: the time of the last change of an inode cannot be set back."""
    looks = {}
    for name in (EXAMPLES, PICTURES):
        if (path / name).exists():
            found = os.stat(path / name)
            looks[name] = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
    return {"content_sha256": content_sha256, "files": looks}


def note_verified(path: Path, looks: dict[str, Any]) -> None:
    """Write down how files looked whose digest is right; if that cannot be, they are read again next time."""
    with contextlib.suppress(OSError):
        write_json(path / _VERIFIED, looks)


def verified_digest(path: Path, facts: dict[str, Any], holds: Callable[[], bool], anew: bool) -> str:
    """The digest that packing computed. All is read again only where the file looks different from when it was read.

    So a copied store is read once, and one whose bytes were changed is refused. What no look shows is a change by
    somebody who writes to the disk below the file system, or sets the clock back.

    Args:
        path: the store.
        facts: its description.
        holds: reads all, and says whether it is what was packed.
        anew: read it in any case.

    Raises:
        InputError: it does not hold any more what was packed.
    """
    known = None
    with contextlib.suppress(OSError, ValueError):
        known = read_json(path / _VERIFIED)
    looks = looks_of(path, facts["content_sha256"])  # before it is read: a change in the meantime shows next time
    if anew or known != looks:
        if not holds():
            raise InputError(f"inputs or targets of the store {path} were changed after packing; pack it again")
        note_verified(path, looks)
    return facts["content_sha256"] + facts["index_sha256"]
