"""Parameters that lie beside layers, layers that are used in unusual ways, and parameters that are not used at all."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from sfumato._check import InputError
from sfumato.per_example import Recording, covered, layers_of


class Vision(nn.Module):
    """A small vision transformer: patches, a class token, positions, a temperature."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.positions = nn.Parameter(torch.randn(1, 5, 8))
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions
        return F.cross_entropy(self.head(self.layer(tokens)[:, 0]) * self.temperature, labels, reduction="none")


@pytest.mark.parametrize("expand", [True, False])
def test_parameters_beside_layers(against_loop, expand: bool) -> None:
    model = Vision()
    against_loop(model, model, (torch.randn(4, 1, 8, 8), torch.randint(3, (4,))), expand=expand)
    assert isinstance(model.token, nn.Parameter)
    assert list(dict(model.named_parameters()))[:3] == ["token", "positions", "temperature"]


def test_parameters_beside_layers_get_copies_and_the_layers_keep_their_rules() -> None:
    paths = {(layer.name, type(layer.rule).__name__): set(layer.wanted) for layer in layers_of(Vision())}
    assert paths["", "ExpandRule"] == {"token", "positions", "temperature"}
    assert ("layer.self_attn", "AttentionRule") in paths


def test_a_module_that_draws_random_numbers_cannot_be_run_again() -> None:
    model, batch = Vision(dropout=0.1), (torch.randn(4, 1, 8, 8), torch.randint(3, (4,)))
    with (
        pytest.raises(InputError, match=r"draws random numbers.*move positions, temperature, token"),
        Recording(covered(model, expand=False)) as recording,
    ):
        recording.backward(model(*batch))
    with Recording(covered(model)) as recording:
        recording.backward(model(*batch))
    assert recording.squared_norms().isfinite().all()


class Positions(nn.Module):
    """Positions from a table that is read once for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 6)
        self.positions = nn.Embedding(9, 6)
        self.shift = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[1])[None]
        hidden = self.words(words) * self.shift(self.positions(places))
        return self.head(hidden.tanh()).sum(dim=(1, 2))


def test_what_is_computed_once_for_all_examples_counts_for_each(against_loop) -> None:
    model = Positions()
    against_loop(model, model, (torch.randint(12, (4, 7)),))


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_parametrised_weights(against_loop, kind: str) -> None:
    layer = getattr(parametrizations, kind)(nn.Linear(4, 6))
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(6, 1)).eval()
    against_loop(model, lambda values: model(values).squeeze(1), (torch.randn(5, 4),))


def test_weights_that_a_hook_computes(against_loop) -> None:
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 1))
    against_loop(model, lambda values: model(values).squeeze(1), (torch.randn(5, 4),))


def test_unused_parameters_get_zero_and_are_named(against_loop) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "idle": nn.Linear(4, 1, bias=False)})
    recording = against_loop(model, lambda values: model["used"](values).squeeze(1), (torch.randn(3, 4),))
    assert recording.unused() == ["idle.weight"]


def test_one_module_at_two_places(against_loop) -> None:
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.Tanh(), nn.Sequential(layer, nn.Tanh()), nn.Linear(4, 1))
    against_loop(model, lambda values: model(values).squeeze(1), (torch.randn(3, 4),))


def test_half_precision_by_autocast() -> None:
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))

    def losses(images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(images), labels, reduction="none")

    images, labels = torch.randn(4, 1, 6, 6), torch.randint(3, (4,))
    with Recording(covered(model)) as recording:
        recording.backward(losses(images, labels))
    expected = torch.autograd.grad(losses(images, labels).sum(), recording.parameters)
    for total, wanted in zip(recording.weighted_sum(torch.ones(4)), expected, strict=True):
        assert total.dtype == torch.float32
        torch.testing.assert_close(total, wanted, rtol=0.02, atol=0.02)


def test_double_precision(against_loop) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    against_loop(model, lambda values: model(values).squeeze(1), (torch.randn(5, 4, dtype=torch.float64),))


def test_a_part_without_gradients_does_not_count(against_loop) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def losses(values: Tensor) -> Tensor:
        with torch.no_grad():
            fixed = model[0](values)
        return model(values + fixed).squeeze(1)

    against_loop(model, losses, (torch.randn(5, 4),))
