"""The commands that train on single examples: pictures, numbers, texts and tables."""

import io
import json
import shlex
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

from cli.conftest import draw
from made_up_patients import records
from sfumato import data
from sfumato.accounting import Gaussian
from sfumato.cli.commands import COMMANDS
from sfumato.data import open_users
from sfumato.ledger import Budget, Ledger
from slow import slow_but

# `sfumato dpsgd` and `sfumato check-model`: what they leave, what they tell, and one line for each mistake.


SMALL = ("--steps", 3, "--cohort", 20, "--server.learning-rate", 0.5)
EPSILON = ("--epsilon", 3, "--num-classes", 3)
NOISE = ("--noise", 1, "--public-classes")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """120 pictures of three classes, 16×16, as an npz with a test part."""
    rng = np.random.default_rng(0)
    centres = rng.integers(40, 216, (3, 16, 16))
    labels = rng.integers(0, 3, 150)
    pixels = (centres[labels] + rng.normal(0, 20, (150, 16, 16))).clip(0, 255).astype(np.uint8)
    path = tmp_path / "digits.npz"
    np.savez(path, x_train=pixels[:120], y_train=labels[:120], x_test=pixels[120:], y_test=labels[120:])
    return path


@pytest.mark.page
def test_a_run_leaves_every_file_and_reports_accuracy_and_statement(sfumato, digits: Path, tmp_path: Path):
    out = tmp_path / "run"
    shown = sfumato("dpsgd", "--data", digits, *SMALL, *EPSILON, "--delta", 1e-4, "--out", out)
    assert shown.code == 0, shown.err
    names = ("plan", "statement", "evaluation")
    plan, statement, evaluation = (json.loads((out / f"{name}.json").read_text()) for name in names)
    assert (plan["plan"], plan["steps"], plan["about"]["model"]) == ("dpsgd", 3, "lenet5")
    assert (statement["unit"], statement["adjacency"]) == ("example", "add_remove")
    assert 2.9 < statement["epsilon"] <= 3
    assert "found in the records" not in " ".join(line["text"] for line in statement["assumptions"])
    assert evaluation["examples"] == 30
    assert f"{evaluation['trained']['accuracy']:.4f}" in shown.out
    page = (out / "report.html").read_text()
    assert "DP-SGD" in page
    assert "log loss" in page
    assert load_file(out / "model.safetensors")


