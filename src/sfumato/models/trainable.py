"""What of a network is trained: its stages, where it can be cut, and which parameters are frozen.

**Stages** run one after the other: they say where a network can be cut in two, and which are its last blocks. A stage
states which modules it runs and how; it uses nothing else of the network. All stages in turn compute what the network
computes. The backbones of this package, `nn.Sequential` (also within each other) and any module with a method
`stages()` that gives `Stage`s have them.

>>> import torch
>>> from sfumato.models import squeezenet
>>> [stage.name for stage in stages_of(squeezenet(64))][-4:]
['features.11', 'features.12', 'pool', 'embedding']
>>> part = Part(squeezenet(64), stages_of(squeezenet(64))[-2:])
>>> part(torch.zeros(2, 512, 6, 6)).shape, list(part.state_dict())
(torch.Size([2, 64]), ['embedding.weight', 'embedding.bias'])

**Parameters** that are not trained stay as they were, and cost no noise. The noise of a private sum grows with the
square root of the number of its coordinates, so that training fewer parameters of a pretrained backbone leaves a
clearer signal. A spec is a word, words joined by "+", or a regular expression over parameter names:

- "all": every parameter that requires a gradient;
- "norm": parameters of norm layers: torch's own, and any whose class name says so (`LayerNorm2d`, `MyRMSNorm`);
- "first", "last": the first and the last layer with a weight that is no norm layer, in the order of the module;
- "last_blocks:2": the last two blocks of a network that lists its stages (`sfumato.models.trainable`): fire modules,
  bottlenecks, residual blocks. The embedding after them is "last";
- anything else: a regular expression that may match anywhere in the name, as in "layer4|embedding";
- "norm+first", "norm+last", "last_blocks:2+embedding": words joined to each other and to regular expressions.
  "norm+last" is what the authors of DP-FedEmb train in a MobileNetV2 whose convolutions are frozen.

A parameter that does not require a gradient is never trained, whatever the spec says. `trainable_parameters` only
looks; `freeze` changes the module.

>>> from sfumato.models import lenet, resnet18
>>> [name for name, _ in trainable_parameters(lenet(), "first+last")]
['conv1.weight', 'conv1.bias', 'embedding.weight', 'embedding.bias']
>>> sum(parameter.numel() for _, parameter in trainable_parameters(resnet18(), "norm"))
9600
>>> [name for name, _ in trainable_parameters(lenet(), "last_blocks:1+embedding")]
['conv2.weight', 'conv2.bias', 'embedding.weight', 'embedding.bias']

References:
    Xu et al. (2022), arXiv 2211.10844: partial training of backbones.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from sfumato._check import InputError


def _run(x: Tensor, part: nn.Module) -> Tensor:
    return part(x)


@dataclass(frozen=True)
class Stage:
    """A step of a network.

    Attributes:
        name: to show.
        module_names: names of the modules that it runs, within the network.
        run: from what the stage before gave, [n, …], and these modules in their order, to what it gives, [n, …].
        block: whether `last_blocks` counts it: a block with weights that is not the embedding.
    """

    name: str
    module_names: tuple[str, ...] = ()
    run: Callable[..., Tensor] = _run
    block: bool = False

    def modules(self, network: nn.Module) -> list[nn.Module]:
        """Those that it runs."""
        return [network.get_submodule(part) for part in self.module_names]

    def __call__(self, network: nn.Module, x: Tensor) -> Tensor:
        """What it gives."""
        return self.run(x, *self.modules(network))


class Part(nn.Module):
    """Some stages of a network, over the same modules under the same names; a copy of it is independent.

    Args:
        network: the whole.
        stages: the stages of it that are run, in their order.
    """

    def __init__(self, network: nn.Module, stages: Sequence[Stage]) -> None:
        super().__init__()
        self._stages = tuple(stages)
        names = {name for stage in stages for name in stage.module_names}
        for name in (each for each in _in_order(network) if each in names):
            _attach(self, name.split("."), network.get_submodule(name))
        self.training = network.training  # of the modules themselves, each keeps its own

    def stages(self) -> tuple[Stage, ...]:
        """What it runs."""
        return self._stages

    def forward(self, x: Tensor) -> Tensor:
        """Run the stages, from [n, …] as the first of them takes it to [n, …] as the last one gives it."""
        for stage in self._stages:
            x = stage(self, x)
        return x


def stages_of(network: nn.Module) -> tuple[Stage, ...]:
    """The stages of a network, in the order in which they run.

    Raises:
        InputError: it does not list them.
    """
    if type(network).forward is nn.Sequential.forward:
        return tuple(_flat(network, ""))
    stages = getattr(network, "stages", None)
    if not callable(stages):
        raise InputError(
            f"a {type(network).__name__} does not list its stages, so it cannot be cut; take a backbone or "
            "nn.Sequential, or write stages(), which returns sfumato.models.Stage"
        )
    found = stages()
    if not isinstance(found, Sequence) or not found or not all(isinstance(stage, Stage) for stage in found):
        raise InputError(f"{type(network).__name__}.stages() must give a list of sfumato.models.Stage")
    return tuple(found)


def last_blocks(network: nn.Module, count: int) -> list[nn.Parameter]:
    """The parameters of the last blocks of a network.

    Args:
        network: any with stages.
        count: how many blocks, >= 1.

    Raises:
        InputError: the network does not list its stages, or has fewer blocks.
    """
    blocks = [stage for stage in stages_of(network) if stage.block]
    if not 1 <= count <= len(blocks):
        raise InputError(
            f"last_blocks must be from 1 to {len(blocks)}, the blocks of this {type(network).__name__}, got {count}"
        )
    return [p for stage in blocks[-count:] for module in stage.modules(network) for p in module.parameters()]


def renamed(stages: Sequence[Stage], under: str) -> tuple[Stage, ...]:
    """The same stages of a network that lies under a name in another one."""
    return tuple(
        Stage(f"{under}.{stage.name}", tuple(f"{under}.{part}" for part in stage.module_names), stage.run, stage.block)
        for stage in stages
    )


def _in_order(network: nn.Module) -> list[str]:
    """Names of all modules, those around others first; a module that is there twice has both of its names."""
    return [name for name, _ in network.named_modules(remove_duplicate=False)]


def _flat(sequence: nn.Module, under: str) -> Iterator[Stage]:
    for name, child in sequence._modules.items():
        path = f"{under}{name}"
        if child is None:
            continue
        if type(child) is nn.Sequential and not child._forward_hooks and not child._forward_pre_hooks:
            yield from _flat(child, f"{path}.")
        else:
            yield Stage(path, (path,), block=any(True for _ in child.parameters()))


def _attach(root: nn.Module, path: list[str], module: nn.Module) -> None:
    """Register a module under a dotted name, in bare modules in between."""
    *above, last = path
    for name in above:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    if root._modules.get(last) is not module:  # it may have come with one around it
        root.add_module(last, module)


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
        raise InputError(f"trainable: {spec!r} names nothing; for every parameter write all")
    parts = spec.split("+")
    if not all(parts) or not any(_is_word(part) for part in parts):
        parts = [spec]  # a regular expression, in which "+" means more than one
    wanted = {id(p) for _, p in candidates}
    chosen = set[int]()
    for part in parts:
        named = wanted & {id(p) for p in _chosen(model, part, candidates)}
        if not named:  # refused even where others name some: it would be ignored silently
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
