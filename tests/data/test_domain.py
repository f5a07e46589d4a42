"""Classes that are declared: their numbers and their count follow from the declaration, whatever records hold."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sfumato._check import InputError
from sfumato.data import ehr_from_tables, examples_from_arrays, from_arrays, open_users, split_users
from sfumato.data.domain import COUNT, DECLARED_PUBLIC, NAMES
from sfumato.data.store.build import write_store

PUBLIC = ["eel", "bee", "ant", "cat"]


def users(kinds):
    return from_arrays(np.zeros((len(kinds), 2)), kinds, [f"u{row % 4}" for row in range(len(kinds))])


def examples(kinds):
    return examples_from_arrays(np.zeros((len(kinds), 2)), kinds)


@pytest.mark.parametrize("make", [users, examples])
@pytest.mark.parametrize("kinds", [["ant", "bee"] * 4, ["bee"] * 8, ["cat", "ant"] * 4])
def test_declared_names_number_the_classes(make, kinds):
    data = make(kinds)
    assert data.found == (NAMES,)
    declared = data.with_classes(PUBLIC)
    assert (declared.found, declared.num_classes, list(declared.label_names)) == ((), 4, PUBLIC)
    read = declared.examples(0)[1] if make is users else declared.targets
    expected = data.examples(0)[1] if make is users else data.targets
    assert [PUBLIC[label] for label in read] == [data.label_names[label] for label in expected]


@pytest.mark.parametrize("make", [users, examples])
def test_a_record_of_another_class_is_refused(make):
    with pytest.raises(InputError, match="the class 'dog', which is none of the 4 that are declared"):
        make(["ant", "dog"] * 4).with_classes(PUBLIC)
    with pytest.raises(InputError, match="the class 2, which is none of the 2 that are declared"):
        make([0, 2] * 4).with_classes(2)
    with pytest.raises(InputError, match="the classes have names"):
        make(["ant", "bee"] * 4).with_classes(5)


@pytest.mark.parametrize("make", [users, examples])
def test_a_number_declares_classes_that_no_record_has(make):
    assert make([0, 2] * 4).found == (COUNT,)
    with pytest.raises(InputError, match="declare these"):  # their names and order would be the records'
        make(["ant", "bee"] * 4).with_classes(2)
    assert make([0, 2] * 4).with_classes(7).num_classes == 7
    told = make([0, 2] * 4).with_classes(None)
    assert (told.found, told.num_classes, told.assumptions[-1]) == ((), 3, DECLARED_PUBLIC)


def test_a_part_and_a_store_keep_what_is_declared_and_what_was_found(tmp_path: Path):
    data = users(["ant", "bee", "ant", "bee"] * 4)
    assert {part.num_classes for part in vars(split_users(data.with_classes(PUBLIC), test=["u1", "u3"])).values()} == {
        4
    }
    assert open_users(write_store(data, tmp_path / "found") and tmp_path / "found").found == (NAMES,)
    write_store(data.with_classes(PUBLIC), tmp_path / "declared")
    assert open_users(tmp_path / "declared").found == ()


@pytest.mark.parametrize("where", ["static", "visits"])
def test_a_column_of_names_or_free_text_is_refused_where_it_is_inferred(where: str):
    people = 40
    visits = pd.DataFrame({"id": np.repeat(np.arange(people), 2), "day": [0, 3] * people})
    visits["bili"] = np.arange(2.0 * people) + 0.5
    facts = pd.DataFrame({"id": np.arange(people), "sex": ["f", "m"] * (people // 2)})
    table = facts if where == "static" else visits
    table["note"] = [f"of person {row}" for row in range(len(table))]
    with pytest.raises(InputError, match=r"'note' has \d+ different texts, \d+ of them of one patient each"):
        ehr_from_tables(visits, facts, id="id", time="day")
    found = ehr_from_tables(visits, facts, id="id", time="day", drop=["note"])
    assert found.schema.inferred
