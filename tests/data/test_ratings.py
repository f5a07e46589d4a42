"""Ratings: releases of MovieLens and tables, as users and as examples."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.data import (
    UserDataset,
    examples_from_ratings,
    from_arrays,
    open_examples,
    open_users,
    split_users,
    with_user_column,
    write_store,
)
from sfumato.data.domain import ITEMS
from sfumato.data.readers.ratings import pairs
from sfumato.labels import LPMST, RROnBins
from sfumato.models import matrix_factorization
from sfumato.training.supervised import Supervised, measure
from slow import by_profile

# Ratings read from files and tables: the same ones, however they are written down.

ROWS = [(2, 50, 3.5, 30), (10, 7, 1.0, 5), (2, 7, 5.0, 10), (10, 50, 4.0, 6), (2, 110, 0.5, 20)]
HEADER = "userId,movieId,rating,timestamp"
COLUMNS = {"user": "who", "item": "film", "value": "stars", "time": "day"}


def _told(data: UserDataset) -> dict[str, list[tuple[str, float]]]:
    """What each user rated, in order."""
    names = data.item_names
    assert names is not None
    return {
        user: [(names[row[0]], value) for row, value in zip(*map(np.ndarray.tolist, data.examples(i)), strict=True)]
        for i, user in enumerate(data.user_ids)
    }


EXPECTED = {"2": [("7", 5.0), ("110", 0.5), ("50", 3.5)], "10": [("7", 1.0), ("50", 4.0)]}


def _table() -> pa.Table:
    return pa.table(dict(zip(COLUMNS.values(), zip(*ROWS, strict=True), strict=True)))


def _csv(path: Path, rows: list = ROWS, header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def _write(kind: str, folder: Path) -> Path:
    """A release of MovieLens, as far as its ratings go."""
    folder.mkdir()
    if kind.endswith("csv"):
        _csv(folder / "ratings.csv")
    elif kind == "dat":
        (folder / "ratings.dat").write_text("".join("::".join(map(str, row)) + "\n" for row in ROWS))
    else:
        (folder / "u.data").write_text("".join("\t".join(map(str, row)) + "\n" for row in ROWS))
    return folder


@pytest.mark.parametrize("kind", ["csv", "dat", "data"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_release_of_movielens_gives_the_same_ratings(kind: str, packed: bool, tmp_path: Path) -> None:
    folder = _write(kind, tmp_path / "ml")
    place = folder
    if packed:
        place = tmp_path / "ml.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for file in folder.iterdir():
                archive.write(file, f"ml/{file.name}")
    data = open_users(place)
    assert _told(data) == EXPECTED
    assert repr(data) == "UserDataset(2 users, 5 values of 3 items)"
    assert data.dtype == np.int64
    if not packed:
        assert _told(open_users(next(folder.iterdir()))) == EXPECTED


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "parquet", "jsonl", "table"])
def test_every_kind_of_table_gives_the_same_ratings(kind: str, tmp_path: Path) -> None:
    source: object = _table()
    if kind != "table":
        path = tmp_path / f"r.{kind}"
        rows = _table().to_pylist()
        if kind == "parquet":
            pyarrow.parquet.write_table(_table(), path)
        elif kind == "jsonl":
            path.write_text("\n".join(str(row).replace("'", '"') for row in rows))
        else:
            text = "\n".join("\t,"[kind != "tsv"].join(map(str, row)) for row in [COLUMNS.values(), *ROWS])
            path.write_bytes(gzip.compress(text.encode()) if kind == "csv.gz" else text.encode())
        source = path
    assert _told(open_users(source, **COLUMNS)) == EXPECTED


@settings(deadline=None, max_examples=by_profile(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(len(ROWS))))
def test_the_order_in_the_file_does_not_matter_where_times_differ(tmp_path: Path, order: list[int]) -> None:
    file = _csv(tmp_path / "r.csv", [ROWS[place] for place in order])
    assert _told(open_users(file)) == EXPECTED
    assert open_users(file).fingerprint() == open_users(_csv(tmp_path / "first.csv")).fingerprint()


def test_without_times_records_keep_the_order_of_the_file(tmp_path: Path) -> None:
    file = _csv(tmp_path / "r.csv", [row[:3] for row in ROWS], "userId,movieId,rating")
    assert _told(open_users(file)) == {"2": [("50", 3.5), ("7", 5.0), ("110", 0.5)], "10": [("7", 1.0), ("50", 4.0)]}
    tied = _csv(tmp_path / "tied.csv", [(*row[:3], 9) for row in ROWS])
    assert _told(open_users(tied)) == _told(open_users(file))


def test_dates_order_as_times_do(tmp_path: Path) -> None:
    file = _csv(tmp_path / "r.csv", [(*row[:3], f"2026-01-{row[3]:02}") for row in ROWS])
    assert _told(open_users(file)) == EXPECTED


def test_users_and_items_that_are_no_numbers_are_in_the_order_of_text(tmp_path: Path) -> None:
    file = _csv(tmp_path / "r.csv", [("b", "10", 1, 1), ("a", "x9", 2, 1), ("007", "9", 3, 1)])
    data = open_users(file)
    assert list(data.user_ids) == ["007", "a", "b"]
    assert list(data.item_names or ()) == ["10", "9", "x9"]


def test_the_catalogue_next_to_the_ratings_numbers_the_items(tmp_path: Path) -> None:
    folder = _write("csv", tmp_path / "ml")
    (folder / "movies.csv").write_text('movieId,title,genres\n7,"Brazil, again (1985)",Drama\n9,Heat,\n50,A,\n110,B,\n')
    data = open_users(folder)
    assert list(data.item_names or ()) == ["7", "9", "50", "110"]
    assert _told(data) == EXPECTED
    told = {"catalogue": "The item catalogue movies.csv next to the ratings", "items": 4}
    assert data.assumptions == (Assumption("items_public", told),)
    assert (data.found, open_users(_write("csv", tmp_path / "other")).found) == ((), (ITEMS,))


@pytest.mark.parametrize(("name", "line"), [("movies.dat", "{}::Amélie::Drama"), ("u.item", "{}|Amélie|01-Jan-1995||")])
def test_old_catalogues_of_films_are_read(name: str, line: str, tmp_path: Path) -> None:
    folder = _write("dat" if name.endswith("dat") else "data", tmp_path / "ml")
    (folder / name).write_bytes("\n".join(line.format(item) for item in (110, 50, 7, 3)).encode("latin-1"))
    assert list(open_users(folder).item_names or ()) == ["110", "50", "7", "3"]
    assert _told(open_users(folder)) == EXPECTED


def test_a_given_catalogue_refuses_or_skips_what_it_does_not_have(tmp_path: Path) -> None:
    file = _csv(tmp_path / "r.csv")
    (tmp_path / "items.txt").write_text("50\n110\n")
    with pytest.raises(InputError, match=r"r.csv line 3 rates the item '7', which items.txt does not have"):
        open_users(file, items=tmp_path / "items.txt")
    data = open_users(file, items=[50, 110], on_unknown="skip")
    assert _told(data) == {"2": [("110", 0.5), ("50", 3.5)], "10": [("50", 4.0)]}
    assert "2 ratings of items that the item catalogue does not have were left out" in data.notes
    only = open_users(file, items=["110"], on_unknown="skip")
    assert list(only.user_ids) == ["2"]
    assert any("1 users without a rating of a known item" in note for note in only.notes)
    with pytest.raises(InputError, match="no rating is of an item"):
        open_users(file, items=["x"], on_unknown="skip")
    with pytest.raises(InputError, match="'50' twice"):
        open_users(file, items=[50, "50"])
    with pytest.raises(InputError, match="no file of items"):
        open_users(file, items=tmp_path / "none.txt")


def test_a_pair_that_is_there_twice_is_refused_or_made_one(tmp_path: Path) -> None:
    file = _csv(tmp_path / "r.csv", [*ROWS, (2, 50, 1.5, 1)])
    with pytest.raises(InputError, match=r"the user '2' has two ratings of the item '50', at .*line 7 and .*line 2"):
        open_users(file)
    last, mean = open_users(file, duplicates="last"), open_users(file, duplicates="mean")
    assert _told(last)["2"] == [("7", 5.0), ("110", 0.5), ("50", 3.5)]
    assert _told(mean)["2"] == [("7", 5.0), ("110", 0.5), ("50", 2.5)]
    assert _told(mean)["10"] == EXPECTED["10"]
    assert "1 ratings of an item that its user had rated before: their mean was taken" in mean.notes


def test_a_user_of_several_files_is_one_person(tmp_path: Path) -> None:
    files = [_csv(tmp_path / "r-1.csv", ROWS[:2]), _csv(tmp_path / "r-2.csv", ROWS[2:])]
    for source in (files, str(tmp_path / "r-*.csv")):
        data = open_users(source)
        assert _told(data) == EXPECTED
        assert "2 users are in several of the 2 files: each is one person" in data.notes
    with pytest.raises(InputError, match=r"r-2.csv line 3"):
        open_users([*files[:1], _csv(tmp_path / "r-2.csv", [*ROWS[2:3], (2, 7, "x", 1)])])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEADER, "has no ratings"),
        ("1,1,4.0,964982703\n1,3,4.0,964981247", "has no header: its first line is '1,1,4.0,964982703'"),
        ("a,b,rating\n1,1,4", "which column is the user.*of a, b, rating"),
        (f"{HEADER}\n1,2,3,4\n\n1,3,good,5", "the value 'good' at .*r.csv line 4 is not a finite number"),
        (f"{HEADER}\n1,2,nan,4", "the value 'nan' at .*line 2"),
        (f"{HEADER}\n1,2,1e40,4", "the value '1e40' at .*line 2"),
        (f"{HEADER}\n1,2,,4", "the value None at .*line 2"),
        (f"{HEADER}\n1,2,1_0,4", "the value '1_0' at .*line 2"),
        (f"{HEADER}\n1,2,3,4\n1,3,9.5,4", r"the value 9.5 at .*line 3 is outside of \[0.5, 5\]"),
        (f"{HEADER}\n1,2,3,4\n ,3,4,4", r"the user is missing \(.*\) at .*line 3"),
        (f"{HEADER}\n1,2,3,4\n1,,4,4", r"the item is missing \(.*\) at .*line 3"),
        (f"{HEADER}\n1,2,3,soon", "the time 'soon' at .*line 2 must be a number or a date"),
        (f"{HEADER}\n1,2,3,4\n\n1,2,3", "line 4 has 3 columns, the first row has 4"),
        ("1::2::3::4\n1::7:x:3::4", "line 2 is not divided by '::'"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(text)
    named = {} if text.startswith((HEADER, "1::")) else {"item": "movieId"}
    with pytest.raises(InputError, match=message) as refusal:
        open_users(tmp_path / "r.csv", value_range=(0.5, 5), **named)
    assert "\n" not in str(refusal.value)


def test_a_bad_value_of_a_table_is_named_by_its_position() -> None:
    table = _table().set_column(2, "stars", pa.array([1.0, 2.0, None, 4.0, 5.0]))
    with pytest.raises(InputError, match="the value None at the table position 2 is not a finite number"):
        open_users(table, **COLUMNS)
    with pytest.raises(InputError, match=r"has no column 'star' for value='star'.*did you mean stars"):
        open_users(_table(), **(COLUMNS | {"value": "star"}))
    with pytest.raises(InputError, match="columns of their own"):
        open_users(_table(), **(COLUMNS | {"value": "day"}))


@pytest.mark.parametrize("options", [{"value_range": (5, 1)}, {"duplicates": "first"}, {"on_unknown": "keep"}])
def test_an_option_that_does_not_exist_is_refused(options: dict) -> None:
    with pytest.raises(InputError):
        open_users(_table(), **COLUMNS, **options)


def test_what_is_no_release_of_movielens_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"no zip")
    with pytest.raises(InputError, match="cannot be read as a zip file"):
        open_users(tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as archive:
        archive.writestr("a.txt", "b")
    for source, told in ((tmp_path / "y.zip", "has no ratings.csv"), (tmp_path, "is none of")):
        with pytest.raises(InputError, match=told):
            open_users(source)
    with pytest.raises(InputError, match="there is nothing at"):
        open_users(tmp_path / "nothing.csv")


def test_names_that_look_similar_are_noted(tmp_path: Path) -> None:
    data = open_users(_csv(tmp_path / "r.csv", [("Ann", 1, 1, 1), ("ann", 1, 1, 1)]))
    assert "2 of 2 users have names that differ only in case" in data.notes[0]


def test_a_user_keeps_its_number_in_every_part(tmp_path: Path) -> None:
    rows = [(user, item, 1, 1) for user in range(40) for item in (3, 4)]
    data = with_user_column(open_users(_csv(tmp_path / "r.csv", rows)))
    assert data.input_shape == (2,)
    for part in split_users(data, test=0.4):
        for place, name in enumerate(part.user_ids):
            assert part.examples(place)[0].tolist() == [[0, int(name)], [1, int(name)]]


def test_ratings_in_a_store_are_the_same(tmp_path: Path) -> None:
    data = open_users(_csv(tmp_path / "r.csv"), items=[7, 50, 110, 3])
    write_store(data, tmp_path / "store")
    opened = open_users(tmp_path / "store")
    assert _told(opened) == EXPECTED
    assert opened.assumptions == data.assumptions
    assert with_user_column(opened).examples(1)[0].tolist() == [[0, 1], [1, 1]]


# The ratings of 610 real users, against pandas.


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


# Pairs of users and items, as they are asked for: read from what ratings are read from, without their values.

WHO = {"user": "user", "item": "item", "users": ["al", "bo"], "items": ["x", "y", "z"]}


def test_rows_keep_the_order_of_the_files_and_take_the_numbers_of_the_lists(tmp_path):
    (tmp_path / "a.csv").write_text("item,when,user\nz,1,bo\nx,2, al \n")
    (tmp_path / "b.csv").write_text("user,item\nbo,y\nbo,z\n")
    found = pairs([tmp_path / "a.csv", tmp_path / "b.csv"], **WHO)
    assert (found.users.tolist(), found.items.tolist(), found.left_out) == ([1, 0, 1, 1], [2, 0, 1, 2], 0)


def test_a_row_of_somebody_or_something_unknown_is_named_by_its_line(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nbo,y\ncy,x\n")
    with pytest.raises(InputError, match=r"a\.csv line 3 asks about 'cy'"):
        pairs(tmp_path / "a.csv", **WHO)
    (tmp_path / "a.csv").write_text("user,item\nbo,q\nal,x\n")
    with pytest.raises(InputError, match=r"a\.csv line 2 asks about the item 'q'"):
        pairs(tmp_path / "a.csv", **WHO)
    found = pairs(tmp_path / "a.csv", **WHO, on_unknown="skip")
    assert (found.users.tolist(), found.items.tolist(), found.left_out) == ([0], [0], 1)


def test_no_one_to_ask_about_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nbo,q\n")
    with pytest.raises(InputError, match="no user is asked about"):
        pairs(tmp_path / "a.csv", **WHO, on_unknown="skip")


# Ratings as single examples: who rated what goes in, and the value is the label, as a number or a class.

HALVES = [count / 2 for count in range(1, 11)]
STARS = [1, 2, 3, 4, 5]


@pytest.fixture
def folder(tmp_path):
    """Sixty people, of whom each even one likes the even films."""
    rng = np.random.default_rng(0)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(60):
        for film in rng.choice(20, 12, replace=False).tolist():
            stars = 4.5 if (user + film) % 2 == 0 else 1.5
            lines.append(f"{user + 1},{film + 1},{stars},0")
    (tmp_path / "ratings.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_every_rating_is_an_example_of_item_and_user(folder):
    people = open_users(folder)
    data = examples_from_ratings(people)
    (inputs,), values = data.examples(np.arange(len(data)))
    rows = [(item, user, value) for user in range(60) for (item,), value in zip(*people.examples(user), strict=True)]
    assert [(item, user, value) for (item, user), value in zip(inputs.tolist(), values, strict=True)] == rows
    assert data.vocabulary_sizes == (20, 60)
    assert data.num_classes is None
    assert Assumption("ratings_public") in data.assumptions


def test_people_keep_their_numbers_in_a_part(folder):
    people = split_users(open_users(folder), test=0.5).test
    part = examples_from_ratings(people)
    assert part.vocabulary_sizes == (20, 60)
    assert len(part) == sum(len(people.examples(user)[1]) for user in range(len(people)))
    assert len(np.unique(part.examples(np.arange(len(part)))[0][0][:, 1])) == len(people)


def test_values_become_the_nearest_class_and_the_upper_one_of_two():
    values = [0.5, 1.0, 2.5, 3.4, 4.5, 5.0]
    people = from_arrays([[item] for item in range(6)], labels=values, users=["al"] * 6)
    as_stars = examples_from_ratings(people, classes=STARS)
    assert as_stars.targets.tolist() == [0, 0, 2, 2, 4, 4]
    assert list(as_stars.label_names) == ["1", "2", "3", "4", "5"]
    as_halves = examples_from_ratings(people, classes=HALVES)
    assert as_halves.targets.tolist() == [0, 1, 4, 6, 8, 9]
    assert (as_halves.num_classes, as_halves.label_names[3]) == (10, "2")


def test_the_one_door_opens_them_as_numbers_or_classes(folder):
    numbers, stars = open_examples(folder), open_examples(folder / "ratings.csv", rating_classes=["1", "2.5", "4"])
    assert (numbers.num_classes, stars.num_classes) == (None, 3)
    assert sorted(set(stars.targets.tolist())) == [0, 2]
    assert np.array_equal(numbers.inputs[0], stars.inputs[0])


@pytest.mark.parametrize("classes", [[1], [2, 1], [1, 1], [1, float("inf")], ["one", "two"], []])
def test_classes_that_are_no_ascending_numbers_are_refused_in_one_line(classes, folder):
    with pytest.raises(InputError, match="classes of ratings must be") as refusal:
        open_examples(folder, rating_classes=classes)
    assert "\n" not in str(refusal.value)


def test_what_are_no_ratings_is_refused():
    with pytest.raises(InputError, match="needed are ratings"):
        examples_from_ratings(from_arrays(np.zeros((2, 3)), labels=[0, 1], users=["al", "bo"]))


@pytest.mark.parametrize(
    ("line", "told"),
    [("61,1,good,0", "'good'"), ("61,1,,0", "line 722"), ("1,1,3.0,0\n1,1,3.0,0", "two ratings"), (",1,3.0,0", "user")],
)
def test_bad_rows_are_refused_in_one_line_that_names_them(line, told, folder):
    path = folder / "ratings.csv"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InputError, match=told) as refusal:
        open_examples(path)
    assert "\n" not in str(refusal.value)


def test_a_model_of_both_ids_learns_whose_taste_it_is(folder):
    data = open_examples(folder)
    items, users = data.vocabulary_sizes
    start = matrix_factorization(items, users=users, factors=4, biases=True, offset=3.0)
    settings = Supervised(epochs=60, batch_size=64, learning_rate=0.05, optimizer="adam", loss="squared")
    (inputs,), values = data.examples(np.arange(len(data)))
    model = settings.fit(start, inputs, values, source=RandomSource.from_seed(0))
    assert measure(model, data)["rmse"] < 0.5 < measure(start, data)["rmse"]


def test_stages_and_bins_take_ratings(folder):
    numbers, stars = open_examples(folder), open_examples(folder, rating_classes=STARS)
    items, users = numbers.vocabulary_sizes
    steps = {"training": {"epochs": 2, "batch_size": 64}, "seed": 0}
    model = matrix_factorization(items, users=users, factors=4, biases=True, classes=5)
    found = LPMST(epsilon=8.0, stages=(0.5, 0.5), **steps).fit(model, stars)
    assert (found.reports == stars.targets).mean() > 0.95
    model = matrix_factorization(items, users=users, factors=4, biases=True, offset=3.0)
    found = RROnBins(epsilon=8.0, low=0.5, high=5.0, values=10, **steps).fit(model, numbers)
    assert abs(found.reports - np.asarray(numbers.targets)).mean() < 0.3
    assert any("Who rated which item is public" in sentence for sentence in found.statement.assumptions)
