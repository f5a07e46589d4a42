"""A network as stages that run one after the other: where it can be cut in two, and which are its last blocks.

A stage tells which modules it runs and how; it uses nothing else of the network. All stages in turn compute what the
network computes. The backbones of this package, `nn.Sequential` (also within each other) and any module with a method
`stages()` that gives `Stage`s have them.

>>> import torch
>>> from sfumato.models import squeezenet
>>> [stage.name for stage in stages_of(squeezenet(64))][-4:]
['features.11', 'features.12', 'pool', 'embedding']
>>> part = Part(squeezenet(64), stages_of(squeezenet(64))[-2:])
>>> part(torch.zeros(2, 512, 6, 6)).shape, list(part.state_dict())
(torch.Size([2, 64]), ['embedding.weight', 'embedding.bias'])
"""

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
        name: for people.
        parts: names of the modules that it runs, within the network.
        run: from what the stage before gave, [n, …], and these modules in their order, to what it gives, [n, …].
        block: whether `last_blocks` counts it: a block with weights that is not the embedding.
    """

    name: str
    parts: tuple[str, ...] = ()
    run: Callable[..., Tensor] = _run
    block: bool = False

    def modules(self, network: nn.Module) -> list[nn.Module]:
        """Those that it runs."""
        return [network.get_submodule(part) for part in self.parts]

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
        names = {name for stage in stages for name in stage.parts}
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
        InputError: it does not tell them.
    """
    if type(network).forward is nn.Sequential.forward:
        return tuple(_flat(network, ""))
    tell = getattr(network, "stages", None)
    if not callable(tell):
        raise InputError(
            f"a {type(network).__name__} does not tell its stages, so nobody knows where it can be cut; take one of "
            "the backbones, nn.Sequential, or give the class a method stages() that returns sfumato.models.Stage"
        )
    found = tell()
    if not isinstance(found, Sequence) or not found or not all(isinstance(stage, Stage) for stage in found):
        raise InputError(f"{type(network).__name__}.stages() must give a list of sfumato.models.Stage")
    return tuple(found)


def last_blocks(network: nn.Module, count: int) -> list[nn.Parameter]:
    """The parameters of the last blocks of a network.

    Args:
        network: any with stages.
        count: how many blocks, >= 1.

    Raises:
        InputError: the network does not tell its stages, or has fewer blocks.
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
        Stage(f"{under}.{stage.name}", tuple(f"{under}.{part}" for part in stage.parts), stage.run, stage.block)
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
