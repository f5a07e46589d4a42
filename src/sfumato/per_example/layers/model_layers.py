"""Layers of `sfumato.models` that torch does not have: public batch norm and standardised convolutions.

Public batch norm normalises with the statistics of public inputs, which are constants here (what flows through them is
added after the noise, see docs/explanation/public-batch-norm.md). A standardised convolution is an ordinary one in its
standardised weight; the layer says how a gradient of that weight becomes one of the trained weight.
"""

from torch import Tensor

from sfumato._precision import at_least_single
from sfumato.models import PublicBatchNorm, WSConv2d
from sfumato.per_example.factor import Dense
from sfumato.per_example.layers.convolution import weight_factor
from sfumato.per_example.layers.normalisation import ScaleRule
from sfumato.per_example.rule import Factors, Layer, OutputRule


class PublicBatchNormRule(ScaleRule):
    """Scale and shift over channels, dimension 1."""

    def normalised(self, module: PublicBatchNorm, inputs: Tensor) -> Tensor:
        return module.normalised(inputs)

    def summed(self, module: PublicBatchNorm, values: Tensor) -> Tensor:
        return values.flatten(2).sum(dim=2) if values.dim() > 2 else values


class StandardisedConvolutionRule(OutputRule):
    """The raw weight and the bias of `WSConv2d`."""

    def factors(self, layer: Layer[WSConv2d], saved: Tensor, gradient: Tensor) -> Factors:
        result: Factors = {}
        if "weight" in layer.wanted:
            inputs = at_least_single(saved).to(gradient.dtype)
            kernels = weight_factor(layer.module, inputs, gradient, layer.workspace).dense()
            result["weight"] = Dense(layer.module.pull_back(kernels))
        if "bias" in layer.wanted:
            result["bias"] = Dense(gradient.flatten(2).sum(dim=2))
        return result
