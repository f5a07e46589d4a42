"""Training on numbers, counts and losses of one's own: the same bound, measures of their kind, refusals in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln
from scipy.stats import poisson
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD, Counts, CustomLoss, Regression, poisson_loss, squared_error
from sfumato.data import ExampleDataset, examples_from_arrays
from sfumato.training import RoundContext
from slow import by_profile

COUNT, WIDTH = 7, 3


def linear(outputs: int = 1, *, seed: int = 0) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(WIDTH, outputs)


def numbers(count: int = 60, *, outputs: int = 0, seed: int = 0) -> ExampleDataset:
    """A number of each example, or several, that follow from its inputs."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, WIDTH)).astype(np.float32)
    slopes = rng.normal(size=(WIDTH, outputs or 1))
    targets = inputs @ slopes + 0.1 * rng.normal(size=(count, outputs or 1))
    return examples_from_arrays(inputs, targets if outputs else targets[:, 0])


def wild(seed: int, target: float, scale: float, outputs: int, task: str) -> ExampleDataset:
    """The last example can have any target, and inputs of any size."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(COUNT, WIDTH)).astype(np.float32)
    inputs[-1] *= scale
    targets = rng.poisson(2.0, (COUNT, outputs)).astype(np.float32)
    targets[-1] = abs(target) if task == "counts" else target
    return ExampleDataset(inputs=(inputs,), targets=targets if outputs > 1 else targets[:, 0])


@pytest.mark.parametrize("task", ["regression", "counts"])
@settings(deadline=None, max_examples=by_profile(40))
@given(
    seed=st.integers(0, 10**6),
    target=st.sampled_from([0.0, -3.0, 1e6, 1e15, 1e19, -1e30, 1e30]),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e20, float("inf"), float("nan")]),
    outputs=st.sampled_from([1, 2]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    clipping=st.sampled_from(["flat", "per_layer", "automatic"]),
    micro=st.sampled_from([1, 3, 16]),
)
def test_one_example_moves_the_sum_by_at_most_the_sensitivity_whatever_its_target(
    task, seed, target, scale, outputs, clip, clipping, micro
) -> None:
    """Inputs of NaN make outputs of NaN; a gradient that is not finite counts as zero."""
    plan = DPSGD(
        task=task,
        steps=1,
        cohort=4,
        clipping={"norm": clip, "kind": clipping},
        noise=1.0,
        examples={"micro_batch": micro},
    )
    source = RandomSource.from_seed(0)
    contribution = plan.contribution(linear(outputs, seed=1), wild(seed, target, scale, outputs, task), "cpu", 0)
    totals, odd = [], []
    for units in (np.arange(COUNT), np.arange(COUNT - 1)):
        cohort = plan.cohort.grouping.group(units, 0, source)
        share = contribution.clipped_sum(
            RoundContext(contribution.trained.initial, cohort, 0, plan.clipping, clip, source)
        )
        totals.append(share.total.clone())
        odd.append(share.tally["non_finite"])
    private_sum = plan.private_sum(COUNT)
    sensitivity = private_sum.relative_sensitivity * private_sum.scale(clip)
    moved = (totals[0] - totals[1]).norm().item()
    assert moved <= sensitivity + COUNT * clip * 2.0**-20  # single precision within a micro-batch
    assert torch.isfinite(totals[0]).all()
    if not np.isfinite(scale):
        assert odd == [1, 0]
        assert moved <= COUNT * clip * 2.0**-20


@settings(deadline=None, max_examples=by_profile(50))
@given(st.lists(st.tuples(st.floats(-6, 6), st.integers(0, 60)), min_size=1, max_size=20))
def test_the_poisson_loss_is_scipys_negative_log_likelihood_without_its_constant(pairs) -> None:
    logs, counts = (np.array(column, float) for column in zip(*pairs))
    found = poisson_loss(torch.from_numpy(logs)[:, None], torch.from_numpy(counts.astype(np.int64)))
    np.testing.assert_allclose(found, -poisson.logpmf(counts, np.exp(logs)) - gammaln(counts + 1), rtol=1e-9, atol=1e-9)


def test_losses_of_several_numbers_are_the_means_of_theirs() -> None:
    outputs, targets = torch.randn(4, 3, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64)
    for loss in (squared_error, poisson_loss):
        each = [loss(outputs[:, i], targets[:, i]) for i in range(3)]
        torch.testing.assert_close(loss(outputs, targets), torch.stack(each).mean(dim=0))


@pytest.mark.parametrize("outputs", [0, 2])
def test_without_clipping_and_noise_it_is_gradient_descent_on_least_squares(outputs: int) -> None:
    """θ_T = θ* + (I − ηH)^T (θ_0 − θ*), with H = 2 XᵀX / (n k) of the inputs beside a one."""
    data, steps, rate, model = numbers(outputs=outputs), 12, 0.1, linear(outputs or 1)
    plan = DPSGD(
        task="regression",
        steps=steps,
        cohort=len(data),
        server={"learning_rate": rate},
        noise=0,
        clipping=None,
        seed=1,
    )
    result = plan.fit(model, data)
    wide = np.c_[np.asarray(data.inputs[0], float), np.ones(len(data))]
    targets = np.asarray(data.targets, float).reshape(len(data), -1)
    best = np.linalg.lstsq(wide, targets, rcond=None)[0]
    hessian = 2 * wide.T @ wide / (len(data) * targets.shape[1])
    start = np.r_[model.weight.detach().numpy().T, model.bias.detach().numpy()[None]]
    expected = best + np.linalg.matrix_power(np.eye(WIDTH + 1) - rate * hessian, steps) @ (start - best)
    found = np.r_[result.model.weight.detach().numpy().T, result.model.bias.detach().numpy()[None]]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert np.abs(found - start).max() > 0.1


def test_regression_learns_and_its_measures_are_in_the_files(tmp_path: Path) -> None:
    plan = DPSGD(task="regression", steps=60, cohort=100, server={"learning_rate": 0.3}, noise=1.0, seed=1)
    whole = numbers(450)
    data, test = whole.subset(np.arange(400)), whole.subset(np.arange(400, 450))
    result = plan.fit(linear(), data, test=test, validation=test, out=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    outputs = result.model(torch.from_numpy(test.examples(range(len(test)))[0][0])).detach().numpy()[:, 0]
    rmse = float(np.sqrt(np.mean((outputs - np.asarray(test.targets)) ** 2)))
    assert kept["trained"]["rmse"] == pytest.approx(rmse, rel=1e-6)
    assert kept["trained"]["r2"] > 0.9 > kept["untrained"]["r2"]
    assert set(kept["trained"]) == {"rmse", "mae", "r2", "not_finite", "baselines"}
    constant = kept["trained"]["baselines"]["constant"]
    assert constant["rmse"] == pytest.approx(np.std(np.asarray(test.targets)), rel=1e-6)
    assert constant["gain"]["rmse"][0] == pytest.approx(constant["rmse"] - rmse, rel=1e-6)
    assert Regression().headline(kept["trained"]) == f"RMSE {rmse:.4g}"


@pytest.mark.slow
def test_counts_are_learned_beyond_the_constant_rate() -> None:
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(800, WIDTH)).astype(np.float32)
    counts = rng.poisson(np.exp(0.5 + inputs[:, 0]))
    data = examples_from_arrays(inputs, counts, classes=False)
    plan = DPSGD(task="counts", steps=80, cohort=200, server={"learning_rate": 0.3}, noise=1.0, seed=1)
    row = plan.fit(linear(), data.subset(range(600)), test=data.subset(range(600, 800))).evaluation["trained"]
    assert row["deviance_explained"] > 0.3
    assert row["mean_rate"] == pytest.approx(row["mean_count"], rel=0.3)


@pytest.mark.slow
def test_a_loss_of_ones_own_needs_no_targets_and_reads_any_output() -> None:
    """Each example is drawn to the same point: the mean squared distance from it is the loss, and falls."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.code = linear(2)

        def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.code(inputs), inputs

    def distance(outputs, targets) -> torch.Tensor:
        assert targets is None
        return (outputs[0] - outputs[1][:, :2]).square().mean(dim=1)

    data = examples_from_arrays(np.asarray(numbers(300).inputs[0]))
    for precision in ("float32", "bfloat16"):
        plan = DPSGD(
            task="own",
            steps=30,
            cohort=100,
            server={"learning_rate": 0.5},
            noise=0.5,
            seed=1,
            examples={"precision": precision},
        )
        result = plan.fit(Two(), data, loss=distance, test=data)
        assert result.evaluation["trained"]["loss"] < 0.2 * result.evaluation["untrained"]["loss"]
        assert "The loss was chosen without looking at the records." in result.statement.assumptions


