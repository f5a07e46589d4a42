"""`sfumato search`: a Parquet file of embeddings and somebody to look for → whose embeddings are most alike.

Queries are held some at a time, as many as `_HELD` bytes have room for with their neighbours, and the gallery is gone
through once for these. So it is read once for a hundred thousand queries or so, and memory grows with neither.
"""

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
from sfumato.cli.console import bar, notify, say, say_json, table
from sfumato.cli.embeddings.made_by import made_by_run, refuse_another
from sfumato.cli.embeddings.read import INDEX, USER, EmbeddingTable, open_embeddings
from sfumato.cli.options.backbones import rebuild
from sfumato.cli.parquet import refuse_taken, write_tables
from sfumato.cli.parse import CommonOptions, parse
from sfumato.data import to_tensor
from sfumato.data.image_files import BadImage, decode
from sfumato.data.tables.open import is_table_file
from sfumato.metrics.nearest import directions, nearest_directions
from sfumato.runs import RunFolder

_ROWS = 16_384  # of the gallery, compared at a time
_ASKED = 1024  # queries whose neighbours are told at a time
_HELD = 1 << 26  # bytes of queries and neighbours that go through the gallery together
_NEIGHBOUR = 40  # bytes of each neighbour while it is looked for
_SHOWN = 10  # queries on the terminal
_EQUAL = 1 - 1e-6  # cosine of an embedding with itself, round-off allowed for


@dataclass(frozen=True, kw_only=True)
class SearchOptions(CommonOptions):
    """Where to look, and for whom.

    Attributes:
        gallery: a Parquet file of embeddings, as sfumato embed writes: columns user and embedding, and index, file,
            row, label and label_name if they are there.
        query: whom to look for: another such file; or a picture, with --run.
        user: look for this user of the gallery: each of the own rows is a query.
        run: folder of the run whose model made the gallery, to embed a picture with; another model is refused.
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


Blocks = Iterator[tuple[pa.Table, np.ndarray]]
"""What rows are, and their unit vectors, some at a time."""


@dataclass(frozen=True, kw_only=True)
class Queries:
    """Whom to look for.

    Attributes:
        count: how many queries.
        blocks: they.
        warning: what cannot be told of who made their embeddings; None where nothing is open.
    """

    count: int
    blocks: Blocks
    warning: str | None = None


def search(argv: Sequence[str]) -> int:
    about = "Find whose embeddings are most alike, by the cosine of their angle. Memory does not grow with the gallery."
    options = parse(SearchOptions, argv, command="search", about=about)
    whole(neighbours=options.neighbours)
    if options.out is not None:
        refuse_taken(options.out)
    gallery = open_embeddings(options.gallery, options.column)
    queries = _queries(options, gallery)
    count = queries.count
    shown: list[dict[str, Any]] = []
    with bar("searching") as progress:
        answers = _answers(options, gallery, queries.blocks, lambda done: progress(done, count))
        if options.out is not None:
            write_tables(options.out, _watched(answers, shown), private=True)
        else:
            for answer in answers:
                _keep(answer, shown, every=options.json)
    if queries.warning is not None:
        notify(f"warning: {queries.warning}")
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


def _queries(options: SearchOptions, gallery: EmbeddingTable) -> Queries:
    """Whom to look for."""
    if (options.query is None) == (options.user is None):
        raise InputError("whom to look for? give --query FILE (embeddings, or a picture with --run) or --user NAME")
    if options.user is not None:
        _refuse_run(options, "--user")
        return _of_user(options.user, gallery)
    assert options.query is not None
    if is_table_file(options.query):
        _refuse_run(options, "embeddings")
        return _of_table(options.query, options, gallery)
    if options.run is None:
        raise InputError(
            f"{options.query} is no table of embeddings; give a Parquet file, or for a picture also --run, the run "
            "whose model made the gallery"
        )
    return _of_picture(options.query, options.run, options, gallery)


def _of_table(query: Path, options: SearchOptions, gallery: EmbeddingTable) -> Queries:
    """The rows of another file, or of the gallery itself."""
    asked = open_embeddings(query, options.column)
    remedy = "embed both with one run: sfumato embed RUN DATA --out NEW.parquet"
    warning = None
    if not query.samefile(options.gallery):
        warning = refuse_another((options.gallery, gallery.made_by), (query, asked.made_by), remedy=remedy)
    return Queries(count=asked.source.count, blocks=asked.blocks(_ROWS), warning=warning)


def _refuse_run(options: SearchOptions, what: str) -> None:
    if options.run is not None:
        raise InputError(f"--run embeds a picture; leave it out with {what}")


def _of_user(user: str, gallery: EmbeddingTable) -> Queries:
    """A user's own rows."""

    def rows() -> Blocks:
        for about, vectors in gallery.blocks(_ROWS):
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
    return Queries(count=count, blocks=rows())


