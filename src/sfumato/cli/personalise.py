"""`sfumato personalise`: the model of a run with people's own parts, for anybody whose records there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from sfumato import runs
from sfumato._check import InputError, whole
from sfumato._lazy import pyarrow as pa
from sfumato.algorithms import command_of
from sfumato.cli.commands import COMMANDS
from sfumato.cli.console import Answer, Table, bar, print_line
from sfumato.cli.models import check_device, rebuild_output_model
from sfumato.cli.parse import CommonOptions, answer_help, as_flags, find, read_flags, read_settings
from sfumato.cli.results import by_records
from sfumato.cli.sources import CLASSES, ITEMS, PRIVATE, DataOptions, Kind, RatingOptions, ReadingOptions, read_list
from sfumato.federated.embedding_files import refuse_taken, write_tables

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import UserDataset
    from sfumato.federated import FedRecon


_TOP = 10
_OF_RUN = ("text", "vocabulary", "length", "oov_buckets")  # what the model was built for


@dataclass(frozen=True, kw_only=True)
class PersonaliseOptions(RatingOptions, ReadingOptions, CommonOptions):
    """Rebuild people's own parts from their records, and serve them. They need not have taken part in the run.

    How records are read is taken from the run's plan.json, unless given.

    Attributes:
        run: folder of a run of sfumato fedrecon.
        data: people's records, all that are known of each: anything that --data of fedrecon takes.
        out: the Parquet file to write, which must not exist yet. For ratings: the best items that a person has no
            record of (user, rank, item, prediction). With --query: predictions for its rows (user, item, prediction).
            For classes: the likeliest class of a person's records (user, index, label, probability).
        top: for ratings: so many items for each person, 10 unless given.
        query: records that are asked about, in the format of DATA; values are not needed and not looked at.
        measure: rebuild people's own parts from a part of their records, as in the training, and report how good the
            model is on the others.
        device: cpu, cuda, or cuda:1.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    out: Path | None = None
    top: int | None = None
    query: str | None = None
    measure: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class _Served:
    """A run that people are served by.

    Attributes:
        folder: of the run.
        plan, model: that were trained.
        reading: how records are read.
        about: what plan.json states of the model.
        items, classes: public names by number, where the model has them.
    """

    folder: Path
    plan: FedRecon
    model: nn.Module
    reading: DataOptions
    about: dict[str, Any]
    items: list[str] | None
    classes: list[str] | None

    def load(self, path: str) -> UserDataset:
        """People's records, with the numbers that items and classes have in the model."""
        data = self._read(path, self.reading)
        self.plan.default_task().inner.refuse_other(data)
        if "class_count" not in self.about:
            return data
        if data.label_names is not None and self.classes is not None:
            return _with_classes(data, self.classes)
        if data.num_classes > self.about["class_count"]:
            raise InputError(
                f"{path} has {data.num_classes:,} classes, and the model {self.about['class_count']:,}: are they the "
                "same?"
            )
        return data

    def load_query(self, path: str) -> UserDataset:
        """Records that are asked about; what their labels are does not matter."""
        return self._read(path, replace(self.reading, label=None))

    def _read(self, path: str, reading: DataOptions) -> UserDataset:
        shape = self.about["input_shape"]
        if len(shape) == 3:
            reading = replace(reading, size=(shape[0], shape[1]), channels=shape[2])
        return reading.open(path).users


def _with_classes(data: UserDataset, classes: Sequence[str]) -> UserDataset:
    """The same records, with classes numbered as the model has them."""
    number = {name: place for place, name in enumerate(classes)}
    held = list(data.label_names or ())
    if (other := next((name for name in held if name not in number), None)) is not None:
        raise InputError(f"the records have the class {other!r}, which the model does not know; leave them out")
    return replace(
        data,
        class_map=np.array([number[name] for name in held], np.int64),
        num_classes=len(classes),
        label_names=classes,
        label_groups=None,
    )


def personalise(options: PersonaliseOptions) -> Answer:
    """Write predictions, or measure, or both."""
    check_device(options.device)
    if options.out is None and not options.measure:
        raise InputError("what shall be done? give --out FILE.parquet for predictions, --measure, or both")
    if options.out is None and (options.top is not None or options.query is not None):
        raise InputError("predictions need a file: give --out FILE.parquet, or leave --top and --query out")
    if options.out is not None:
        refuse_taken(options.out)
    run = _opened(options)
    kind = _kind(run.plan)
    _refuse_unasked(options, kind)
    records = run.load(options.data)
    if not options.json:
        for line in records.summary():
            print_line(f"data: {line}")
    data: dict[str, Any] = {"run": options.run, "users": len(records), "not_covered": True}
    lines: list[str | Table] = []
    if options.measure:
        task = run.plan.default_task()
        row = data["measured"] = task.measure(run.model, records, curve=True, device=options.device)
        lines += by_records(task, {"trained": row, **task.about_test(records, row)})
    if options.out is not None:
        with bar("personalising") as progress:
            tables = _watched(_tables(run, records, options, kind), len(records), progress)
            data |= {"out": options.out, "rows": write_tables(options.out, tables, private=True)}
        lines += [
            f"{data['rows']:,} predictions for {len(records):,} people: {options.out}",
            "Each row is made of that person's own records: no guarantee covers it, and it is for that person only.",
        ]
    return Answer(data, lines)


