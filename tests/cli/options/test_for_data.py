"""fedrecon from the command line: the loss, the model and the measure follow from what the data are."""

import json
from pathlib import Path

import numpy as np
import pytest

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


def test_without_test_data_nobody_who_took_part_is_measured(sfumato, stars, tmp_path):
    out = tmp_path / "run"
    assert sfumato("fedrecon", "--data", stars, *RATED, *SMALL, *BRIEF, "--test-share", 0, "--out", out).code == 0
    assert not (out / "evaluation.json").exists()


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
