"""The nearest of all mean gradients that any labels could have given: projections onto their hull and their span.

With cross entropy, a row x of label k has the gradient Jᵀ(p − e_k), where J is the Jacobian of its logits and p what
the model predicts; clipping multiplies it by w_k. The hull of means over m rows is

    { (1/m) Σ_i Σ_k q_ik · w_ik · J_iᵀ(p_i − e_k) : every q_i a distribution over the classes }.

Nothing of it is ever written out: a point of it is one backward pass, and the products of a direction with all m·K
corners are one pass through the derivative of that pass. No label is read here.

Frank-Wolfe steps with exact line search find the nearest point. Each puts every row on the class that its slope
favours; the gap ⟨v − t, v − s⟩ to that corner s bounds how far v is from the projection v* of t: ‖v − v*‖² ≤ 2·gap.
The search ends where that root is a small public share of ‖t − v‖, or after a public number of steps.

The span of the same gradients is larger, and a projection onto it is linear: noise that it leaves cancels over steps as
it would without. Clipping only changes lengths, so the span does not depend on it.

References:
    Ghazi, Huang, Kamath, Kumar, Manurangsi, Zhang: LabelDP-Pro: Learning with Label Differential Privacy via
    Projections. ICLR 2024 (the projections onto a span, and onto the convex hull of an independent batch).
    Jaggi: Revisiting Frank-Wolfe: Projection-Free Sparse Convex Optimization. ICML 2013 (the gap).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from sfumato._check import InputError, first_line

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
            InputError: products with a sum of gradients are not those that slopes tell.
        """
        shares = functional.one_hot(torch.zeros_like(self._weights[0, :, 0]).long(), self._weights.shape[2])
        total = self.mixed(shares.to(self._weights.dtype))
        told, square = float((self.slopes(total) * shares).sum()), _dot(total, total)
        if abs(told - square) > _OFF * square:
            raise _no_derivative(f"a product of {square:.4g} comes out as {told:.4g}")

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
