"""`sfumato check-model`: how each layer of a model is covered, what is refused and why, and what an example costs.

Nothing is trained. With --data the model is tried out on the records, exactly as `sfumato dpsgd` does before its first
step, so what is approved here trains there. Without, no record is read: the inputs are zeros and ones of the shape that
is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

from sfumato import models
from sfumato._check import InputError, positive, whole
from sfumato._lazy import torch
from sfumato.cli.console import Answer, Table
from sfumato.cli.models import ClassifierOptions, build_classifier, check_device, reads
from sfumato.cli.parse import CommonOptions
from sfumato.cli.sources import ExampleDataOptions, ExampleParts, read_example_parts

if TYPE_CHECKING:
    from torch import nn

    from sfumato.central import ExampleContribution
    from sfumato.data import ExampleDataset
    from sfumato.per_example.rule import Layer


_READ = {"pictures": "picture", "pictures of one size": "picture", "tokens": "ids", "table": "table"}
_PICTURE = (28, 28, 1)
_SHAPES = {"picture": "28 28 1", "ids": "128", "table": "13 26", "numbers": "13"}


@dataclass(frozen=True, kw_only=True)
class CheckedModel(ClassifierOptions):
    """The classifier.

    Attributes:
        model: a classifier's name (lenet5, resnet20, bilstm, …), or package.module:factory, an importable class or
            function without arguments that gives a torch module; the folder that you are in is searched too.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = field()


@dataclass(frozen=True, kw_only=True)
class CheckOptions(CommonOptions):
    """Show how each layer of a model is covered by the clipping of single examples. What is refused is named, with what
    to use instead, and so is the memory that an example takes. With --data the model is tried on these records, as a
    run does before its first step. Without it, no record is read.

    Attributes:
        kind: without --data, what an example is. It is a picture (the default), ids (words), numbers, or a row of a
            table (numbers and ids).
        shape: without --data, of an example: height, width and channels of a picture, 28 28 1 if left out. Else how
            many ids or numbers, or how many of both.
        trainable: "all", "norm", "norm+first" or a regular expression on parameter names.
        memory_budget: MiB for a micro-batch; None for half of the free memory of a GPU, 512 on a CPU.
        device: cpu, cuda, or cuda:1.
        network: The classifier.
        data: The records to try it on; without --data, how many classes and ids there are.
    """

    kind: Literal["picture", "ids", "numbers", "table"] | None = None
    shape: tuple[int, ...] | None = None
    trainable: str = "all"
    memory_budget: float | None = None
    device: str = "cpu"
    network: CheckedModel
    data: ExampleDataOptions


def check_model(options: CheckOptions) -> Answer:
    """Exit code 0 if the model can be trained, 2 if something in it is refused."""
    from sfumato.models import freeze
    from sfumato.per_example import layers_of, problems

    _check(options)
    parts = None if options.data.data is None else read_example_parts(options.data, quiet=True)
    data = _imagined(options) if parts is None else parts.train
    model = _model(options, data).train()
    refused = dict(problems(model))
    if any(parameter.requires_grad for parameter in model.parameters()):
        freeze(model, options.trainable)
    rows = [
        (layer.name or "(the model)", type(layer.module).__name__, _count(layer.module, layer.wanted), _path(layer))
        for layer in layers_of(model)
        if layer.name not in refused
    ]
    cost = None if refused else _cost(model, data, parts, options)
    layers = [dict(zip(("name", "kind", "parameters", "path"), row)) for row in rows]
    lines: list[str | Table] = []
    if rows:
        cells = [[a, b, f"{c:,}", d] for a, b, c, d in rows]
        lines.append(Table(["layer", "kind", "parameters", "covered by"], cells))
    if cost is not None:
        return Answer({"layers": layers, "refused": refused, **cost}, [*lines, _in_words(cost)])
    return Answer({"layers": layers, "refused": refused}, [*lines, *_refused(refused)], 2, _remedy(model, refused))


def _refused(refused: Mapping[str, str]) -> list[str | Table]:
    rows = [[name, *reason.rpartition("; use ")[::2]] for name, reason in refused.items()]
    return ["", Table(["refused", "why", "use instead"], rows)]


def _remedy(model: nn.Module, refused: Mapping[str, str]) -> str:
    from sfumato.models import fix_model

    known = fix_model(model)[1]
    at_once = f" (models.fix_model(model) replaces {len(known)} of them)" if known else ""
    return f"{_layers(len(refused))} cannot be trained privately; replace what is refused{at_once}"


