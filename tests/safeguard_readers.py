"""Every public reader, what it reads three users from, and why a safeguard cannot apply to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from safeguard_files import (
    LATIN,
    POST_TWICE,
    characters,
    csv_file,
    events,
    events_static_twice,
    films,
    from_table,
    json_lines,
    leaf,
    leaf_listed_twice,
    leaf_twice,
    linked,
    linked_file,
    linked_stays,
    linked_tff,
    listed_pictures,
    meds_in_two_splits,
    meds_names,
    meds_twice,
    memory,
    mimic_names,
    mimic_twice,
    npz,
    npz_twice,
    npz_users,
    omniglot,
    outcomes_twice,
    parquet,
    physionet,
    pictures,
    play,
    posts,
    rated,
    read_events,
    read_visits,
    shards,
    stars,
    static_twice,
    table,
    tff,
    twice,
    two_parquets,
    two_shards,
    two_tffs,
    visit_frame,
    visits,
    visits_twice,
    written,
)
from sfumato import data

NAMES = {
    "names that differ in case": ["bo", "Ann", "ann"],
    "names that differ in Unicode form": ["bo", "\u00e9ve", "e\u0301ve"],
    "names that differ in compatible characters": ["bo", "Anna", "\uff21\uff4e\uff4e\uff41"],
    "names that differ in blanks": ["bo", "ann", "ann "],
    "a name that may stand for a missing one": ["bo", "NA", "cy"],
    "a missing name": ["bo", " ", "cy"],
    "a name that is no UTF-8": ["bo", LATIN, "cy"],
}
FILES = {
    "a file of two users": r"names the same file as .*: a file of two users is hidden with neither; keep it for one",
    "a part twice by a link": "are the same file, and its records would count twice; keep one",
    "a key twice": "is there twice",
    "a user listed twice": r"the (user|patient|stay_id|subject_id) '.*' is there twice.*; list each",
}
COUNTED = "2 of 3 users have names that differ only in case, blanks, zeros or Unicode form"
WORDS = {
    **{name: COUNTED for name in NAMES if name.startswith("names that differ")},
    "a name that may stand for a missing one": "1 of 3 users have names that often stand for a missing one, 'NA'",
    "a missing name": r"is missing \(null, NaN, empty or blank\)|has an empty or blank name",
    "a name that is no UTF-8": "UTF-?8",
    **FILES,
}
REFUSED = {"a missing name", "a name that is no UTF-8", *FILES}
NO_FILES = "it reads one file, or a table in memory"
OWN_FILES = "each row has its own values; no file is named for a user"
NO_JSON = "it reads no JSON"
MANY_ROWS = "a user has many rows, and each of them names the user"
IDS = "the standard's ids are whole numbers, which are written in one way"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How a reader is tried.

    Attributes:
        of: the reader's name, or the public function that reads.
        read: reads users of these names, written into a folder.
        cases: of safeguards that names do not say: reads something with that fault.
        but: why a safeguard cannot apply.
    """

    of: Callable | str
    read: Callable[[Path, list[str]], Any] | None = None
    cases: dict[str, Callable[[Path], Any]] = field(default_factory=dict)
    but: dict[str, str] = field(default_factory=dict)


def folders(of: str, read: Callable[[Path], Any], inner: str = "1.png", but: dict[str, str] | None = None) -> Reader:
    return Reader(
        of=of,
        read=lambda folder, names: read(pictures(folder, names, inner)),
        cases={"a file of two users": lambda folder: read(linked(folder, inner))},
        but={
            "a part twice by a link": "its parts are the users' files",
            "a key twice": NO_JSON,
            "a user listed twice": "a folder has each name once",
            **(but or {}),
        },
    )


TRIMMED = {"names that differ in blanks": "the blanks around a field of a delimited file are no part of it"}
NO_PARTS = {"a part twice by a link": NO_FILES}
NO_SHARED = {"a file of two users": OWN_FILES}
ROWS = {"a user listed twice": MANY_ROWS}
UTF8 = {"a name that is no UTF-8": "Arrow's texts are UTF-8"}
JSON_UTF8 = {"a name that is no UTF-8": "pyarrow refuses a file of other bytes as a whole"}

OMNIGLOT = dict.fromkeys(
    ["names that differ in blanks", "a name that may stand for a missing one", "a missing name"],
    "a name is an alphabet, a slash and the number of a character",
)

