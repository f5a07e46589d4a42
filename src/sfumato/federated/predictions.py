"""What a model gives people with their own parts, as tables: the best items that they have no record of, or the records
that are asked about. Each row is made of that person's own records and is for that person only.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato.data import UserDataset, to_tensor
from sfumato.data.readers.ratings import Pairs
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
