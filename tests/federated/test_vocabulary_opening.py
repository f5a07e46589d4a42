"""A vocabulary as the first release of a training run: one ledger, one statement, and a run that goes on."""

import contextlib
import io
import json
import math
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from forked import Forked, script, team
from resumable import assert_equal_up_to_rounding
from sfumato import accounting as acc
from sfumato import data, models
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.federated import PrivateVocabulary
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.models import read_metadata
from sfumato.training import Result
from slow import slow_but

WORKER = Path(__file__).with_name("vocabulary_worker.py")
worker = script(WORKER)
RULE, DELTA = worker.RULE, worker.DELTA


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return worker.posts(tmp_path_factory.mktemp("texts") / "posts.jsonl")


@pytest.fixture(scope="module")
def texts(file: Path) -> data.UncountedTexts:
    return data.uncounted_texts(file, length=worker.LENGTH)


def fit(texts: data.UncountedTexts, rule: PrivateVocabulary = RULE, *, test=None, **changes) -> Result:
    options = {name: changes.pop(name) for name in ("out", "resume", "budget", "model") if name in changes}
    model = options.pop("model", worker.network)
    parts = data.split_users(texts.blank, test=0.2 if test is None else test)
    plan = worker.plan(**changes)
    return plan.fit(model, parts.train, test=parts.test, opening=rule.opening(texts), **options)


def entries(folder: Path) -> list[dict]:
    rows = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    return [row for row in rows if "event" in row]


def test_one_ledger_and_one_statement_cover_the_count_and_the_rounds(texts, tmp_path: Path):
    result = fit(texts, out=tmp_path / "run")
    rows = entries(tmp_path / "run")
    assert [row["phase"] for row in rows] == ["vocabulary", *["rounds"] * 6]
    population = len(data.split_users(texts.blank, test=0.2).train)
    rounds, count = worker.plan().private_sum(population).event(6), RULE.decided(DELTA).event("add_remove")
    assert acc.compose({acc.event_from_json(row["event"]): 1 for row in rows[:1]}) == count
    together = acc.guarantee(count + rounds).epsilon(DELTA)
    assert result.statement.epsilon == pytest.approx(together, rel=1e-9)
    assert together > max(acc.guarantee(part).epsilon(DELTA) for part in (count, rounds))
    assert result.history[-1]["epsilon"] == pytest.approx(together, rel=1e-4)
    assert result.statement.mechanism.startswith("votes for at most 16 words of each user, noise multiplier 2")
    assert "; then 6 Gaussian sums" in result.statement.mechanism
    assert (result.statement.epsilon_lower, result.statement.alternatives) == (None, ())
    told = " ".join(result.statement.assumptions)
    assert "was counted in the texts that were trained on" in told
    assert "assumed to be public" not in told


def test_the_model_is_as_large_as_the_vocabulary_and_no_word_of_a_single_user_is_in_it(texts, tmp_path: Path):
    result = fit(texts, out=tmp_path / "run")
    words = (tmp_path / "run" / "vocabulary.txt").read_text().split()
    assert set(worker.COMMON) <= set(words) <= {*worker.COMMON, "sail"}
    assert result.model(data.to_tensor(texts.blank.examples(0)[0])).shape[-1] == len(words) + 4
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["classes"] == len(words) + 4
    assert read_metadata(tmp_path / "run" / "model.safetensors")["vocabulary_size"] == len(words) + 4
    about = json.loads((tmp_path / "run" / "plan.json").read_text())["about"]
    assert about["opening"]["threshold_delta"] == pytest.approx(DELTA / 10)
    assert "vocabulary_size" not in about
    public = [(tmp_path / "run" / name).read_bytes() for name in ("plan.json", "ledger.jsonl", "statement.json")]
    assert not any(b"own0" in content for content in public)


