"""`sfumato embed` and `sfumato search`: embeddings of every record in a Parquet file, and search for similar ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import tyro

from sfumato import runs
from sfumato._check import InputError, whole
from sfumato._lazy import pyarrow as pa
from sfumato._lazy import torch
from sfumato.cli.console import Answer, Table, bar, notify
from sfumato.cli.models import check_device, rebuild
from sfumato.cli.parse import CommonOptions
from sfumato.cli.sources import ReadingOptions
from sfumato.federated.embedding_files import (
    INDEX,
    USER,
    EmbeddingTable,
    open_embeddings,
    provenance_of_run,
    refuse_another,
    refuse_taken,
    write_tables,
)

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import UserDataset


# `sfumato embed`: a trained model and a data set → a Parquet file of embeddings, in constant memory.
#
# The file's metadata name the model that made it, so that embeddings of two models are not compared.


_GROUP = 4096  # rows of a row group: large enough for readers, small enough for any memory


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(ReadingOptions, CommonOptions):
    """Embed every example of a data set with the model of a run.

    Attributes:
        run: folder of a run, with its plan.json and model.safetensors.
        data: the records: anything that --data of the training commands takes.
        out: the Parquet file to write, which must not exist yet. Its columns are user, index (of the example within the
            user), file or row, label, label_name and embedding (of length 1). Pictures in files have a file, other data
            a row, from 0. Classes with names have a label_name.
        batch_size: examples that the model reads at a time, at most; large pictures go through a CPU in fewer.
        device: cpu, cuda, or cuda:1.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    out: Path
    batch_size: int = 256
    device: str = "cpu"


def embed(options: EmbedOptions) -> Answer:
    """Write the file."""
    refuse_taken(options.out)
    check_device(options.device)
    folder = runs.RunFolder(options.run)
    about_run: dict[str, Any] = folder.read_plan().get("about") or {}
    model = rebuild(about_run, folder.model).to(options.device)
    made = provenance_of_run(folder, about_run)
    height, width, channels = made.input_shape
    records = options.load(options.data, (height, width), channels)
    count = records.num_examples
    for note in records.notes:  # what was left out is no embedding
        notify(note)
    with bar("embedding") as progress:
        tables = _tables(model, records, options, progress)
        write_tables(options.out, (each.replace_schema_metadata(made.metadata()) for each in tables), private=True)
    data = {"out": options.out, "examples": count, "users": len(records), "run": options.run}
    return Answer(data, [f"{count:,} embeddings of {len(records):,} users: {options.out}"])


