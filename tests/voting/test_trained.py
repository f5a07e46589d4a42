"""Trained voters: votes follow from own records and public rows alone, also with domain adaptation."""

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import UserDataset, examples_from_arrays, from_arrays
from sfumato.training.supervised import Supervised, outputs
from sfumato.voting import AEDPFL
from sfumato.voting.adaptation import DANN, _reversed
from sfumato.voting.trained import TrainedVoter
from slow import one_in

# An agent's votes follow from its own records, the public module and its part of the source, and from nothing else.

SETTINGS = Supervised(epochs=10, batch_size=8, learning_rate=0.1)
SOURCE = RandomSource.from_seed(5)


def records(examples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, examples)
    return rng.normal(size=(examples, 4)).astype(np.float32) + 3 * np.eye(3, 4, dtype=np.float32)[classes], classes


def people(count: int = 6) -> UserDataset:
    inputs, classes = records(20 * count)
    return from_arrays(inputs, classes, np.repeat(np.arange(count), 20).astype(str))


def network(*, dropout: float = 0.0, norm: bool = False) -> nn.Module:
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(8) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(4, 8), middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


QUERIES, TRUTH = records(40, seed=1)


POOL = examples_from_arrays(QUERIES)


def voter(agents: UserDataset, model: nn.Module | None = None, *, pool=POOL, settings=SETTINGS, **options):
    return TrainedVoter(agents, pool, np.arange(40), model or network(), settings, source=SOURCE, **options)


def test_hard_votes_are_one_class_and_mostly_the_right_one():
    votes = voter(people()).votes(0)
    assert votes.dtype == np.float32
    assert votes.shape == (40, 3)
    assert set(votes.ravel().tolist()) == {0.0, 1.0}
    assert (votes.sum(1) == 1).all()
    assert (votes.argmax(1) == TRUTH).mean() > 0.8


def test_soft_votes_add_up_to_one_at_most_and_lean_as_the_hard_ones_do():
    agents = people()
    soft, hard = voter(agents, soft=True).votes(2), voter(agents).votes(2)
    assert (soft.sum(1, dtype=np.float64) <= 1).all()
    assert (soft.sum(1, dtype=np.float64) > 1 - 1e-5).all()
    assert ((soft > 0) & (soft < 1)).any()
    assert np.array_equal(soft.argmax(1), hard.argmax(1))


@pytest.mark.parametrize(
    ("model", "adaptation"),
    one_in(2, [network(), network(dropout=0.3), network(norm=True)], [DANN(weight=None), DANN()]),
)
def test_any_number_of_threads_of_any_kind_gives_the_same_votes(model, adaptation):
    asked = voter(people(), model, soft=True, adaptation=adaptation)
    alone = [asked.votes(agent) for agent in range(6)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(asked.votes, reversed(range(6))))[::-1]
    assert np.array_equal(alone, together)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert np.array_equal(alone[0], asked.votes(0))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_agents_votes_do_not_depend_on_who_else_is_there():
    agents = people()
    inputs, labels = agents.examples(0)
    more, others = records(40, seed=9)
    names = np.repeat(["0", "1", "2"], 20)
    mixed = from_arrays(np.concatenate([inputs, more]), np.concatenate([labels, others]), names)
    assert np.array_equal(voter(agents, soft=True).votes(0), voter(mixed, soft=True).votes(0))


def test_agents_with_equal_records_draw_for_themselves():
    inputs, classes = records(20)
    twins = from_arrays(np.tile(inputs, (2, 1)), np.tile(classes, 2), np.repeat(["a", "b"], 20))
    asked = voter(twins, soft=True)
    assert not np.array_equal(asked.votes(0), asked.votes(1))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("count", [1, 5])
def test_an_agent_with_one_class_votes_for_it(soft, count):
    inputs, classes = records(21)
    names = np.array(["many"] * (21 - count) + ["one"] * count)
    classes[-count:] = 2
    votes = voter(from_arrays(inputs, classes, names), network(norm=True), soft=soft).votes(1)
    assert votes.tolist() == [[0, 0, 1]] * 40


def test_an_agent_without_records_abstains():
    agents = people(2)
    empty = dataclasses.replace(agents, offsets=np.array([0, 0, agents.num_examples]))
    assert not voter(empty).votes(0).any()


