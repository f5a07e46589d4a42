"""Labeled Faces in the Wild as people in one line, from Hugging Face and from the path, and trained on."""

from pathlib import Path

import datasets
import numpy as np
import pytest

from sfumato import models
from sfumato.data import open_users
from sfumato.federated import FedEmb


@pytest.mark.shared
def test_faces_of_a_parquet_file_are_people_to_train_on(shared: Path, tmp_path: Path) -> None:
    file = shared / "lfw_112.parquet"
    rows = datasets.Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "cache"))

    people = open_users(file, user="person", size=28)
    first = open_users(rows.select(range(2000)), user="person", size=28)  # decoding takes nearly all of the time

    assert (len(people), people.num_examples, people.input_shape) == (5749, 13233, (28, 28, 3))
    place = {name: user for user, name in enumerate(people.user_ids)}
    for user, name in enumerate(list(first.user_ids)[:-1]):  # the last one may go on behind row 2000
        assert (first.examples(user)[0] == people.examples(place[name])[0]).all()
    held = rows.select_columns("person").to_pandas()["person"].value_counts()
    assert people.sizes.tolist() == [held[name] for name in people.user_ids]
    some = people.subset(np.flatnonzero(people.sizes == 5)[:12]).compact_labels()
    plan = FedEmb(
        rounds=2,
        cohort={"size": 2, "users_per_client": 3},
        noise=1.0,
        client={"epochs": 1},
        seed=1,
    )
    result = plan.fit(models.lenet(embedding_dim=8, in_channels=3), some, out=tmp_path / "run")
    assert result.finished
    assert (result.statement.unit, len(some)) == ("user", 12)
