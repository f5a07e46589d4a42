"""Plans: what is accounted follows from what runs, and what cannot be right is refused in one line."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import accounting as acc
from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD, Verification
from sfumato.ledger import Ledger
from sfumato.sampling import Cohort
from sfumato.training import Cadence

PAPER = FedEmb(noise_multiplier=0.62)  # the authors' EMNIST run is the default


def test_the_statement_is_for_one_user_and_has_the_papers_convention_beside_it(blobs, tiny):
    plan = FedEmb(rounds=2, clients_per_round=2, users_per_client=3, noise_multiplier=1.0, local_epochs=1, seed=1)
    statement = plan.fit(tiny(), blobs(12)).statement
    one_user = acc.Gaussian(0.5).poisson(0.5) * 2
    whole_client = acc.Gaussian(1.0).poisson(0.5) * 2
    assert (statement.unit, statement.adjacency) == ("user", "add_remove")
    assert statement.delta == pytest.approx(0.01 / 12)
    assert statement.epsilon == pytest.approx(acc.guarantee(one_user).epsilon(statement.delta))
    others = [row for row in statement.alternatives if row["unit"] == "virtual_client"]
    assert min(row["epsilon"] for row in others) == pytest.approx(acc.guarantee(whole_client).epsilon(statement.delta))
    assert max(row["epsilon"] for row in others) < statement.epsilon
    assert "seeded_run" in [line.id for line in statement.sentences]


def test_a_client_of_one_user_costs_one_clip_norm():
    own = dataclasses.replace(PAPER, users_per_client=1, head_classes="global")
    assert own.private_sum(3400).event(1) == acc.Gaussian(0.62).poisson(32 / 3400)


def test_the_ledger_holds_what_ran(blobs, tiny, tmp_path):
    plan = FedAvg(rounds=3, clients_per_round=4, noise_multiplier=0.9, seed=1, max_examples=2)
    result = plan.fit(tiny(), blobs(8), out=tmp_path / "run")
    ledger = Ledger.open(tmp_path / "run" / "ledger.jsonl")
    assert ledger.event() == acc.Gaussian(0.9).poisson(0.5) * 3
    *rounds, named = ledger
    assert [entry["noise_std"] for entry in rounds] == [0.9] * 3
    assert [entry["sensitivity"] for entry in rounds] == [1.0] * 3
    assert named["kind"] == "statement"
    assert [row["round"] for row in result.history] == [1, 2, 3]
    epsilons = [row["epsilon"] for row in result.history]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] >= result.statement.epsilon - 1e-6


@pytest.mark.parametrize("plan", [PAPER, FedAvg(sampling="fixed"), FedSGD(clipping="adaptive")], ids=str)
def test_calibration_meets_the_budget_and_wastes_little(plan):
    chosen = plan.calibrate(epsilon=8.0, delta=1e-6, population=10_000)
    private_sum = chosen.private_sum(10_000)
    cost = acc.guarantee(private_sum.event(chosen.rounds), private_sum.sampler.adjacency).epsilon(1e-6)
    assert 7.9 < cost <= 8.0
    assert (chosen.population, chosen.delta) == (10_000, 1e-6)


def test_fixed_size_cohorts_are_accounted_for_replacement():
    plan = FedEmb(sampling="fixed", clients_per_round=4, users_per_client=5, noise_multiplier=1.0)
    private_sum = plan.private_sum(100)
    assert private_sum.sampler.adjacency == "replace"
    # Accountants double the Gaussian's sensitivity for "replace": one group, from -C to C.
    assert private_sum.event(1) == acc.Gaussian(1.0).without_replacement(20, 100)
    assert private_sum.contributions_moved == 2


def test_the_denominator_is_planned_not_counted(blobs, tiny):
    """Half the population stays away: the step is half as large, not the same."""
    users = blobs(10)
    steps = []
    for population in (10, 20):
        plan = FedAvg(
            rounds=1,
            clients_per_round=population,
            population=population,
            noise_multiplier=0,
            clip_norm=None,
            server_learning_rate=1.0,
            server_momentum=0.0,
            seed=0,
        )
        before = torch.cat([p.reshape(-1) for p in tiny().parameters()])
        trained = plan.fit(tiny(), users).model
        steps.append(torch.cat([p.reshape(-1) for p in trained.parameters()]) - before)
    torch.testing.assert_close(steps[1] * 2, steps[0], atol=1e-6, rtol=1e-4)


def test_a_gradient_is_a_gradient(blobs, tiny):
    users = blobs(3)
    plan = FedSGD(clients_per_round=3, noise_multiplier=0, clip_norm=None, rounds=1, seed=0)
    contribution = plan.contribution(tiny(), users, "cpu", 4)
    model, head = tiny(), contribution.trained.parameters[-1].detach().clone().requires_grad_()
    inputs, labels = users.examples(1)
    loss = nn.functional.cross_entropy(model(data.to_tensor(inputs)) @ head.T, torch.from_numpy(labels.copy()))
    expected = torch.autograd.grad(loss, [*model.parameters(), head])
    share = contribution.clipped_sum(
        contribution.trained.initial,
        Cohort.of_single_units(np.array([1])),
        0,
        plan.bound,
        None,
        RandomSource.from_seed(0),
        None,
    )
    flat = torch.cat([gradient.reshape(-1) for gradient in expected])
    torch.testing.assert_close(share.total.float(), flat, atol=1e-6, rtol=1e-4)


def test_centralized_is_plain_sgd_and_promises_nothing(blobs, tiny):
    users = blobs(6)
    plan = Centralized(rounds=60, batch_size=200, learning_rate=0.2, seed=0)
    result = plan.fit(tiny(), users)
    losses = [row["not_private"]["loss"] for row in result.history]
    assert losses[-1] < 0.5 * losses[0]
    assert result.statement.epsilon == float("inf")
    assert result.history[0]["not_private"]["examples"] == 36  # everything, when the batch is larger


def test_training_leaves_the_users_module_alone(blobs, tiny):
    model = tiny()
    before = [p.clone() for p in model.parameters()]
    result = FedEmb(rounds=1, clients_per_round=2, users_per_client=2, noise_multiplier=1.0).fit(model, blobs(6))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not torch.equal(before[0], next(result.model.parameters()))


def test_only_trainable_parameters_move_and_are_noised(blobs, tiny):
    plan = FedEmb(
        rounds=1, clients_per_round=2, users_per_client=2, noise_multiplier=1.0, trainable="3\\..*", local_epochs=1
    )
    model = tiny()
    trained = plan.fit(model, blobs(6)).model
    assert torch.equal(model[0].weight, trained[0].weight)
    assert not torch.equal(model[3].weight, trained[3].weight)


def test_any_torch_optimizer_can_be_the_servers(blobs, tiny):
    plan = FedAvg(rounds=2, clients_per_round=2, noise_multiplier=0.5, seed=0)
    result = plan.fit(tiny(), blobs(6), server_optimizer=lambda p: torch.optim.NAdam(p, lr=0.01))
    assert not torch.equal(tiny()[0].weight, result.model[0].weight)


@pytest.mark.slow
def test_fedemb_learns_to_tell_unseen_identities_apart(omniglot):
    from sfumato import models

    users = omniglot(140)
    torch.manual_seed(0)
    plan = FedEmb(
        rounds=4,
        clients_per_round=4,
        users_per_client=12,
        noise_multiplier=0,
        learning_rate=0.02,
        head_lr_scale=20,
        local_epochs=2,
        server_learning_rate=0.3,
        seed=0,
    )
    result = plan.fit(models.lenet(embedding_dim=64), users.subset(range(100)), test=users.subset(range(100, 140)))
    recall = {name: row["recall_at_far"]["0.001"] for name, row in result.evaluation.items()}
    assert recall["trained"] > 1.2 * recall["untrained"]


def test_adaptive_clipping_moves_the_norm_and_stops_after_its_rounds(blobs, tiny):
    plan = FedAvg(
        rounds=5,
        clients_per_round=6,
        noise_multiplier=0.3,
        clip_norm=100.0,
        clipping="adaptive",
        adaptive_clip_rounds=3,
        seed=0,
    )
    norms = [row["clip_norm"] for row in plan.fit(tiny(), blobs(12)).history]
    assert norms[0] == 100
    assert norms[1] < norms[0]
    assert norms[2] < norms[1]
    assert norms[3] < norms[2]
    assert norms[4] == norms[3]


# Bad input: one clear line each.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be >= 0"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier must be a number, got nan"),
        ({"clip_norm": 0.0}, "for a run without privacy use clip_norm=None"),
        ({"clip_norm": None, "noise_multiplier": 1.0}, "needs a clip_norm"),
        ({"delta": 1.0}, "delta must be in"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"server_optimizer": "lion"}, "server_optimizer must be one of"),
        ({"sampling": "shuffle"}, "sampling must be one of poisson, fixed"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"users_per_client": 0}, "users_per_client"),
        ({"head_classes": "all"}, "head_classes must be one of"),
    ],
)
def test_fields_that_cannot_be_right_are_refused(fields, message):
    with pytest.raises(InputError, match=message) as error:
        FedEmb(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("count", "message"), [(1, "has one user"), (3, "2 clients × 2 users = 4 users a round")])
def test_too_few_users_are_refused(blobs, tiny, count, message):
    plan = FedEmb(clients_per_round=2, users_per_client=2, noise_multiplier=1.0)
    with pytest.raises(InputError, match=message):
        plan.fit(tiny(), blobs(count))


def test_a_run_whose_noise_nobody_decided_on_is_refused(blobs, tiny):
    with pytest.raises(InputError, match="noise_multiplier is not set"):
        FedAvg(clients_per_round=2).fit(tiny(), blobs(4))


def test_an_epsilon_out_of_reach_is_refused():
    with pytest.raises(InputError, match="epsilon"):
        FedAvg(rounds=10**6, clients_per_round=10).calibrate(epsilon=1e-9, delta=1e-9, population=20)


def test_batch_norm_is_refused_by_name(blobs):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4))
    with pytest.raises(InputError, match=r"1.*BatchNorm2d"):
        FedAvg(clients_per_round=2, noise_multiplier=1.0).fit(model, blobs(4))


def test_a_model_for_other_inputs_is_refused(blobs, tiny):
    with pytest.raises(InputError, match=r"fails on inputs of shape \(1, 8, 8\)"):
        FedAvg(clients_per_round=2, noise_multiplier=1.0).fit(nn.Linear(3, 2), blobs(4))


def test_users_of_one_class_each_need_virtual_clients(tiny):
    users = data.from_arrays(np.zeros((6, 8, 8, 1), np.uint8), np.repeat([0, 1, 2], 2), np.repeat(list("abc"), 2))
    with pytest.raises(InputError, match="users_per_client > 1"):
        FedEmb(clients_per_round=2, users_per_client=1, noise_multiplier=1.0).fit(tiny(), users)


def test_users_with_one_image_are_ordinary(tiny):
    users = data.from_arrays(np.zeros((6, 8, 8, 1), np.uint8), np.arange(6), np.array(list("abcdef")))
    result = FedEmb(rounds=2, clients_per_round=1, users_per_client=3, noise_multiplier=1.0).fit(tiny(), users)
    assert np.isfinite(result.statement.epsilon)


def test_a_delta_that_could_publish_a_user_is_warned_about(blobs, tiny):
    with pytest.warns(UserWarning, match="delta 0.5 is not well below 1/4; leave it out for 0.0025"):
        result = FedAvg(rounds=1, clients_per_round=2, noise_multiplier=1.0, delta=0.5).fit(tiny(), blobs(4))
    assert "delta_too_large" in [line.id for line in result.statement.sentences]


class Poisoned(nn.Module):
    """Gives NaN for the user whose pictures are black."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        black = (x == -1).flatten(1).all(1)
        return torch.where(black[:, None], torch.nan, self.inner(x))


