"""DP-SGD: the paper's step within the stated sensitivity, whatever the data and the model."""

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from adversarial import specimens
from adversarial.specimens import Dense, as_data
from adversarial.specimens import numbers as coupled_numbers
from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD, Classification
from sfumato.central.examples import augmented
from sfumato.clipping import Adaptive, Automatic
from sfumato.data import ExampleDataset, examples_from_arrays, to_tensor
from sfumato.guard import due, recheck
from sfumato.sampling import Cohort
from sfumato.training import RoundContext, RunOptions
from slow import one_in, slow_but

# DP-SGD as a user runs it: the step is the paper's, and the odd cases are ordinary ones.

PLAN = DPSGD(steps=3, cohort=12, server={"learning_rate": 0.5}, noise=0.8, clipping=0.7, seed=3)


def vector(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).double() for p in model.parameters()])


def changed(data: ExampleDataset, place: int, value: object) -> ExampleDataset:
    inputs = to_tensor(np.asarray(data.inputs[0])).contiguous().numpy()
    inputs[place] = value
    return dataclasses.replace(data, inputs=(inputs,))


def by_hand(plan: DPSGD, model: nn.Module, data: ExampleDataset, step: int) -> torch.Tensor:
    """Abadi et al., algorithm 1, one example at a time: the mean of clipped gradients, noise added."""
    source = RandomSource.from_seed(plan.seed)
    private_sum = plan.private_sum(len(data))
    total = torch.zeros(vector(model).numel(), dtype=torch.float64)
    for place in private_sum.sampler.draw(len(data), step, source):
        (inputs,), label = data.examples([place])
        images = to_tensor(inputs)
        key = source.seed64("augmentation", step)
        copies = [
            augmented(images, np.array([place]), kind=plan.examples.augmentation, key=key, copy=copy)
            for copy in range(plan.examples.copies)
        ]
        loss = sum(functional.cross_entropy(model(each), torch.from_numpy(label)) for each in copies) / len(copies)
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))]).double()
        total += gradient * min(1.0, plan.clipping.norm / gradient.norm().item())
    noise = torch.from_numpy(source.stream("noise", step).normal(total.numel()))
    return (total + plan.noise.noise_multiplier * plan.clipping.norm * noise) / plan.cohort.size


@pytest.mark.parametrize("changes", [{}, {"examples.augmentation": "crop_flip", "examples.copies": 3}], ids=str)
def test_a_step_is_the_one_of_the_paper(network, pictures, changes):
    plan = dataclasses.replace(PLAN, **changes)
    data, model = pictures(50), network()
    trained = plan.fit(model, data).model
    expected = network()
    for step in range(3):
        update = by_hand(plan, expected, data, step).float()
        nn.utils.vector_to_parameters(
            nn.utils.parameters_to_vector(expected.parameters()) - 0.5 * update, expected.parameters()
        )
    torch.testing.assert_close(vector(trained), vector(expected), atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize(
    ("clipping", "micro"),
    slow_but(
        itertools.product(["flat", "per_layer", "automatic"], [1, 2, 5, 64]),
        ("flat", 2), ("per_layer", 5), ("automatic", 64),
    ),
)  # fmt: skip
def test_a_batch_in_pieces_is_the_batch_and_noise_is_drawn_once(network, pictures, micro, clipping):
    plan = PLAN.replace(clipping=clipping, examples={"augmentation": "flip", "copies": 2})
    data = pictures(60)
    whole = plan.replace(examples={"micro_batch": 60}).fit(network(), data)
    parts = plan.replace(examples={"micro_batch": micro}).fit(network(), data)
    torch.testing.assert_close(vector(parts.model), vector(whole.model), atol=1e-5, rtol=1e-4)
    for one, other in zip(whole.history, parts.history, strict=True):
        assert one["not_private"]["units"] == other["not_private"]["units"]


@pytest.mark.parametrize(("value", "place"), one_in(2, [float("nan"), float("inf"), 1e38], [0, 7]))
def test_an_example_that_is_not_finite_counts_as_zero_and_is_counted(network, pictures, value, place):
    if place == 0 and value == 1e38:
        pytest.skip("the self-check meets it, and refuses")
    data = changed(pictures(30), place, value)
    full = PLAN.replace(cohort=30, steps=1, noise=0.0)
    result = full.fit(network(), data)
    assert result.history[0]["not_private"]["non_finite"] == 1
    assert result.history[0]["not_private"]["loss"] is not None
    without = dataclasses.replace(full, population=30).fit(network(), data.subset([i for i in range(30) if i != place]))
    torch.testing.assert_close(vector(result.model), vector(without.model), atol=1e-6, rtol=1e-5)


def test_memory_that_runs_out_makes_smaller_pieces_and_the_same_result(network, pictures):
    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > limit:
                raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
            return self.inner(x)

    limit = 5
    data = pictures(60)
    plan = PLAN.replace(examples={"micro_batch": 40})
    with pytest.warns(UserWarning, match="memory ran out with .* going on with"):
        result = plan.fit(Greedy(), data)
    torch.testing.assert_close(vector(result.model), vector(plan.fit(network(), data).model), atol=1e-5, rtol=1e-4)
    contribution = plan.contribution(Greedy(), data, "cpu", 0)
    source = RandomSource.from_seed(0)
    groups = plan.cohort.grouping.group(np.arange(60), 0, source)
    limit = 0
    with pytest.warns(UserWarning, match="ran out"), pytest.raises(InputError, match="with a single example in a step"):
        contribution.clipped_sum(RoundContext(contribution.trained.initial, groups, 0, plan.clipping, 1.0, source))


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)), "GroupNorm"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3), Coupled()), "examples of a batch are coupled"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), "3 classes but the model gives 2 logits"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(60, 3)), "fails on inputs of shape"),
        (lambda: nn.Conv2d(1, 3, 3), "must give logits"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).requires_grad_(False), "no parameter"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_in_one_line_before_the_first_step(pictures, tmp_path, build, named):
    with pytest.raises(InputError, match=named) as told:
        PLAN.fit(build(), pictures(20), out=tmp_path / "run")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


