"""LabelDP-Pro: what one label can move, what it costs, and the projection onto what labels could have given."""

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
from torch.nn import functional

from sfumato import data, models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD, LabelDPPro, squared_error
from sfumato.central.projection import LabelGradients, nearest_in_span, nearest_mean
from sfumato.cli.main import main
from sfumato.clipping import Flat, PerLayer
from sfumato.sampling import Cohort
from sfumato.training import RoundContext
from slow import one_in, slow_but

# LabelDP-Pro: what one label can move, what it costs, and that the projection knows no label.

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
    chosen = {"projection": "hull", "averaging": 0.9, "steps": 3, "cohort.size": 10, "public_batch": 12}
    return LabelDPPro(**{**chosen, "noise.noise_multiplier": 1.0, "seed": 3, **fields})


def contribution(chosen, given, model=None):
    return chosen.contribution(model or network(), given, "cpu", 0)


def clipped_sum(made, chosen, cohort=EVERYBODY) -> torch.Tensor:
    theta, bound = made.trained.initial.clone(), chosen.clipping
    return made.clipped_sum(RoundContext(theta, cohort, 0, bound, bound.norm, SOURCE)).total.clone()


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
    chosen = plan(clipping=clip_norm)
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
    result = plan(**{"steps": 1, "cohort.size": round(rate * ROWS), "noise.noise_multiplier": z, "delta": delta}).fit(
        network(), records()
    )

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
            DPSGD(steps=1, cohort=round(rate * ROWS), noise=z, delta=delta, seed=3)
            .fit(network(), records())
            .statement.epsilon
            < 0.9 * expected
        )


def test_calibration_meets_the_budget_for_replaced_labels():
    private = plan(**{"noise.noise_multiplier": None}).calibrate(epsilon=0.4, delta=1e-3, population=ROWS)
    assert private.fit(network(), records()).statement.epsilon == pytest.approx(0.4, rel=1e-4)
    added = DPSGD(steps=3, cohort=10).calibrate(epsilon=0.4, delta=1e-3, population=ROWS)
    assert private.noise.noise_multiplier > 1.5 * added.noise.noise_multiplier


@pytest.mark.parametrize(("projection", "micro_batch"), one_in(2, ["span", "hull"], [5, 64]))
def test_what_follows_the_noise_reads_no_label(projection, micro_batch):
    """Bit for bit the same from the same noisy mean, whatever the labels are, and whoever was drawn."""
    chosen = plan(examples={"micro_batch": micro_batch}, projection=projection, projection_steps=5)
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


def test_the_public_batch_reports_nothing_of_the_private_one():
    """Rows that are in one are in the other as often as others: two-sided at a level of 1e-6, the seed is fixed."""
    rounds, rows, public = 400, 50, 20
    chosen = plan(**{"cohort.size": 15})
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
    from sfumato.central.projection import _Block

    return _Block(places[:0], 0, torch.zeros(0))


@pytest.mark.slow
def test_the_projection_takes_most_of_the_noise_and_little_of_the_gradient():
    """All rows span the hull, and all take part: what is left is nearer to the gradient than what was released."""
    chosen = plan(public_batch=ROWS, averaging=0.0, projection_steps=200, clipping=0.5)
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
        ({"cohort": "shuffled"}, "cohort=shuffled is not known for a label that is replaced"),
        ({"cohort": "min_separation"}, "use cohort=poisson, or fixed_size"),
        ({"noise": "tree", "noise.restart": 2}, "correlated noise needs a cohort that limits"),
        ({"public_batch": -1}, "public_batch must be"),
        ({"projection_steps": 0}, "projection_steps must be"),
        ({"projection_tolerance": 0.0}, "projection_tolerance must be"),
        ({"averaging": 1.0}, "averaging must be"),
        ({"tables": "deferred"}, "tables=deferred is for dpsgd"),
        ({"tables": "adafest"}, "tables=adafest is for dpsgd"),
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
        plan(**{"noise.noise_multiplier": None}).calibrate(epsilon=epsilon, population=ROWS)


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
    words += ["--steps", 2, "--cohort", 8, "--out", tmp_path / "run", "--delta", 1e-3]
    assert main([str(word) for word in words]) == 0
    told = capsys.readouterr().out
    assert "label" in told
    stated = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert (stated["unit"], stated["adjacency"]) == ("label", "replace")
    assert stated["epsilon"] == pytest.approx(0.5, rel=1e-3)
    assert "inputs_public" in [line.get("id") for line in stated["assumptions"]]
    assert (tmp_path / "run" / "report.html").exists()


