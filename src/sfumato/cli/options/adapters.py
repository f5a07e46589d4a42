"""Options of adapters: small trained parts of a backbone whose own weights stay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato.data import to_tensor


@dataclass(frozen=True, kw_only=True)
class AdapterOptions:
    """Adapters.

    Attributes:
        lora_rank: give layers an adapter of this rank, which is trained in their place (--trainable lora, or
            lora+last); for backbones.
        lora_layers: a regular expression on the names of these layers; without it, all that are larger than the
            adapter.
        projection: a new dense layer behind the backbone, to so many dimensions (--trainable projection).
    """

    lora_rank: int | None = None
    lora_layers: str | None = None
    projection: int | None = None


def adapted(
    model: nn.Module, told: Mapping[str, Any], input_shape: Sequence[int], generator: torch.Generator | None
) -> nn.Module:
    """A backbone with its adapters.

    Args:
        model: after published weights were loaded; LoRA is put in place.
        told: the fields of `AdapterOptions`, as options or as plan.json tells them.
        input_shape: of one record.
        generator: source of the first weights.

    Raises:
        InputError: no such layers, or a size out of range.
    """
    rank, layers, dim = (told.get(name) for name in ("lora_rank", "lora_layers", "projection"))
    if rank is not None:
        try:
            models.add_lora(model, rank=rank, layers=layers, generator=generator)
        except InputError as error:
            said = f"--lora-rank {rank}" + ("" if layers is None else f" --lora-layers '{layers}'")
            raise InputError(f"{said}: {error}") from None
    elif layers is not None:
        raise InputError("--lora-layers names layers for --lora-rank; give both, or leave it out")
    if dim is None:
        return model
    was_training = model.training
    with torch.no_grad():
        width = model.eval()(to_tensor(np.zeros((1, *input_shape), np.uint8))).shape[-1]
    return models.add_projection(model.train(was_training), width, dim, generator=generator)


def refuse_adapters(options: AdapterOptions, name: str) -> None:
    """Refuse adapters of a model that is no backbone.

    Raises:
        InputError: one was asked for.
    """
    for flag in ("lora_rank", "lora_layers", "projection"):
        if getattr(options, flag) is not None:
            raise InputError(f"--{flag.replace('_', '-')} is for backbones of embeddings; leave it out for {name}")
