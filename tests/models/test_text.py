"""Recommenders and language models."""

import re

import pytest
import torch
from torch.func import functional_call, grad, vmap

from sfumato import models
from sfumato._check import InputError
from sfumato.guard.trial import in_double
from sfumato.models import RECOMMENDERS, linear_head, matrix_factorization, recommender

# What every recommender does: values of items, a part that is a user's own, rows that an example alone touches.

ITEMS, USERS = 12, 5
OPTIONS = {
    "matrix_factorization": (
        {"factors": 4},
        {"factors": 4, "biases": True, "offset": 3.5},
        {"factors": 4, "biases": True, "classes": 3},
    ),
    "neural": (
        {"factors": 4, "hidden": (6, 3)},
        {"factors": 3, "hidden": (5,), "offset": 3.5},
        {"factors": 3, "hidden": (5,), "classes": 3},
    ),
}
EVERY = [(name, options) for name in RECOMMENDERS for options in OPTIONS[name]]


def _build(name: str, options: dict, users: int | None = None, seed: int = 0) -> torch.nn.Module:
    return recommender(name, ITEMS, users=users, generator=torch.Generator().manual_seed(seed), **options)


def _local(model: torch.nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters() if re.fullmatch(model.local_parameters, name)]


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_the_baseline_on_a_server_computes_what_each_user_computes_alone(name: str, options: dict) -> None:
    alone, server = _build(name, options), _build(name, options, USERS)
    items = torch.tensor([[3], [11], [0], [3]])
    for user in range(USERS):
        inputs = torch.cat([items, torch.full((4, 1), user)], 1)
        torch.testing.assert_close(server(inputs), alone(items))  # every user begins in the same place
    own = {key: torch.randn(USERS, *alone.get_parameter(key).shape) for key in _local(alone)}
    with torch.no_grad():
        for key, rows in own.items():
            server.get_parameter(f"{key}.weight").copy_(rows)
    for user in range(USERS):
        told = functional_call(alone, {key: rows[user] for key, rows in own.items()}, (items,))
        torch.testing.assert_close(server(torch.cat([items, torch.full((4, 1), user)], 1)), told)


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_what_is_local_is_the_users_and_a_server_has_nothing_local(name: str, options: dict) -> None:
    model = _build(name, options)
    names = {key for key, _ in model.named_parameters()}
    assert set(_local(model)) == {key for key in names if key.startswith("user_")}
    assert 0 < len(_local(model)) < len(names)
    assert _local(_build(name, options, USERS)) == []
    assert all(value.ndim == 1 for key, value in model.named_parameters() if key in _local(model))


@pytest.mark.parametrize("users", [None, USERS])
@pytest.mark.parametrize(("name", "options"), EVERY)
def test_an_example_touches_only_the_row_that_its_column_names(name: str, options: dict, users: int | None) -> None:
    model = _build(name, options, users)
    inputs = torch.tensor([[7, 2]])[:, : 1 if users is None else 2]
    model(inputs).sum().backward()
    tables = {key for key, value in model.named_parameters() if value.ndim == 2 and len(value) in (ITEMS, USERS)}
    assert {key for key in tables if re.match("item|user", key)} == set(model.row_tables)
    for key, column in model.row_tables.items():
        gradient = model.get_parameter(key).grad
        touched = gradient.abs().sum(1).nonzero()[:, 0].tolist()
        assert set(touched) <= {int(inputs[0, column])}
    assert model.get_parameter("item_factors.weight").grad.abs().sum() > 0


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_many_users_at_once_are_each_user_alone(name: str, options: dict) -> None:
    model = _build(name, options)
    parameters = dict(model.named_parameters())
    own = {key: torch.randn(3, *parameters[key].shape) for key in _local(model)}
    shared = {key: value.detach() for key, value in parameters.items() if key not in own}
    inputs = torch.randint(ITEMS, (3, 6, 1), generator=torch.Generator().manual_seed(1))

    def loss(local: dict, rest: dict, rows: torch.Tensor) -> torch.Tensor:
        return (functional_call(model, {**rest, **local}, (rows,)) ** 2).mean()

    together = vmap(grad(loss, argnums=(0, 1)), in_dims=(0, None, 0))(own, shared, inputs)
    for user in range(3):
        alone = grad(loss, argnums=(0, 1))({key: rows[user] for key, rows in own.items()}, shared, inputs[user])
        for ours, theirs in zip(together, alone, strict=True):
            for key in theirs:
                torch.testing.assert_close(ours[key][user], theirs[key])


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_the_same_generator_gives_the_same_weights(name: str, options: dict) -> None:
    one, same, other = _build(name, options), _build(name, options), _build(name, options, seed=1)
    for key, value in one.named_parameters():
        assert torch.equal(value, same.get_parameter(key))
    assert not torch.equal(one.item_factors.weight, other.item_factors.weight)
    assert one.user_factors.abs().max() > 0