def test_a_given_loss_takes_the_place_of_the_tasks_own() -> None:
    seen = []

    def absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(len(targets))
        return (outputs[:, 0] - targets).abs()

    plan = DPSGD(task="regression", steps=1, cohort=20, noise=0, clipping=None, seed=1)
    own = plan.fit(linear(), numbers(), loss=absolute)
    assert seen
    assert not torch.equal(own.model.weight, plan.fit(linear(), numbers()).model.weight)


@pytest.mark.parametrize("task", ["classes", "regression", "counts"])
def test_the_statement_says_what_is_taken_to_be_public_about_the_targets(task: str) -> None:
    inputs = np.asarray(numbers().inputs[0])
    data = examples_from_arrays(inputs, np.arange(60) % 2, classes=task == "classes", num_classes=None)
    plan = DPSGD(task=task, steps=1, cohort=20, noise=1.0, seed=1)  # type: ignore[arg-type]
    said = " ".join(plan.fit(linear(2 if task == "classes" else 1), data).statement.assumptions)
    assert ("The set of classes is public" in said) == (task == "classes")
    assert ("The range of the targets is not assumed" in said) == (task != "classes")


FLOATS, CLASSES = numbers(), examples_from_arrays(np.zeros((60, WIDTH)) + np.arange(60)[:, None], np.arange(60) % 2)
NONE = examples_from_arrays(np.asarray(FLOATS.inputs[0]))
NEGATIVE = examples_from_arrays(np.asarray(FLOATS.inputs[0]), np.where(np.arange(60) < 41, 2, -3), classes=False)
BROKEN = ExampleDataset(inputs=FLOATS.inputs, targets=np.where(np.arange(60) == 8, np.nan, 1).astype(np.float32))


