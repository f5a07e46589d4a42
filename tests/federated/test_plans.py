"""Federated plans: settings, statements and learning rate, also behind frozen features."""

import dataclasses
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats
from torch import Tensor, nn

from sfumato import DPSGD, data, models
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import UserDataset, from_arrays
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD, Verification
from sfumato.ledger import Ledger
from sfumato.models import PublicBatchNorm, use_public_batch
from sfumato.sampling import Cohort
from sfumato.statement import Statement
from sfumato.statement.statement import NOT_STATED
from sfumato.training import Cadence, Callback, RoundContext, RunOptions, Stop
from sfumato.training.monitoring import columns, diverged
from sfumato.training.server import MAX_NOISE_NORM
from slow import one_in, slow_but

# Federated plans: their settings, their statements and their learning rate.

# Plans: what is accounted follows from what runs, and what cannot be right is refused in one line.
PAPER = FedEmb(noise=0.62)  # the authors' EMNIST run is the default


def test_the_statement_is_for_one_user_and_has_the_papers_convention_next_to_it(blobs, tiny):
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


def test_coins_for_an_exchanged_user_of_a_group_are_refused():
    """Without the user a group may send −C, with one user C and with the other −C: the pair of an added user."""
    alone = acc.guarantee(acc.Gaussian(1.0).poisson(0.016) * 100, "replace").epsilon(1e-5)
    reached, _ = acc.guarantee(acc.Gaussian(0.5).poisson(0.016) * 100, "add_remove").epsilon_interval(1e-5)
    assert reached > 5 * alone
    with pytest.raises(InputError, match=r"accounted alone, got users_per_client=8; use 1, or adjacency=add_remove"):
        FedEmb(cohort={"kind": "poisson", "size": 4, "users_per_client": 8, "adjacency": "replace"}, noise=1.0)


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


@pytest.mark.slow
def test_any_torch_optimizer_can_be_the_servers(blobs, tiny):
    plan = FedAvg(rounds=2, cohort=2, noise=0.5, seed=0)
    result = plan.fit(tiny(), blobs(6), options=RunOptions(optimizer=lambda p: torch.optim.NAdam(p, lr=0.01)))
    assert not torch.equal(tiny()[0].weight, result.model[0].weight)


@pytest.mark.slow
def test_fedemb_learns_to_report_unseen_identities_separate(omniglot):
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


def test_a_run_whose_noise_no_one_decided_on_is_refused(blobs, tiny):
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


def test_a_population_that_is_too_small_is_reported_once(blobs, tiny):
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


@pytest.mark.parametrize(
    ("kind", "server_optimizer"), one_in(3, [FedEmb, FedAvg, FedSGD], ["sgd", "adam", "adagrad", "rmsprop", "yogi"])
)
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
def test_forty_faces_do_not_diverge_where_no_one_chose_a_rate(orl):
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
def test_it_reports_whether_the_noise_is_cryptographic(blobs, tiny, seed, answer) -> None:
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


# Users behind frozen features, and layers whose statistics are public.

# A run behind a kept prefix is the run on the records: the same values, the same statement, the whole model.
FEDERATED = {"rounds": 3, "cohort.size": 4, "noise.noise_multiplier": 0.5, "seed": 1, "trainable": "last_blocks:2"}
PLANS = {
    "fedemb": FedEmb(cohort={"users_per_client": 2}, client={"epochs": 2, "batch_size": 4}, **FEDERATED),
    "fedemb, clients in a batch": FedEmb(
        cohort={"users_per_client": 2}, client={"epochs": 1, "batch_size": 4, "at_once": 4}, **FEDERATED
    ),
    "fedavg": FedAvg(client={"batch_size": 4}, **FEDERATED),
    "fedsgd": FedSGD(**FEDERATED),
    "centralized": Centralized(rounds=5, cohort=20, seed=1, trainable="last_blocks:2"),
}


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(32, 4),
        )  # fmt: skip


def moved_by_name(model: nn.Module, start: nn.Module) -> dict[str, torch.Tensor]:
    before = start.state_dict()
    return {name: value - before[name] for name, value in model.state_dict().items()}


