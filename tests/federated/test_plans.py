"""Federated plans: their settings, their statements and their learning rate."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato import accounting as acc
from sfumato import data, models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD, Verification
from sfumato.ledger import Ledger
from sfumato.sampling import Cohort
from sfumato.statement import Statement
from sfumato.statement.statement import NOT_STATED
from sfumato.training import RoundContext, RunOptions
from sfumato.training.monitoring import columns, diverged
from sfumato.training.server import MAX_NOISE_NORM

# Plans: what is accounted follows from what runs, and what cannot be right is refused in one line.

PAPER = FedEmb(noise=0.62)  # the authors' EMNIST run is the default


def test_the_statement_is_for_one_user_and_has_the_papers_convention_beside_it(blobs, tiny):
    plan = FedEmb(rounds=2, cohort={"size": 2, "users_per_client": 3}, noise=1.0, client={"epochs": 1}, seed=1)
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
    own = PAPER.replace(cohort={"users_per_client": 1}, client={"head": {"classes": "global"}})
    assert own.private_sum(3400).event(1) == acc.Gaussian(0.62).poisson(32 / 3400)


def test_the_ledger_holds_what_ran(blobs, tiny, tmp_path):
    plan = FedAvg(rounds=3, cohort=4, noise=0.9, seed=1, client={"max_examples": 2})
    result = plan.fit(tiny(), blobs(8), out=tmp_path / "run")
    ledger = Ledger.open(tmp_path / "run" / "ledger.jsonl")
    assert ledger.totals.event() == acc.Gaussian(0.9).poisson(0.5) * 3
    *rounds, named = ledger
    assert [entry["noise_std"] for entry in rounds] == [0.9] * 3
    assert [entry["sensitivity"] for entry in rounds] == [1.0] * 3
    assert named["kind"] == "statement"
    assert [row["round"] for row in result.history] == [1, 2, 3]
    epsilons = [row["epsilon"] for row in result.history]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] >= result.statement.epsilon - 1e-6


@pytest.mark.parametrize("plan", [PAPER, FedAvg(cohort="fixed_size"), FedSGD(clipping="adaptive")], ids=str)
def test_calibration_meets_the_budget_and_wastes_little(plan):
    chosen = plan.calibrate(epsilon=8.0, delta=1e-6, population=10_000)
    private_sum = chosen.private_sum(10_000)
    cost = acc.guarantee(private_sum.event(chosen.rounds), private_sum.sampler.adjacency).epsilon(1e-6)
    assert 7.9 < cost <= 8.0
    assert (chosen.population, chosen.delta) == (10_000, 1e-6)


def test_fixed_size_cohorts_are_accounted_for_replacement():
    plan = FedEmb(cohort={"kind": "fixed_size", "size": 4, "users_per_client": 5}, noise=1.0)
    private_sum = plan.private_sum(100)
    assert private_sum.sampler.adjacency == "replace"
    # Accountants double the Gaussian's sensitivity for "replace": one group, from -C to C.
    assert private_sum.event(1) == acc.Gaussian(1.0).without_replacement(20, 100)
    assert private_sum.relative_sensitivity == 2


def test_the_denominator_is_planned_not_counted(blobs, tiny):
    """Half the population stays away: the step is half as large, not the same."""
    users = blobs(10)
    steps = []
    for population in (10, 20):
        plan = FedAvg(
            rounds=1,
            cohort=population,
            population=population,
            noise=0,
            clipping=None,
            server={"learning_rate": 1.0, "momentum": 0.0},
            seed=0,
        )
        before = torch.cat([p.reshape(-1) for p in tiny().parameters()])
        trained = plan.fit(tiny(), users).model
        steps.append(torch.cat([p.reshape(-1) for p in trained.parameters()]) - before)
    torch.testing.assert_close(steps[1] * 2, steps[0], atol=1e-6, rtol=1e-4)


def test_a_gradient_is_a_gradient(blobs, tiny):
    users = blobs(3)
    plan = FedSGD(cohort=3, noise=0, clipping=None, rounds=1, seed=0)
    contribution = plan.contribution(tiny(), users, "cpu", 4)
    model, head = tiny(), contribution.trained.parameters[-1].detach().clone().requires_grad_()
    inputs, labels = users.examples(1)
    loss = nn.functional.cross_entropy(model(data.to_tensor(inputs)) @ head.T, torch.from_numpy(labels.copy()))
    expected = torch.autograd.grad(loss, [*model.parameters(), head])
    share = contribution.clipped_sum(
        RoundContext(
            contribution.trained.initial,
            Cohort.of_single_units(np.array([1])),
            0,
            plan.clipping,
            None,
            RandomSource.from_seed(0),
        ),
    )
    flat = torch.cat([gradient.reshape(-1) for gradient in expected])
    torch.testing.assert_close(share.total.float(), flat, atol=1e-6, rtol=1e-4)


def test_centralized_is_plain_sgd_and_promises_nothing(blobs, tiny):
    users = blobs(6)
    plan = Centralized(rounds=60, cohort=200, server={"learning_rate": 0.2}, seed=0)
    result = plan.fit(tiny(), users)
    losses = [row["not_private"]["loss"] for row in result.history]
    assert losses[-1] < 0.5 * losses[0]
    assert result.statement.epsilon == float("inf")
    assert result.history[0]["not_private"]["examples"] == 36  # everything, when the batch is larger


def test_training_leaves_the_users_module_alone(blobs, tiny):
    model = tiny()
    before = [p.clone() for p in model.parameters()]
    result = FedEmb(rounds=1, cohort={"size": 2, "users_per_client": 2}, noise=1.0).fit(model, blobs(6))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not torch.equal(before[0], next(result.model.parameters()))


def test_only_trainable_parameters_move_and_are_noised(blobs, tiny):
    plan = FedEmb(
        rounds=1, cohort={"size": 2, "users_per_client": 2}, noise=1.0, trainable="3\\..*", client={"epochs": 1}
    )
    model = tiny()
    trained = plan.fit(model, blobs(6)).model
    assert torch.equal(model[0].weight, trained[0].weight)
    assert not torch.equal(model[3].weight, trained[3].weight)


def test_any_torch_optimizer_can_be_the_servers(blobs, tiny):
    plan = FedAvg(rounds=2, cohort=2, noise=0.5, seed=0)
    result = plan.fit(tiny(), blobs(6), options=RunOptions(optimizer=lambda p: torch.optim.NAdam(p, lr=0.01)))
    assert not torch.equal(tiny()[0].weight, result.model[0].weight)


@pytest.mark.slow
def test_fedemb_learns_to_tell_unseen_identities_apart(omniglot):
    from sfumato import models

    users = omniglot(140)
    torch.manual_seed(0)
    plan = FedEmb(
        rounds=4,
        cohort={"size": 4, "users_per_client": 12},
        noise=0,
        client={"learning_rate": 0.02, "head_lr_scale": 20, "epochs": 2},
        server={"learning_rate": 0.3},
        seed=0,
    )
    result = plan.fit(models.lenet(embedding_dim=64), users.subset(range(100)), test=users.subset(range(100, 140)))
    recall = {name: row["recall_at_far"]["0.001"] for name, row in result.evaluation.items()}
    assert recall["trained"] > 1.2 * recall["untrained"]


def test_adaptive_clipping_moves_the_norm_and_stops_after_its_rounds(blobs, tiny):
    plan = FedAvg(
        rounds=5,
        cohort=6,
        noise=0.3,
        clipping={"norm": 100.0, "kind": "adaptive", "adapted_rounds": 3},
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
        ({"noise.noise_multiplier": -1.0}, "noise_multiplier must be >= 0"),
        ({"noise.noise_multiplier": float("nan")}, "noise_multiplier must be a number, got nan"),
        ({"clipping.norm": 0.0}, "for a run without privacy use clipping=None"),
        ({"clipping.norm": None, "noise.noise_multiplier": 1.0}, "noise 1 needs clipping"),
        ({"delta": 1.0}, "delta must be in"),
        ({"client.momentum": 1.0}, "momentum must be in"),
        ({"server.name": "lion"}, "optimizer must be one of"),
        ({"cohort": "shuffle"}, "cohort must be one of poisson, fixed_size"),
        ({"client.loss": "hinge"}, "client.loss must be one of"),
        ({"cohort.users_per_client": 0}, "users_per_client"),
        ({"client.head.classes": "all"}, "classes must be one of"),
    ],
)
def test_fields_that_cannot_be_right_are_refused(fields, message):
    with pytest.raises(InputError, match=message) as error:
        FedEmb(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("count", "message"), [(1, "has one user"), (3, "2 clients × 2 users = 4 users a round")])
def test_too_few_users_are_refused(blobs, tiny, count, message):
    plan = FedEmb(cohort={"size": 2, "users_per_client": 2}, noise=1.0)
    with pytest.raises(InputError, match=message):
        plan.fit(tiny(), blobs(count))


def test_a_run_whose_noise_nobody_decided_on_is_refused(blobs, tiny):
    with pytest.raises(InputError, match="noise is not set"):
        FedAvg(cohort=2).fit(tiny(), blobs(4))


def test_an_epsilon_out_of_reach_is_refused():
    with pytest.raises(InputError, match="epsilon"):
        FedAvg(rounds=10**6, cohort=10).calibrate(epsilon=1e-9, delta=1e-9, population=20)


def test_batch_norm_is_refused_by_name(blobs):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4))
    with pytest.raises(InputError, match=r"1.*BatchNorm2d"):
        FedAvg(cohort=2, noise=1.0).fit(model, blobs(4))


def test_a_model_for_other_inputs_is_refused(blobs, tiny):
    with pytest.raises(InputError, match=r"fails on inputs of shape \(1, 8, 8\)"):
        FedAvg(cohort=2, noise=1.0).fit(nn.Linear(3, 2), blobs(4))


def test_users_of_one_class_each_need_virtual_clients(tiny):
    users = data.from_arrays(np.zeros((6, 8, 8, 1), np.uint8), np.repeat([0, 1, 2], 2), np.repeat(list("abc"), 2))
    with pytest.raises(InputError, match="users_per_client > 1"):
        FedEmb(cohort={"size": 2, "users_per_client": 1}, noise=1.0).fit(tiny(), users)


def test_users_with_one_image_are_ordinary(tiny):
    users = data.from_arrays(np.zeros((6, 8, 8, 1), np.uint8), np.arange(6), np.array(list("abcdef")))
    result = FedEmb(rounds=2, cohort={"size": 1, "users_per_client": 3}, noise=1.0).fit(tiny(), users)
    assert np.isfinite(result.statement.epsilon)


def test_a_delta_that_could_publish_a_user_is_warned_about(blobs, tiny):
    with pytest.warns(UserWarning, match="delta 0.5 is not well below 1/4; leave it out for 0.0025"):
        result = FedAvg(rounds=1, cohort=2, noise=1.0, delta=0.5).fit(tiny(), blobs(4))
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
    plan = FedAvg(rounds=2, cohort=4, noise=0.1, seed=0, client={"at_once": width})
    result = plan.fit(Poisoned(tiny()), users)
    assert [row["not_private"]["non_finite"] for row in result.history] == [1, 1]
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


def test_a_run_that_diverges_says_so(blobs, tiny):
    plan = FedAvg(rounds=5, cohort=2, noise=1.0, clipping=1e30, server={"learning_rate": 1e30}, seed=0)
    with pytest.raises(InputError, match="became NaN or infinite in round 1"):
        plan.fit(tiny(), blobs(4))


def test_validation_is_measured_from_the_start(blobs, tiny):
    plan = FedAvg(rounds=4, cohort=2, noise=1.0, seed=0)
    result = plan.fit(
        tiny(),
        blobs(6),
        validation=blobs(5, seed=1),
        options=RunOptions(task=Verification(fars=(0.1,)), evaluate_every=2),
    )
    rows = [row for row in result.history if "evaluation" in row]
    assert [row["round"] for row in rows] == [0, 2, 4]
    assert all(row["recall_at_far"].keys() == {"0.1"} for row in rows)


def test_single_examples_and_a_model_without_values_are_refused(blobs, tiny):
    plan = FedEmb(rounds=1, cohort={"size": 2, "users_per_client": 2}, noise=1.0)
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
    plan = FedEmb(rounds=1, cohort={"size": 2, "users_per_client": 2}, noise=1.0, population=5)
    with pytest.warns(UserWarning, match="than the declared population 5") as told:
        plan.fit(tiny(), blobs(6))
    assert len(told) == 1


@pytest.mark.parametrize("kind", [FedEmb, FedSGD])
def test_a_moving_average_of_the_servers_models_is_released_and_costs_nothing(kind, blobs, tiny, tmp_path):
    """Noise keeps its place in the stream, so shorter runs are the first rounds of the longer one."""
    plan = kind(rounds=3, cohort={"size": 2, "users_per_client": 2}, noise=0.5, server={"learning_rate": 0.1}, seed=1)
    data = blobs(8)

    def flat(model: nn.Module) -> torch.Tensor:
        return torch.cat([value.flatten() for value in model.state_dict().values()])

    plain = [dataclasses.replace(plan, rounds=n).fit(tiny(), data) for n in (1, 2, 3)]
    average = plan.replace(server={"ema_decay": 0.15}).fit(tiny(), data, out=tmp_path / "run")
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
        FedEmb(server={"ema_decay": decay})


# Without a learning rate of its own the server does not drown the model in noise.

SIZE, POPULATION = 20_000, 1000


def moved(plan) -> float:
    """How far the noise of all rounds alone takes the model, as the plan's own server goes."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Parameter(torch.zeros(SIZE))
    server = plan.optimizer_for(plan.private_sum(POPULATION))([model])
    for _ in range(plan.rounds):
        std = plan.noise.noise_multiplier * plan.clipping.norm / plan.cohort.size
        model.grad = std * torch.randn(SIZE, generator=generator)
        server.step()
    return float(model.detach().norm())


