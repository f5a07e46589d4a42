"""Features without training: what is known of them, and one row an input."""

import math

import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato.models import FEATURES, HOG, Scattering, feature_extractor, features_of, scattering
from sfumato.models.features import _gradients


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
