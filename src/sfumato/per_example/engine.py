"""Per-example gradient norms and clipped sums in one backward pass.

A `Recording` is a context around a forward and a backward pass of the user's own module. Within it, trained parameters
do not ask for gradients, so the backward pass skips their weight gradients; each covered layer shows its input and the
gradient of its output, and from these come per-example squared norms, and, once the weights are known, the weighted sum
of per-example gradients. On leaving, the module is as it was.

Unit: an example is one index of dimension 0 of the inputs and of the losses. An example whose gradient has NaN or Inf
counts as zero.

>>> model = nn.Linear(2, 1, bias=False)
>>> with Recording(covered(model)) as recording:
...     losses = model(torch.tensor([[3.0, 4.0], [0.0, 2.0]])).squeeze(1)
...     recording.backward(losses)
>>> recording.squared_norms().tolist()
[25.0, 4.0]
>>> [total.tolist() for total in recording.weighted_sum(torch.tensor([0.5, 0.25]))]
[[[1.5, 2.5]]]

The gradient of a layer's output is seen at a point of the graph that is the identity. Its second input, the anchor, is
what the backward pass is asked to reach: then every such point is passed, and nothing else is computed than what lies
between the loss and these points. Where the layer's input needs no gradient, the backward pass ends here.

How each layer is covered, or why it is refused, follows from its kind (`covered`):

>>> [(layer.name, type(layer.rule).__name__) for layer in covered(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))]
[('0', 'LinearRule')]
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from sfumato._check import InputError
from sfumato._torch import at_least_single, full_precision
from sfumato.models import PublicBatchNorm, WSConv2d, coupled_layers
from sfumato.models.row_embedding import RowEmbedding, RowEmbeddingBag
from sfumato.per_example.attention import AttentionRule
from sfumato.per_example.fallback import AroundFallbackRule, FallbackRule, WholeFallbackRule
from sfumato.per_example.layers import (
    ConvolutionRule,
    EmbeddingBagRule,
    EmbeddingRule,
    ExpandRule,
    GroupNormRule,
    InstanceNormRule,
    LayerNormRule,
    LinearRule,
    PublicBatchNormRule,
    RMSNormRule,
    RowEmbeddingBagRule,
    RowEmbeddingRule,
    StandardisedConvolutionRule,
)
from sfumato.per_example.recurrent import RecurrentRule
from sfumato.per_example.rule import Factor, Factors, Layer, OutputRule, Rows, Rule, joined
from sfumato.per_example.workspace import Shared, Workspace

# A point of the graph at which the gradient of a layer's output is seen, without a change to the layer.
#
# It is the identity. Its second input, the anchor, is what the backward pass is asked to reach: then every such point
# is passed, and nothing else is computed than what lies between the loss and these points. Where the layer's input
# needs no gradient, the backward pass ends here.


class ShowGradient(torch.autograd.Function):
    """Identity; hands the gradient to `see`."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, output: Tensor, anchor: Tensor, see: Callable) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.see = see  # type: ignore[attr-defined]
        return output.detach()  # the same memory and no view, so that the next layer may work in place

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.see(gradient)  # type: ignore[attr-defined]
        return (gradient if ctx.needs_input_grad[0] else None), None, None  # type: ignore[attr-defined]


