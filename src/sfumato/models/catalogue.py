"""The networks of this package by name, for configuration files and the command line.

A name stands for one network among those that give the same: embeddings, classes, values of items, or next tokens. One
function for each of the four builds a network for the shapes and public sizes of a data set.

>>> backbone("lenet", embedding_dim=128, input_shape=(28, 28, 1))(torch.zeros(3, 1, 28, 28)).shape
torch.Size([3, 128])
>>> classifier("lenet5", 10, [(28, 28, 1)], normalisation="layer")(torch.zeros(3, 1, 28, 28)).shape
torch.Size([3, 10])
>>> recommender("matrix_factorization", 100, factors=8)(torch.zeros(2, 1, dtype=torch.int64)).shape
torch.Size([2])
>>> language_model("lstm", 100, 80, hidden=32)(torch.zeros(2, 80, dtype=torch.int64)).shape
torch.Size([2, 80, 100])
>>> backbone("vgg", embedding_dim=128, input_shape=(28, 28, 1))
Traceback (most recent call last):
...
sfumato._check.InputError: model must be one of lenet, mobilenet_v2, resnet18, resnet20, resnet50, \
squeezenet, mobilefacenet, got vgg; or package.module:factory for a torch module of your own
>>> classifier("bilstm", 4, [(28, 28, 1)], vocabulary_size=100)
Traceback (most recent call last):
...
sfumato._check.InputError: bilstm reads token ids of shape (T,), got input shapes (28, 28, 1); \
for images take lenet5, lenet300_100, resnet18, resnet20, wrn16_4 or scatternet
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from sfumato._check import InputError, one_of, whole
from sfumato._random import RandomSource
from sfumato.models.check import refuse_no_values
from sfumato.models.layers import GroupOrNone, Stem
from sfumato.models.lenets import lenet, lenet5, lenet300_100
from sfumato.models.mobile_facenet import mobilefacenet
from sfumato.models.mobilenet import mobilenet_v2
from sfumato.models.recommenders import Recommender, matrix_factorization, neural_collaborative_filtering
from sfumato.models.resnet import (
    resnet18,
    resnet18_classifier,
    resnet20,
    resnet20_classifier,
    resnet50,
)
from sfumato.models.scatternet import scatternet_linear
from sfumato.models.squeeze_net import squeezenet
from sfumato.models.table import ctr_model, dlrm
from sfumato.models.text import bilstm_classifier, lstm, transformer, transformer_classifier
from sfumato.models.wide_resnet import wrn16_4

Gives = Literal["embedding", "classes", "values", "tokens"]
"""What a network gives: an embedding, a number for each class, a value of an item, a number for each next token."""

Reads = Literal["pictures", "pictures of one size", "numbers", "tokens", "table", "items"]
"""What a network reads."""


@dataclass(frozen=True)
class Network:
    """A network of the catalogue.

    Attributes:
        build: its function.
        reads: what it reads.
    """

    build: Callable[..., Any]
    reads: Reads

    @property
    def options(self) -> dict[str, bool]:
        """The keyword arguments of its function but for the generator; True for one without a default."""
        parameters = inspect.signature(self.build).parameters.values()
        keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY and each.name != "generator"]
        return {each.name: each.default is each.empty for each in keywords}

    def refuse_unknown(self, name: str, options: Collection[str], from_data: Collection[str] = ()) -> None:
        """Refuse options that its function lacks, or that follow `from_data`."""
        known = self.options.keys() - from_data
        for option in options:
            if option not in known:
                raise InputError(f"{name} has no option {option}; it has {', '.join(sorted(known))}")


NETWORKS: dict[Gives, dict[str, Network]] = {
    "embedding": {
        "lenet": Network(lenet, "pictures of one size"),
        "mobilenet_v2": Network(mobilenet_v2, "pictures"),
        "resnet18": Network(resnet18, "pictures"),
        "resnet20": Network(resnet20, "pictures"),
        "resnet50": Network(resnet50, "pictures"),
        "squeezenet": Network(squeezenet, "pictures"),
        "mobilefacenet": Network(mobilefacenet, "pictures of one size"),
    },
    "classes": {
        "lenet5": Network(lenet5, "pictures of one size"),
        "lenet300_100": Network(lenet300_100, "numbers"),
        "resnet18": Network(resnet18_classifier, "pictures"),
        "resnet20": Network(resnet20_classifier, "pictures"),
        "wrn16_4": Network(wrn16_4, "pictures"),
        "scatternet": Network(scatternet_linear, "pictures of one size"),
        "bilstm": Network(bilstm_classifier, "tokens"),
        "transformer": Network(transformer_classifier, "tokens"),
        "ctr": Network(ctr_model, "table"),
        "dlrm": Network(dlrm, "table"),
    },
    "values": {
        "matrix_factorization": Network(matrix_factorization, "items"),
        "neural": Network(neural_collaborative_filtering, "items"),
    },
    "tokens": {
        "lstm": Network(lstm, "tokens"),
        "transformer": Network(transformer, "tokens"),
    },
}
"""By what they give and by name; resnet18, resnet20 and transformer give either of two."""

_LENET_SIDE, _RESNET_SIDE = 32, 64  # pixels: the longest side of pictures that these networks are usual for


def usual_network(gives: Gives, reads: Reads, shape: Sequence[int] = ()) -> str:
    """The network that is taken where none is chosen: a small one that trains in minutes on a processor.

    Args:
        gives: what it has to give.
        reads: what it is to read.
        shape: of a picture, (H, W, C): small ones in grey, larger or coloured ones, large ones.

    >>> usual_network("classes", "table"), usual_network("classes", "pictures", (28, 28, 1))
    ('ctr', 'lenet5')
    >>> usual_network("classes", "pictures", (32, 32, 3)), usual_network("embedding", "pictures", (112, 112, 3))
    ('resnet20', 'mobilenet_v2')
    """
    if gives in ("values", "tokens") or reads == "items":
        return "lstm" if gives == "tokens" else "matrix_factorization"
    if reads in ("table", "tokens", "numbers"):
        return {"table": "ctr", "tokens": "bilstm", "numbers": "lenet300_100"}[reads]
    side = max(shape[:2], default=0)
    if side <= _LENET_SIDE and (len(shape) < 3 or shape[2] == 1):
        return "lenet5" if gives == "classes" else "lenet"
    return "mobilenet_v2" if side > _RESNET_SIDE and gives == "embedding" else "resnet20"


BACKBONES = tuple(NETWORKS["embedding"])
"""The names that `backbone` knows."""

CLASSIFIERS = tuple(NETWORKS["classes"])
"""The names that `classifier` knows."""

RECOMMENDERS = tuple(NETWORKS["values"])
"""The names that `recommender` knows."""

LANGUAGE_MODELS = tuple(NETWORKS["tokens"])
"""The names that `language_model` knows."""

_SHAPES: dict[Reads, str] = {
    "pictures": "images of shape (height, width) or (height, width, channels)",
    "pictures of one size": "images of shape (height, width) or (height, width, channels)",
    "numbers": "numbers of any shape",
    "tokens": "token ids of shape (T,)",
    "table": "numbers of shape (a,) and categories of shape (b,)",
}
_SMALL = 64  # pixels: below it, a stem that shrinks the image by 4 leaves almost nothing to see


def backbone(
    name: str,
    *,
    embedding_dim: int,
    input_shape: Sequence[int],
    stem: Stem | None = None,
    normalisation: GroupOrNone = "group",
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Build a backbone that maps float [n, C, H, W] to embeddings, float [n, embedding_dim].

    Args:
        name: one of `BACKBONES`.
        embedding_dim: dimensions of the embedding, >= 1.
        input_shape: (height, width, channels) as a data set stores its images; (height, width) means grey.
        stem: "imagenet" or "small"; None takes "small" for images below 64 pixels. LeNet and MobileFaceNet have no
            choice.
        normalisation: "group", or "none" for weights with folded batch norm. LeNet, SqueezeNet and MobileFaceNet have
            none either way.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: the name is unknown, or the shape is not that of an image.
    """
    network = _network(name, "embedding")
    if len(input_shape) not in (2, 3):
        raise InputError(
            f"{name} reads images of shape (height, width, channels), got input_shape={tuple(input_shape)}; "
            "for other data bring your own torch module"
        )
    height, width, channels = (*input_shape, 1)[:3]
    whole(height=height, width=width, channels=channels)
    sizes, derived = _from_shapes(name, network, [(height, width, channels)])
    chosen = {"normalisation": normalisation} | ({} if stem is None else {"stem": stem})
    options = {key: value for key, value in (derived | chosen).items() if key in network.options}
    return network.build(embedding_dim, *sizes, generator=generator, **options)


