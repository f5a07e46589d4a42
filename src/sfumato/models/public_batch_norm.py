"""Public batch norm, and the gradient that runs through its statistics.

**Layer.** It takes the statistics of public inputs, so that no example changes another one's gradient.
`use_public_batch(model, public_inputs)` runs the public batch, alone, through the model whenever its weights have
changed; each `PublicBatchNorm` keeps the mean and variance that it saw, and normalises private examples with them. The
statistics are functions of public inputs and of released weights: they cost no privacy, and the gradient of one example
depends on this example, the weights and the public inputs only. Any bound per example therefore holds, with the
sensitivity of the clip norm. In the backward pass the statistics are constants; what runs through them is added to the
noisy gradient afterwards, without cost, by `sfumato.models.add_statistics_gradient`. Training without it goes astray.
docs/explanation/public-batch-norm.md has the derivation.

`statistics="joint"` is the layer of the paper: private and public examples are normalised together, and each example
moves every other one's gradient. It is there for experiments without privacy; `couples_examples` is then true, and
private plans refuse the model.

>>> model = nn.Sequential(PublicBatchNorm(1, eps=0.0))
>>> handle = use_public_batch(model, torch.tensor([[1.0], [5.0]]))      # mean 3, standard deviation 2
>>> model(torch.tensor([[3.0], [7.0]])).flatten().tolist()
[0.0, 2.0]

**Gradient.** What runs through the statistics is computed from what was released already. A private example's loss
depends on the weights directly, and through the public statistics that normalise it. Private training clips and noises
the direct gradients. The rest is a linear function of the gradients of the layers' scales and shifts, the same for
every example: with the scale s and r = 1 / sqrt(variance + eps),

    d loss / d mean = -s r (d loss / d shift),     d loss / d variance = -1/2 s r^2 (d loss / d scale).

So one backward pass of the public batch turns the noisy gradients of scales and shifts into the missing part of the
noisy sum. It reads nothing but weights, public inputs and the noisy gradient: post-processing, which costs no privacy
under any unit or adjacency and leaves the sensitivity (the clip norm) as it is. With flat clipping the result is the
noisy sum of the clip-weighted exact gradients. docs/explanation/public-batch-norm.md derives it.

>>> _ = torch.manual_seed(0)  # a tiny weight would have a large gradient, and a large rounding error
>>> model = nn.Sequential(nn.Linear(1, 1, bias=False), PublicBatchNorm(1, eps=0.0))
>>> handle = use_public_batch(model, torch.tensor([[1.0], [5.0]]))
>>> model(torch.tensor([[4.0]])).sum().backward()
>>> before = float(model[0].weight.grad)
>>> add_statistics_gradient(model)
>>> before != 0, abs(float(model[0].weight.grad)) < 1e-6      # a scaled weight gives the same output
(True, True)

References:
    Davody, Adelani, Kleinbauer, Klakow: On the effect of normalization layers on Differentially Private training of
    deep Neural networks (2020), arXiv 2006.10919.
    Ioffe, Szegedy: Batch Normalization (2015), arXiv 1502.03167.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from sfumato._check import InputError, non_negative, one_of, whole

Statistics = Literal["public", "joint"]

_EPS = 1e-3  # a channel that is constant over the public batch magnifies a private example at most 32 times


class PublicBatchNorm(nn.Module):
    """Normalise each channel with public statistics, then scale and shift it.

    Args:
        channels: size of dimension 1 of the inputs, [n, channels] or [n, channels, ...], >= 1.
        statistics: "public", or "joint" for experiments without privacy.
        eps: added to the variance, >= 0.
        affine: whether scale and shift are trained.

    Attributes:
        mean, variance: float [channels], of the public batch; buffers, saved with the weights.
        weight, bias: float [channels], scale and shift; None without `affine`.

    Raises:
        InputError: an argument is out of range.
    """

    mean: Tensor
    variance: Tensor

    def __init__(
        self, channels: int, *, statistics: Statistics = "public", eps: float = _EPS, affine: bool = True
    ) -> None:
        super().__init__()
        whole(channels=channels)
        non_negative(eps=eps)
        one_of(("public", "joint"), statistics=statistics)
        self.channels, self.statistics, self.eps = channels, statistics, eps
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self._known = False  # whether the buffers hold statistics yet
        self._collecting = False
        self._traced: tuple[Tensor, Tensor] | None = None  # the statistics with their graph, while they are collected
        self._groups = 1  # joint: groups of rows that are normalised together

    @property
    def couples_examples(self) -> bool:
        """Whether one example's output depends on the others: then no private plan takes the model."""
        return self.statistics == "joint"

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise float [n, channels, ...].

        Raises:
            InputError: there are no public statistics yet, or the channels do not fit.
        """
        if inputs.ndim < 2 or inputs.shape[1] != self.channels:
            raise InputError(
                f"this PublicBatchNorm reads [n, {self.channels}, ...], got {list(inputs.shape)}; "
                "its first argument is the number of channels"
            )
        if self.couples_examples or self._collecting:
            groups = inputs.unflatten(0, (self._groups, -1))
            mean, variance = _moments(groups)
            if self._collecting:
                self.mean.copy_(mean[0].detach())
                self.variance.copy_(variance[0].detach())
                self._known = True
                self._traced = (mean[0], variance[0])
            return self._scaled(groups, mean, variance)
        if not self._known:
            raise InputError(
                "this PublicBatchNorm has no statistics yet; give the model its public inputs with "
                "models.use_public_batch(model, public_inputs)"
            )
        return functional.batch_norm(inputs, self.mean, self.variance, self.weight, self.bias, eps=self.eps)

    def normalised(self, inputs: Tensor) -> Tensor:
        """The inputs as they are before scale and shift: (x - mean) / sqrt(variance + eps) in each channel."""
        return functional.batch_norm(inputs, self.mean, self.variance, eps=self.eps)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.channels}, statistics={self.statistics!r}, eps={self.eps:g}, affine={self.weight is not None}"

    def _scaled(self, groups: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Each group by its own statistics, which may carry a graph, [groups, rows, channels, ...]."""
        shape = (len(groups), 1, self.channels, *[1] * (groups.ndim - 3))
        values = ((groups - mean.view(shape)) * torch.rsqrt(variance.view(shape) + self.eps)).flatten(0, 1)
        if self.weight is None or self.bias is None:
            return values
        return values * self.weight.view(shape[1:]) + self.bias.view(shape[1:])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any, **named: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest, **named)
        self._known |= f"{prefix}mean" in state_dict


