"""A decoder learns what pictures were embedded, from public ones, and makes pictures of released vectors."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato.audit.inversion import Inversion, InversionDecoder, invert
from sfumato.audit.lower_bound import epsilon_lower_bound
from sfumato.report.plots import pictures_figure

SIDE = 32


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One bright square in one of four corners, by a code of four numbers."""
    rng = np.random.default_rng(seed)
    corner, found = rng.integers(0, 4, count), np.full((count, SIDE, SIDE, 3), 20, np.uint8)
    for place, each in enumerate(corner):
        y, x = divmod(int(each), 2)
        found[place, 16 * y : 16 * y + 16, 16 * x : 16 * x + 16] = 230
    return (np.eye(4)[corner] + 0.1 * rng.normal(size=(count, 4))).astype(np.float32), found


def test_the_decoder_has_the_layers_of_the_method() -> None:
    decoder = InversionDecoder(512)
    layers = list(decoder.layers.children())
    convolutions = [layer for layer in layers if isinstance(layer, nn.ConvTranspose2d)]
    assert (decoder.dense.in_features, decoder.dense.out_features) == (512, 8192)
    assert [layer.in_channels for layer in convolutions] == [512, 256, 128, 64, 32]
    assert convolutions[-1].out_channels == 3
    assert all((layer.kernel_size, layer.stride) == ((4, 4), (2, 2)) for layer in convolutions)
    assert [type(layer) for layer in layers[1:3]] == [nn.BatchNorm2d, nn.ReLU]
    assert isinstance(layers[-1], nn.Sigmoid)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in layers[-2:])


def test_pictures_of_unseen_vectors_come_back_and_the_same_seed_gives_the_same() -> None:
    steps: list[tuple[int, int]] = []
    plan = Inversion(epochs=10, batch_size=8, learning_rate=5e-3, seed=1)
    before = torch.get_rng_state()
    decoder, errors = plan.fit(*pictures(128, 0), progress=lambda *done: steps.append(done))
    assert torch.equal(torch.get_rng_state(), before)
    assert steps == [(epoch, 10) for epoch in range(1, 11)]
    assert errors[-1] < 0.5 * errors[0]
    vectors, wanted = pictures(40, 9)
    made = invert(decoder, 7 * vectors, batch_size=9)
    assert made.shape == wanted.shape
    error = np.abs(made.astype(float) - wanted).mean()
    assert error < 0.5 * np.abs(wanted.mean(axis=0) - wanted).mean()
    first, second = (Inversion(epochs=1, seed=2).fit(*pictures(32, 0))[0] for _ in range(2))
    np.testing.assert_array_equal(invert(first, vectors), invert(second, vectors))


def test_a_figure_has_a_row_of_pictures_for_each_kind_of_vector(tmp_path) -> None:
    _, shown = pictures(4, 0)
    pictures_figure({"class centre": shown, "private cluster": shown[:1]}, tmp_path / "inverted.svg")
    text = (tmp_path / "inverted.svg").read_text()
    assert "private cluster" in text
    assert text.count("<image") == 5


# The lower bound.


def test_a_lower_bound_is_mostly_below_the_true_epsilon_and_not_far_below() -> None:
    """Randomised response at ε = 1; 95 % bounds: of 300 at most 26 are wrong with probability 0.997."""
    rng, keep = np.random.default_rng(0), np.exp(1.0) / (1 + np.exp(1.0))
    bounds = np.array(
        [
            epsilon_lower_bound(int(rng.binomial(2000, keep)), int(rng.binomial(2000, 1 - keep)), runs=2000, delta=0.0)
            for _ in range(300)
        ]
    )
    assert (bounds > 1.0).sum() <= 26
    assert np.median(bounds) > 0.8


def test_the_direction_and_the_complement_do_not_matter() -> None:
    one = epsilon_lower_bound(150, 3, runs=200, delta=1e-3)
    assert one > 2
    for first, second in ((3, 150), (50, 197), (197, 50)):
        assert epsilon_lower_bound(first, second, runs=200, delta=1e-3) == pytest.approx(one)
    assert epsilon_lower_bound(150, 3, runs=200, delta=0.9) == 0.0


VECTORS, PICTURES = pictures(4, 0)
REFUSED = {
    "a side": (lambda: InversionDecoder(4, 50), "multiple of 32"),
    "numbers of pictures": (lambda: Inversion(seed=0).fit(VECTORS[1:], PICTURES), "need as many embeddings"),
    "floats": (lambda: Inversion(seed=0).fit(VECTORS, PICTURES / 255), "must be square, uint8"),
    "zero": (lambda: Inversion(seed=0).fit(0 * VECTORS, PICTURES), "public embedding 0 is zero"),
    "one at a time": (lambda: Inversion(seed=0, batch_size=1), "batch_size must be"),
    "weight decay": (lambda: Inversion(seed=0, weight_decay=-1.0), "weight_decay must be"),
    "width": (lambda: invert(InversionDecoder(3, 32), VECTORS), "reads 3 dimensions"),
    "counts": (lambda: epsilon_lower_bound(3, 5, runs=4, delta=0.0), "in 5 of 4 runs"),
    "confidence": (lambda: epsilon_lower_bound(3, 3, runs=4, delta=0.0, confidence=1.0), "confidence must be in"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