def classifier(
    name: str,
    num_classes: int,
    input_shapes: Sequence[Sequence[int]],
    *,
    generator: torch.Generator | None = None,
    **options: Any,
) -> nn.Module:
    """Build a classifier for a data set.

    Args:
        name: one of `CLASSIFIERS`.
        num_classes: outputs, >= 1.
        input_shapes: the shape of one example of each input, as the data set stores it: [(height, width, channels)] or
            [(height, width)] for images, [(T,)] for texts, [(a,), (b,)] for tables.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.
        options: keyword arguments of the model's own function (`lenet5`, `bilstm_classifier`, ...), such as
            normalisation; what follows from the shapes (channels, image_size, max_length, columns) need not be given.
            Texts and tables need their public sizes: vocabulary_size and vocabulary_sizes.

    Raises:
        InputError: the name or an option is unknown, the shapes are not what the model reads, or an option is missing.
    """
    network = _network(name, "classes")
    shapes = [tuple(shape) for shape in input_shapes]
    for shape in shapes:
        for side in shape:  # a table may have categories alone
            whole(at_least=0 if network.reads == "table" else 1, input_shapes=side)
    network.refuse_unknown(name, options)
    sizes, derived = _from_shapes(name, network, shapes)
    missing = [option for option, needed in network.options.items() if needed and option not in options]
    if missing:
        raise InputError(f"{name} needs {missing[0]}=..., a public number that is not counted from private data")
    rows = options.get("vocabulary_sizes")
    if rows is not None and not isinstance(rows, int) and len(rows) != derived["columns"]:
        raise InputError(
            f"vocabulary_sizes must be one number or one for each of the {derived['columns']} categorical columns, "
            f"got {len(rows)}"
        )
    return network.build(num_classes, *sizes, generator=generator, **(derived | options))