@pytest.mark.parametrize("width", [1, 4])
def test_nan_in_one_clients_delta_counts_as_zero_and_is_counted(tiny, width):
    rng = np.random.default_rng(0)
    pixels = rng.integers(1, 256, (12, 8, 8, 1), dtype=np.uint8)
    pixels[:3] = 0
    users = data.from_arrays(pixels, np.tile([0, 1, 2], 4), np.repeat(list("abcd"), 3))
    plan = FedAvg(rounds=2, clients_per_round=4, noise_multiplier=0.1, seed=0, clients_at_once=width)
    result = plan.fit(Poisoned(tiny()), users)
    assert [row["not_private"]["non_finite"] for row in result.history] == [1, 1]
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


def test_a_run_that_diverges_says_so(blobs, tiny):
    plan = FedAvg(
        rounds=5, clients_per_round=2, noise_multiplier=1.0, clip_norm=1e30, server_learning_rate=1e30, seed=0
    )
    with pytest.raises(InputError, match="became NaN or infinite in round 1"):
        plan.fit(tiny(), blobs(4))


def test_validation_is_measured_from_the_start(blobs, tiny):
    plan = FedAvg(rounds=4, clients_per_round=2, noise_multiplier=1.0, seed=0)
    result = plan.fit(
        tiny(), blobs(6), validation=blobs(5, seed=1), task=Verification(fars=(0.1,)), cadence=Cadence(evaluate_every=2)
    )
    rows = [row for row in result.history if "evaluation" in row]
    assert [row["round"] for row in rows] == [0, 2, 4]
    assert all(row["recall_at_far"].keys() == {"0.1"} for row in rows)


