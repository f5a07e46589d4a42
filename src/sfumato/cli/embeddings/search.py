"""`sfumato search`: a Parquet file of embeddings and somebody to look for → whose embeddings are most alike."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import torch
import tyro
from torch import nn

from sfumato._check import InputError, whole
from sfumato.cli.console import bar, say, say_json, table
from sfumato.cli.embeddings.read import INDEX, USER, EmbeddingTable, open_embeddings
from sfumato.cli.options.backbones import rebuild
from sfumato.cli.parquet import refuse_taken, write_tables
from sfumato.cli.parse import CommonOptions, parse
from sfumato.data import to_tensor
from sfumato.data.image_files import BadImage, decode
from sfumato.data.tables.open import is_table_file
from sfumato.metrics import nearest
from sfumato.metrics.nearest import directions
from sfumato.runs import RunFolder

_ROWS = 16_384  # of the gallery, compared at a time
_ASKED = 1024  # queries answered at a time
_SHOWN = 10  # queries on the terminal
_EQUAL = 1 - 1e-6  # cosine of an embedding with itself, round-off allowed for


@dataclass(frozen=True, kw_only=True)
class SearchOptions(CommonOptions):
    """Where to look, and for whom.

    Attributes:
        gallery: a Parquet file of embeddings, as sfumato embed writes: columns user and embedding, and index, label and
            label_name if they are there.
        query: whom to look for: another such file; or a picture, with --run.
        user: look for this user of the gallery: each of the own rows is a query.
        run: folder of the run whose model made the gallery, to embed a picture with.
        neighbours: most similar rows of the gallery for each query.
        itself: a query that is a row of the gallery (same user, same index, same embedding) finds itself; without
            this it is left out.
        column: the column of embeddings, in both files.
        out: write all neighbours to this Parquet file, which must not exist yet. Its columns are those of the query
            (query_user, query_index …), rank (1 is the nearest), those of the neighbour, and similarity.
    """

    gallery: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="EMBEDDINGS")]
    query: Path | None = None
    user: str | None = None
    run: Path | None = None
    neighbours: int = 5
    itself: bool = False
    column: str = "embedding"
    out: Path | None = None


Queries = Iterator[tuple[pa.Table, np.ndarray]]
"""What the queries are, and their unit rows, some at a time."""


def search(argv: Sequence[str]) -> int:
    about = "Find whose embeddings are most alike, by the cosine of their angle. Memory does not grow with the gallery."
    options = parse(SearchOptions, argv, command="search", about=about)
    whole(neighbours=options.neighbours)
    if options.out is not None:
        refuse_taken(options.out)
    gallery = open_embeddings(options.gallery, options.column)
    count, queries = _queries(options, gallery)
    shown: list[dict[str, Any]] = []
    with bar("searching") as progress:
        answers = _answers(options, gallery, queries, lambda done: progress(done, count))
        if options.out is not None:
            write_tables(options.out, _watched(answers, shown))
        else:
            for answer in answers:
                _keep(answer, shown, every=options.json)
    found = {"gallery": gallery.source.count, "queries": count}
    if options.json:
        say_json({**found, **({"neighbours": shown} if options.out is None else {"out": options.out})})
        return 0
    table(*_told(shown))
    if count > _SHOWN:
        say(f"\nthe first {_SHOWN} of {count:,} queries" + ("; --out FILE writes all" if options.out is None else ""))
    if options.out is not None:
        say(f"\nneighbours of {count:,} queries among {gallery.source.count:,} embeddings: {options.out}")
    return 0


def _queries(options: SearchOptions, gallery: EmbeddingTable) -> tuple[int, Queries]:
    """How many there are, and what they are."""
    if (options.query is None) == (options.user is None):
        raise InputError("whom to look for? give --query FILE (embeddings, or a picture with --run) or --user NAME")
    if options.user is not None:
        _refuse_run(options, "--user")
        return _of_user(options.user, gallery)
    assert options.query is not None
    if is_table_file(options.query):
        _refuse_run(options, "embeddings")
        asked = open_embeddings(options.query, options.column)
        return asked.source.count, asked.blocks(_ASKED)
    if options.run is None:
        raise InputError(
            f"{options.query} is no table of embeddings; give a Parquet file, or for a picture also --run, the run "
            "whose model made the gallery"
        )
    about = pa.table({USER: pa.array([str(options.query)])})
    return 1, iter([(about, _of_picture(options.query, RunFolder(options.run)))])


def _refuse_run(options: SearchOptions, what: str) -> None:
    if options.run is not None:
        raise InputError(f"--run embeds a picture; leave it out with {what}")


def _of_user(user: str, gallery: EmbeddingTable) -> tuple[int, Queries]:
    """A user's own rows."""

    def rows() -> Queries:
        for about, vectors in gallery.blocks(_ASKED):
            mine = np.flatnonzero(_texts(about[USER]) == user)
            if len(mine):
                yield about.take(pa.array(mine)), vectors[mine]

    count = sum(
        int((_texts(pa.chunked_array([block[USER]])) == user).sum()) for block in gallery.source.blocks([USER], _ROWS)
    )
    if not count:
        raise InputError(
            f"{gallery.source.told} has no user {user!r:.80}; sfumato embed writes the names into column user"
        )
    return count, rows()


