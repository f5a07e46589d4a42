"""Tables of labels are randomised once: coding, order of rows, and what is released."""

import hashlib
import json
from collections import Counter
from itertools import permutations
from math import comb
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import nn

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.data import examples_from_arrays
from sfumato.labels import LPMST, Classes, Counted, Grid, LabelSettings, RROnBins, randomize_table
from sfumato.labels import randomize as module
from sfumato.labels import table as row_order
from sfumato.labels.domains import ClassCoding
from sfumato.labels.randomize import run_folder
from sfumato.labels.response import LabelResponse
from sfumato.labels.table import RowOrder
from sfumato.ledger import Ledger
from sfumato.report import write_report
from slow import one_in, slow_but

# A table with randomised labels: once, whole or absent, the same after a stop, and nothing but the label changed.

CLASSES = ("cat", "dog", "owl")


def settings(**changed) -> LabelSettings:
    usual = {} if "domain" in changed else {"domain.names": CLASSES}
    return LabelSettings(**{"label": "y", "epsilon": 1.0, **usual, **changed})


def grid(**fields) -> dict:
    """Numbers from 0 to 1."""
    return {"label": "x", "domain": {"kind": "grid", "low": 0.0, "high": 1.0, **fields}}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "noisy.parquet"


def test_only_the_label_changes_and_ledger_and_statement_stand_next_to(parquet: Path, table: pa.Table, out: Path):
    done = randomize_table(parquet, out, settings())
    found = pq.read_table(out)
    assert found.drop(["y"]).equals(table.drop(["y"]))
    assert set(found["y"].to_pylist()) == set(CLASSES)
    assert (done.rows, done.statement.epsilon, done.statement.delta) == (500, 1.0, 0.0)
    folder = run_folder(out)
    assert json.loads((folder / "statement.json").read_text())["unit"] == "label"
    assert not (folder / "checkpoint" / "key").exists()
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        assert ledger.totals.event() == acc.PureDP(1.0, "replace")


def test_the_folder_names_the_table_that_it_was_written_for(parquet: Path, out: Path):
    from safetensors import safe_open

    randomize_table(parquet, out, settings())
    with safe_open(run_folder(out) / "model.safetensors", framework="pt") as file:
        told = json.loads((file.metadata() or {})["sfumato"])
    assert told == {"table": "noisy.parquet", "sha256": hashlib.sha256(out.read_bytes()).hexdigest()}


def test_reports_have_the_probability_of_the_response(tmp_path: Path):
    """30,000 true reports at 1/2 each: five standard deviations, one false alarm in 10^6."""
    count = 30_000
    labels = np.random.default_rng(0).permutation(np.arange(count) % 2)
    pq.write_table(pa.table({"y": pa.array(labels)}), tmp_path / "t.parquet")
    chosen = settings(domain=Classes(names=("0", "1")), epsilon=float(np.log(3)))
    randomize_table(tmp_path / "t.parquet", tmp_path / "o.parquet", chosen)
    found = pq.read_table(tmp_path / "o.parquet")["y"].to_numpy()
    assert (found == labels).mean() == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / count) ** 0.5)


@pytest.mark.parametrize(
    "changed",
    [
        {"prior": 0.1},
        {"prior": Counted(epsilon=0.3, groups="g", smoothing=0.1)},
        {"prior": 1 / 3, "epsilon": 0.7},
        {**grid(loss="absolute"), "prior": 0.2},
        grid(values=20, method="laplace"),
        {"domain.method": "rr"},
    ],
)
def test_what_the_ledger_adds_up_to_is_not_above_epsilon(parquet: Path, out: Path, changed):
    chosen = settings(**changed)
    statement = randomize_table(parquet, out, chosen).statement
    assert chosen.epsilon - 1e-9 < statement.epsilon <= chosen.epsilon
    with Ledger.open(run_folder(out) / "ledger.jsonl") as ledger:
        assert ledger.totals.releases == 1 + len(chosen.prior.events())


def test_a_counted_prior_helps_where_most_labels_are_similar(parquet: Path, table: pa.Table, tmp_path: Path):
    true = np.array(table["y"].to_pylist())

    def share(name: str, **changed) -> float:
        randomize_table(parquet, tmp_path / name, settings(epsilon=0.6, **changed), seed=1)
        return float((np.array(pq.read_table(tmp_path / name)["y"].to_pylist()) == true).mean())

    assert share("prior.parquet", prior=0.3) > share("plain.parquet", **{"domain.method": "rr"}) + 0.1