@pytest.mark.parametrize("name", one_in(3, PLANS))
def test_trained_values_are_those_without_a_cache(name, blobs, tmp_path):
    plan, users, start = PLANS[name], blobs(16), network()
    train, test = users.subset(np.arange(12)), users.subset(np.arange(12, 16))
    without = plan.fit(start, train, test=test)
    behind = plan.fit(start, train, test=test, options=RunOptions(prefix_cache=tmp_path / "cache"))
    ours, theirs = moved_by_name(behind.model, start), moved_by_name(without.model, start)
    assert ours.keys() == theirs.keys()
    for each in ("0.weight", "0.bias"):
        assert not ours[each].any()
    for each in ("3.weight", "3.bias", "6.weight", "6.bias"):
        assert theirs[each].any()
        # convolutions of batches of other sizes round otherwise: 1e-7 of a value, in some 30 steps
        assert (ours[each] - theirs[each]).norm() <= 1e-4 * theirs[each].norm(), each
    assert type(behind.model) is nn.Sequential
    assert not behind.model.training
    for field in ("epsilon", "delta", "unit", "mechanism", "sampling", "assumptions"):
        assert getattr(behind.statement, field) == getattr(without.statement, field)
    for when in ("untrained", "trained"):
        ours_at, theirs_at = (one.evaluation[when] for one in (behind, without))
        assert ours_at["genuine_pairs"] == theirs_at["genuine_pairs"]
        assert ours_at["auc"] == pytest.approx(theirs_at["auc"], abs=0.02)  # of pairs at the edge of a bin


@pytest.mark.slow
def test_a_shared_head_is_released_next_to_the_whole_model(blobs, tmp_path):
    result = PLANS["fedavg"].fit(
        network(), blobs(12), out=tmp_path / "run", options=RunOptions(prefix_cache=tmp_path / "cache")
    )
    released = load_file(tmp_path / "run" / "model.safetensors")
    assert released.keys() == {*network().state_dict(), "head.weight"}
    assert result.head is not None
    assert torch.equal(released["0.weight"], network()[0].weight)


@pytest.mark.slow
def test_examples_are_trained_behind_a_cache_similar(tmp_path):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (80, 8, 8, 1), np.uint8), rng.integers(0, 4, 80)
    whole = data.examples_from_arrays(pixels, labels, num_classes=4)
    train, test = whole.subset(np.arange(60)), whole.subset(np.arange(60, 80))
    plan = DPSGD(steps=4, cohort=20, noise=1.0, seed=1, trainable="last_blocks:2", delta=1e-3)
    without = plan.fit(network(), train, test=test)
    behind = plan.fit(network(), train, test=test, options=RunOptions(prefix_cache=tmp_path / "cache"))
    for name, change in moved_by_name(without.model, network()).items():
        assert (moved_by_name(behind.model, network())[name] - change).norm() <= 1e-4 * change.norm()
    assert behind.statement.epsilon == without.statement.epsilon
    assert behind.evaluation["trained"]["accuracy"] == pytest.approx(without.evaluation["trained"]["accuracy"], abs=0.1)


@pytest.mark.slow
def test_adapters_and_a_projection_are_trained_behind_what_lies_before_them(blobs, tmp_path):
    def start() -> nn.Module:
        model = network()
        models.add_lora(model, rank=2, layers="3", generator=torch.Generator().manual_seed(0))
        return models.add_projection(model, 4, 3, generator=torch.Generator().manual_seed(1))

    plan = FedEmb(cohort={"users_per_client": 2}, client={"epochs": 1}, **{**FEDERATED, "trainable": "lora|projection"})
    without = plan.fit(start(), blobs(12))
    behind = plan.fit(start(), blobs(12), options=RunOptions(prefix_cache=tmp_path / "cache"))
    for name, change in moved_by_name(without.model, start()).items():
        assert bool(change.any()) == ("lora" in name or "projection" in name), name
        assert (moved_by_name(behind.model, start())[name] - change).norm() <= 1e-4 * change.norm() + 1e-7, name


class StopAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds, self.models = rounds, []

    def on_round(self, row):
        if row["round"] == self.rounds:
            raise Stop

    def on_evaluation(self, row, model):
        self.models.append(model)