def refresh_statistics(model: nn.Module, *public_inputs: Tensor) -> None:
    """Set the statistics of every `PublicBatchNorm` from one forward pass of the public inputs alone.

    Each layer normalises the public batch with the batch's own statistics, as batch norm does, and keeps them.

    Args:
        model: a module with at least one `PublicBatchNorm`.
        public_inputs: what the model is called with, each [M, ...]; M >= 2 rows that hold no private example.

    Raises:
        InputError: the model has no such layer, or there are fewer than two rows.
    """
    _check_rows(public_inputs)
    with torch.no_grad():
        traced_statistics(model, public_inputs)


def traced_statistics(model: nn.Module, public_inputs: tuple[Tensor, ...]) -> list[tuple[Tensor, Tensor]]:
    """Run the public inputs alone; (mean, variance) of each layer in the order of the module, with their graph."""
    layers = _layers(model)
    try:
        for layer in layers:
            layer._collecting = True
        model(*public_inputs)
        return [layer._traced for layer in layers if layer._traced is not None]
    finally:
        for layer in layers:
            layer._collecting, layer._traced = False, None


def public_inputs_of(model: nn.Module) -> tuple[Tensor, ...] | None:
    """The public batch that `use_public_batch` gave a model, on its device; None if there is none."""
    for hook in model._forward_pre_hooks.values():
        batch = getattr(hook, "__self__", None)
        if isinstance(batch, _PublicBatch):
            return batch.like(model)
    return None


def use_public_batch(model: nn.Module, *public_inputs: Tensor, statistics: Statistics = "public") -> RemovableHandle:
    """Let a model refresh its statistics by itself before any forward pass for which the weights have changed.

    A weight that is changed through `.data` in place is not noticed; `refresh_statistics` is for this case. Old
    statistics cost accuracy, never privacy. Within `torch.func` transforms they stay as they are.

    With `statistics="joint"`, in training, the public inputs run along with each batch; in evaluation, with each
    example by itself, which takes M + 1 times the memory: use small batches.

    Args:
        model: a module with at least one `PublicBatchNorm`; it is changed in place, and an earlier public batch is
            replaced.
        public_inputs: what the model is called with, each [M, ...]; the paper uses M = 128 images. They must hold no
            private example: what the model learns from them is not accounted.
        statistics: the kind that all these layers get.

    Returns:
        a handle; `remove()` keeps the last statistics and stops refreshing.

    Raises:
        InputError: the model has no such layer, or there are fewer than two rows.
    """
    one_of(("public", "joint"), statistics=statistics)
    layers = _layers(model)
    _check_rows(public_inputs)
    for hooks in (model._forward_pre_hooks, model._forward_hooks):
        for key, hook in list(hooks.items()):
            if isinstance(getattr(hook, "__self__", None), _PublicBatch):
                del hooks[key]
    for layer in layers:
        layer.statistics = statistics
    batch = _PublicBatch(public_inputs)
    if statistics == "public":
        batch.refresh(model, ())
        return model.register_forward_pre_hook(batch.refresh)
    model.register_forward_hook(batch.drop)
    return model.register_forward_pre_hook(batch.join)


