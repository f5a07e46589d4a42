"""The small parts: categories, chains, maps, the critic's penalty."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.synthesis.decoder import EVEN, RowCalibration, knots_of, mapped
from sfumato.synthesis.networks import CategoryCodec, Chain, Critic


def test_a_chain_draws_what_it_has_learned_column_by_column():
    torch.manual_seed(0)
    chain = Chain(5)
    torch.nn.init.normal_(chain.weight)
    base, moved = torch.randn(7, 5), torch.randn(5, 7)
    values = chain.drawn(base, lambda place, told: told + moved[place])
    torch.testing.assert_close(chain(base, values) + moved.T, values, rtol=1e-5, atol=1e-5)


def test_a_column_of_a_chain_knows_nothing_of_those_behind_it():
    torch.manual_seed(0)
    chain = Chain(4)
    torch.nn.init.normal_(chain.weight)
    values = torch.randn(4, requires_grad=True)
    for place in range(4):
        (gradient,) = torch.autograd.grad(chain(torch.zeros(4), values)[place], values)
        assert (gradient[place:] == 0).all()
        assert (gradient[:place] != 0).all()


def test_missing_categories_count_in_no_loss():
    codec = CategoryCodec([3, 2], embedding=4)
    logits = torch.randn(2, 5)
    full = codec.losses(logits, torch.tensor([[1, 0], [1, 0]]))
    first = codec.losses(logits, torch.tensor([[1, -1], [-1, -1]]))
    torch.testing.assert_close(first[0], -logits[0, :3].log_softmax(0)[1])
    assert first[1] == 0
    assert (full > first).all()


def test_categories_are_drawn_with_their_probabilities():
    """20,000 draws; each share within five standard deviations."""
    codec = CategoryCodec([3, 2], embedding=None)
    shares = torch.tensor([0.7, 0.2, 0.1, 0.4, 0.6])
    codes = codec.drawn(shares.log().expand(20_000, -1), torch.Generator().manual_seed(0))
    found = torch.cat([torch.bincount(codes[:, 0], minlength=3), torch.bincount(codes[:, 1], minlength=2)]) / 20_000
    assert (found - shares).abs().max() < 5 * 0.5 / 20_000**0.5


@given(st.integers(0, 1_000), st.floats(0.1, 10.0), st.floats(-5.0, 5.0))
def test_a_map_keeps_ranks_and_makes_numbers_normal(seed: int, scale: float, shift: float):
    raw = torch.from_numpy(np.random.default_rng(seed).gamma(2.0, scale, 2_000) + shift).float()
    scores = mapped(raw, knots_of(raw))
    assert (scores[raw.argsort()].diff() >= -1e-5).all()
    assert abs(scores.median().item()) < 0.02
    assert abs(scores.std().item() - 1.0) < 0.05


def test_a_map_of_normal_scores_changes_next_to_nothing():
    raw = torch.linspace(-2.5, 2.5, 101)
    torch.testing.assert_close(mapped(raw, EVEN), raw, atol=1e-3, rtol=0)


def test_shifts_move_shares_to_where_they_should_be():
    """What is observed follows the shift alone here, so one whole step is enough."""
    generator = torch.Generator().manual_seed(0)
    wanted = np.array([0.2, 0.9, 0.0, 1.0])
    told = RowCalibration.none(4, 0)
    for _ in range(4):
        seen = (torch.rand(50_000, 4, generator=generator) < torch.sigmoid(told.masks + 0.5)).float()
        codes = torch.zeros(50_000, 0, dtype=torch.int64)
        told = told.improved(raw=None, seen=seen, codes=codes, sizes=(), rates=wanted, shares=np.zeros(0), stride=1.0)
    found = torch.sigmoid(told.masks + 0.5).numpy()
    np.testing.assert_allclose(found, wanted, atol=0.01)


def test_the_critic_is_penalised_for_gradients_that_are_not_one():
    """A linear critic with weights w has the gradient w everywhere."""
    critic = Critic(3, 4)
    linear = torch.nn.Linear(3, 1, bias=False)
    linear.weight.data = torch.tensor([[3.0, 0.0, 4.0]])
    critic.layers = torch.nn.Sequential(linear)
    zero = torch.zeros(2, 3)
    losses = critic.losses(zero, zero, torch.full((2, 1), 0.5), penalty=10.0)
    torch.testing.assert_close(losses, torch.full((2,), 160.0))
