"""Options that choose which model is trained, and how a run's model is built again.

Settings that are given as name=value, several in one option.

>>> named_values(["hidden=64", "normalisation=layer"])
{'hidden': 64, 'normalisation': 'layer'}
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sfumato import models
from sfumato._check import InputError, one_of
from sfumato._lazy import torch
from sfumato._random import RandomSource
from sfumato.cli.console import print_line
from sfumato.cli.sources import LabelledDataOptions, read_examples

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import ExampleDataset, UserDataset


def named_values(words: Sequence[str]) -> dict[str, Any]:
    """Names and their values; a value is JSON or a word.

    Raises:
        InputError: a word is not name=value.
    """
    chosen: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"model_options must be name=value, got {word!r}; for example hidden=64")
        try:
            chosen[name] = json.loads(value, parse_float=_number)
        except ValueError:
            chosen[name] = value
    return chosen


def _number(text: str) -> int | float:
    """A number of JSON; 64.0 and 1e3 are whole, as sizes have to be."""
    value = float(text)
    return int(value) if value.is_integer() else value


# Public features by the value of an option: a name, a network with public weights, or a module of one's own.


IMAGENET = "squeezenet"


def public_features(name: str, weights: Path | None, seed: int, *, flag: str) -> str | nn.Module:
    """A name of ours, or a frozen module with public weights.

    Args:
        name: as `features_of` knows it, squeezenet, or package.module:factory.
        weights: of squeezenet.
        seed: public, for what a factory draws.
        flag: the option of the weights, for messages.

    Raises:
        InputError: weights are missing, given for something else, or the factory is of no use.
    """
    from sfumato.models import imagenet_features

    if name == IMAGENET:
        if weights is None:
            raise InputError(f"--features {IMAGENET} needs public weights: give {flag} FILE")
        return imagenet_features(weights)
    if weights is not None:
        raise InputError(f"{flag} is for --features {IMAGENET}, got {name}; leave it out")
    if models.is_custom_model(name):
        return models.custom_model(name, RandomSource.from_seed(seed))
    return name


# Options of adapters: small trained parts of a backbone whose own weights stay.


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
    model: nn.Module, settings: Mapping[str, Any], input_shape: Sequence[int], generator: torch.Generator | None
) -> nn.Module:
    """A backbone with its adapters.

    Args:
        model: after published weights were loaded; LoRA is put in place.
        settings: the fields of `AdapterOptions`, from the options or from plan.json.
        input_shape: of one record.
        generator: source of the first weights.

    Raises:
        InputError: no such layers, or a size out of range.
    """

    from sfumato.data import to_tensor

    rank, layers, dim = (settings.get(name) for name in ("lora_rank", "lora_layers", "projection"))
    if rank is not None:
        try:
            models.add_lora(model, rank=rank, layers=layers, generator=generator)
        except InputError as error:
            option = f"--lora-rank {rank}" + ("" if layers is None else f" --lora-layers '{layers}'")
            raise InputError(f"{option}: {error}") from None
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


# Layers that would stay at random values, and adapters that are not trained: refused before a run begins.
#
# Pretrained weights do not always have all of a network: another embedding, the small first layer for small pictures
# and a projection are new. Frozen, they would put noise between the weights and what is trained, without any
# message.


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
    from sfumato.models.adapters import LoRAConv2d, LoRALinear
    from sfumato.models.weights import some

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
            f"--trainable {trainable} does not name the adapters of --lora-rank {rank}; give lora (adapters "
            "alone), lora+last (last layer too) or lora+all (all other layers too)"
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


# Options that choose which backbone is trained, and how a run's backbone is built again.


_DIMENSIONS = 128  # of an embedding by default


@dataclass(frozen=True, kw_only=True)
class ModelOptions(AdapterOptions):
    """The backbone.

    Attributes:
        model: lenet, mobilenet_v2, resnet18, resnet20, resnet50, squeezenet or mobilefacenet for pictures, lstm or
            transformer for texts, matrix_factorization or neural for ratings, linear_head for features (fedrecon). Or
            package.module:factory, an importable class or function without arguments that gives a torch module. The
            current folder is searched, too. Without it, a training takes one that fits the data.
        embedding_dim: dimensions of the embedding: 128 unless given, lstm has its own for each token; a model of your
            own decides them itself.
        model_options: for lstm, transformer and models of ratings: their own settings as name=value, for example
            hidden=256 layers=2, or factors=50 offset=3.5.
        weights: pretrained weights to start from: torchvision's or timm's, MobileFaceNet's, or the model.safetensors of
            another run. They must come from public data, for the guarantee does not cover what they were trained on.
        batch_norm: what becomes of the batch norm in published weights: group norm takes its place (replace), or it is
            folded into the convolutions (fold).
    """

    model: str = "lenet"
    embedding_dim: int | None = None
    model_options: tuple[str, ...] = ()
    weights: Path | None = None
    batch_norm: Literal["replace", "fold"] = "replace"


def build(
    options: ModelOptions,
    input_shape: Sequence[int],
    seed: int | None,
    *,
    load: bool,
    quiet: bool,
    trainable: str = "all",
) -> nn.Module:
    """The backbone at the start of a run.

    Args:
        options: which.
        input_shape: (height, width, channels) of the data.
        seed: of the run; None initialises at random.
        load: read the pretrained weights; not needed where a checkpoint replaces them.
        quiet: do not print what was loaded.
        trainable: which of its parameters are trained.

    Raises:
        InputError: an unknown name, data that are no pictures, weights that do not fit, or a layer that would stay at
            random values.
    """
    if options.model_options:
        raise InputError(f"--model-options is for models of texts and of ratings; leave it out for {options.model}")
    source = _source(seed)
    generator = first_weights(source)
    if models.is_custom_model(options.model):
        if load:  # a run that goes on reads its plan.json
            refuse_dimensions(options)
        model = models.custom_model(options.model, source)
    else:
        model = models.backbone(
            options.model,
            embedding_dim=embedding_dim_of(options),
            input_shape=input_shape,
            normalisation=_normalisation(options.weights, options.batch_norm),
            generator=generator,
        )
    if options.weights is None or not load:
        return adapted(model, vars(options), input_shape, generator)
    fresh = _load(model, options, options.weights, input_shape, quiet=quiet)
    whole = adapted(model, vars(options), input_shape, generator)
    if whole is not model:  # behind a projection
        fresh = [f"backbone.{name}" for name in fresh]
        fresh += [name for name, _ in whole.named_parameters() if name.startswith("projection.")]
    refuse_untrained(whole, fresh, trainable, options.weights, input_shape=input_shape)
    return whole


def _load(
    model: nn.Module, options: ModelOptions, weights: Path, input_shape: Sequence[int], *, quiet: bool
) -> list[str]:
    """Fill a backbone with the weights to start from; gives the names of what they do not have."""
    if weights.suffix == ".safetensors" and models.read_metadata(weights):
        models.load_weights(model, weights)
        if not quiet:
            print_line(f"weights: all tensors of {weights}")
        return []
    channels = "sum" if input_shape[-1] == 1 else "same"
    report = models.load_pretrained(model, weights, batch_norm=options.batch_norm, channels=channels)
    if not quiet:
        print_line(report.text())
    return [*report.names("missing")]


def _source(seed: int | None) -> RandomSource:
    """What a model of a run is drawn from; of the operating system where no seed is given."""
    return RandomSource.from_os() if seed is None else RandomSource.from_seed(seed)


def first_weights(source: RandomSource) -> torch.Generator:
    """What the first weights of a run's model are drawn from."""
    return torch.Generator().manual_seed(source.seed64("initial model"))