@pytest.mark.parametrize("server_optimizer", ["sgd", "adam", "adagrad", "rmsprop", "yogi"])
@pytest.mark.parametrize("kind", [FedEmb, FedAvg, FedSGD])
@pytest.mark.parametrize(("clients", "noise", "clip_norm"), [(4, 7.2, 1.0), (1, 40.0, 10.0), (32, 0.6, 100.0)])
def test_the_noise_of_all_rounds_moves_the_model_a_little(kind, server_optimizer, clients, noise, clip_norm):
    plan = kind(
        rounds=100,
        cohort=clients,
        noise=noise,
        clipping=clip_norm,
        server=server_optimizer,
    )
    assert moved(plan) <= 1.1 * MAX_NOISE_NORM
    assert moved(plan.replace(server={"learning_rate": 1.0})) > 2 * MAX_NOISE_NORM


def rate(plan, *, size: int) -> float:
    return plan.optimizer_for(plan.private_sum(POPULATION))([nn.Parameter(torch.zeros(size))]).defaults["lr"]


@pytest.mark.parametrize(("kind", "usual"), [(FedEmb, 0.02), (FedAvg, 1.0), (FedSGD, 1.0)])
def test_without_noise_or_with_a_little_the_rate_is_the_usual_one(kind, usual):
    for noise in (0.0, 1e-3):
        assert rate(kind(noise=noise), size=100) == usual
    assert rate(kind(noise=100.0, server=3.0), size=SIZE) == 3.0