def test_a_value_is_the_product_of_two_vectors_and_three_biases() -> None:
    model = matrix_factorization(2, factors=3, biases=True, offset=3.5)
    with torch.no_grad():
        model.item_factors.weight.copy_(torch.tensor([[1.0, 2, 3], [0, 1, 0]]))
        model.user_factors.copy_(torch.tensor([1.0, 0.5, -1]))
        model.item_bias.weight.copy_(torch.tensor([[0.25], [1.0]]))
        model.user_bias.fill_(-2.0)
    assert model(torch.tensor([[0], [1]])).tolist() == [3.5 - 1 + 0.25 - 2, 3.5 + 0.5 + 1 - 2]


@pytest.mark.parametrize(("name", "options"), EVERY)
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.tensor([[12]]), "must be 0 … 11, got 12"),
        (torch.tensor([[0], [-1]]), "got -1"),
        (torch.tensor([3]), r"got int64 \[1\]"),
        (torch.tensor([[3, 0]]), r"with users=… it reads \[n, 2\]"),
        (torch.tensor([[3.0]]), "got float32"),
    ],
)
def test_numbers_of_no_item_are_refused_in_one_line(
    name: str, options: dict, inputs: torch.Tensor, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        _build(name, options)(inputs)
    assert "\n" not in str(refusal.value)


def test_a_user_that_the_server_does_not_know_is_refused() -> None:
    with pytest.raises(InputError, match="users must be 0 … 4, got 5"):
        _build("neural", {}, USERS)(torch.tensor([[0, 5]]))


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_a_model_tells_a_value_or_a_logit_of_each_class_and_nothing_of_nothing(name: str, options: dict) -> None:
    each = (options["classes"],) if "classes" in options else ()
    for rows in (0, 2):
        assert _build(name, options)(torch.zeros(rows, 1, dtype=torch.int64)).shape == (rows, *each)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: recommender("svd", 3), "model must be one of matrix_factorization, neural"),
        (lambda: recommender("neural", 3, biases=True), "neural has no option biases"),
        (lambda: recommender("neural", 3, hidden=()), "at least one dense layer"),
        (lambda: matrix_factorization(0), "items must be a whole number >= 1"),
        (lambda: matrix_factorization(3, factors=0), "factors must be"),
        (lambda: matrix_factorization(3, users=0), "users must be"),
        (lambda: matrix_factorization(3, offset=float("nan")), "offset must be a finite number"),
        (lambda: matrix_factorization(3, classes=1), "classes must be"),
        (lambda: matrix_factorization(3, classes=5, offset=3.5), "offset=3.5 is for values"),
        (lambda: linear_head(0, 2), "features must be"),
    ],
)
def test_settings_that_cannot_be_are_refused(build, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_the_bias_of_a_linear_head_is_the_users_own() -> None:
    model = linear_head(4, 3, generator=torch.Generator().manual_seed(0))
    assert _local(model) == ["head.bias"]
    assert model.row_tables == {}
    features = torch.randn(2, 4)
    told = functional_call(model, {"head.bias": torch.ones(3)}, (features,))
    torch.testing.assert_close(told, features @ model.head.weight.T + 1)


# Properties of every language model: causal, padding without influence, seeded weights, mapped over clients.

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
