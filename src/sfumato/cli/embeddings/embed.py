"""`sfumato embed`: a trained model and a data set → a Parquet file of embeddings, in constant memory.

The file's metadata name the model that made it (`made_by.py`), so that nobody compares embeddings of two models.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import tyro
from torch import nn

from sfumato.cli.console import bar, notify, say, say_json
from sfumato.cli.embeddings.made_by import made_by_run
from sfumato.cli.options.backbones import check_device, rebuild
from sfumato.cli.options.users import ReadingOptions
from sfumato.cli.parquet import refuse_taken, write_tables
from sfumato.cli.parse import CommonOptions, parse
from sfumato.data import UserDataset
from sfumato.data.readers.image_folder import LazyImages
from sfumato.federated.tasks.recall import embed as embeddings
from sfumato.runs import RunFolder

_GROUP = 4096  # rows of a row group: large enough for readers, small enough for any memory


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(ReadingOptions, CommonOptions):
    """What to embed.

    Attributes:
        run: folder of a run, with its plan.json and model.safetensors.
        data: the records: anything that --data of the training commands takes.
        out: the Parquet file to write, which must not exist yet. Its columns are user, index (of the example within
            the user), file (of pictures in files) or row (of other data, from 0), label, label_name (where classes
            have names) and embedding (of length 1).
        batch_size: examples that the model reads at a time, at most; large pictures go through a CPU in fewer.
        device: cpu, cuda, or cuda:1.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    out: Path
    batch_size: int = 256
    device: str = "cpu"


def embed(argv: Sequence[str]) -> int:
    about = "Embed every example of a data set with the model of a run."
    options = parse(EmbedOptions, argv, command="embed", about=about)
    refuse_taken(options.out)
    check_device(options.device)
    folder = RunFolder(options.run)
    about_run: dict[str, Any] = folder.read_plan().get("about") or {}
    model = rebuild(about_run, folder.model).to(options.device)
    made = made_by_run(folder, about_run)
    height, width, channels = made.input_shape
    records = options.load(options.data, (height, width), channels)
    count = records.num_examples
    for note in records.notes:  # what was left out is no embedding
        notify(note)
    with bar("embedding") as progress:
        tables = _tables(model, records, options, progress)
        write_tables(options.out, (each.replace_schema_metadata(made.metadata()) for each in tables), private=True)
    if options.json:
        say_json({"out": options.out, "examples": count, "users": len(records), "run": options.run})
    else:
        say(f"{count:,} embeddings of {len(records):,} users: {options.out}")
    return 0


def _tables(model: nn.Module, records: UserDataset, options: EmbedOptions, progress: Any) -> Iterator[pa.Table]:
    """Row groups of the file, one after the other."""
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
    if isinstance(records.inputs, LazyImages):
        names = (os.fsencode(str(records.inputs.names[row])) for row in rows.tolist())
        return {"file": pa.array([name.decode("utf-8", "backslashreplace") for name in names], pa.string())}
    return {"row": pa.array(rows if records.places is None else records.places[rows], pa.int64())}
