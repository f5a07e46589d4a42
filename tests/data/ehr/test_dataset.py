"""Health records in memory: what fits together, what is refused, and how patients are taken out and divided."""

from dataclasses import replace

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema, categorical, numeric

SCHEMA = Schema(
    id="stay",
    time="hour",
    time_unit="hours",
    static=(numeric("age", whole=True), categorical("died", ["no", "yes"])),
    temporal=(numeric("pulse"), categorical("ward", ["a", "b", "c"])),
    outcome="died",
)


def _records(patients: int = 3) -> EHRDataset:
    """Patient i has i + 1 visits, an hour apart."""
    lengths = np.arange(patients) + 1
    visits = int(lengths.sum())
    return EHRDataset(
        schema=SCHEMA,
        ids=tuple(f"p{i}" for i in range(patients)),
        static_numbers=np.arange(patients, dtype=float)[:, None] + 30,
        static_codes=np.arange(patients)[:, None] % 2,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=np.concatenate([np.arange(length, dtype=float) for length in lengths]),
        numbers=np.arange(visits, dtype=float)[:, None],
        codes=np.arange(visits)[:, None] % 3,
    )


def test_patients_are_taken_in_the_given_order_with_their_visits():
    data = _records()
    taken = data.take([2, 0])
    assert taken.ids == ("p2", "p0")
    assert taken.offsets.tolist() == [0, 3, 4]
    assert taken.numbers[:, 0].tolist() == [3, 4, 5, 0]
    assert taken.codes[:, 0].tolist() == [0, 1, 2, 0]
    assert taken.times.tolist() == [0, 1, 2, 0]
    assert taken.static_numbers[:, 0].tolist() == [32, 30]
    assert taken.owners.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("rows", "said"), [([3], "0 … 2, got 3"), ([-1], "got -1"), ([0, 0], "listed once, got 0 twice")]
)
def test_patients_that_are_not_there_or_are_named_twice_are_refused(rows: list[int], said: str):
    with pytest.raises(InputError, match=said):
        _records().take(rows)


def test_a_split_has_every_patient_once_and_a_new_patient_moves_no_other():
    data = _records(60)
    train, test = data.split(0.25, seed=1)
    assert sorted([*train.ids, *test.ids]) == sorted(data.ids)
    assert 5 <= len(test) <= 25  # 60 draws of 1/4: beyond that in less than one seed of a thousand
    without = data.take(range(1, 60))
    assert set(without.split(0.25, seed=1)[1].ids) == set(test.ids) - {"p0"}
    assert set(data.split(0.25, seed=2)[1].ids) != set(test.ids)


def test_a_split_with_an_empty_part_is_refused():
    with pytest.raises(InputError, match="two parts that both have some"):
        _records(1).split(0.5, seed=0)


def test_the_outcome_is_the_second_category():
    assert _records(4).outcome().tolist() == [0, 1, 0, 1]
    with pytest.raises(InputError, match=r"'died' of patient 'p1' is missing"):
        replace(_records(), static_codes=np.array([[0], [-1], [1]])).outcome()
    with pytest.raises(InputError, match="names no outcome"):
        replace(_records(), schema=replace(SCHEMA, outcome=None)).outcome()


@pytest.mark.parametrize("field", ["static_numbers", "static_codes", "times", "numbers", "codes"])
def test_the_fingerprint_shows_a_change_of_any_value(field: str):
    data = _records()
    assert _records().fingerprint() == data.fingerprint()
    values = getattr(data, field).copy()
    values.reshape(-1)[-1] += -1 if field in ("codes", "static_codes") and values.reshape(-1)[-1] else 1
    assert replace(data, **{field: values}).fingerprint() != data.fingerprint()


def test_the_fingerprint_shows_other_ids_and_another_schema():
    data = _records()
    assert replace(data, ids=("p0", "p1", "x")).fingerprint() != data.fingerprint()
    assert replace(data, schema=replace(SCHEMA, time_unit="days")).fingerprint() != data.fingerprint()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"offsets": [0, 0, 3, 6]}, "patient 'p0' has no visit"),
        ({"offsets": [0, 2, 1, 6]}, "offsets must ascend"),
        ({"offsets": [0, 1, 3, 5]}, "offsets must ascend"),
        ({"times": [0, 0, 0, 0, 1, 2]}, "patient 'p1' has two visits at 0 hours"),
        ({"times": [0, 2, 1, 0, 1, 2]}, "patient 'p1' has a visit at 1 hours behind one at 2; sort"),
        ({"times": [-1, 0, 1, 0, 1, 2]}, "patient 'p0' has a visit at -1 hours"),
        ({"times": [0, 0, np.nan, 0, 1, 2]}, "patient 'p1' has a visit at nan hours"),
        ({"times": [0, 0, np.inf, 0, 1, 2]}, "patient 'p1' has a visit at inf hours"),
        ({"numbers": [[0], [np.inf], [0], [0], [0], [0]]}, "patient 'p1' has 'pulse' = inf"),
        ({"static_numbers": [[30], [30.5], [np.nan]]}, "patient 'p1' has 'age' = 30.5; numbers must be whole"),
        ({"static_numbers": [[30], [np.inf], [np.nan]]}, "patient 'p1' has 'age' = inf"),
        ({"static_numbers": [[30], [1e300], [np.nan]]}, r"patient 'p1' has 'age' = 1e\+300"),
        ({"codes": [[0], [3], [0], [0], [0], [0]]}, r"codes of 'ward' must be 0 … 2, .* got 3"),
        ({"static_codes": [[0], [-2], [0]]}, "codes of 'died' must be 0 … 1, .* got -2"),
        ({"numbers": [[0], [0]]}, "numbers must have the shape"),
        ({"ids": ("a", "b", "a")}, "the patient 'a' is there twice"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_its_patient(changed: dict, said: str):
    changed = {name: value if name == "ids" else np.array(value) for name, value in changed.items()}
    with pytest.raises(InputError, match=said):
        replace(_records(), **changed)


def test_no_patients_are_refused():
    with pytest.raises(InputError, match="there are no patients"):
        _records().take([])