class Recording:
    """One forward and backward pass, seen layer by layer.

    Args:
        layers: from `covered`.
        examples: B; needed only where the first layer computes something once for all examples.

    Attributes:
        parameters: the trained parameters, each once, in the order of `weighted_sum`.
        without_gradients: whether a layer ran under `no_grad`, as within a checkpoint of the reentrant kind.
    """

    def __init__(self, layers: Sequence[Layer[Any]], examples: int | None = None) -> None:
        self._layers = layers
        self._examples = examples
        self._places = [
            (layer, name, layer.module.get_parameter(name)) for layer in layers for name in sorted(layer.wanted)
        ]
        self.parameters = list({id(parameter): parameter for _, _, parameter in self._places}.values())
        self._workspace = layers[0].workspace if layers else Workspace()
        self._device = self.parameters[0].device if layers else torch.device("cpu")
        self._turn = 0
        self._uses: dict[int, int] = {}
        self._factors: dict[int, list[Factor]] = {}
        self._anchor = torch.zeros((), requires_grad=True)
        self._detach: list[Callable[[], None]] = []
        self._settled: dict[int, Factor] | None = None
        self._stage: Literal["forward", "backward"] | None = None
        self._seeing = False
        self.without_gradients = False
        self._fast_path = True

    def __enter__(self) -> "Recording":
        # in evaluation mode torch's transformer layers would go past their parts, as no parameter asks for a gradient
        self._fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        for parameter in self.parameters:
            parameter.requires_grad_(False)
        for layer in self._layers:
            self._detach.append(layer.rule.attach(layer, _LayerTap(self, layer)))
        self._turn = self._workspace.begin()
        self._stage = "forward"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stage = None
        torch.backends.mha.set_fastpath_enabled(self._fast_path)
        while self._detach:
            self._detach.pop()()
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    def backward(self, losses: Tensor) -> None:
        """Run the backward pass.

        Args:
            losses: float [B], one for each example.

        Raises:
            InputError: not one loss for each example, or no layer took part.
        """
        if isinstance(losses, Shared):
            raise InputError(
                f"the losses {list(losses.shape)} are equal for all examples, or computed from a parameter "
                "outside of its layer; call the layer, or freeze it"
            )
        if losses.dim() != 1:
            raise InputError(
                f"one loss for each example is needed, got shape {list(losses.shape)}; use reduction='none'"
            )
        self._examples = len(losses)
        if not losses.requires_grad:
            raise InputError(
                "the losses depend on no trained parameter; look for .detach(), no_grad() or a frozen part"
            )
        self._stage = "backward"
        if self.without_gradients:  # the reentrant kind of checkpoint wants this
            losses.sum().backward()
        elif torch.autograd.grad(losses.sum(), self._anchor, allow_unused=True)[0] is None and not self._factors:
            raise InputError(
                "the losses depend on no trained parameter through this forward pass; compute them from it, and "
                "look for .detach() or frozen parts"
            )
        self._stage = None
        keep = self._workspace.keep
        self._settled = {key: joined(found, keep) for key, found in self._factors.items()}
        self._factors = {}

    def squared_norms(self, group: Sequence[nn.Parameter] | None = None) -> Tensor:
        """Squared norm of each example's gradient, float [B]; NaN or inf for one that is not finite.

        Args:
            group: over these parameters only (per-layer clipping); None for all.
        """
        settled = self._ready()
        wanted = settled.keys() if group is None else {id(parameter) for parameter in group}
        with full_precision(self._device):
            norms = [factor.squared_norms().double() for key, factor in settled.items() if key in wanted]
        return torch.stack(norms).sum(dim=0) if norms else torch.zeros(self._examples or 0, dtype=torch.float64)

    def weighted_sum(self, weights: Tensor, group: Sequence[nn.Parameter] | None = None) -> list[Tensor]:
        """Sum over examples of weight times gradient, one tensor for each parameter.

        Args:
            weights: float [B]; a weight of 0 leaves an example out, whatever its gradient holds.
            group: of these parameters only (per-layer clipping), in their order; None for all.
        """
        settled = self._ready()
        absent = weights == 0
        drop = bool(absent.any())
        result = []
        with full_precision(self._device):
            for parameter in self.parameters if group is None else group:
                factor = settled.get(id(parameter))
                if factor is None:
                    result.append(torch.zeros_like(parameter))
                    continue
                result.append((factor.without(absent) if drop else factor).weighted_sum(weights).view(parameter.shape))
        return result

    def add_to(self, totals: Sequence[Tensor], weights: Tensor, group: Sequence[nn.Parameter] | None = None) -> None:
        """Add the weighted sum to running totals: an embedding's rows only, never its table.

        Args:
            totals: one for each parameter, in its shape; any floating type. They may hold noise already.
            weights: float [B], as in `weighted_sum`.
            group: the parameters that the totals belong to, in their order; None for all.
        """
        settled = self._ready()
        absent = weights == 0
        drop = bool(absent.any())
        with full_precision(self._device):
            for parameter, total in zip(self.parameters if group is None else group, totals, strict=True):
                factor = settled.get(id(parameter))
                if factor is not None:
                    (factor.without(absent) if drop else factor).add_to(total, weights)

    def rows_read(self, parameter: nn.Parameter) -> Tensor | None:
        """The rows of a table that each example reads, int64 [B, T], with repetitions; None for what is no table."""
        found = self._ready().get(id(parameter))
        return found.ids if isinstance(found, Rows) else None

    def unused(self) -> list[str]:
        """Names of trained parameters that the losses do not depend on; their gradients are zero."""
        settled = self._ready()
        return [
            f"{layer.name}.{name}" if layer.name else name
            for layer, name, parameter in self._places
            if id(parameter) not in settled
        ]

    def per_example(self) -> list[Tensor]:
        """The gradients themselves, float [B, *shape] for each parameter; for checks on small batches."""
        settled = self._ready()
        return [
            settled[id(parameter)].dense()
            if id(parameter) in settled
            else parameter.new_zeros(self._examples, *parameter.shape)
            for parameter in self.parameters
        ]

    def bytes_held(self) -> int:
        """Bytes that are kept for the weighted sum, shared memory counted once."""
        storages: dict[int, int] = {}
        waiting: list[object] = list(self._ready().values())
        while waiting:
            one = waiting.pop()
            if isinstance(one, Tensor):
                storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
            elif isinstance(one, Factor):
                waiting += vars(one).values()
        return sum(storages.values())

    def _ready(self) -> dict[int, Factor]:
        if self._turn != self._workspace.turn:
            raise InputError("another recording of these layers has begun; ask for norms and sums before that")
        if self._settled is None:
            raise InputError("call backward(losses) first, within the recording")
        return self._settled