def refuse_dimensions(options: ModelOptions) -> None:
    """Refuse dimensions for a model of one's own, which decides them itself."""
    if options.embedding_dim is not None:
        raise InputError(
            f"--embedding-dim is for the models of this package; {options.model} decides it itself: leave it out"
        )


def embedding_dim_of(options: ModelOptions) -> int:
    """Dimensions of the embedding of a backbone of this package."""
    return _DIMENSIONS if options.embedding_dim is None else options.embedding_dim


_SERVES = "sfumato personalise serves people with it"
_NO_EMBEDDINGS = {
    "outputs": ("of sfumato dpsgd, whose model gives classes or numbers", ""),
    "item_count": ("whose model gives values or classes", _SERVES),
    "class_count": ("whose model gives values or classes", _SERVES),
    "vocabulary_size": ("on texts, whose model gives the next token", ""),
}
"""By what plan.json states of a model that gives something else: what it gives, and what to do with it."""


def rebuild(about: Mapping[str, Any], weights: Path) -> nn.Module:
    """The trained backbone of a run.

    Args:
        about: what the run's plan.json states about its model.
        weights: its model.safetensors.

    Raises:
        InputError: plan.json does not name the model, or the weights are not of this model.
    """
    wanted = ("model", "embedding_dim", "input_shape")
    missing = [name for name in wanted if name not in about]
    for name, (what, use) in _NO_EMBEDDINGS.items():
        if name in about:
            use = use or f"load {weights.name} in Python with sfumato.models.load_weights"
            raise InputError(f"{weights.parent} is a run {what} and no embeddings; {use}")
    if missing:
        raise InputError(
            f"{weights.parent}/plan.json does not name the run's {missing[0]}: it was trained from Python; load "
            f"{weights.name} there, with sfumato.models.load_weights"
        )
    model = built_again(about)
    models.load_weights(model, weights)
    return model.eval()