class _PublicBatch:
    """The public inputs of one model, and which weights they last ran through; without a reference to the model."""

    def __init__(self, inputs: tuple[Tensor, ...]) -> None:
        self.inputs = inputs
        self.weights: list[tuple[int, int]] = []
        self.rows = 0

    def refresh(self, model: nn.Module, _: tuple[Any, ...]) -> None:
        if any(layer._collecting for layer in model.modules() if isinstance(layer, PublicBatchNorm)):
            return  # this is the pass of the public batch
        parameters = list(model.parameters())
        if any(is_functorch_wrapped_tensor(parameter) for parameter in parameters):
            return
        weights = [(parameter.data_ptr(), parameter._version) for parameter in parameters]
        if weights != self.weights or not weights:
            refresh_statistics(model, *self.like(model))
            self.weights = weights

    def join(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.rows = rows = len(inputs[0])
        groups = 1 if model.training else rows
        for layer in _layers(model):
            layer._groups = groups
        public = self.like(model)
        if model.training:
            return tuple(torch.cat([own, other]) for own, other in zip(inputs, public, strict=True))
        return tuple(
            torch.cat([own[:, None], other.expand(rows, *other.shape)], dim=1).flatten(0, 1)
            for own, other in zip(inputs, public, strict=True)
        )

    def drop(self, model: nn.Module, _: tuple[Any, ...], output: Tensor) -> Tensor:
        rows, self.rows = self.rows, 0
        if not rows:  # the handle was removed: nothing was joined
            return output
        for layer in _layers(model):
            layer._groups = 1
        return output[:rows] if model.training else output.unflatten(0, (rows, -1))[:, 0]

    def like(self, model: nn.Module) -> tuple[Tensor, ...]:
        """The inputs on the model's device, in its precision."""
        layer = _layers(model)[0]
        self.inputs = tuple(
            each.to(layer.mean.device, layer.mean.dtype if each.is_floating_point() else None) for each in self.inputs
        )
        return self.inputs


def _moments(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance in each channel of float [groups, rows, channels, ...], each [groups, channels]."""
    over = (1, *range(3, groups.ndim))
    wide = groups.float() if groups.dtype in (torch.float16, torch.bfloat16) else groups
    variance, mean = torch.var_mean(wide, dim=over, correction=0)
    return mean, variance


def _layers(model: nn.Module) -> list[PublicBatchNorm]:
    layers = [layer for layer in model.modules() if isinstance(layer, PublicBatchNorm)]
    if not layers:
        raise InputError(
            f"this {type(model).__name__} has no PublicBatchNorm layer; build it with normalisation='public_batch'"
        )
    return layers


def _check_rows(public_inputs: tuple[Tensor, ...]) -> None:
    rows = {len(each) for each in public_inputs}
    if len(rows) != 1 or min(rows) < 2:
        found = ", ".join(str(list(each.shape)) for each in public_inputs) or "none"
        raise InputError(f"the public batch must have at least 2 rows, as many in each input, got {found}")


def add_statistics_gradient(model: nn.Module) -> None:
    """Add what runs through the public statistics to each parameter's `.grad`, in place.

    Call it between the noise and the optimizer's step, on the weights at which the gradient was taken. A model without
    public statistics is left as it is. So is a layer whose scale and shift are frozen or have no gradient: nothing is
    known of its part.

    Args:
        model: whose `.grad` are the noisy (mean or sum of) gradients.

    Raises:
        InputError: the model has public batch norm and no public batch.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, PublicBatchNorm)]
    if all(_gradient(layer.weight) is None and _gradient(layer.bias) is None for layer in layers):
        return
    if any(layer.couples_examples for layer in layers):
        raise InputError("joint statistics have their gradient already; use statistics='public' for private training")
    public = public_inputs_of(model)
    if public is None:
        raise InputError(
            "this model has public batch norm and no public batch; give it its public inputs with "
            "models.use_public_batch(model, public_inputs)"
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.enable_grad():
        total = torch.zeros((), device=public[0].device)
        for layer, (mean, variance) in zip(layers, traced_statistics(model, public), strict=True):
            if layer.weight is None or not mean.requires_grad:  # nothing before this layer is trained
                continue
            inverse = torch.rsqrt(variance.detach() + layer.eps)
            scale, of_scale, of_shift = layer.weight.detach(), _gradient(layer.weight), _gradient(layer.bias)
            if of_shift is not None:
                total = total - (mean * (scale * inverse * of_shift)).sum()
            if of_scale is not None:
                total = total - 0.5 * (variance * (scale * inverse**2 * of_scale)).sum()
        if not total.requires_grad:
            return
        found = torch.autograd.grad(total, trained, allow_unused=True)
    for parameter, gradient in zip(trained, found, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _gradient(parameter: nn.Parameter | None) -> torch.Tensor | None:
    return None if parameter is None else parameter.grad
