"""Domain adaptation while an agent trains: features by which its own records cannot be told from the public pool.

An agent's records may look unlike the pool that it is asked about. A domain classifier learns to tell the two apart by
the features, the input of the model's last layer, and the model gets its gradient with the sign reversed (domain-
adversarial training, DANN). The pool's labels are not read. The pool is public and nothing but the vote leaves the
agent, so the adaptation costs no privacy.

The weight of the reversed gradient rises from 0 to `weight` as in the paper: weight (2 / (1 + exp(−10 p)) − 1), p being
how much of the training is done.

References:
    Ganin, Ustinova, Ajakan, Germain, Larochelle, Laviolette, Marchand, Lempitsky: Domain-Adversarial Training of Neural
    Networks. JMLR 2016, equations 13 to 18 and section 5.2.2.
    Zhu et al. (2021), section 5.2: agents that adapt to the server's domain.

>>> [round(DANN().weight_at(share), 3) for share in (0.0, 0.1, 0.5, 1.0)]
[0.0, 0.462, 0.987, 1.0]
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import _check
from sfumato._check import InputError, guess
from sfumato._random import RandomSource
from sfumato.data import to_tensor
from sfumato.data.examples.dataset import ExampleRows
from sfumato.training.supervised import AddedLoss, LossAdder, batches_in_order

_STEEPNESS = 10.0  # gamma of the paper's schedule, "in all experiments"


@dataclass(frozen=True, kw_only=True)
class DANN:
    """Settings of domain-adversarial training.

    Attributes:
        weight: of the reversed gradient at the end, > 0.
        hidden: units of the domain classifier's hidden layer, >= 1.
        batch_size: rows of the pool a step at most, >= 2.
        layer: name of the layer whose input are the features; None takes the last linear layer of the module.
    """

    weight: float = 1.0
    hidden: int = 100
    batch_size: int = 32
    layer: str | None = None

    def __post_init__(self) -> None:
        _check.positive(adaptation_weight=self.weight)
        _check.whole(adaptation_hidden=self.hidden)
        _check.whole(at_least=2, adaptation_batch_size=self.batch_size)

    def weight_at(self, share: float) -> float:
        """The weight of the reversed gradient when this share of the training is done."""
        return self.weight * (2.0 / (1.0 + math.exp(-_STEEPNESS * share)) - 1.0)

    def towards(self, pool: ExampleRows) -> LossAdder:
        """The domain classifier's loss, for `Supervised.fit`.

        Args:
            pool: public rows [n, …] as a data set stores them, n >= 2.

        Raises:
            InputError: the pool has fewer rows; or, when a training begins, the model has no such layer.
        """
        size = int(pool.shape[0])
        if size < 2:
            raise InputError(f"domain adaptation needs at least 2 public rows to adapt to, got {size}")

        @contextmanager
        def adder(model: nn.Module, source: RandomSource, device: torch.device) -> Iterator[AddedLoss]:
            seen: list[Tensor] = []

            def look(_: nn.Module, inputs: tuple[Any, ...]) -> None:
                seen[:] = [inputs[0].flatten(1)]

            def batch(rows: np.ndarray) -> Tensor:
                return to_tensor(np.asarray(pool[rows])).to(device)

            name, layer = self.feature_layer(model)
            hook = layer.register_forward_pre_hook(look)
            try:
                with torch.no_grad():
                    model.eval()(batch(np.arange(2)))
                if not seen:
                    raise InputError(f"the model does not use its layer {name}; name another one in adaptation layer=")
                classifier = self._classifier(seen[0].shape[1], source).to(device)
                model.train()
                order = batches_in_order(source, "pool", size, -(-size // self.batch_size))

                def loss(share: float) -> Tensor:
                    own = seen[0]
                    rows = next(order)
                    while len(rows) < 2:  # alone, batch norm would have no statistics
                        rows = next(order)
                    model(batch(rows))
                    logits = classifier(_Reversed.apply(torch.cat([own, seen[0]]), self.weight_at(share)))[:, 0]
                    domain = torch.cat([torch.zeros(len(own)), torch.ones(len(rows))]).to(logits)
                    # Each domain counts one half, as in the paper's batches, however many rows it has.
                    shares = torch.where(domain == 0, 0.5 / len(own), 0.5 / len(rows))
                    losses = functional.binary_cross_entropy_with_logits(logits, domain, reduction="none")
                    return (losses * shares).sum()

                yield AddedLoss(list(classifier.parameters()), loss)
            finally:
                hook.remove()

        return adder

    def feature_layer(self, model: nn.Module) -> tuple[str, nn.Module]:
        """Name and module of the layer whose input are the features.

        Raises:
            InputError: there is none.
        """
        layers = dict(model.named_modules())
        if self.layer is not None:
            if self.layer not in layers:
                raise InputError(
                    f"the model has no layer {self.layer}{guess(self.layer, layers)} whose input could be the features"
                )
            return self.layer, layers[self.layer]
        linear = [(name, layer) for name, layer in layers.items() if isinstance(layer, nn.Linear)]
        if not linear:
            raise InputError("the model has no linear layer; name the layer whose input are the features")
        return linear[-1]

    def _classifier(self, width: int, source: RandomSource) -> nn.Sequential:
        """The domain classifier, with torch's own initial weights drawn from the source."""
        generator = torch.Generator().manual_seed(source.seed64("domain classifier"))
        layers = [nn.Linear(size, out, device="meta") for size, out in ((width, self.hidden), (self.hidden, 1))]
        made = nn.Sequential(layers[0], nn.ReLU(), layers[1]).to_empty(device="cpu")
        for parameter in made.parameters():
            fan_in = width if parameter.shape[0] == self.hidden else self.hidden
            nn.init.uniform_(parameter, -(fan_in**-0.5), fan_in**-0.5, generator=generator)
        return made


class _Reversed(torch.autograd.Function):
    """The identity, whose gradient is multiplied with −weight."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.weight * gradients[0], None
