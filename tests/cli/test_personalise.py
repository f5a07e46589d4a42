"""personalise: everybody is served by a model with an own part that is rebuilt from their records alone."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from sfumato import data, models
from sfumato.cli.main import main
from sfumato.federated import FedRecon
from sfumato.training.defaults import VALUES_REBUILT
from slow import slow_but

MOVIELENS = Path(__file__).parents[2] / "../shared/data/movielens_latest_small"
COLUMNS = ("--user", "user", "--item", "item", "--value", "stars")
FACTORS = {"factors": 4, "offset": 3.0}
ROUNDS = {"rounds": 3, "cohort.size": 6, "client.at_once": 3, "noise.noise_multiplier": 0.0, "seed": 1}
PLAN = FedRecon(client={"local": dict(VALUES_REBUILT)}, **ROUNDS)


def write(file: Path, rows: list[tuple[object, ...]], header: str = "user,item,stars") -> Path:
    file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]))
    return file


def rated(users: range) -> list[tuple[object, ...]]:
    return [(f"u{user:02d}", f"i{item}", (user * item) % 5 + 1) for user in users for item in range(user % 4, 12)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run on the ratings of 20 users; tests only read it."""
    folder = tmp_path_factory.mktemp("ratings")
    words = ["fedrecon", "--data", write(folder / "stars.csv", rated(range(20))), *COLUMNS, "--test-share", 0.2]
    words += ["--model", "matrix_factorization", "--model-options", *(f"{k}={v}" for k, v in FACTORS.items())]
    words += [word for name, value in ROUNDS.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert main([str(word) for word in (*words, "--out", folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """People whom the run has never seen, of the same columns."""
    return write(tmp_path / "others.csv", rated(range(30, 37)))


def expected(run: Path, others: Path) -> tuple[data.UserDataset, np.ndarray]:
    """Every person's prediction for every item, [users, items], by the library alone."""
    users = data.open_users(others, user="user", item="item", value="stars", items=run / "items.txt")
    model = models.matrix_factorization(12, **FACTORS)
    models.load_weights(model, run / "model.safetensors")
    own = PLAN.personalise(model, users)
    items, rows = torch.arange(12)[:, None], []
    for user in range(len(users)):
        model.load_state_dict(own.state(user), strict=False)
        rows.append(model(items).detach().numpy())
    return users, np.stack(rows)


def test_the_best_items_are_those_that_the_library_predicts_and_no_one_has_a_record_of(
    sfumato, trained, others, tmp_path
):
    out = tmp_path / "top.parquet"
    told = json.loads(sfumato("personalise", trained, others, "--out", out, "--top", 3, "--json").out)
    users, predicted = expected(trained, others)
    table = pq.read_table(out)
    assert table.column_names == ["user", "rank", "item", "prediction"]
    assert (told["rows"], told["users"], told["not_covered"]) == (table.num_rows, 7, True)
    assert out.stat().st_mode & 0o077 == 0
    names = list(users.item_names or ())
    wanted = []
    for user in range(len(users)):
        free = np.setdiff1d(np.arange(12), users.examples(user)[0][:, 0])
        best = free[np.argsort(-predicted[user, free], kind="stable")][:3]
        wanted += [(users.user_ids[user], rank, names[item]) for rank, item in enumerate(best, 1)]
    columns = table.to_pydict()
    assert list(zip(columns["user"], columns["rank"], columns["item"], strict=True)) == wanted
    found = {(u, i): v for u, i, v in zip(columns["user"], columns["item"], columns["prediction"], strict=True)}
    for (user, item), value in found.items():
        place = predicted[list(users.user_ids).index(user), names.index(item)]
        assert value == pytest.approx(place, abs=1e-5)


def test_a_person_is_reported_the_same_anyone_who_else_is_served(sfumato, trained, others, tmp_path):
    alone = write(tmp_path / "alone.csv", rated(range(33, 34)))
    for name, file in (("all", others), ("one", alone)):
        assert sfumato("personalise", trained, file, "--out", tmp_path / f"{name}.parquet").code == 0
    everybody, one = (pq.read_table(tmp_path / f"{name}.parquet").to_pylist() for name in ("all", "one"))
    assert [row for row in everybody if row["user"] == "u33"] == one != []


def test_pairs_that_are_asked_for_get_their_prediction_and_need_no_value(sfumato, trained, others, tmp_path):
    asked = write(tmp_path / "asked.csv", [("u35", "i0"), ("u31", "i7"), ("u35", "i11")], header="user,item")
    out = tmp_path / "asked.parquet"
    assert sfumato("personalise", trained, others, "--query", asked, "--out", out).code == 0
    users, predicted = expected(trained, others)
    rows = pq.read_table(out).to_pylist()
    assert [(row["user"], row["item"]) for row in rows] == [("u31", "i7"), ("u35", "i0"), ("u35", "i11")]
    names, people = list(users.item_names or ()), list(users.user_ids)
    wanted = [predicted[people.index(row["user"]), names.index(row["item"])] for row in rows]
    np.testing.assert_allclose([row["prediction"] for row in rows], wanted, atol=1e-5)


def test_the_measurement_is_that_of_the_plans_own_task(sfumato, trained, others):
    told = json.loads(sfumato("personalise", trained, others, "--measure", "--json").out)["measured"]
    users = data.open_users(others, user="user", item="item", value="stars", items=trained / "items.txt")
    model = models.matrix_factorization(12, **FACTORS)
    models.load_weights(model, trained / "model.safetensors")
    assert told == PLAN.default_task().measure(model, users, curve=True, device="cpu")
    shown = sfumato("personalise", trained, others, "--measure").out
    assert f"{told['rmse']:.4f}" in shown


def test_items_that_the_model_does_not_know_are_refused_by_name_or_skipped_and_counted(sfumato, trained, tmp_path):
    strange = write(tmp_path / "strange.csv", [*rated(range(30, 32)), ("u30", "new", 5), ("u99", "new", 2)])
    given = ("personalise", trained, strange, "--out", tmp_path / "o.parquet")
    assert "'new'" in sfumato(*given).line
    assert "add it" not in sfumato(*given).line  # the model has no place for it
    shown = sfumato(*given, "--on-unknown", "skip")
    assert shown.code == 0
    assert "2 ratings of items" in shown.out
    assert "1 users without a rating of a known item" in shown.out
    assert set(pq.read_table(tmp_path / "o.parquet")["user"].to_pylist()) == {"u30", "u31"}
    asked = write(tmp_path / "asked.csv", [("u30", "i1"), ("u30", "new")], header="user,item")
    given = ("personalise", trained, write(tmp_path / "known.csv", rated(range(30, 32))), "--query", asked)
    assert "'new'" in sfumato(*given, "--out", tmp_path / "q.parquet").line
    shown = sfumato(*given, "--out", tmp_path / "q.parquet", "--on-unknown", "skip")
    assert "1 rows of" in shown.out
    assert pq.read_metadata(tmp_path / "q.parquet").num_rows == 1


def test_what_is_of_no_use_is_one_line_and_leaves_no_file(sfumato, trained, others, finished, tmp_path):
    out = tmp_path / "o.parquet"

    def refused(*words, run=trained, records=others, to=("--out", out)) -> str:
        return sfumato("personalise", run, records, *to, *words).line

    twice = write(tmp_path / "twice.csv", [("u1", "i1", 3), ("u1", "i1", 4)])
    word = write(tmp_path / "word.csv", [("u1", "i1", "good")])
    asked = write(tmp_path / "asked.csv", [("u30", "i1"), ("nobody", "i1")], header="user,item")
    half = tmp_path / "half"
    half.mkdir()
    (half / "plan.json").write_bytes((trained / "plan.json").read_bytes())
    assert "is a run of sfumato fedemb" in refused(run=finished)
    assert "has not ended" in refused(run=half)
    assert "holds no plan.json" in refused(run=tmp_path)
    assert "--duplicates" in refused(records=twice)
    assert "'good'" in refused(records=word)
    assert "'nobody', of whom the records hold nothing" in refused("--query", asked)
    assert "there is nothing at" in refused(records=tmp_path / "none.csv")
    assert "the items are those of the run" in refused("--items", others)
    assert "not both" in refused("--query", asked, "--top", 3)
    assert "top" in refused("--top", 0)
    assert "what shall be done?" in refused(to=())
    assert "need a file" in refused("--top", 3, to=("--measure",))
    assert not out.exists()
    out.write_bytes(b"mine")
    assert "exists" in refused()
    assert out.read_bytes() == b"mine"


def test_ratings_of_one_person_in_two_files_are_one_persons(sfumato, trained, tmp_path):
    write(tmp_path / "part-1.csv", [("u1", "i1", 3), ("u2", "i2", 4)])
    write(tmp_path / "part-2.csv", [("u1", "i3", 3)])
    shown = sfumato("personalise", trained, tmp_path / "part-*.csv", "--out", tmp_path / "o.parquet")
    assert shown.code == 0, shown.err
    assert "1 users are in several of the 2 files: each is one person" in shown.out
    write(tmp_path / "part-3.csv", [("u2", "i2", 5)])
    line = sfumato("personalise", trained, tmp_path / "part-*.csv", "--out", tmp_path / "p.parquet").line
    assert "'u2' has two ratings of the item 'i2'" in line


@pytest.fixture
def named_classes(tmp_path: Path) -> Path:
    """Features of 12 users, of classes with names, as a table."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    labels = np.tile(["bee", "ant", "cow", "ant"], 12)
    rows = [row.tolist() for row in rng.normal(size=(48, 6)).astype(np.float32)]
    users = [f"u{i // 4}" for i in range(48)]
    pq.write_table(pa.table({"who": users, "x": rows, "kind": labels}), tmp_path / "features.parquet")
    return tmp_path / "features.parquet"


def test_classes_keep_the_names_of_the_run_whatever_the_records_hold(sfumato, named_classes, tmp_path):
    columns = ("--user", "who", "--input", "x", "--label", "kind")
    words = ("--model", "linear_head", "--rounds", 2, "--cohort", 4, "--noise", 0, "--seed", 1)
    run = tmp_path / "run"
    shown = sfumato("fedrecon", "--data", named_classes, *columns, *words, "--test-share", 0, "--out", run)
    assert shown.code == 0, shown.err
    assert (run / "classes.txt").read_text() == "ant\nbee\ncow\n"
    table = pq.read_table(named_classes)
    few = table.filter([kind != "ant" and who == "u3" for kind, who in zip(table["kind"].to_pylist(), table["who"].to_pylist(), strict=True)])  # fmt: skip  # noqa: E501
    pq.write_table(few, tmp_path / "few.parquet")
    pq.write_table(table.slice(12, 4).drop_columns(["kind"]), tmp_path / "asked.parquet")
    given = ("personalise", run, tmp_path / "few.parquet", "--query", tmp_path / "asked.parquet")
    shown = sfumato(*given, "--out", tmp_path / "o.parquet")
    assert shown.code == 0, shown.err
    rows = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    model = models.linear_head(6, 3)
    models.load_weights(model, run / "model.safetensors")
    plan = FedRecon(client={"loss": "cross_entropy"}, rounds=2, cohort=4, noise=0.0)
    users = data.from_arrays(np.array(few["x"].to_pylist(), np.float32), [1, 2], ["u3", "u3"], label_names=["ant", "bee", "cow"])  # fmt: skip  # noqa: E501
    model.load_state_dict(plan.personalise(model, users).state(0), strict=False)
    likely, label = model(torch.tensor(table.slice(12, 4)["x"].to_pylist())).softmax(1).max(1)
    assert [row["label"] for row in rows] == [["ant", "bee", "cow"][each] for each in label.tolist()]
    np.testing.assert_allclose([row["probability"] for row in rows], likely.detach().numpy(), atol=1e-6)
    assert "--query FILE" in sfumato("personalise", run, named_classes, "--out", tmp_path / "p.parquet").line
    shown = sfumato("personalise", run, named_classes, "--measure")
    assert shown.code == 0, shown.err
    assert re.search(r"^1 to 9 +12 ", shown.out, re.M), shown.out


def test_people_whom_nothing_can_be_measured_on_are_not_counted_as_measured(sfumato, trained, tmp_path):
    single = [(f"one{i}", "i3", 4) for i in range(3)]
    people = write(tmp_path / "people.csv", [*rated(range(30, 37)), *single])
    shown = sfumato("personalise", trained, people, "--measure")
    assert shown.code == 0, shown.err
    assert re.search(r"^all +7 ", shown.out, re.M), shown.out


@pytest.mark.slow
@pytest.mark.shared
def test_films_of_movielens_for_people_who_were_kept_out(sfumato, tmp_path):
    words = ("--model", "matrix_factorization", "--model-options", "factors=8", "offset=3.5", "--noise", 0.5)
    run, out = tmp_path / "run", tmp_path / "films.parquet"
    items = tmp_path / "items.txt"
    items.write_text("".join(f"{name}\n" for name in data.open_users(MOVIELENS).item_names))
    brief = ("--rounds", 2, "--cohort", 20, "--test-share", 0.1, "--seed", 1, "--items", items)
    assert sfumato("fedrecon", "--data", MOVIELENS, *words, *brief, "--out", run).code == 0
    shown = sfumato("personalise", run, MOVIELENS, "--top", 2, "--out", out, "--measure")
    assert (shown.code, shown.err) == (0, "")
    assert pq.read_metadata(out).num_rows == 2 * 610
    found = pq.read_table(out).to_pylist()
    rated = set()
    for line in (MOVIELENS / "ratings.csv").read_text().splitlines()[1:]:
        user, film, *_ = line.split(",")
        rated.add((user, film))
    assert not any((row["user"], row["item"]) in rated for row in found)


@pytest.mark.parametrize("vocabulary", slow_but(["words.txt", "private"], "private"))
def test_people_are_measured_by_a_model_of_their_texts(tmp_path, monkeypatch, capsys, vocabulary):
    monkeypatch.chdir(tmp_path)
    rows = [{"user": f"u{i % 120}", "text": "the sun is hot, the sea is calm"} for i in range(480)]
    Path("posts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    Path("words.txt").write_text("the\nsun\nsea")
    words = ["--text", "words", "--vocabulary", vocabulary, "--length", 6, "--model", "lstm", "--test-share", 0]
    words += ["--model-options", "hidden=4", "user_features=2", "--rounds", 1, "--cohort", 5, "--seed", 1]
    noise = ["--vocabulary-noise", 2, "--words-per-user", 8] if vocabulary == "private" else []
    words = ["fedrecon", "--data", "posts.jsonl", *words, *noise, "--noise", 1, "--out", "run", "--json"]
    assert main([str(word) for word in words]) == 0
    capsys.readouterr()
    assert main(["personalise", "run", "posts.jsonl", "--measure", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["users"] == 120
    assert 0 <= told["measured"]["accuracy"] <= 1
