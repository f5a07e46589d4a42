"""The flat table against a loop over patients in pandas, and what is never there."""

import numpy as np
import pandas as pd

from made_up_patients import records, shuffled
from sfumato.audit.ehr.flat import flatten, pooled


def test_it_is_what_pandas_finds_patient_by_patient():
    data = records(500, 1)
    flat = flatten(data)
    names = [each.name for each in flat.number_columns]
    for place, column in enumerate(data.schema.temporal_numeric):
        by_patient = pd.DataFrame({"owner": data.owners, "value": data.numbers[:, place]}).groupby("owner")["value"]
        for what, expected in (
            ("last", by_patient.last()),
            ("mean", by_patient.mean()),
            ("least", by_patient.min()),
            ("most", by_patient.max()),
            ("count", by_patient.count()),
        ):
            np.testing.assert_allclose(flat.numbers[:, names.index(f"{column.name} {what}")], expected, err_msg=what)
    stages = pd.Series(data.codes[:, 0]).where(data.codes[:, 0] >= 0).groupby(data.owners)
    modes = stages.agg(lambda codes: codes.mode().min()).fillna(-1)
    np.testing.assert_array_equal(flat.codes[:, -1], modes)
    np.testing.assert_array_equal(flat.codes[:, -2], stages.last().fillna(-1))
    np.testing.assert_array_equal(flat.numbers[:, names.index("visits")], data.lengths)
    assert np.isnan(flat.numbers).any()
    assert (flat.codes[:, -1] == -1).any()


def test_the_columns_of_one_source_go_together():
    flat = flatten(records(5, 1))
    assert flat.sources == ("age", "day", "bili", "albumin", "weight", "stage", "sex", "died", "clinic")
    rest = flat.without("bili", "died")
    assert not any("bili" in each.name or each.name == "died" for each in (*rest.number_columns, *rest.code_columns))
    assert rest.numbers.shape[1] == len(rest.number_columns) == flat.numbers.shape[1] - 5
    assert rest.codes.shape[1] == len(rest.code_columns) == flat.codes.shape[1] - 1


def test_rows_are_taken_and_put_together():
    flat = flatten(records(6, 1))
    both = pooled(flat.take(np.array([4])), flat)
    assert len(both) == 7
    np.testing.assert_array_equal(both.numbers[0], flat.numbers[4])
    np.testing.assert_array_equal(both.codes[1:], flat.codes)


def test_a_generator_of_columns_by_themselves_is_what_it_says():
    data = records(50, 1)
    made = shuffled(data, 2)
    np.testing.assert_array_equal(np.sort(made.numbers, 0), np.sort(data.numbers, 0))