def _check(options: CheckOptions) -> None:
    if options.memory_budget is not None:
        positive(memory_budget=options.memory_budget)
    check_device(options.device)
    if options.data.data is not None:
        if options.kind is not None or options.shape is not None:
            raise InputError("--kind and --shape are for a model without --data, which has both; leave them out")
        return
    if options.data.num_classes is not None:
        whole(num_classes=options.data.num_classes)
    whole(vocabulary=options.data.vocabulary)
    kind, shape = options.kind or "picture", options.shape if options.shape is not None else _PICTURE
    for side in shape:
        whole(shape=side)
    read = _READ.get(reads(options.network.model) or "", kind)
    if read != kind:
        raise InputError(
            f"{options.network.model} reads --kind {read}, got {kind}; give --kind {read} --shape {_SHAPES[read]}, for "
            "example"
        )
    sides = {"picture": (2, 3), "ids": (1,), "table": (2,)}.get(kind)
    if not shape or (sides and len(shape) not in sides):
        given = " ".join(map(str, shape)) or "nothing"
        raise InputError(f"shape must be like {_SHAPES[kind]} for --kind {kind}, got {given}")


def _path(layer: Layer[Any]) -> str:
    """How a layer is covered, and when that is slow."""
    from torch import nn

    remarks = {
        nn.LSTM: "slower for packed sequences and under bfloat16",
        nn.GRU: "each step through autograd, slower than an LSTM",
        nn.RNN: "each step through autograd, slower than an LSTM",
    }
    remark = next((text for kind, text in remarks.items() if isinstance(layer.module, kind)), "")
    return f"{layer.rule.path} ({remark})" if remark else layer.rule.path


def _in_words(cost: dict[str, int]) -> str:
    """What a micro-batch takes, in words."""
    each, budget = cost["bytes_per_example"] / 2**20, cost["memory_budget"] / 2**20
    fits = (
        f"a micro-batch of {cost['micro_batch']:,} fits into {budget:,.0f} MiB"
        if cost["bytes_per_example"] <= cost["memory_budget"]
        else f"that is more than {budget:,.3g} MiB, so examples go through one by one"
    )
    return (
        f"\n{cost['parameters']:,} parameters are trained and noised. An example takes about {each:.2g} MiB next to "
        f"the model; {fits}. Batches of any size take the memory of one micro-batch."
    )


def _layers(count: int) -> str:
    return f"{count} layer{'s' * (count != 1)}"


def _cost(model: nn.Module, data: ExampleDataset, parts: ExampleParts | None, options: CheckOptions) -> dict[str, int]:
    """What one example takes; refuses what only a trial shows."""

    from sfumato.central import DPSGD, ExampleContribution
    from sfumato.central.example_training import ExampleTraining
    from sfumato.central.gradients import default_budget
    from sfumato.training import RunOptions

    device = torch.device(options.device)
    budget = default_budget(device) if options.memory_budget is None else int(options.memory_budget * 2**20)

    def contribute(model: nn.Module, data: ExampleDataset, device: str, head_seed: int) -> ExampleContribution:
        mebibytes = None if options.memory_budget is None else max(1, int(options.memory_budget))
        examples = ExampleTraining(memory_budget=mebibytes)
        return ExampleContribution(
            model=model, data=data, trainable=options.trainable, examples=examples, device=device
        )

    if parts is None:
        contribution = contribute(model, data, options.device, 0)
    else:
        plan = DPSGD(trainable=options.trainable, cohort=1, noise=0.0)
        contribution = plan.try_out(
            model,
            data,
            validation=parts.validation,
            test=parts.test,
            options=RunOptions(device=options.device, contribution=contribute),
        )
    assert isinstance(contribution, ExampleContribution)
    return {
        "parameters": contribution.trained.vector.numel(),
        "bytes_per_example": contribution.bytes_per_example,
        "micro_batch": contribution.micro_batch,
        "memory_budget": budget,
    }


def _count(module: nn.Module, wanted: frozenset[str]) -> int:
    return sum(module.get_parameter(name).numel() for name in wanted)


def _model(options: CheckOptions, data: ExampleDataset) -> nn.Module:
    return build_classifier(options.network, data, None, load=True, quiet=True, reading=options.data)


def _imagined(options: CheckOptions) -> ExampleDataset:
    """Two examples that differ, of the kind and shape that were given."""
    from sfumato.data import examples_from_arrays

    kind, shape = options.kind or "picture", options.shape or _PICTURE
    types = {"picture": (np.uint8,), "ids": (np.int64,), "numbers": (np.float32,), "table": (np.float32, np.int64)}
    shapes = [(side,) for side in shape] if kind == "table" else [shape]
    inputs = tuple(np.zeros((2, *each), type) for each, type in zip(shapes, types[kind], strict=True))
    for each in inputs:
        each[1] = 1
    own = models.is_custom_model(options.network.model)  # without a number of classes, any number of logits will do
    columns = {"ids": 1, "table": shape[-1]}.get(kind, 0)
    return examples_from_arrays(
        inputs,
        np.zeros(2, np.int64),
        num_classes=options.data.num_classes or (1 if own else 10),
        vocabulary_sizes=(options.data.vocabulary,) * columns,
    )
