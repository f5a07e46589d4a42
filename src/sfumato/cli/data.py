"""`sfumato data`: what writes data sets, and drafts of their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.cli.console import Answer, Table, bar
from sfumato.cli.parse import CommonOptions
from sfumato.cli.sources import ReadingOptions

if TYPE_CHECKING:
    from sfumato import data
    from sfumato.data.ehr.dataset import EHRDataset
    from sfumato.data.ehr.schema import Column, Schema


# `sfumato data pack`: decode pictures, or read texts, once, into a store that is mapped into memory.


@dataclass(frozen=True, kw_only=True)
class PackOptions(ReadingOptions, CommonOptions):
    """Decode a folder of pictures into a store that opens at once. A stopped command goes on where it was.

    Attributes:
        source: the folder: SRC/<user>/<picture> or SRC/<user>/<class>/<picture>; or, with --user, a table (.parquet,
            a folder of them, .csv, .tsv, .jsonl, or .tar shards as 'faces-*.tar') of pictures, of their paths or of
            numbers; or, with --text, a table of texts or a play.
        destination: the store's folder, which must not exist yet or be empty. The same command goes on with a store
            that was not finished.
        text: pack texts as characters or as words, see the training commands; train on the store with
            --loss next_token.
        vocabulary: for words: a public file with one word a line.
        length: for texts: tokens in a sequence; 80 characters or 20 words unless given.
        size: bring pictures to this side, or to this height and width; the middle is cut out where proportions differ.
            Without it they keep their size, which must be the same.
        channels: 1 for grey, 3 for RGB. Without it they keep what they have, which must be the same.
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SRC")]
    destination: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DST")]
    text: Literal["characters", "words"] | None = None
    vocabulary: Path | None = None
    length: int | None = None
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] | None = None

    def of_kind(self) -> dict[str, Any]:
        """The options for texts."""
        return {"text": self.text, "vocabulary": self.vocabulary, "length": self.length}


def data_pack(options: PackOptions) -> Answer:
    """Write the store."""
    source, destination = str(options.source), options.destination
    return _stored(options.load(source, options.size, options.channels, store=destination), destination)


def _stored(store: data.UserDataset, path: Path) -> Answer:
    """What a new store holds."""
    facts = {
        "store": path,
        "users": len(store),
        "examples": store.num_examples,
        "classes": store.num_classes,
        "input_shape": store.input_shape,
        "notes": store.notes,
    }
    return Answer(facts, [*store.summary(), f"store: {path}"])


# `sfumato data stores`: the private copies of data that did not fit into memory.


@dataclass(frozen=True, kw_only=True)
class StoreOptions(CommonOptions):
    """List the private copies of data that did not fit into memory, or remove one.

    Attributes:
        remove: delete the copy of this key, finished or not; it is made again when its data are read the next time.
    """

    remove: Annotated[str | None, tyro.conf.arg(metavar="KEY")] = None


def data_stores(options: StoreOptions) -> Answer:
    """List them, or remove one."""
    from sfumato.data.store.cache import copies, folder, remove

    found = copies() if options.remove is None else [remove(options.remove)]
    facts = {"folder": folder(), "removed": options.remove, "stores": [vars(each) for each in found]}
    if options.remove is not None:
        return Answer(facts, [f"removed {found[0].path}, a copy of {found[0].source}"])
    lines: list[str | Table] = []
    for each in found:
        held = "not finished" if each.users is None and each.examples is None else f"{each.examples:,} examples"
        held = held if each.users is None else f"{each.users:,} users, {held}"
        lines.append(f"{each.key}  {each.size / 1e6:>10,.1f} MB  {held}, of {each.source}")
    return Answer(facts, [*lines, f"{len(found)} in {folder()}; --remove KEY removes one"])


# `sfumato data glyphs`: the embedded default data as a store, to look at or to train on.


@dataclass(frozen=True, kw_only=True)
class GlyphOptions(CommonOptions):
    """Draw the embedded data (characters of the DejaVu fonts, 28x28, grey) and write them as a store.

    Attributes:
        destination: the store's folder, which must not exist yet or be empty.
        identities: characters; each is a user and a class.
        images: images of each.
        seed: other seeds give other characters and other images.
    """

    destination: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DST")]
    identities: int = 2300
    images: int = 10
    seed: int = 0


def data_glyphs(options: GlyphOptions) -> Answer:
    """Draw them."""
    from sfumato import data

    with bar("drawing") as progress:
        glyphs = data.glyphs(options.identities, options.images, options.seed, progress=progress)
    return _stored(data.write_store(glyphs, options.destination), options.destination)


# `sfumato data schema`: a draft of the columns of a table or of health records, for a person to complete.


