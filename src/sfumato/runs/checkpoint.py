"""Checkpoints: one file that is whole or absent, checked before it is believed.

`checkpoint/state.safetensors` holds tensors (parameters, an optimiser's state) and, as its header, the position in
the ledger and the metrics, the fingerprint of the plan and the data, and state of the training loop. A digest over all
of it detects a file that was cut short or changed. `checkpoint/frozen.safetensors` holds what is not trained, and
`checkpoint/release-NAME.safetensors` what was released before; they carry a digest, too. `checkpoint/key` is the secret
key of the run's randomness; who has it can take the noise away again, so it is deleted when the run ends. All of it is
readable by its owner only. No pickle is read or written.
"""

import hashlib
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sfumato._check import InputError
from sfumato._files import delete, parse_json, write_atomic
from sfumato._random import RandomSource

STATE, FROZEN, KEY = "state.safetensors", "frozen.safetensors", "key"
_RELEASED = "released"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run between two releases.

    Attributes:
        ledger_entries: entries of the ledger at this point.
        ledger_head: hash of the ledger's last entry.
        metrics_lines: lines of metrics.jsonl at this point.
        fingerprint: digest of the plan, the shapes of the parameters and the data.
        complete: whether nothing is left to release.
        closed: whether the run was ended before all of it was released, so that it cannot go on.
        phases: names of the releases whose results are stored next to this file.
        tensors: parameters and states.
        state: JSON of the training loop; {} before it has started.
    """

    ledger_entries: int
    ledger_head: str
    metrics_lines: int
    fingerprint: str
    complete: bool = False
    closed: bool = False
    phases: tuple[str, ...] = ()
    tensors: dict[str, Tensor] = field(default_factory=dict, repr=False)
    state: dict[str, Any] = field(default_factory=dict)


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint in `folder`.

    Raises:
        OSError: it could not be written (a full disk, say); the one before is intact.
    """
    plain = {f.name: getattr(checkpoint, f.name) for f in fields(checkpoint) if f.name != "tensors"}
    _write(folder / STATE, checkpoint.tensors, json.dumps(plain, sort_keys=True))


def load(folder: Path) -> Checkpoint:
    """Read and check the checkpoint in `folder`.

    Raises:
        InputError: there is none, or it was truncated or changed.
    """
    tensors, header = read_tensors(folder / STATE)
    try:
        plain = parse_json(header.encode())
    except ValueError:
        plain = None
    known = {f.name for f in fields(Checkpoint)} - {"tensors"}
    if not isinstance(plain, dict) or plain.keys() != known:
        raise InputError(f"{folder / STATE} was written by another version of sfumato; end the run with that version")
    return Checkpoint(tensors=tensors, **{**plain, "phases": tuple(plain["phases"])})


def save_frozen(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write what the run does not train."""
    _write(folder / FROZEN, tensors, "not trained")


def load_frozen(folder: Path) -> dict[str, Tensor]:
    """What the run does not train."""
    return read_tensors(folder / FROZEN)[0]


def save_release(folder: Path, phase: str, tensors: dict[str, Tensor]) -> None:
    """Write what a phase has released.

    Raises:
        InputError: it was drawn before as something else. That may have been seen, and has the same noise.
    """
    path = _release_file(folder, phase)
    if path.exists() and digest(_RELEASED, read_tensors(path)[0]) != digest(_RELEASED, _plain(tensors)):
        raise InputError(
            f"{phase} was drawn before this run died and differs now ({path}), which would reveal records; "
            "make it as it was, or start a new run"
        )
    _write(path, tensors, _RELEASED)


def load_release(folder: Path, phase: str) -> dict[str, Tensor]:
    """What a phase has released."""
    return read_tensors(_release_file(folder, phase))[0]


def write_key(folder: Path, source: RandomSource) -> None:
    """Keep the key of a released run, for its owner's eyes only; a seeded run's key follows from its seed."""
    if source.kind == "os":
        write_atomic(folder / KEY, source.key, private=True)


def keeps_key(folder: Path, saved: Checkpoint) -> bool:
    """Whether a run that goes on needs its key: one that is complete has none any more, and nothing left to draw.

    A loop that is complete is not yet a run that is: until the key is deleted, a release after it can still come.
    """
    return (folder / KEY).exists() or not saved.complete


def read_key(folder: Path) -> RandomSource:
    """The key of a released run that goes on."""
    try:
        key = (folder / KEY).read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"{folder / KEY} is missing: without the run's key its noise cannot be repeated; start a new run"
        ) from None
    if len(key) != 32:
        raise InputError(f"{folder / KEY} has {len(key)} bytes, not 32: it was cut short; start a new run")
    return RandomSource(key, "os")


def delete_key(folder: Path) -> None:
    """Forget the key of a finished run."""
    delete(folder / KEY)


def names(folder: Path) -> set[str]:
    """The files that a checkpoint consists of."""
    return {STATE, FROZEN, KEY, *(path.name for path in folder.glob("release-*.safetensors"))}


def read_tensors(path: Path) -> tuple[dict[str, Tensor], str]:
    """Tensors and header of a file of the checkpoint, copied into memory and checked.

    Raises:
        InputError: there is none, or it was truncated or changed.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist: nothing to resume; start the run without resume")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        header = metadata.get("sfumato", "")
        whole = metadata.get("digest") == digest(header, tensors)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{path} is damaged or cut short ({error}); take a copy that is whole, or start anew"
        ) from None
    if not whole:
        raise InputError(f"{path} was changed after it was written; take a copy that was not, or start anew")
    return tensors, header


def _release_file(folder: Path, phase: str) -> Path:
    return folder / f"release-{phase}.safetensors"


def _write(path: Path, tensors: dict[str, Tensor], header: str) -> None:
    plain = _plain(tensors)
    metadata = {"sfumato": header, "digest": digest(header, plain)}
    try:
        write_atomic(path, lambda temporary: save_file(plain, temporary, metadata), private=True)
    except SafetensorError as error:
        raise OSError(None, str(error), str(path)) from None


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def digest(header: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of a text and of tensors in main memory, by their names."""
    found = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():  # torch cannot view an empty one as bytes
            found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
