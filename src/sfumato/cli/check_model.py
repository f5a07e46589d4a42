"""`sfumato check-model`: how each layer of a model is covered, what is refused and why, and what an example costs.

Nothing is trained and no record is read: the inputs are zeros and ones of the shape that is given.
"""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from torch import nn

from sfumato import models
from sfumato._check import InputError, positive, whole
from sfumato.central import ExampleContribution
from sfumato.central.micro_batch import default_budget, suggested
from sfumato.cli.console import say, say_json, table
from sfumato.cli.model_options import check_device
from sfumato.cli.parse import CommonOptions, parse
from sfumato.clipping import ConstantClipNorm
from sfumato.clipping.per_example import layers_of, problems
from sfumato.data import ExampleDataset, examples_from_arrays
from sfumato.models import coupled_layers, freeze

_ABOUT = (
    "Show how each layer of a model is covered by the clipping of single examples, what is refused and what to use "
    "instead, and how much memory an example takes. No record is read."
)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(CommonOptions):
    """The model, and what it reads.

    Attributes:
        model: a classifier's name (lenet5, resnet20, bilstm, …), or module:factory, an importable function without
            arguments that gives a torch module; the folder that you are in is searched too.
        kind: what an example is: a picture, ids (words), or numbers.
        shape: of an example: height, width and channels of a picture, or how many ids or numbers.
        classes: number of classes.
        vocabulary: for ids: how many there are.
        trainable: "all", "norm", "norm+first" or a regular expression on parameter names.
        memory_budget: MiB for a micro-batch; None for half of the free memory of a GPU, 512 on a CPU.
        device: cpu, cuda, or cuda:1.
    """

    model: Annotated[str, tyro.conf.Positional]
    kind: Literal["picture", "ids", "numbers"] = "picture"
    shape: tuple[int, ...] = (28, 28, 1)
    classes: int = 10
    vocabulary: int = 1 << 15
    trainable: str = "all"
    memory_budget: float | None = None
    device: str = "cpu"


def check_model(argv: Sequence[str]) -> int:
    """Run `sfumato check-model`; 0 if the model can be trained, 2 if something in it is refused."""
    options = parse(CheckOptions, argv, command="check-model", about=_ABOUT)
    whole(classes=options.classes, vocabulary=options.vocabulary)
    for side in options.shape:
        whole(shape=side)
    if options.memory_budget is not None:
        positive(memory_budget=options.memory_budget)
    check_device(options.device)
    model = _model(options).train()
    refused = dict(problems(model))
    for name, layer, what in coupled_layers(model):
        refused.setdefault(name or type(layer).__name__, f"{type(layer).__name__} {what}; use group norm")
    if any(parameter.requires_grad for parameter in model.parameters()):
        freeze(model, options.trainable)
    rows = [
        (layer.name or "(the model)", type(layer.module).__name__, _count(layer.module, layer.wanted), layer.rule.path)
        for layer in layers_of(model)
        if layer.name not in refused
    ]
    cost = None if refused else _cost(model, options)
    if options.json:
        layers = [dict(zip(("name", "kind", "parameters", "path"), row)) for row in rows]
        say_json({"layers": layers, "refused": refused, **(cost or {})})
        return 2 if refused else 0
    table(["layer", "kind", "parameters", "covered by"], [[a, b, f"{c:,}", d] for a, b, c, d in rows])
    if cost is None:
        say()
        table(["refused", "why, and what to use instead"], [[name, reason] for name, reason in refused.items()])
        raise InputError(f"{_layers(len(refused))} cannot be trained privately; replace what is refused")
    each, budget = cost["bytes_per_example"] / 2**20, cost["memory_budget"] / 2**20
    say(
        f"\n{cost['parameters']:,} parameters are trained and noised. An example takes about {each:.2g} MiB; "
        f"a micro-batch of {cost['micro_batch']:,} fits into {budget:.0f} MiB."
    )
    return 0


def _layers(count: int) -> str:
    return f"{count} layer{'s' * (count != 1)}"


def _cost(model: nn.Module, options: CheckOptions) -> dict[str, int]:
    """What one example takes; refuses what only a trial shows."""
    device = torch.device(options.device)
    budget = default_budget(device) if options.memory_budget is None else int(options.memory_budget * 2**20)
    contribution = ExampleContribution(
        model=model,
        data=_examples(options),
        bound=ConstantClipNorm(clip_norm=1.0),
        memory_budget=budget,
        device=options.device,
    )
    return {
        "parameters": contribution.flat.vector.numel(),
        "bytes_per_example": contribution.bytes_per_example,
        "micro_batch": suggested(contribution.bytes_per_example, budget),
        "memory_budget": budget,
    }


def _count(module: nn.Module, wanted: frozenset[str]) -> int:
    return sum(module.get_parameter(name).numel() for name in wanted)


def _model(options: CheckOptions) -> nn.Module:
    if ":" not in options.model:
        text = options.model in ("bilstm", "transformer")
        sizes: dict[str, Any] = {"vocabulary_size": options.vocabulary} if text else {}
        return models.classifier(options.model, options.classes, [options.shape], **sizes)
    module, _, factory = options.model.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
        if not hasattr(found, factory):
            raise InputError(f"{options.model}: {module} has no {factory}; name a function without arguments")
        made = getattr(found, factory)()
    except ModuleNotFoundError as error:
        raise InputError(f"{options.model}: {error}; give module:factory, and run it where the module is") from None
    except InputError:
        raise
    except Exception as error:  # whatever the user's own module raises
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"{options.model} failed ({what}); the function must give a model without arguments") from None
    finally:
        sys.path.pop(0)
    if not isinstance(made, nn.Module):
        raise InputError(f"{options.model} gave a {type(made).__name__}, not a torch module")
    return made


def _examples(options: CheckOptions) -> ExampleDataset:
    """Two examples that differ."""
    types = {"picture": np.uint8, "ids": np.int64, "numbers": np.float32}
    inputs = np.zeros((2, *options.shape), types[options.kind])
    inputs[1] = 1
    return examples_from_arrays(inputs, np.zeros(2, np.int64), num_classes=options.classes)
