"""What examples contribute where only their labels are private: gradients, whose noisy mean is projected.

Unit: the label of an example. The private part is that of `ExampleContribution`: each drawn example adds its clipped
gradient, whatever its label is, and nothing else reads a label. The noisy mean is then projected onto the hull of the
mean gradients that any labels could have given, on a batch of inputs of its own (`hull`).

That batch is drawn from a stream of its own and by nothing else. The model that is released depends on it, and an
attacker who holds the inputs may find it out. Were it the batch of the sum, who was drawn would be known with it, and
sampling would hide nobody; so it says nothing about that one (see docs/explanation/label-privacy.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sfumato._random import RandomSource
from sfumato.central.examples import ExampleContribution
from sfumato.central.first_look import spread, tensors
from sfumato.central.hull import LabelGradients, nearest_in_span, nearest_mean
from sfumato.central.losses import logits_of
from sfumato.clipping import ClippedSum, NormBound
from sfumato.guard.draws import seed_dropout
from sfumato.per_example import Recording
from sfumato.sampling import Cohort
from sfumato.sampling.fixed_size import subset

_TRIED = 2  # rows of which the derivative of the backward pass is tried out


class ProjectedContribution(ExampleContribution):
    """Gradients of a data set's examples, and a projection of their noisy mean.

    Args:
        onto: "span" or "hull".
        averaging: decay of the moving average of noisy means that is projected; 0 for none.
        public_batch: rows whose inputs span the hull, at most as many as there are; 0 for no projection.
        projection_steps: at most.
        projection_tolerance: share of the distance to the hull at which the search ends.
        options: as for `ExampleContribution`.

    Raises:
        InputError: as there; or the backward pass of the model has no derivative.
    """

    def __init__(
        self,
        *,
        public_batch: int,
        onto: Literal["span", "hull"],
        averaging: float,
        projection_steps: int,
        projection_tolerance: float,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._decay, self._average, self._averaged = averaging, torch.zeros_like(self.trained.vector).double(), 0
        self._public = replace(self.data, targets=None, num_classes=None, label_names=None)
        self._onto = onto
        self._classes = self.data.num_classes or 0
        self._public_batch = min(public_batch, self.population)
        self._steps, self._tolerance = projection_steps, projection_tolerance
        if public_batch:
            self._try_derivative()

    def clipped_sum(
        self,
        theta: Tensor,
        cohort: Cohort,
        round: int,
        bound: NormBound,
        clip_norm: float | None,
        source: RandomSource,
        out: Tensor | None,
    ) -> ClippedSum:
        """The sum of the examples' bounded gradients; the corners of the hull are bounded in the same way."""
        self._weights = partial(bound.weights, clip_norm=clip_norm)
        self._groups = bound.groups(self.trained.layout.names)
        return super().clipped_sum(theta, cohort, round, bound, clip_norm, source, out)

    def after_noise(self, mean: Tensor, round: int, source: RandomSource) -> None:
        """Put the nearest mean gradient that labels could have given in the place of the noisy one.

        Noisy means so far are averaged before, with weights that add up to 1.
        """
        if self._decay:
            self._average.lerp_(mean, 1 - self._decay)
            self._averaged += 1
            mean.copy_(self._average).div_(1 - self._decay**self._averaged)
        found = self.projected(mean, round, source) if self._public_batch else None
        if found is not None:
            for view, part in zip(self.trained.views(mean), found, strict=True):
                view.copy_(part)
        super().after_noise(mean, round, source)

    def settings(self) -> dict[str, Any]:
        """How many noisy means were averaged, too."""
        return {**super().settings(), "averaged": self._averaged}

    def tensors(self) -> dict[str, Tensor]:
        """Their average."""
        return {"average": self._average}

    def restore_settings(self, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """The average of the run that goes on."""
        super().restore_settings(settings, tensors)
        self._averaged = settings["averaged"]
        self._average.copy_(tensors["average"])

    def projected(self, mean: Tensor, round: int, source: RandomSource) -> list[Tensor] | None:
        """The projection of a noisy mean, float64 [size], in a round whose sum was asked for.

        Returns:
            one tensor for each parameter; None where no row of the public batch has finite gradients.
        """
        rows = subset(self._public_batch, self.population, source.stream("public batch", round))
        self.prepare()
        starts = range(0, len(rows), self.micro_batch)
        drawn = [
            self._weighed(rows[start : start + self.micro_batch], source.seed64("public draws", round, start))
            for start in starts
        ]
        blocks = [block for block in drawn if len(block.places)]
        if not blocks:
            return None
        held = [self._gradients(blocks[0])] if len(blocks) == 1 else None  # what fits into memory is kept there
        target = [view.to(self.trained.vector.dtype) for view in self.trained.views(mean)]

        def each() -> Iterator[LabelGradients]:
            return iter(held) if held is not None else map(self._gradients, blocks)

        if self._onto == "span":
            found = nearest_in_span(target, each, steps=self._steps, tolerance=self._tolerance)
        else:
            rows = sum(len(block.places) for block in blocks)
            found = nearest_mean(target, each, rows=rows, steps=self._steps, tolerance=self._tolerance).nearest
        self.trained.put_back()
        self.trained.forget()
        return found

    def _weighed(self, places: np.ndarray, seed: int) -> "_Block":
        """Those of some rows whose gradients are finite for every label, with the weights that clipping gives them."""
        if self._onto == "span":
            return self._finite(places, seed)
        while len(places):
            weights = self._weights(self._norms(places, seed).flatten(1)).view(-1, len(places), self._classes)
            usable = (weights > 0).all(dim=2).all(dim=0).cpu().numpy()
            if usable.all():
                return _Block(places, seed, weights)
            places = places[usable]
        return _Block(places, seed, torch.zeros(0))

    def _finite(self, places: np.ndarray, seed: int) -> "_Block":
        """Those of some rows whose inputs and logits are finite; clipping changes no span."""
        block = _Block(places, seed, torch.ones(len(self._groups), len(places), self._classes, device=self._device))
        with torch.no_grad():
            logits = self._passed(block)
        usable = torch.isfinite(logits).all(dim=2).all(dim=0).cpu()
        for inputs in self._views(places, seed):
            for each in inputs:
                usable &= torch.isfinite(each.flatten(1)).all(dim=1).cpu()
        self.trained.put_back()
        return _Block(places[usable.numpy()], seed, block.weights[:, usable.to(self._device)])

    def _norms(self, places: np.ndarray, seed: int) -> Tensor:
        """Norms of some rows' gradients by label, float64 [groups, n, classes]."""
        parameters = [[self.trained.parameters[i] for i in group] for group in self._groups]
        views, norms = self._views(places, seed), []
        for label in range(self._classes):
            labels = torch.full((len(places),), label, device=self._device)
            self.trained.forget()
            seed_dropout(seed, self._device)
            with Recording(self._layers, len(places)) as recording:
                recording.backward(self.losses_of((views, labels)))
            norms.append(torch.stack([recording.squared_norms(group) for group in parameters]).sqrt())
            self.trained.put_back()
        return torch.stack(norms, dim=2)

    def _gradients(self, block: "_Block") -> LabelGradients:
        """A block's gradients for every label."""
        return LabelGradients(self._passed(block), self.trained.parameters, self._groups, block.weights)

    def _passed(self, block: "_Block") -> Tensor:
        """A block's logits, [copies, n, outputs]."""
        seed_dropout(block.seed, self._device)
        logits = []
        for inputs in self._views(block.places, block.seed):
            self.trained.forget()
            logits.append(logits_of(self._outputs(inputs)))
        return torch.stack(logits)

    def _views(self, places: np.ndarray, seed: int) -> list[tuple[Tensor, ...]]:
        """The inputs of some rows, one augmentation after the other."""
        inputs, _ = tensors(self._public, places, self._device)
        return [self._augmented(inputs, places, seed, number) for number in range(self.copies)]

    def _try_derivative(self) -> None:
        """Refuse a model whose backward pass has no derivative."""
        places = spread(self._public, _TRIED)
        self._groups = [list(range(len(self.trained.parameters)))]
        with torch.random.fork_rng(devices=[]):
            weights = torch.ones(1, len(places), self._classes, device=self._device)
            self._gradients(_Block(places, 0, weights)).refuse_no_derivative()
        self.trained.put_back()
        self.trained.forget()


@dataclass(frozen=True)
class _Block:
    """Rows that go through the model at once.

    Attributes:
        places: int64 [n].
        seed: of what is drawn for them.
        weights: what clipping leaves of the gradient of each label, [groups, n, classes].
    """

    places: np.ndarray
    seed: int
    weights: Tensor
