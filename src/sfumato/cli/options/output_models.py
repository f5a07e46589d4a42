"""Models that give what is measured themselves (values, classes, the next token): built at the start of a run, and
again from what its plan.json tells."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.cli.console import say
from sfumato.cli.options.adapters import refuse_adapters
from sfumato.cli.options.backbones import ModelOptions, first_weights, refuse_dimensions
from sfumato.cli.options.named_values import named_values
from sfumato.cli.own_model import is_own, own_model
from sfumato.data import UserDataset

_HEAD = "linear_head"


def build_output_model(
    options: ModelOptions, data: UserDataset, seed: int | None, *, load: bool, quiet: bool, oov_buckets: int = 0
) -> nn.Module:
    """The model at the start of a run.

    Args:
        options: which.
        data: for its public sizes.
        seed: of the run; None initialises at random.
        load: read the weights to start from; not needed where a checkpoint replaces them.
        quiet: do not print what was loaded.
        oov_buckets: ids that texts have behind those of the vocabulary.

    Raises:
        InputError: an unknown name or setting, or weights that do not fit.
    """
    refuse_adapters(options, options.model)
    source = RandomSource.from_os() if seed is None else RandomSource.from_seed(seed)
    if is_own(options.model):
        if options.model_options:
            raise InputError(
                f"--model-options is for the models of this package; {options.model} decides its settings itself"
            )
        if load:
            refuse_dimensions(options)
        model = own_model(options.model, source)
    else:
        sizes = {**public_sizes(data), "oov_buckets": oov_buckets}
        model = _named(options.model, sizes, _settings(vars(options)), first_weights(source))
    if options.weights is not None and load:
        _load(model, options.weights)
        if not quiet:
            say(f"weights: all tensors of {options.weights}")
    return model


def rebuild_output_model(about: Mapping[str, Any], weights: Path) -> nn.Module:
    """The trained model of a run.

    Args:
        about: what the run's plan.json says about its model.
        weights: its model.safetensors.

    Raises:
        InputError: plan.json does not tell the model, or the weights are not of this model.
    """
    if "model" not in about or "input_shape" not in about:
        raise InputError(
            f"{weights.parent}/plan.json does not tell the run's model: it was trained from Python; use "
            "plan.personalise(model, users) there"
        )
    if is_own(about["model"]):
        model = own_model(about["model"], RandomSource.from_os())
    else:
        model = _named(about["model"], about, _settings(about), None)
    models.load_weights(model, weights)
    return model.eval()


def public_sizes(data: UserDataset) -> dict[str, Any]:
    """What plan.json tells of the data, so that the model can be built again."""
    told: dict[str, Any] = {"input_shape": data.input_shape}
    if data.of_sequences:
        return {**told, "vocabulary_size": data.num_classes}
    if data.of_values:
        return told if data.item_names is None else {**told, "item_count": len(data.item_names)}
    return {**told, "class_count": data.num_classes}


def _named(name: str, sizes: Mapping[str, Any], chosen: dict[str, Any], generator: torch.Generator | None) -> nn.Module:
    """A model of this package."""
    if "vocabulary_size" in sizes:
        if sizes.get("oov_buckets"):
            chosen["oov_buckets"] = sizes["oov_buckets"]
        return models.language_model(
            name, sizes["vocabulary_size"], sizes["input_shape"][0], generator=generator, **chosen
        )
    if "item_count" in sizes:
        return models.recommender(name, sizes["item_count"], generator=generator, **chosen)
    own = "package.module:factory, a torch module of your own"
    if "class_count" not in sizes:
        raise InputError(f"the values are not of items, so --model must be {own} that gives values [n], got {name}")
    shape = tuple(sizes["input_shape"])
    if name != _HEAD:
        raise InputError(f"for classes --model must be {_HEAD}, on features, or {own} that gives logits, got {name}")
    if len(shape) != 1:
        raise InputError(f"{_HEAD} reads features [n, d], and the data have the shape {shape}; use {own}")
    if chosen:
        raise InputError(f"{_HEAD} has no settings, got {next(iter(chosen))}; leave them out")
    return models.linear_head(shape[0], sizes["class_count"], generator=generator)


def _settings(told: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the model's own function."""
    chosen = named_values(told.get("model_options") or ())
    if told.get("embedding_dim") is not None:
        chosen["embedding_dim"] = told["embedding_dim"]
    return chosen


def _load(model: nn.Module, weights: Path) -> None:
    if weights.suffix != ".safetensors":
        raise InputError(
            f"such a model starts from the model.safetensors of another run, got {weights}; or leave --weights out"
        )
    models.load_weights(model, weights)