def _tables(model: nn.Module, records: UserDataset, options: EmbedOptions, progress: Any) -> Iterator[pa.Table]:
    """Row groups of the file, one after the other."""
    from sfumato.federated.tasks import embed as embeddings

    waiting: list[pa.Table] = []
    rows = done = 0
    last_user, next_index = -1, 0
    for users, labels, vectors in embeddings(model, records, batch_size=options.batch_size, device=options.device):
        index = np.empty(len(users), np.int64)
        for user in np.unique(users):  # examples come user by user, in order
            chosen = users == user
            start = next_index if user == last_user else 0
            index[chosen] = np.arange(start, start + chosen.sum())
            last_user, next_index = user, start + int(chosen.sum())
        waiting.append(_table(records, users, index, labels, vectors))
        rows += len(users)
        done += len(users)
        progress(done, records.num_examples)
        if rows >= _GROUP:
            yield pa.concat_tables(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _table(
    records: UserDataset, users: np.ndarray, index: np.ndarray, labels: np.ndarray, vectors: np.ndarray
) -> pa.Table:
    columns = {
        "user": pa.array([records.user_ids[user] for user in users], pa.string()),
        "index": pa.array(index),
        **_origin(records, users, index),
        "label": pa.array(labels),
    }
    if records.label_names is not None:
        columns["label_name"] = pa.array([records.label_names[label] for label in labels], pa.string())
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.table(columns)


def _origin(records: UserDataset, users: np.ndarray, index: np.ndarray) -> dict[str, pa.Array]:
    """Where each example came from: a picture's file, from the folder that was given, or the number of its row."""

    if records.class_map is not None:  # some of a user's rows are left out
        return {}
    base = users if records.chosen is None else records.chosen[users]
    rows = np.asarray(records.offsets)[base] + index
    if records.example_names is not None:
        names = (os.fsencode(str(records.example_names[row])) for row in rows.tolist())
        return {"file": pa.array([name.decode("utf-8", "backslashreplace") for name in names], pa.string())}
    return {"row": pa.array(rows if records.places is None else records.places[rows], pa.int64())}


# `sfumato search`: a Parquet file of embeddings and a query → the most similar embeddings.
#
# Queries are held some at a time, as many as `_HELD` bytes have room for with their neighbours, and the gallery is gone
# through once for these. So it is read once for a hundred thousand queries or so, and memory grows with neither.


_ROWS = 16_384  # of the gallery, compared at a time
_ASKED = 1024  # queries whose neighbours are reported at a time
_HELD = 1 << 26  # bytes of queries and neighbours that go through the gallery together
_NEIGHBOUR = 40  # bytes of each neighbour while it is looked for
_QUERIES_SHOWN = 10  # queries on the terminal
_EQUAL = 1 - 1e-6  # cosine of an embedding with itself, round-off allowed for


@dataclass(frozen=True, kw_only=True)
class SearchOptions(CommonOptions):
    """Find the most similar embeddings, by the cosine of their angle. Memory does not grow with the gallery.

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


Blocks: TypeAlias = "Iterator[tuple[pa.Table, np.ndarray]]"
"""What rows are, and their unit vectors, some at a time."""


@dataclass(frozen=True, kw_only=True)
class Queries:
    """Whom to look for.

    Attributes:
        count: how many queries.
        blocks: they.
        warning: a model of embeddings that is not known; None where all are known.
    """

    count: int
    blocks: Blocks
    warning: str | None = None


def search(options: SearchOptions) -> Answer:
    """Find the neighbours of each query."""
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
    data = {"gallery": gallery.source.count, "queries": count}
    data |= {"neighbours": shown} if options.out is None else {"out": options.out}
    lines: list[str | Table] = [] if options.json else [_neighbour_table(shown)]
    if count > _QUERIES_SHOWN:
        more = "; --out FILE writes all" if options.out is None else ""
        lines.append(f"\nthe first {_QUERIES_SHOWN} of {count:,} queries{more}")
    if options.out is not None:
        lines.append(f"\nneighbours of {count:,} queries among {gallery.source.count:,} embeddings: {options.out}")
    return Answer(data, lines)


def _queries(options: SearchOptions, gallery: EmbeddingTable) -> Queries:
    """Whom to look for."""
    from sfumato.data.readers.tables import is_table_file

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
        warning = refuse_another((options.gallery, gallery.provenance), (query, asked.provenance), remedy=remedy)
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
            f"{gallery.source.title} has no user {user!r:.80}; sfumato embed writes the names into column user"
        )
    return Queries(count=count, blocks=rows())


def _of_picture(file: Path, run: Path, options: SearchOptions, gallery: EmbeddingTable) -> Queries:
    """The embedding of a picture, by the model that made the gallery."""

    from sfumato.data import to_tensor
    from sfumato.data.pictures import BadImage, decode
    from sfumato.metrics.neighbours import directions

    folder = runs.RunFolder(run)
    about = folder.read_plan().get("about") or {}
    model: nn.Module = rebuild(about, folder.model).eval()
    made = provenance_of_run(folder, about)
    remedy = f"give --run the run that made it, or embed anew: sfumato embed {run} DATA --out NEW.parquet"
    warning = refuse_another((options.gallery, gallery.provenance), (run, made), remedy=remedy)
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
    from sfumato.metrics.neighbours import nearest_directions

    count = options.neighbours + (not options.itself)  # one more, for one of them may be the query itself
    done = 0
    for asked, vectors in _batched(queries, count):

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


def _batched(queries: Blocks, count: int) -> Blocks:
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
    chosen = answer if every else answer.slice(0, int(np.searchsorted(queries, _QUERIES_SHOWN - begun, side="right")))
    shown += chosen.to_pylist()


def _neighbour_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The printed table: what a query is stands next to its first neighbour only."""
    columns = list(rows[0]) if rows else []
    cells = []
    for row in rows:
        again = row["rank"] > 1
        cells.append([_cell(name, row[name], blank=again and name.startswith("query_")) for name in columns])
    return Table([name.replace("_", " ") for name in columns], cells)


def _cell(name: str, value: Any, *, blank: bool) -> str:
    if blank:
        return ""
    if value is None:
        return "–"
    return f"{value:.4f}" if name == "similarity" else str(value)