class _LayerTap:
    """How a rule sees the gradients of one layer."""

    def __init__(self, recording: Recording, layer: Layer[Any]) -> None:
        self._recording = recording
        self._layer = layer
        self._keys = {name: id(layer.module.get_parameter(name)) for name in layer.wanted}

    @property
    def examples(self) -> int | None:
        return self._recording._examples

    @property
    def listening(self) -> bool:
        recording = self._recording
        if recording._stage is None or recording._seeing:  # a layer that a rule runs again is not another use
            return False
        if not torch.is_grad_enabled():
            recording.without_gradients |= recording._stage == "forward"
            return False
        return True

    def __call__(
        self, output: Tensor, factors: Callable[[Tensor], Factors], names: Collection[str] | None = None
    ) -> Tensor:
        recording = self._recording
        if not self.listening:
            return output
        if isinstance(output, Shared):
            raise InputError(
                f"layer {self._layer.name!r} takes what is computed once for all examples; give each its own first, "
                "by expand(len(inputs), …)"
            )
        if recording._examples is None:
            recording._examples = len(output) if output.dim() else None
        # What a checkpoint runs again is the same in shape, and its gradient is seen with the reentrant kind only; then
        # it is unknown beforehand whether other uses follow.
        uses = 1 if recording._stage == "forward" else 2
        for name in self._keys if names is None else names:
            if name in self._keys:
                recording._uses[self._keys[name]] = recording._uses.get(self._keys[name], 0) + uses

        def see(gradient: Tensor) -> None:
            if recording._stage != "backward":
                raise InputError(
                    "a backward pass went through the model by hand; call backward(losses) alone, which is the one "
                    "that bounds what each example adds"
                )
            rows = len(gradient) if gradient.dim() else 0
            if rows != recording._examples:
                raise InputError(
                    f"layer {self._layer.name!r} has {rows} rows in dimension 0 for {recording._examples} examples; "
                    "give it the examples alone as dimension 0 (batch_first=True)"
                )
            recording._seeing = True
            try:
                seen = factors(at_least_single(gradient.detach()))
            finally:
                recording._seeing = False
            for name, factor in seen.items():
                key = self._keys[name]
                # what is used once is brought into its cheapest form while it is in the cache
                found = recording._factors.setdefault(key, [])
                found.append(factor.settled(recording._workspace.keep) if recording._uses[key] == 1 else factor)

        return ShowGradient.apply(output, recording._anchor, see)  # type: ignore[no-any-return]


# Which rule covers which kind of layer.


_RULES: tuple[tuple[type[nn.Module], type[Rule]], ...] = (
    (WSConv2d, StandardisedConvolutionRule),
    (PublicBatchNorm, PublicBatchNormRule),
    (nn.Linear, LinearRule),
    (nn.Conv1d, ConvolutionRule),
    (nn.Conv2d, ConvolutionRule),
    (nn.Conv3d, ConvolutionRule),
    (RowEmbedding, RowEmbeddingRule),
    (nn.Embedding, EmbeddingRule),
    (RowEmbeddingBag, RowEmbeddingBagRule),
    (nn.EmbeddingBag, EmbeddingBagRule),
    (nn.LayerNorm, LayerNormRule),
    (nn.RMSNorm, RMSNormRule),
    (nn.GroupNorm, GroupNormRule),
    (nn.InstanceNorm1d, InstanceNormRule),
    (nn.InstanceNorm2d, InstanceNormRule),
    (nn.InstanceNorm3d, InstanceNormRule),
    (nn.MultiheadAttention, AttentionRule),
    (nn.LSTM, RecurrentRule),
    (nn.GRU, RecurrentRule),
    (nn.RNN, RecurrentRule),
)


