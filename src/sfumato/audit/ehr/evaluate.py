"""Everything that is measured of synthetic health records: fidelity, utility and three attacks.

None of it is a guarantee. Fidelity and utility say what the records are worth, next to the trivial baseline of columns
that are drawn independently; the attacks are examples of what
an attacker could try, and another one may find more. The figures are computed from real records without noise: they are
not private.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from sfumato._check import InputError, whole
from sfumato._random import RandomSource
from sfumato.audit.ehr.attacks import Attack, Scale, attribute_inference, membership_inference, reidentification
from sfumato.audit.ehr.fidelity import Fidelity, fidelity
from sfumato.audit.ehr.flat import flatten, pooled
from sfumato.audit.ehr.utility import MODELS, Utility, utility
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.synthesis.independent_columns import IndependentColumns

MOST = 5000
"""Patients of each side that are asked about; of more, so many by chance."""

FEWEST = 20
"""Patients that each side needs."""

_MORE = {
    "real": "give more",
    "held-out": "hold out more of them before anything is learned (sfumato ehr fit --holdout-share)",
    "synthetic": "draw more (sfumato ehr sample --count)",
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Patients that were given, and those that were looked at."""

    real: int
    holdout: int
    synthetic: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was measured.

    Attributes:
        sizes: how many patients.
        seed: repeats it.
        fidelity: columns, pairs, visits, detector.
        utility: TSTR against TRTR; None where the schema names no outcome.
        attacks: membership inference, re-identification and, where there is a sensitive column, attribute inference.
    """

    sizes: Sizes
    seed: int
    fidelity: Fidelity
    utility: Utility | None
    attacks: tuple[Attack, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields by their names, without the points of the plots."""
        return {
            "sizes": asdict(self.sizes),
            "seed": self.seed,
            "fidelity": self.fidelity.to_json(),
            "utility": None if self.utility is None else asdict(self.utility),
            "attacks": [attack.to_json() for attack in self.attacks],
            "guarantee": "none: the attacks are examples, not a bound",
        }


def evaluate(
    real: EHRDataset,
    holdout: EHRDataset,
    synthetic: EHRDataset,
    *,
    seed: int,
    sensitive: Sequence[str] | None = None,
    most: int = MOST,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Measure synthetic records.

    Args:
        real: what the generator was trained on.
        holdout: real patients that it has not seen, drawn as the others were; the ideal comes from them.
        synthetic: what it made.
        seed: repeats all that is drawn.
        sensitive: static columns that an attacker may want to know; None for all categorical ones, or where there are
            none for all numeric ones.
        most: patients of each side to ask about, at most; of more, so many by chance. Those that an attack searches for
            the nearest ones are never fewer than there are: a copy of a patient would hardly meet its original where
            both sides are some of many. Time grows with `most` times all of them.
        progress: called with (done, total) parts.

    Raises:
        InputError: the schemas differ, a side has fewer than 20 patients, some patients are in both real sides, or a
            sensitive column is not static.
    """
    whole(at_least=0, seed=seed)
    whole(at_least=FEWEST, most=most)
    _refuse(real, holdout, synthetic)
    asked = _sensitive(real.schema) if sensitive is None else tuple(sensitive)
    sizes = Sizes(real=len(real), holdout=len(holdout), synthetic=len(synthetic), most=most)
    flat = [flatten(side) for side in (real, holdout, synthetic)]
    chosen = [
        _some(len(side), most, _draws(seed, name))
        for name, side in (("real", real), ("holdout", holdout), ("synthetic", synthetic))
    ]
    real, holdout, synthetic = (
        side if len(rows) == len(side) else side.take(rows)
        for side, rows in zip((real, holdout, synthetic), chosen, strict=True)
    )
    steps, total = count(1), 8 + (3 * len(MODELS) if real.schema.outcome else 0)

    def step(*_: int) -> None:
        if progress:
            progress(next(steps), total)

    members, outsiders, made = flat
    some_members, some_outsiders, some_made = (side.take(rows) for side, rows in zip(flat, chosen, strict=True))
    scale = Scale(pooled(members, outsiders))  # both members and outsiders
    placed = scale.place(some_members), scale.place(some_outsiders), scale.place(made)
    attacks = [membership_inference(*placed, _draws(seed, "membership"))]
    step()
    attacks.append(reidentification(members, some_outsiders, some_made, _draws(seed, "reidentification")))
    step()
    if asked:
        attacks.append(attribute_inference(some_members, outsiders, made, asked, _draws(seed, "attribute")))
    step()
    classifiers = int(_draws(seed, "utility").integers(2**31))
    drawn = int(_draws(seed, "independent columns").integers(2**31))
    baseline = next(IndependentColumns(real).sample(len(synthetic), seed=drawn, block=len(synthetic)))
    return Evaluation(
        sizes=sizes,
        seed=seed,
        fidelity=fidelity(real, holdout, synthetic, _draws(seed, "fidelity"), baseline=baseline, progress=step),
        utility=utility(real, holdout, synthetic, classifiers, baseline=baseline, progress=step),
        attacks=tuple(attacks),
    )


def _draws(seed: int, part: str) -> np.random.Generator:
    return np.random.default_rng(RandomSource.from_seed(seed).seed64("evaluation", part))


def _some(count: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """Places of so many of them by chance, ascending; all where there are no more."""
    return np.arange(count) if count <= most else np.sort(rng.permutation(count)[:most])


def _sensitive(schema: Schema) -> tuple[str, ...]:
    columns = schema.static_categorical or schema.static_numeric
    return tuple(column.name for column in columns)


def _refuse(real: EHRDataset, holdout: EHRDataset, synthetic: EHRDataset) -> None:
    """Refuse records that cannot be compared."""
    for name, side in (("held-out", holdout), ("synthetic", synthetic)):
        ours, theirs = (replace(each.schema, subject=None) for each in (real, side))  # none in synthetic ones
        if difference := _difference(ours, theirs):
            raise InputError(
                f"the {name} records do not have the schema of the real ones: {difference}; read all three with one "
                "schema"
            )
    for name, side in (("real", real), ("held-out", holdout), ("synthetic", synthetic)):
        if len(side) < FEWEST:
            raise InputError(
                f"an evaluation needs {FEWEST} patients on each side, got {len(side)} {name} ones; {_MORE[name]}"
            )
    if shared := set(real.ids) & set(holdout.ids):
        raise InputError(
            f"{len(shared)} patients are in the real and in the held-out records, {min(shared)!r} for one; hold out "
            "patients that the generator has not seen"
        )


def _difference(real: Schema, other: Schema) -> str:
    """The first thing that two schemas disagree on; "" for none."""
    if real == other:
        return ""
    for field in ("id", "time", "time_unit", "outcome"):
        mine, theirs = getattr(real, field), getattr(other, field)
        if mine != theirs:
            return f"{field} is {mine!r} there and {theirs!r} here"
    for part in ("static", "temporal"):
        mine, theirs = ({each.name: each for each in getattr(side, part)} for side in (real, other))
        for name in [*mine, *theirs]:
            if mine.get(name) != theirs.get(name):
                kinds = [f"a {side[name].kind} column" if name in side else "no column" for side in (mine, theirs)]
                if kinds[0] == kinds[1]:
                    kinds[1] = "one with other categories or other numbers"
                return f"the {part} column {name!r} is {kinds[0]} there and {kinds[1]} here"
    return "their columns stand in another order"