def test_the_command_refuses_a_sampling_of_which_nothing_is_known(capsys):
    assert (
        main(["labeldp", "pro", "--data", "glyphs", "--epsilon", "1", "--cohort", "cyclic_poisson", "--dry-run"]) == 2
    )
    assert "--cohort cyclic_poisson is not known" in capsys.readouterr().err


# The projection onto what labels could have given, against all corners written out.

CORNERS, OUTPUTS, WIDTH = 3, 3, 4


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, OUTPUTS)).double()


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(CORNERS, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def written_out(model, inputs, bound=None, clip_norm=None) -> tuple[torch.Tensor, torch.Tensor, list[list[int]]]:
    """By autograd alone: clipped gradients [rows, classes, size], what clipping leaves of them, and the groups."""
    parameters = list(model.parameters())
    bound = bound or Flat(norm=None)
    groups = bound.groups([name for name, _ in model.named_parameters()])
    gradients, weights = [], []
    for row, label in itertools.product(range(len(inputs)), range(OUTPUTS)):
        loss = functional.cross_entropy(model(inputs[row : row + 1]), torch.tensor([label]))
        parts = torch.autograd.grad(loss, parameters)
        norms = torch.stack([torch.cat([parts[i].flatten() for i in group]).norm() for group in groups])
        weight = bound.weights(norms[:, None], clip_norm)[:, 0]
        scaled = list(parts)
        for group, factor in zip(groups, weight, strict=True):
            for i in group:
                scaled[i] = parts[i] * factor
        gradients.append(torch.cat([part.flatten() for part in scaled]))
        weights.append(weight)
    shape = (len(inputs), OUTPUTS)
    return torch.stack(gradients).view(*shape, -1), torch.stack(weights, 1).view(len(groups), *shape), groups


def maps_of(model, inputs, weights=None, groups=None) -> LabelGradients:
    parameters = list(model.parameters())
    weights = torch.ones(1, len(inputs), OUTPUTS) if weights is None else weights
    groups = [list(range(len(parameters)))] if groups is None else groups
    return LabelGradients(model(inputs)[None], parameters, groups, weights)


def flat(parts) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])


def like(vector, model) -> list[torch.Tensor]:
    sizes = [parameter.numel() for parameter in model.parameters()]
    return [part.view(p.shape) for part, p in zip(vector.split(sizes), model.parameters(), strict=True)]