def test_single_examples_and_a_model_without_values_are_refused(blobs, tiny):
    plan = FedEmb(rounds=1, clients_per_round=2, users_per_client=2, noise_multiplier=1.0)
    examples = data.examples_from_arrays(np.zeros((6, 4), np.float32), np.arange(6) % 2)
    with pytest.raises(InputError, match=r"must be divided by user \(UserDataset\), got ExampleDataset; "):
        plan.fit(tiny(), examples)
    with torch.device("meta"):
        model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(InputError, match=r"1\.weight is on the device meta"):
        plan.fit(model, blobs(6))
    with pytest.raises(InputError, match="run the model once"):
        plan.fit(nn.Sequential(nn.Flatten(), nn.LazyLinear(2)), blobs(6))


def test_a_population_that_is_too_small_is_told_once(blobs, tiny):
    plan = FedEmb(rounds=1, clients_per_round=2, users_per_client=2, noise_multiplier=1.0, population=5)
    with pytest.warns(UserWarning, match="than the declared population 5") as told:
        plan.fit(tiny(), blobs(6))
    assert len(told) == 1


@pytest.mark.parametrize("kind", [FedEmb, FedSGD])
def test_a_moving_average_of_the_servers_models_is_released_and_costs_nothing(kind, blobs, tiny, tmp_path):
    """Noise keeps its place in the stream, so shorter runs are the first rounds of the longer one."""
    plan = kind(
        rounds=3, clients_per_round=2, users_per_client=2, noise_multiplier=0.5, server_learning_rate=0.1, seed=1
    )
    data = blobs(8)

    def flat(model: nn.Module) -> torch.Tensor:
        return torch.cat([value.flatten() for value in model.state_dict().values()])

    plain = [dataclasses.replace(plan, rounds=n).fit(tiny(), data) for n in (1, 2, 3)]
    average = dataclasses.replace(plan, ema_decay=0.15).fit(tiny(), data, out=tmp_path / "run")
    expected = flat(tiny())
    for round_index, result in enumerate(plain):
        decay = min(0.15, (1 + round_index) / (10 + round_index))
        expected = decay * expected + (1 - decay) * flat(result.model)
    torch.testing.assert_close(flat(average.model), expected, atol=1e-6, rtol=1e-5)
    assert not torch.equal(flat(average.model), flat(plain[-1].model))
    assert average.statement.epsilon == plain[-1].statement.epsilon


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_decay_that_is_none_is_refused(decay: float):
    with pytest.raises(InputError, match="ema_decay"):
        FedEmb(ema_decay=decay)
