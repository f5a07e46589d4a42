"""Gradients whose noisy mean is projected onto what labels could have given."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato._check import InputError, first_line
from sfumato._random import RandomSource
from sfumato.central.examples import ExampleContribution, spread, tensors
from sfumato.central.tasks import logits_of
from sfumato.clipping import ClippedSum
from sfumato.guard.trial import seed_dropout
from sfumato.per_example import Recording
from sfumato.sampling.sampler import subset
from sfumato.training.contribution import RoundContext

# Gradients whose noisy mean is projected onto what labels could have given.


# The nearest of all mean gradients that any labels could have given: projections onto their hull and their span.
#
# With cross entropy, a row x of label k has the gradient Jᵀ(p − e_k), where J is the Jacobian of its logits and p what
# the model predicts; clipping multiplies it by w_k. The hull of means over m rows is
#
#     { (1/m) Σ_i Σ_k q_ik · w_ik · J_iᵀ(p_i − e_k) : every q_i a distribution over the classes }.
#
# Nothing of it is ever written out: a point of it is one backward pass, and the products of a direction with all m·K
# corners are one pass through the derivative of that pass. No label is read here.
#
# Frank-Wolfe steps with exact line search find the nearest point. Each puts every row on the class that its slope
# favours; the gap ⟨v − t, v − s⟩ to that corner s bounds how far v is from the projection v* of t: ‖v − v*‖² ≤ 2·gap.
# The search ends where that root is a small public share of ‖t − v‖, or after a public number of steps.
#
# The span of the same gradients is larger, and a projection onto it is linear: noise that it leaves cancels over steps
# as it would without. Clipping only changes lengths, so the span does not depend on it.
#
# References:
#     Ghazi, Huang, Kamath, Kumar, Manurangsi, Zhang: LabelDP-Pro: Learning with Label Differential Privacy via
#     Projections. ICLR 2024 (the projections onto a span, and onto the convex hull of an independent batch).
#     Jaggi: Revisiting Frank-Wolfe: Projection-Free Sparse Convex Optimization. ICML 2013 (the gap).


_OFF = 1e-3


"""By which two ways to a product may differ, as a share of it: single precision does by less."""


class LabelGradients:
    """The gradients of some rows for every label, as linear maps; see the module.

    Args:
        logits: of the rows, [copies, n, outputs], with their graph; a row's loss is the mean over its copies.
        parameters: what is trained.
        groups: which of the parameters are clipped together.
        weights: what clipping leaves of the gradient of each label, [groups, n, classes].

    Raises:
        InputError: the backward pass has no derivative.
    """

    def __init__(
        self, logits: Tensor, parameters: Sequence[Tensor], groups: Sequence[Sequence[int]], weights: Tensor
    ) -> None:
        self._logits, self._weights = logits, weights.to(logits.dtype)
        self._groups = [[parameters[i] for i in group] for group in groups]
        self._places = [list(group) for group in groups]
        self._shapes = [parameter.shape for parameter in parameters]
        self._chances = logits.detach().softmax(dim=2)
        self._pulled = torch.zeros_like(logits, requires_grad=True)
        try:
            self._pulls = [self._pull(group, self._pulled, create_graph=True) for group in self._groups]
        except RuntimeError as error:
            raise _no_derivative(first_line(error)) from error

    @property
    def predicted(self) -> Tensor:
        """What the model predicts, as shares of the classes, [n, classes]."""
        chances = self._chances.mean(dim=0)[:, : self._weights.shape[2]]
        return chances / chances.sum(dim=1, keepdim=True)

    def mixed(self, shares: Tensor) -> list[Tensor]:
        """The sum of the rows' gradients, one tensor for each parameter, for labels in these shares, [n, classes]."""
        found: list[Tensor] = [torch.empty(0)] * len(self._shapes)
        for group, places, weights in zip(self._groups, self._places, self._weights, strict=True):
            weighted = shares * weights
            spare = self._logits.shape[2] - weighted.shape[1]  # outputs beyond the classes are never the label
            pulled = self._chances * weighted.sum(dim=1, keepdim=True) - functional.pad(weighted, (0, spare))
            for place, gradient in zip(places, self._pull(group, pulled / len(self._logits)), strict=True):
                found[place] = gradient
        return found

    def slopes(self, direction: Sequence[Tensor]) -> Tensor:
        """The product of a direction with the gradient of each label, [n, classes]."""
        found = torch.zeros_like(self._weights[0])
        for pulls, places, weights in zip(self._pulls, self._places, self._weights, strict=True):
            pushed = self._pushed(pulls, [direction[i] for i in places])
            along = (self._chances * pushed).sum(dim=2, keepdim=True) - pushed[..., : weights.shape[1]]
            found += weights * along.mean(dim=0)
        return found

    def pulled(self, along: Tensor) -> list[Tensor]:
        """Jᵀ of something on the logits, [copies, n, outputs], one tensor for each parameter; nothing is clipped."""
        found: list[Tensor] = [torch.empty(0)] * len(self._shapes)
        for group, places in zip(self._groups, self._places, strict=True):
            for place, gradient in zip(places, self._pull(group, along), strict=True):
                found[place] = gradient
        return found

    def pushed(self, direction: Sequence[Tensor]) -> Tensor:
        """How a direction changes the differences between logits, [copies, n, outputs] with rows that add up to 0."""
        total = torch.zeros_like(self._pulled)
        for pulls, places in zip(self._pulls, self._places, strict=True):
            total += self._pushed(pulls, [direction[i] for i in places])
        return total - total.mean(dim=2, keepdim=True)

    def refuse_no_derivative(self) -> None:
        """Hold both maps together: a custom backward pass may have a derivative of zero, or none.

        Raises:
            InputError: products with a sum of gradients are not those that slopes give.
        """
        shares = functional.one_hot(torch.zeros_like(self._weights[0, :, 0]).long(), self._weights.shape[2])
        total = self.mixed(shares.to(self._weights.dtype))
        product, square = float((self.slopes(total) * shares).sum()), _dot(total, total)
        if abs(product - square) > _OFF * square:
            raise _no_derivative(f"a product of {square:.4g} comes out as {product:.4g}")

    def _pushed(self, pulls: Sequence[Tensor], direction: Sequence[Tensor]) -> Tensor:
        """J of a direction in a group's parameters, as the derivative of Jᵀ."""
        product = sum((pull * part).sum() for pull, part in zip(pulls, direction, strict=True))
        assert isinstance(product, Tensor)
        try:
            return torch.autograd.grad(product, self._pulled, retain_graph=True, materialize_grads=True)[0]
        except RuntimeError as error:
            raise _no_derivative(first_line(error)) from error

    def _pull(self, group: Sequence[Tensor], pulled: Tensor, *, create_graph: bool = False) -> Sequence[Tensor]:
        """Jᵀ of something on the logits, one tensor for each parameter of a group."""
        return torch.autograd.grad(
            self._logits,
            group,
            pulled,
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
            materialize_grads=True,
        )


