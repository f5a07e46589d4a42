"""Strategies: matrices of correlated noise, the errors of their prefix sums, the best for given limits."""

from sfumato.accounting.strategies.banded_search import optimize_banded
from sfumato.accounting.strategies.banded_toeplitz import BandedToeplitz, square_root
from sfumato.accounting.strategies.binary_tree import BinaryTree
from sfumato.accounting.strategies.bisr_search import banded_inverse_square_root
from sfumato.accounting.strategies.blt_search import optimize_blt
from sfumato.accounting.strategies.buffered_toeplitz import BufferedToeplitz
from sfumato.accounting.strategies.by_name import DEFAULT_BANDS, MatrixName, by_name
from sfumato.accounting.strategies.independent import Independent
from sfumato.accounting.strategies.inverse_banded import InverseBanded
from sfumato.accounting.strategies.strategy import Strategy, root_error

__all__ = [
    "DEFAULT_BANDS",
    "BandedToeplitz",
    "BinaryTree",
    "BufferedToeplitz",
    "Independent",
    "InverseBanded",
    "MatrixName",
    "Strategy",
    "banded_inverse_square_root",
    "by_name",
    "optimize_banded",
    "optimize_blt",
    "root_error",
    "square_root",
]