def test_an_agent_with_two_records_passes_through_batch_norm():
    inputs, classes = records(30)
    classes[:2] = 0, 1
    agents = from_arrays(inputs, classes, np.array(["two"] * 2 + ["many"] * 28))
    assert np.isfinite(voter(agents, network(norm=True), soft=True, adaptation=DANN()).votes(0)).all()


def test_an_adapted_agent_votes_otherwise_and_adapts_to_the_whole_pool():
    larger = examples_from_arrays(np.concatenate([QUERIES, records(40, seed=2)[0]]))
    agents = people()
    pools = [{}, {"adaptation": DANN()}, {"adaptation": DANN(), "pool": larger}]
    votes = [voter(agents, soft=True, **each).votes(0) for each in pools]
    assert not np.array_equal(votes[0], votes[1])
    assert not np.array_equal(votes[1], votes[2])
    assert np.array_equal(votes[0], voter(agents, soft=True, pool=larger).votes(0))


def test_attributes_are_voted_on_one_by_one():
    agents = people()
    bits = np.asarray(agents.inputs[:, :3]) > 1
    several = dataclasses.replace(agents, labels=bits)
    hard, soft = voter(several).votes(0), voter(several, soft=True).votes(0)
    assert set(hard.ravel().tolist()) == {0.0, 1.0}
    assert np.array_equal(hard, (soft >= 0.5).astype(np.float32))
    assert ((hard > 0) == (QUERIES[:, :3] > 1)).mean() > 0.75


def test_records_that_are_not_finite_are_refused_by_the_agents_name():
    inputs, classes = records(40)
    inputs[3] = np.nan
    agents = from_arrays(inputs, classes, np.repeat(["ward 3", "ward 4"], 20))
    asked = voter(agents)
    with pytest.raises(InputError, match=r"^agent ward 3: its model gives no finite number for query 0") as error:
        asked.votes(0)
    assert "\n" not in str(error.value)
    asked.votes(1)


def test_a_model_with_other_outputs_is_refused_by_the_agents_name():
    with pytest.raises(InputError, match="agent 0: the model gives outputs"):
        voter(people(), nn.Linear(4, 5)).votes(0)


def test_the_fingerprint_reports_settings_weights_and_kinds_of_votes_separate():
    agents, other = people(), network()
    with torch.no_grad():
        other[4].bias[0] += 1e-6
    faster = dataclasses.replace(SETTINGS, learning_rate=0.2)
    told = [
        voter(agents),
        voter(agents, soft=True),
        voter(agents, adaptation=DANN()),
        voter(agents, adaptation=DANN(weight=0.5)),
        voter(agents, other),
        voter(agents, settings=faster),
    ]
    assert len({each.fingerprint() for each in told}) == len(told)
    assert voter(agents).fingerprint() == voter(people()).fingerprint()


# Domain adaptation helps where the pool looks unlike the records, and changes nothing that it should not.

MOONS = Supervised(epochs=60, learning_rate=0.05)


