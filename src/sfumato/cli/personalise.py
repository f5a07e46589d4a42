"""`sfumato personalise`: the model of a run with people's own parts, for anybody whose records there are.

What a model gives people with their own parts, as tables: the best items that they have no record of, or the records
that are asked about.
"""

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
from sfumato._lazy import torch
from sfumato.cli.commands import COMMANDS
from sfumato.cli.console import Answer, Table, bar, print_line
from sfumato.cli.embeddings import refuse_taken, write_tables
from sfumato.cli.models import check_device, rebuild_output_model
from sfumato.cli.parse import CommonOptions, answer_help, as_flags, find, read_flags, read_settings
from sfumato.cli.results import by_records
from sfumato.cli.sources import CLASSES, ITEMS, PRIVATE, DataOptions, Kind, RatingOptions, ReadingOptions, read_list

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato.data import UserDataset
    from sfumato.data.readers.ratings import Pairs
    from sfumato.federated import FedRecon
    from sfumato.federated.client import Phase
    from sfumato.federated.serving import Served, Serving


_AT_ONCE = 1 << 18  # examples that are asked for in one go


def best_items(
    serving: Serving, phases: Sequence[Phase], records: UserDataset, items: Sequence[str], top: int
) -> Iterator[pa.Table]:
    """For each person the items with the highest predictions of those without a record: user, rank, item, prediction.

    Of equal predictions the earlier item comes first.
    """
    names = pa.array(items, pa.string())

    def work(served: Served) -> pa.Table:
        people = len(served.users)
        owner = np.repeat(np.arange(people), np.diff(served.records.offsets))
        own = served.records.inputs[:, 0]
        best, place = torch.empty(people, 0), torch.empty(people, 0, dtype=torch.int64)
        step = max(1, _AT_ONCE // people)
        for start in range(0, len(items), step):
            chunk = torch.arange(start, min(start + step, len(items)))
            values = _finite(served.ask(chunk[None, :, None].expand(people, -1, 1))).cpu().float()
            held = (own >= start) & (own < start + len(chunk))
            values[owner[held], own[held] - start] = -torch.inf
            best = torch.cat([best, values], 1)
            place = torch.cat([place, chunk.expand(people, -1)], 1)
            best, order = torch.sort(best, dim=1, descending=True, stable=True)
            best, place = best[:, :top], torch.gather(place, 1, order[:, :top])
        there = best > -torch.inf
        rank = torch.arange(1, best.shape[1] + 1).expand(people, -1)
        row = torch.arange(people)[:, None].expand(-1, best.shape[1])
        return pa.table(
            {
                "user": _users(records, served.users[row[there].numpy()]),
                "rank": pa.array(rank[there].numpy()),
                "item": names.take(pa.array(place[there].numpy())),
                "prediction": pa.array(best[there].numpy()),
            }
        )

    yield from serving.served(records, phases, work)


def of_pairs(
    serving: Serving, phases: Sequence[Phase], records: UserDataset, asked: Pairs, items: Sequence[str]
) -> Iterator[pa.Table]:
    """Predictions for pairs, person by person in the order of the records: user, item, prediction."""
    order = np.argsort(asked.users, kind="stable")
    ends = np.cumsum(np.bincount(asked.users, minlength=len(records)))
    wanted = np.split(asked.items[order], ends[:-1])
    names = pa.array(items, pa.string())
    people = np.unique(asked.users)
    view = records.subset(people)

    def work(served: Served) -> pa.Table:
        rows = [wanted[people[user]] for user in served.users]
        values = torch.cat(_asked(served, [torch.from_numpy(each)[:, None] for each in rows]))
        return pa.table(
            {
                "user": _users(view, np.repeat(served.users, [len(each) for each in rows])),
                "item": names.take(pa.array(np.concatenate(rows))),
                "prediction": pa.array(values.float().numpy()),
            }
        )

    yield from serving.served(view, phases, work)


def of_records(
    serving: Serving, phases: Sequence[Phase], records: UserDataset, asked: UserDataset, classes: Sequence[str] | None
) -> Iterator[pa.Table]:
    """The likeliest class of records, person by person in the order of the records: user, index (of the record within
    the person), label, probability."""

    from sfumato.data import to_tensor

    theirs = {name: place for place, name in enumerate(asked.user_ids)}
    ours = {name: place for place, name in enumerate(records.user_ids)}
    if (missing := next((name for name in theirs if name not in ours), None)) is not None:
        raise InputError(f"the query asks about {missing!r}, of whom the records hold nothing; add some")
    view = records.subset(sorted(ours[name] for name in theirs))

    def work(served: Served) -> pa.Table:
        inputs = [to_tensor(asked.examples(theirs[view.user_ids[int(user)]])[0]) for user in served.users]
        counts = [len(each) for each in inputs]
        likely, label = torch.cat(_asked(served, inputs)).float().softmax(1).max(1)
        likeliest = label.numpy() if classes is None else [classes[each] for each in label.tolist()]
        return pa.table(
            {
                "user": _users(view, np.repeat(served.users, counts)),
                "index": pa.array(np.concatenate([np.arange(count) for count in counts])),
                "label": pa.array(likeliest),
                "probability": pa.array(likely.numpy()),
            }
        )

    yield from serving.served(view, phases, work)


def _asked(served: Served, inputs: list[Tensor]) -> list[Tensor]:
    """What the model gives each person for their own inputs [n, …]."""
    most, step = max(map(len, inputs)), max(1, _AT_ONCE // len(inputs))
    padded = inputs[0].new_zeros(len(inputs), most, *inputs[0].shape[1:])
    for row, each in zip(padded, inputs, strict=True):
        row[: len(each)] = each
    parts = [served.ask(padded[:, start : start + step]).cpu() for start in range(0, most, step)]
    return [_finite(row[: len(each)]) for row, each in zip(torch.cat(parts, 1), inputs, strict=True)]


def _finite(values: Tensor) -> Tensor:
    if not torch.isfinite(values).all():
        raise InputError("the model gives predictions that are not finite; the run has diverged, or the records did")
    return values


def _users(records: UserDataset, users: np.ndarray) -> pa.Array:
    return pa.array([records.user_ids[user] for user in users.tolist()], pa.string())


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
        raise InputError(f"{options.run} is a run of sfumato {name}, whose model has no part of each person's own")
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
