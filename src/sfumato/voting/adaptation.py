"""Domain adaptation while an agent trains: features by which its own records look like the public pool.

An agent's records may look unlike the pool that it is asked about. A domain classifier learns to distinguish the two by
the features, the input of the model's last layer, and the model gets its gradient with the sign reversed (domain-
adversarial training, DANN). With `smoothness` the model also shall not change its mind between neighbours in the pool,
and have one (VADA; the two losses are those of the student, `voting.student.smoothness`). The pool's labels are not
read. The pool is public and nothing but the vote leaves the agent, so the adaptation costs no privacy.

The weight of the reversed gradient rises from 0 to `weight` as in the paper: weight (2 / (1 + exp(−10 p)) − 1), p being
how much of the training is done.

>>> [round(DANN().weight_at(share), 3) for share in (0.0, 0.1, 0.5, 1.0)]
[0.0, 0.462, 0.987, 1.0]

References:
    Ganin, Ustinova, Ajakan, Germain, Larochelle, Laviolette, Marchand, Lempitsky: Domain-Adversarial Training of Neural
    Networks. JMLR 2016, equations 13 to 18 and section 5.2.2.
    Shu, Bui, Narui, Ermon: A DIRT-T Approach to Unsupervised Domain Adaptation. ICLR 2018, equation 8 (VADA).
    Zhu et al. (2021), section 5.2: agents that adapt to the server's domain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato import _check
from sfumato._check import InputError, guess
from sfumato._lazy import torch
from sfumato._parts import Kinds
from sfumato.training.supervised import AddedLoss, LossAdder, batches_in_order
from sfumato.voting.student import StudentTraining, smoothness

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato._random import RandomSource
    from sfumato.data.examples import ExampleRows

_STEEPNESS = 10.0  # gamma of the paper's schedule, "in all experiments"
_SMOOTHED = 2  # batches of the pool in one of smoothness


@dataclass(frozen=True, kw_only=True)
class DANN:
    """Settings of domain-adversarial training.

    Attributes:
        weight: of the reversed gradient at the end, > 0; None has no domain classifier.
        hidden: units of the domain classifier's hidden layer, >= 1.
        batch_size: rows of the pool a step at most, >= 2; smoothness takes twice as many.
        layer: name of the layer whose input are the features; None takes the last linear layer of the module.
        smoothness: weight of smoothness on the pool, >= 0; 0 leaves it out.
    """

    weight: float | None = 1.0
    hidden: int = 100
    batch_size: int = 32
    layer: str | None = None
    smoothness: float = 0.0

    def __post_init__(self) -> None:
        _check.non_negative(smoothness=self.smoothness)
        if self.weight is not None:
            _check.positive(weight=self.weight)
        elif self.layer is not None:
            raise InputError("layer is for domain adaptation; give its weight, 1 for example")
        _check.whole(hidden=self.hidden)
        _check.whole(at_least=2, batch_size=self.batch_size)

    def weight_at(self, share: float) -> float:
        """The weight of the reversed gradient when this share of the training is done."""
        return (self.weight or 0.0) * (2.0 / (1.0 + math.exp(-_STEEPNESS * share)) - 1.0)

    def towards(self, pool: ExampleRows, *, attributes: bool = False) -> LossAdder | None:
        """What is added to the loss, for `Supervised.fit`; None without any weight.

        Args:
            pool: public rows [n, …] as a data set stores them, n >= 2; with smoothness pictures or real numbers.
            attributes: outputs are one logit for each attribute, not for each class.

        Raises:
            InputError: the pool has fewer rows or others; or, when a training begins, the model has no such layer.
        """
        adversarial = None if self.weight is None else self._adversarial(pool)
        if not self.smoothness:
            return adversarial
        smooth = smoothness(
            pool,
            weight=self.smoothness,
            radius=StudentTraining.radius,
            batch_size=_SMOOTHED * self.batch_size,
            attributes=attributes,
            asked="smoothness",
        )
        return smooth if adversarial is None else _both(adversarial, smooth)

    def _adversarial(self, pool: ExampleRows) -> LossAdder:
        """The domain classifier's loss."""
        from sfumato.data import to_tensor

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
                    raise InputError(f"the model does not use its layer {name}; name another one in adaptation.layer")
                classifier = self._classifier(seen[0].shape[1], source).to(device)
                model.train()
                order = batches_in_order(source, "pool", size, -(-size // self.batch_size))

                def loss(share: float) -> Tensor:
                    own = seen[0]
                    rows = next(order)
                    while len(rows) < 2:  # alone, batch norm would have no statistics
                        rows = next(order)
                    model(batch(rows))
                    features = _reversed(torch.cat([own, seen[0]]), self.weight_at(share))
                    logits = classifier(features)[:, 0]
                    domain = torch.cat([torch.zeros(len(own)), torch.ones(len(rows))]).to(logits)
                    # Each domain counts one half, as in the paper's batches, however many rows it has.
                    shares = torch.where(domain == 0, 0.5 / len(own), 0.5 / len(rows))
                    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, domain, reduction="none")
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
        linear = [(name, layer) for name, layer in layers.items() if isinstance(layer, torch.nn.Linear)]
        if not linear:
            raise InputError("the model has no linear layer; name the layer whose input are the features")
        return linear[-1]

    def _classifier(self, width: int, source: RandomSource) -> nn.Sequential:
        """The domain classifier, with torch's own initial weights drawn from the source."""
        generator = torch.Generator().manual_seed(source.seed64("domain classifier"))
        layers = [torch.nn.Linear(size, out, device="meta") for size, out in ((width, self.hidden), (self.hidden, 1))]
        made = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]).to_empty(device="cpu")
        for parameter in made.parameters():
            fan_in = width if parameter.shape[0] == self.hidden else self.hidden
            torch.nn.init.uniform_(parameter, -(fan_in**-0.5), fan_in**-0.5, generator=generator)
        return made


def _both(first: LossAdder, second: LossAdder) -> LossAdder:
    """Both losses, in this order: a domain classifier takes the features of the rows that the model saw last."""

    @contextmanager
    def adder(model: nn.Module, source: RandomSource, device: torch.device) -> Iterator[AddedLoss]:
        with first(model, source, device) as one, second(model, source, device) as other:
            yield AddedLoss([*one.parameters, *other.parameters], lambda share: one.loss(share) + other.loss(share))

    return adder


def _reversed(features: Tensor, weight: float) -> Tensor:
    """The features, whose gradient is multiplied with −weight."""
    if features.requires_grad:
        features.register_hook(lambda gradient: -weight * gradient)
    return features


ADAPTATIONS = Kinds[DANN]({"dann": DANN}, number="weight")
"""What is short for an adaptation: its weight."""