@pytest.fixture
def orl(shared) -> data.UserDataset:
    """40 people, 10 pictures each, a quarter as high and as wide."""
    arrays = np.load(shared / "orl_faces.npz")
    people = arrays["person"].astype(np.int64)
    return data.from_arrays(np.ascontiguousarray(arrays["images"][:, ::4, ::4, None]), people, people.astype(str))


def fit(users: data.UserDataset, **fields):
    torch.manual_seed(0)
    height, width, _ = users.input_shape
    plan = FedEmb(cohort={"size": 4, "users_per_client": 4}, seed=0).calibrate(epsilon=8.0, population=len(users))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = plan.replace(**fields).fit(models.lenet(image_size=(height, width)), users)
    return result, [str(each.message) for each in caught if "teaches nothing" in str(each.message)]


@pytest.mark.slow
@pytest.mark.shared
def test_forty_faces_do_not_diverge_where_nobody_chose_a_rate(orl):
    """As much noise as the rate lets through, in a few rounds."""
    result, told = fit(orl, rounds=10)
    assert told == []
    private = columns(result.history)
    assert diverged(private) == []
    assert all(loss < 3.0 for loss in private["loss"] if loss is not None)
    assert not any(private["non_finite"])
    assert result.trouble == ""


@pytest.mark.slow
@pytest.mark.shared
def test_at_the_rate_of_a_large_cohort_they_do(orl):
    result, _ = fit(orl, rounds=6, server={"learning_rate": 0.02})
    assert any(loss is None or loss > 1e3 for loss in columns(result.history)["loss"][-3:])