def rule_for(module: nn.Module) -> Rule:
    """The rule of a module; the fallback where its kind, its `forward` or its parameters are not known ones."""
    if is_parametrized(module):
        return WholeFallbackRule()
    for kind, rule in _RULES:
        if isinstance(module, kind) and type(module).forward is kind.forward:
            if "forward" in vars(module):  # another one on this instance
                return WholeFallbackRule()
            names = {name for name, _ in module.named_parameters(recurse=False)}
            if issubclass(rule, OutputRule) and not names <= {"weight", "bias"}:  # such as those of weight_norm
                break
            return rule()
    return FallbackRule()


def covered(model: nn.Module, *, expand: bool = True) -> list[Layer[nn.Module]]:
    """The layers that hold trained parameters, each with its rule.

    Args:
        model: the user's module; nothing of it is changed.
        expand: give every example its copy of parameters outside layers (class tokens, position tables,
            scales), instead of running their module again.

    Raises:
        InputError: nothing is trained, or a layer cannot be covered; names it and the replacement.
    """
    refusals = problems(model)
    if refusals:
        name, reason = refusals[0]
        more = f" ({len(refusals) - 1} more; sfumato check-model lists them)" if len(refusals) > 1 else ""
        raise InputError(f"layer {name!r}: {reason}{more}")
    layers = layers_of(model, expand=expand)
    if not layers:
        raise InputError("the model has no trainable parameters; set requires_grad_(True) on some, or freeze less")
    return layers


def layers_of(model: nn.Module, *, expand: bool = True) -> list[Layer[nn.Module]]:
    """What `covered` gives, also where a layer is refused."""
    return list(_collected(model, "", Workspace(), set(), expand))


def problems(model: nn.Module) -> list[tuple[str, str]]:
    """(name, reason with the remedy) of every layer that cannot be covered."""
    found = [
        (name or type(layer).__name__, f"{type(layer).__name__} {what}; use {replacement}")
        for name, layer, what, replacement in coupled_layers(model, mode_stays=True)
    ]
    for layer in layers_of(model):
        reason = layer.rule.refusal(layer.module)
        if reason:
            found.append((layer.name or type(layer.module).__name__, f"{type(layer.module).__name__}: {reason}"))
    return found


def place_of(layers: Sequence[Layer[Any]], parameter: nn.Parameter) -> tuple[Layer[Any], str]:
    """The layer of a trained parameter and its name there; the first one where it has several."""
    return next(
        (layer, name)
        for layer in layers
        for name in sorted(layer.wanted)
        if layer.module.get_parameter(name) is parameter
    )


def name_of(layers: Sequence[Layer[Any]], parameter: nn.Parameter) -> str:
    """The name of a trained parameter within the model."""
    layer, name = place_of(layers, parameter)
    return f"{layer.name}.{name}" if layer.name else name


def _collected(
    module: nn.Module, name: str, workspace: Workspace, seen: set[int], expand: bool
) -> Iterator[Layer[nn.Module]]:
    if id(module) in seen:  # one module at two places of the model
        return
    seen.add(id(module))
    rule = rule_for(module)
    trained = {key: value for key, value in module.named_parameters(recurse=rule.whole) if value.requires_grad}
    below = set() if rule.whole else {id(value) for child in module.children() for value in child.parameters()}
    own = frozenset(key for key, value in trained.items() if id(value) not in below)  # a layer's, under a second name
    if isinstance(rule, FallbackRule) and not rule.whole and expand and any(True for _ in module.children()):
        if own:
            yield Layer(name, module, ExpandRule(), own, workspace)
        own = frozenset()
    if own:
        around = type(rule) is FallbackRule and any(True for _ in module.children())
        yield Layer(name, module, AroundFallbackRule() if around else rule, own, workspace)
    if rule.whole:
        return
    for key, child in module.named_children():
        yield from _collected(child, f"{name}.{key}" if name else key, workspace, seen, expand)
