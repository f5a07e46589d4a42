"""Properties of every language model: causal, padding without influence, seeded weights, mapped over clients."""

import pytest
import torch
from torch.func import functional_call, vmap

from sfumato import models
from sfumato._check import InputError
from sfumato.guard.trial import in_double

SMALL = {
    "lstm": {"embedding_dim": 4, "hidden": 6, "layers": 2, "projection": 5},
    "transformer": {"width": 8, "depth": 2, "heads": 2},
}


def built(name: str, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return models.language_model(name, 11, 7, generator=generator, **SMALL[name])


def tokens(rows: int = 3, seed: int = 1) -> torch.Tensor:
    return torch.randint(1, 11, (rows, 7), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_logits_stand_at_every_place_and_depend_on_nothing_behind_it(name: str):
    model, inputs = built(name), tokens()
    logits = model(inputs)
    assert logits.shape == (3, 7, 11)
    for place in range(7):
        other = inputs.clone()
        other[:, place:] = 11 - other[:, place:]
        changed = model(other)
        torch.testing.assert_close(changed[:, :place], logits[:, :place])
        assert not torch.allclose(changed[:, place], logits[:, place])


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_how_far_a_sequence_is_padded_does_not_matter(name: str):
    model, inputs = built(name), tokens()
    inputs[:, 4:] = 0
    torch.testing.assert_close(model(inputs)[:, :4], model(inputs[:, :4]))


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_no_sequence_changes_anothers_logits(name: str):
    model, inputs = built(name), tokens()
    torch.testing.assert_close(model(inputs)[1:2], model(inputs[1:2]))


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_weights_come_from_the_generator_alone(name: str):
    one, same, other = (built(name, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_mapped_over_clients_it_computes_the_same(name: str):
    model, inputs = built(name).double(), torch.stack([tokens(seed=2), tokens(seed=3)])
    stacked = {key: torch.stack([value, 1.5 * value]) for key, value in model.named_parameters()}
    with in_double(model):
        mapped = vmap(lambda weights, rows: functional_call(model, weights, (rows,)))(stacked, inputs)
        for client, rows in enumerate(inputs):
            own = {key: value[client] for key, value in stacked.items()}
            torch.testing.assert_close(mapped[client], functional_call(model, own, (rows,)), rtol=1e-9, atol=1e-12)


def test_what_nobody_says_is_as_in_the_federated_tasks():
    words, characters = models.lstm(vocabulary_size=10_004), models.lstm(vocabulary_size=100)
    assert (words.lstm.hidden_size, words.lstm.num_layers, words.output.in_features) == (670, 1, 96)
    assert (characters.lstm.hidden_size, characters.lstm.num_layers, characters.output.in_features) == (256, 2, 256)


def test_what_a_model_does_not_have_is_refused():
    with pytest.raises(InputError, match="lstm has no option depth; it has embedding_dim, hidden, layers, oov_buckets"):
        models.language_model("lstm", 11, 7, depth=2)
    with pytest.raises(InputError, match="width must be a multiple of heads=4, got 6"):
        models.language_model("transformer", 11, 7, width=6)
    with pytest.raises(InputError, match=r"reads up to 7 tokens, got 8"):
        built("transformer")(torch.ones(1, 8, dtype=torch.int64))
    with pytest.raises(InputError, match="hidden must be a whole number >= 1, got 0"):
        models.lstm(vocabulary_size=11, hidden=0)