def test_those_who_are_kept_for_the_test_do_not_vote(file: Path, tmp_path: Path):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    names = sorted({row["user"] for row in rows})
    kept = names[: len(names) // 2]  # enough of them for any word, if they had a say
    more = [{"user": name, "text": "unheard"} for name in kept]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, [*rows, *more])))
    texts = data.uncounted_texts(tmp_path / "posts.jsonl", length=worker.LENGTH)
    rule = PrivateVocabulary(noise_multiplier=0.5, words_per_user=16)
    for test, told in ((kept, False), (names[-10:], True)):
        out = tmp_path / f"run-{told}"
        fit(texts, rule, test=test, out=out, rounds=1)
        assert ("unheard" in (out / "vocabulary.txt").read_text().split()) == told


def test_a_calibrated_plan_meets_the_budget_with_the_count_in_it(texts):
    population = len(data.split_users(texts.blank, test=0.2).train)
    rule = PrivateVocabulary(words_per_user=16).calibrate(epsilon=0.8, delta=DELTA)
    count = rule.event("add_remove")
    assert 0.799 < acc.guarantee(count).epsilon(DELTA) <= 0.8
    plan = worker.plan(noise_multiplier=None).calibrate(epsilon=8, delta=DELTA, population=population, before=count)
    alone = worker.plan(noise_multiplier=None).calibrate(epsilon=8, delta=DELTA, population=population)
    assert plan.noise_multiplier > alone.noise_multiplier
    parts = data.split_users(texts.blank, test=0.2)
    statement = plan.fit(worker.network, parts.train, opening=rule.opening(texts)).statement
    assert 7.99 < statement.epsilon <= 8


def test_adaptive_clipping_does_not_go_beyond_the_budget_either():
    count = PrivateVocabulary(words_per_user=8).calibrate(epsilon=0.4, delta=1e-4).event("add_remove")
    plan = worker.plan(noise_multiplier=None, clipping="adaptive", clients_per_round=5, delta=1e-4)
    plan = plan.calibrate(epsilon=4, delta=1e-4, population=100, before=count)
    both = count + plan.private_sum(100).event(6)
    assert 3.99 < acc.guarantee(both).epsilon(1e-4) <= 4


def test_a_budget_that_the_count_alone_uses_up_is_refused_in_words():
    count = RULE.decided(DELTA).event("add_remove")
    with pytest.raises(InputError, match=r"before the rounds costs epsilon 1\.\d+ .*, and epsilon 1 is for all"):
        worker.plan(noise_multiplier=None).calibrate(epsilon=1, delta=DELTA, population=100, before=count)


def test_auto_noise_is_compared_with_the_count_in_the_budget():
    count = RULE.decided(DELTA).event("zero_out")
    plan = worker.plan(noise_multiplier=None, noise="auto", sampling="min_separation")
    settings = {"epsilon": 4, "delta": DELTA, "population": 100}
    with_it, alone = (plan.compare_noise(**settings, before=before) for before in (count, None))
    assert all(one.noise_multiplier > other.noise_multiplier for one, other in zip(with_it[:1], alone[:1]))
    chosen = plan.calibrate(**settings, before=count)
    rounds = chosen.private_sum(100).event(6)
    assert 3.99 < acc.guarantee(count + rounds, "zero_out").epsilon(DELTA) <= 4


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": "banded", "sampling": "min_separation", "bands": 2},
        {"sampling": "min_separation"},
        {"clipping": "adaptive"},
        {"users_per_client": 2, "clients_per_round": 5},
    ],
    ids=str,
)
def test_any_rounds_follow_and_are_added_up(texts, tmp_path: Path, changes: dict):
    result = fit(texts, out=tmp_path / "run", **changes)
    plan, population = worker.plan(**changes), len(data.split_users(texts.blank, test=0.2).train)
    rounds = plan.for_population(population).private_sum(population)
    adjacency = rounds.sampler.adjacency
    both = RULE.decided(DELTA).event(adjacency) + rounds.event(6)
    assert result.statement.adjacency == adjacency
    assert result.statement.epsilon == pytest.approx(acc.guarantee(both, adjacency).epsilon(DELTA), rel=1e-9)
    assert result.statement.alternatives == ()
    planned = [row["epsilon"] for row in result.history]
    assert planned[-1] == pytest.approx(result.statement.epsilon, rel=1e-4)