def built_again(about: Mapping[str, Any]) -> nn.Module:
    """The model of a run, with other first weights.

    Args:
        about: what the run's plan.json states about its model; a KeyError names what it does not state.

    Raises:
        InputError: the model is unknown, or its settings are.
    """
    name = about["model"]
    if models.is_custom_model(name):
        model = models.custom_model(name, RandomSource.from_os())
        return adapted(model, about, about["input_shape"], None) if "embedding_dim" in about else model
    if "outputs" in about:
        chosen = named_values(about.get("model_options") or ())
        if about.get("normalisation") is not None:
            chosen["normalisation"] = about["normalisation"]
        if name in models.RECOMMENDERS:
            items, users = about["vocabulary_sizes"]
            return models.recommender(name, items, **{"users": users, "classes": about["classes"], **chosen})
        chosen = _sizes(name, about["vocabulary_sizes"]) | chosen
        return models.classifier(name, about["outputs"], [tuple(each) for each in about["input_shapes"]], **chosen)
    if _NO_EMBEDDINGS.keys() & about.keys():
        return _named(name, about, _settings(about), None)
    model = models.backbone(
        name,
        embedding_dim=about["embedding_dim"],
        input_shape=about["input_shape"],
        normalisation=_normalisation(about.get("weights"), about.get("batch_norm", "replace")),
    )
    return adapted(model, about, about["input_shape"], None)


def _normalisation(weights: object, batch_norm: str) -> Literal["group", "none"]:
    """A network whose batch norm was folded away has no norm layers."""
    return "none" if weights is not None and batch_norm == "fold" else "group"