# A run answers the questions of a disclosure that follow from it, and leaves the others to its author.


def statement_of(blobs, tiny, **changes) -> Statement:
    fields = {"rounds": 1, "cohort.size": 2, "noise.noise_multiplier": 1.0, "delta": 1e-2, "seed": 1}
    return FedAvg(**{**fields, **changes}).fit(tiny(), blobs(8)).statement


@pytest.mark.parametrize(("seed", "answer"), [(1, "No: seeded"), (None, "Yes: AES-256")])
def test_it_tells_whether_the_noise_is_cryptographic(blobs, tiny, seed, answer) -> None:
    assert statement_of(blobs, tiny, seed=seed).disclosure["cryptographic_noise"].startswith(answer)


def test_what_only_the_author_knows_is_left_open(blobs, tiny) -> None:
    answers = statement_of(blobs, tiny).disclosure
    for name in ("preprocessing", "public_data", "budget_choice"):
        assert answers[name] == NOT_STATED
    for name in ("hyperparameter_tuning", "other_releases", "several_units", "evaluation"):
        assert NOT_STATED in answers[name] != NOT_STATED
    for name in ("trust_model", "released", "contribution", "sampling_as_run", "floating_point", "verification"):
        assert NOT_STATED not in answers[name]


def test_a_run_without_noise_claims_nothing(blobs, tiny) -> None:
    answers = statement_of(blobs, tiny, **{"noise.noise_multiplier": 0.0}).disclosure
    assert "Nothing is covered" in answers["released"]
    assert answers["cryptographic_noise"] == NOT_STATED