def test_a_run_without_noise_claims_nothing_and_a_round_may_be_empty(texts):
    statement = fit(texts, noise_multiplier=0.0, rounds=2).statement
    assert math.isinf(statement.epsilon)
    assert "without any guarantee" in statement.mechanism
    assert math.isfinite(fit(texts, clients_per_round=1, rounds=8).statement.epsilon)


def of_size(size: int, users: data.UserDataset):
    return models.lstm(vocabulary_size=size, embedding_dim=4, hidden=6)


def budget(factor: float, **settings) -> acc.Budget:
    """So much more than the count costs."""
    count = acc.guarantee(RULE.decided(DELTA).event("add_remove")).epsilon(DELTA)
    return acc.Budget(epsilon=factor * count, delta=DELTA, **settings)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": partial(of_size, 4)}, "has to be built from the data that the function is given"),
        ({"model": partial(of_size, 8)}, "build it with vocabulary_size=7"),
        ({"model": lambda users: 7}, "must return a torch module, got 7"),
        ({"model": models.lstm(vocabulary_size=8)}, "built after the vocabulary is released"),
        ({"sampling": "fixed"}, "not for replace"),
        ({"delta": 1e-5, "rule": PrivateVocabulary(noise_multiplier=1.0, threshold_delta=1e-4)}, "must be below"),
        ({"rule": PrivateVocabulary(noise_multiplier=1.0, delta=1e-4)}, "leave the first one out"),
        ({"rule": PrivateVocabulary()}, "noise_multiplier is not set"),
        ({"budget": budget(1.001, fixed_plan=True)}, "vocabulary and a first round, or nothing would come of it: .*"),
        ({"budget": budget(0.9, fixed_plan=True)}, "vocabulary and a first round, or nothing would come of it"),
        ({"budget": budget(9)}, "fixed_plan"),
        ({"budget": budget(9, adjacency="zero_out")}, "this run's differ by add_remove"),
        ({"clients_per_round": 1000}, "there are"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_found_before_anything_is_spent(texts, tmp_path: Path, changes: dict, told: str):
    rule = changes.get("rule", RULE)
    with pytest.raises(InputError, match=told):
        fit(texts, rule, out=tmp_path / "run", **{k: v for k, v in changes.items() if k != "rule"})
    assert not (tmp_path / "run").exists()


def test_data_to_measure_on_that_are_of_no_use_are_refused_before_anything_is_spent(texts, tmp_path: Path):
    nobody = texts.blank.subset([])
    with pytest.raises(InputError, match="no tokens to measure on"):
        worker.plan().fit(worker.network, texts.blank, test=nobody, opening=RULE.opening(texts), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_data_of_other_texts_are_refused_before_anything_is_spent(texts, file: Path, tmp_path: Path):
    stranger = data.open_users(file, text="words", vocabulary=list(worker.COMMON), length=worker.LENGTH)
    for given in ({"test": stranger}, {"validation": stranger}):
        with pytest.raises(InputError, match=r"must be views of texts\.blank"):
            worker.plan().fit(worker.network, texts.blank, opening=RULE.opening(texts), out=tmp_path / "run", **given)
    with pytest.raises(InputError, match="seed of the plan"):
        PrivateVocabulary(noise_multiplier=1.0, seed=1).opening(texts)
    with pytest.raises(InputError, match=r"read by data\.uncounted_texts"):
        RULE.opening(stranger)
    assert not (tmp_path / "run").exists()


def test_tests_may_come_from_texts_of_their_own(texts, tmp_path: Path):
    (tmp_path / "other.jsonl").write_text('{"user": "x", "text": "the sea sings"}')
    other = data.uncounted_texts(tmp_path / "other.jsonl", length=worker.LENGTH)
    result = worker.plan().fit(worker.network, texts.blank, test=other.blank, opening=RULE.opening(texts, other))
    assert result.evaluation["trained"]["tokens"] == 4


def test_trying_it_out_tells_nothing_and_spends_nothing(texts, monkeypatch):
    monkeypatch.setattr("sfumato.runs.Run.spend", lambda *_, **__: pytest.fail("something was spent"))
    parts = data.split_users(texts.blank, test=0.2)
    tried = worker.plan().try_out(worker.network, parts.train, test=parts.test, opening=RULE.opening(texts))
    assert tried.users.num_classes == 7  # made up
    assert tried.users.examples(0)[0].max() == 6


def test_the_function_that_builds_the_model_is_given_no_record(texts):
    given: list[data.UserDataset] = []

    def build(users: data.UserDataset):
        given.append(users)
        return worker.network(users)

    fit(texts, rounds=1, model=build)
    fitted = texts.encoded(list(given[-1].label_names or ())[1:-3], texts.blank)
    assert [users.num_classes for users in given] == [7, fitted.num_classes]
    for users in given:
        assert (users.input_shape, users.of_sequences) == ((worker.LENGTH,), True)
        assert (len(users), len(users.inputs), len(users.labels), list(users.names)) == (0, 0, 0, [])


def test_an_opening_of_users_is_refused_for_a_plan_of_examples(texts):
    inputs = np.zeros((200, 3), np.float32)
    examples = data.examples_from_arrays(inputs, np.arange(200) % 2, num_classes=2)
    plan = DPSGD(noise_multiplier=1.0, epochs=1, batch_size=20)
    with pytest.raises(InputError, match=r"must be views of texts\.blank"):
        plan.fit(lambda data: torch.nn.Linear(3, 2), examples, opening=RULE.opening(texts))


def test_a_run_goes_on_with_its_count_where_a_calibration_ends_in_other_digits_today(texts, tmp_path: Path):
    rule = replace(RULE, noise_multiplier=1.25)
    fit(texts, rule, out=tmp_path / "run")
    before = (tmp_path / "run" / "statement.json").read_bytes()
    fit(texts, replace(rule, noise_multiplier=1.25 + 1e-12), out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "statement.json").read_bytes() == before
    with pytest.raises(InputError, match=r"another plan, model or data set \(another opening\)"):
        fit(texts, replace(rule, noise_multiplier=1.2501), out=tmp_path / "run", resume=True)


def test_no_word_above_the_threshold_is_told_with_what_was_spent(texts, tmp_path: Path):
    rule = PrivateVocabulary(noise_multiplier=100.0)
    for resume in (False, True):
        with pytest.raises(InputError, match=r"no word .* more than [\d,]+ users .* What this one spent is spent"):
            fit(texts, rule, out=tmp_path / "run", resume=resume)
        assert [row["phase"] for row in entries(tmp_path / "run")] == ["vocabulary"]
    with pytest.raises(InputError, match="from another plan, model or data set"):
        fit(texts, out=tmp_path / "run", resume=True)


def run(out: Path, *flags: str) -> tuple[int, str]:
    """Run in this process: the exit code and what was printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = script(WORKER).main([str(out), *flags])
    return code, printed.getvalue()


FINISHED = (0, "finished\n")
FILES = ("model.safetensors", "ledger.jsonl", "statement.json", "plan.json", "vocabulary.txt")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert run(out) == FINISHED
    return out


def assert_same(one: Path, other: Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("when", slow_but(["before", "after", "1", "3", "5"], "before", "3"))
def test_killed_at_any_place_it_goes_on_to_the_same_bytes(undisturbed: Path, tmp_path: Path, when: str):
    out = tmp_path / "killed"
    process = Forked(WORKER, [str(out), "--die", when], out.with_suffix(".told"))
    assert process.wait() == -signal.SIGKILL, process.told
    assert entries(out)[0]["phase"] == "vocabulary"
    assert (len(entries(out)) == 1) == (when in ("before", "after"))
    assert run(out, "--resume") == FINISHED
    assert_same(undisturbed, out)
    assert load_file(out / "model.safetensors")["prior"].shape == (
        len((out / "vocabulary.txt").read_text().split()) + 4,
    )


def test_what_is_not_trained_stays_what_it_was_when_the_rounds_began(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "killed"
    process = Forked(WORKER, [str(out), "--die", "3"], out.with_suffix(".told"))
    assert process.wait() == -signal.SIGKILL, process.told
    assert run(out, "--resume", "--given", "0.9") == FINISHED
    assert load_file(out / "model.safetensors")["given"] == 0.5
    assert_same(undisturbed, out)


def test_a_model_that_computes_something_else_is_refused_before_the_run_is_touched(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed, out)
    code, told = run(out, "--resume", "--scale", "2")
    assert (code, told.count("\n")) == (2, 1)
    assert_same(undisturbed, out)


def test_two_copies_of_a_released_run_that_was_killed_draw_the_same_words(tmp_path: Path):
    out, copy = tmp_path / "one", tmp_path / "two"
    process = Forked(WORKER, [str(out), "--seed", "-1", "--die", "before"], out.with_suffix(".told"))
    assert process.wait() == -signal.SIGKILL, process.told
    shutil.copytree(out, copy)
    for folder in (out, copy):
        assert run(folder, "--resume", "--seed", "-1") == FINISHED
    assert entries(out)[0] == entries(copy)[0]
    assert (out / "vocabulary.txt").read_bytes() == (copy / "vocabulary.txt").read_bytes()


def test_two_copies_of_a_run_that_was_killed_before_its_rounds_meet_no_common_noise_with_other_models(
    tmp_path: Path, monkeypatch
):
    start = tmp_path / "killed"
    process = Forked(WORKER, [str(start), "--seed", "-1", "--die", "after"], start.with_suffix(".told"))
    assert process.wait() == -signal.SIGKILL, process.told
    noises: list[Tensor] = []
    release = IndependentGaussian.release

    def watched(mechanism, total: Tensor, **how) -> Tensor:
        before = total.clone()
        noises.append(release(mechanism, total, **how) - before)
        return noises[-1] + before

    monkeypatch.setattr(IndependentGaussian, "release", watched)
    for name, more in {"one": (), "again": (), "weights": ("--given", "0.9"), "output": ("--scale", "2")}.items():
        shutil.copytree(start, tmp_path / name)
        assert run(tmp_path / name, "--resume", "--seed", "-1", *more) == FINISHED
    one, again, *others = (noises[first : first + 6] for first in range(0, 24, 6))
    assert all(torch.allclose(first, other, atol=1e-6) for first, other in zip(one, again, strict=True))
    for other in others:
        assert not any(torch.allclose(first, second, atol=0.1) for first, second in zip(one, other, strict=True))


def test_a_finished_run_is_left_as_it_is(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed, out)
    assert run(out, "--resume") == FINISHED
    assert_same(undisturbed, out)


@pytest.mark.parametrize("flags", [("--noise", "2.5"), ("--own", "mine")])
def test_it_does_not_go_on_with_another_rule_or_other_texts(undisturbed: Path, tmp_path: Path, flags: tuple[str, str]):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed, out)
    code, told = run(out, "--resume", *flags)
    assert (code, told.count("\n")) == (2, 1)
    assert "from another plan, model or data set" in told
    assert_same(undisturbed, out)


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "two"
    assert team(WORKER, [str(out)], tmp_path / "told", 2) == ["finished\n", ""]
    assert_equal_up_to_rounding(undisturbed, out)
    assert (undisturbed / "vocabulary.txt").read_bytes() == (out / "vocabulary.txt").read_bytes()


def test_the_usual_run_needs_a_module(texts):
    with pytest.raises(InputError, match="must be a torch module, got function"):
        worker.plan().fit(worker.network, texts.blank)
    with pytest.raises(InputError, match=r"got type; make one of the class: Linear\(\)"):
        worker.plan().fit(torch.nn.Linear, texts.blank)
