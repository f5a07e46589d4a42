"""Tree aggregation (DP-FTRL): sums over time, released from binary trees of noisy partial sums.

Unit: whoever contributes at most one clipped vector a round, in the rounds that the participation limits allow; the
sampler must enforce the limits. Every node of a tree is a sum with its own Gaussian noise, so all nodes together are
one Gaussian release of sensitivity S clip norms, S^2 = max over participation patterns of sum_nodes (participations
below the node)^2, also when later contributions depend on earlier releases (Kairouz et al. 2021, Theorem 4.1 and
Appendix D; Denisov et al. 2022, Theorem 2.1). Its cost is rho = S^2 / (2 z^2).

- zero_out: a unit's contributions become zero and everybody else takes part as before. Sensitivity S.
- replace: two sequences of contributions, perhaps in different rounds, each of norm at most S. Sensitivity 2 S.
- add_remove: refused. One unit more would shift the others to other rounds, by an amount that nothing bounds. Where
  each unit's rounds do not depend on the others, zero_out says the same.

What is computed from the noisy nodes costs nothing more: prefix sums, their residuals, Honaker's efficient estimator.

>>> run = TreeAggregation(noise_multiplier=7.0, steps=2000, max_participations=6, min_separation=313)
>>> run.squared_sensitivity, round(run.rho("zero_out"), 3)
(79, 0.806)
"""

from dataclasses import dataclass

from sfumato._check import InputError, whole
from sfumato.accounting.events.event import event_kind
from sfumato.accounting.events.stream import StreamEvent
from sfumato.accounting.streams.tree_sensitivity import Forest, squared_sensitivity


@event_kind("tree_aggregation")
@dataclass(frozen=True, slots=True, kw_only=True)
class TreeAggregation(StreamEvent):
    """All nodes of one tree, or of several one after another.

    One participation in a tree of T rounds costs S^2 = ceil(log2(T + 1)). A tree for each epoch of n rounds with one
    participation an epoch is `TreeAggregation(noise_multiplier=z, steps=n) * epochs`, in any order within the epochs.

    Attributes:
        noise_multiplier: std of the noise of a node divided by the clip norm, > 0.
        steps: rounds in total, 1 to 10^12. Rounds in which nobody took part count.
        max_participations: most rounds with one unit, in the whole run, >= 1; None where only `min_separation` limits
            it.
        min_separation: least number of rounds between two of them, >= 0 (y - x - 1 for rounds x < y), also across
            the start of a new tree.
        restart_every: rounds after which a new tree starts, >= 1; the last tree may be shorter. None: one tree.
        completion: whether a tree that is followed by another one is first filled up with empty rounds, so that its
            root is released ("tree completion"). The last tree is not.
        max_per_tree: most rounds with one unit in one tree, >= 1; None for no such limit.

    Raises:
        InputError: a value is out of range, or speaks of several trees where there is one.
    """

    restart_every: int | None = None
    completion: bool = False
    max_per_tree: int | None = None

    def __post_init__(self) -> None:
        self._check_stream()
        if not isinstance(self.completion, bool):
            raise InputError(f"completion must be True or False, got {self.completion!r}")
        if self.restart_every is None:
            if self.completion or self.max_per_tree is not None:
                raise InputError("completion and max_per_tree need restart_every; a single tree is never completed")
            return
        whole(restart_every=self.restart_every, remedy="None for a single tree")
        object.__setattr__(self, "restart_every", int(self.restart_every))
        if self.max_per_tree is not None:
            whole(max_per_tree=self.max_per_tree, remedy="None for no limit")
            object.__setattr__(self, "max_per_tree", int(self.max_per_tree))

    @property
    def squared_sensitivity(self) -> float:
        """S^2 in squared clip norms: the maximum, or an upper bound within some percent where `exact` is false."""
        return squared_sensitivity(self._forest()).value

    @property
    def exact(self) -> bool:
        """Whether `squared_sensitivity` is the maximum. It is, but for hundreds of participations."""
        return squared_sensitivity(self._forest()).exact

    def _squared(self) -> float:
        return self.squared_sensitivity

    def _is_exact(self) -> bool:
        return self.exact

    def _forest(self) -> Forest:
        return Forest(self.participation, self.restart_every, self.completion, self.max_per_tree)
