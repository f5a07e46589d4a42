"""What the words say of an attacker is what differential privacy proves, in the words of the verdict, and no more."""

import json
import re
from dataclasses import replace

import pytest
from scipy.stats import norm

from sfumato import accounting as acc
from sfumato.ledger import Ledger
from sfumato.report import words
from sfumato.report.page import render, result
from sfumato.report.run_record import RunRecord, read_run
from sfumato.statement import Statement
from sfumato.statement.statement import brief


def statement(epsilon: float, delta: float = 1e-6, **fields) -> Statement:
    given = {"unit": "user", "adjacency": "add_remove", "sampling": "", "mechanism": "", "noise_source": "os"}
    return Statement(**{**given, **fields, "epsilon": epsilon, "delta": delta})


def one_release(make_run, noise: float) -> RunRecord:
    """A run of one round in which everybody takes part: its best attack is known in closed form."""
    run = make_run(rounds=1, users_per_client=1)
    (run / "ledger.jsonl").unlink()
    with Ledger.open(run / "ledger.jsonl") as ledger:
        ledger.append(acc.Gaussian(noise), round=1)
    stated = Statement.load(run / "statement.json")
    replace(stated, epsilon=acc.guarantee(acc.Gaussian(noise)).epsilon(stated.delta)).save(run / "statement.json")
    return read_run(run)


def shares(text: str) -> float:
    return float(text.removesuffix(" %")) / 100


@pytest.mark.parametrize("noise", [0.4, 1.0, 3.0])
def test_the_best_test_against_a_gaussian_finds_what_the_page_says(make_run, noise):
    run = one_release(make_run, noise)
    for suspected, found in words.found(run):
        # Neyman-Pearson: the most powerful test between N(0, z²) and N(1, z²).
        best = norm.cdf(1 / noise - norm.isf(shares(suspected)))
        assert best <= shares(found) <= best * 1.01
    right = re.search(r"at most ([\d.]+) % of the time", words.meaning(run)[0][1])
    assert shares(f"{right[1]} %") == pytest.approx(norm.cdf(0.5 / noise), rel=0.01)


def test_page_terminal_and_statement_say_the_same_of_one_run(make_run):
    run = read_run(make_run())
    page = render([run]).replace("\N{NO-BREAK SPACE}", " ")
    verdict = run.verdict
    for said in (verdict.title, verdict.attacker):
        assert said in page
        assert said in " ".join(brief(run.statement, run.ledger.event))
        assert said in replace(run.statement, tpr_at_1_percent_fpr=verdict.tpr).text()
    for word in ("strong", "moderate", "weak", "hardly any"):
        assert word in words.SCALE
    assert "reasonable" not in page


def test_no_sentence_promises_more_than_was_proved(make_run):
    page = render([read_run(make_run())])
    assert "except with" not in page.lower()
    assert "chance that the promise fails" not in page


def test_without_a_guarantee_there_is_nothing_to_explain(make_run):
    run = read_run(make_run(noise=0.0))
    assert (words.meaning(run), words.found(run)) == ([], [])
    assert words.promise(run) == [run.verdict.void]


def test_a_delta_that_is_too_large_is_said_on_the_first_screen(make_run):
    large, small = make_run("large"), make_run("small", delta=1e-6)
    warning = "Delta is too large: delta times the number of users is"
    page = render([read_run(large)])
    assert page.index(warning) < page.index("<nav")
    assert warning not in render([read_run(small)])
    assert "well below 1, as it should be" in render([read_run(small)])


def test_the_papers_convention_is_the_one_of_another_unit():
    own = {"name": "by Rényi accounting", "unit": "user", "epsilon": 1.5, "delta": 1e-6}
    clients = [{"name": str(e), "unit": "virtual_client", "epsilon": e, "delta": 1e-6} for e in (4.0, 3.0)]
    assert words.papers_convention(statement(8.0, alternatives=(own,))) is None
    paper = words.papers_convention(statement(8.0, alternatives=(own, *clients)))
    assert paper == words.Convention("3", "1 × 10⁻⁶".removeprefix("1 × "), "one virtual client")


def test_every_alternative_keeps_its_numbers():
    odd = {"name": "other", "unit": "user", "epsilon": float("inf"), "delta": 1e-6, "orders": 64}
    header, *rows = statement(8.0, alternatives=(odd,)).conventions()
    assert rows[0][header.index("ε")] == "8"
    assert rows[0][header.index("Orders")] == "–"
    assert rows[1][header.index("ε")] == "∞"
    assert rows[1][header.index("Orders")] == "64"


def test_the_result_is_what_was_measured_before_and_after(make_run):
    run = make_run()
    assert result(read_run(run)) == ("Recall at FAR 0.001", "0.0724 → 0.189")
    measured = json.loads((run / "evaluation.json").read_text())
    for name, accuracy in (("untrained", 0.11), ("trained", 0.91234)):
        measured[name]["accuracy"] = accuracy
    (run / "evaluation.json").write_text(json.dumps(measured))
    assert result(read_run(run)) == ("Accuracy", "0.11 → 0.912")
    assert result(read_run(make_run("untested", tested=False))) is None
