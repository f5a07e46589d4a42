"""Membership inference: whether the nearest synthetic record tells who was trained on.

The attacker has somebody's record and the synthetic ones, and says "member" where the nearest of them is closer than a
threshold. The threshold is the best one on half of the members and outsiders; the other half tells how often it is
right, both kinds counting the same. The ideal is 0.5. The first half also tells the side: a generator that keeps away
from its members tells who they are, too, and then the attacker says "member" where the nearest is farther.

How many members are found with one outsider in a hundred suspected (TPR at 1 % FPR) tells about the few that are
remembered best. Its ideal is what is found of members who are strangers to the generator, too: beta-binomial, a little
more than 1 %, and exact whatever the distances are. Its excess is against the ends of that, because draws among the few
nearest outsiders say little.
"""

from collections.abc import Callable

import numpy as np

from sfumato.audit.ehr.attack import Attack, Measure
from sfumato.audit.ehr.scale import Placed, nearest_distances
from sfumato.metrics.tabular.bootstrap import LEVEL, Interval, bootstrap

FPR = 0.01


def membership_inference(members: Placed, outsiders: Placed, synthetic: Placed, rng: np.random.Generator) -> Attack:
    """The attack on what was learned from `members`.

    Args:
        members: records that the generator was trained on, at least 2.
        outsiders: real records that it has not seen, at least 2.
        synthetic: what it made, at least 1.
        rng: halves both and draws the intervals.
    """
    sides = [rng.permutation(nearest_distances(each, synthetic)) for each in (members, outsiders)]
    learned, tested = ([each[half::2] for each in sides] for half in (0, 1))
    side = best_side(*learned)
    threshold = best_threshold(*(side * each for each in learned))
    accuracy = _interval(lambda inside, outside: accuracy_at(threshold, side * inside, side * outside), tested, rng)
    excess = Interval(*(end - 0.5 for end in (accuracy.value, accuracy.low, accuracy.high)))
    guess = Measure(name="accuracy", found=accuracy, ideal=Interval.exact(0.5), excess=excess)
    found, ideal = _interval(tpr_at_fpr, sides, rng), ideal_tpr(len(members), len(outsiders))
    beyond = Interval(found.value - ideal.value, found.value - ideal.high, found.value - ideal.low)
    measures = (guess, Measure(name="TPR at 1 % FPR", found=found, ideal=ideal, excess=beyond))
    return Attack(name="membership inference", measures=measures, records=len(members) + len(outsiders))


def best_threshold(members: np.ndarray, outsiders: np.ndarray) -> float:
    """The distance up to which to say "member": the lowest of those with the best accuracy; −∞ for never.

    >>> best_threshold(np.array([0.0, 1, 5]), np.array([2.0, 3, 6]))
    1.0
    """
    candidates = np.unique(np.concatenate([[-np.inf], members, outsiders]))
    right = np.searchsorted(np.sort(members), candidates, "right") / len(members)
    wrong = np.searchsorted(np.sort(outsiders), candidates, "right") / len(outsiders)
    return float(candidates[np.argmax(right - wrong)])


def best_side(members: np.ndarray, outsiders: np.ndarray) -> int:
    """1 where members are best told by small distances, −1 where by large ones.

    >>> best_side(np.array([0.0, 1, 5]), np.array([2.0, 3, 6])), best_side(np.array([4.0, 5]), np.array([1.0, 2]))
    (1, -1)
    """
    found = {}
    for side in (1, -1):
        inside, outside = side * members, side * outsiders
        found[side] = accuracy_at(best_threshold(inside, outside), inside, outside)
    return 1 if found[1] >= found[-1] else -1


def accuracy_at(threshold: float, members: np.ndarray, outsiders: np.ndarray) -> float:
    """Share of right answers where either kind comes half of the time."""
    return float(((members <= threshold).mean() + (outsiders > threshold).mean()) / 2)


def tpr_at_fpr(members: np.ndarray, outsiders: np.ndarray, fpr: float = FPR) -> float:
    """Share of members nearer than the threshold that suspects at most this share of outsiders.

    >>> tpr_at_fpr(np.array([0.0, 1, 5]), np.array([2.0, 3, 6]))
    0.6666666666666666
    """
    ordered = np.sort(outsiders)
    allowed = int(fpr * len(ordered))  # of them may be suspected
    return float((members < ordered[allowed]).mean())


def ideal_tpr(members: int, outsiders: int, fpr: float = FPR) -> Interval:
    """What `tpr_at_fpr` is where members and outsiders come from one distribution: its mean and the middle 95 %.

    >>> ideal_tpr(3000, 1000)
    Interval(value=0.01098901098901099, low=0.004666666666666667, high=0.019333333333333334)
    """
    from scipy.stats import betabinom  # late: it takes half a second to import

    suspected = int(fpr * outsiders)
    found = betabinom(members, suspected + 1, outsiders - suspected)
    low, high = found.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2]) / members
    return Interval((suspected + 1) / (outsiders + 1), float(low), float(high))


def _interval(statistic: Callable[..., float], sides: list[np.ndarray], rng: np.random.Generator) -> Interval:
    return bootstrap(
        lambda *rows: statistic(*(side[each] for side, each in zip(sides, rows, strict=True))),
        [len(side) for side in sides],
        rng,
    )
