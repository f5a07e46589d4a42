"""Which rule covers which kind of layer."""

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
