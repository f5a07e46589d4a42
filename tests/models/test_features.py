"""Fixed features: HOG, colours, scattering and their wavelets."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato.models import FEATURES, HOG, Scattering, feature_extractor, features_of, scattering
from sfumato.models.features import _gradients
from sfumato.models.scatternet import morlet_bank, periodic_gaussian

# Features without training: what is known of them, and one row an input.


def ramp(degrees, size=32):
    """A picture that grows along one direction: every gradient inside has this angle."""
    down, across = torch.meshgrid(torch.arange(float(size)), torch.arange(float(size)), indexing="ij")
    angle = math.radians(degrees)
    return (0.01 * (across * math.cos(angle) + down * math.sin(angle)))[None, None]


@pytest.mark.parametrize("orientation", range(9))
def test_a_gradient_lands_in_the_bin_of_its_orientation(orientation):
    hog = HOG((1, 32, 32), cell=8)
    inner = hog._histograms(*_gradients(ramp(10 + 20 * orientation)))[0, :, 1, 1]
    assert int(inner.argmax()) == orientation
    assert inner[orientation] / inner.sum() > 0.9999


def test_an_angle_between_two_bins_is_shared_by_them():
    inner = HOG((1, 32, 32), cell=8)._histograms(*_gradients(ramp(0.0)))[0, :, 1, 1]
    assert torch.allclose(inner[[0, 8]] / inner.sum(), torch.tensor([0.5, 0.5]), atol=1e-4)


def test_blocks_have_at_most_length_one_and_no_entry_below_zero():
    pictures = torch.randn(5, 3, 40, 33, generator=torch.Generator().manual_seed(1)) * 100
    blocks = HOG((3, 40, 33), cell=8)(pictures).reshape(5, -1, 36)
    assert blocks.shape[1] == 4 * 3
    lengths = blocks.norm(dim=2)
    assert (blocks >= 0).all()
    assert (lengths <= 1 + 1e-5).all()
    assert (lengths > 0.99).all()


def test_hog_forgets_brightness_contrast_and_which_side_is_dark():
    pictures = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    hog = HOG((1, 28, 28))
    for same in (pictures + 3, pictures * 5, -pictures):
        assert torch.allclose(hog(same), hog(pictures), atol=1e-4)


def test_of_several_channels_the_longest_gradient_counts():
    strong = torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(HOG((3, 16, 16))(torch.cat([strong * 0, strong, strong * 0.5], 1)), HOG((1, 16, 16))(strong))


def test_a_flat_picture_has_no_edges():
    assert HOG((1, 16, 16))(torch.full((1, 1, 16, 16), 0.3)).abs().max() == 0


@pytest.mark.parametrize("name", FEATURES)
def test_a_row_is_the_same_whatever_else_is_computed(name):
    pictures = torch.randn(6, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    rows = features_of(name, pictures)
    assert rows.dtype == "float32"
    assert rows.shape[0] == 6
    assert rows.ndim == 2
    for at in range(6):
        assert (features_of(name, pictures[at:])[0] == rows[at]).all()
    assert torch.allclose(
        torch.from_numpy(features_of(name, pictures, batch_size=4)), torch.from_numpy(rows), atol=1e-5
    )


def test_scattering_is_the_package_s_own():
    pictures = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    wanted = scattering(pictures).flatten(1)
    assert torch.allclose(torch.from_numpy(features_of("scattering", pictures)), wanted, atol=1e-6)
    assert isinstance(feature_extractor("scattering", (1, 16, 16))[0], Scattering)


def test_a_module_is_asked_in_evaluation_mode_and_left_as_it_was():
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.9)).train()
    assert (features_of(module, torch.ones(4, 2, 2)) == 1).all()
    assert module.training


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (lambda: features_of("sift", torch.ones(2, 3)), "features must be one of"),
        (lambda: features_of("hog", torch.ones(2, 3)), "are of pictures"),
        (lambda: features_of("hog", torch.ones(2, 1, 6, 6)), "height must be a whole number >= 8"),
        (lambda: features_of("pixels", torch.ones(2, 3), batch_size=0), "batch_size must be"),
        (lambda: features_of(nn.Flatten(0), torch.ones(2, 3), batch_size=2), "must be one row an input"),
        (lambda: HOG((1, 16, 16), orientations=1), "orientations must be"),
    ],
)
def test_what_has_no_features_is_refused_in_one_line(act, line):
    with pytest.raises(InputError, match=line):
        act()


# The scattering transform against sums over pixels, and what makes it stable.


def images(rows: int = 3, size: int = 28, seed: int = 0) -> torch.Tensor:
    """Smooth random images, float64 in [0, 1]."""
    source = torch.Generator().manual_seed(seed)
    rough = torch.rand(rows, 1, size // 4, size // 4, generator=source, dtype=torch.float64)
    return torch.nn.functional.interpolate(rough, (size, size), mode="bilinear")


def circular(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Circular convolution as a sum over shifts; index 0 of the kernel is point 0."""
    total = np.zeros(image.shape, dtype=complex)
    for row, column in itertools.product(*map(range, kernel.shape)):
        total += kernel[row, column] * np.roll(image, (row, column), axis=(0, 1))
    return total


