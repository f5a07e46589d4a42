"""The whole evaluation: the same for the same seed, in JSON, and what cannot be compared is refused by name."""

import json
from dataclasses import replace

import numpy as np
import pytest

from made_up_patients import SCHEMA, copied, records
from sfumato._check import InputError
from sfumato.audit.ehr import evaluate

TRAIN, HOLDOUT = records(60, 1), records(60, 2)


def test_a_copy_is_told_whole_and_again_by_the_same_seed():
    made, told = copied(TRAIN, 60, 3), []
    first = evaluate(TRAIN, HOLDOUT, made, seed=0, progress=lambda *done: told.append(done))
    assert told == [(done, 15) for done in range(1, 16)]
    assert all(attack.above for attack in first.attacks)
    assert [attack.name for attack in first.attacks] == [
        "membership inference",
        "re-identification",
        "attribute inference",
    ]
    second = evaluate(TRAIN, HOLDOUT, made, seed=0)
    written = json.dumps(first.to_json(), allow_nan=False)
    assert written == json.dumps(second.to_json(), allow_nan=False)
    assert first.fidelity.projections == second.fidelity.projections
    assert "no guarantee" not in written
    assert first.to_json()["guarantee"].startswith("none")


def test_no_more_patients_are_looked_at_than_were_asked_for():
    bare = replace(SCHEMA, outcome=None)
    sides = [replace(side, schema=bare) for side in (TRAIN, HOLDOUT, records(50, 3))]
    found = evaluate(*sides, seed=0, most=30, sensitive=["clinic"])
    assert (found.sizes.real, found.sizes.most) == (60, 30)
    assert found.attacks[0].records == 60
    assert found.utility is None
    assert [measure.name for measure in found.attacks[2].measures] == ["clinic"]


def test_other_schemas_are_refused_with_the_first_difference():
    def changed(**fields):
        return replace(TRAIN, schema=replace(SCHEMA, **fields))

    for other, said in (
        (changed(time_unit="hours"), "time_unit is 'days' there and 'hours' here"),
        (changed(outcome=None), "outcome is 'died' there and None here"),
        (
            changed(temporal=(replace(SCHEMA.temporal[0], name="sodium"), *SCHEMA.temporal[1:])),
            "the temporal column 'bili' is a numeric column there and no column here",
        ),
        (
            changed(static=(*SCHEMA.static[:3], replace(SCHEMA.static[3], categories=("a", "b", "c")))),
            "the static column 'clinic' is a categorical column there and one with other categories",
        ),
    ):
        with pytest.raises(InputError, match=said):
            evaluate(TRAIN, HOLDOUT, other, seed=0)


def test_patients_on_both_real_sides_are_refused():
    both = TRAIN.take(np.arange(30))
    with pytest.raises(InputError, match="30 patients are in the real and in the held-out records, '1-0' for one"):
        evaluate(TRAIN, both, HOLDOUT, seed=0)


def test_too_few_patients_are_refused():
    with pytest.raises(InputError, match="needs 20 patients on each side, got 9 synthetic ones"):
        evaluate(TRAIN, HOLDOUT, records(9, 3), seed=0)
    with pytest.raises(InputError, match="no static column 'weight'"):
        evaluate(TRAIN, HOLDOUT, records(30, 3), seed=0, sensitive=["weight"])


def test_copies_are_caught_where_few_of_many_are_asked_about():
    """Of 1,500 patients and their copies 60 each: some of the one hardly meet their originals among some of the
    other."""
    bare = replace(SCHEMA, outcome=None)
    sides = [records(1500, 1), records(600, 2)]
    sides = [replace(side, schema=bare) for side in (*sides, copied(sides[0], 1500, 3))]
    found = evaluate(*sides, seed=0, most=60, sensitive=["clinic"])
    membership, again, _ = found.attacks
    assert membership.measures[0].found.low > 0.9
    assert again.measures[0].found.low > 0.9
    assert membership.records == 120
