"""Rows whose order follows from their labels are refused at any period, a random order is not, and a shuffle helps."""

from collections import Counter
from itertools import permutations
from math import comb
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import nn

from sfumato._check import InputError
from sfumato.data import examples_from_arrays
from sfumato.labels import LPMST, LabelSettings, RROnBins, randomize_table
from sfumato.labels import table as row_order
from sfumato.labels.response import LabelResponse
from sfumato.labels.table import RowOrder

SORTED = np.repeat([0, 1, 2], 40)
REFUSED = "the rows: the order of rows is public and follows from the labels"


def look(labels: np.ndarray, pieces: int = 1, classes: int = 3) -> None:
    order = RowOrder(classes)
    for piece in np.array_split(labels, pieces):
        order.add(piece)
    order.refuse_ordered("the rows")


def passes(labels: np.ndarray, classes: int) -> bool:
    try:
        look(labels, classes=classes)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("labels", [SORTED, SORTED[::-1], np.repeat([1, 2, 0], 40)])
@pytest.mark.parametrize("pieces", [1, 7, 120])
def test_classes_in_one_block_each_are_refused(labels, pieces):
    with pytest.raises(InputError, match=REFUSED):
        look(labels, pieces)


def test_what_happens_by_chance_passes():
    for labels in ([0, 0, 1, 1], [2] * 500, [0] * 500 + [1], [1] + [0] * 500, [0, 1, 2], [0], []):
        look(np.array(labels, np.int64))


def test_numbers_that_only_rise_are_refused_and_others_pass():
    numbers = np.arange(30)
    with pytest.raises(InputError, match=REFUSED):
        look(numbers, classes=30)
    look(np.random.default_rng(0).permutation(numbers), classes=30)


def exchanged(labels: np.ndarray, pairs: int, rng: np.random.Generator) -> np.ndarray:
    """With so many pairs of rows exchanged."""
    found = labels.copy()
    first, second = rng.permutation(len(labels))[: 2 * pairs].reshape(2, pairs)
    found[first], found[second] = labels[second], labels[first]
    return found