def _of_picture(file: Path, run: Path, options: SearchOptions, gallery: EmbeddingTable) -> Queries:
    """The embedding of a picture, by the model that made the gallery."""
    folder = RunFolder(run)
    about = folder.read_plan().get("about") or {}
    model: nn.Module = rebuild(about, folder.model).eval()
    made = made_by_run(folder, about)
    remedy = f"give --run the run that made it, or embed anew: sfumato embed {run} DATA --out NEW.parquet"
    warning = refuse_another((options.gallery, gallery.made_by), (run, made), remedy=remedy)
    height, width, channels = made.input_shape
    try:
        pixels = decode(file, (height, width), channels).pixels
    except BadImage as error:
        raise InputError(f"{file} {error}; give a picture, or a Parquet file of embeddings") from None
    with torch.inference_mode():
        vector = directions(model(to_tensor(pixels[None])).numpy(), lambda _: f"the embedding of {file}")
    return Queries(count=1, blocks=iter([(pa.table({USER: pa.array([str(file)])}), vector)]), warning=warning)


def _answers(
    options: SearchOptions, gallery: EmbeddingTable, queries: Blocks, progress: Callable[[int], None]
) -> Iterator[pa.Table]:
    """For some queries at a time their neighbours, nearest first."""
    count = options.neighbours + (not options.itself)  # one more, for one of them may be the query itself
    done = 0
    for asked, vectors in _together(queries, count):

        def compared(size: int = len(asked), before: int = done) -> Iterator[np.ndarray]:
            rows = 0
            for block in gallery.vectors(_ROWS):
                yield block
                rows += len(block)
                progress(before + size * rows // gallery.source.count)

        places, similar = nearest_directions(vectors, compared(), count=count)
        wanted, back = np.unique(places, return_inverse=True)
        back, near = back.reshape(places.shape), gallery.taken(wanted, _ROWS)
        done += len(asked)
        for start in range(0, len(asked), _ASKED):
            some = slice(start, start + _ASKED)
            found = near.take(pa.array(back[some].reshape(-1)))
            yield _answer(options, asked.slice(start, _ASKED), found, similar[some])


def _together(queries: Blocks, count: int) -> Blocks:
    """Queries, as many at a time as are held while the gallery goes by."""
    waiting: list[tuple[pa.Table, np.ndarray]] = []
    held = 0
    for about, vectors in queries:
        waiting.append((about, vectors))
        held += about.nbytes + vectors.nbytes + len(about) * count * _NEIGHBOUR
        if held >= _HELD:
            yield _joined(waiting)
            waiting, held = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: Sequence[tuple[pa.Table, np.ndarray]]) -> tuple[pa.Table, np.ndarray]:
    widths = {vectors.shape[1] for _, vectors in parts}
    assert len(widths) == 1, widths  # a table refuses rows of several lengths
    return pa.concat_tables([about for about, _ in parts]), np.concatenate([vectors for _, vectors in parts])


def _answer(options: SearchOptions, asked: pa.Table, near: pa.Table, similar: np.ndarray) -> pa.Table:
    """Rows of the answer to some queries.

    Args:
        options: of the search.
        asked: what the queries are.
        near: what their neighbours are, those of a query side by side.
        similar: float32 [queries, neighbours].
    """
    owner = np.repeat(np.arange(len(asked)), similar.shape[1])
    mine, value = asked.take(pa.array(owner)), similar.reshape(-1)
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
    return answer.filter(pa.array(kept))


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