def test_clusters_of_public_features_have_priors_of_their_own_and_may_stay_empty(tmp_path: Path):
    kinds = np.random.default_rng(0).permutation(np.arange(4000) % 2)
    pq.write_table(pa.table({"y": pa.array(kinds)}), tmp_path / "t.parquet")
    np.save(tmp_path / "f.npy", np.eye(2)[kinds])
    prior = Counted(epsilon=0.2, clusters=3, features=tmp_path / "f.npy")
    chosen = settings(domain=Classes(names=("0", "1")), epsilon=0.4, prior=prior)
    randomize_table(tmp_path / "t.parquet", tmp_path / "o.parquet", chosen, seed=1)
    reports = pq.read_table(tmp_path / "o.parquet")["y"].to_numpy()
    assert reports.tolist() == kinds.tolist()  # each cluster has one class, so nothing else is reported in it
    np.save(tmp_path / "f.npy", np.eye(2)[kinds][:3999])
    with pytest.raises(InputError, match="3,999 rows, and the table more"):
        randomize_table(tmp_path / "t.parquet", tmp_path / "p.parquet", chosen, seed=1)
    np.save(tmp_path / "f.npy", np.eye(2)[np.append(kinds, 0)])
    with pytest.raises(InputError, match="4,001 rows for 4,000 labels"):
        randomize_table(tmp_path / "t.parquet", tmp_path / "p.parquet", chosen, seed=1)
    assert not (tmp_path / "p.parquet").exists()


def test_groups_have_priors_of_their_own(tmp_path: Path):
    groups = np.random.default_rng(0).permutation(np.arange(4000) % 2)
    pq.write_table(pa.table({"y": pa.array(groups), "g": pa.array(groups)}), tmp_path / "t.parquet")
    chosen = settings(domain=Classes(names=("0", "1")), epsilon=0.4, prior=Counted(epsilon=0.2, groups="g"))
    randomize_table(tmp_path / "t.parquet", tmp_path / "o.parquet", chosen)
    # Each group has one label: the report is that of the prior, whatever the label.
    assert pq.read_table(tmp_path / "o.parquet")["y"].to_numpy().tolist() == groups.tolist()


def test_priors_of_rows_are_followed(parquet: Path, out: Path, table: pa.Table, tmp_path: Path):
    owl = np.arange(500) % 2 == 0
    even = np.where(owl[:, None], [0.005, 0.005, 0.99], [0.99, 0.005, 0.005])
    pq.write_table(pa.table({name: even[:, place] for place, name in enumerate(CLASSES)}), tmp_path / "p.parquet")
    randomize_table(parquet, out, settings(prior=tmp_path / "p.parquet"))
    expected = np.where(owl, "owl", "cat")
    assert pq.read_table(out)["y"].to_pylist() == expected.tolist()


@pytest.mark.parametrize("method", ["best", "rr", "laplace"])
def test_numbers_are_near_the_true_ones_for_a_large_epsilon(parquet: Path, out: Path, table: pa.Table, method):
    chosen = settings(**grid(values=11, method=method), epsilon=20.0)
    randomize_table(parquet, out, chosen, seed=2)
    found = pq.read_table(out)["x"].to_numpy()
    assert np.sqrt(np.mean((found - table["x"].to_numpy()) ** 2)) < 0.1


class Killed(BaseException):
    """What no code of ours catches."""