def recommender(name: str, items: int, *, generator: torch.Generator | None = None, **options: Any) -> Recommender:
    """Build a recommender for a data set of values.

    Args:
        name: one of `RECOMMENDERS`.
        items: how many can be rated; public.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.
        options: keyword arguments of the model's own function (`matrix_factorization`,
            `neural_collaborative_filtering`), such as factors.

    Raises:
        InputError: the name or an option is unknown, or its value is out of range.
    """
    network = _network(name, "values", ", which gives values [n] of items [n, 1]")
    network.refuse_unknown(name, options)
    return network.build(items, generator=generator, **options)


def language_model(
    name: str, vocabulary_size: int, length: int, *, generator: torch.Generator | None = None, **options: Any
) -> nn.Module:
    """Build a language model for a data set of sequences.

    Args:
        name: one of `LANGUAGE_MODELS`.
        vocabulary_size: ids, with padding; public.
        length: tokens in the longest sequence.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.
        options: keyword arguments of the model's own function (`lstm`, `transformer`), such as hidden.

    Raises:
        InputError: the name or an option is unknown, or its value is out of range.
    """
    network = _network(name, "tokens", f", which gives logits [n, T, {vocabulary_size}] of token ids [n, T]")
    sizes = {"vocabulary_size": vocabulary_size, "max_length": length}
    network.refuse_unknown(name, options, from_data=sizes)
    read = {key: value for key, value in sizes.items() if key in network.options}
    return network.build(**read, generator=generator, **options)