READERS = {
    "image_folder": folders("a folder of pictures", data.open_users),
    "image_folder, classes": folders("a folder of pictures", data.open_users, "kind/1.png"),
    "omniglot_folder": folders("Omniglot's folder", data.open_users, "character01/1_01.png", but=OMNIGLOT),
    "pack": folders("a folder of pictures", lambda path: data.open_users(path, store=path.with_name("store"))),
    "pack, encoded": folders(
        "a folder of pictures", lambda path: data.open_users(path, store=path.with_name("store"), keep="encoded")
    ),
    "open_store": folders(
        "a packed store",
        lambda path: data.open_users(path, store=path.with_name("s")) and data.open_users(path.with_name("s")),
    ),
    "omniglot_npz": Reader(
        of="Omniglot's npz",
        read=lambda folder, names: data.open_users(npz(folder, **omniglot(names))),
        cases={"a key twice": lambda folder: data.open_users(npz_twice(folder, "drawer", **omniglot(["a", "b", "c"])))},
        but=NO_SHARED | NO_PARTS | OMNIGLOT | {"a user listed twice": "a character is numbered once"},
    ),
    "array_file": Reader(
        of="an npz file of arrays",
        read=npz_users,
        cases={
            "a key twice": lambda folder: data.open_users(
                npz_twice(folder, "users", inputs=np.eye(3), users=np.array(["a", "b", "c"]))
            )
        },
        but=NO_SHARED | NO_PARTS | ROWS,
    ),
    "from_arrays": Reader(
        of=data.from_arrays,
        read=lambda folder, names: memory(names),
        but=NO_SHARED | NO_PARTS | ROWS | {"a key twice": NO_JSON},
    ),
    "from_table, CSV": Reader(
        of="a table",
        read=lambda folder, names: from_table(
            csv_file(folder / "t.csv", "who,x", [(name, place + 0.5) for place, name in enumerate(names)])
        ),
        cases={"a file of two users": listed_pictures},
        but=NO_PARTS | ROWS | TRIMMED | {"a key twice": NO_JSON},
    ),
    "from_table, JSON lines": Reader(
        of="a table",
        read=lambda folder, names: from_table(
            json_lines(folder / "t.jsonl", [{"who": name, "x": place + 0.5} for place, name in enumerate(names)])
        ),
        cases={
            "a file of two users": listed_pictures,
            "a key twice": lambda folder: from_table(
                twice(folder / "t.jsonl", '{"who": "ann", "x": 1.5}\n{"who": "bo", "who": "ann", "x": 2.5}\n')
            ),
        },
        but=NO_PARTS | ROWS | JSON_UTF8,
    ),
    "from_table, Parquet": Reader(
        of="a table",
        read=lambda folder, names: from_table(parquet(folder / "t.parquet", table(names))),
        cases={
            "a file of two users": listed_pictures,
            "a part twice by a link": lambda folder: from_table(two_parquets(folder, table(["ann", "bo", "cy"]))),
        },
        but=ROWS | UTF8 | {"a key twice": NO_JSON},
    ),
    "from_table, pandas": Reader(
        of="a table",
        read=lambda folder, names: from_table(table(names).to_pandas()),
        cases={"a file of two users": listed_pictures},
        but=NO_PARTS | ROWS | UTF8 | {"a key twice": NO_JSON},
    ),
    "from_table, tar": Reader(
        of="a table",
        read=lambda folder, names: shards(folder, names, user="who" if LATIN in names else "json.who"),
        cases={
            "a part twice by a link": two_shards,
            "a key twice": lambda folder: shards(folder, ["ann", "bo"], ', "who": "cy"', user="json.who"),
        },
        but=ROWS | {"a file of two users": "links within a tar are refused, and a member is of one sample"},
    ),
    "emnist_leaf": Reader(
        of="federated EMNIST (LEAF)",
        read=lambda folder, names: data.open_users(leaf(folder, names)),
        cases={
            "a part twice by a link": lambda folder: data.open_users(linked_file(leaf(folder, ["ann", "bo"]))),
            "a key twice": leaf_twice,
            "a user listed twice": leaf_listed_twice,
        },
        but=NO_SHARED,
    ),
    "emnist_leaf, store": Reader(
        of="federated EMNIST (LEAF)",
        read=lambda folder, names: data.open_users(leaf(folder, names), store=folder / "store"),
        cases={"a key twice": leaf_twice, "a user listed twice": leaf_listed_twice},
        but=NO_SHARED | NO_PARTS,
    ),
    "emnist_tff": Reader(
        of="federated EMNIST (.h5)",
        read=lambda folder, names: data.open_users(tff(folder, names)),
        cases={"a part twice by a link": two_tffs, "a file of two users": linked_tff},
        but={"a key twice": NO_JSON, "a user listed twice": "a group of HDF5 has each name once"}
        | {"a name that is no UTF-8": "a name of HDF5 is UTF-8"},
    ),
    "text_users, JSON lines": Reader(
        of="texts of users",
        read=lambda folder, names: characters(posts(folder, names)),
        cases={"a key twice": lambda folder: characters(twice(folder / "posts.jsonl", POST_TWICE))},
        but=NO_SHARED | NO_PARTS | ROWS,
    ),
    "text_users, store": Reader(
        of="texts of users",
        read=lambda folder, names: data.open_users(
            posts(folder, names), text="characters", length=8, store=folder / "store"
        ),
        cases={"a key twice": lambda folder: characters(twice(folder / "posts.jsonl", POST_TWICE))},
        but=NO_SHARED | NO_PARTS | ROWS,
    ),
    "text_users, play": Reader(
        of="texts of users",
        read=lambda folder, names: characters(play(folder, names)),
        but=NO_SHARED
        | NO_PARTS
        | ROWS
        | {"a key twice": NO_JSON, "names that differ in blanks": "a role ends at its colon, blanks do not count"},
    ),
    "uncounted_texts": Reader(
        of=data.uncounted_texts,
        read=lambda folder, names: data.uncounted_texts(posts(folder, names), length=4),
        cases={"a key twice": lambda folder: data.uncounted_texts(twice(folder / "posts.jsonl", POST_TWICE), length=4)},
        but=NO_SHARED | NO_PARTS | ROWS,
    ),
    "ratings, CSV": Reader(
        of="ratings",
        read=lambda folder, names: data.open_users(films(folder, names)),
        cases={"a part twice by a link": lambda folder: data.open_users(linked_file(films(folder, ["ann", "bo"])))},
        but=NO_SHARED | ROWS | TRIMMED | {"a key twice": NO_JSON},
    ),
    "ratings, Parquet": Reader(
        of="ratings",
        read=lambda folder, names: rated(parquet(folder / "r.parquet", stars(names))),
        cases={"a part twice by a link": lambda folder: rated(two_parquets(folder, stars(["a", "b", "c"])))},
        but=NO_SHARED | ROWS | UTF8 | {"a key twice": NO_JSON},
    ),
    "ehr_from_tables, CSV": Reader(
        of=data.ehr_from_tables,
        read=lambda folder, names: read_visits(visits(folder, names)),
        cases={"a key twice": visits_twice, "a user listed twice": static_twice},
        but=NO_SHARED | NO_PARTS | TRIMMED,
    ),
    "ehr_from_tables, pandas": Reader(
        of=data.ehr_from_tables,
        read=lambda folder, names: read_visits(visit_frame(names)),
        cases={"a user listed twice": static_twice},
        but=NO_SHARED | NO_PARTS | UTF8 | {"a key twice": NO_JSON},
    ),
    "ehr_from_events": Reader(
        of=data.ehr_from_events,
        read=lambda folder, names: read_events(events(folder, names)),
        cases={"a user listed twice": events_static_twice},
        but=NO_SHARED | NO_PARTS | TRIMMED | {"a key twice": NO_JSON},
    ),
    "read_meds": Reader(
        of=data.read_meds,
        read=meds_names,
        cases={"a part twice by a link": meds_twice, "a user listed twice": meds_in_two_splits},
        but=NO_SHARED | UTF8 | {"a key twice": NO_JSON},
    ),
    "mimic_iv": Reader(
        of=data.mimic_iv,
        read=mimic_names,
        cases={"a user listed twice": mimic_twice},
        but=NO_SHARED | NO_PARTS | {"a key twice": NO_JSON} | {name: IDS for name in NAMES if name != "a missing name"},
    ),
    "physionet2012": Reader(
        of=data.physionet2012,
        read=physionet,
        cases={"a file of two users": linked_stays, "a user listed twice": outcomes_twice},
        but={
            "a part twice by a link": "its parts are the stays' files",
            "a key twice": NO_JSON,
            **TRIMMED,
        },
    ),
    "write_users": Reader(
        of=data.write_users,
        read=written,
        cases={"a user listed twice": lambda folder: written(folder, ["ann", "bo", "ann"])},
        but=NO_SHARED | NO_PARTS | {"a key twice": NO_JSON},
    ),
    "write_store": Reader(
        of=data.write_store,
        read=lambda folder, names: data.write_store(memory(names), folder / "store"),
        but=NO_SHARED | NO_PARTS | {"a key twice": NO_JSON, "a user listed twice": "a data set has each user once"},
    ),
}

