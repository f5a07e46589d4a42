"""Morlet wavelets on a grid: the filters of the scattering transform, in the frequency domain.

A wavelet of scale j and angle t is a wave of frequency (3 pi / 4) 2^-j under a Gaussian of width 0.8 2^j, longer by
L / 4 along its crests, less a Gaussian that takes its mean out. The low-pass filter is a Gaussian of width
0.8 2^(J-1). All filters are periodic on the grid. The wavelets share one factor, the largest with which

    |phi(w)|^2 + 1/2 sum (|psi(w)|^2 + |psi(-w)|^2) <= 1   at every frequency w (the Littlewood-Paley sum),

so that no step of the transform lengthens a signal. NumPy in double precision, no random numbers: equal arguments give
equal filters.

References:
    Bruna, Mallat: Invariant Scattering Convolution Networks (2012), arXiv 1203.1513, sections 2.1 and 2.3.
    Andreux et al.: Kymatio: Scattering Transforms in Python (2018), arXiv 1812.11214: the widths and frequencies.

>>> bank = morlet_bank(36, 36, scales=2, orientations=8)
>>> bank.wavelets.shape, float(abs(bank.wavelets[:, :, 0, 0]).max()) < 1e-12     # mean zero
((2, 8, 36, 36), True)
>>> round(float(bank.littlewood_paley().max()), 6)
1.0
"""

from dataclasses import dataclass

import numpy as np

_WIDTH = 0.8
_FREQUENCY = 0.75 * np.pi
_REACH = 8.0  # widths after which a Gaussian is below 1e-13


@dataclass(frozen=True, kw_only=True)
class MorletBank:
    """Filters on a grid of H x W points.

    Attributes:
        wavelets: Fourier transforms, float64 [J, L, H, W]; real, as each wavelet at -x is its own conjugate.
        rows, columns: the low-pass filter, which is a product: kernels float64 [H] and [W] with sum one.
    """

    wavelets: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    def low_pass(self) -> np.ndarray:
        """Fourier transform of the low-pass filter, float64 [H, W]."""
        return np.multiply.outer(np.fft.fft(self.rows).real, np.fft.fft(self.columns).real)

    def littlewood_paley(self) -> np.ndarray:
        """The sum above at each frequency, float64 [H, W], in [0, 1]."""
        return self.low_pass() ** 2 + _energy(self.wavelets)


def morlet_bank(height: int, width: int, *, scales: int, orientations: int) -> MorletBank:
    """Filters for periodic images.

    Args:
        height: points of the grid, >= 1.
        width: points of the grid, >= 1.
        scales: J >= 1.
        orientations: L >= 1, angles in a half turn.
    """
    wavelets = np.stack(
        [
            np.stack([_wavelet(height, width, scale, angle, orientations) for angle in range(orientations)])
            for scale in range(scales)
        ]
    )
    rows, columns = (periodic_gaussian(size, _WIDTH * 2.0 ** (scales - 1)) for size in (height, width))
    bank = MorletBank(wavelets=wavelets, rows=rows, columns=columns)
    room, energy = 1 - bank.low_pass() ** 2, _energy(wavelets)
    carried = energy > 1e-12 * energy.max()
    factor = np.sqrt((room[carried] / energy[carried]).min())
    return MorletBank(wavelets=factor * wavelets, rows=rows, columns=columns)


def periodic_gaussian(size: int, width: float) -> np.ndarray:
    """A Gaussian around point 0 of a periodic line, float64 [size], with sum one."""
    turns = int(np.ceil(_REACH * width / size)) + 1
    points = np.arange(size)[:, None] + size * np.arange(-turns, turns + 1)
    values = np.exp(-0.5 * (points / width) ** 2).sum(axis=1)
    return values / values.sum()


def _wavelet(height: int, width: int, scale: int, angle: int, orientations: int) -> np.ndarray:
    spread = _WIDTH * 2.0**scale
    turn = np.pi * angle / orientations
    slant = 4.0 / orientations
    across = (np.cos(turn), np.sin(turn))  # the direction in which the wave runs, (columns, rows)
    reach = _REACH * spread / min(slant, 1.0)
    rows = _unrolled(height, reach)
    columns = _unrolled(width, reach)
    x, y = columns[None, :], rows[:, None]
    along = across[0] * x + across[1] * y
    crest = -across[1] * x + across[0] * y
    envelope = np.exp(-0.5 * (along**2 + (slant * crest) ** 2) / spread**2)
    wave = envelope * np.exp(1j * _FREQUENCY / 2.0**scale * along)
    envelope, wave = (_folded(values, height, width) for values in (envelope, wave))
    wavelet = wave - envelope * (wave.sum() / envelope.sum())
    return np.fft.fft2(wavelet).real * slant / (2 * np.pi * spread**2)


def _unrolled(size: int, reach: float) -> np.ndarray:
    """Whole periods around 0 that cover the reach."""
    turns = int(np.ceil(reach / size))
    return np.arange(-turns * size, (turns + 1) * size)


def _folded(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Sum over periods; index 0 is point 0."""
    return values.reshape(values.shape[0] // height, height, values.shape[1] // width, width).sum(axis=(0, 2))


def _energy(wavelets: np.ndarray) -> np.ndarray:
    both = wavelets**2
    opposite = np.roll(both[..., ::-1, ::-1], 1, axis=(-2, -1))
    return (both + opposite).sum(axis=(0, 1)) / 2
