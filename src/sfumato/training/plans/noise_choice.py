"""Which noise a plan adds: fields, the strategy that they name, and the mechanism that is made of it."""

from dataclasses import dataclass
from typing import Literal, get_args

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import Participation
from sfumato.accounting.strategies import (
    BandedToeplitz,
    BinaryTree,
    BufferedToeplitz,
    InverseBanded,
    Strategy,
    by_name,
)
from sfumato.training.plans.unused import refuse_unused

NoiseName = Literal["gaussian", "tree", "banded", "blt", "bisr", "auto"]

NOISE_ONLY_FOR: dict[str, tuple[str, ...]] = {
    "bands": ("banded", "bisr"),
    "buffers": ("blt",),
    "tree_estimator": ("tree",),
    "tree_restart": ("tree",),
    "tree_completion": ("tree",),
    "prefix_error": ("banded", "blt", "bisr", "auto"),
    "coefficients": ("banded", "blt", "bisr"),
    "column_scales": ("banded",),
}
"""Fields that some kinds of noise read."""

DEFAULT_PARTS = 8
"""Parts of cyclic Poisson sampling, and bands of its noise, where neither is given."""


@dataclass(frozen=True, kw_only=True)
class NoiseChoice:
    """Fields that decide how the noise of one round and the next belong together.

    Attributes:
        noise: "gaussian" draws it anew in every round; "tree", "banded", "blt" and "bisr" correlate it, so that later
            rounds take back what earlier ones added (DP-FTRL), which needs sampling that limits how often a unit takes
            part; "auto" takes the one with the least error that meets the budget.
        bands: banded and bisr: vectors that the noise is made of; None for 16, or as many as the separation allows
            (bisr: the best number).
        buffers: blt: vectors that the noise is made of; None for 4.
        tree_estimator: tree: "efficient" (Honaker's) or "plain"; None for efficient.
        tree_restart: tree: rounds of a tree; then a new one begins, and the server forgets its momentum. None for one
            tree.
        tree_completion: tree: fill a tree up with empty rounds before a new one begins.
        prefix_error: what the coefficients keep small: the "mean" or the "max" of the errors of all sums so far; None
            for mean.
        coefficients: of the strategy: banded, its first column; blt, output scales and then decays; bisr, the first
            column of its inverse. None optimises them for the rounds and the participation at hand.
        column_scales: banded: a factor on each column of the strategy, one for each round.
    """

    noise: NoiseName = "gaussian"
    bands: int | None = None
    buffers: int | None = None
    tree_estimator: Literal["efficient", "plain"] | None = None
    tree_restart: int | None = None
    tree_completion: bool = False
    prefix_error: Literal["mean", "max"] | None = None
    coefficients: tuple[float, ...] | None = None
    column_scales: tuple[float, ...] | None = None

    def check_noise(self) -> None:
        """Refuse values of no use, and settings of another kind of noise than the chosen one.

        Raises:
            InputError: there is one.
        """
        _check.one_of(get_args(NoiseName), noise=self.noise)
        refuse_unused(self, "noise", NOISE_ONLY_FOR)
        for name in ("bands", "buffers", "tree_restart"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})
        if self.tree_estimator is not None:
            _check.one_of(("efficient", "plain"), tree_estimator=self.tree_estimator)
        if self.prefix_error is not None:
            _check.one_of(("mean", "max"), prefix_error=self.prefix_error)
        if self.tree_completion and self.tree_restart is None:
            raise InputError(
                "tree_completion needs tree_restart: a single tree is never completed; set it, or leave both"
            )
        if self.column_scales is not None and self.coefficients is None:
            raise InputError("column_scales need coefficients; give both, or leave both out")
        if self.coefficients is not None:
            _ = self.strategy(Participation(rounds=1))  # refuses what is no strategy

    def strategy(self, limits: Participation) -> Strategy | None:
        """The strategy for a run with these limits; None for noise that is drawn anew.

        Raises:
            InputError: there is none of this kind.
        """
        match self.noise:
            case "gaussian" | "auto":
                return None
            case "tree":
                if self.tree_restart is not None and self.tree_restart >= limits.rounds:
                    raise InputError(
                        f"tree_restart={self.tree_restart} comes after the last of {limits.rounds} rounds; leave it "
                        "out for a single tree"
                    )
                return BinaryTree(
                    estimator=self.tree_estimator or "efficient",
                    restart_every=self.tree_restart,
                    completion=self.tree_completion,
                )
            case name:
                return by_name(
                    name,
                    limits,
                    bands=self.bands,
                    buffers=self.buffers,
                    prefix_error=self.prefix_error or "mean",
                    coefficients=self.coefficients,
                    column_scales=self.column_scales,
                )

    def noise_walk(self, rounds: int) -> float | None:
        """The largest variance of a sum of rounds' noise, in that of z; None where rounds are independent, or the
        strategy is still open."""
        if self.noise != "tree" and self.coefficients is None:
            return None
        strategy = self.strategy(Participation(rounds=rounds))
        return None if strategy is None else float(strategy.prefix_variance(rounds).max())


def coefficients_of(strategy: Strategy | None) -> dict[str, tuple[float, ...] | None]:
    """The fields of a plan that say the strategy again."""
    match strategy:
        case BandedToeplitz():
            return {"coefficients": strategy.coefficients, "column_scales": strategy.column_scales}
        case BufferedToeplitz():
            return {"coefficients": (*strategy.output_scales, *strategy.buffer_decays)}
        case InverseBanded():
            return {"coefficients": strategy.inverse_coefficients}
        case _:
            return {}