@pytest.mark.parametrize(
    ("task", "data", "outputs", "message"),
    [
        ("classes", FLOATS, 2, r"task=classes needs class numbers as targets, got float32 \(60,\); .*task=regression"),
        ("classes", NONE, 2, r"needs class numbers as targets, got none; .* use task=own with a loss"),
        ("regression", NONE, 1, "task=regression needs numbers as targets, got none; use task=own"),
        ("regression", CLASSES, 1, "task=regression needs numbers as targets, got 2 classes; use task=classes"),
        ("counts", CLASSES, 1, "task=counts needs numbers as targets, got 2 classes"),
        ("counts", NEGATIVE, 1, "needs targets >= 0, got -3 in example 41; correct it, or use task=regression"),
        ("regression", BROKEN, 1, "must be finite in single precision, got nan in example 8"),
        ("regression", FLOATS, 3, r"outputs \(2, 3\) for 2 examples with targets \(2,\); build it with 1 output, or"),
        ("regression", numbers(outputs=3), 2, r"with targets \(2, 3\); build it with 3 outputs"),
        ("counts", numbers(outputs=3), 3, r"needs targets >= 0, got -\d"),
        ("own", FLOATS, 1, r"task=own needs a loss: .*fit\(model, data, loss=…\)"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line_before_the_first_step(
    tmp_path: Path, task: str, data: ExampleDataset, outputs: int, message: str
) -> None:
    plan = DPSGD(task=task, steps=1, cohort=20, noise=1.0, seed=1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message) as caught:
        plan.fit(linear(outputs), data, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_an_unknown_task_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="task must be one of classes, regression, counts, own, got ranks"):
        DPSGD(task="ranks")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a loss"):
        CustomLoss().measure(linear(), FLOATS, curve=False, device="cpu")
    with pytest.raises(InputError, match="no targets to measure against"):
        Counts().measure(linear(), NONE, curve=False, device="cpu")


def test_one_output_may_come_with_or_without_its_dimension() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = linear()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.part(inputs)[:, 0]

    plan = DPSGD(task="regression", steps=3, cohort=20, noise=0, clipping=None, seed=1)
    one, other = plan.fit(Flat(), FLOATS, test=FLOATS), plan.fit(linear(), FLOATS, test=FLOATS)
    torch.testing.assert_close(one.model.part.weight, other.model.weight)
    rows = [each.evaluation["trained"] for each in (one, other)]
    for row in rows:
        del row["baselines"]
    assert rows[0] == pytest.approx(rows[1])