def nearest_by_weights(corners: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The nearest point to a target among all mixtures of corners [n, size]: least squares with weights >= 0 that add
    up to 1, which a heavy extra row asks for."""
    heavy = 1e4
    matrix = np.vstack([corners.T, np.full(len(corners), heavy)])
    weights, _ = optimize.nnls(matrix, np.append(target, heavy), maxiter=10_000)
    return corners.T @ (weights / weights.sum())


@pytest.mark.parametrize("bound", [None, Flat(norm=0.3), PerLayer(norm=0.3, shares=None)])
def test_sums_and_slopes_are_those_of_gradients_that_were_written_out(bound, model, inputs):
    gradients, weights, groups = written_out(model, inputs, bound, 0.3 if bound else None)
    maps = maps_of(model, inputs, weights, groups)
    shares = torch.rand(CORNERS, OUTPUTS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(flat(maps.mixed(shares)), (shares[..., None] * gradients).sum((0, 1)))
    direction = torch.randn(gradients.shape[2], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    torch.testing.assert_close(maps.slopes(like(direction, model)), gradients @ direction)
    if bound is not None:
        assert (gradients.norm(dim=2) <= 0.3).all()
        assert gradients.norm(dim=2).max() > 0.29


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.01, 0.3, 10.0])
def test_the_nearest_mean_is_that_of_all_labellings_written_out(size, model, inputs):
    """All 27 ways to label three rows; a target within the hull or near it, and one far away."""
    gradients, weights, groups = written_out(model, inputs, Flat(norm=0.3), 0.3)
    labellings = itertools.product(range(OUTPUTS), repeat=CORNERS)
    corners = torch.stack([gradients[range(CORNERS), list(labels)].mean(0) for labels in labellings])
    noise = torch.randn(corners.shape[1], generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    target = corners.mean(0) + size * noise / noise.norm()
    expected = torch.from_numpy(nearest_by_weights(corners.numpy(), target.numpy()))

    def blocks():
        for row in range(CORNERS):
            yield maps_of(model, inputs[row : row + 1], weights[:, row : row + 1], groups)

    goal = like(target, model)
    far = (expected - target).norm()
    for steps in (1, 5, 2000):
        found = nearest_mean(goal, blocks, rows=CORNERS, steps=steps, tolerance=1e-9)
        distance = (flat(found.nearest) - expected).norm()
        assert distance <= found.error + 1e-5 * far  # the bound on the error holds, whenever the search ends
    assert distance < 0.02 * (target - expected).norm() + 1e-3


def test_the_search_ends_where_the_bound_on_its_error_is_small_enough(model, inputs):
    goal = [torch.ones_like(parameter) for parameter in model.parameters()]
    away = flat(goal).norm()
    for tolerance in (0.5, 0.05):
        found = nearest_mean(goal, lambda: iter([maps_of(model, inputs)]), rows=CORNERS, steps=500, tolerance=tolerance)
        assert found.error <= tolerance * away


def test_outputs_beyond_the_classes_are_no_label(model, inputs):
    """A model may have more logits than the data have classes: they take part in what it predicts only."""
    maps = LabelGradients(
        model(inputs)[None], list(model.parameters()), [list(range(4))], torch.ones(1, CORNERS, OUTPUTS - 1)
    )
    gradients, _, _ = written_out(model, inputs)
    shares = functional.one_hot(torch.tensor([0, 1, 1])).double()
    torch.testing.assert_close(flat(maps.mixed(shares)), gradients[range(CORNERS), [0, 1, 1]].sum(0))
    torch.testing.assert_close(maps.predicted.sum(1), torch.ones(CORNERS, dtype=torch.float64))


def test_copies_of_a_row_count_as_the_mean_of_their_losses(model, inputs):
    parameters = list(model.parameters())
    other = inputs + 0.5
    maps = LabelGradients(
        torch.stack([model(inputs), model(other)]), parameters, [[0, 1, 2, 3]], torch.ones(1, CORNERS, OUTPUTS)
    )
    labels = torch.tensor([2, 0, 1])
    losses = [functional.cross_entropy(model(each), labels, reduction="sum") for each in (inputs, other)]
    expected = flat(torch.autograd.grad(torch.stack(losses).mean(), parameters))
    shares = functional.one_hot(labels, OUTPUTS).double()
    torch.testing.assert_close(flat(maps.mixed(shares)), expected)
    torch.testing.assert_close((maps.slopes(like(expected, model)) * shares).sum(), expected @ expected)


def test_the_nearest_combination_is_that_of_least_squares_on_gradients_that_were_written_out(model, inputs):
    gradients, _, _ = written_out(model, inputs)
    corners = gradients.flatten(0, 1)  # [rows · classes, size]: nine vectors, of which some depend on others
    noise = torch.randn(corners.shape[1], generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    basis = torch.linalg.svd(corners.T, full_matrices=False)
    basis = basis.U[:, basis.S / basis.S[0] > 1e-9]
    assert basis.shape[1] < len(corners)

    def blocks():
        yield maps_of(model, inputs[:2])
        yield maps_of(model, inputs[2:])

    found = flat(nearest_in_span(like(noise, model), blocks, steps=100, tolerance=1e-10))
    torch.testing.assert_close(found, basis @ (basis.T @ noise), rtol=1e-6, atol=1e-6)
    early = flat(nearest_in_span(like(noise, model), blocks, steps=2, tolerance=1e-10))
    assert 0.1 < early.norm() / found.norm() < 1
    torch.testing.assert_close(basis @ (basis.T @ early), early)  # ended early, it lies in the span all the same
