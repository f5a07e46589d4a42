"""What a dominating pair has to tell: the masses of two distributions on cells of privacy losses.

A pair (P, Q) dominates a mechanism if no two neighbouring data sets can be told apart better than P from Q, whatever
the test: the hockey-stick curve of the pair lies above that of the mechanism (Zhu, Dong and Wang 2022, Definition 7).
The loss of an outcome is log(P/Q). Pairs compose adaptively, so a run is bounded by the sum of independent losses.
"""

from typing import Protocol

import numpy as np


class Pair(Protocol):
    """A dominating pair. Hashable and immutable, so that its grid can be remembered."""

    def span(self) -> tuple[float, float]:
        """Losses between which all but a negligible part of P lies (1e-38); exact where the loss is bounded."""
        ...

    def bulk(self) -> float:
        """A loss near which most of P lies, for the choice of the grid's offset."""
        ...

    def atom(self) -> float:
        """Mass that both P and Q put on a loss of exactly zero and that `cells` leaves out; 0 as a rule."""
        ...

    def infinity(self) -> float:
        """Mass of P where Q has none; 0 as a rule."""
        ...

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Masses of P and Q on cells of losses (edge_i, edge_i+1], without the atom.

        Args:
            edges: float [k], rising; the first may be -inf (its cell holds what only Q has), the last inf (its cell
                holds what only P has).

        Returns:
            P, Q and a bound on the absolute error of Q e^edge - P at the upper edge; float [k - 1] each.
        """
        ...