def check_device(name: str) -> None:
    """Refuse a device that is not there.

    Raises:
        InputError: torch does not know or find it.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device must be cpu, cuda or cuda:<number>, got {name}") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device must be cpu, cuda or cuda:<number>, got {name}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name} is not there: torch finds {torch.cuda.device_count()} GPUs; use --device cpu")


# Models that give what is measured themselves (values, classes, the next token): built at the start of a run, and
# again from its plan.json.


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
    source = _source(seed)
    if models.is_custom_model(options.model):
        if options.model_options:
            raise InputError(
                f"--model-options is for the models of this package; {options.model} decides its settings itself"
            )
        if load:
            refuse_dimensions(options)
        model = models.custom_model(options.model, source)
    else:
        sizes = {**public_sizes(data), "oov_buckets": oov_buckets}
        model = _named(options.model, sizes, _settings(vars(options)), first_weights(source))
    if options.weights is not None and load:
        _load_weights(model, options.weights)
        if not quiet:
            print_line(f"weights: all tensors of {options.weights}")
    return model


def rebuild_output_model(about: Mapping[str, Any], weights: Path) -> nn.Module:
    """The trained model of a run.

    Args:
        about: what the run's plan.json states about its model.
        weights: its model.safetensors.

    Raises:
        InputError: plan.json does not name the model, or the weights are not of this model.
    """
    if "model" not in about or "input_shape" not in about:
        raise InputError(
            f"{weights.parent}/plan.json does not name the run's model: it was trained from Python; use "
            "plan.personalise(model, users) there"
        )
    model = built_again(about)
    models.load_weights(model, weights)
    return model.eval()


def public_sizes(data: UserDataset) -> dict[str, Any]:
    """What plan.json states of the data, so that the model can be built again."""
    sizes: dict[str, Any] = {"input_shape": data.input_shape}
    if data.of_sequences:
        return {**sizes, "vocabulary_size": data.num_classes}
    if data.of_values:
        return sizes if data.item_names is None else {**sizes, "item_count": len(data.item_names)}
    return {**sizes, "class_count": data.num_classes}


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


def _settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the model's own function."""
    chosen = named_values(about.get("model_options") or ())
    if about.get("embedding_dim") is not None:
        chosen["embedding_dim"] = about["embedding_dim"]
    return chosen


def _load_weights(model: nn.Module, weights: Path) -> None:
    if weights.suffix != ".safetensors":
        raise InputError(
            f"such a model starts from the model.safetensors of another run, got {weights}; or leave --weights out"
        )
    models.load_weights(model, weights)


# Options that choose which model of examples is trained, and how a run's model is built again.


def reads(name: str) -> str | None:
    """What a classifier of ours reads; None for another one."""
    from sfumato.models.catalogue import NETWORKS

    return NETWORKS["classes"][name].reads if name in NETWORKS["classes"] else None


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions:
    """The model.

    Attributes:
        model: lenet5, lenet300_100, resnet18, resnet20, wrn16_4 or scatternet for pictures, bilstm or transformer
            for texts, ctr or dlrm for tables, lenet300_100 for numbers alone, matrix_factorization or neural for
            ratings. It gets an output for each class, or for each number of a target. Or package.module:factory, an
            importable class or function without arguments that gives a torch module; the folder that you are in is
            searched too. Without it, a training takes one that fits the data.
        normalisation: none, layer, group or public_batch, where the model has the choice; None for its own.
        model_options: more of the model's own settings as name=value, for example hidden=64.
        public_inputs: for public_batch: data whose first 128 examples are public; they are never private records.
        pretrained: weights to start from, of the same network: a run's model.safetensors. The last layer is new where
            the classes differ. They must come from public data, or have a statement of their own.
    """

    model: str = "lenet5"
    normalisation: Literal["none", "layer", "group", "public_batch"] | None = None
    model_options: tuple[str, ...] = ()
    public_inputs: str | None = None
    pretrained: Path | None = None


def build_classifier(
    options: ClassifierOptions,
    data: ExampleDataset,
    seed: int | None,
    *,
    load: bool,
    quiet: bool,
    reading: LabelledDataOptions | None = None,
    trainable: str = "all",
) -> nn.Module:
    """The classifier at the start of a run.

    Args:
        options: which.
        data: for its shapes and public sizes.
        seed: of the run; None initialises at random.
        load: read the pretrained weights; not needed where a checkpoint replaces them.
        quiet: do not print what was loaded.
        reading: how public inputs are read.
        trainable: which parameters are trained.

    Raises:
        InputError: an unknown name or option, data that the model does not read, weights that do not fit, or a layer
            that would stay at random values.
    """
    source = _source(seed)
    model = (
        _custom(options, source)
        if models.is_custom_model(options.model)
        else _of_the_catalogue(options, data, source, reading=reading)
    )
    if options.pretrained is not None and load:
        fresh = models.transfer_weights(model, options.pretrained)
        refuse_untrained(model, fresh, trainable, options.pretrained)
        if not quiet:
            print_line(f"weights: all tensors of {options.pretrained}" + (f" but {', '.join(fresh)}" if fresh else ""))
    return model