class Coupled(nn.Module):
    """Attention over the batch, as a user may write it by mistake."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.T, dim=1) @ x


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"steps": 3, "epochs": 2.0}, "not both"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"epochs": -1.0, "steps": None}, "epochs must be > 0"),
        ({"cohort.size": 0}, "size must be"),
        ({"examples.micro_batch": 0}, "micro_batch must be"),
        ({"server.learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"server.name": "lion"}, "optimizer must be one of"),
        ({"server.nesterov": True}, "nesterov needs"),
        ({"clipping": "soft"}, "clipping must be one of"),
        ({"clipping.norm": None, "noise.noise_multiplier": 0.0, "clipping": "automatic"}, "needs a norm"),
        ({"clipping.norm": None}, "needs clipping; give a norm"),
        ({"clipping.quantile": 0.9}, "quantile is for clipping=adaptive"),
        ({"clipping.adapted_rounds": 5, "clipping": "automatic"}, "adapted_rounds is for clipping=adaptive"),
        ({"clipping.gamma": 0.1}, "gamma is for clipping=automatic"),
        ({"clipping.gamma": Automatic(norm=1.0).gamma}, "gamma is for clipping=automatic"),
        ({"clipping.quantile": Adaptive().quantile}, "quantile is for clipping=adaptive"),
        ({"clipping.learning_rate": Adaptive().learning_rate}, "learning_rate is for clipping=adaptive"),
        ({"examples.copies": 4}, "choose an augmentation"),
        ({"server.ema_decay": 1.0}, "ema_decay"),
        ({"server.warm_up": -1}, "warm_up"),
    ],
    ids=str,
)
def test_a_plan_that_makes_no_sense_is_refused_in_one_line(changes, named):
    with pytest.raises(InputError, match=named) as told:
        dataclasses.replace(PLAN, **changes)
    assert "\n" not in str(told.value)


def test_data_that_cannot_be_trained_on_are_refused(network, pictures):
    with pytest.raises(InputError, match=r"lower cohort\.size to 20"):
        PLAN.replace(cohort=100).fit(network(), pictures(20))
    with pytest.raises(InputError, match="has 1 examples"):
        PLAN.fit(network(), pictures(1))
    with pytest.raises(InputError, match=r"labels must be in 0 … 1, got 2 in example \d+"):
        PLAN.fit(network(), dataclasses.replace(pictures(20), num_classes=2))
    numbers = ExampleDataset(inputs=(np.ones((20, 4), np.float32),), targets=np.zeros(20, int), num_classes=1)
    with pytest.raises(InputError, match="augmentation flip is for pictures"):
        PLAN.replace(examples={"augmentation": "flip"}).fit(nn.Linear(4, 1), numbers)


def test_whole_numbers_go_into_embeddings_and_two_inputs_into_two_arguments():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(9, 4), nn.Linear(6, 2)

        def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return self.out(torch.cat([numbers, self.table(ids).sum(dim=1)], dim=1))

    rng = np.random.default_rng(0)
    inputs = (rng.normal(size=(40, 2)).astype(np.float32), rng.integers(0, 9, (40, 3)))
    data = ExampleDataset(inputs=inputs, targets=rng.integers(0, 2, 40), num_classes=2)
    result = PLAN.fit(Both(), data, test=data)
    assert 0 <= result.evaluation["trained"]["accuracy"] <= 1
    outside = dataclasses.replace(data, inputs=(inputs[0], inputs[1] + (np.arange(40) > 30)[:, None] * 9))
    with pytest.raises(InputError, match="an id that the model has no row for"):
        PLAN.replace(cohort=40).fit(Both(), outside)


def test_a_parameter_that_nothing_uses_is_reported_and_gets_noise(network, pictures):
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.spare = network(), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    model = Spare()
    with pytest.warns(UserWarning, match=r"2 trained parameters have no gradient .*spare.* freeze them"):
        result = PLAN.fit(model, pictures(40))
    assert not torch.equal(result.model.spare.weight, model.spare.weight)


def test_frozen_parameters_stay_and_get_no_noise(network, pictures):
    model = network()
    result = dataclasses.replace(PLAN, trainable="last").fit(model, pictures(40))
    before, after = model.state_dict(), result.model.state_dict()
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["4.weight", "4.bias"]
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_moving_average_is_what_is_released_and_costs_nothing(network, pictures, tmp_path):
    data = pictures(40)
    plain = [dataclasses.replace(PLAN, steps=n).fit(network(), data).model for n in (1, 2, 3)]
    average = PLAN.replace(server={"ema_decay": 0.15}).fit(network(), data, out=tmp_path / "run")
    expected = vector(network())
    for step, model in enumerate(plain):
        decay = min(0.15, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * vector(model)
    torch.testing.assert_close(vector(average.model), expected, atol=1e-6, rtol=1e-5)
    released = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(released[name], value) for name, value in average.model.state_dict().items())
    assert average.statement.epsilon == PLAN.fit(network(), data).statement.epsilon


def test_the_cosine_schedule_ends_at_nothing(network, pictures):
    data = pictures(40)
    cosine = PLAN.replace(server={"schedule": "cosine", "warm_up": 1}, steps=4)
    rates = [cosine.server.rate_schedule(4).factor(step) for step in range(4)]
    assert rates == pytest.approx([1.0, 1.0, 0.75, 0.25])
    one = dataclasses.replace(PLAN, steps=1)
    first = one.fit(network(), data).model
    warm = one.replace(server={"warm_up": 2}).fit(network(), data).model
    start = vector(network())
    torch.testing.assert_close(vector(warm) - start, (vector(first) - start) / 2, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("sampling", ["shuffled", "min_separation"])
def test_an_epoch_of_whole_batches_is_one_participation(sampling: str):
    plan = DPSGD(cohort={"size": 50, "kind": sampling}, noise={"kind": "tree", "noise_multiplier": 1.0})  # pyright: ignore[reportArgumentType]
    for epochs in (1, 5):
        private_sum = dataclasses.replace(plan, epochs=epochs).private_sum(630)
        assert private_sum.rounds == 12 * epochs
        assert f"each unit in at most {epochs} round" in private_sum.sampler.describe()


def test_epochs_are_steps_for_the_public_population():
    plan = DPSGD(epochs=3, cohort=64, noise=1.0)
    assert plan.rounds_for(1000) == 47
    assert plan.for_population(1000).steps == 47
    calibrated = plan.calibrate(epsilon=2.0, delta=1e-5, population=1000)
    assert calibrated.private_sum(1000).rounds == 47
    # Independent of ours: the noise that dp-accounting's PLD gives for these steps.
    from dp_accounting import dp_event, pld

    accountant = pld.PLDAccountant()
    step = dp_event.PoissonSampledDpEvent(0.064, dp_event.GaussianDpEvent(calibrated.noise.noise_multiplier))
    accountant.compose(dp_event.SelfComposedDpEvent(step, 47))
    assert accountant.get_epsilon(1e-5) == pytest.approx(2.0, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("clipping", ["flat", "automatic", "per_layer", "adaptive"])
def test_private_training_learns(network, pictures, clipping):
    plan = DPSGD(steps=60, cohort=100, clipping=clipping, server={"learning_rate": 0.3}, seed=1)
    plan = plan.calibrate(epsilon=4.0, delta=1e-4, population=500)
    data = pictures(700)
    result = plan.fit(network(), data.subset(range(500)), test=data.subset(range(500, 700)))
    assert result.evaluation["trained"]["accuracy"] > 0.9
    assert (result.statement.unit, result.statement.adjacency) == ("example", "add_remove")
    assert 3.98 < result.statement.epsilon <= 4.0


def test_a_loss_of_ones_own(network, pictures):
    def squared(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (logits - functional.one_hot(labels, 3)).square().sum(dim=1)

    data = pictures(40)
    own = PLAN.fit(network(), data, loss=squared)
    assert not torch.equal(vector(own.model), vector(PLAN.fit(network(), data).model))
    with pytest.raises(InputError, match="reduction='none'"):
        PLAN.fit(network(), data, loss=lambda logits, labels: functional.cross_entropy(logits, labels))


@pytest.mark.fresh
def test_what_reading_took_to_be_public_is_in_the_statement(network, pictures, tmp_path):
    data = dataclasses.replace(pictures(40), assumptions=("The vocabulary is public.",))
    result = PLAN.fit(network(), data, out=tmp_path / "run", test=data)
    assert result.statement.assumptions[-1] == "The vocabulary is public."
    told = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert (told["examples"], told["classes"]) == (40, 3)
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["plan"] == "dpsgd"


@pytest.mark.slow
def test_a_large_logical_batch_takes_the_memory_of_a_small_one(network, pictures):
    """What is alive at the end of a micro-batch does not depend on how many came before."""
    contribution = PLAN.replace(examples={"micro_batch": 16}).contribution(network(), pictures(30), "cpu", 0)
    alive: list[int] = []
    inner = contribution._recorded

    def watched(*arguments):
        import gc

        result = inner(*arguments)
        gc.collect()
        alive.append(sum(t.numel() for t in gc.get_objects() if type(t) is torch.Tensor))
        return result

    contribution._recorded = watched
    groups, source = Cohort.of_single_units(np.tile(np.arange(30), 4)), RandomSource.from_seed(0)
    step = next(step for step in range(1, 100) if not due(step, 100, source))
    contribution.clipped_sum(RoundContext(contribution.trained.initial, groups, step, PLAN.clipping, 1.0, source))
    assert len(alive) == 8
    assert max(alive[1:]) - min(alive[1:-1]) < 200


def test_batches_of_a_fixed_size_are_stated_for_an_exchanged_example(network, pictures):
    plan = PLAN.replace(cohort="fixed_size")
    result = plan.fit(network(), pictures(40))
    assert [row["not_private"]["units"] for row in result.history] == [12, 12, 12]
    assert (result.statement.unit, result.statement.adjacency) == ("example", "replace")
    assert plan.private_sum(40).relative_sensitivity == 2.0


# What one example moves, and two of one person; that one moves at most the sensitivity is asked in contract/.


def wild(seed: int, scale: float, count: int = 7) -> ExampleDataset:
    """The last example can hold anything."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (count, 3)).astype(np.float32)
    inputs[-1] *= scale
    return ExampleDataset(inputs=(inputs,), targets=rng.integers(0, 2, count), num_classes=2)


