"""What commands read: packed data, sources of users, options of one kind of records, and ratings."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from sfumato import data
from sfumato._check import InputError
from sfumato.cli.sources import DataOptions, read_parts
from sfumato.data import open_users

# data pack and data glyphs: stores from the command line.


@pytest.mark.parametrize("keep", ["decoded", "encoded"])
def test_a_packed_folder_opens_with_the_same_people(keep: str, sfumato, people: Path, tmp_path: Path):
    words = ("data", "pack", people, tmp_path / "store", "--size", 8, "--keep", keep, "--json")
    told = json.loads(sfumato(*words).out)
    assert (tmp_path / "store" / "pictures.bin").exists() == (keep == "encoded")
    assert (told["users"], told["examples"], told["input_shape"]) == (16, 64, [8, 8, 1])
    store = data.open_users(tmp_path / "store")
    folder = data.open_users(people, size=8)
    assert list(store.user_ids) == list(folder.user_ids)
    assert (store.examples(3)[0] == folder.examples(3)[0]).all()


def test_height_and_width_may_differ(sfumato, people: Path, tmp_path: Path):
    told = json.loads(sfumato("data", "pack", people, tmp_path / "s", "--size", 6, 9, "--channels", 3, "--json").out)
    assert told["input_shape"] == [6, 9, 3]


def test_colour_stays_colour_without_a_word_about_it(sfumato, photos, tmp_path: Path):
    folder = photos(3, 2)
    for file in folder.rglob("*.png"):
        Image.open(file).convert("RGB").save(file)
    told = json.loads(sfumato("data", "pack", folder, tmp_path / "s", "--json").out)
    assert told["input_shape"] == [12, 12, 3]
    assert told["notes"] == []


def test_packing_refuses_a_broken_picture_or_skips_and_counts_it(sfumato, photos, tmp_path: Path):
    folder = photos(3, 2)
    (folder / "p01" / "0.png").write_bytes(b"not a picture")
    words = ("data", "pack", folder, tmp_path / "store")
    line = sfumato(*words).line
    assert "p01/0.png is not a picture" in line
    assert "leave out such files with --on-error skip;" in line
    shown = sfumato(*words, "--on-error", "skip")
    assert shown.code == 0
    assert "skipped 1 file" in shown.out
    assert "p01/0.png" in shown.out


def test_copies_are_listed_and_removed(sfumato, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sfumato.data.gather.MEMORY", 1)
    (note,) = (line for line in data.open_users(people).summary() if "private copy" in line)
    key = note.split("--remove ")[1].split()[0]
    assert f"of {people}" in sfumato("data", "stores").out
    assert sfumato("data", "stores", "--remove", key).out.startswith(
        f"removed {tmp_path / 'cache' / 'data' / key}, a copy"
    )
    assert sfumato("data", "stores").out == f"0 in {tmp_path / 'cache' / 'data'}; --remove KEY removes one\n"
    assert f"there is no copy '{key}'" in sfumato("data", "stores", "--remove", key).line


def test_what_opens_at_once_needs_no_packing(sfumato, people: Path, tmp_path: Path):
    assert sfumato("data", "pack", people, tmp_path / "store").code == 0
    assert "is a packed store already" in sfumato("data", "pack", tmp_path / "store", tmp_path / "s").line


@pytest.mark.parametrize("command", ["pack", "glyphs"])
def test_a_folder_that_is_not_empty_is_left_alone(sfumato, people: Path, tmp_path: Path, contents, command):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    before = contents(tmp_path / "mine")
    words = ("data", "pack", people) if command == "pack" else ("data", "glyphs")
    more = () if command == "pack" else ("--identities", 3, "--images", 1)
    assert "not empty" in sfumato(*words, tmp_path / "mine", *more).line
    assert contents(tmp_path / "mine") == before


def test_glyphs_become_a_store(sfumato, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    told = json.loads(sfumato("data", "glyphs", tmp_path / "g", "--identities", 5, "--images", 2, "--json").out)
    assert (told["users"], told["examples"]) == (5, 10)
    drawn = data.glyphs(5, 2)
    assert (data.open_users(tmp_path / "g").examples(4)[0] == drawn.examples(4)[0]).all()


# What commands read, and where they keep it.


def test_a_store_is_written_of_the_data_alone(tmp_path: Path) -> None:
    for name, count in (("a", 8), ("b", 4)):
        np.savez(tmp_path / f"{name}.npz", inputs=np.ones((count, 3)), users=range(count), labels=[0] * count)
    options = DataOptions(data=str(tmp_path / "a.npz"), test=str(tmp_path / "b.npz"), store=tmp_path / "store")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the test has names of the training data
        parts = read_parts(options, quiet=True)
    assert parts.test is not None
    assert (len(open_users(tmp_path / "store")), len(parts.train), len(parts.test)) == (8, 8, 4)


# fedrecon from the command line: the loss, the model and the measure follow from what the data are.


BRIEF = ("--rounds", 2, "--cohort", 4, "--noise", 0, "--seed", 1)
RATED = ("--user", "user", "--item", "item", "--value", "stars", "--model", "matrix_factorization")
SMALL = ("--model-options", "factors=4", "offset=3")


def plan(folder: Path) -> dict:
    return json.loads((folder / "plan.json").read_text())


@pytest.fixture
def stars(tmp_path: Path) -> Path:
    rows = [f"u{user:02d},i{item},{(user + item) % 5 + 1}" for user in range(20) for item in range(user % 3, 12)]
    (tmp_path / "stars.csv").write_text("\n".join(["user,item,stars", *rows]))
    return tmp_path / "stars.csv"


@pytest.fixture
def features(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1, 2, 1], 12)
    x = rng.normal(size=(48, 6)).astype(np.float32)
    np.savez(tmp_path / "features.npz", inputs=x, users=np.arange(48) // 4, labels=labels)
    return tmp_path / "features.npz"


def test_ratings_are_trained_on_by_squared_error_and_measured_on_others_and_on_who_took_part(sfumato, stars, tmp_path):
    out = tmp_path / "run"
    shown = sfumato("fedrecon", "--data", stars, *RATED, *SMALL, *BRIEF, "--out", out)
    assert (shown.code, shown.err) == (0, "")
    assert plan(out)["client"]["loss"] == {"kind": "squared"}
    assert plan(out)["about"]["item_count"] == 12
    assert (out / "items.txt").read_text().splitlines() == [f"i{item}" for item in sorted(range(12), key=str)]
    found = json.loads((out / "evaluation.json").read_text())
    assert found["trained"]["rmse"] > 0
    assert found["seen"]["users"] == found["users"]
    assert "without noise" in found["seen"]["not_private"]
    assert "\nseen " in shown.out
    assert (out / "evaluation.json").stat().st_mode & 0o077 == 0


def test_without_test_data_no_one_who_took_part_is_measured(sfumato, stars, tmp_path):
    out = tmp_path / "run"
    assert sfumato("fedrecon", "--data", stars, *RATED, *SMALL, *BRIEF, "--test-share", 0, "--out", out).code == 0
    assert not (out / "evaluation.json").exists()


@pytest.mark.slow
def test_texts_are_trained_on_one_client_after_the_other_unless_a_number_is_given(sfumato, tmp_path):
    rows = [{"user": f"u{i % 8}", "text": f"the {['sun', 'sea'][i % 2]} is hot {i}"} for i in range(32)]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ("--data", tmp_path / "posts.jsonl", "--text", "characters", "--length", 12, "--model", "lstm")
    model = ("--model-options", "hidden=4", "layers=1", "--client.local.parameters", r"output\.bias")
    for given, wanted in (((), 1), (("--client.at-once", 2), 2)):
        out = tmp_path / f"run{wanted}"
        shown = sfumato("fedrecon", *words, *model, *BRIEF, *given, "--test-share", 0.3, "--out", out)
        assert (shown.code, shown.err) == (0, "")
        client = plan(out)["client"]
        assert (client["loss"], client["at_once"]) == ({"kind": "next_token"}, wanted)
    assert "accuracy" in json.loads((tmp_path / "run1" / "evaluation.json").read_text())["seen"]


@pytest.mark.slow
def test_classes_are_trained_on_by_cross_entropy_with_a_bias_of_each_users_own(sfumato, features, tmp_path):
    out = tmp_path / "run"
    words = ("--data", features, "--model", "linear_head", *BRIEF)
    shown = sfumato("fedrecon", *words, "--test-share", 0.4, "--out", out)
    assert shown.code == 0, shown.err
    assert plan(out)["client"]["loss"] == {"kind": "cross_entropy"}
    assert plan(out)["about"]["class_count"] == 3


def test_a_run_on_ratings_that_was_stopped_goes_on_to_the_same_model(sfumato, stars, tmp_path, monkeypatch):
    from sfumato.training import Callback, Stop

    words = ("fedrecon", "--data", stars, *RATED, *SMALL, *BRIEF)
    assert sfumato(*words, "--out", tmp_path / "whole").code == 0

    class Once(Callback):
        def on_round(self, row):
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("sfumato.cli.training.open_logs", lambda *a, **k: [Once()])
        assert sfumato(*words, "--out", tmp_path / "cut").code == 130
    assert "was stopped; go on with" in sfumato("personalise", tmp_path / "cut", stars, "--measure").line
    assert sfumato("fedrecon", "--resume", tmp_path / "cut").code == 0
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert one == other


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        ("fedavg", (), "has a part of each user's own (user_factors), which fedavg would share"),
        ("centralized", (), "which centralized would share"),
        ("fedemb", (), "fedemb trains embeddings"),
        (
            "fedrecon",
            ("--client.loss", "cosface"),
            "--client.loss cosface compares embeddings, and values have squared",
        ),
        ("fedrecon", ("--client.loss", "next_token"), "needs a label for every token"),
        ("fedrecon", ("--client.loss", "cross_entropy"), "needs a class for each record"),
        ("fedrecon", ("--model", "lenet"), "model must be one of matrix_factorization"),
        ("fedrecon", ("--cohort.users-per-client", 2), "an own part belongs to one user"),
        ("fedrecon", ("--client.local.parameters", "nothing"), "names none of the parameters"),
    ],
)
def test_what_does_not_fit_ratings_is_one_line(sfumato, stars, tmp_path, command, words, told):
    noise = () if command == "centralized" else ("--cohort", 2, "--noise", 0)
    given = ("--data", stars, *RATED, "--rounds", 1, *noise, "--out", tmp_path / "no")
    assert told in sfumato(command, *given, *words).line
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("model", "told"), [("lenet", "--model must be linear_head"), ("linear_head", "reads features")]
)
def test_a_model_that_gives_no_logits_of_pictures_is_one_line(sfumato, people, model, told):
    given = ("--data", people, "--noise", 0, "--rounds", 1, "--cohort", 2)
    assert told in sfumato("fedrecon", *given, "--model", model).line


@pytest.mark.page
def test_what_was_measured_on_who_took_part_is_on_no_public_page(sfumato, stars, tmp_path):
    out = tmp_path / "run"
    assert sfumato("fedrecon", "--data", stars, *RATED, *SMALL, *BRIEF, "--out", out).code == 0
    own = (out / "report.html").read_text()
    assert "people who took part (not private)" in own
    page = tmp_path / "public.html"
    assert sfumato("report", out, "--public", "--public-evaluation", "--out", page).code == 0
    assert "people never trained on" in page.read_text()
    assert "took part (not private)" not in page.read_text()


# Ratings and words outside of the vocabulary from the command line.


ROWS = "who,film,stars,day\nbo,17,3.5,2\nal,4,5,1\nbo,4,1,1\nbo,17,4,3\n"
NAMED = {"user": "who", "item": "film", "value": "stars", "time": "day"}


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "table.csv").write_text(ROWS)
    (tmp_path / "items.txt").write_text("4\n17\n99\n")
    return str(tmp_path / "table.csv")


def test_a_table_with_named_columns_is_read_as_ratings(table: str, tmp_path: Path) -> None:
    options = DataOptions(**NAMED, items=tmp_path / "items.txt", value_range=(0.5, 5), duplicates="mean")
    users = options.load(table, None, None)
    assert repr(users) == "UserDataset(2 users, 3 values of 3 items)"
    assert users.examples(1)[1].tolist() == [1.0, 3.75]
    with pytest.raises(InputError, match="two ratings of the item '17'"):
        DataOptions(**NAMED).load(table, None, None)
    with pytest.raises(InputError, match="outside of"):
        DataOptions(**NAMED, value_range=(2, 5)).load(table, None, None)
    with pytest.raises(InputError, match="size=8 is for pictures"):
        DataOptions(**NAMED).load(table, 8, None)


@pytest.mark.parametrize("name", ["ratings.csv", "other.csv"])
def test_movielens_is_known_by_its_columns(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("userId,movieId,rating,timestamp\n1,2,3.5,4\n2,2,1.0,4\n")
    assert repr(DataOptions().load(str(tmp_path / name), None, None)) == "UserDataset(2 users, 2 values of 1 items)"
    pictures = DataOptions(user="userId", input="movieId", label="timestamp")
    assert not pictures.load(str(tmp_path / name), None, None).of_values  # named as another table, it is one


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "glyphs", "--duplicates", "last"), "duplicates='last' is for ratings"),
        (("--data", "{table}", "--user", "who", "--time", "day"), "time='day' is for ratings"),
        (("--data", "{table}", "--item", "film"), "which column is the user? say --user COLUMN"),
        (("--data", "{table}", "--text", "words", "--item", "film"), "text='words' is for texts of users"),
        (("--data", "glyphs", "--oov-buckets", 3), "--oov-buckets 3 is for texts"),
        (("--data", "{table}", "--text", "characters", "--oov-buckets", 3), "--oov-buckets is for words"),
    ],
)
def test_options_of_other_records_are_refused_in_one_line(sfumato, words: tuple, told: str, table: str) -> None:
    words = tuple(str(word).format(table=table) for word in words)
    shown = sfumato("fedavg", *words, "--noise", 0)
    assert shown.code == 2
    assert told in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.slow
def test_an_lstm_gets_vectors_for_the_buckets_of_its_data(sfumato, tmp_path: Path) -> None:
    posts = [{"user": f"u{i % 6}", "text": f"the word{i} is hot"} for i in range(24)]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, posts)))
    (tmp_path / "words.txt").write_text("the\nis\nhot\n")
    words = ("--text", "words", "--vocabulary", tmp_path / "words.txt", "--oov-buckets", 20, "--length", 5)
    model = ("--model", "lstm", "--model-options", "hidden=8", "--embedding-dim", 4)
    run = ("--rounds", 2, "--cohort", 3, "--noise", 1, "--test-share", 0, "--seed", 1)
    shown = sfumato("fedavg", "--data", tmp_path / "posts.jsonl", *words, *model, *run, "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    weights = load_file(tmp_path / "run" / "model.safetensors")
    assert weights["oov_embedding.weight"].shape == (20, 4)
    assert weights["embedding.weight"].shape == (7, 4)


# data schema: drafts.


def test_a_draft_is_written_completed_and_trained_on(sfumato, tmp_path: Path):
    rows = "\n".join(f"{20 + i % 40},{'ab'[i % 2]},{'yes' if i % 3 else 'no'}" for i in range(60))
    (tmp_path / "bank.csv").write_text(f"age,job,y\n{rows}\n")
    shown = sfumato("data", "schema", tmp_path / "bank.csv", "--out", tmp_path / "bank.yaml", "--epsilon", 8)
    assert "# to declare by public knowledge: age, y" in shown.out
    assert "age: {kind: numeric, low: null, high: null}" in (tmp_path / "bank.yaml").read_text()
    words = ("dpsgd", "--data", tmp_path / "bank.csv", "--schema", tmp_path / "bank.yaml", "--noise", 1)
    assert "column 'age' needs low" in sfumato(*words).line
    text = (tmp_path / "bank.yaml").read_text().replace("low: null, high: null", "low: 0, high: 100")
    (tmp_path / "bank.yaml").write_text(text.replace("values: null", "values: [no, yes]"))
    assert sfumato(*words, "--cohort", 10, "--dry-run").code == 0


def test_a_draft_of_visits_is_a_schema_of_health_records(sfumato, tmp_path: Path):
    rows = "\n".join(f"p{i % 12},{i // 12},{i},{i % 5 / 2},{'fm'[i % 2]}" for i in range(48))
    (tmp_path / "v.csv").write_text(f"who,day,row,bili,sex\n{rows}\n")
    words = ("data", "schema", tmp_path / "v.csv", "--id", "who", "--time", "day")
    assert "'row' has another whole number in each of 48 rows, as ids have" in sfumato(*words).line
    given = (*words, "--drop", "row")
    assert "range:" not in sfumato(*given).out.replace("#   range", "")
    told = json.loads(sfumato(*given, "--ranges", "read", "--json").out)
    assert "{name: bili, kind: numeric, whole: false, range: [0.0, 2.0]}" in told["schema"]
    shown = sfumato(*given, "--ranges", "read", "--out", tmp_path / "v.yaml")
    warned = "# ranges and categories are those of the records; use them for public records only"
    assert warned in shown.out
    assert (tmp_path / "v.yaml").read_text().startswith(warned)  # a file outlives what a terminal showed


def test_what_a_draft_refuses_is_one_line(sfumato, tmp_path: Path):
    (tmp_path / "t.csv").write_text("x,label\n1,a\n2,b\n")
    words = ("data", "schema", tmp_path / "t.csv")
    assert "--epsilon 3 does not cover" in sfumato(*words, "--ranges", "read", "--epsilon", 3).line
    assert "--static is for health records" in sfumato(*words, "--static", "s.csv").line
    assert "--label is for a table" in sfumato(*words, "--id", "x", "--time", "label", "--label", "label").line
    assert "is there already" in sfumato(*words, "--out", tmp_path / "t.csv").line
    (tmp_path / "t.csv").write_text("")
    assert "is empty" in sfumato(*words).line
