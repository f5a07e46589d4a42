"""Which rule covers which kind of layer, and which kinds are refused, with what to use instead."""

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from sfumato.models import PublicBatchNorm, WSConv2d
from sfumato.per_example.layers.attention import AttentionRule
from sfumato.per_example.layers.convolution import ConvolutionRule
from sfumato.per_example.layers.embedding import EmbeddingBagRule, EmbeddingRule
from sfumato.per_example.layers.fallback import FallbackRule, WholeFallbackRule
from sfumato.per_example.layers.linear import LinearRule
from sfumato.per_example.layers.model_layers import PublicBatchNormRule, StandardisedConvolutionRule
from sfumato.per_example.layers.normalisation import GroupNormRule, InstanceNormRule, LayerNormRule, RMSNormRule
from sfumato.per_example.layers.recurrent import RecurrentRule
from sfumato.per_example.rule import OutputRule, Rule

_RULES: tuple[tuple[type[nn.Module], type[Rule]], ...] = (
    (WSConv2d, StandardisedConvolutionRule),
    (PublicBatchNorm, PublicBatchNormRule),
    (nn.Linear, LinearRule),
    (nn.Conv1d, ConvolutionRule),
    (nn.Conv2d, ConvolutionRule),
    (nn.Conv3d, ConvolutionRule),
    (nn.Embedding, EmbeddingRule),
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


def coupling(module: nn.Module) -> str:
    """Why a module lets one example change another one's output, or the model itself, with the replacement.

    Trained or frozen, all the same: what examples change in place is released without noise. Empty if nothing is known.
    """
    if getattr(module, "couples_examples", False):
        return f"{type(module).__name__} normalises private examples together; use statistics='public'"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        return "max_norm changes the table in place from the examples of a batch; use max_norm=None"
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
        return "its running statistics mix the examples; use track_running_stats=False"
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        if not module.training and module.track_running_stats:
            return ""
        channels = module.num_features
        groups = next(count for count in (32, 16, 8, 4, 2, 1) if channels % count == 0)
        return (
            f"{type(module).__name__} normalises with the statistics of the whole batch, which couples the examples; "
            f"use nn.GroupNorm({groups}, {channels}) or models.PublicBatchNorm"
        )
    return ""