def read(argv: Sequence[str]) -> PersonaliseOptions:
    """The options, over them those that the run was read with."""
    command = {"command": "personalise", "about": COMMANDS["personalise"].about()}
    answer_help(PersonaliseOptions, argv, **command)
    first = read_flags(PersonaliseOptions, list(argv), **command)
    about = runs.RunFolder(first.run).read_plan().get("about") or {}
    names = [each.name for each in (*fields(RatingOptions), *fields(ReadingOptions)) if each.name != "items"]
    usual = {name: about[name] for name in names if about.get(name) is not None}
    words = as_flags(usual, PersonaliseOptions, source=first.run / "plan.json")
    config = find(argv, "config")
    if config is not None:
        words += as_flags(read_settings(Path(config)), PersonaliseOptions, source=config)
    options = read_flags(PersonaliseOptions, [*words, *argv], **command)
    if options.items is not None:
        raise InputError(f"the items are those of the run ({ITEMS}); leave --items out")
    return options


def _opened(options: PersonaliseOptions) -> _Served:
    """The run, refused where it is of no use."""
    from sfumato.data import Encoding
    from sfumato.federated import FedRecon
    from sfumato.federated.vocabulary import FILE as VOCABULARY
    from sfumato.runs.checkpoint import STATE
    from sfumato.training.plan import current

    folder = runs.RunFolder(options.run)
    settings = folder.read_plan()
    about: dict[str, Any] = settings.pop("about", None) or {}
    name = settings.pop("plan", None)
    if name != FedRecon.name:
        raise InputError(
            f"{options.run} is a run of sfumato {command_of(name)}, whose model has no part of each person's own"
        )
    if not (folder.statement.exists() and folder.model.exists()):
        raise InputError(f"{options.run} has not ended; go on with: sfumato fedrecon --resume {options.run}")
    if (folder.checkpoint / STATE).exists() and not folder.has_ended():
        raise InputError(f"{options.run} was stopped; go on with: sfumato fedrecon --resume {options.run}")
    plan = FedRecon.from_json(current(settings, FedRecon))
    if about.get("vocabulary") == PRIVATE:  # what the run has counted
        words = options.run / VOCABULARY
        about |= {"vocabulary": str(words), "vocabulary_size": Encoding.words(words).size}
    model = rebuild_output_model(about, folder.model)
    items = read_list(options.run / ITEMS) if "item_count" in about else None
    if items is not None and len(items) != about["item_count"]:
        raise InputError(
            f"{options.run / ITEMS} has {len(items):,} items, and the model {about['item_count']:,}; take a whole copy"
        )
    given = {each.name: getattr(options, each.name) for each in (*fields(RatingOptions), *fields(ReadingOptions))}
    reading = DataOptions(**given, **{key: about[key] for key in _OF_RUN if about.get(key) is not None})
    return _Served(
        folder=options.run,
        plan=plan,
        model=model,
        reading=reading if items is None else replace(reading, items=options.run / ITEMS),
        about=about,
        items=items,
        classes=read_list(options.run / CLASSES) if (options.run / CLASSES).exists() else None,
    )


def _kind(plan: FedRecon) -> Kind:
    from sfumato.federated.losses import NextTokenLoss, SquaredLoss

    kinds: dict[type, Kind] = {NextTokenLoss: "texts", SquaredLoss: "values"}
    return kinds.get(type(plan.loss), "classes")


def _refuse_unasked(options: PersonaliseOptions, kind: Kind) -> None:
    """Refuse what a model of this kind does not give."""
    if options.out is not None and kind == "texts":
        raise InputError(
            "a model of texts is only measured here: give --measure and no --out; plan.personalise in Python gives "
            "people's own parts"
        )
    if options.top is not None and kind == "classes":
        raise InputError("--top is for ratings; leave it out")
    if options.top is not None and options.query is not None:
        raise InputError("give --top (the best items) or --query (these rows), not both")
    if options.top is not None:
        whole(top=options.top)
    if options.out is not None and kind == "classes" and options.query is None:
        raise InputError("which records are asked about? give --query FILE, in the format of DATA")


def _tables(run: _Served, records: UserDataset, options: PersonaliseOptions, kind: Kind) -> Iterator[pa.Table]:
    """What is written, for some people at a time."""
    from sfumato.data.readers.ratings import pairs
    from sfumato.federated.predictions import best_items, of_pairs, of_records

    serving, phases = run.plan.serving(run.model, records, device=options.device), run.plan.serving_phases
    if kind == "classes":
        assert options.query is not None
        return of_records(serving, phases, records, run.load_query(options.query), run.classes)
    if run.items is None:
        raise InputError(f"{options.run} is a run on values that are of no items; only --measure is for it")
    if options.query is None:
        return best_items(serving, phases, records, run.items, options.top or _TOP)
    asked = pairs(
        options.query,
        user=options.user,
        item=options.item,
        users=list(records.user_ids),
        items=run.items,
        on_unknown=options.on_unknown or "refuse",
    )
    if asked.left_out and not options.json:
        print_line(f"{asked.left_out:,} rows of {options.query} ask about items that the model does not know: left out")
    return of_pairs(serving, phases, records, asked, run.items)


def _watched(tables: Iterator[pa.Table], people: int, progress: Any) -> Iterator[pa.Table]:
    done = 0
    for table in tables:
        yield table
        done += len(set(table["user"].to_pylist()))
        progress(done, people)
