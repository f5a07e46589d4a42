"""The page of a run and that of an evaluation: their words and numbers are those of their files."""

import html
import json
import math
import os
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from made_up_patients import SCHEMA, copied, records
from report.browser import assert_silent_and_readable
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.audit.ehr import evaluate
from sfumato.ledger import Budget, Ledger
from sfumato.metrics.tabular import Interval
from sfumato.report import summary, words, write_report
from sfumato.report.charts import BarGroup, bar_chart
from sfumato.report.ehr_page import attacks_verdict, fidelity_verdict, utility_verdict, write_ehr_page
from sfumato.report.ehr_page import render as render_ehr
from sfumato.report.numbers import near, odds_factor, up, value
from sfumato.report.page import render, result
from sfumato.report.run_record import RunRecord, read_run
from sfumato.statement import Statement
from sfumato.statement.statement import QUESTIONS, brief
from sfumato.statement.verdict import scale_in_words
from slow import slow_but

# Properties of the page: complete, honest, self-contained, and the same for the same run.


class Reader(HTMLParser):
    """Words that a reader sees, headings in order, links and everything that could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.headings: list[int] = []
        self.loads: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.unnamed_drawings = self.pictures = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("meta", "link", "path", "circle", "text", "img") or tag == "text":
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "svg" and "aria-labelledby" not in given and given.get("aria-hidden") != "true":
            self.unnamed_drawings += 1
        self.loads += [str(v) for n, v in attrs if n in ("src", "srcset", "data", "poster", "action", "xlink:href")]
        self.pictures += tag == "img"
        if tag in ("link", "use", "image", "script", "iframe"):
            self.loads.append(str(given.get("href", tag)))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if not {"style", "title", "desc"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Reader:
    reader = Reader(path.read_text())
    assert reader.open == [], "an element is not closed"
    return reader


def numbers(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in numbers(item)]
    if isinstance(value, list):
        return [text for item in value for text in numbers(item)]
    return [json.dumps(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def kinds(make_run) -> list[Path]:
    """One run of each kind that must read right."""
    return [
        make_run("plain"),
        make_run("stopped", done=12),
        make_run("untested", tested=False, validated=False),
        make_run("bare", noise=0.0),
        make_run("seeded", seed=7),
        make_run("alone", users_per_client=1),
    ]


def test_every_number_of_the_statement_is_on_the_page(make_run):
    for run in kinds(make_run):
        for public in (False, True):
            text = read(write_report([run], public=public)).text
            statement = json.loads((run / "statement.json").read_text())
            missing = [number for number in numbers(statement) if number not in text]
            assert numbers(statement)
            assert not missing


def test_the_page_loads_nothing(make_run):
    for page in (write_report([make_run("a")]), write_report([make_run("b"), make_run("c")])):
        text = page.read_text()
        reader = read(page)
        parts = {f"#{name}" for name in reader.ids}  # markers of a chart, drawn once and used again
        assert set(reader.loads) <= {"data:,"} | parts
        assert not re.search(r"url\(|@import|<script|\son\w+=", text)
        assert not re.search(r"https?://", text)


def test_pictures_are_on_the_page_itself_and_on_no_public_one(make_run):
    run = make_run("faces")
    measured = json.loads((run / "evaluation.json").read_text())

    def nearest(*right: bool) -> list[dict[str, Any]]:
        others = [{"label": f"p{i}", "picture": "iVBO", "same": same} for i, same in enumerate(right)]
        return [{"label": "p<0>", "picture": "aVBO", "nearest": others}]

    measured["untrained"]["nearest"], measured["trained"]["nearest"] = nearest(False, False), nearest(True, False)
    measured["trained"]["nearest_right"] = 0.5421
    (run / "evaluation.json").write_text(json.dumps(measured))
    page = read(write_report([run]))
    assert page.pictures == 5
    assert {source for source in page.loads if "image" in source} == {
        f"data:image/png;base64,{png}" for png in ("aVBO", "iVBO")
    }
    assert "Nearest images" in page.text
    assert "untrained: 0 of 2 shown right" in page.text  # a file of an earlier version
    assert "nearest, trained: 54.2 % right" in page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert 'alt="p&lt;0&gt;"' in (run / "report.html").read_text()
    out = run / "public.html"
    assert read(write_report([run], out, public=True)).pictures == 0
    assert "Nearest images" not in read(out).text
    assert read(write_report([run], out, public=True, public_evaluation=True)).pictures == 5


def test_pictures_that_are_none_are_refused(make_run):
    run = make_run("faces")
    measured = json.loads((run / "evaluation.json").read_text())
    measured["trained"]["nearest"] = [{"label": "p", "picture": '"><script>', "nearest": []}]
    (run / "evaluation.json").write_text(json.dumps(measured))
    with pytest.raises(InputError, match=r"evaluation\.json is damaged"):
        write_report([run])


def test_headings_ids_and_drawings_are_in_order(make_run):
    for runs in ([make_run("a")], [make_run("b"), make_run("c", noise=0.0)]):
        page = read(write_report(runs))
        assert page.headings[0] == 1
        assert page.headings.count(1) == 1
        assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
        assert len(page.ids) == len(set(page.ids))
        assert page.unnamed_drawings == 0
        text = write_report(runs).read_text()
        named = {word for names in re.findall(r'aria-labelledby="([^"]*)"', text) for word in names.split()}
        assert named
        assert named <= set(page.ids)


def test_the_promise_to_one_user_stands_before_the_papers_convention(make_run):
    run = make_run()
    statement = Statement.load(run / "statement.json")
    text = read(write_report([run])).text
    user = re.search(r"Holds for one user ε = ([\d.]+)", text)
    assert text.index("The ledger") < text.index("under other conventions")  # clearly second
    paper = re.search(r"The paper’s convention, for one virtual client ε = ([\d.]+)", text)
    assert user.start() < paper.start()
    assert float(user.group(1)) == pytest.approx(statement.epsilon, rel=1e-3)
    assert float(paper.group(1)) == pytest.approx(statement.alternatives[0]["epsilon"], rel=1e-3)


def test_an_upper_bound_is_rounded_up(make_run):
    run = make_run()
    epsilon = Statement.load(run / "statement.json").epsilon
    shown = float(re.search(r"Holds for one user ε = ([\d.]+)", read(write_report([run])).text).group(1))
    assert epsilon <= shown < epsilon * 1.001


def test_the_page_says_which_model_began_with_what_and_what_of_it_was_trained(make_run):
    about = {"model": "squeezenet", "lora_rank": 4, "weights": "/home/me/imagenet.safetensors", "negatives": "a/faces/"}
    run = make_run(about=about)
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "trainable": "lora+last"}))
    text = read(write_report([run], public=True)).text.partition("How the run was made")[2]
    text = text.partition("What it reached")[0]
    assert "squeezenet, adapters (LoRA) of rank 4" in text
    assert "imagenet.safetensors; those whose records they come from are not covered" in text
    assert "lora+last; the rest stayed as it was" in text
    assert "faces: not covered" in text
    assert "/home/me" not in text
    assert "First weights" not in read(write_report([make_run("own", about={"model": "lenet"})])).text


def test_a_public_page_has_no_private_figure(make_run):
    run = make_run()
    own, public = read(write_report([run])), read(write_report([run], public=True))
    assert "do not publish this page" in own.text
    assert "do not publish" not in public.text
    # The marked figures themselves: loss, clipped share, mean norm, examples, seconds, cohort.
    for private in ("Loss", "Clipped", "Norm before", "75,600", "77 s", "29 to 35"):
        assert private in own.text
        assert private not in public.text
    raw = (run / "report.html").read_text()
    assert "0.613" not in raw
    assert "1.271" not in raw
    for word in ("<h2>What is promised</h2>", "<h2>The ledger</h2>", "<h2>How to reproduce</h2>"):
        assert word in raw


def test_a_public_page_shows_recall_only_if_the_test_data_are_said_to_be_public(make_run):
    run = make_run()
    assert "ROC" not in (write_report([run], public=True)).read_text()
    assert "1,986,650" not in (write_report([run], public=True)).read_text()
    shown = read(write_report([run], public=True, public_evaluation=True))
    assert "recall at FAR 0.001" in shown.text
    assert "do not publish" not in shown.text
    compared = [run, make_run("other")]
    assert "Recall at FAR" not in write_report(compared, public=True).read_text()


@pytest.mark.parametrize(("fields", "covered"), [({}, True), ({"noise": 0.0}, False), ({"seed": 1}, False)])
def test_an_adapted_clip_norm_is_published_only_where_noise_covers_its_counts(make_run, fields, covered):
    run = make_run(**fields)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    adapted = [{**row, "clip_norm": 1.0 / row["round"]} if "clip_norm" in row else row for row in rows]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in adapted))
    assert ("clip norm, from noisy counts" in read(write_report([run], public=True)).text) == covered
    assert ("Clip norm (not private)" in read(write_report([run])).text) == (not covered)
    assert "Clip norm (not private)" not in read(write_report([run], public=True)).text


def test_a_run_without_noise_promises_nothing_in_plain_words(make_run):
    text = read(write_report([make_run(noise=0.0)])).text
    assert "No guarantee for anyone ε = ∞" in text
    assert "No protection No one is protected: epsilon is infinite." in text
    assert "Nothing is covered" in text
    assert "Holds for" not in text
    assert "DP-" not in text


def test_a_stopped_run_says_for_which_rounds_it_speaks(make_run):
    text = read(write_report([make_run(done=12)])).text
    assert "stopped early, after 12 of 40 rounds. The statement is for those that ran." in text
    assert "The trained model was not measured" in text


def test_a_seeded_run_is_called_a_simulation(make_run):
    text = read(write_report([make_run(seed=7)])).text
    assert "Seeded: simulation only." in text
    assert "Would hold for one user" in text
    assert "would promise" in text
    assert "Holds for" not in text
    assert "Seeded" not in read(write_report([make_run("other")])).text


def test_a_run_without_test_data_says_so(make_run):
    text = read(write_report([make_run(tested=False, validated=False)])).text
    assert "There were no test data" in text
    assert "ROC" not in text


def test_a_released_bundle_without_metrics_has_a_page(make_run):
    run = make_run()
    for name in ("metrics.jsonl", "evaluation.json"):
        (run / name).unlink()
    assert "do not publish" not in read(write_report([run])).text


def test_the_ledger_is_verified_and_accounted_anew(make_run):
    run = make_run()
    text = read(write_report([run])).text
    assert "whole: 40 entries verified" in text
    assert "the statement is borne out" in text
    with Ledger.open(run / "ledger.jsonl") as ledger:
        assert ledger.totals.head in text
        for _ in range(40):
            ledger.append(acc.Gaussian(0.2))
    text = read(write_report([run])).text
    assert "No protection Do not rely on this statement: its ledger costs epsilon" in text
    assert "MORE THAN THE STATEMENT SAYS" in text


def test_several_runs_are_compared_first_and_then_shown(make_run):
    runs = kinds(make_run)
    page = write_report(runs, runs[0].parent / "all.html")
    text = read(page).text
    assert text.index("6 runs compared") < text.index("Side by side") < text.index("What is promised")
    assert text.count("What is promised") == 5
    assert text.count("What would be promised") == 1
    table = re.search(r"<tbody>(.*?)</tbody>", page.read_text(), re.S).group(1)
    assert [re.search(rf'href="#r{i}">{run.name}<', table) is not None for i, run in enumerate(runs)] == [True] * 6
    assert "none: simulation only" in table
    assert "12 of 40" in table
    assert "their costs add up" in text


def test_every_line_of_a_comparison_has_its_runs_name(make_run):
    page = write_report([make_run("private"), make_run("bare", noise=0.0)]).read_text()
    comparison = page[: page.index("<article")]
    figure = next(text for text in comparison.split("<figure>") if "ε against rounds" in text)
    assert re.findall(r"</svg> ([^<]+)</li>", figure) == ["private"]  # ε of the other is infinite


def test_runs_of_one_name_are_distinguished(make_run):
    text = read(write_report([make_run("a/run"), make_run("b/run")])).text
    assert "a/run" in text
    assert "b/run" in text


def test_names_are_text_and_never_markup(make_run):
    run = make_run("<img src=x>", about={"data": "<script>alert(1)</script>", "far": [0.001]})
    text = write_report([run, make_run("other")]).read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert html.escape("<img src=x>") in text


def test_equal_runs_give_equal_pages(make_run):
    run = make_run()
    assert write_report([run]).read_bytes() == write_report([run]).read_bytes()


def test_a_long_run_has_a_small_page(make_run):
    run = make_run(rounds=30)
    with open(run / "metrics.jsonl", "a") as file:
        for number in range(31, 20_001):
            private = {"loss": 1.0, "units": 32, "clipped": 0.5, "norm_mean": 1.0, "seconds": 1.0}
            row = {"round": number, "epsilon": number**0.5, "clip_norm": 1.0, "not_private": private}
            file.write(json.dumps(row) + "\n")
    assert len(write_report([run]).read_bytes()) < 150_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("plan.json", None, "holds no plan.json"),
        ("plan.json", "{", "plan.json is damaged"),
        ("plan.json", "[]", "plan.json is damaged"),
        ("statement.json", None, "has not ended"),
        ("statement.json", '{"unit": "user"}', "statement.json is damaged"),
        ("statement.json", "[1]", "statement.json is damaged"),
        ("ledger.jsonl", None, "no ledger.jsonl"),
        ("ledger.jsonl", '{"index": 0}\n', "ledger.jsonl, line 1"),
        ("metrics.jsonl", '{"round": 1}\n{"rou', "metrics.jsonl, line 2"),
        ("metrics.jsonl", '{"epsilon": 1}\n', "metrics.jsonl, line 1"),
        ("evaluation.json", '{"trained": {}}', "evaluation.json is damaged"),
        ("evaluation.json", '{"trained": {"recall_at_far": {}, "roc": {"fpr": [1], "tpr": []}}}', "evaluation.json"),
    ],
)
def test_a_missing_or_damaged_file_is_one_line(make_run, name, content, message):
    run = make_run(rounds=3)
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_text(content)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        write_report([run])
    assert "\n" not in str(caught.value)
    assert not (run / "report.html").exists()


def test_a_comparison_does_not_replace_the_first_run_s_own_page(make_run):
    first, second = make_run("first", rounds=3), make_run("second", rounds=3)
    own = write_report([first]).read_bytes()
    assert write_report([first, second]) == first / "comparison.html"
    assert (first / "report.html").read_bytes() == own


def test_the_verdict_of_a_stopped_run_says_how_far_it_came_and_what_became_of_its_key(make_run):
    run = make_run(rounds=60, done=11)
    assert summary(run)[0] == "Stopped after 11 of 60 rounds."
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "key").write_bytes(bytes(32))
    told = "Stopped after 11 of 60 rounds; its key is still in checkpoint/, and sfumato close deletes it."
    assert summary(run)[0] == told
    assert not summary(make_run("whole", rounds=3))[0].startswith("Stopped")


def test_a_changed_ledger_is_refused(make_run):
    run = make_run(rounds=3)
    path = run / "ledger.jsonl"
    path.write_text(path.read_text().replace('"denominator":32', '"denominator":33', 1))
    with pytest.raises(InputError, match="line 1: was changed"):
        write_report([run])


def test_mistakes_in_the_arguments_are_one_line(make_run, tmp_path):
    run = make_run(rounds=3)
    with pytest.raises(InputError, match="no run to report"):
        write_report([])
    with pytest.raises(InputError, match="not the folder of a run"):
        write_report([tmp_path / "nothing"])
    with pytest.raises(InputError, match="is a folder"):
        write_report([run], tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        write_report([run], tmp_path / "none" / "report.html")


def test_the_questions_of_a_disclosure_are_answered_or_left_open_in_words(make_run):
    run = make_run()
    text = render([read_run(run)], public=True)
    assert f"{len(QUESTIONS)} of {len(QUESTIONS)} are left open" in text
    statement = Statement.load(run / "statement.json").answer(public_data="None <at all>.")
    statement.save(run / "statement.json")
    text = render([read_run(run)], public=True)
    assert f"{len(QUESTIONS) - 1} of {len(QUESTIONS)} are left open" in text
    assert "None &lt;at all&gt;." in text
    assert all(question in text for question in QUESTIONS.values())


def test_a_budget_in_the_ledger_is_no_release(make_run):
    run = make_run(done=5)
    with Ledger.open(run / "ledger.jsonl", budget=Budget(epsilon=1.0, delta=1e-5)) as ledger:
        head = ledger.totals.head
    found = read_run(run).ledger
    assert (found.entries, found.rounds, found.head) == (6, 5, head)


# What the words say of an attacker is what differential privacy proves, in the words of the verdict, and no more.


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
    assert scale_in_words() in page
    assert scale_in_words() in " ".join(run.statement.text().split())
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


# Numbers on the page: bounds never shrink, nothing is lost on the way to a reader.

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def parse(text: str) -> Decimal:
    match = re.fullmatch(r"(?:([\d.]+) × )?10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)", text)
    if match:
        return Decimal(match[1] or 1).scaleb(int(match[2].translate(SUPERSCRIPTS)))
    return Decimal(text)


positive = st.floats(1e-300, 1e300)


@given(positive, st.integers(2, 6))
def test_an_upper_bound_is_never_shown_smaller_and_never_much_larger(number, digits):
    shown, exact = parse(up(number, digits)), Decimal(repr(number))
    assert exact <= shown <= exact * (1 + Decimal(10) ** (1 - digits))


@given(positive)
def test_the_nearest_number_is_near(number):
    exact = Decimal(repr(number))
    assert abs(parse(near(number, 4)) - exact) <= exact * Decimal("0.0005")


@given(st.floats(0, 1e5))
def test_the_factor_on_the_odds_is_an_upper_bound(epsilon):
    shown = parse(odds_factor(epsilon))
    assert float(shown.ln()) >= epsilon - 1e-15 * max(1, epsilon)  # the rounding of exp and log
    assert float(shown.ln()) <= epsilon + math.log(10) + 1e-9


def test_infinity_and_zero_are_words_of_their_own():
    assert up(math.inf) == "∞"
    assert up(0.0) == "0"
    assert near(0.1) == "0.1"


def test_values_of_a_plan_read_like_the_plan():
    assert [value(item) for item in (None, True, 0.005, 100.0, 2048, [0.001, 0.01], "sgd")] == [
        "none",
        "yes",
        "0.005",
        "100",
        "2048",
        "0.001, 0.01",
        "sgd",
    ]
    assert value(3_000_000) == "3000000"


# The page about synthetic health records: honest, self-contained, and readable in a browser.


@pytest.fixture(scope="module")
def memorised():
    train = records(60, 1)
    return evaluate(train, records(60, 2), copied(train, 60, 3), seed=0)


@pytest.fixture(scope="module")
def bare():
    """Without an outcome, and without columns that an attacker may ask for."""
    schema = replace(SCHEMA, outcome=None)
    sides = [replace(records(25, seed), schema=schema) for seed in (1, 2, 3)]
    return evaluate(*sides, seed=0, sensitive=[])


def words_of(text: str) -> str:
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL).split())


def test_the_page_says_what_was_found_and_that_it_is_no_guarantee(memorised):
    text = words_of(render_ehr(memorised, about="A folder of copies."))
    assert "no differential privacy guarantee: the attacks are examples, not a bound" in text
    assert "3 of 3 found something" in text
    assert "copies of real patients" in text
    assert "A folder of copies." in text
    for column in ("age", "sex", "bili", "stage", "visits", "days between visits"):
        assert column in text
    for attack in memorised.attacks:
        for measure in attack.measures:
            assert f"{attack.name}: {measure.name}" in text
    assert text.count("above the ideal") >= 3
    assert all(each.model in text for each in memorised.utility.models)


def test_the_page_of_an_evaluation_loads_nothing(memorised):
    text = render_ehr(memorised)
    assert not re.search(r"https?://|url\(|@import|<script|\son\w+=|src=", text)
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert {name for names in re.findall(r'aria-labelledby="([^"]*)"', text) for name in names.split()} <= set(ids)
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(ids)


def test_the_same_evaluation_gives_the_same_bytes(memorised):
    assert render_ehr(memorised) == render_ehr(memorised)


def test_what_was_not_measured_is_left_out_or_said(bare):
    text = words_of(render_ehr(bare))
    assert "The schema names no outcome" in text
    assert "None of 2 attacks" in text


def test_a_name_from_the_data_is_no_markup(memorised):
    first = memorised.fidelity.columns[0]
    columns = (replace(first, name="<script>alert(1)</script>"), *memorised.fidelity.columns[1:])
    text = render_ehr(replace(memorised, fidelity=replace(memorised.fidelity, columns=columns)))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_the_page_is_for_its_owner_alone_and_a_folder_is_refused(memorised, tmp_path):
    page = write_ehr_page(memorised, tmp_path / "page.html")
    assert page.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match=r"is a folder; give a file name, .*records\.html"):
        write_ehr_page(memorised, tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        write_ehr_page(memorised, tmp_path / "nowhere" / "page.html")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("width", "scheme"), slow_but([(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")], (390, "light"))
)
def test_the_page_is_silent_and_readable(chromium, memorised, bare, tmp_path, width, scheme):
    """Pictures to look at are kept in the folder of SFUMATO_SCREENSHOTS, if it is set."""
    for name, evaluation in (("memorised", memorised), ("bare", bare)):
        page = write_ehr_page(evaluation, tmp_path / f"{name}.html")
        assert_silent_and_readable(chromium, page, width, scheme)
        folder = Path(os.environ.get("SFUMATO_SCREENSHOTS", tmp_path))
        folder.mkdir(parents=True, exist_ok=True)
        chromium.screenshot(folder / f"ehr-{name}-{width}-{scheme}.png")


@pytest.mark.slow
@pytest.mark.browser
def test_the_three_verdicts_are_on_the_first_screen(chromium, memorised, tmp_path):
    chromium.open(write_ehr_page(memorised, tmp_path / "page.html"), 1280, 800)
    low = "[...document.querySelectorAll('.verdict .word')].map(e => e.getBoundingClientRect().bottom)"
    found = chromium.evaluate(low)
    assert len(found) == 3
    assert all(0 < bottom <= 800 for bottom in found)


def test_a_bar_ends_at_its_value_and_its_interval_at_its_ends():
    chart = bar_chart("b", "AUC", [BarGroup("GRU", (Interval(0.75, 0.5, 1.0), None))], ("real", "made"), (0.5, 1.0))
    assert 'width="157.0"' in chart  # half of the room between 2 and 316
    assert "M2.0 25.0H316.0" in chart
    assert "not measured" in chart
    assert "GRU: real 0.75 (0.5 to 1), made not measured." in chart


def test_verdicts_follow_their_rules(memorised):
    ideal, far = Interval(0.5, 0.45, 0.55), Interval(0.95, 0.9, 1.0)
    aucs = [Interval(auc, auc - 0.05, auc + 0.05) for auc in (0.39, 0.6, 0.8, 0.81, 0.86)]
    assert [fidelity_verdict(auc, ideal, far).good for auc in aucs] == [False, True, None, False, False]
    assert [fidelity_verdict(auc, None, far).word.startswith("no nearer") for auc in aucs] == [*[False] * 4, True]
    assert [fidelity_verdict(auc, ideal, ideal).word.startswith("no nearer") for auc in aucs[1:3]] == [False, True]
    assert fidelity_verdict(None, None, None).word == "not judged"
    assert attacks_verdict(memorised.attacks).good is False

    def judged(gap, gain=None):
        return utility_verdict(replace(memorised.utility, gap=gap, gain=gain)).word

    assert judged(Interval(0.01, -0.01, 0.03)) == "as useful as real"
    assert judged(Interval(0.02, -0.01, 0.05)) == "nearly as useful as real"
    assert judged(Interval(0.1, 0.05, 0.2)) == "less useful than real"
    assert judged(Interval(0.06, -0.02, 0.14)) == "undecided with so few patients"  # .755 against .815
    assert judged(Interval(0.3, 0.2, 0.4), Interval(0.01, -0.02, 0.04)) == "no more useful than independent columns"
    assert judged(Interval(0.3, 0.2, 0.4), Interval(0.1, 0.02, 0.2)) == "less useful than real"
    equal = Interval(0.01, -0.01, 0.03), Interval(0.01, -0.02, 0.04)  # no one has learned anything of the outcome
    assert judged(*equal) == "as useful as real, and as independent columns"
    assert judged(None) == "none"
    assert utility_verdict(None).word == "not judged"