@dataclass(frozen=True)
class Projection:
    """What a search found.

    Attributes:
        nearest: the point of the hull, one tensor for each parameter.
        error: bound on the distance to the true projection.
    """

    nearest: list[Tensor]
    error: float


def nearest_mean(
    target: Sequence[Tensor],
    blocks: Callable[[], Iterator[LabelGradients]],
    *,
    rows: int,
    steps: int,
    tolerance: float,
) -> Projection:
    """The point of the hull that is nearest to a target.

    Args:
        target: one tensor for each parameter.
        blocks: gives the rows in the same order each time, in blocks that fit into memory.
        rows: in all of them, >= 1.
        steps: at most, >= 1.
        tolerance: ends the search where the bound on the error is this share of the distance to the target.
    """
    here = _mean((block.mixed(block.predicted) for block in blocks()), rows)
    error = math.inf
    for _ in range(steps):
        away = [point - goal for point, goal in zip(here, target, strict=True)]
        corner = _mean((block.mixed(_lowest(block.slopes(away))) for block in blocks()), rows)
        move = [there - point for there, point in zip(corner, here, strict=True)]
        gap, length = max(0.0, -_dot(away, move)), _dot(move, move)
        error = math.sqrt(2 * gap)
        if length == 0 or error <= tolerance * math.sqrt(_dot(away, away)):
            break
        for point, change in zip(here, move, strict=True):
            point.add_(change, alpha=min(1.0, gap / length))
    return Projection(here, error)