@pytest.mark.page
def test_test_examples_without_a_finite_output_are_reported_of(sfumato, tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 4)).astype(np.float32)
    rows[70, 0] = np.nan
    labels = rng.integers(0, 2, 80)
    path = tmp_path / "rows.npz"
    np.savez(path, x_train=rows[:60], y_train=labels[:60], x_test=rows[60:], y_test=labels[60:])
    shown = sfumato("dpsgd", "--data", path, "--model", "lenet300_100", *SMALL, *NOISE, "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    assert "1 of 20 test examples gave no finite output; log loss and AUC are left out\n" in shown.out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "1 of 20 test examples gave no finite output; log loss and AUC are left out." in page


def test_a_seeded_run_goes_on_to_the_same_bytes(sfumato, digits: Path, tmp_path: Path):
    out = tmp_path / "run"
    words = ("--data", digits, *SMALL, *NOISE, "--seed", 1, "--checkpoint-every", 1)
    assert sfumato("dpsgd", *words, "--out", out).code == 0
    before = (out / "model.safetensors").read_bytes()
    assert sfumato("dpsgd", "--resume", out).code == 0
    assert (out / "model.safetensors").read_bytes() == before
    assert "steps 3 → 4" in sfumato("dpsgd", "--resume", out, "--steps", 4).line
    assert sfumato("dpsgd", "--config", out / "plan.json", "--out", tmp_path / "again").code == 0
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_another_run_is_where_one_starts_from(sfumato, digits: Path, tmp_path: Path):
    assert sfumato("dpsgd", "--data", digits, *SMALL, *NOISE, "--out", tmp_path / "first").code == 0
    weights = tmp_path / "first" / "model.safetensors"
    words = ("--data", digits, *SMALL, *NOISE, "--pretrained", weights, "--trainable", "last")
    shown = sfumato("dpsgd", *words, "--num-classes", 5, "--out", tmp_path / "second")
    assert "but classifier.weight, classifier.bias" in shown.out
    first, second = load_file(weights), load_file(tmp_path / "second" / "model.safetensors")
    assert [name for name in first if not np.array_equal(first[name], second[name])] == [
        "classifier.bias",
        "classifier.weight",
    ]
    line = sfumato("dpsgd", *words, "--model", "lenet300_100", "--out", tmp_path / "third").line
    assert "only the last layer" in line


def test_a_dry_run_reports_the_steps_and_the_price_and_writes_nothing(sfumato, digits: Path, tmp_path: Path):
    words = (
        "--data",
        digits,
        "--epochs",
        2,
        "--cohort",
        20,
        "--epsilon",
        2,
        "--num-classes",
        3,
        "--json",
        "--dry-run",
    )
    told = json.loads(sfumato("dpsgd", *words, "--out", tmp_path / "run").out)
    assert told["plan"]["steps"] == 12
    assert told["statement"]["mechanism"].startswith("12 Gaussian sums")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_texts_are_read_too(sfumato, tmp_path: Path):
    path = tmp_path / "news.csv"
    rows = "".join(f"{i % 2},word{i % 2} is in text number {i}\n" for i in range(60))
    path.write_text("label,text\n" + rows)
    words = ("--data", path, "--vocabulary", 50, "--length", 8, "--model", "bilstm", "--model-options", "hidden=8")
    shown = sfumato("dpsgd", *words, *SMALL, *NOISE, "--out", tmp_path / "run")
    assert shown.code == 0, shown.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "choose how private the run is"),
        ((*NOISE, "--epsilon", 3), "not both"),
        ((*NOISE, "--cohort", 500), "cannot be drawn from 120; lower --cohort"),
        ((*NOISE, "--epochs", 2), "not both"),
        ((*NOISE, "--model", "bilstm"), "bilstm reads token ids"),
        ((*NOISE, "--model-options", "hidden"), "name=value"),
        ((*NOISE, "--model-options", "wings=2"), "lenet5 has no option wings"),
        ((*NOISE, "--num-classes", 2), "2"),
        ((*NOISE, "--examples.copies", 4), "choose an augmentation"),
        ((*NOISE, "--test-share", 1.5), "must be a share >= 0 and below 1, got 1.5"),
        ((*NOISE, "--trainable", "nothing"), "names no parameter"),
        (("--epsilon", 0), "epsilon must be > 0"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_leaves_nothing(sfumato, digits: Path, tmp_path: Path, words, named):
    base = ("--steps", 3) if "--epochs" in words else SMALL
    assert named in sfumato("dpsgd", "--data", digits, *base, *words, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


def test_labels_out_of_range_are_one_line(sfumato, tmp_path: Path):
    np.savez(tmp_path / "bad.npz", x=np.zeros((30, 16, 16), np.uint8), y=np.arange(30) - 5)
    line = sfumato("dpsgd", "--data", tmp_path / "bad.npz", *SMALL, *NOISE, "--out", tmp_path / "run").line
    assert "-5" in line


def test_check_model_names_paths_and_cost(sfumato):
    told = json.loads(sfumato("check-model", "lenet5", "--json").out)
    assert [layer["name"] for layer in told["layers"]] == ["conv1", "conv2", "dense1", "dense2", "classifier"]
    assert told["parameters"] == 61706
    assert told["bytes_per_example"] > 4 * (6 * 28 * 28)
    assert told["micro_batch"] == max(1, min(4096, told["memory_budget"] // told["bytes_per_example"]))
    half = json.loads(sfumato("check-model", "lenet5", "--json", "--memory-budget", 10).out)
    assert half["micro_batch"] == (10 << 20) // half["bytes_per_example"]
    shown = sfumato("check-model", "bilstm", "--kind", "ids", "--shape", 20)
    assert "time steps" in shown.out


def test_correlated_noise_is_explained_with_and_without_sampling_that_limits(sfumato):
    words = ("--population", 600, "--epsilon", 8, "--steps", 4, "--cohort.size", 60, "--dry-run")
    said = sfumato("dpsgd", *words, "--noise", "auto").out
    assert "not tree, banded, blt, bisr: correlated noise needs a cohort that limits" in said
    assert said.count("needs a cohort") == 1
    limited = " ".join(sfumato("dpsgd", *words, "--noise", "tree", "--cohort", "shuffled").out.split())
    assert "The statement covers what one example contributes" in limited


# `sfumato dpsgd --task`: numbers and counts from a table or arrays, to the terminal, the files and the page.


OF_NUMBERS_SMALL = ("--steps", 40, "--cohort", 100, "--server.learning-rate", 0.3, "--model", "lenet300_100")
OF_NUMBERS_NOISE = ("--noise", 0.5, "--seed", 1)


@pytest.fixture
def flats(tmp_path: Path) -> Path:
    """400 flats: size and floor, and the rent and the number of visitors that follow from them."""
    rng = np.random.default_rng(0)
    size, floor = rng.uniform(20, 120, 400), rng.integers(0, 8, 400)
    rent = size / 50 + 0.1 * floor + rng.normal(0, 0.05, 400)
    visitors = rng.poisson(np.exp(2 - size / 60))
    lines = [f"{a:.1f},{b},{c:.3f},{d}" for a, b, c, d in zip(size, floor, rent, visitors)]
    path = tmp_path / "flats.csv"
    path.write_text("\n".join(["size,floor,rent,visitors", *lines]) + "\n")
    for name, rented, visited in (("rent", "{kind: target}", "drop"), ("visitors", "drop", "{kind: count}")):
        (tmp_path / f"{name}.yaml").write_text(
            "size: {kind: numeric, low: 0, high: 150}\nfloor: {kind: numeric, low: 0, high: 10}\n"
            f"rent: {rented}\nvisitors: {visited}\n"
        )
    return path


def files(out: Path, *names: str) -> list[dict]:
    return [json.loads((out / f"{name}.json").read_text()) for name in names]


@pytest.mark.page
def test_a_table_of_numbers_goes_from_end_to_end(sfumato, flats: Path, tmp_path: Path):
    out = tmp_path / "run"
    words = (
        "--task",
        "regression",
        "--data",
        flats,
        "--schema",
        tmp_path / "rent.yaml",
        *OF_NUMBERS_SMALL,
        *OF_NUMBERS_NOISE,
    )
    shown = sfumato("dpsgd", *words, "--validation-share", 0.1, "--out", out)
    assert shown.code == 0, shown.err
    plan, statement, evaluation = files(out, "plan", "statement", "evaluation")
    assert (plan["task"], plan["about"]["classes"], plan["about"]["outputs"]) == ("regression", None, 1)
    assert "classes_public" not in [line.get("id") for line in statement["assumptions"]]
    assert "targets_unbounded" in [line.get("id") for line in statement["assumptions"]]
    before, after = evaluation["untrained"], evaluation["trained"]
    assert after["rmse"] < before["rmse"]
    page = (out / "report.html").read_text()
    for name, key in (("RMSE", "rmse"), ("MAE", "mae"), ("R²", "r2")):
        assert name in shown.out
        assert f"{after[key]:.4f}" in shown.out
        assert f'<th scope="row">{name}</th>' in page
    assert "RMSE against rounds" in page
    assert "All examples of the test data" in page
    assert "Recall at FAR" not in page
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert any("rmse" in row for row in rows if "evaluation" in row)


@pytest.mark.slow
@pytest.mark.page
def test_a_run_on_numbers_goes_on_to_the_same_bytes(sfumato, flats: Path, tmp_path: Path):
    out = tmp_path / "run"
    words = (
        "--task",
        "counts",
        "--data",
        flats,
        "--schema",
        tmp_path / "visitors.yaml",
        *OF_NUMBERS_SMALL,
        *OF_NUMBERS_NOISE,
    )
    shown = sfumato("dpsgd", *words, "--out", out)
    assert shown.code == 0, shown.err
    (evaluation,) = files(out, "evaluation")
    assert evaluation["trained"]["deviance_explained"] > 0 > evaluation["untrained"]["deviance_explained"]
    assert "Poisson log loss" in (out / "report.html").read_text()
    before = (out / "model.safetensors").read_bytes()
    assert sfumato("dpsgd", "--resume", out).code == 0
    assert (out / "model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_whole_numbers_in_arrays_are_counts_where_the_task_is(sfumato, tmp_path: Path):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 4)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=inputs, y=rng.poisson(3, 200))
    out = tmp_path / "run"
    shown = sfumato(
        "dpsgd", "--task", "counts", "--data", tmp_path / "a.npz", *OF_NUMBERS_SMALL, *OF_NUMBERS_NOISE, "--out", out
    )
    assert shown.code == 0, shown.err
    assert "a whole number each" in shown.out
    assert not any("number of classes" in line["text"] for line in files(out, "statement")[0]["assumptions"])
    np.savez(tmp_path / "b.npz", x=inputs, y=rng.normal(size=(200, 3)))
    out = tmp_path / "several"
    assert (
        sfumato(
            "dpsgd",
            "--task",
            "regression",
            "--data",
            tmp_path / "b.npz",
            *OF_NUMBERS_SMALL,
            *OF_NUMBERS_NOISE,
            "--out",
            out,
        ).code
        == 0
    )
    assert files(out, "plan")[0]["about"]["outputs"] == 3


@pytest.mark.parametrize(
    ("task", "schema", "message"),
    [
        ("classes", "rent", "--task classes needs class numbers as targets, got float32"),
        ("own", "rent", "--task own needs a loss"),
        ("ranks", "rent", "task"),
    ],
)
def test_what_does_not_go_together_is_one_line(sfumato, flats: Path, tmp_path: Path, task, schema, message):
    words = (
        "--task",
        task,
        "--data",
        flats,
        "--schema",
        tmp_path / f"{schema}.yaml",
        *OF_NUMBERS_SMALL,
        *OF_NUMBERS_NOISE,
    )
    shown = sfumato("dpsgd", *words, "--out", tmp_path / "run")
    assert shown.code == 2
    assert message in shown.line
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_dry_run_says_what_is_assumed_of_the_targets(sfumato, flats: Path, tmp_path: Path):
    words = (
        "--task",
        "regression",
        "--data",
        flats,
        "--schema",
        tmp_path / "rent.yaml",
        *OF_NUMBERS_SMALL,
        *OF_NUMBERS_NOISE,
    )
    shown = sfumato("dpsgd", *words, "--dry-run")
    assert shown.code == 0, shown.err
    assert "range of the targets is not assumed" in " ".join(shown.out.split())


# The example of each command, which its help and its page show, runs.


_GLYPHS = "data glyphs glyphs.store --identities 40 --images 6"
_FEDEMB = "fedemb --data glyphs.store --noise 1 --rounds 1 --client.epochs 1 --cohort 2 --out runs/a"
_FEDRECON = (
    "fedrecon --data ml-latest-small --model matrix_factorization --noise 1 --rounds 2 --items films.txt --out runs/a"
)
_EHR_FIT = (
    "ehr fit --data patients --epochs 3 --gan-steps 50 --hidden 32 --latent 16 --calibrated-on 100 --out runs/patients"
)
_SMALL = "account --noise-multiplier 1.2 --sampling-rate 0.01 --steps 5000 --json"
_LARGE = "account --noise-multiplier 3.1 --sampling-rate 0.04 --steps 1250 --json"


def ratings():
    """A small stand-in for MovieLens' folder."""
    rows = [f"{u},{u % 19},3\n{u},{u % 7 + 20},{u % 5 + 1}\n" for u in range(1, 301)]
    Path("ml-latest-small").mkdir()
    Path("ml-latest-small/ratings.csv").write_text("userId,movieId,rating\n" + "".join(rows))
    Path("films.txt").write_text("\n".join(map(str, range(27))))


def clicks():
    order = np.random.default_rng(0).permutation(2000)
    Path("clicks.csv").write_text(
        "advert,hour,click\n" + "".join(f"{i % 5},{i % 24},{int(not i % 20)}\n" for i in order)
    )


def agents():
    """40 agents hold some digits, the others are public."""
    x, y = load_digits(return_X_y=True)
    x = np.kron(x.reshape(-1, 8, 8) * 15, np.ones((2, 2))).astype(np.uint8)
    np.savez("agents.npz", images=x[:1200], users=[f"agent {i % 40}" for i in range(1200)], labels=y[:1200])
    np.savez("pool.npz", x_train=x[1200:1700], y_train=y[1200:1700], x_test=x[1700:], y_test=y[1700:])


def patients(*folders: str):
    for seed, folder in enumerate(map(Path, folders)):
        folder.mkdir()
        made = records(120, seed)
        data.write_ehr_tables(made, folder / "visits.csv", folder / "static.csv")
        made.schema.save(folder / "schema.yaml")


def embeddings(path: Path, seed: int) -> None:
    """A table of embeddings of 300 people."""
    rows = np.random.default_rng(seed).normal(size=(300, 16)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 16)
    pq.write_table(pa.table({"user": [f"{seed}-{each}" for each in range(300)], "embedding": lists}), path)


def ledgers():
    Path("runs/a").mkdir(parents=True)
    with Ledger.open("runs/a/ledger.jsonl", budget=Budget(epsilon=2, delta=1e-6)) as ledger:
        ledger.append(Gaussian(1.1).poisson(0.01), phase="train", step=0)
    with Ledger.open("other.jsonl") as ledger:
        ledger.append(Gaussian(8.0), phase="evaluation")


def bank() -> None:
    """bank.csv: customers, and whether they signed."""
    rows = [f"{20 + row % 40},{('clerk', 'nurse')[row % 2]},{('no', 'yes')[row % 3 == 0]}" for row in range(60)]
    Path("bank.csv").write_text("\n".join(["age,job,y", *rows]) + "\n")


_CLICKS = "ads generate clicks.store --rows 3000 --vocabularies 1000 50 --users 300"

NEEDS: dict[str, tuple[str | Callable[[], object], ...]] = {
    "fedrecon": (ratings,),
    "vote ae": (agents,),
    "vote knn": (agents,),
    "personalise": (ratings, _FEDRECON),
    "labeldp regress": (ratings,),
    "labeldp randomize": (clicks,),
    "ehr fit": (lambda: patients("patients"),),
    "ehr sample": (lambda: patients("patients"), _EHR_FIT),
    "ehr evaluate": (lambda: patients("train", "held-out", "made"),),
    "forecast": (_GLYPHS, _FEDEMB),
    "embed": (_GLYPHS, _FEDEMB),
    "search": (_GLYPHS, _FEDEMB, "embed runs/a glyphs.store --out embeddings.parquet"),
    "dplc": (lambda: [embeddings(Path(f"{whose}.parquet"), seed) for seed, whose in enumerate(("private", "public"))],),
    "ads train": (_CLICKS,),
    "ads evaluate": (_CLICKS, "ads train --data clicks.store --epsilon 8 --cohort 100 --steps 3 --out runs/clicks"),
    "ads sweep": (_CLICKS,),
    "report": (_GLYPHS, _FEDEMB),
    "close": (_GLYPHS, _FEDEMB),
    "compare": (f"{_SMALL} > small-batches.json", f"{_LARGE} > large-batches.json"),
    "ledger show": (ledgers,),
    "ledger verify": (ledgers,),
    "ledger merge": (ledgers,),
    "data pack": (lambda: draw(Path("photos"), users=2, images=3),),
    "data schema": (bank,),
}
"""What an example needs before it: files, or commands."""

NOT_RUN = {"tally"}
"""Talliers wait for each other, on other machines."""


QUICK = ("fedrecon", "vote ae", "labeldp randomize", "account", "compare", "ledger merge", "data pack", "data glyphs")


@pytest.mark.parametrize("name", slow_but([name for name in COMMANDS if name not in NOT_RUN], *QUICK))
def test_the_example_of_a_command_runs(name: str, sfumato, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    if name == "data stores":  # the others share drawn pictures
        monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    for step in NEEDS.get(name, ()):
        if isinstance(step, str):
            words, _, file = step.partition(" > ")
            done = sfumato(*shlex.split(words))
            assert done.code == 0, done.err
            if file:
                Path(file).write_text(done.out)
        else:
            step()
    done = sfumato(*shlex.split(COMMANDS[name].example)[1:])
    assert done.code == 0, done.err


# A table goes in where a folder of people does: a column names the user, another one holds pictures or their paths.


PRIVATE = ("--noise", 1, "--seed", 3)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four pictures each of twelve people, whose rows are not adjacent."""
    rng = np.random.default_rng(0)
    cells = []
    for _ in range(48):
        content = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (28, 28), np.uint8)).save(content, "PNG")
        cells.append({"bytes": content.getvalue(), "path": None})
    people = [f"p{i % 12:02d}" for i in range(48)]
    pq.write_table(pa.table({"image": cells, "person": people}), tmp_path / "faces.parquet")
    return tmp_path / "faces.parquet"


@pytest.fixture
def faces(people: Path, tmp_path: Path) -> Path:
    """The pictures of `people`, copied, and beside them a table of their paths in sorted order."""
    folder = shutil.copytree(people, tmp_path / "faces")
    files = sorted(folder.glob("*/*.png"))
    rows = {"file": [str(file.relative_to(folder)) for file in files], "person": [file.parent.name for file in files]}
    pd.DataFrame(rows).to_csv(folder / "faces.csv", index=False)
    return folder / "faces.csv"


@pytest.mark.slow
def test_people_of_a_table_are_trained_on_and_embedded(sfumato, small, table: Path, tmp_path: Path):
    run, out = tmp_path / "run", tmp_path / "embeddings.parquet"
    shown = sfumato(
        "fedemb", "--data", table, "--user", "person", *small, "--noise", 1, "--test-share", 0, "--out", run
    )
    assert shown.code == 0
    assert "12 users" in shown.out
    assert sfumato("embed", run, table, "--user", "person", "--out", out).code == 0
    assert pq.read_table(out)["user"].to_pylist() == sorted([f"p{i:02d}" for i in range(12)] * 4)


def test_a_table_is_packed_as_it_is_read(sfumato, table: Path, tmp_path: Path):
    assert sfumato("data", "pack", table, tmp_path / "store", "--user", "person").code == 0
    packed, read = open_users(tmp_path / "store"), open_users(table, user="person")
    assert list(packed.user_ids) == list(read.user_ids)
    for user in range(12):
        assert (packed.examples(user)[0] == read.examples(user)[0]).all()


def test_whose_the_rows_are_is_asked(sfumato, small, table: Path, tmp_path: Path):
    asked = sfumato("fedemb", "--data", table, *small, "--noise", 1, "--out", tmp_path / "run").line
    assert "say whose each row is, --user COLUMN or user=, of image, person" in asked
    assert "--user COLUMN" in sfumato("data", "pack", table, tmp_path / "store").line
    (tmp_path / "photos" / "al").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "al" / "0.png")
    shown = sfumato("fedemb", "--data", tmp_path / "photos", "--user", "person", *small, "--noise", 1)
    assert "user='person' is for tables" in shown.line


@pytest.mark.slow
def test_tar_shards_go_in_where_a_table_does(sfumato, small, table: Path, tmp_path: Path):
    rows = pq.read_table(table).to_pylist()
    for shard in range(2):
        with tarfile.open(tmp_path / f"faces-{shard}.tar", "w") as tar:
            for i, row in enumerate(rows):
                if i % 2 == shard:
                    person = json.dumps({"person": row["person"]}).encode()
                    for kind, content in (("png", row["image"]["bytes"]), ("json", person)):
                        info = tarfile.TarInfo(f"{i:04d}.{kind}")
                        info.size = len(content)
                        tar.addfile(info, io.BytesIO(content))
    pattern = tmp_path / "faces-{0..1}.tar"
    asked = sfumato("data", "pack", pattern, tmp_path / "store").line
    assert "--user COLUMN" in asked
    assert sfumato("data", "pack", pattern, tmp_path / "store", "--user", "json.person").code == 0
    packed, read = open_users(tmp_path / "store"), open_users(table, user="person")
    assert list(packed.user_ids) == list(read.user_ids)
    assert packed.sizes.tolist() == read.sizes.tolist()
    private = ("--noise", 1, "--test-share", 0, "--out", tmp_path / "run")
    shown = sfumato("fedemb", "--data", pattern, "--user", "json.person", "--input", "png", *small, *private)
    assert shown.code == 0
    assert "12 users" in shown.out


@pytest.mark.slow
def test_a_run_on_paths_is_the_run_on_their_folder(sfumato, small, faces: Path, finished: Path, tmp_path: Path):
    run, out = tmp_path / "run", tmp_path / "embeddings.parquet"
    shown = sfumato("fedemb", "--data", faces, "--user", "person", *small, *PRIVATE, "--out", run)
    assert shown.code == 0, shown.err
    assert (run / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert sfumato("report", run).code == 0
    assert sfumato("embed", run, faces, "--user", "person", "--input", "file", "--out", out).code == 0
    rows = pd.read_csv(faces)
    assert pq.read_table(out)["file"].to_pylist() == rows["file"].tolist()
    assert pq.read_table(out)["user"].to_pylist() == rows["person"].tolist()


@pytest.mark.slow
def test_a_run_on_paths_goes_on_with_the_same_pictures_only(sfumato, small, faces: Path, contents, tmp_path: Path):
    run, table = tmp_path / "run", faces.rename(tmp_path / "faces.csv")
    words = ("--data", table, "--user", "person", "--folder", faces.parent, *small, *PRIVATE)
    assert sfumato("fedemb", *words, "--out", run).code == 0
    before = contents(run)
    assert sfumato("fedemb", "--resume", run).code == 0
    assert (run / "model.safetensors").read_bytes() == before["model.safetensors"]
    picture = faces.parent / "p03" / "2.png"
    Image.open(picture).point(lambda value: 255 - value).save(picture)
    assert "another plan, model or data set" in sfumato("fedemb", "--resume", run).line
    picture.unlink()
    assert f"file at line 16 ({picture}) cannot be read" in sfumato("fedemb", "--resume", run).line


def test_paths_are_packed_into_the_store_of_their_folder(sfumato, faces: Path, tmp_path: Path):
    words = ("--user", "person", "--size", 6, "--channels", 3)
    shown = sfumato("data", "pack", faces, tmp_path / "store", *words)
    assert shown.code == 0, shown.err
    packed, read = (
        open_users(tmp_path / "store", verify=True),
        open_users(faces.parent, size=6, channels=3, on_error="skip"),
    )
    assert list(packed.user_ids) == list(read.user_ids)
    for user in range(len(read)):
        assert (packed.examples(user)[0] == read.examples(user)[0]).all()
    assert "brought 64 pictures to 6×6" in shown.out
    assert "turned 64 pictures to RGB" in shown.out


@pytest.mark.slow
def test_examples_by_their_paths_are_trained_on(sfumato, faces: Path, tmp_path: Path):
    moved = faces.rename(tmp_path / "labels.csv")
    rows = pd.read_csv(moved)
    rows["file"] = rows["file"].str.replace("/", "\\").str.removesuffix(".png")
    rows.to_csv(moved, index=False)
    words = ("--input", "file", "--label", "person", "--folder", faces.parent, "--size", 16)
    words = ("dpsgd", "--data", moved, *words, "--steps", 2, "--cohort", 8, "--model", "lenet300_100", *PRIVATE)
    shown = sfumato(*words, "--public-classes", "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    assert "64 examples of (16, 16, 1) uint8, 16 classes" in shown.out
    assert "divided by their position" not in shown.out


def test_pictures_that_cannot_be_read_are_one_line_or_skipped_and_counted(sfumato, small, faces: Path, tmp_path: Path):
    rows = pd.read_csv(faces)
    rows.loc[5, "file"], rows.loc[9, "file"] = "gone.png", None
    rows.to_csv(faces, index=False)
    words = ("--user", "person", "--input", "file")
    train = ("fedemb", "--data", faces, *words, *small, *PRIVATE, "--out", tmp_path / "run")
    pack = ("data", "pack", faces, tmp_path / "store", *words)
    for command in (train, pack):
        line = sfumato(*command).line
        assert line.startswith(f"{faces}: file at line 7 ({faces.parent / 'gone.png'}) cannot be read: No such file")
        assert "--on-error skip" in line
        assert "name their folder: --folder FOLDER" in line
        shown = sfumato(*command, "--on-error", "skip")
        assert shown.code == 0, shown.err
        assert "skipped 2 files: line 7 (" in shown.out
        assert "line 11 (is missing (null))" in shown.out


@pytest.mark.slow
def test_pictures_without_an_embedding_are_reported(sfumato, faces: Path, finished: Path, tmp_path: Path):
    rows = pd.read_csv(faces)
    rows.loc[5, "file"] = "gone.png"
    pd.concat([rows, rows.iloc[[2]]]).to_csv(faces, index=False)
    words = ("embed", finished, faces, "--user", "person", "--input", "file", "--on-error", "skip")
    shown = sfumato(*words, "--out", tmp_path / "e.parquet")
    assert shown.code == 0, shown.err
    assert "64 embeddings of 16 users" in shown.out
    assert "skipped 1 file: line 7 (" in shown.err
    assert "1 row names a file that a row before names" in shown.err


def test_tabs_in_a_file_that_is_named_otherwise_are_reported(sfumato, faces: Path, tmp_path: Path):
    faces.write_text(faces.read_text().replace(",", "\t"))
    line = sfumato("data", "pack", faces, tmp_path / "store", "--user", "person", "--input", "file").line
    assert "has columns that are divided by '\\t'" in line
    assert "read_csv(FILE, sep='\\t')" in line


@pytest.mark.parametrize("name", ["none.csv", "none.parquet"])
def test_a_table_that_is_not_there_is_said_so(sfumato, small, finished: Path, tmp_path: Path, name: str):
    table = tmp_path / name
    words = ("--user", "person", "--input", "file")
    for command in (("fedemb", "--data", table, *small, *PRIVATE), ("embed", finished, table)):
        assert sfumato(*command, *words, "--out", tmp_path / "out").line.startswith(f"there is nothing at {table}; ")


def test_a_picture_of_two_people_is_refused(sfumato, small, faces: Path, tmp_path: Path):
    rows = pd.read_csv(faces)
    rows.loc[5, "file"] = "p00/1.png"
    rows.to_csv(faces, index=False)
    words = ("fedemb", "--data", faces, "--user", "person", *small, *PRIVATE, "--on-error", "skip")
    line = sfumato(*words, "--out", tmp_path / "run").line
    assert "names the same file as line 3 (" in line
    assert not (tmp_path / "run").exists()


def test_a_folder_of_pictures_is_named_for_paths_only(sfumato, small, faces: Path, people: Path, tmp_path: Path):
    words = ("--folder", people)
    told = "is for paths of pictures in a table"
    assert told in sfumato("fedemb", "--data", people, *words, *small, *PRIVATE).line
    assert told in sfumato("dpsgd", "--data", people, *words, "--steps", 1, "--cohort", 8, *PRIVATE).line
    assert "--user COLUMN" in sfumato("data", "pack", faces, tmp_path / "store", *words).line
    texts = ("--text", "characters", *words)
    assert "folder=" in sfumato("data", "pack", faces, tmp_path / "store", *texts).line
    assert told in sfumato("fedavg", "--data", faces, *texts, *PRIVATE).line
