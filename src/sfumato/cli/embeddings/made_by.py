"""Which model made a table of embeddings: said in the Parquet file's metadata, under the key `sfumato`.

Embeddings of two models have nothing to do with each other, and nothing in the numbers shows it. So the file names the
released model by its SHA-256, and the size that pictures were brought to.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato.runs import RunFolder

_KEY = b"sfumato"
_SHOWN = 12  # digits of a digest


@dataclass(frozen=True, kw_only=True)
class MadeBy:
    """A model as it embeds.

    Attributes:
        model: SHA-256 of model.safetensors, 64 hexadecimal digits.
        input_shape: height, width and channels that pictures are brought to.
    """

    model: str
    input_shape: tuple[int, ...]

    def metadata(self) -> dict[bytes, bytes]:
        """What the file says of it."""
        return {_KEY: json.dumps({"made_by": asdict(self)}, sort_keys=True).encode()}


def made_by_run(folder: RunFolder, about: Mapping[str, Any]) -> MadeBy:
    """The model of a run.

    Args:
        folder: of the run.
        about: what its plan.json says about the model, which was built from it.
    """
    with open(folder.model, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return MadeBy(model=digest, input_shape=tuple(about["input_shape"]))


def made_by_told(metadata: Mapping[bytes, bytes]) -> MadeBy | None:
    """The model that a file names; None where it names none."""
    try:
        told = json.loads(metadata[_KEY])["made_by"]
        model, shape = told["model"], told["input_shape"]
        return MadeBy(model=str(model), input_shape=tuple(int(side) for side in shape))
    except (KeyError, TypeError, ValueError):
        return None


def refuse_another(
    gallery: tuple[Path, MadeBy | None], asker: tuple[Path, MadeBy | None], *, remedy: str
) -> str | None:
    """Refuse to compare embeddings of two models.

    Args:
        gallery: the file, and who made it.
        asker: the file or the run of what is looked for, and who made or makes that.
        remedy: what to do about it.

    Returns:
        a warning where one of them does not say who made it; None where both do, and it is the same.

    Raises:
        InputError: two models, or one model on pictures of two sizes.
    """
    (path, ours), (other, theirs) = gallery, asker
    if ours is None or theirs is None:
        silent, told = (path, other) if ours is None else (other, path)
        return (
            f"{silent} does not say which model made its embeddings, so nobody knows whether it is that of {told}; "
            "files of sfumato embed say it"
        )
    if ours.model != theirs.model:
        raise InputError(
            f"{path} was made by the model {ours.model[:_SHOWN]}… and {other} has {theirs.model[:_SHOWN]}… (SHA-256 of "
            f"model.safetensors): embeddings of two models cannot be compared; {remedy}"
        )
    if ours.input_shape != theirs.input_shape:
        raise InputError(
            f"{path} was made of pictures of {_shape(ours)} and {other} has {_shape(theirs)}: such embeddings cannot "
            f"be compared; {remedy}"
        )
    return None


def _shape(made: MadeBy) -> str:
    return "×".join(map(str, made.input_shape))