def by_sums(image: np.ndarray, scales: int, angles: int) -> np.ndarray:
    """All paths of one image by convolutions over pixels, sampled where the transform samples, [paths, h, w]."""
    step = 2**scales
    out = [-(-side // step) for side in image.shape]
    edges = [(step, step * (count + 2) - side - step) for side, count in zip(image.shape, out)]
    padded = np.pad(image, edges, mode="reflect")
    bank = models.morlet_bank(*padded.shape, scales=scales, orientations=angles)
    kernels = np.fft.ifft2(bank.wavelets)
    gaussian = lambda size, spread: np.array(  # noqa: E731
        [sum(np.exp(-0.5 * ((k + size * turn) / spread) ** 2) for turn in range(-9, 10)) for k in range(size)]
    )

    def averaged(values: np.ndarray, fine: int) -> np.ndarray:
        spread = 0.8 * 2 ** (scales - 1 - fine)
        rows, columns = (gaussian(side, spread) for side in values.shape)
        smooth = circular(values, np.outer(rows / rows.sum(), columns / columns.sum())).real
        hop = 2 ** (scales - fine)
        return smooth[::hop, ::hop][1 : out[0] + 1, 1 : out[1] + 1]

    order0, order1, order2 = [averaged(padded, 0)], [], []
    for first in range(scales):
        for angle in range(angles):
            modulus = np.abs(circular(padded, kernels[first, angle]))
            order1.append(averaged(modulus[:: 2**first, :: 2**first], first))
            if first == 0:
                for second, other in itertools.product(range(1, scales), range(angles)):
                    deeper = np.abs(circular(modulus, kernels[second, other]))
                    order2.append(averaged(deeper[:: 2**second, :: 2**second], second))
    return np.stack(order0 + order1 + order2)


@pytest.mark.parametrize("shape", [(12, 12), (9, 14)])
def test_the_transform_is_convolution_modulus_and_average(shape):
    image = np.random.default_rng(1).random(shape)
    found = models.scattering(torch.from_numpy(image)[None], scales=2, orientations=3)[0].numpy()
    assert np.allclose(found, by_sums(image, 2, 3), atol=1e-6)  # filters are kept in single precision


def test_a_28_pixel_image_gives_81_channels_of_7_by_7_for_each_colour():
    assert models.Scattering(1, 28).feature_shape == (81, 7, 7)
    assert models.scattering(torch.zeros(2, 3, 28, 32)).shape == (2, 243, 7, 8)
    assert models.scattering(torch.zeros(1, 16, 16), scales=3, orientations=4).shape == (1, 1 + 12 + 3 * 16, 2, 2)


def test_colours_are_transformed_by_themselves():
    colours = torch.cat([images(), images(seed=1)], dim=1)
    found = models.scattering(colours)
    assert torch.allclose(found[:, :81], models.scattering(images()), atol=1e-12)
    assert torch.allclose(found[:, 81:], models.scattering(images(seed=1)), atol=1e-12)


def test_portions_change_nothing():
    many = images(40)
    alone = torch.cat([models.scattering(image[None]) for image in many])
    assert torch.allclose(models.scattering(many), alone, atol=1e-12)


def test_a_constant_image_has_its_average_and_no_wavelets():
    found = models.scattering(torch.full((1, 28, 28), 0.7, dtype=torch.float64))[0]
    assert torch.allclose(found[0], torch.full((7, 7), 0.7, dtype=torch.float64), atol=1e-6)
    assert found[1:].abs().max() < 1e-6


def test_contrast_scales_the_features_and_brightness_moves_the_average_only():
    x = images()
    found, scaled, brighter = models.scattering(x), models.scattering(3 * x), models.scattering(x + 0.5)
    assert torch.allclose(scaled, 3 * found, atol=1e-8)
    assert torch.allclose(brighter[:, 0], found[:, 0] + 0.5, atol=1e-6)
    assert torch.allclose(brighter[:, 1:], found[:, 1:], atol=1e-6)


def test_no_two_images_are_farther_separate_after_the_transform():
    """Each sample stands for 2^J x 2^J pixels; the mirrored margin adds what the image itself has there."""
    transform = models.Scattering(1, 28).double()
    for seed in range(5):
        one, two = images(2, seed=seed)[:, None].unbind(0)
        two = torch.rand(1, 1, 28, 28, dtype=torch.float64) if seed % 2 else two
        before = torch.nn.functional.pad(one - two, transform.edges, mode="reflect").square().sum()
        after = 16 * (transform(one) - transform(two)).square().sum()
        assert after <= before


def test_a_small_shift_changes_the_features_less_than_the_pixels():
    """Fine texture: a shift by one pixel turns the image around, and the averages stay."""
    texture = torch.randn(8, 1, 40, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    here, there = texture[:, :, 6:34, 6:34], texture[:, :, 6:34, 7:35]

    def relative(one: torch.Tensor, two: torch.Tensor) -> float:
        return float((one - two).norm() / one.norm())

    pixels, features = relative(here, there), relative(models.scattering(here), models.scattering(there))
    assert pixels > 1.2
    assert features < pixels / 3


def test_a_turned_image_gives_the_channels_of_the_turned_angle():
    stripes = torch.cos(0.75 * torch.pi * torch.arange(28.0)).repeat(28, 1)[None]
    first = models.scattering(stripes)[0, 1:9].mean((1, 2))
    turned = models.scattering(stripes.mT)[0, 1:9].mean((1, 2))
    assert first.argmax() == 0
    assert turned.argmax() == 4
    assert torch.allclose(first.roll(4), turned, atol=1e-5)


def test_kept_features_and_images_give_the_same_logits():
    model = models.scatternet_linear(generator=torch.Generator().manual_seed(0))
    pictures = 2 * images().float() - 1
    assert torch.allclose(model(pictures), model(model.features(pictures)), atol=1e-5)
    assert torch.allclose(model.features(pictures), models.scattering((pictures + 1) / 2))


def test_public_features_standardise_each_channel():
    public = 2 * images(32).float() - 1
    model = models.scatternet_linear(normalisation="public_batch", public_inputs=public)
    values = model.norm(model.features(public)).transpose(0, 1).flatten(1)
    assert values.mean(1).abs().max() < 0.05
    assert (values.std(1) - 1)[:17].abs().max() < 0.05
    from_features = models.scatternet_linear(normalisation="public_batch", public_inputs=model.features(public))
    assert torch.allclose(from_features.norm.mean, model.norm.mean, atol=1e-5)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: models.scattering(torch.zeros(2, 28, 28, dtype=torch.uint8)), "float images.*got uint8"),
        (lambda: models.scattering(torch.zeros(28, 28)), r"got float32 \[28, 28\]"),
        (lambda: models.scattering(torch.zeros(1, 7, 28)), "height must be a whole number >= 8, got 7"),
        (lambda: models.Scattering(1, 28, scales=0), "scales must be a whole number >= 1"),
        (lambda: models.Scattering(1, 28)(torch.zeros(2, 3, 28, 28)), r"reads \[n, 1, 28, 28\]"),
    ],
)
def test_mistakes_are_one_line(mistake, words):
    with pytest.raises(InputError, match=words) as error:
        mistake()
    assert "\n" not in str(error.value)