def scores(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))


def sums(plan: DPSGD, data: ExampleDataset, *cohorts: np.ndarray) -> list[torch.Tensor]:
    """The private sum of each cohort, before noise."""
    source = RandomSource.from_seed(0)
    contribution = plan.contribution(scores(1), data, "cpu", 0)
    totals = []
    for cohort in cohorts:
        groups = plan.cohort.grouping.group(cohort, 0, source)
        share = contribution.clipped_sum(
            RoundContext(contribution.trained.initial, groups, 0, plan.clipping, plan.clipping.norm, source)
        )
        totals.append(share.total)
    return totals


def test_two_examples_of_one_person_move_the_sum_by_more():
    """So the statement speaks of one example, and says so."""
    plan = DPSGD(steps=1, cohort=4, clipping=1e-3, noise=1.0)
    data = wild(3, 1.0)
    inputs = np.asarray(data.inputs[0]).copy()
    inputs[-2] = inputs[-1]
    labels = np.asarray(data.targets).copy()
    labels[-2] = labels[-1]
    twice = ExampleDataset(inputs=(inputs,), targets=labels, num_classes=2)
    whole, without = sums(plan, twice, np.arange(7), np.arange(5))
    assert (whole - without).norm().item() > 1.9e-3
    assert "one_example" in [line.id for line in plan.fit(scores(1), data).statement.sentences]