def _custom(options: ClassifierOptions, source: RandomSource) -> nn.Module:
    """A network by its module's name, which takes no settings."""
    for flag, value in (
        ("--normalisation", options.normalisation),
        ("--public-inputs", options.public_inputs),
        ("--model-options", options.model_options),
    ):
        if value:
            raise InputError(f"{flag} is for the models of this package; {options.model} decides it itself")
    return models.custom_model(options.model, source)


def _of_the_catalogue(
    options: ClassifierOptions, data: ExampleDataset, source: RandomSource, *, reading: LabelledDataOptions | None
) -> nn.Module:

    from sfumato.data import to_tensor

    generator = first_weights(source)
    chosen = named_values(options.model_options)
    if options.model in models.RECOMMENDERS:
        return _recommender(options, data, chosen, generator)
    if options.normalisation is not None:
        chosen["normalisation"] = options.normalisation
    if options.public_inputs is not None:
        public = read_examples(options.public_inputs, reading or LabelledDataOptions())
        chosen["public_inputs"] = to_tensor(public.examples(range(min(128, len(public))))[0][0])
    elif options.normalisation == "public_batch":
        raise InputError("normalisation public_batch needs public data for its statistics; give --public-inputs PATH")
    chosen = _sizes(options.model, data.vocabulary_sizes) | chosen
    _refuse_unlike_pictures(options.model, data)
    _refuse_ids(options.model, data)
    return models.classifier(options.model, _outputs(data), data.input_shapes, generator=generator, **chosen)


def _recommender(
    options: ClassifierOptions, data: ExampleDataset, chosen: dict[str, Any], generator: torch.Generator
) -> nn.Module:
    """A model of an item and a user, whose numbers the data state."""
    for flag, value in (("--normalisation", options.normalisation), ("--public-inputs", options.public_inputs)):
        if value is not None:
            raise InputError(f"{flag} is for other models, {options.model} has no such layer; leave it out")
    if data.columns != (("item", "user"),):
        raise InputError(
            f"{options.model} reads ratings, the numbers of an item and a user, got {data}; give ratings as --data, "
            "or another --model"
        )
    items, users = data.vocabulary_sizes
    return models.recommender(
        options.model, items, generator=generator, **{"users": users, "classes": data.num_classes, **chosen}
    )


def _outputs(data: ExampleDataset) -> int:
    """One for each class, or for each number of a target."""
    if data.num_classes is not None:
        return data.num_classes
    if data.targets is None:
        raise InputError(
            "the examples have no targets, so the number of outputs is not known; name them with "
            "--label COLUMN, or train without targets from Python"
        )
    return 1 if data.targets.ndim == 1 else data.targets.shape[1]


def _refuse_unlike_pictures(name: str, data: ExampleDataset) -> None:
    """Refuse numbers or ids where a classifier of ours reads pictures.

    Args:
        name: of the classifier.
        data: of one input, in the shape of a picture.

    Raises:
        InputError: with how pictures are stored.
    """
    pictures = (reads(name) or "").startswith("pictures") and len(data.dtypes) == 1
    if pictures and len(data.input_shapes[0]) in (2, 3) and data.dtypes[0] != "uint8":
        raise InputError(
            f"{name} reads pictures, uint8 [height, width, channels], got {data.dtypes[0]} "
            f"{data.input_shapes[0]}; store them so, or take lenet300_100, which reads floats of any shape"
        )


def _refuse_ids(name: str, data: ExampleDataset) -> None:
    if name == "lenet300_100" and data.dtypes[0].kind == "i":
        raise InputError(
            f"lenet300_100 reads pictures or floats, got {data.dtypes[0]} {data.input_shapes[0]}, which stand for ids; "
            "store numbers as float32, or declare the column as numeric in a --schema"
        )


