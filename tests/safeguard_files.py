"""Three users, or a fault, in a file of each kind that a reader takes."""

import csv
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sfumato import data

LATIN = "Zo\udceb"  # as the file system gives the bytes of Latin-1


def picture(path: Path, place: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((28, 28), 7 * place, np.uint8)).save(path)
    return path


def pictures(folder: Path, names: Sequence[str], inner: str = "1.png") -> Path:
    for place, name in enumerate(names):
        picture(folder / "photos" / name / inner, place)
    return folder / "photos"


def linked(folder: Path, inner: str = "1.png") -> Path:
    root = pictures(folder, ["ann", "bo"], inner)
    os.link(root / "ann" / inner, (root / "bo" / inner).with_name("2" + Path(inner).name[1:]))
    return root


def linked_folder(folder: Path) -> Path:
    root = pictures(folder, ["ann", "bo"])
    (root / "cy").symlink_to("ann")
    return root


def csv_file(path: Path, header: str, rows: Sequence[Sequence[object]]) -> Path:
    text = io.StringIO()
    csv.writer(text).writerows([header.split(","), *rows])
    path.write_bytes(text.getvalue().encode("utf-8", "surrogateescape"))
    return path


def json_lines(path: Path, rows: Sequence[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def twice(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def table(names: Sequence[str]) -> pa.Table:
    return pa.table({"who": [None if name == " " else name for name in names], "x": [0.5 + i for i in range(3)]})


def parquet(path: Path, content: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path)
    return path


def two_parquets(folder: Path, content: pa.Table) -> Path:
    file = parquet(folder / "parts" / "a.parquet", content)
    os.link(file, file.with_name("b.parquet"))
    return folder / "parts"


def from_table(source: Any) -> Any:
    return data.open_users(source, user="who", input="x")


def listed_pictures(folder: Path) -> Any:
    root = linked(folder)
    files = [root / "ann/1.png", root / "bo/2.png"]
    return data.open_users(pa.table({"who": ["ann", "bo"], "file": list(map(str, files))}), user="who", input="file")


def shards(folder: Path, names: Sequence[str], extra: str = "", user: str = "who", ending: str = "who") -> Any:
    """Samples with a text and JSON of the user, and one number as an array."""
    with tarfile.open(folder / "a.tar", "w") as file:
        for place, name in enumerate(names):
            array = io.BytesIO()
            np.save(array, np.array([place + 0.5]))
            held = json.dumps({"who": name}).replace("}", extra + "}")
            for kind, raw in (
                ("json", held.encode()),
                (ending, name.encode("utf-8", "surrogateescape")),
                ("npy", array.getvalue()),
            ):
                member = tarfile.TarInfo(f"{place:03d}.{kind}")
                member.size = len(raw)
                file.addfile(member, io.BytesIO(raw))
    return data.open_users(folder / "a.tar", user=user, input="npy")


def two_shards(folder: Path) -> Any:
    shards(folder, ["ann", "bo"])
    os.link(folder / "a.tar", folder / "b.tar")
    return data.open_users(f"{folder}/*.tar", user="who", input="npy")


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def npz_twice(folder: Path, key: str, **arrays: Any) -> Path:
    path = npz(folder, **arrays)
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr(f"{key}.npy", zipfile.ZipFile(path).read(f"{key}.npy"))
    return path


def bytes_of(names: Sequence[str]) -> np.ndarray:
    """Names as bytes where one is no text."""
    return np.array([name.encode("utf-8", "surrogateescape") for name in names])


def npz_users(folder: Path, names: list[str]) -> Any:
    users = bytes_of(names) if LATIN in names else np.array(names)
    return data.open_users(npz(folder, inputs=np.eye(3), users=users))


def omniglot(names: Sequence[str]) -> dict[str, np.ndarray]:
    return {
        "images": np.zeros((3, 28, 28), np.uint8),
        "character": np.arange(3),
        "alphabet": np.arange(3),
        "drawer": np.arange(3),
        "alphabet_names": bytes_of(names) if LATIN in names else np.array(names),
    }


def leaf(folder: Path, names: Sequence[str]) -> Path:
    people = {name: {"x": [[0.5] * 784], "y": [1]} for name in names}
    return twice(folder / "all.json", json.dumps({"users": list(names), "user_data": people}))


def leaf_twice(folder: Path) -> Any:
    text = leaf(folder, ["ann", "bo"]).read_text().replace('"bo": {', '"ann": {')
    return data.open_users(twice(folder / "all.json", text))


def leaf_listed_twice(folder: Path) -> Any:
    text = leaf(folder, ["ann", "bo"]).read_text().replace('["ann", "bo"]', '["ann", "ann"]')
    return data.open_users(twice(folder / "all.json", text))


def tff(folder: Path, names: Sequence[str]) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "fed_emnist_train.h5", "w") as file:
        for name in names:
            group = file.create_group("examples").create_group(name) if "examples" not in file else None
            group = group if group is not None else file["examples"].create_group(name)
            group["pixels"], group["label"] = np.zeros((1, 28, 28), np.float32), np.array([1])
    return folder


def linked_tff(folder: Path) -> Any:
    tff(folder, ["ann", "bo"])
    with pytest.importorskip("h5py").File(folder / "fed_emnist_train.h5", "a") as file:
        file["examples/cy"] = file["examples/bo"]
    return data.open_users(folder)


def two_tffs(folder: Path) -> Any:
    tff(folder, ["ann", "bo"])
    os.link(folder / "fed_emnist_train.h5", folder / "fed_emnist_test.h5")
    return data.open_users(folder)


def linked_file(path: Path) -> list[Path]:
    os.link(path, other := path.with_name("again" + path.suffix))
    return [path, other]


def posts(folder: Path, names: Sequence[str]) -> Path:
    return json_lines(folder / "posts.jsonl", [{"user": name, "text": "the sea"} for name in names])


POST_TWICE = '{"user": "ann", "user": "bo", "text": "the sea"}\n'


def play(folder: Path, names: Sequence[str]) -> Path:
    text = "\n\n".join(f"{name}:\nThe sea." for name in names)
    path = folder / "play.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def characters(path: Path) -> Any:
    return data.open_users(path, text="characters", length=8)


def visit_rows(names: Sequence[str]) -> list[tuple]:
    return [(name, day, 1.5 + day + place, "fm"[place % 2]) for place, name in enumerate(names) for day in (0, 3)]


def visits(folder: Path, names: Sequence[str]) -> Path:
    return csv_file(folder / "visits.csv", "who,day,bili,sex", visit_rows(names))


def read_visits(source: Any, static: Any = None) -> Any:
    return data.ehr_from_tables(source, static, id="who", time="day")


def visit_frame(names: Sequence[str]) -> pd.DataFrame:
    rows = visit_rows([name if name != " " else "" for name in names])
    return pd.DataFrame(rows, columns=["who", "day", "bili", "sex"])


def visits_twice(folder: Path) -> Any:
    return read_visits(twice(folder / "v.jsonl", '{"who": "ann", "who": "bo", "day": 0, "bili": 1.5}\n'))


def static_twice(folder: Path) -> Any:
    static = csv_file(folder / "static.csv", "who,age", [("ann", 3), ("bo", 4), ("ann", 5)])
    rows = [row[:3] for row in visit_rows(["ann", "bo"])]
    return read_visits(csv_file(folder / "visits.csv", "who,day,bili", rows), static)


def events(folder: Path, names: Sequence[str]) -> Path:
    rows = [(name, day, "pulse", 60 + place + day) for place, name in enumerate(names) for day in (1, 2)]
    return csv_file(folder / "events.csv", "who,day,code,value", rows)


def read_events(source: Any, static: Any = None) -> Any:
    return data.ehr_from_events(source, static, id="who", time="day")


def events_static_twice(folder: Path) -> Any:
    static = csv_file(folder / "static.csv", "who,age", [("ann", 3), ("bo", 4), ("ann", 5)])
    return read_events(events(folder, ["ann", "bo"]), static)


def meds(folder: Path, subjects: Sequence[Any] = (1, 2)) -> Path:
    rows = [(who, pd.Timestamp(2150, 1, day), "pulse", 60.0 + day) for who in subjects for day in (1, 2)]
    frame = pd.DataFrame(rows, columns=["subject_id", "time", "code", "numeric_value"])
    parquet(folder / "data" / "0.parquet", pa.Table.from_pandas(frame, preserve_index=False))
    return folder


def meds_names(folder: Path, names: list[str]) -> Any:
    return data.read_meds(meds(folder, [None if name == " " else name for name in names]))


def meds_twice(folder: Path) -> Any:
    meds(folder)
    os.link(folder / "data" / "0.parquet", folder / "data" / "1.parquet")
    return data.read_meds(folder)


def meds_in_two_splits(folder: Path) -> Any:
    splits = pa.table({"subject_id": [1, 2, 1], "split": ["train", "held_out", "held_out"]})
    parquet(folder / "metadata" / "subject_splits.parquet", splits)
    return data.read_meds(meds(folder), split="held_out")


MIMIC = {
    "patients": ("subject_id,gender,anchor_age", [("1", "F", 60), ("2", "M", 71)]),
    "admissions": (
        "subject_id,hadm_id,admission_type,insurance,marital_status,race,hospital_expire_flag",
        [("1", "10", "URGENT", "Other", "", "WHITE", 0), ("2", "20", "ELECTIVE", "Other", "", "WHITE", 1)],
    ),
    "icustays": (
        "subject_id,hadm_id,stay_id,first_careunit,intime,outtime",
        [
            ("1", "10", "100", "CCU", "2150-01-01 00:00:00", "2150-01-03 00:00:00"),
            ("2", "20", "200", "CCU", "2150-01-01 00:00:00", "2150-01-03 00:00:00"),
        ],
    ),
    "d_labitems": ("itemid,label,fluid,category", [("5", "Glucose", "Blood", "Chemistry")]),
    "labevents": (
        "labevent_id,subject_id,itemid,charttime,valuenum",
        [(1, "1", "5", "2150-01-01 06:00:00", 90), (2, "2", "5", "2150-01-02 12:00:00", 70)],
    ),
}


def mimic(folder: Path, change: Callable[[str, list], list] = lambda name, rows: rows) -> Any:
    for name, (header, rows) in MIMIC.items():
        csv_file(folder / f"{name}.csv", header, change(name, list(rows)))
    return data.mimic_iv(folder)


def mimic_names(folder: Path, names: list[str]) -> Any:
    missing = " " in names

    def change(name: str, rows: list) -> list:
        return [("", *row[1:]) if missing and name == "icustays" else row for row in rows]

    return mimic(folder, change)


def mimic_twice(folder: Path) -> Any:
    return mimic(folder, lambda name, rows: [*rows, rows[0]] if name == "icustays" else rows)


def stays(folder: Path, names: Sequence[str] = ("1", "2")) -> Any:
    for name in names:
        (folder / "set").mkdir(exist_ok=True)
        lines = "Time,Parameter,Value\n00:00,RecordID,1\n00:00,Age,54\n00:07,HR,73\n"
        (folder / "set" / f"{name}.txt").write_text(lines)
    return csv_file(
        folder / "outcomes.txt", "RecordID,In-hospital_death", [(name, 0) for name in names if name != LATIN]
    )


def physionet(folder: Path, names: list[str]) -> Any:
    return data.physionet2012(folder / "set", stays(folder, names))


def linked_stays(folder: Path) -> Any:
    outcomes = stays(folder)
    (folder / "set" / "2.txt").unlink()
    os.link(folder / "set" / "1.txt", folder / "set" / "2.txt")
    return data.physionet2012(folder / "set", outcomes)


def outcomes_twice(folder: Path) -> Any:
    stays(folder)
    rows = [("1", 0), ("2", 1), ("1", 1)]
    return data.physionet2012(folder / "set", csv_file(folder / "outcomes.txt", "RecordID,In-hospital_death", rows))


def films(folder: Path, names: Sequence[str]) -> Path:
    return csv_file(folder / "ratings.csv", "userId,movieId,rating", [(name, 7, 3.5) for name in names])


def stars(names: Sequence[str]) -> pa.Table:
    return table(names).append_column("film", pa.array([1, 2, 3]))


def rated(source: Any) -> Any:
    return data.open_users(source, user="who", item="film", value="x")


def stream(names: Sequence[str]) -> Any:
    return ((name, np.zeros((1, 2)), np.zeros(1, np.int64)) for name in names)


def written(folder: Path, names: Sequence[str]) -> Any:
    return data.write_users(stream(names), folder / "store", (2,), np.dtype(np.float64), num_classes=1)


def memory(names: list[str]) -> Any:
    users = bytes_of(names) if LATIN in names else np.array(names)
    return data.from_arrays(np.eye(3), np.zeros(3, np.int64), users)
