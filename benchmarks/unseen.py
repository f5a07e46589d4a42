"""Data that neither a recipe nor a rule of the defaults was made on, written as files that commands read.

The rules of `sfumato.training.defaults` were tried while they were written on `MADE_ON` only. `benchmarks/defaults.py`
measures them on `UNSEEN`. Both lists were committed before the first trial. They come with packages (scikit-learn,
statsmodels), or lie in `../shared/data`, where they are public.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

MADE_ON = ("adult", "mnist, 6,000 digits", "digits of scikit-learn", "glyphs", "Omniglot", "ml-latest-small")
"""What the rules were tried on while they were written."""


@dataclass(frozen=True)
class DataSet:
    """A data set that is written to a folder.

    Attributes:
        name: of it.
        command: the words that train on it, where {folder} is the folder.
        write: writes it into a folder.
        metric: what is compared, a key of the evaluation.
        higher: whether more of it is better.
    """

    name: str
    command: tuple[str, ...]
    write: Callable[[Path], None]
    metric: str
    higher: bool = True


def _sklearn(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        import sklearn.datasets

        found: Any = getattr(sklearn.datasets, f"load_{name}")()
        names = [str(each).replace(" ", "_") for each in found.feature_names]
        target = found.target if name == "diabetes" else [f"class {each}" for each in found.target]
        values = found.target / 100 if name == "diabetes" else target  # targets far from 1 are divided by a number
        _table(folder, [*names, "y"], zip(*found.data.T.tolist(), list(values), strict=True))
        _schema(folder, *(("--target", "y") if name == "diabetes" else ("--label", "y")))

    return write


def _statsmodels(name: str, label: str, made: Callable[[str], str], delimiter: str = ",") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        spec = importlib.util.find_spec("statsmodels")
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"{name} comes with statsmodels: pip install statsmodels")
        file = Path(spec.submodule_search_locations[0]) / "datasets" / name / f"{name}.csv"
        lines = file.read_text("utf-8").replace("'", "").splitlines()
        header, *rows = csv.reader(lines, delimiter=delimiter)
        at = header.index(label)
        header[at] = "y"
        _table(folder, header, ([*row[:at], made(row[at]), *row[at + 1 :]] for row in rows))
        _schema(folder, *(("--target", "y") if name == "randhie" else ("--label", "y")))
        if name == "randhie":
            schema = folder / "schema.yaml"
            schema.write_text(schema.read_text("utf-8").replace("kind: target", "kind: count"), "utf-8")

    return write


def _insurance(folder: Path) -> None:
    """A fifth of the policies; whether there was a claim of damage."""
    import pyarrow.parquet as pq

    table = pq.read_table(SHARED / "pg15training.parquet").slice(0, 20_000)
    left_out = ("PolNum", "Numtppd", "Numtpbi", "Indtppd", "Indtpbi", "SubGroup2", "CalYear")
    names = [each for each in table.column_names if each not in left_out]
    columns = [table[each].to_pylist() for each in names]
    claims = ["claim" if each else "none" for each in table["Numtppd"].to_pylist()]
    _table(folder, [*names, "y"], zip(*columns, claims, strict=True))
    _schema(folder, "--label", "y")


def _orl(folder: Path) -> None:
    from PIL import Image

    faces = np.load(SHARED / "orl_faces.npz")
    _pictures(folder, ((f"{who:03}", Image.fromarray(face)) for face, who in zip(*faces.values(), strict=True)))


def _cfp(folder: Path) -> None:
    import pyarrow.parquet as pq
    from PIL import Image

    rows = pq.read_table(SHARED / "cfp_112.parquet", columns=["image", "person"]).to_pylist()
    _pictures(folder, ((row["person"], Image.open(io.BytesIO(row["image"]["bytes"]))) for row in rows))


def _likes(folder: Path) -> None:
    """900 users of MovieLens-1M: whether they liked a film."""
    import pyarrow.parquet as pq

    table = pq.read_table(SHARED / "movielens_1m_interactions.parquet", columns=["user", "movie", "liked"])
    users, films, liked = (table[name].to_numpy() for name in ("user", "movie", "liked"))
    chosen = np.random.default_rng(0).choice(np.unique(users), 900, replace=False)
    kept = np.isin(users, chosen) & (liked >= 0)
    _table(folder, ["user", "item", "value"], zip(users[kept], films[kept], liked[kept], strict=True))
    every = sorted({int(each) for each in pq.read_table(SHARED / "movielens_1m_movies.parquet")["movie"].to_pylist()})
    (folder / "films.txt").write_text("".join(f"{each}\n" for each in every), "utf-8")


def _table(folder: Path, header: list[str], rows: Iterable[Iterable[Any]]) -> None:
    with open(folder / "table.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _schema(folder: Path, *words: str) -> None:
    """As a user drafts it for public records."""
    names = [sys.executable, "-m", "sfumato", "data", "schema", str(folder / "table.csv"), *words, "--ranges", "read"]
    subprocess.run([*names, "--out", str(folder / "schema.yaml")], check=True, stdout=subprocess.DEVNULL)


def _pictures(folder: Path, faces: Iterable[tuple[str, Any]]) -> None:
    for number, (who, face) in enumerate(faces):
        place = folder / "pictures" / who
        place.mkdir(parents=True, exist_ok=True)
        face.resize((32, 32)).convert("L").save(place / f"{number:05}.png")


_TABLE = ("dpsgd", "--data", "{folder}/table.csv", "--schema", "{folder}/schema.yaml")
_FACES = ("fedemb", "--data", "{folder}/pictures")
_RATINGS = ("--user", "user", "--item", "item", "--value", "value", "--items", "{folder}/films.txt")

UNSEEN: dict[str, DataSet] = {
    each.name: each
    for each in (
        DataSet("breast cancer", _TABLE, _sklearn("breast_cancer"), "log_loss", higher=False),
        DataSet("wine", _TABLE, _sklearn("wine"), "log_loss", higher=False),
        DataSet("diabetes", (*_TABLE, "--task", "regression"), _sklearn("diabetes"), "rmse", higher=False),
        DataSet("fair", _TABLE, _statsmodels("fair", "affairs", lambda x: "yes" if float(x) else "no"), "auc"),
        DataSet("anes96", _TABLE, _statsmodels("anes96", "vote", str, "\t"), "log_loss", higher=False),
        DataSet(
            "randhie",
            (*_TABLE, "--task", "counts"),
            _statsmodels("randhie", "mdvis", str),
            "poisson_log_loss",
            higher=False,
        ),
        DataSet("pg15", _TABLE, _insurance, "log_loss", higher=False),
        DataSet("ORL", _FACES, _orl, "recall_at_far"),
        DataSet("CFP", _FACES, _cfp, "recall_at_far"),
        DataSet(
            "likes of 900 users",
            ("fedrecon", "--data", "{folder}/table.csv", *_RATINGS),
            _likes,
            "rmse",
            higher=False,
        ),
    )
}
"""By name; no rule was tried on these before all were written."""