@dataclass(frozen=True, kw_only=True)
class SchemaOptions(CommonOptions):
    """Draft the schema of a table, or of health records, for a person to complete.

    Attributes:
        source: a table (.csv, .tsv, .parquet, .jsonl). Of health records: a table of visits with --id and --time, one
            of events with --code in addition, or a folder of MEDS.
        out: the new file to write; without it the draft is printed.
        label: of a table: the column of classes. Without it and --target, one named label, class, target or y.
        target: of a table: columns of numbers to predict.
        drop: columns that are not read.
        numeric: columns of whole numbers that differ in every row and are no ids.
        ranges: declare leaves ranges and the categories of a table empty, to be declared by public knowledge; read
            takes them from the records, which must be public.
        epsilon: of the run that the schema is for; nothing is read from its records then.
        id: of health records: the column of patients, or of stays.
        time: of health records: the column of times.
        time_unit: of health records: what times are counted in.
        code: of health records: the column of what an event is.
        outcome: of health records: a static column with two categories.
        static: of health records: a table with a row a patient.
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    out: Path | None = None
    label: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    target: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    ranges: Literal["declare", "read"] = "declare"
    epsilon: float | None = None
    id: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    time: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    time_unit: Literal["minutes", "hours", "days"] | None = None
    code: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    outcome: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    static: Path | None = None

    @property
    def of_patients(self) -> bool:
        """Whether the records are of health."""
        return self.id is not None or self.time is not None or (self.source / "data").is_dir()


_READ = "# ranges and categories are those of the records; use them for public records only"


def data_schema(options: SchemaOptions) -> Answer:
    """Write or print the draft."""
    from sfumato.data.draft import draft_schema, draft_text

    reads = options.ranges == "read"
    if reads and options.epsilon is not None:
        raise InputError(
            f"--ranges read takes them from the records, which --epsilon {options.epsilon:g} does not cover; leave it "
            "out and declare them"
        )
    if options.out is not None and options.out.exists():
        raise InputError(f"{options.out} is there already; name a new file for --out")
    if options.of_patients:
        schema = _of_patients(options)
        text, columns = schema.to_yaml(), len(schema.columns)
        empty = [each.name for each in schema.columns if each.kind == "numeric" and each.range is None]
    else:
        for name in ("time_unit", "code", "outcome", "static"):
            if getattr(options, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is for health records; add --id and --time")
        with bar("reading") as progress:
            facts = draft_schema(
                options.source,
                label=options.label,
                targets=options.target,
                drop=options.drop,
                numeric=options.numeric,
                ranges=reads,
                progress=progress,
            )
        text, columns = draft_text(facts, str(options.source)), len(facts)
        empty = [name for name, declared in facts.items() if isinstance(declared, dict) and None in declared.values()]
    if reads:
        text = f"{_READ}\n{text}"
    if options.out is not None:
        write_atomic(options.out, text.encode())
    lines = [text.rstrip("\n")] if options.out is None else [f"{columns} columns: {options.out}"]
    if empty:
        lines.append(f"# to declare by public knowledge: {', '.join(empty)}")
    if reads and options.out is not None:
        lines.append(_READ)
    return Answer({"columns": columns, "to_declare": empty, "out": options.out, "schema": text}, lines)


def _of_patients(options: SchemaOptions) -> Schema:
    """The columns of health records as they are found, to be reviewed; ranges only where these were asked for."""
    from sfumato.cli.ehr import PatientOptions
    from sfumato.data.draft import refuse_ids

    for name in ("label", "target"):
        if getattr(options, name):
            raise InputError(f"--{name} is for a table; leave it out, or leave out --id and --time")
    records = PatientOptions(
        data=None if options.code else options.source,
        events=options.source if options.code else None,
        static=options.static,
        id=options.id,
        time=options.time,
        time_unit=options.time_unit,
        code=options.code,
        outcome=options.outcome,
        drop=options.drop,
    ).read()
    ends = {}
    for column, values in _numbers_of(records):
        present = values[~np.isnan(values)]
        if column.whole and column.name not in options.numeric:
            refuse_ids(column.name, len(np.unique(present)) == len(present), len(present))
        if options.ranges == "read" and present.min() < present.max():
            ends[column.name] = (float(present.min()), float(present.max()))
    static, temporal = (
        tuple(replace(each, range=ends.get(each.name)) for each in part)
        for part in (records.schema.static, records.schema.temporal)
    )
    return replace(records.schema, static=static, temporal=temporal)


def _numbers_of(records: EHRDataset) -> Iterator[tuple[Column, np.ndarray]]:
    """The numeric columns and their values."""
    schema = records.schema
    for columns, numbers in (
        (schema.static_numeric, records.static_numbers),
        (schema.temporal_numeric, records.numbers),
    ):
        yield from zip(columns, numbers.T, strict=True)
