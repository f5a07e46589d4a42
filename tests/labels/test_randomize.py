"""A table with randomised labels: once, whole or absent, the same after a stop, and nothing but the label changed."""

import hashlib
import json
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.labels import LabelSettings, randomize_table
from sfumato.labels import randomize as module
from sfumato.labels.randomize import run_folder
from sfumato.ledger import Ledger

CLASSES = ("cat", "dog", "owl")


def settings(**changed) -> LabelSettings:
    return LabelSettings(**{"label": "y", "epsilon": 1.0, "classes": CLASSES, **changed})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "noisy.parquet"


def test_only_the_label_changes_and_ledger_and_statement_stand_beside(parquet: Path, table: pa.Table, out: Path):
    done = randomize_table(parquet, out, settings())
    found = pq.read_table(out)
    assert found.drop(["y"]).equals(table.drop(["y"]))
    assert set(found["y"].to_pylist()) == set(CLASSES)
    assert (done.rows, done.statement.epsilon, done.statement.delta) == (500, 1.0, 0.0)
    folder = run_folder(out)
    assert json.loads((folder / "statement.json").read_text())["unit"] == "label"
    assert not (folder / "checkpoint" / "key").exists()
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        assert ledger.event() == acc.PureDP(1.0, "replace")


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
    chosen = settings(classes=("0", "1"), epsilon=float(np.log(3)))
    randomize_table(tmp_path / "t.parquet", tmp_path / "o.parquet", chosen)
    found = pq.read_table(tmp_path / "o.parquet")["y"].to_numpy()
    assert (found == labels).mean() == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / count) ** 0.5)


@pytest.mark.parametrize(
    "changed",
    [
        {"prior_epsilon": 0.1},
        {"prior_epsilon": 0.3, "groups": "g", "smoothing": 0.1},
        {"prior_epsilon": 1 / 3, "epsilon": 0.7},
        {"label": "x", "classes": None, "low": 0.0, "high": 1.0, "prior_epsilon": 0.2, "loss": "absolute"},
        {"label": "x", "classes": None, "low": 0.0, "high": 1.0, "values": 20, "method": "laplace"},
        {"method": "rr"},
    ],
)
def test_what_the_ledger_adds_up_to_is_not_above_epsilon(parquet: Path, out: Path, changed):
    chosen = settings(**changed)
    statement = randomize_table(parquet, out, chosen).statement
    assert chosen.epsilon - 1e-9 < statement.epsilon <= chosen.epsilon
    with Ledger.open(run_folder(out) / "ledger.jsonl") as ledger:
        assert ledger.releases == (1 if chosen.histogram is None else 2)


def test_a_counted_prior_helps_where_most_labels_are_alike(parquet: Path, table: pa.Table, tmp_path: Path):
    true = np.array(table["y"].to_pylist())

    def share(name: str, **changed) -> float:
        randomize_table(parquet, tmp_path / name, settings(epsilon=0.6, **changed), seed=1)
        return float((np.array(pq.read_table(tmp_path / name)["y"].to_pylist()) == true).mean())

    assert share("prior.parquet", prior_epsilon=0.3) > share("plain.parquet", method="rr") + 0.1


def test_clusters_of_public_features_have_priors_of_their_own_and_may_stay_empty(tmp_path: Path):
    kinds = np.random.default_rng(0).permutation(np.arange(4000) % 2)
    pq.write_table(pa.table({"y": pa.array(kinds)}), tmp_path / "t.parquet")
    np.save(tmp_path / "f.npy", np.eye(2)[kinds])
    chosen = settings(
        classes=("0", "1"), epsilon=0.4, prior_epsilon=0.2, clusters=3, features=tmp_path / "f.npy", groups=None
    )
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
    chosen = settings(classes=("0", "1"), epsilon=0.4, prior_epsilon=0.2, groups="g")
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
    chosen = settings(label="x", classes=None, low=0.0, high=1.0, values=11, method=method, epsilon=20.0)
    randomize_table(parquet, out, chosen, seed=2)
    found = pq.read_table(out)["x"].to_numpy()
    assert np.sqrt(np.mean((found - table["x"].to_numpy()) ** 2)) < 0.1


class Killed(BaseException):
    """What no code of ours catches."""


@pytest.mark.parametrize("changed", [{}, {"prior_epsilon": 0.1, "groups": "g"}])
def test_a_run_that_was_killed_goes_on_to_the_same_table(parquet: Path, tmp_path: Path, changed):
    whole, stopped = tmp_path / "whole.parquet", tmp_path / "stopped.parquet"
    randomize_table(parquet, whole, settings(**changed), seed=5)

    def die(done: int, rows: int) -> None:
        if done > rows / 2:
            raise Killed

    with pytest.raises(Killed):
        randomize_table(parquet, stopped, settings(**changed), seed=5, progress=die)
    assert sorted(path.name for path in tmp_path.glob("*stopped*")) == ["stopped.parquet.run"]
    with pytest.raises(InputError, match="go on with it"):
        randomize_table(parquet, stopped, settings(**changed), seed=5)
    statement = randomize_table(parquet, stopped, settings(**changed), seed=5, resume=True).statement
    assert stopped.read_bytes() == whole.read_bytes()
    assert statement.epsilon <= 1.0