@pytest.mark.parametrize("seed", slow_but([1, None], None))
def test_a_run_that_goes_on_is_the_run_that_was_never_stopped(seed, blobs, tmp_path):
    """Also where the model that it is given has other frozen layers by now, as one that was drawn at random has."""
    plan = FedEmb(cohort={"users_per_client": 2}, client={"epochs": 1}, **{**FEDERATED, "seed": seed, "rounds": 4})
    users, cache = blobs(12), tmp_path / "cache"
    stopped = plan.fit(
        network(), users, out=tmp_path / "run", options=RunOptions(prefix_cache=cache, callbacks=[StopAfter(2)])
    )
    assert not stopped.finished
    later = plan.fit(network(9), users, out=tmp_path / "run", resume=True, options=RunOptions(prefix_cache=cache))
    assert later.finished
    assert torch.equal(later.model.state_dict()["0.weight"], network()[0].weight)
    if seed is not None:
        whole = plan.fit(network(), users, out=tmp_path / "whole", options=RunOptions(prefix_cache=cache))
        for name, value in whole.model.state_dict().items():
            assert torch.equal(later.model.state_dict()[name], value), name
        model = "model.safetensors"
        assert (tmp_path / "run" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()


@pytest.mark.parametrize("first", slow_but([True, False], True))
def test_a_run_goes_on_as_it_began_with_a_cache_or_without(first, blobs, tmp_path):
    """The sums differ by round-off, and under one noise that difference would leave without any."""
    plan, users = PLANS["fedemb"], blobs(12)
    caches = [tmp_path / "cache", None] if first else [None, tmp_path / "cache"]
    plan.fit(
        network(), users, out=tmp_path / "run", options=RunOptions(prefix_cache=caches[0], callbacks=[StopAfter(1)])
    )
    with pytest.raises(InputError, match="from another plan, model or data set"):
        plan.fit(network(), users, out=tmp_path / "run", resume=True, options=RunOptions(prefix_cache=caches[1]))


def test_other_settings_are_refused_before_a_record_goes_through_the_layers(blobs, tmp_path):
    plan, run = PLANS["fedemb"], tmp_path / "run"
    plan.fit(
        network(), blobs(12), out=run, options=RunOptions(prefix_cache=tmp_path / "cache", callbacks=[StopAfter(1)])
    )
    with pytest.raises(InputError, match="rounds 3 → 9"):
        replace(plan, rounds=9).fit(
            network(), blobs(12), out=run, resume=True, options=RunOptions(prefix_cache=tmp_path / "other")
        )
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_cache_of_other_records_says_that_a_run_goes_on_with_its_own(blobs, tmp_path):
    plan, run = PLANS["fedemb"], tmp_path / "run"
    plan.fit(
        network(), blobs(12), out=run, options=RunOptions(prefix_cache=tmp_path / "cache", callbacks=[StopAfter(1)])
    )
    with pytest.raises(InputError, match=r"made of something else .* goes on with the layers and records that it"):
        plan.fit(
            network(), blobs(12, seed=5), out=run, resume=True, options=RunOptions(prefix_cache=tmp_path / "cache")
        )


@pytest.mark.slow
def test_a_callback_is_reported_of_the_whole_model(blobs, tmp_path):
    told = StopAfter(0)
    users = blobs(12)

    PLANS["fedemb"].fit(
        network(),
        users,
        validation=blobs(6, seed=1),
        options=RunOptions(evaluate_every=1, callbacks=[told], prefix_cache=tmp_path / "cache"),
    )
    assert len(told.models) == 4
    assert all(model.state_dict().keys() == network().state_dict().keys() for model in told.models)
    assert not torch.equal(told.models[0][6].weight, told.models[3][6].weight)


def test_a_trial_writes_no_cache(blobs, tmp_path):
    PLANS["fedemb"].try_out(network(), blobs(12), options=RunOptions(prefix_cache=tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
    with pytest.raises(InputError, match="nothing is frozen"):
        FedEmb(noise=1.0, cohort={"size": 2, "users_per_client": 2}).try_out(
            network(), blobs(12), options=RunOptions(prefix_cache=tmp_path / "cache")
        )


def test_a_trial_refuses_a_place_that_is_a_file(blobs, tmp_path):
    (tmp_path / "faces.csv").write_text("user,file")
    with pytest.raises(InputError, match=r"prefix_cache must be a folder, and .*faces\.csv is a file"):
        PLANS["fedemb"].try_out(network(), blobs(12), options=RunOptions(prefix_cache=tmp_path / "faces.csv"))


def test_what_is_refused_leaves_neither_run_nor_cache(blobs, tmp_path):
    with pytest.raises(InputError, match="nothing is frozen"):
        FedEmb(noise=1.0, cohort={"size": 2, "users_per_client": 2}).fit(
            network(), blobs(12), out=tmp_path / "run", options=RunOptions(prefix_cache=tmp_path / "cache")
        )
    assert list(tmp_path.iterdir()) == []


def test_augmented_pictures_are_refused(tmp_path):
    examples = data.examples_from_arrays(np.zeros((20, 8, 8, 1), np.uint8), np.arange(20) % 4, num_classes=4)
    plan = DPSGD(steps=1, cohort=4, noise=1.0, examples={"augmentation": "flip"}, trainable="last")
    with pytest.raises(InputError, match="augmentation=flip changes pictures before the frozen layers"):
        plan.fit(network(), examples, options=RunOptions(prefix_cache=tmp_path / "cache"))


def test_nothing_that_a_run_writes_holds_a_row(blobs, tmp_path):
    """The run's folder names the cache at most; the plan does not, from Python."""
    PLANS["fedemb"].fit(network(), blobs(12), out=tmp_path / "run", options=RunOptions(prefix_cache=tmp_path / "cache"))
    frozen = load_file(tmp_path / "run" / "checkpoint" / "frozen.safetensors")
    assert frozen.keys() == {"0.weight", "0.bias"}
    assert "cache" not in json.dumps(json.loads((tmp_path / "run" / "plan.json").read_text()))


def test_rows_within_the_folder_of_a_run_are_refused(blobs, tmp_path):
    plan, run = PLANS["fedemb"], tmp_path / "run"
    (tmp_path / "link").symlink_to(run)
    for place in (run, run / "cache", tmp_path / "link" / "cache"):
        with pytest.raises(InputError, match="must lie outside of the run's folder"):
            plan.fit(network(), blobs(12), out=run, options=RunOptions(prefix_cache=place))
    assert not run.exists()
    plan.fit(
        network(), blobs(12), out=run, options=RunOptions(prefix_cache=tmp_path / "cache", callbacks=[StopAfter(1)])
    )
    with pytest.raises(InputError, match="must lie outside of the run's folder"):
        plan.fit(network(), blobs(12), out=run, resume=True, options=RunOptions(prefix_cache=run / "cache"))


def test_a_run_does_not_go_on_with_a_model_of_other_shapes(blobs, tmp_path):
    plan, run = PLANS["fedemb"], tmp_path / "run"
    plan.fit(
        network(), blobs(12), out=run, options=RunOptions(prefix_cache=tmp_path / "cache", callbacks=[StopAfter(1)])
    )
    other = network()
    other[0], other[3] = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 8, 3)
    with pytest.raises(InputError, match="model of other shapes"):
        plan.fit(other, blobs(12), out=run, resume=True, options=RunOptions(prefix_cache=tmp_path / "other"))


# Statistics of public inputs follow the released weights, whoever was trained or measured before.
PLAN = FedAvg(rounds=3, cohort=8, clipping=None, noise=0.0, client={"loss": "squared", "learning_rate": 0.05}, seed=1)


class Normed(nn.Module):
    """A layer, a norm with public statistics, and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), PublicBatchNorm(4), nn.Tanh(), nn.Linear(4, 1))
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(parameter.numel()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)[:, 0]


def normed() -> nn.Module:
    model = Normed()
    use_public_batch(model, torch.randn(16, 3, generator=torch.Generator().manual_seed(5)))
    return model


def values() -> UserDataset:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(96, 3)).astype(np.float32)
    return from_arrays(inputs, inputs.sum(1), np.arange(96) // 4)


@pytest.mark.parametrize("at_once", [1, 4])
def test_what_is_measured_on_the_way_does_not_change_what_is_learned(at_once):
    plan, found = PLAN.replace(client={"at_once": at_once}), []
    for every in (0, 1):
        cadence = Cadence(evaluate_every=every)
        found.append(
            plan.fit(normed(), values(), test=values(), validation=values(), options=RunOptions(**vars(cadence))).model
        )
    torch.testing.assert_close(found[0].state_dict(), found[1].state_dict(), atol=0, rtol=0)


def test_clients_in_a_batch_learn_what_they_learn_one_after_the_other():
    one, many = (PLAN.replace(client={"at_once": each}).fit(normed(), values()).model for each in (1, 4))
    torch.testing.assert_close(one.state_dict(), many.state_dict(), atol=1e-5, rtol=1e-4)
