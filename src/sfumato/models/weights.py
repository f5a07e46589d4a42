"""Weights on disk: a model's own, and those that start another model.

**On disk:** written whole or not at all, read without ever running code from the file. `save_weights` writes
safetensors: names, shapes and numbers, byte-identical for identical weights. `load_weights` is strict: every tensor of
the model must be in the file, with its shape, and nothing else. `read_tensors` also reads torch's own files, with
`weights_only`, so a pickle that holds anything but tensors is refused.

>>> import tempfile
>>> layer, other = nn.Linear(3, 2), nn.Linear(3, 2)
>>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
>>> save_weights(layer, path, metadata={"model": "linear"})
>>> load_weights(other, path)
{'model': 'linear'}
>>> torch.equal(layer.weight, other.weight)
True

**Another model's** weights start a classifier: everything but the last layer, where the classes differ. What the file
was trained on is not covered by the guarantee of what follows: it must be public, or have a statement of its own.

>>> import tempfile
>>> from sfumato.models.weights import save_weights
>>> path = Path(tempfile.mkdtemp()) / "digits.safetensors"
>>> save_weights(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 10)), path)
>>> letters = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 26))
>>> transfer_weights(letters, path)
('1.weight', '1.bias')
"""

import json
import pickle
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from sfumato._check import InputError
from sfumato._files import write_atomic

_WRAPPERS = ("state_dict", "model_state_dict", "model")


def save_weights(model: nn.Module, path: str | Path, *, metadata: Mapping[str, Any] | None = None) -> None:
    """Write the parameters and buffers of a module as safetensors; an error leaves the old file as it was.

    Args:
        model: any torch module; nothing but its `state_dict` is written.
        path: the file to write, by convention `model.safetensors`.
        metadata: what is needed to build the module again, as JSON values.

    Raises:
        OSError: the disk is full or the folder cannot be written.
    """
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _tensors(model).items()}
    # One entry: safetensors writes several in no fixed order, and equal weights must give equal bytes.
    header = {"sfumato": json.dumps(dict(metadata or {}), sort_keys=True)}
    write_atomic(Path(path), save(tensors, metadata=header))


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Read what `save_weights` was given as metadata; empty for a file from elsewhere.

    Raises:
        InputError: the file is missing or is not whole safetensors.
    """
    refuse_missing(Path(path))
    try:
        with safe_open(path, framework="pt") as file:
            return json.loads((file.metadata() or {}).get("sfumato", "{}"))
    except (SafetensorError, ValueError) as error:
        raise _damaged(Path(path), error) from None


def load_weights(model: nn.Module, path: str | Path, *, ignore: Collection[str] = ("head.weight",)) -> dict[str, Any]:
    """Fill a module, in place, from a file of `save_weights`; return the file's metadata.

    Args:
        model: a module with the same names and shapes as the one that was saved.
        path: a safetensors file.
        ignore: tensors of the file that the module need not have: a run with a shared head saves it with the
            backbone.

    Raises:
        InputError: the file is missing or damaged, or a name or a shape differs; the module is then unchanged.
    """
    metadata = read_metadata(path)
    wanted = _tensors(model)
    found = {name: tensor for name, tensor in read_tensors(path).items() if name in wanted or name not in ignore}
    for problem, names in (("lacks", wanted.keys() - found.keys()), ("also has", found.keys() - wanted.keys())):
        if names:
            raise InputError(
                f"{path}: these are weights of another model: the file {problem} {some(sorted(names))}; "
                "build the model with the arguments it was trained with"
            )
    for name, tensor in wanted.items():
        if found[name].shape != tensor.shape:
            raise InputError(
                f"{path} holds weights of another model: {name} is {list(found[name].shape)} in the file and "
                f"{list(tensor.shape)} in the model; build the model as it was trained"
            )
    model.load_state_dict(found, strict=False)
    return metadata


def read_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Read named tensors from a safetensors file or from a torch file, onto the CPU.

    Torch files (`.pt`, `.pth`, `.bin`) are read with `weights_only=True`. A state dict inside a checkpoint, under
    "state_dict", "model_state_dict" or "model", is taken out; prefixes of parallel or compiled modules are removed.

    Raises:
        InputError: the file is missing, damaged, of another kind, holds more than tensors, or holds none.
    """
    path = Path(path)
    refuse_missing(path)
    if path.suffix != ".safetensors":
        _refuse_other_kinds(path)
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except pickle.UnpicklingError:
        raise InputError(
            f"{path}: holds more than tensors, and loading it could run code from the file; "
            "save its state_dict as safetensors where it comes from"
        ) from None
    except Exception as error:  # torch raises whatever a damaged file leads it to
        raise _damaged(path, error) from None
    for key in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    tensors = content if isinstance(content, Mapping) else {}
    tensors = {name: value for name, value in tensors.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise InputError(f"{path}: holds no named tensors; a state_dict is needed")
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


def some(names: list[str], shown: int = 3) -> str:
    """A few names for a message: all up to `shown`, else so many and how many more."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def refuse_missing(path: Path) -> None:
    """Refuse a path at which there is no file.

    Raises:
        InputError: names it.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file of weights")


def _refuse_other_kinds(path: Path) -> None:
    """Refuse what torch never wrote: reading it would raise an error about torch's internals."""
    with path.open("rb") as file:
        start = file.read(2)
    if start == b"PK":  # torch's format since 1.6 is a zip
        try:
            with zipfile.ZipFile(path) as archive:
                ours = any(name.rpartition("/")[2] == "data.pkl" for name in archive.namelist())
        except Exception:  # zipfile raises many kinds for a damaged file: torch reports it
            return
    else:
        ours = start[:1] == b"\x80"  # pickles since Python 2.3
    if not ours:
        raise InputError(
            f"{path}: is not a file of weights; give a .safetensors file, or a state_dict that torch.save has written "
            "(.pt, .pth, .bin)"
        )


def _damaged(path: Path, error: Exception) -> InputError:
    reason = str(error).strip().splitlines()
    return InputError(f"{path}: not readable as weights ({reason[0][:120] if reason else type(error).__name__})")


def transfer_weights(model: nn.Module, path: str | Path) -> tuple[str, ...]:
    """Fill a module, in place, from a file of weights of the same network for other classes.

    Args:
        model: any torch module.
        path: safetensors, or torch's own format with tensors alone.

    Returns:
        names of the tensors that keep their initial values: those of the last layer, or none.

    Raises:
        InputError: the file is missing or damaged, or differs in more than the last layer; the module is unchanged.
    """
    found, own = read_tensors(path), dict(model.state_dict())
    names = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
    last = names[-1].rpartition(".")[0] if names else ""
    fresh = tuple(name for name in own if name not in found or found[name].shape != own[name].shape)
    for name in fresh:
        if name.rpartition(".")[0] != last:
            given = list(found[name].shape) if name in found else "nothing"
            raise InputError(
                f"{path} has {given} for {name} of shape {list(own[name].shape)}; only the last layer ({last}) may "
                "differ: take weights of the same network"
            )
    with torch.no_grad():
        for name, value in own.items():
            if name not in fresh:
                value.copy_(found[name])
    return fresh
