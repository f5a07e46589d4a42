"""LP-MST: labels in stages, each with the prior of the stages before."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.data import examples_from_arrays
from sfumato.labels import LPMST, label_facts, randomized
from sfumato.labels import response as module
from sfumato.labels.lp_mst import Stages
from sfumato.labels.numbers import BinnedResponse
from sfumato.labels.response import LabelResponse, forward_loss, reports_of, words_of
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.runs import Run
from sfumato.training.supervised import loss_for

# Learning in stages: each label is randomised once, by its own stage, and nothing else is paid for.

PLAN = LPMST(epsilon=2.0, stages=(0.5, 0.3, 0.2), training={"epochs": 4, "batch_size": 32}, seed=1)
CENTRES = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]], np.float32)


def blobs(count=300, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % 3)
    inputs = (CENTRES[labels] + 0.5 * rng.standard_normal((count, 2))).astype(np.float32)
    return examples_from_arrays(inputs, labels, num_classes=3)


def model(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(2, 3)


def test_it_learns_what_the_reports_report_and_pays_for_one_stage():
    result = PLAN.fit(model(), blobs(), test=blobs(90, seed=1))
    assert result.statement.epsilon == 2.0
    assert (result.statement.unit, result.statement.adjacency, result.statement.delta) == ("label", "replace", 0.0)
    assert result.evaluation["trained"]["accuracy"] > 0.9
    assert set(result.evaluation) == {"untrained", "stage 1", "stage 2", "stage 3", "trained"}
    assert ((result.reports >= 0) & (result.reports < 3)).all()


def test_the_stages_are_disjoint_and_hold_all_rows():
    parts = PLAN.parts(301, RandomSource.from_seed(0).stream("x").permutation(301))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(301))
    assert [len(part) for part in parts] == [150, 91, 60]


@pytest.mark.parametrize("stages", [(1.0,), (0.5, 0.5), (0.4, 0.3, 0.3)])
@pytest.mark.parametrize("clusters", [0, 4])
def test_the_ledger_adds_up_to_epsilon_whatever_the_stages(stages, clusters, tmp_path):
    plan = replace(PLAN, stages=stages, clusters=clusters)
    result = plan.fit(model(), blobs(), out=tmp_path / "run")
    event = Ledger.read(tmp_path / "run" / "ledger.jsonl").event()
    assert event == sum(plan.events(3)[1:], plan.events(3)[0])
    assert 1.999 < result.statement.epsilon <= 2.0


def test_another_label_changes_the_prior_of_later_stages_only_through_its_report(monkeypatch):
    """Every report is drawn from the label of its own row and from what was released of others."""
    drawn = []
    reports_of = module.reports_of

    def watch(response, labels, words, prior=None, **more):
        found = reports_of(response, labels, words, prior, **more)
        drawn.append((labels.copy(), None if prior is None else prior.copy(), found))
        return found

    monkeypatch.setattr(module, "reports_of", watch)
    data = blobs()
    PLAN.fit(model(), data)
    first = drawn.copy()
    drawn.clear()
    part = PLAN.parts(300, RandomSource.from_seed(0).stream("stages").permutation(300))[1]
    changed = np.asarray(data.targets).copy()
    reports = {int(row): int(report) for row, report in zip(part, first[1][2], strict=True)}
    for row in part.tolist():  # a row of stage 2 whose report stays when its label is another
        changed[row] = (changed[row] + 1) % 3
        PLAN.fit(model(), examples_from_arrays(np.asarray(data.inputs[0]), changed, num_classes=3))
        if int(drawn[1][2][list(part).index(row)]) == reports[row]:
            break
        changed[row] = (changed[row] + 2) % 3
        drawn.clear()
    else:
        pytest.fail("every report changed with its label")
    assert np.array_equal(drawn[0][2], first[0][2])
    assert np.array_equal(drawn[1][1], first[1][1])
    assert np.array_equal(drawn[2][1], first[2][1])
    assert np.array_equal(drawn[2][2], first[2][2])


def test_a_budget_below_epsilon_refuses_it():
    with pytest.raises(BudgetExceeded):
        PLAN.fit(model(), blobs(), budget=Budget(epsilon=1.0, delta=0.0, adjacency="replace"))


def test_one_class_values_and_too_few_rows_are_refused():
    inputs = np.zeros((4, 2), np.float32)
    for data in (
        examples_from_arrays(inputs, np.zeros(4, np.int64), num_classes=1),
        examples_from_arrays(inputs, np.zeros(4, np.float32)),
        examples_from_arrays(inputs[:2], np.array([0, 1]), num_classes=2),
    ):
        with pytest.raises(InputError):
            replace(PLAN, stages=(0.01, 0.99)).fit(model(), data)


@pytest.mark.parametrize("clusters", [0, 4])
def test_what_the_budget_does_not_allow_is_refused_before_anything_is_counted(clusters, tmp_path):
    plan, budget = replace(PLAN, clusters=clusters), Budget(epsilon=1.0, delta=0.0, adjacency="replace")
    with pytest.raises(BudgetExceeded, match="the prior and the labels"):
        plan.fit(model(), blobs(), out=tmp_path / "run", budget=budget)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": nn.Linear(2, 4)}, "must give 3 outputs for an example"),
        ({"model": nn.Linear(3, 3)}, "the model cannot read an example of the data"),
        ({"test": examples_from_arrays(np.zeros((9, 3), np.float32), np.arange(9) % 3, num_classes=3)}, "one shape"),
        ({"test": examples_from_arrays(np.zeros((9, 2), np.float32), np.arange(9) % 4, num_classes=4)}, "4 classes"),
        ({"features": np.zeros((300, 2))}, "features are for clusters"),
    ],
    ids=["outputs", "inputs", "test shape", "test classes", "features"],
)
def test_what_does_not_fit_is_refused_before_a_label_is_drawn(changed, told, tmp_path):
    given = {"model": model(), "data": blobs(), **changed}
    for way in (PLAN.try_out, lambda *parts, **more: PLAN.fit(*parts, out=tmp_path / "run", **more)):
        with pytest.raises(InputError, match=told):
            way(given["model"], given["data"], **{name: given[name] for name in changed if name != "model"})
    assert not (tmp_path / "run").exists()


def test_it_says_beforehand_what_it_states_at_its_end():
    plan = replace(PLAN, clusters=4)
    said, stated = plan.try_out(model(), blobs()).to_json(), plan.fit(model(), blobs()).statement.to_json()
    said["disclosure"].pop("verification"), stated["disclosure"].pop("verification")
    assert said == stated


def test_where_the_model_diverges_labels_are_reported_as_without_a_prior():
    def broken():
        made = model()
        with torch.no_grad():
            made.weight.fill_(float("inf"))
        return made

    plan = replace(PLAN, stages=(0.5, 0.5), warm_start=False, **{"training.learning_rate": 1e-9})
    with pytest.warns(UserWarning, match="the model gives no finite outputs for 150 of 150 rows"):
        result = plan.fit(broken(), blobs())
    assert ((result.reports >= 0) & (result.reports < 3)).all()


def test_the_released_model_does_not_report_where_the_data_were(tmp_path):
    PLAN.fit(model(), blobs(), out=tmp_path / "run", about={"data": "somewhere/secret.npz", "model": "mine:net"})
    header = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert b"mine:net" in header
    assert b"secret" not in header


@pytest.mark.parametrize("seed", [1, None])
def test_shuffled_rows_may_be_sorted_and_the_run_goes_on(seed, tmp_path, monkeypatch):
    """Inputs, features and labels of a row stay together, in an order that a run keeps until its end."""
    data = blobs()
    order = np.argsort(np.asarray(data.targets), kind="stable")
    data, features = data.subset(order), np.asarray(data.inputs[0])[order]
    plan = replace(PLAN, epsilon=20.0, seed=seed, clusters=3, shuffle=True)
    with pytest.raises(InputError, match="the order of rows is public"):
        replace(plan, shuffle=False).fit(model(), data, features=features)
    with monkeypatch.context() as context:
        context.setattr("sfumato.runs.run.Run.finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            plan.fit(model(), data, features=features, test=blobs(90, seed=1), out=tmp_path / "run")
    result = plan.fit(model(), data, features=features, test=blobs(90, seed=1), out=tmp_path / "run", resume=True)
    if seed is not None:  # what a few steps learn follows from the order; a prior that is sure and wrong hides labels
        assert result.evaluation["trained"]["accuracy"] > 0.9  # a third if rows and labels did not stay together
        assert np.bincount(result.reports).tolist() == [100, 100, 100]  # at epsilon 20 each report is its label
    assert not np.array_equal(result.reports, np.sort(result.reports))
    assert any("random order" in line for line in result.statement.assumptions)


# What a model learns from: reports as labels, or all that is known of a label.

CLUSTERED = replace(PLAN, stages=(1.0,), clusters=4, uniform_share=0.25)


def noted(plan, data, monkeypatch):
    """The targets of the last training, the reports, and the prior that they were drawn by."""
    seen = {}
    fit, release = type(plan.training).fit, Stages.release

    def watched(self, start, inputs, targets, **more):
        seen["targets"] = targets.copy()
        return fit(self, start, inputs, targets, **more)

    def released(self, stage, prior):
        seen["prior"] = prior
        return release(self, stage, prior)

    with monkeypatch.context() as context:
        context.setattr(type(plan.training), "fit", watched)
        context.setattr(Stages, "release", released)
        result = plan.fit(model(), data)
    return seen["targets"], result.reports, seen["prior"]


def test_a_posterior_is_that_of_each_label_by_its_report_and_its_clusters_prior(monkeypatch):
    data = blobs()
    targets, reports, drawn_by = noted(replace(CLUSTERED, targets="posterior"), data, monkeypatch)
    response = CLUSTERED.response(3)
    order = RandomSource.from_seed(0).stream("stages").permutation(len(data))
    for place in range(0, len(data), 37):
        row, prior = order[place], drawn_by[place]
        known = (prior - 0.25 / 3) / 0.75  # before a quarter of it was spread over all classes
        both = known * response.probabilities(prior)[:, reports[row]]
        np.testing.assert_allclose(targets[row], both / both.sum(), atol=1e-6)
    assert targets.sum(axis=1) == pytest.approx(1)


def test_without_a_prior_posteriors_are_reports_with_smooth_labels(monkeypatch):
    plan = replace(PLAN, stages=(1.0,), targets="posterior")
    targets, reports, _ = noted(plan, blobs(), monkeypatch)
    likely = np.exp(2.0) / (np.exp(2.0) + 2)
    assert targets[np.arange(300), reports] == pytest.approx(likely, rel=1e-5)


def test_likelihoods_are_of_each_report_and_the_loss_is_the_forward_loss(monkeypatch):
    plan = replace(CLUSTERED, targets="likelihood", prior_weight=0.5)
    targets, reports, drawn_by = noted(plan, blobs(), monkeypatch)
    order = RandomSource.from_seed(0).stream("stages").permutation(300)
    likelihoods = plan.response(3).likelihoods(reports[order], drawn_by)
    np.testing.assert_allclose(targets[order, 0], likelihoods, atol=1e-6)
    np.testing.assert_allclose(targets[order, 1], 0.5 * (drawn_by - 0.25 / 3) / 0.75, atol=1e-6)
    logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    wanted = torch.from_numpy(targets)
    added = -(wanted[:, 1] * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()
    expected = forward_loss(logits, wanted[:, 0]).mean() + added
    torch.testing.assert_close(loss_for(targets, loss="likelihood")(logits, wanted), expected)


@pytest.mark.parametrize("targets", ["posterior", "likelihood"])
def test_a_prior_with_other_digits_on_another_machine_stops_no_run(targets, tmp_path, monkeypatch):
    """As where the model of the stage before gives other last digits there: a report may be none of that prior."""
    plan, data = replace(PLAN, epsilon=0.5, targets=targets), blobs()
    learn, expected = Stages.learn, Stages._expected

    def dies(self, stage, *given):
        if stage == 1:
            raise KeyboardInterrupt
        return learn(self, stage, *given)

    with monkeypatch.context() as context:
        context.setattr(Stages, "learn", dies)
        with pytest.raises(KeyboardInterrupt):
            plan.fit(model(), data, out=tmp_path / "run")
    monkeypatch.setattr(Stages, "_expected", lambda self, *given: np.roll(expected(self, *given), 1, axis=1))
    assert plan.fit(model(), data, out=tmp_path / "run", resume=True).statement.epsilon == 0.5


@pytest.mark.parametrize("targets", ["reports", "posterior", "likelihood"])
def test_what_is_learned_from_costs_nothing_and_a_run_goes_on_with_it(targets, tmp_path, monkeypatch):
    plan, data, test = replace(PLAN, clusters=4, targets=targets), blobs(), blobs(90, seed=1)
    whole = plan.fit(model(), data, test=test, out=tmp_path / "whole")
    assert whole.statement.epsilon == 2.0
    assert whole.evaluation["trained"]["accuracy"] > 0.8
    learn, turns = Stages.learn, []

    def dies(self, stage, *given):
        turns.append(stage)
        if stage == 2 and turns.count(2) == 1:
            raise KeyboardInterrupt
        return learn(self, stage, *given)

    monkeypatch.setattr(Stages, "learn", dies)
    with pytest.raises(KeyboardInterrupt):
        plan.fit(model(), data, test=test, out=tmp_path / "run")
    plan.fit(model(), data, test=test, out=tmp_path / "run", resume=True)
    assert turns == [0, 1, 2, 2]
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"targets": "labels"}, "targets must be one of"),
        ({"uniform_share": 1.0}, "uniform_share must be in"),
        ({"uniform_share": 0.5}, "give clusters, too"),
        ({"prior_weight": -1.0}, "prior_weight must be"),
        ({"targets": "likelihood", "training": {"label_smoothing": 0.1}}, "targets=likelihood has none"),
    ],
)
def test_targets_that_cannot_be_are_refused(changed, words):
    with pytest.raises(InputError, match=words):
        replace(PLAN, **changed)


# Randomised labels in a run: once, in any blocks, and found again by a run that goes on.

RESPONSE = LabelResponse(epsilon=1.0, classes=5)
LABELS = np.arange(200) % 5


def run(out: Path | None = None, **settings):
    return Run.open(out, plan={"plan": "test"}, **settings)


def test_asked_again_a_run_gives_the_first_reports_at_no_cost():
    with run(seed=1) as open_run:
        open_run.start("test")
        first = randomized(open_run, RESPONSE, LABELS)
        assert (randomized(open_run, RESPONSE, LABELS) == first).all()
        assert open_run.spent() == RESPONSE.event()
        with pytest.raises(InputError, match="give what follows a name of its own"):
            randomized(open_run, LabelResponse(epsilon=2.0, classes=5), LABELS)


def test_a_run_that_goes_on_finds_its_reports(tmp_path: Path):
    with run(tmp_path / "run") as open_run:
        open_run.start("test")
        first = randomized(open_run, RESPONSE, LABELS)
    with run(tmp_path / "run", resume=True) as open_run:
        open_run.saved("test")
        open_run.start("test")
        assert (randomized(open_run, RESPONSE, LABELS) == first).all()
        statement = open_run.finish({}, label_facts(population=200, mechanism="randomised response"))
    assert (statement.unit, statement.adjacency, statement.epsilon, statement.delta) == ("label", "replace", 1.0, 0.0)
    assert not (tmp_path / "run" / "checkpoint" / "key").exists()


def test_blocks_of_words_change_nothing(monkeypatch: pytest.MonkeyPatch):
    prior = np.random.default_rng(0).dirichlet(np.ones(5), 200)

    def drawn() -> list[int]:
        with run(seed=3) as open_run:
            open_run.start("test")
            return randomized(open_run, RESPONSE, LABELS, prior).tolist()

    whole = drawn()
    monkeypatch.setattr("sfumato.labels.response._BLOCK", 7)
    assert drawn() == whole


def test_numbers_are_reported_as_numbers():
    response = BinnedResponse.best(np.arange(5.0), np.full(5, 0.2), epsilon=3.0)
    reports = reports_of(response, LABELS, words_of(RandomSource.from_seed(0)))
    assert set(reports) <= set(response.outputs)


def test_the_statement_says_what_is_not_hidden():
    facts = label_facts(population=10, mechanism="randomised response")
    assert Assumption("label_only") in facts.assumptions
    with run(seed=1) as open_run:
        open_run.start("test")
        statement = open_run.finish({}, facts)
    told = " ".join(statement.assumptions)
    assert "model after every round" not in told
    assert "floating-point" not in told


@pytest.mark.parametrize(("epsilon", "cause"), [(0.5, "noise in the labels, of which 62%"), (8.0, "the learning rate")])
def test_a_model_no_better_than_a_constant_comes_with_the_likeliest_cause(epsilon, cause):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, 4)).astype(np.float32)
    data = examples_from_arrays(inputs, rng.integers(0, 2, 300))  # nothing to learn
    torch.manual_seed(0)
    plan = LPMST(epsilon=epsilon, stages=(1.0,), training={"epochs": 1}, seed=0)
    found = plan.fit(nn.Linear(4, 2), data.subset(range(200)), test=data.subset(range(200, 300)))
    assert cause in found.evaluation["trained"]["likely_cause"]


def test_outputs_that_are_not_finite_are_the_rates_fault_and_the_result_says_so():
    rng = np.random.default_rng(0)
    data = examples_from_arrays(rng.normal(size=(300, 4)).astype(np.float32), rng.integers(0, 2, 300))
    broken = nn.Linear(4, 2)
    with torch.no_grad():
        broken.weight.fill_(float("inf"))
    plan = LPMST(epsilon=0.5, stages=(1.0,), training={"epochs": 1, "learning_rate": 1e-9}, seed=0)
    found = plan.fit(broken, data.subset(range(200)), test=data.subset(range(200, 300)))
    assert found.evaluation["trained"]["not_finite"] == 100
    assert "the learning rate" in found.trouble
    assert "noise in the labels" not in found.trouble


def test_features_that_are_not_finite_are_refused():
    data = examples_from_arrays(np.zeros((20, 4), np.float32), np.arange(20) % 2)
    features = np.full((20, 2), 1.0, np.float32)
    features[7, 1] = np.nan
    with pytest.raises(InputError, match="features"):
        LPMST(epsilon=1.0, clusters=2, seed=0).fit(nn.Linear(4, 2), data, features=features)
