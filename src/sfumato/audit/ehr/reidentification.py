"""Re-identification: whether two halves of a synthetic record lead to one and the same patient.

The columns are dealt into two halves (what comes from one column stays together). The attacker looks for the training
record nearest to a synthetic record by the one half, and by the other. Where both lead to the same record, what
is known of somebody by the one half can be joined with what the other half tells. The ideal is the same with real
records of other patients in place of the synthetic ones.

Several records may be equally near: then it counts how likely two fair draws among them agree. The rate is the mean
over several ways of dealing the columns.
"""

import numpy as np

from sfumato._check import InputError
from sfumato.audit.ehr.attack import Attack, Measure
from sfumato.audit.ehr.flatten import Flat, pooled
from sfumato.audit.ehr.scale import Placed, Scale, squared_distances
from sfumato.metrics.tabular.bootstrap import bootstrap, bootstrap_mean

_WAYS = 5


def reidentification(members: Flat, outsiders: Flat, synthetic: Flat, rng: np.random.Generator) -> Attack:
    """The attack on what was learned from `members`; arguments as for `membership_inference`, as flat tables.

    Raises:
        InputError: the records have a single column, which has no halves.
    """
    sources = members.sources
    if len(sources) < 2:
        raise InputError(f"re-identification needs two columns at least, got {len(sources)}; give records with more")
    together = pooled(members, outsiders)
    made, real = np.zeros(len(synthetic)), np.zeros(len(outsiders))
    for _ in range(_WAYS):
        dealt = [sources[place] for place in rng.permutation(len(sources))]
        halves = dealt[: len(dealt) // 2], dealt[len(dealt) // 2 :]
        scales = [Scale(together.without(*half)) for half in halves]
        placed = [
            [scale.place(side.without(*half)) for scale, half in zip(scales, halves, strict=True)]
            for side in (members, synthetic, outsiders)
        ]
        made += agreement(placed[1], placed[0]) / _WAYS
        real += agreement(placed[2], placed[0]) / _WAYS
    excess = bootstrap(lambda a, b: made[a].mean() - real[b].mean(), [len(made), len(real)], rng)
    measure = Measure(
        name="rate of agreement", found=bootstrap_mean(made, rng), ideal=bootstrap_mean(real, rng), excess=excess
    )
    return Attack(name="re-identification", measures=(measure,), records=len(synthetic))


def agreement(queries: list[Placed], records: list[Placed]) -> np.ndarray:
    """How likely the two halves of each query have the same nearest record, float64 [queries] in [0, 1]."""
    found = np.empty(len(queries[0]))
    blocks = (squared_distances(*half) for half in zip(queries, records, strict=True))
    for (rows, first), (_, second) in zip(*blocks, strict=True):
        nearest = [distances == distances.min(1, keepdims=True) for distances in (first, second)]
        chances = nearest[0].sum(1) * nearest[1].sum(1)
        found[rows] = (nearest[0] & nearest[1]).sum(1) / chances
    return found