def test_a_run_that_died_behind_the_table_goes_on(parquet: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as context:
        context.setattr("sfumato.runs.run.Run.finish", lambda *_, **__: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            randomize_table(parquet, out, settings())
    written = out.read_bytes()
    assert randomize_table(parquet, out, settings(), resume=True).statement.epsilon == 1.0
    assert out.read_bytes() == written


def test_a_table_that_was_written_and_is_gone_is_not_drawn_again(
    parquet: Path, out: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as context:
        context.setattr("sfumato.runs.run.Run.finish", lambda *_, **__: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            randomize_table(parquet, out, settings())
    out.unlink()
    with pytest.raises(InputError, match="is gone: its labels are not drawn again"):
        randomize_table(parquet, out, settings(), resume=True)


@pytest.mark.parametrize("what", ["label", "settings", "order"])
def test_a_run_goes_on_with_the_same_labels_and_settings_only(parquet: Path, table: pa.Table, out: Path, what):
    def die(done: int, rows: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        randomize_table(parquet, out, settings(), progress=die)
    labels = table["y"].to_pylist()
    if what == "label":
        labels[7] = "owl" if labels[7] != "owl" else "cat"
    if what == "order":
        labels = labels[::-1]
    pq.write_table(table.set_column(1, "y", pa.array(labels)), parquet)
    chosen = settings(epsilon=2.0) if what == "settings" else settings()
    with pytest.raises(InputError, match="is from another plan, model or data set"):
        randomize_table(parquet, out, chosen, resume=True)
    assert not out.exists()


def test_a_table_that_changes_while_it_is_read_is_not_written(
    parquet: Path, table: pa.Table, out: Path, monkeypatch: pytest.MonkeyPatch
):
    look = module.TableWork.of

    def then_change(*arguments):
        work = look(*arguments)
        pq.write_table(table.set_column(1, "y", pa.array(["dog"] * len(table))), parquet)
        return work

    monkeypatch.setattr(module.TableWork, "of", then_change)
    with pytest.raises(InputError, match="was changed while it was read"):
        randomize_table(parquet, out, settings())
    assert not out.exists()


def test_a_second_draw_for_one_output_is_refused(parquet: Path, out: Path):
    randomize_table(parquet, out, settings())
    written = out.read_bytes()
    with pytest.raises(InputError, match="average the noise away"):
        randomize_table(parquet, out, settings())
    with pytest.raises(InputError, match="is complete; there is nothing to go on with"):
        randomize_table(parquet, out, settings(), resume=True)
    assert out.read_bytes() == written
    out.unlink()
    with pytest.raises(InputError, match="average the noise away"):
        randomize_table(parquet, out, settings())


def test_blocks_change_nothing(parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = []
    for rows in (7, 1000):
        monkeypatch.setattr("sfumato.labels.files._PARQUET_ROWS", rows)
        out = tmp_path / f"{rows}.parquet"
        randomize_table(parquet, out, settings(prior=Counted(epsilon=0.1, groups="g")), seed=9)
        found.append(pq.read_table(out))
    assert found[0].equals(found[1])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"label": "z"}, "has no column 'z'"),
        ({"label": "x"}, "classes must be of the label's type, double"),
        ({"domain.names": ("cat",)}, "classes must be a whole number >= 2, got 1; with one class"),
        ({"domain.names": ("cat", "dog")}, "is 'owl', which is none of the classes cat, dog"),
        ({**grid(), "label": "y"}, "must be numbers for domain=grid"),
        (grid(low=-1.0, loss="poisson"), "values must be >= 0"),
        ({"prior": 0.1, "prior.groups": "h"}, "has no column 'h'"),
        ({"prior": {"kind": "counted", "clusters": 3, "features": "f.npy"}}, "f.npy does not exist"),
    ],
)
def test_what_does_not_fit_the_table_is_refused_and_leaves_nothing(parquet: Path, out: Path, changed, told):
    with pytest.raises(InputError, match=told):
        randomize_table(parquet, out, settings(**changed))
    assert not out.exists()
    assert not run_folder(out).exists()


def test_a_missing_label_and_an_empty_table_are_refused(tmp_path: Path, out: Path):
    pq.write_table(pa.table({"y": ["cat", None]}), tmp_path / "t.parquet")
    for chosen in (settings(), settings(domain=Classes(public=True))):
        with pytest.raises(InputError, match=r"is missing \(null\) at position 1; fill it in or drop the row"):
            randomize_table(tmp_path / "t.parquet", out, chosen)
    pq.write_table(pa.table({"y": pa.array([], pa.string())}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="has no rows"):
        randomize_table(tmp_path / "t.parquet", out, settings())
    assert list(tmp_path.iterdir()) == [tmp_path / "t.parquet"]


EARLIER = {
    **dict.fromkeys(("prior", "groups", "clusters", "features", "low", "high", "values")),
    "plan": "labeldp randomize",
    "label": "y",
    "epsilon": 1.0,
    "classes": CLASSES,
    "public_classes": False,
    "prior_epsilon": 0.1,
    "smoothing": 0.0,
    "method": "best",
    "loss": "squared",
    "shuffle": False,
}
"""What plan.json held in earlier versions, next to "about"."""


def test_an_earlier_run_is_read_when_it_has_ended_and_else_cannot_go_on(parquet: Path, out: Path, monkeypatch):
    monkeypatch.setattr(LabelSettings, "plan", lambda *_: dict(EARLIER))
    randomize_table(parquet, out, settings(prior=0.1))
    assert Ledger.read(run_folder(out) / "ledger.jsonl").releases == 2
    page = write_report([run_folder(out)]).read_text()
    assert "prior_epsilon" in page
    assert "histogram with discrete Laplace noise" in page

    def die(done: int, rows: int) -> None:
        raise Killed

    (second := out.parent / "second").mkdir()
    with pytest.raises(Killed):
        randomize_table(parquet, second / "o.parquet", settings(), seed=1, progress=die)
    with pytest.raises(InputError, match="is of an earlier version, whose runs cannot go on here"):
        randomize_table(parquet, second / "o.parquet", settings(), seed=1, resume=True)


# Labels become numbers and back, in every type of column; what cannot is refused by its row.


@pytest.mark.parametrize(
    ("classes", "column"),
    [
        (["a", "b", "c"], pa.array(["c", "a"])),
        (["a", "b", "c"], pa.array(["c", "a"], pa.large_string())),
        (["0", "1", "5"], pa.array([5, 0])),
        (["0", "1", "5"], pa.array([5, 0], pa.int8())),
        (["0", "1", "5"], pa.array([5.0, 0.0])),
        (["false", "maybe", "true"][::2], pa.array([True, False])),
    ],
)
def test_classes_have_the_type_of_the_column(classes, column):
    coding = ClassCoding(classes, column.type)
    numbers = coding.numbers(column, "the label", 0)
    assert numbers.tolist() == [len(classes) - 1, 0]
    assert coding.column(numbers).equals(column)


def test_numbers_go_to_the_nearest_value_and_not_beyond_the_ends():
    coding = Grid(low=0.5, high=5.0, values=10)
    cells = pa.array([0.5, 0.74, 0.76, 3.0, 99.0, -99.0, float("inf")])
    assert coding.numbers(cells, "the label", 0).tolist() == [0, 0, 1, 5, 9, 0, 9]
    assert coding.numbers(pa.array(["1", "4.5"]), "the label", 0).tolist() == [1, 8]
    assert coding.column(np.array([0.25])).to_pylist() == [0.25]


# Rows whose order follows from their labels are refused at any period, a random order is not, and a shuffle helps.

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


@pytest.mark.parametrize(
    ("count", "kind"), one_in(2, [2, 10, 100, 1000], ["binary", "rare", "classes", "many", "numbers"])
)
def test_random_orders_pass(kind, count):
    rng = np.random.default_rng(count)
    assert all(passes(*drawn(kind, count, rng)) for _ in range(100))


_COUNTS = [(1, 8), (3, 6), (4, 5), (2, 3, 3), (1, 1, 1, 1, 4), (2, 2, 2, 2), (1,) * 7]


@pytest.mark.parametrize("counts", slow_but([(each,) for each in _COUNTS], *((each,) for each in _COUNTS[:4])))
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
    settings = LabelSettings(label="y", epsilon=1.0, domain=Classes(names=("0", "1", "2")))
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
    settings = LabelSettings(label="y", epsilon=epsilon, domain=Classes(names=("0", "1")), shuffle=True)
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
    settings = LabelSettings(label="y", epsilon=30.0, domain=Classes(names=("a", "b")), shuffle=True)
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
    settings = LabelSettings(label="y", epsilon=1.0, domain=Classes(names=("a", "b")), shuffle=True)
    with pytest.raises(InputError, match="the column 'row' goes up or down with the rows"):
        randomize_table(tmp_path / name, tmp_path / f"out-{name}", settings)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    write(table.drop(["row"]), tmp_path / name)
    randomize_table(tmp_path / name, tmp_path / f"out-{name}", settings)