def drawn(kind: str, count: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Labels in a random order, and how many classes there are."""
    if kind == "rare":
        return (rng.random(count) < 0.02).astype(np.int64), 2
    classes = {"binary": 2, "classes": 10, "many": 300, "numbers": 256}[kind]
    spread = rng.beta(2, 5, count) if kind == "numbers" else rng.random(count)
    return (spread * classes).astype(np.int64), classes


ORDERS = {
    "two rows exchanged": lambda y, rng: exchanged(np.sort(y), 1, rng),
    "nearly sorted": lambda y, rng: exchanged(np.sort(y), len(y) // 10, rng),
    "two sorted files": lambda y, rng: np.concatenate([np.sort(part) for part in np.array_split(y, 2)]),
    "ten sorted files": lambda y, rng: np.concatenate([np.sort(part) for part in np.array_split(y, 10)]),
    "up and down": lambda y, rng: np.concatenate([np.sort(y[::2]), np.sort(y[1::2])[::-1]]),
    "three interleaved": lambda y, rng: np.stack([np.sort(y[i : len(y) // 3 * 3 : 3]) for i in range(3)], 1).ravel(),
    "dealt out": lambda y, rng: np.sort(y)[: len(y) // 50 * 50].reshape(50, -1).T.ravel(),
    "periodic": lambda y, rng: np.tile(y[: len(y) // 8], 8),
    "nearly periodic": lambda y, rng: exchanged(np.tile(y[: len(y) // 40], 40), len(y) // 20, rng),
}


@pytest.mark.parametrize("kind", ["binary", "rare", "classes", "many", "numbers"])
@pytest.mark.parametrize("name", ORDERS)
def test_orders_that_an_attacker_could_use_are_refused(name, kind):
    rng = np.random.default_rng(1)
    labels, classes = drawn(kind, 4000, rng)
    with pytest.raises(InputError, match=REFUSED):
        look(ORDERS[name](labels, rng), classes=classes)


@pytest.mark.parametrize("name", ORDERS)
def test_a_few_hundred_rows_are_enough(name):
    rng = np.random.default_rng(2)
    with pytest.raises(InputError, match=REFUSED):
        look(ORDERS[name](drawn("binary", 400, rng)[0], rng), classes=2)


@pytest.mark.parametrize("count", [2, 10, 100, 1000])
@pytest.mark.parametrize("kind", ["binary", "rare", "classes", "many", "numbers"])
def test_random_orders_pass(kind, count):
    rng = np.random.default_rng(count)
    assert all(passes(*drawn(kind, count, rng)) for _ in range(100))


@pytest.mark.parametrize("counts", [(1, 8), (3, 6), (4, 5), (2, 3, 3), (1, 1, 1, 1, 4), (2, 2, 2, 2), (1,) * 7])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_no_more_random_orders_are_refused_than_stated(counts, share, monkeypatch):
    """By enumeration of all orders, with a share of false alarms that so few rows can reach."""
    monkeypatch.setattr(row_order, "FALSE_ALARM", share)
    labels = np.repeat(np.arange(len(counts)), counts)
    orders = sorted(set(permutations(labels.tolist())))
    refused = sum(not passes(np.array(order), len(counts)) for order in orders)
    assert refused <= share * len(orders)


def test_bounds_on_runs_hold_and_are_close():
    for rows in range(2, 16):
        for size in range(1, rows):
            exact = np.zeros(size + 4)
            for runs in range(1, size + 1):
                ways = comb(rows - size + 1, runs) * comb(size - 1, size - runs)
                exact[runs] = ways / comb(rows, size)
            asked = np.arange(1, size + 4)
            few = np.exp(row_order._log_chance(rows, np.full(len(asked), size), asked, few=True))
            assert (few >= np.cumsum(exact)[asked] - 1e-12).all()
            asked = np.arange(1, min(size, rows - size + 1) + 1)
            many = np.exp(row_order._log_chance(rows, np.full(len(asked), size), asked, few=False))
            assert (many >= np.cumsum(exact[::-1])[::-1][asked] - 1e-12).all()
            assert few[0] <= 1.5 * exact[1] or exact[1] > 0.1


def test_pairs_are_those_that_are_counted_one_by_one(monkeypatch):
    rng = np.random.default_rng(0)
    for rows, longest in ((5, 2), (100, 50), (1000, 7), (777, 64)):
        shown = rng.random(rows) < 0.4
        counted = [int((shown[d:] & shown[:-d]).sum()) for d in range(1, longest + 1)]
        assert row_order._pairs(shown, longest).tolist() == counted


def test_no_report_is_drawn_of_sorted_rows(tmp_path: Path):
    inputs, out = np.random.default_rng(0).standard_normal((120, 2)).astype(np.float32), tmp_path / "run"
    labels = exchanged(SORTED, 1, np.random.default_rng(0))
    pq.write_table(pa.table({"y": labels}), tmp_path / "t.parquet")
    settings = LabelSettings(label="y", epsilon=1.0, classes=("0", "1", "2"))
    numbers = RROnBins(epsilon=1.0, low=0.0, high=2.0, values=3)
    with pytest.raises(InputError, match="order of rows is public"):
        LPMST(epsilon=1.0).fit(nn.Linear(2, 3), examples_from_arrays(inputs, labels), out=out)
    with pytest.raises(InputError, match="order of rows is public"):
        numbers.fit(nn.Linear(2, 1), examples_from_arrays(inputs, labels.astype(np.float32)), out=out)
    with pytest.raises(InputError, match=r"the label 'y': the order of rows is public .* --shuffle"):
        randomize_table(tmp_path / "t.parquet", tmp_path / "o.parquet", settings)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


ATTACKED = {"two rows exchanged": 1, "two sorted files": 1, "three interleaved": 3, "periodic": 500}
"""Orders, and the distance at which an attacker who knows of them compares rows."""


def attacked(reports: np.ndarray, distance: int) -> np.ndarray:
    """Labels as an attacker guesses them from reports of two classes: by the majority of the nearest ones."""
    width = 101 if distance < 100 else len(reports) // distance
    order = np.argsort(np.arange(len(reports)) % distance, kind="stable")
    if distance < 100:
        counted = [np.convolve(each, np.ones(width), "same") for each in (reports[order], np.ones(len(order)))]
        mean = counted[0] / counted[1]
    else:
        mean = np.repeat(reports[order].reshape(distance, -1).mean(axis=1), width)
    guess = np.empty(len(reports), np.int64)
    guess[order] = mean > 0.5
    return guess


@pytest.mark.parametrize("name", ATTACKED)
def test_a_shuffle_leaves_an_attacker_what_single_reports_leave(name, tmp_path: Path):
    """Without it most labels are recovered from reports that are right with probability 0.62."""
    rng = np.random.default_rng(3)
    epsilon, distance = 0.5, ATTACKED[name]
    labels = ORDERS[name](np.arange(12_000) % 2 if distance < 100 else rng.integers(0, 2, 500 * 8), rng)
    if distance >= 100:
        labels = np.tile(labels[:500], 60)
    words = rng.integers(0, 1 << 64, len(labels), np.uint64)
    reports = LabelResponse(epsilon=epsilon, classes=2).draw(labels, words)
    assert (attacked(reports, distance) == labels).mean() > 0.95

    row = rng.permutation(len(labels))  # a key without an order, to find the rows again
    pq.write_table(pa.table({"y": labels, "key": row}), tmp_path / "t.parquet")
    settings = LabelSettings(label="y", epsilon=epsilon, classes=("0", "1"), shuffle=True)
    randomize_table(tmp_path / "t.parquet", tmp_path / "o.parquet", settings)
    found = pq.read_table(tmp_path / "o.parquet")
    place = np.argsort(row)
    true = labels[place[found["key"].to_numpy()]]
    right = 1 / (1 + np.exp(-epsilon))
    assert (found["y"].to_numpy() == true).mean() == pytest.approx(right, abs=5 * (0.25 / len(true)) ** 0.5)
    assert (attacked(found["y"].to_numpy(), distance) == true).mean() < right


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl"])
def test_a_shuffle_writes_the_same_rows_in_another_order(name, tmp_path: Path):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.random(300), "y": np.repeat(["a", "b"], 150), "z": ["é,1", "b"] * 150})
    write(table, tmp_path / name)
    settings = LabelSettings(label="y", epsilon=30.0, classes=("a", "b"), shuffle=True)
    done = randomize_table(tmp_path / name, tmp_path / f"out-{name}", settings)
    again = randomize_table(tmp_path / name, tmp_path / f"again-{name}", settings, total_epsilon=60.0)
    before, after, other = (read(tmp_path / each) for each in (name, f"out-{name}", f"again-{name}"))
    assert before != after != other  # each from a key of its own
    assert Counter(before) == Counter(after) == Counter(other)  # at epsilon 30 no label changes
    assert any("random order" in line for line in done.statement.assumptions)
    assert not any("A test read the labels" in line for line in done.statement.assumptions)
    assert again.statement.epsilon == 60.0


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        table.to_pandas().to_json(path, orient="records", lines=True)


def read(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return [str(row) for row in pq.read_table(path).to_pylist()]
    return path.read_text().splitlines()[path.suffix == ".csv" :]


@pytest.mark.parametrize("column", [np.arange(300), -np.arange(300.0), [f"r{place:04}" for place in range(300)]])
@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl"])
def test_a_column_that_counts_the_rows_would_undo_a_shuffle_and_is_refused(name, column, tmp_path: Path):
    table = pa.table({"y": np.repeat(["a", "b"], 150), "group": np.repeat(["g", "h"], 150), "row": column})
    write(table, tmp_path / name)
    settings = LabelSettings(label="y", epsilon=1.0, classes=("a", "b"), shuffle=True)
    with pytest.raises(InputError, match="the column 'row' goes up or down with the rows"):
        randomize_table(tmp_path / name, tmp_path / f"out-{name}", settings)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    write(table.drop(["row"]), tmp_path / name)
    randomize_table(tmp_path / name, tmp_path / f"out-{name}", settings)