def _of_picture(file: Path, folder: RunFolder) -> np.ndarray:
    """The embedding of a picture, float32 [1, d]."""
    about = folder.read_plan().get("about") or {}
    model: nn.Module = rebuild(about, folder.model).eval()
    height, width, channels = about["input_shape"]
    try:
        pixels = decode(file, (height, width), channels).pixels
    except BadImage as error:
        raise InputError(f"{file} {error}; give a picture, or a Parquet file of embeddings") from None
    with torch.inference_mode():
        return directions(model(to_tensor(pixels[None])).numpy(), lambda _: f"the embedding of {file}")


def _answers(
    options: SearchOptions, gallery: EmbeddingTable, queries: Queries, progress: Callable[[int], None]
) -> Iterator[pa.Table]:
    """For some queries at a time their neighbours, nearest first."""
    done = 0
    for asked, vectors in queries:
        # One more, for one of them may be the query itself.
        places, similar = nearest(vectors, gallery.vectors(_ROWS), count=options.neighbours + (not options.itself))
        near = gallery.taken(places.reshape(-1), _ROWS)
        owner = np.repeat(np.arange(len(asked)), places.shape[1])
        mine = asked.take(pa.array(owner))
        value = similar.reshape(-1)
        kept = np.ones(len(owner), bool) if options.itself else ~_itself(mine, near, value, owner)
        rank = _counted(owner, kept)
        kept &= rank <= options.neighbours
        answer = pa.table(
            {
                **{f"query_{name}": mine[name] for name in mine.column_names},
                "rank": pa.array(rank),
                **{name: near[name] for name in near.column_names},
                "similarity": pa.array(value),
            }
        )
        yield answer.filter(pa.array(kept))
        done += len(asked)
        progress(done)


def _itself(mine: pa.Table, near: pa.Table, similar: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Which neighbours are the query, bool [pairs]: one of each query at most."""
    same = similar >= _EQUAL
    for name in (USER, INDEX):
        if name in mine.column_names and name in near.column_names:
            same &= _texts(mine[name]) == _texts(near[name])
    return same & (_counted(owner, same) == 1)


def _texts(column: pa.ChunkedArray) -> np.ndarray:
    """A column as words, object [rows]; numbers as they are written."""
    return column.cast(pa.string()).to_numpy()


def _counted(owner: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """For each place how many of its owner's are chosen up to it, int64; owners stand together."""
    running = np.cumsum(chosen)
    first = np.searchsorted(owner, owner)
    return running - (running[first] - chosen[first])


def _watched(answers: Iterator[pa.Table], shown: list[dict[str, Any]]) -> Iterator[pa.Table]:
    for answer in answers:
        _keep(answer, shown, every=False)
        yield answer


def _keep(answer: pa.Table, shown: list[dict[str, Any]], *, every: bool) -> None:
    """Put rows aside to be shown: those of all queries, or of the first ones."""
    begun = sum(row["rank"] == 1 for row in shown)
    queries = np.cumsum(answer["rank"].to_numpy() == 1)
    chosen = answer if every else answer.slice(0, int(np.searchsorted(queries, _SHOWN - begun, side="right")))
    shown += chosen.to_pylist()


def _told(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The table for people: what a query is stands beside its first neighbour only."""
    columns = list(rows[0]) if rows else []
    cells = []
    for row in rows:
        again = row["rank"] > 1
        cells.append([_cell(name, row[name], blank=again and name.startswith("query_")) for name in columns])
    return [name.replace("_", " ") for name in columns], cells


def _cell(name: str, value: Any, *, blank: bool) -> str:
    if blank:
        return ""
    if value is None:
        return "–"
    return f"{value:.4f}" if name == "similarity" else str(value)