def refuse_no_model(options: Any) -> None:
    """Refuse a model that there is not, or settings that it does not have, before records are read.

    Args:
        options: of the model.

    Raises:
        InputError: no data would fit it.
    """
    from sfumato.models.catalogue import NETWORKS

    name, chosen = options.model, named_values(options.model_options)
    if models.is_custom_model(name):
        models.refuse_missing_module(name)
        return
    kinds = ("classes", "values") if isinstance(options, ClassifierOptions) else ("embedding", "tokens", "values")
    found = [NETWORKS[each][name] for each in kinds if name in NETWORKS[each]]
    if not found and name != _HEAD:
        names = {each: None for kind in kinds for each in NETWORKS[kind]}
        one_of(names, model=name, remedy="or package.module:factory for a torch module of your own")
    settings = {option for network in found for option in network.options}
    for network in found:
        network.refuse_unknown(name, [option for option in chosen if option not in settings])


def with_usual_model(options: Any, data: Any) -> Any:
    """All options of a training command, with the model that such data have where none was chosen.

    A model that is to start from weights has to be named; without a name it stays the command's default. A
    factorisation of values has biases then: a user's mean and an item's explain most of a rating. An LSTM on characters
    has sizes by the number of users.
    """
    from sfumato.training.defaults import usual_lstm

    chosen = options.model
    weights = getattr(chosen, "weights", None) or getattr(chosen, "pretrained", None)
    if "model" in options.run.chosen or weights is not None:
        return options
    name = _usual_model(data)
    if name is None or name == chosen.model:
        return options
    settings = chosen.model_options
    if name == "matrix_factorization" and "biases" not in named_values(settings):
        settings = (*settings, "biases=true")
    added = " with biases" if settings != chosen.model_options else ""
    if name == "lstm" and options.data.text == "characters" and not settings:
        sizes = usual_lstm(options.plan.public_population(data))
        settings = tuple(f"{size}={value}" for size, value in sizes.items())
        added = f" ({', '.join(settings)})" if settings else ""
    if not options.run.json:
        print_line(f"model: {name}{added}, as is usual for such data; --model chooses another")
    return replace(options, model=replace(chosen, model=name, model_options=settings))


def _usual_model(data: Any) -> str | None:
    """By what the records are; None for what has no usual one."""
    if hasattr(data, "of_sequences"):  # of users
        if data.of_sequences:
            return models.usual_network("tokens", "tokens")
        if data.of_values:
            return models.usual_network("values", "items") if data.item_names is not None else None
        return _for_pictures("embedding", data.input_shape, data.dtype)
    if data.columns == (("item", "user"),):
        return models.usual_network("classes", "items")
    if len(data.input_shapes) == 2 and data.dtypes[1].kind == "i":
        return models.usual_network("classes", "table")
    if len(data.input_shapes) != 1:
        return None
    shape, kind = data.input_shapes[0], data.dtypes[0].kind
    if kind == "i":
        return models.usual_network("classes", "tokens") if len(data.vocabulary_sizes) == 1 else None
    if len(shape) == 1:
        return models.usual_network("classes", "numbers")
    return _for_pictures("classes", shape, data.dtypes[0])


def is_table(data: ExampleDataset) -> bool:
    """Whether examples are rows of a table: numbers, ids of several columns, or both."""
    if any(len(shape) != 1 for shape in data.input_shapes) or data.columns == (("item", "user"),):
        return False
    return data.dtypes[0].kind == "f" or len(data.vocabulary_sizes) > 1


def _for_pictures(gives: Literal["classes", "embedding"], shape: Sequence[int], kind: np.dtype) -> str | None:
    if len(shape) not in (2, 3) or kind != np.uint8:
        return None
    return models.usual_network(gives, "pictures", shape)


def about_classifier(data: ExampleDataset) -> dict[str, Any]:
    """What is needed with the options to build the classifier again."""
    return {
        "classes": data.num_classes,
        "outputs": _outputs(data),
        "input_shapes": data.input_shapes,
        "vocabulary_sizes": data.vocabulary_sizes,
    }


def _sizes(name: str, sizes: Sequence[int]) -> dict[str, Any]:
    """The public sizes of the data under the name that the model gives them."""
    if not sizes:
        return {}
    read = reads(name)
    if read == "tokens":
        return {"vocabulary_size": sizes[0]}
    return {"vocabulary_sizes": tuple(sizes)} if read == "table" else {}
