"""Parts of the LSTM that are a user's own: vectors of words outside of the vocabulary, and of the user."""

import re

import pytest
import torch
from torch.func import functional_call, vmap

from sfumato._check import InputError
from sfumato.models import language_model, lstm

SMALL = {"vocabulary_size": 10, "embedding_dim": 4, "hidden": 6, "layers": 1, "projection": 0}


def _build(**options: int) -> torch.nn.Module:
    return lstm(**SMALL, **options, generator=torch.Generator().manual_seed(0))


def _local(model: torch.nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters() if re.fullmatch(model.local_parameters, name)}


def test_without_a_local_part_weights_are_those_of_the_model_as_it_was():
    model = _build()
    assert _local(model) == set()
    assert [name for name, _ in model.named_parameters()] == [
        "embedding.weight",
        "lstm.weight_ih_l0",
        "lstm.weight_hh_l0",
        "lstm.bias_ih_l0",
        "lstm.bias_hh_l0",
        "output.weight",
        "output.bias",
    ]
    generator = torch.Generator().manual_seed(0)
    dense = torch.empty(10, 6)
    torch.nn.init.xavier_uniform_(dense, generator=generator)
    table = torch.empty(10, 4).normal_(std=0.5, generator=generator)
    assert torch.equal(model.output.weight, dense)
    assert torch.equal(model.embedding.weight, table)


def test_what_is_local_is_named():
    assert _local(_build(oov_buckets=3)) == {"oov_embedding.weight"}
    assert _local(_build(user_features=2)) == {"user_vector"}
    assert _local(_build(oov_buckets=3, user_features=2)) == {"oov_embedding.weight", "user_vector"}
    assert _local(language_model("lstm", 10, 5, oov_buckets=3)) == {"oov_embedding.weight"}


def test_words_of_the_vocabulary_are_read_without_the_local_table():
    model = _build(oov_buckets=3)
    known, other = torch.tensor([[8, 1, 2]]), torch.tensor([[8, 11, 2]])
    before = model(known).detach(), model(other).detach()
    with torch.no_grad():
        model.oov_embedding.weight[1] += 1
    assert torch.equal(model(known), before[0])
    assert torch.equal(model(other)[:, :1], before[1][:, :1])
    assert not torch.allclose(model(other)[:, 1:], before[1][:, 1:])
    assert model(other).shape == (1, 3, 10)


def test_only_the_rows_of_the_buckets_that_are_read_get_a_gradient():
    model = _build(oov_buckets=4)
    model(torch.tensor([[8, 10, 12]]))[:, :, 3].sum().backward()
    assert model.oov_embedding.weight.grad.abs().sum(1).nonzero()[:, 0].tolist() == [0, 2]
    assert model.embedding.weight.grad.abs().sum(1).nonzero()[:, 0].tolist() == [8]


def test_a_users_vector_is_read_at_every_step():
    model = _build(user_features=2)
    tokens = torch.tensor([[8, 1, 2]])
    before = model(tokens)
    after = functional_call(model, {"user_vector": torch.tensor([1.0, -2.0])}, (tokens,))
    assert ((before - after).abs().sum(2) > 0).all()


def test_many_users_at_once_are_each_user_alone():
    model = _build(oov_buckets=3, user_features=2)
    own = {"oov_embedding.weight": torch.randn(4, 3, 4), "user_vector": torch.randn(4, 2)}
    tokens = torch.randint(13, (4, 2, 5), generator=torch.Generator().manual_seed(1))
    together = vmap(lambda local, rows: functional_call(model, local, (rows,)))(own, tokens)
    for user in range(4):
        alone = functional_call(model, {name: rows[user] for name, rows in own.items()}, (tokens[user],))
        torch.testing.assert_close(together[user], alone)


@pytest.mark.parametrize("name", ["oov_buckets", "user_features"])
def test_a_size_below_zero_is_refused(name: str):
    with pytest.raises(InputError, match=f"{name} must be a whole number >= 0"):
        lstm(vocabulary_size=10, **{name: -1})


@pytest.mark.parametrize(("buckets", "wrong"), [(0, 10), (3, 13), (3, -1)])
def test_ids_that_the_model_does_not_know_are_refused_in_words(buckets: int, wrong: int):
    model = lstm(vocabulary_size=10, hidden=4, layers=1, oov_buckets=buckets)
    with pytest.raises(InputError, match=f"knows the ids 0 to {9 + buckets}, got {wrong}"):
        model(torch.tensor([[1, wrong]]))