# The wavelets: mean zero, no energy gained, each where its scale and angle say.


@pytest.mark.parametrize(("height", "width", "scales", "angles"), [(36, 36, 2, 8), (40, 24, 2, 8), (64, 64, 3, 6)])
def test_the_littlewood_paley_sum_is_at_most_one_and_touches_it_away_from_zero(height, width, scales, angles):
    bank = morlet_bank(height, width, scales=scales, orientations=angles)
    total = np.abs(np.fft.fft2(np.outer(bank.rows, bank.columns))) ** 2
    for wavelets in bank.wavelets:
        for spectrum in wavelets:
            opposite = np.array([[spectrum[-i, -j] for j in range(width)] for i in range(height)])
            total += (spectrum**2 + opposite**2) / 2
    assert total.max() <= 1 + 1e-12
    assert np.allclose(total, bank.littlewood_paley())
    assert total.ravel()[1:].max() > 1 - 1e-9


def test_wavelets_have_mean_zero_and_the_low_pass_filter_has_mean_one():
    bank = morlet_bank(36, 36, scales=2, orientations=8)
    assert np.abs(bank.wavelets[:, :, 0, 0]).max() < 1e-12
    assert bank.low_pass()[0, 0] == pytest.approx(1)


def test_each_wavelet_peaks_at_the_frequency_of_its_scale_and_angle():
    size = 96
    bank = morlet_bank(size, size, scales=2, orientations=8)
    for scale in range(2):
        for angle in range(8):
            row, column = np.unravel_index(bank.wavelets[scale, angle].argmax(), (size, size))
            found = 2 * np.pi * np.array([np.fft.fftfreq(size)[column], np.fft.fftfreq(size)[row]])
            turn = np.pi * angle / 8
            expected = 0.75 * np.pi / 2**scale * np.array([np.cos(turn), np.sin(turn)])
            assert np.abs(found - expected).max() < 0.12  # a step of the grid is 0.065


def test_a_quarter_turn_of_the_grid_is_a_quarter_turn_of_the_angle():
    bank = morlet_bank(32, 32, scales=2, orientations=8)
    turned = np.roll(np.rot90(bank.wavelets[1, 1]), 1, axis=0)  # point 0 stays where it is
    assert np.abs(turned).sum() > 1
    either = [bank.wavelets[1, 5], np.roll(bank.wavelets[1, 5][::-1, ::-1], 1, axis=(0, 1))]
    assert min(np.abs(turned - each).max() for each in either) < 1e-10


def test_the_periodic_gaussian_is_the_sum_over_all_periods():
    by_hand = np.array([sum(np.exp(-0.5 * ((k + 6 * turn) / 4.0) ** 2) for turn in range(-50, 51)) for k in range(6)])
    assert np.allclose(periodic_gaussian(6, 4.0), by_hand / by_hand.sum(), rtol=1e-12)


def test_equal_arguments_give_equal_filters():
    one, two = (morlet_bank(20, 12, scales=2, orientations=4).wavelets for _ in range(2))
    assert np.array_equal(one, two)
