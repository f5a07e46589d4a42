"""The wavelets: mean zero, no energy gained, each where its scale and angle say."""

import numpy as np
import pytest

from sfumato.models.scatternet import morlet_bank, periodic_gaussian


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