def nearest_in_span(
    target: Sequence[Tensor], blocks: Callable[[], Iterator[LabelGradients]], *, steps: int, tolerance: float
) -> list[Tensor]:
    """The combination of the rows' gradients for all labels that is nearest to a target, whatever its coefficients are.

    Conjugate gradients on the normal equations (CGLS). The directions that many rows share come first, so to end early
    leaves out those that hold more noise than gradient.

    Args:
        target: one tensor for each parameter.
        blocks: gives the rows in the same order each time, in blocks that fit into memory.
        steps: at most, >= 1.
        tolerance: ends the search where the slopes that are left are this share of those at the start.
    """
    found = [torch.zeros_like(part) for part in target]
    left = [part.clone() for part in target]
    slopes = [block.pushed(left) for block in blocks()]
    ways, first = slopes, _dot(slopes, slopes)
    now = first
    for _ in range(steps):
        if now <= tolerance**2 * first:
            break
        way = _mean((block.pulled(along) for block, along in zip(blocks(), ways, strict=True)), 1)
        length = _dot(way, way)
        if length == 0:
            break
        for point, rest, part in zip(found, left, way, strict=True):
            point.add_(part, alpha=now / length)
            rest.sub_(part, alpha=now / length)
        slopes = [block.pushed(left) for block in blocks()]
        before, now = now, _dot(slopes, slopes)
        ways = [slope + way * (now / before) for slope, way in zip(slopes, ways, strict=True)]
    return found


def _mean(sums: Iterator[list[Tensor]], rows: int) -> list[Tensor]:
    total = next(sums)
    for each in sums:
        for one, other in zip(total, each, strict=True):
            one.add_(other)
    return [one.div_(rows) for one in total]


def _lowest(slopes: Tensor) -> Tensor:
    """Each row on the class of its least slope, [n, classes] of 0 and 1."""
    return functional.one_hot(slopes.argmin(dim=1), slopes.shape[1]).to(slopes.dtype)


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return float(sum((a.double() * b.double()).sum() for a, b in zip(one, other, strict=True)))


def _no_derivative(found: str) -> InputError:
    return InputError(
        f"the projection needs a derivative of the model's backward pass, and finds none ({found}); "
        "use layers of plain tensor operations, or public_batch=0 for no projection"
    )


# What examples contribute where only their labels are private: gradients, whose noisy mean is projected.
#
# Unit: the label of an example. The private part is that of `ExampleContribution`: each drawn example adds its clipped
# gradient, whatever its label is, and nothing else reads a label. The noisy mean is then projected onto the hull of the
# mean gradients that any labels could have given, on a batch of inputs of its own (`hull`).
#
# That batch is drawn from a stream of its own and by nothing else. The model that is released depends on it, and an
# attacker who holds the inputs may find it out. Were it the batch of the sum, who was drawn would be known with it, and
# sampling would hide no one; so it says nothing about that one (see docs/explanation/label-privacy.md).


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

    def clipped_sum(self, context: RoundContext) -> ClippedSum:
        """The sum of the examples' bounded gradients; the corners of the hull are bounded in the same way."""
        self._weights = partial(context.bound.weights, clip_norm=context.clip_norm)
        self._groups = context.bound.groups(self.trained.layout.names)
        return super().clipped_sum(context)

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