def test_no_lower_bound_is_claimed_for_users_who_may_be_alone_in_a_virtual_client(blobs, tiny) -> None:
    """A round cannot cost what its event costs: in a group that is empty without them, a user moves the sum by C only.

    Written out for one round, however the records are chosen, the number of empty groups revealed (which costs more).
    """
    clients, size, users, z, delta = 32, 2, 3400, 1.2, 1e-6
    rate = clients * size / users
    below, _ = acc.guarantee(acc.Gaussian(z / 2).poisson(rate)).epsilon_interval(delta)
    x = np.linspace(-12.0, 20.0, 40_001)
    absent, alone, joined = (stats.norm.pdf(x, shift, z) for shift in (0, 1, 2))
    truth = 0.0
    for empty in range(clients + 1):
        share = empty / clients
        present = (1 - rate) * absent + rate * (share * alone + (1 - share) * joined)
        excess = [np.maximum(p - np.exp(below) * q, 0).sum() for p, q in ((present, absent), (absent, present))]
        truth += stats.binom.pmf(empty, clients, (1 - rate / clients) ** (users - 1)) * max(excess) * (x[1] - x[0])
    assert truth < 0.9 * delta  # so "no accounting can show an epsilon below" it would be false
    assert statement_of(blobs, tiny, **{"cohort.users_per_client": 2}).epsilon_lower is None
    assert statement_of(blobs, tiny).epsilon_lower > 0