def test_augmentations_of_an_example_are_clipped_together():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 8, 8, 1), dtype=np.uint8)
    data = ExampleDataset(inputs=(pixels,), targets=np.array([0, 1, 1]), num_classes=2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    plan = DPSGD(steps=1, cohort=2, clipping=1e-3, examples={"augmentation": "crop_flip", "copies": 5}, noise=1.0)
    source = RandomSource.from_seed(0)
    contribution = plan.contribution(model, data, "cpu", 0)
    groups = plan.cohort.grouping.group(np.array([1]), 0, source)
    total = contribution.clipped_sum(
        RoundContext(contribution.trained.initial, groups, 0, plan.clipping, 1e-3, source)
    ).total
    assert total.norm().item() <= 1e-3


# DP-SGD with public batch norm: the whole gradient, the statistics of the released weights, no record read.

TWO_STEPS = DPSGD(steps=2, cohort=4, clipping=0.1, noise=1.0, seed=1)


def normalised_numbers(count: int, *shape: int, seed: int = 0) -> ExampleDataset:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (count, *shape)).astype(np.float32)
    return ExampleDataset(inputs=(inputs,), targets=rng.integers(0, 3, count), num_classes=3)


def normalised() -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), models.PublicBatchNorm(5), nn.Tanh(), nn.Linear(5, 3)).double()
    public = torch.randn(12, 6, dtype=torch.float64)
    models.use_public_batch(model, public)
    return model, public