def _network(name: str, gives: Gives, output_note: str = "") -> Network:
    """The network of a name.

    Args:
        name: the name.
        gives: what it is to give.
        output_note: what a custom module must give, for the message.

    Raises:
        InputError: none has this name.
    """
    one_of(NETWORKS[gives], model=name, remedy=f"or package.module:factory for a torch module of your own{output_note}")
    return NETWORKS[gives][name]


def _from_shapes(name: str, network: Network, shapes: list[tuple[int, ...]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the shapes say: positional arguments after the number of outputs, and options."""
    match network.reads, [len(shape) for shape in shapes]:
        case "pictures" | "pictures of one size", [2 | 3]:
            height, width, channels = (*shapes[0], 1)[:3]
            if network.reads == "pictures of one size":
                return (channels, (height, width)), {}
            stem = {"stem": "small" if min(height, width) < _SMALL else "imagenet"}
            return (channels,), stem if "stem" in network.options else {}
        case "numbers", [rank] if rank:
            return (int(torch.Size(shapes[0]).numel()),), {}
        case "tokens", [1]:
            return (), {"max_length": shapes[0][0]} if "max_length" in network.options else {}
        case "table", [1, 1]:
            return (), {"numeric": shapes[0][0], "columns": shapes[1][0]}
        case _, ranks:
            found = ", ".join(map(str, shapes)) or "none"
            raise InputError(f"{name} reads {_SHAPES[network.reads]}, got input shapes {found}; {_remedy(ranks)}")


def _remedy(ranks: list[int]) -> str:
    """Which classifiers read inputs of so many dimensions."""
    if ranks in ([2], [3]):
        return f"for images take {_that_read('pictures', 'pictures of one size', 'numbers')}"
    if ranks == [1]:
        return f"for texts take {_that_read('tokens')}, for numbers {_that_read('numbers')}"
    return f"for tables take {_that_read('table')}" if ranks == [1, 1] else "for other data bring your own torch module"


def _that_read(*kinds: Reads) -> str:
    names = [name for name, network in NETWORKS["classes"].items() if network.reads in kinds]
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def is_custom_model(name: str) -> bool:
    """Whether a model is named by its module, and not by a word of ours."""
    return ":" in name


@contextmanager
def _working_folder_searched() -> Iterator[None]:
    """Modules are also looked for in the folder that the command runs in."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.path.pop(0)


def refuse_missing_module(name: str) -> None:
    """Refuse module:factory where there is no such module; no more is imported than the package that it is in.

    Raises:
        InputError: there is none.
    """
    module = name.partition(":")[0]
    try:
        with _working_folder_searched():
            missing = bool(module) and importlib.util.find_spec(module) is None
    except ImportError:
        missing = True
    except Exception:  # what the user's own package raises is reported when the model is made
        missing = False
    if missing:
        raise InputError(f"{name}: No module named {module!r}; give module:factory, and run it where the module is")


def custom_model(name: str, source: RandomSource) -> nn.Module:
    """Import the module and call the factory; the folder that the command runs in is searched too.

    Args:
        name: module:factory, for example networks.mine:resnet.
        source: of the run, for the weights that the factory draws from torch's generator.

    Raises:
        InputError: there is no such module or function, it fails, or it gives no module whose weights have shapes.
    """
    module, _, factory = name.partition(":")
    if not module or not factory:
        raise InputError(f"a model of your own must be module:factory, got {name!r}; for example networks:resnet")
    try:
        with _working_folder_searched():
            found = importlib.import_module(module)
            if not hasattr(found, factory):
                raise InputError(f"{name}: {module} has no {factory}; name a class or a function without arguments")
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(source.seed64("initial model"))
                made = getattr(found, factory)()
    except ModuleNotFoundError as error:
        raise InputError(f"{name}: {error}; give module:factory, and run it where the module is") from None
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's own module raises
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"{name} failed ({what}); it must give a model without arguments") from None
    if not isinstance(made, nn.Module):
        raise InputError(f"{name} gave a {type(made).__name__}, not a torch module; return the model")
    refuse_no_values(made)
    return made
