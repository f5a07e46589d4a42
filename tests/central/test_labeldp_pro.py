"""LabelDP-Pro: what one label can move, what it costs, and that the projection knows no label."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from torch import nn
from torch.autograd.function import once_differentiable

from sfumato import data, models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD, LabelDPPro, squared_error
from sfumato.cli.main import main
from sfumato.sampling import Cohort
from slow import one_in, slow_but

ROWS, FEATURES, CLASSES = 30, 6, 3
SOURCE = RandomSource.from_seed(1)
EVERYBODY = Cohort.of_single_units(np.arange(ROWS))


def records(labels=None, *, rows=ROWS, inputs=None) -> data.ExampleDataset:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, FEATURES)).astype(np.float32) if inputs is None else inputs
    return data.examples_from_arrays(
        inputs, np.arange(rows) % CLASSES if labels is None else labels, num_classes=CLASSES
    )


def network(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, CLASSES))


def plan(**fields) -> LabelDPPro:
    chosen = {"projection": "hull", "averaging": 0.9, "steps": 3, "batch_size": 10, "public_batch": 12}
    return LabelDPPro(**{**chosen, "noise_multiplier": 1.0, "seed": 3, **fields})


def contribution(chosen, given, model=None):
    return chosen.contribution(model or network(), given, "cpu", 0)


def clipped_sum(made, chosen, cohort=EVERYBODY) -> torch.Tensor:
    theta, bound = made.trained.initial.clone(), chosen.bound
    return made.clipped_sum(theta, cohort, 0, bound, bound.start, SOURCE, None).total.clone()


def after_noise(made, chosen, mean, *, round=0, cohort=EVERYBODY) -> torch.Tensor:
    clipped_sum(made, chosen, cohort)
    mean = mean.clone()
    made.after_noise(mean, round, SOURCE)
    return mean


def noise_for(made, size: float = 0.1) -> torch.Tensor:
    shape = made.trained.vector.shape
    return size * torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.mark.parametrize("clip_norm", [0.05, 5.0])
def test_a_label_moves_the_sum_by_at_most_the_recorded_sensitivity(clip_norm):
    """Every row and every pair of labels; the inputs are such that the bound is nearly reached, so half of it, which
    adding or removing would have, is too little."""
    chosen = plan(clip_norm=clip_norm)
    inputs = np.random.default_rng(1).normal(size=(ROWS, FEATURES)).astype(np.float32) * 30
    sensitivity = chosen.private_sum(ROWS).record(0, clip_norm)["sensitivity"]
    moved = 0.0
    for row in range(3):
        sums = []
        for label in range(CLASSES):
            labels = np.arange(ROWS) % CLASSES
            labels[row] = label
            sums.append(clipped_sum(contribution(chosen, records(labels, inputs=inputs)), chosen))
        moved = max(moved, *(float((a - b).norm()) for a, b in itertools.combinations(sums, 2)))
    assert sensitivity == 2 * clip_norm
    assert 0.51 * sensitivity < moved <= sensitivity


@pytest.mark.parametrize(("rate", "z"), slow_but([(0.1, 2.0), (0.5, 3.0), (1.0, 8.0)], (0.5, 3.0)))
def test_the_stated_epsilon_is_that_of_the_mixture_by_integration(rate, z):
    """δ(ε) = ∫ max(0, P − e^ε Q) for P = (1−q)·N(0, z²) + q·N(1, z²) and Q = (1−q)·N(0, z²) + q·N(−1, z²)."""
    delta = 1e-3
    result = plan(steps=1, batch_size=round(rate * ROWS), noise_multiplier=z, delta=delta).fit(network(), records())

    def delta_at(epsilon: float) -> float:
        def excess(u: float) -> float:
            upper = (1 - rate) * stats.norm.pdf(u, 0, z) + rate * stats.norm.pdf(u, 1, z)
            lower = (1 - rate) * stats.norm.pdf(u, 0, z) + rate * stats.norm.pdf(u, -1, z)
            return max(0.0, upper - math.exp(epsilon) * lower)

        return integrate.quad(excess, -12 * z, 12 * z, limit=500, epsabs=1e-10)[0]

    expected = optimize.brentq(lambda epsilon: delta_at(epsilon) - delta, 1e-6, 20)
    assert result.statement.epsilon == pytest.approx(expected, rel=2e-3)
    assert (result.statement.unit, result.statement.adjacency) == ("label", "replace")
    if rate < 1:  # another adjacency costs less, and is not stated
        assert (
            DPSGD(steps=1, batch_size=round(rate * ROWS), noise_multiplier=z, delta=delta, seed=3)
            .fit(network(), records())
            .statement.epsilon
            < 0.9 * expected
        )


def test_calibration_meets_the_budget_for_replaced_labels():
    private = plan(noise_multiplier=None).calibrate(epsilon=0.4, delta=1e-3, population=ROWS)
    assert private.fit(network(), records()).statement.epsilon == pytest.approx(0.4, rel=1e-4)
    added = DPSGD(steps=3, batch_size=10).calibrate(epsilon=0.4, delta=1e-3, population=ROWS)
    assert private.noise_multiplier > 1.5 * added.noise_multiplier


@pytest.mark.parametrize(("projection", "micro_batch"), one_in(2, ["span", "hull"], [5, 64]))
def test_what_follows_the_noise_reads_no_label(projection, micro_batch):
    """Bit for bit the same from the same noisy mean, whatever the labels are, and whoever was drawn."""
    chosen = plan(micro_batch=micro_batch, projection=projection, projection_steps=5)
    first = contribution(chosen, records(), network(0.3))
    noisy = noise_for(first)
    expected = after_noise(first, chosen, noisy)
    assert (expected - noisy).norm() > 0.5 * noisy.norm()
    other = contribution(chosen, records((np.arange(ROWS) + 1) % CLASSES), network(0.3))
    assert torch.equal(after_noise(other, chosen, noisy), expected)
    for units in ([], [0], [3, 4, 5]):
        some = Cohort.of_single_units(np.array(units, np.int64))
        again = contribution(chosen, records(), network(0.3))
        assert torch.equal(after_noise(again, chosen, noisy, cohort=some), expected)


def test_the_public_batch_tells_nothing_of_the_private_one():
    """Rows that are in one are in the other as often as others: two-sided at a level of 1e-6, the seed is fixed."""
    rounds, rows, public = 400, 50, 20
    chosen = plan(batch_size=15)
    sampler, both, drawn = chosen.sampler(rows), 0, 0
    made = contribution(dataclasses.replace(chosen, public_batch=public, projection_steps=1), records(rows=rows))
    seen: list[np.ndarray] = []
    made._weighed = lambda places, seed: seen.append(places) or _nothing(places)  # type: ignore[method-assign]
    for round in range(rounds):
        private = sampler.draw(rows, round, SOURCE)
        after_noise(made, chosen, noise_for(made), round=round, cohort=Cohort.of_single_units(private))
        places = np.concatenate(seen)
        seen.clear()
        assert len(np.unique(places)) == public
        both, drawn = both + len(np.intersect1d(private, places)), drawn + len(private)
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], drawn, public / rows)
    assert low <= both <= high


def _nothing(places):
    from sfumato.central.labeldp_pro import _Block

    return _Block(places[:0], 0, torch.zeros(0))


def test_the_projection_takes_most_of_the_noise_and_little_of_the_gradient():
    """All rows span the hull, and all take part: what is left is nearer to the gradient than what was released."""
    chosen = plan(public_batch=ROWS, averaging=0.0, projection_steps=200, clip_norm=0.5)
    made = contribution(chosen, records())
    mean = clipped_sum(made, chosen) / ROWS
    noise = noise_for(made, 0.05)
    assert (after_noise(made, chosen, mean + noise) - mean).norm() < 0.5 * noise.norm()
    assert (after_noise(made, chosen, mean) - mean).norm() < 0.05 * mean.norm()  # it lies in the hull


def test_noisy_means_are_averaged_before_the_projection():
    chosen = plan(public_batch=0, averaging=0.5)
    made = contribution(chosen, records())
    first, second = noise_for(made), 3 * noise_for(made)
    torch.testing.assert_close(after_noise(made, chosen, first), first)
    torch.testing.assert_close(after_noise(made, chosen, second, round=1), (first + 2 * second) / 3)


@pytest.mark.parametrize("projection", ["span", "hull"])
def test_rows_whose_inputs_are_not_finite_are_left_out(projection):
    inputs = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
    inputs[::2] = np.nan
    chosen = plan(public_batch=ROWS, projection=projection)
    made = contribution(chosen, records(inputs=inputs))
    noisy = noise_for(made)
    assert torch.isfinite(after_noise(made, chosen, noisy)).all()
    single = contribution(plan(public_batch=1, averaging=0.0, projection=projection), records(inputs=inputs))
    left = [torch.equal(after_noise(single, chosen, noisy, round=round), noisy) for round in range(20)]
    assert 4 <= sum(left) <= 16  # where the only row is left out, nothing is known of the hull; 0.3 % false alarms


def test_statistics_of_public_batch_norm_get_their_gradient_after_the_projection():
    public = torch.randn(20, FEATURES, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(FEATURES, 4), models.PublicBatchNorm(4), nn.Linear(4, CLASSES))
    models.use_public_batch(model, public)
    result = plan().fit(model, records())
    assert all(torch.isfinite(value).all() for value in result.model.state_dict().values())


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"task": "regression"}, "task=regression has no classes"),
        ({"task": "own"}, "task=own has no classes"),
        ({"sampling": "shuffled"}, "sampling=shuffled is not known for a label that is replaced"),
        ({"sampling": "min_separation"}, "use sampling=poisson, or fixed"),
        ({"noise": "tree", "tree_restart": 2}, "noise=tree"),
        ({"public_batch": -1}, "public_batch must be"),
        ({"projection_steps": 0}, "projection_steps must be"),
        ({"projection_tolerance": 0.0}, "projection_tolerance must be"),
        ({"averaging": 1.0}, "averaging must be"),
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_is_refused_in_one_line(fields, told):
    with pytest.raises(InputError, match=told) as refused:
        plan(**fields).private_sum(ROWS)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("epsilon", [0.0, math.inf, math.nan])
def test_a_budget_that_is_none_is_refused(epsilon):
    with pytest.raises(InputError, match="epsilon must be"):
        plan(noise_multiplier=None).calibrate(epsilon=epsilon, population=ROWS)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):
        return gradients[0].clone()


class _OnceOnly(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 4), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.last(_Once.apply(self.first(x)))


def test_a_model_whose_backward_pass_has_no_derivative_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(InputError, match="derivative of the model's backward pass"):
        plan().fit(_OnceOnly(), records(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    plan(public_batch=0, steps=1).fit(_OnceOnly(), records())


def test_another_loss_and_a_loop_of_ones_own_are_refused():
    with pytest.raises(InputError, match="cross entropy only"):
        plan().fit(network(), records(), loss=squared_error)
    with pytest.raises(InputError, match="cross entropy only"):
        plan().open(network(), torch.optim.SGD(network().parameters(), 0.1), records())


def test_the_command_trains_and_says_what_a_label_costs(tmp_path, capsys):
    pictures = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "digits.npz", x=pictures, y=np.arange(40) % 4)
    words = [
        "labeldp",
        "pro",
        "--data",
        tmp_path / "digits.npz",
        "--model",
        "lenet300_100",
        "--public-classes",
        "--epsilon",
        0.5,
    ]
    words += ["--steps", 2, "--batch-size", 8, "--out", tmp_path / "run", "--delta", 1e-3]
    assert main([str(word) for word in words]) == 0
    told = capsys.readouterr().out
    assert "label" in told
    stated = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert (stated["unit"], stated["adjacency"]) == ("label", "replace")
    assert stated["epsilon"] == pytest.approx(0.5, rel=1e-3)
    assert "inputs_public" in [line.get("id") for line in stated["assumptions"]]
    assert (tmp_path / "run" / "report.html").exists()


def test_the_command_refuses_a_sampling_of_which_nothing_is_known(capsys):
    assert main(["labeldp", "pro", "--data", "glyphs", "--epsilon", "1", "--sampling", "cyclic", "--dry-run"]) == 2
    assert "sampling=cyclic is not known" in capsys.readouterr().err