class Doubled(nn.Module):
    """Public batch norm within a model of the user's."""

    def __init__(self, inner: nn.Sequential) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.inner(values.double()).float()


def test_a_step_with_public_batch_norm_follows_the_whole_gradient() -> None:
    """Through the statistics too: by differences of the loss, whose statistics follow the weights."""
    data = normalised_numbers(10, 6)
    inner, _ = normalised()
    plan = DPSGD(steps=1, cohort=10, server={"learning_rate": 1.0}, clipping=None, noise=0.0, seed=0)
    moved = plan.fit(Doubled(inner), data).model.get_parameter("inner.0.weight").detach()
    model, public = normalised()
    values, labels = torch.from_numpy(np.array(data.inputs[0])).double(), torch.from_numpy(np.array(data.targets))

    def loss() -> float:
        models.refresh_statistics(model, public)
        with torch.no_grad():
            return float(functional.cross_entropy(model(values), labels))

    weight = model.get_parameter("0.weight").detach()
    for place in ((0, 0), (2, 3), (4, 5)):
        slopes = []
        for step in (1e-5, -1e-5):
            weight[place] += step
            slopes.append(loss())
            weight[place] -= step
        slope = (slopes[0] - slopes[1]) / 2e-5
        assert float(weight[place] - moved[place]) == pytest.approx(slope, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_released_statistics_are_those_of_the_released_weights(ema: float | None, tmp_path) -> None:
    model, public = normalised()
    plan = TWO_STEPS.replace(server={"ema_decay": ema, "learning_rate": 2.0})
    plan.fit(Doubled(model), normalised_numbers(16, 6), out=tmp_path / "run")
    released = load_file(tmp_path / "run" / "model.safetensors")
    found = Doubled(normalised()[0])
    found.load_state_dict(released)
    models.refresh_statistics(found.inner, public)
    torch.testing.assert_close(found.get_buffer("inner.1.mean"), released["inner.1.mean"])
    torch.testing.assert_close(found.get_buffer("inner.1.variance"), released["inner.1.variance"])


def test_what_is_added_to_the_noisy_mean_reads_no_record() -> None:
    """The same noisy mean gives the same step, whoever is in the data."""
    steps = []
    for seed in (1, 2):
        contribution = TWO_STEPS.contribution(Doubled(normalised()[0]), normalised_numbers(16, 6, seed=seed), "cpu", 0)
        source = RandomSource.from_seed(0)
        cohort, theta = TWO_STEPS.cohort.grouping.group(np.arange(16), 0, source), contribution.trained.initial
        contribution.clipped_sum(RoundContext(theta, cohort, 0, TWO_STEPS.clipping, 0.1, source))
        mean = torch.linspace(-1, 1, theta.numel(), dtype=torch.float64)
        before = mean.clone()
        contribution.after_noise(mean, 0, source)
        assert not torch.equal(mean, before)
        steps.append(mean)
    assert torch.equal(*steps)


# Looks at real steps while training: the first and the last one, others by chance, and what the statement says.


def test_the_steps_that_are_due_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    compared = recheck._one
    monkeypatch.setattr(recheck, "_one", lambda losses, step: (looks.append(step), compared(losses, step))[1])
    plan = specimens.PLAN.replace(steps=30, cohort=48, examples={"micro_batch": 16})  # everybody in each step
    statement = plan.fit(Dense(), as_data(coupled_numbers())).statement
    assert plan.seed is not None
    wanted = [step for step in range(30) if due(step, 30, RandomSource.from_seed(plan.seed))]
    assert {0, 29} < set(wanted)
    assert sorted(set(looks)) == wanted
    assert all(2 <= looks.count(step) <= 3 for step in wanted)  # the first micro-batch, the last, and one by chance
    line = next(each for each in statement.sentences if each.id == "examples_tried")
    assert "while training: in the first step, in the last step and in others" in line


def test_a_step_that_drew_one_example_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to compare it with; the sentence says where there were two."""
    looks: list[Any] = []
    monkeypatch.setattr(recheck, "_one", lambda *given: looks.append(given))
    statement = specimens.PLAN.replace(examples={"micro_batch": 1}).fit(Dense(), as_data(coupled_numbers())).statement
    assert not looks
    assert "examples_tried" in [each.id for each in statement.sentences]


# The memory of a sum is used again only where it is given.


def two_sums(give_back: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sums of two cohorts, and the first one as it was before the second."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(0, 1, (20, 3)).astype(np.float32)
    data = ExampleDataset(inputs=(inputs,), targets=rng.integers(0, 2, 20), num_classes=2)
    plan = DPSGD(steps=1, cohort=8, clipping=0.1, noise=1.0, examples={"micro_batch": 3})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        contribution = plan.contribution(nn.Linear(3, 2), data, "cpu", 0)
    source = RandomSource.from_seed(0)
    totals, before = [], torch.empty(0)
    for cohort in (np.arange(8), np.arange(8, 20)):
        out = totals[0] if give_back and totals else None
        groups = plan.cohort.grouping.group(cohort, 0, source)
        theta = contribution.trained.initial
        totals.append(contribution.clipped_sum(RoundContext(theta, groups, 0, plan.clipping, 0.1, source, out)).total)
        before = totals[0].clone() if len(totals) == 1 else before
    return totals[0], totals[1], before


def test_a_sum_that_is_kept_stays_as_it_is():
    first, _, before = two_sums(give_back=False)
    assert torch.equal(first, before)


def test_a_sum_in_used_memory_is_the_same():
    first, second, _ = two_sums(give_back=True)
    assert first.data_ptr() == second.data_ptr()
    assert torch.equal(second, two_sums(give_back=False)[1])


def test_a_plan_that_is_tried_out_measures_on_some_of_the_test_data():
    measured: list[int] = []

    class Recorded(Classification):
        def measure(self, model, data, **how):
            measured.append(len(data))
            return super().measure(model, data, **how)

    data = examples_from_arrays(np.random.default_rng(0).normal(size=(1000, 4)), np.arange(1000) % 2, num_classes=2)
    train, test = data.subset(range(40)), data.subset(range(40, 1000))
    PLAN.try_out(nn.Linear(4, 2), train, test=test, options=RunOptions(task=Recorded()))
    assert measured == [256]
