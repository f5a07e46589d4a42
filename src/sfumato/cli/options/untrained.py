"""Layers that would stay at random values, and adapters that nobody trains: refused before a run begins.

Pretrained weights do not always have all of a network: another embedding, the small first layer for small pictures and
a projection are new. Frozen, they would put noise between the weights and what is trained, and nobody would be told.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato.cli.options.adapters import AdapterOptions
from sfumato.models.adapters import LoRAConv2d, LoRALinear
from sfumato.models.weights import some

_SMALL = 64  # pixels: below it, a backbone's first layer is another one than that of photographs


def refuse_untrained(
    model: nn.Module,
    fresh: Collection[str],
    trainable: str,
    weights: Path,
    *,
    input_shape: Sequence[int] = (),
) -> None:
    """Refuse to freeze layers at random values.

    Args:
        model: as it is trained.
        fresh: names of its tensors that the weights do not have.
        trainable: which parameters are trained; see `sfumato.models.trainable_parameters`.
        weights: the file, for messages.
        input_shape: (height, width, channels) of pictures.

    Raises:
        InputError: a layer is random and frozen; names layers and remedies.
    """
    trained = _trained(model, trainable)
    names = [
        name
        for name, parameter in model.named_parameters()
        if name in fresh and parameter.dim() > 1 and name not in trained
    ]
    if not names:
        return
    layers = [name.rpartition(".")[0] for name in names]
    remedies = []
    if spec := _with(model, trainable, names, trained):
        remedies.append(f"train {'it' if len(names) == 1 else 'them'} too (--trainable '{spec}')")
    if new := [layer for layer in layers if isinstance(model.get_submodule(layer), LoRAConv2d | LoRALinear)]:
        # adapters come before a projection, when no name has its prefix yet
        but = "|".join(re.escape(layer.removeprefix("backbone.")) for layer in new)
        whole = "train it whole" if len(new) == 1 else "train them whole"
        remedies.append(f"adapt the other layers only (--lora-layers '^(?!({but})$)') and {whole}")
    if names[0] == _first(model) and input_shape and min(input_shape[:2]) < _SMALL:
        remedies.append(
            f"bring pictures to {_SMALL} pixels or more (--size {_SMALL}), for which the file has that layer"
        )
    if any(layer.startswith("backbone.") for layer in layers):
        remedies.append("leave out --projection")
    raise InputError(
        f"{weights} has nothing for {some(names)}, which --trainable {trainable} would leave frozen at random values; "
        f"{', or '.join(remedies) or 'train all layers (--trainable all)'}"
    )


def refuse_idle_adapters(options: AdapterOptions, trainable: str) -> None:
    """Refuse adapters that are not trained as such, and words for adapters that are not there.

    Args:
        options: what the model gets.
        trainable: which parameters are trained.

    Raises:
        InputError: names the options that go together.
    """
    words = re.split(r"[+|]", trainable)
    rank = options.lora_rank
    if rank is not None and "lora" not in trainable:
        raise InputError(
            f"--lora-rank {rank} freezes the layers that it adapts, and --trainable {trainable} is no word for the "
            "adapters; say --trainable lora to train them alone, lora+last for the last layer beside them, or lora+all "
            "for all that is not adapted, too"
        )
    if rank is None and "lora" in words:
        raise InputError(f"--trainable {trainable} trains adapters, and there are none; add --lora-rank 4, for example")
    if options.projection is None and "projection" in words:
        raise InputError(
            f"--trainable {trainable} trains a projection, and there is none; add --projection 64, for example"
        )


def _trained(model: nn.Module, trainable: str) -> set[str]:
    return {name for name, _ in models.trainable_parameters(model, trainable)}


def _with(model: nn.Module, trainable: str, names: Sequence[str], trained: set[str]) -> str | None:
    """A wider choice that trains these, too, in as few words as there are; None where nothing does."""
    layers = "|".join(dict.fromkeys(re.escape(name.rpartition(".")[0]) + r"\." for name in names))
    tried = [f"{trainable}+{more}" for more in ("last", "first", "first+last", layers)]
    for spec in (*tried, f"{trainable}|{layers}"):
        try:
            found = _trained(model, spec)
        except InputError:
            continue
        if found >= {*names} | trained:
            return spec
    return None


def _first(model: nn.Module) -> str | None:
    """The first weight of a layer."""
    return next((name for name, parameter in model.named_parameters() if parameter.dim() > 1), None)