def test_a_released_run_draws_the_same_reports_again(parquet: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    """With a key of the operating system, which stays in the folder until the table is complete."""
    seen: list[list[list[int]]] = []
    drawn = module.reports_of

    def watched(*arguments, **named):
        reports = drawn(*arguments, **named)
        seen[-1].append(reports.tolist())
        return reports

    def die(done: int, rows: int) -> None:
        if done > rows / 2:
            raise Killed

    monkeypatch.setattr(module, "reports_of", watched)
    seen.append([])
    with pytest.raises(Killed):
        randomize_table(parquet, out, settings(), progress=die)
    seen.append([])
    randomize_table(parquet, out, settings(), resume=True)
    assert len(seen[0]) == 3
    assert seen[1][:3] == seen[0]


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


def test_a_signal_stops_it_with_nothing_half_written(parquet: Path, out: Path, tmp_path: Path):
    whole = tmp_path / "whole.parquet"
    randomize_table(parquet, whole, settings(), seed=1)

    def stop(done: int, rows: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        randomize_table(parquet, out, settings(), seed=1, progress=stop)
    assert not out.exists()
    assert not list(tmp_path.glob(".*tmp*"))
    randomize_table(parquet, out, settings(), seed=1, resume=True)
    assert out.read_bytes() == whole.read_bytes()


def test_a_second_draw_for_one_output_is_refused(parquet: Path, out: Path):
    randomize_table(parquet, out, settings())
    written = out.read_bytes()
    with pytest.raises(InputError, match="several draws would average the noise away"):
        randomize_table(parquet, out, settings())
    with pytest.raises(InputError, match="is complete; there is nothing to go on with"):
        randomize_table(parquet, out, settings(), resume=True)
    assert out.read_bytes() == written
    out.unlink()
    with pytest.raises(InputError, match="several draws would average the noise away"):
        randomize_table(parquet, out, settings())


def test_blocks_change_nothing(parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = []
    for rows in (7, 1000):
        monkeypatch.setattr("sfumato.labels.files._PARQUET_ROWS", rows)
        out = tmp_path / f"{rows}.parquet"
        randomize_table(parquet, out, settings(prior_epsilon=0.1, groups="g"), seed=9)
        found.append(pq.read_table(out))
    assert found[0].equals(found[1])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": float("inf")}, "finite"),
        ({"label": "z"}, "has no column 'z'"),
        ({"label": "x"}, "classes must be of the label's type, double"),
        ({"classes": ("cat",)}, "classes must be a whole number >= 2, got 1; with one class"),
        ({"classes": ("cat", "dog")}, "is 'owl', which is none of the classes cat, dog"),
        ({"classes": None}, "which classes are there"),
        ({"public_classes": True}, "give classes or public_classes, not both"),
        ({"prior_epsilon": 1.0}, "prior_epsilon must be below epsilon, 1, of which it is a part, got 1"),
        ({"prior_epsilon": 0.0}, "epsilon must be > 0"),
        ({"prior": Path("p.csv"), "prior_epsilon": 0.1}, "not both"),
        ({"groups": "g"}, "give prior_epsilon, too"),
        ({"groups": "y", "prior_epsilon": 0.1}, "groups must be a public column"),
        ({"clusters": 3, "prior_epsilon": 0.1}, "give clusters and features"),
        ({"features": Path("f.npy"), "prior_epsilon": 0.1}, "give clusters and features"),
        ({"clusters": 3, "features": Path("f.npy")}, "give prior_epsilon, too"),
        ({"clusters": 3, "features": Path("f.npy"), "groups": "g", "prior_epsilon": 0.1}, "groups or clusters"),
        ({"clusters": 0, "features": Path("f.npy"), "prior_epsilon": 0.1}, "clusters must be a whole number >= 1"),
        ({"clusters": 3, "features": Path("f.npy"), "prior_epsilon": 0.1}, "f.npy does not exist"),
        ({"groups": "h", "prior_epsilon": 0.1}, "has no column 'h'"),
        ({"smoothing": 0.1}, "smoothing is for a prior"),
        ({"smoothing": 2.0}, "smoothing must be in"),
        ({"low": 0.0}, "numbers need both ends"),
        ({"low": 0.0, "high": 1.0}, "classes or numbers"),
        ({"low": 1.0, "high": 1.0, "classes": None}, "low must be below high"),
        ({"low": 0.0, "high": 1.0, "classes": None}, "must be numbers where low and high are given"),
        ({"low": 0.0, "high": 1.0, "classes": None, "values": 1}, "values must be a whole number >= 2"),
        ({"low": 0.0, "high": 1.0, "classes": None, "groups": "g", "prior_epsilon": 0.1}, "leave groups out"),
        ({"low": -1.0, "high": 1.0, "label": "x", "classes": None, "loss": "poisson"}, "values must be >= 0"),
        ({"values": 3}, "values is for numbers"),
        ({"method": "laplace"}, "method laplace is for numbers"),
        ({"loss": "absolute"}, "loss absolute is for numbers"),
        ({"method": "rr", "prior_epsilon": 0.1}, "method rr uses no prior"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(parquet: Path, out: Path, changed, told):
    with pytest.raises(InputError, match=told):
        randomize_table(parquet, out, settings(**changed))
    assert not out.exists()
    assert not run_folder(out).exists()


def test_a_missing_label_and_an_empty_table_are_refused(tmp_path: Path, out: Path):
    pq.write_table(pa.table({"y": ["cat", None]}), tmp_path / "t.parquet")
    for chosen in (settings(), settings(classes=None, public_classes=True)):
        with pytest.raises(InputError, match=r"is missing \(null\) at position 1; fill it in or drop the row"):
            randomize_table(tmp_path / "t.parquet", out, chosen)
    pq.write_table(pa.table({"y": pa.array([], pa.string())}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="has no rows"):
        randomize_table(tmp_path / "t.parquet", out, settings())
    assert list(tmp_path.iterdir()) == [tmp_path / "t.parquet"]