def moons(seed: int, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Two half-moons, turned: the toy problem of Ganin et al."""
    rows, classes = make_moons(300, noise=0.05, random_state=seed)
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return ((rows - rows.mean(0)) @ np.array([[c, s], [-s, c]])).astype(np.float32), classes.astype(np.int64)


def moon_network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 15), nn.Sigmoid(), nn.Linear(15, 2))


@pytest.mark.slow
def test_adapted_models_are_right_more_often_on_turned_moons():
    plain, adapted = [], []
    for seed in range(6):
        inputs, classes = moons(seed, 0)
        pool, truth = moons(100 + seed, 35)
        for adaptation, found in ((None, plain), (DANN().towards(pool), adapted)):
            source = RandomSource.from_seed(seed)
            model = MOONS.fit(moon_network(seed), inputs, classes, source=source, added=adaptation)
            found.append((outputs(model, pool).argmax(1) == truth).mean())
    assert np.mean(adapted) > np.mean(plain) + 0.08  # 0.88 against 0.75, each within 0.08
    assert all(after >= before for before, after in zip(plain, adapted))


def test_smoothness_on_the_pool_moves_boundaries_out_of_it_alone_and_with_a_domain_classifier():
    plain, smooth, both = [], [], []
    kinds = ((None, plain), (DANN(weight=None, smoothness=0.3), smooth), (DANN(smoothness=0.3), both))
    for seed in range(3):
        inputs, classes = moons(seed, 0)
        pool, truth = moons(100 + seed, 25)
        for adaptation, found in kinds:
            added = None if adaptation is None else adaptation.towards(pool)
            source = RandomSource.from_seed(seed)
            model = MOONS.fit(moon_network(seed), inputs, classes, source=source, added=added)
            found.append((outputs(model, pool).argmax(1) == truth).mean())
    assert np.mean(smooth) > np.mean(plain)
    assert np.mean(both) > np.mean(plain)


def test_the_gradient_is_reversed_and_weighted_and_the_value_is_not():
    inputs = torch.randn(3, 2, requires_grad=True)
    features = 2 * inputs
    out = _reversed(features, 0.25)
    assert torch.equal(out, 2 * inputs)
    (out * torch.arange(6.0).view(3, 2)).sum().backward()
    assert torch.equal(inputs.grad, -0.5 * torch.arange(6.0).view(3, 2))


def test_nothing_hangs_in_the_model_after_training():
    inputs, classes = moons(0, 0)
    start = moon_network()
    model = MOONS.fit(start, inputs, classes, source=RandomSource.from_seed(0), added=DANN().towards(inputs))
    assert not any(layer._forward_pre_hooks for each in (start, model) for layer in each.modules())
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in start.named_parameters()]


def test_the_same_source_adapts_in_the_same_way():
    inputs, classes = moons(0, 0)
    pool, _ = moons(1, 35)

    def once() -> np.ndarray:
        source = RandomSource.from_seed(3)
        model = Supervised(epochs=2).fit(moon_network(), inputs, classes, source=source, added=DANN().towards(pool))
        return outputs(model, pool)

    assert np.array_equal(once(), once())


def test_batch_norm_meets_no_batch_of_one():
    inputs, classes = moons(0, 0)
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    settings, source = Supervised(epochs=3, batch_size=2), RandomSource.from_seed(0)
    adapted = settings.fit(model, inputs[:5], classes[:5], source=source, added=DANN(batch_size=2).towards(inputs[:3]))
    assert np.isfinite(outputs(adapted, inputs)).all()


def test_the_features_are_the_input_of_the_last_linear_layer_or_of_the_one_that_is_named():
    model = moon_network()
    assert DANN().feature_layer(model) == ("4", model[4])
    assert DANN(layer="2").feature_layer(model) == ("2", model[2])


@pytest.mark.parametrize(
    ("adaptation", "model", "told"),
    [
        (DANN(layer="clasifier"), nn.Sequential(nn.Linear(2, 2)), "no layer clasifier"),
        (DANN(), nn.Sequential(nn.Unflatten(1, (2, 1)), nn.Conv1d(2, 2, 1), nn.Flatten()), "no linear layer"),
    ],
)
def test_a_model_without_such_a_layer_is_refused(adaptation, model, told):
    with pytest.raises(InputError, match=told):
        MOONS.fit(model, *moons(0, 0), source=RandomSource.from_seed(0), added=adaptation.towards(moons(0, 0)[0]))


def test_a_layer_that_is_never_used_is_refused():
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.used(rows)

    rows, classes = moons(0, 0)
    with pytest.raises(InputError, match="does not use its layer idle"):
        MOONS.fit(Idle(), rows, classes, source=RandomSource.from_seed(0), added=DANN().towards(rows))


@pytest.mark.parametrize("field", [{"weight": 0}, {"hidden": 0}, {"batch_size": 1}, {"smoothness": -0.1}])
def test_settings_out_of_range_are_refused_by_name(field):
    name = next(iter(field))
    with pytest.raises(InputError, match=rf"^{name} must be"):
        DANN(**field)
    with pytest.raises(InputError, match=rf"^adaptation\.{name} must be"):
        AEDPFL(adaptation=field)


@pytest.mark.parametrize(
    ("adaptation", "rows", "told"),
    [
        (DANN(), np.zeros((1, 2), np.float32), "at least 2 public rows"),
        (DANN(weight=None, smoothness=1), np.zeros((1, 2), np.float32), "leave smoothness out"),
        (DANN(smoothness=1), np.zeros((9, 2), np.int64), "smoothness moves inputs a little, and int64 cannot be"),
    ],
)
def test_a_pool_that_no_agent_can_adapt_to_is_refused(adaptation, rows, told):
    with pytest.raises(InputError, match=told):
        adaptation.towards(rows)
