"""The ratings of 610 real users, against pandas."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sfumato.data import open_users


@pytest.mark.shared
def test_real_ratings_are_those_that_pandas_reads(shared: Path) -> None:
    folder = shared / "movielens_latest_small"
    data = open_users(folder, value_range=(0.5, 5))
    frame = pd.read_csv(folder / "ratings.csv")
    assert repr(data) == "UserDataset(610 users, 100,836 values of 9,724 items)"
    items = np.array(data.item_names, int)
    assert items.tolist() == sorted(frame.movieId.unique())
    for user, rows in frame.sort_values("timestamp", kind="stable").groupby("userId"):
        inputs, values = data.examples(int(user) - 1)
        assert items[inputs[:, 0]].tolist() == rows.movieId.tolist()
        assert values.tolist() == rows.rating.tolist()
