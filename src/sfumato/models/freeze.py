"""Which parameters are trained and noised: the rest stays as it was, and costs no noise.

The noise of a private sum grows with the square root of the number of its coordinates, so that training fewer
parameters of a pretrained backbone leaves a clearer signal. A spec is a word, words joined by "+", or a regular
expression over parameter names:

- "all": every parameter that requires a gradient;
- "norm": parameters of norm layers: torch's own, and any whose class name says so (`LayerNorm2d`, `MyRMSNorm`);
- "first", "last": the first and the last layer with a weight that is no norm layer, in the order of the module;
- "last_blocks:2": the last two blocks of a network that tells its stages (`sfumato.models.stages`): fire modules,
  bottlenecks, residual blocks. The embedding behind them is "last";
- anything else: a regular expression that may match anywhere in the name, as in "layer4|embedding";
- "norm+first", "norm+last", "last_blocks:2+embedding": words joined to each other and to regular expressions.
  "norm+last" is what the authors of DP-FedEmb train in a MobileNetV2 whose convolutions are frozen.

A parameter that does not require a gradient is never trained, whatever the spec says. `trainable_parameters` only
looks; `freeze` changes the module.

References:
    Xu et al. (2022), arXiv 2211.10844: partial training of backbones.

>>> from sfumato.models import lenet, resnet18
>>> [name for name, _ in trainable_parameters(lenet(), "first+last")]
['conv1.weight', 'conv1.bias', 'embedding.weight', 'embedding.bias']
>>> sum(parameter.numel() for _, parameter in trainable_parameters(resnet18(), "norm"))
9600
>>> [name for name, _ in trainable_parameters(lenet(), "last_blocks:1+embedding")]
['conv2.weight', 'conv2.bias', 'embedding.weight', 'embedding.bias']
"""

import re

from torch import nn

from sfumato._check import InputError
from sfumato.models.stages import last_blocks

_WORDS = ("all", "norm", "first", "last")
_LAST_BLOCKS = re.compile(r"last_blocks:(\d+)")


def trainable_parameters(model: nn.Module, spec: str) -> list[tuple[str, nn.Parameter]]:
    """List the parameters that a spec names, in the order of the module; the module is not changed.

    Args:
        model: any torch module.
        spec: "all", "norm", "first", "last", "last_blocks:K", a regular expression that is found anywhere in a name
            (`^conv1` for its beginning), or some of these words joined by "+", also to regular expressions.

    Returns:
        (name, parameter) pairs; a parameter that is shared by layers is listed once, under its first name.

    Raises:
        InputError: the spec is empty or not a regular expression, or a part of it names no parameter that requires a
            gradient.
    """
    candidates = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not spec.strip():  # as a regular expression it would match every name
        raise InputError(f"trainable: {spec!r} says nothing; for every parameter write all")
    parts = spec.split("+")
    if not all(parts) or not any(_is_word(part) for part in parts):
        parts = [spec]  # a regular expression, in which "+" means more than one
    wanted = {id(p) for _, p in candidates}
    chosen = set[int]()
    for part in parts:
        named = wanted & {id(p) for p in _chosen(model, part, candidates)}
        if not named:  # also beside others that name some: it would be left out without a word
            if part != spec and candidates:
                raise InputError(f"trainable: {part!r} in {spec!r} names no parameter of this model; leave it out")
            raise InputError(f"trainable: {part!r} names no parameter to train; {_examples(model, candidates)}")
        chosen |= named
    return [(name, p) for name, p in candidates if id(p) in chosen]


def freeze(model: nn.Module, spec: str) -> list[tuple[str, nn.Parameter]]:
    """Keep only the parameters that a spec names trainable, in place: the others stop requiring a gradient.

    Args:
        model: any torch module; its `requires_grad` flags change.
        spec: as for `trainable_parameters`.

    Returns:
        the parameters that stay trainable, as (name, parameter) pairs.

    Raises:
        InputError: as `trainable_parameters`; the module is then unchanged.
    """
    kept = trainable_parameters(model, spec)
    ids = {id(parameter) for _, parameter in kept}
    for parameter in model.parameters():
        if id(parameter) not in ids:
            parameter.requires_grad_(False)
    return kept


def _is_norm(layer: nn.Module) -> bool:
    return "norm" in type(layer).__name__.lower()


def _is_word(part: str) -> bool:
    return part in _WORDS or _LAST_BLOCKS.fullmatch(part) is not None


def _chosen(model: nn.Module, part: str, candidates: list[tuple[str, nn.Parameter]]) -> list[nn.Parameter]:
    """What a word or a regular expression names."""
    if blocks := _LAST_BLOCKS.fullmatch(part):
        return last_blocks(model, int(blocks[1]))
    if part in _WORDS:
        return _parameters(model, part)
    if part.startswith("last_blocks:"):
        raise InputError(f"trainable: last_blocks takes a number of blocks, such as last_blocks:2, got {part!r}")
    try:
        pattern = re.compile(part)
    except re.error as error:
        raise InputError(
            f"trainable: {part!r} is neither {', '.join(_WORDS)}, last_blocks:K (joined by +) nor a regular "
            f"expression: {error}"
        ) from None
    return [p for name, p in candidates if pattern.search(name)]


def _parameters(model: nn.Module, word: str) -> list[nn.Parameter]:
    if word == "all":
        return list(model.parameters())
    if word == "norm":
        return [p for layer in model.modules() if _is_norm(layer) for p in layer.parameters()]
    weighted = [layer for layer in model.modules() if not _is_norm(layer) and list(layer.parameters(recurse=False))]
    return list(weighted[0 if word == "first" else -1].parameters(recurse=False)) if weighted else []


def _examples(model: nn.Module, candidates: list[tuple[str, nn.Parameter]]) -> str:
    names = [name for name, _ in candidates]
    if not names:
        return "no parameter of the model requires a gradient"
    step = max(1, len(names) // 5)
    return f"the model has {len(names)}, for example {', '.join(names[::step][:5])}"