EXAMPLES = "the unit is one example; rows have no names of users"
NO_READER = {
    "EHRDataset": "patients in memory; each once, which its own test tries",
    **dict.fromkeys(["ExampleDataset", "UserDataset", "Encoding", "UncountedTexts", "Schema"], "no reader"),
    **dict.fromkeys(["Split", "Tokenizer", "MissingPart"], "no reader"),
    **dict.fromkeys(["ExampleOptions", "PictureOptions", "RatingOptions", "TableOptions", "UserOptions"], "no reader"),
    **dict.fromkeys(["Reader", "Records"], "what readers are made of"),
    **dict.fromkeys(["split_examples", "split_groups", "split_labels", "split_users", "order_of_content"], "divides"),
    **dict.fromkeys(["to_tensor", "with_user_column", "examples_from_users"], "changes what was read"),
    "examples_from_ratings": "changes what was read",
    **dict.fromkeys(["write_ehr_events", "write_ehr_tables", "write_meds", "write_examples"], "writes what was read"),
    "the embedded data": "no person is in drawn data",
    "glyphs": "no person is in drawn data, whose names are numbers",
    **dict.fromkeys(["examples_from_arrays", "open_examples"], EXAMPLES),
    "ZipfClicks": "no person is in drawn data",
    "criteo_schema": "what is public of columns; its files are read as tables are",
    "draft_schema": "what columns are called and hold; no user is in it",
    "open_users": "each of its readers is tried by its name",
    "read_schema": "what is public of columns; no user is in it",
}
