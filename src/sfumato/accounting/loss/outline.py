"""The outline of a pair: a thousand cells, fine around its bulk, to decide how to look closer.

A grid must end somewhere, needs a gap, and is best composed under a tilt; all of that follows from moments and tails
that a few cells of uneven width tell well enough. Bounds do not rest on them, with two exceptions: the tails beyond
which a grid ends are computed masses of the pair, and so is the precision of those masses.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.accounting.doubles import EPS
from sfumato.accounting.pairs import Pair

_SIDE = 400  # cells on each side of the bulk
_FINEST = 1e-12  # distance of the first edge from the bulk, relative to the span
_WIDEST = 0.25  # cell; `error` of a wide one, at its upper edge, says little about its lower one


@dataclass(frozen=True, eq=False)
class Outline:
    """Masses of a pair on cells of uneven width.

    Attributes:
        edges: losses, float [k + 1].
        losses: log(P/Q) of each cell, float [k].
        masses: P of each cell, float [k].
        above: P between each edge and infinity, without what Q never shows, float [k + 1].
        below: P below each edge, float [k + 1].
        precision: bound on the relative error of the tails of P and Q at the ends of each cell, float [k].
        bulk: a loss near which most of P lies.
    """

    edges: np.ndarray
    losses: np.ndarray
    masses: np.ndarray
    above: np.ndarray
    below: np.ndarray
    precision: np.ndarray
    bulk: float

    def ends(self, tail: float) -> tuple[float, float]:
        """Losses below and above which at most `tail` of P lies."""
        first = int(np.searchsorted(self.below, tail, side="right")) - 1
        last = len(self.above) - int(np.searchsorted(self.above[::-1], tail, side="right"))
        return float(self.edges[max(first, 0)]), float(self.edges[min(last, len(self.edges) - 1)])

    def error(self, low: float, high: float) -> float:
        """Bound on the relative error of the tails between two losses."""
        seen = (self.edges[:-1] >= low) & (self.edges[1:] <= high)
        return float(self.precision[seen].max(initial=0.0)) + 4 * EPS


@lru_cache(maxsize=256)
def outline(pair: Pair) -> Outline:
    """The outline of a pair; remembered."""
    low, high = pair.span()
    width = max(high - low, 1e-12 * (1.0 + abs(high)))
    bulk = min(max(pair.bulk(), low), high)
    steps = np.geomspace(_FINEST * width, width, _SIDE)
    even = np.arange(low, high, max(_WIDEST, width / 1500))
    edges = np.concatenate([[low, high], even, bulk - steps, [bulk], bulk + steps])
    edges = np.unique(np.clip(edges, low, high))
    edges = np.concatenate([[low - 1e-3 * width], edges])  # the lowest loss of all belongs to a cell
    upper, lower, error = pair.cells(np.concatenate([[-np.inf], edges, [np.inf]]))
    above = np.concatenate([np.cumsum(upper[-2:0:-1])[::-1], [0.0]]) + max(0.0, float(upper[-1]) - pair.infinity())
    below = np.cumsum(upper[:-1])
    precision = _precision(edges, above + pair.infinity(), below, np.cumsum(lower[:-1]), error)
    upper, lower = upper[1:-1], lower[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        # the mean of the loss is above that of e^-loss by half its variance, which is that of an even cell
        losses = np.clip(np.log(upper) - np.log(lower) + np.diff(edges) ** 2 / 24, edges[:-1], edges[1:])
    losses = np.where(np.isfinite(losses), losses, edges[1:])
    return Outline(edges, losses, upper, above, below, precision, bulk)


def _precision(
    edges: np.ndarray, above: np.ndarray, below: np.ndarray, below_lower: np.ndarray, error: np.ndarray
) -> np.ndarray:
    """Error of P - Q e^edge in a cell relative to the larger of the tails at its ends, of which it is made."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        tails = np.minimum(np.maximum(below, below_lower * np.exp(np.minimum(edges, 700.0))), above)
        larger = np.maximum(tails[:-1], tails[1:])
        relative = error[1:-1] / larger
    return np.where(larger > 0, relative, 0.0)
