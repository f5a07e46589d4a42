"""An agent's votes follow from its own records, the public module and its part of the source, and from nothing else."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import UserDataset, examples_from_arrays, from_arrays
from sfumato.training.supervised import Supervised
from sfumato.voting.trained import DANN, TrainedVoter

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


@pytest.mark.parametrize("model", [network(), network(dropout=0.3), network(norm=True)])
@pytest.mark.parametrize("adaptation", [None, DANN()])
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


def test_the_fingerprint_tells_settings_weights_and_kinds_of_votes_apart():
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
