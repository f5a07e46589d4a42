"""The scattering transform, its Morlet wavelets, and a linear classifier on it.

**Morlet wavelets** on a grid are the filters of the transform, in the frequency domain. A wavelet of scale j and angle
t is a wave of frequency (3 pi / 4) 2^-j under a Gaussian of width 0.8 2^j, longer by L / 4 along its crests, less a
Gaussian that takes its mean out. The low-pass filter is a Gaussian of width 0.8 2^(J-1). All filters are periodic on
the grid. The wavelets share one factor, the largest with which

    |phi(w)|^2 + 1/2 sum (|psi(w)|^2 + |psi(-w)|^2) <= 1   at every frequency w (the Littlewood-Paley sum),

so that no step of the transform lengthens a signal. NumPy in double precision, no random numbers: equal arguments give
equal filters.

>>> bank = morlet_bank(36, 36, scales=2, orientations=8)
>>> bank.wavelets.shape, float(abs(bank.wavelets[:, :, 0, 0]).max()) < 1e-12     # mean zero
((2, 8, 36, 36), True)
>>> round(float(bank.littlewood_paley().max()), 6)
1.0

**The transform:** features of images without anything to train, two layers of wavelets, moduli and averages. Order 0 is
the average of the image, order 1 of |x * psi|, order 2 of ||x * psi| * psi'| with psi' of a larger scale; each is
sampled every 2^J pixels. With J = 2 and L = 8 angles a 28x28 image gives 81 channels of 7x7. The transform is a fixed
function of one image: it needs no data, costs no privacy and may be computed once and kept. It is stable: no layer
lengthens the difference of two signals (see `sfumato.models.scatternet`), and small shifts change it little.

Images are mirrored at their edges by 2^J pixels. Averages are taken at the resolution of what is averaged, as products
with two small matrices, because the low-pass filter is a product of a row and a column filter.
docs/explanation/scattering.md has the derivation.

>>> scattering(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 81, 7, 7])

**Linear classifier:** few parameters, good features, strong private accuracy on small images. Features are normalised
before the linear layer: by group norm without scale and shift (27 groups of 3 channels for grey images), by the mean
and variance of public images in each channel, or not at all. None of them looks at private examples, so nothing but the
linear layer is released. The model takes images in [-1, 1), or features that `model.features(images)` has computed
before; a data set's features may be kept, as they never change. 39,700 parameters for 28x28 images and ten classes. No
layer couples examples.

>>> model = scatternet_linear()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 1, 28, 28)).shape
(39700, torch.Size([2, 10]))
>>> features = model.features(torch.zeros(2, 1, 28, 28))
>>> features.shape, model(features).shape
(torch.Size([2, 81, 7, 7]), torch.Size([2, 10]))

References:
    Bruna, Mallat: Invariant Scattering Convolution Networks (2012), arXiv 1203.1513, sections 2.1 and 2.3.
    Andreux et al.: Kymatio: Scattering Transforms in Python (2018), arXiv 1812.11214: the widths and frequencies.
    Oyallon, Mallat: Deep Roto-Translation Scattering for Object Classification (2014), arXiv 1412.8659: J = 2, L = 8.
    Tramer, Boneh: Differentially Private Learning Needs Better Features (Or Much More Data) (2021), arXiv 2011.11660,
    section 2.2 and appendix C.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError, whole
from sfumato.models.layers import check_normalisation, check_shape, glorot, height_and_width
from sfumato.models.public_batch_norm import PublicBatchNorm, refresh_statistics

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
    remaining, energy = 1 - bank.low_pass() ** 2, _energy(wavelets)
    carried = energy > 1e-12 * energy.max()
    factor = np.sqrt((remaining[carried] / energy[carried]).min())
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


_LOW_PASS_WIDTH = 0.8  # of the low-pass filter, in 2^(J-1) pixels
_CHUNK = 16  # images at once: what is between the layers then stays in a cache


class Scattering(nn.Module):
    """The transform for one shape of images.

    Args:
        in_channels: channels of the images; each is transformed by itself, >= 1.
        image_size: height and width in pixels, >= 2^(scales + 1); one number means square.
        scales: J >= 1.
        orientations: L >= 1.

    Attributes:
        feature_shape: (channels, height, width) of the features of one image.

    Raises:
        InputError: a size is out of range.
    """

    def __init__(
        self, in_channels: int, image_size: int | tuple[int, int], *, scales: int = 2, orientations: int = 8
    ) -> None:
        super().__init__()
        whole(in_channels=in_channels, scales=scales, orientations=orientations)
        size = height_and_width(image_size, at_least=2 ** (scales + 1))
        self.input_shape = (in_channels, *size)
        self.scales, self.orientations = scales, orientations
        step = 2**scales
        out = [-(-side // step) for side in size]
        padded = [step * (count + 2) for count in out]
        paths = 1 + scales * orientations + scales * (scales - 1) // 2 * orientations**2
        self.feature_shape = (paths * in_channels, *out)
        self.edges = (step, padded[1] - size[1] - step, step, padded[0] - size[0] - step)
        wavelets = morlet_bank(*padded, scales=scales, orientations=orientations).wavelets
        for fine in range(scales):
            # At a resolution, a filter is what is left of it after subsampling: its spectrum, folded.
            for coarse in range(fine, scales):
                self._keep(f"wavelets_{fine}_{coarse}", _fold(torch.from_numpy(wavelets[coarse]), 2**fine))
        for fine in range(scales + 1):
            for axis, (side, count) in enumerate(zip(padded, out, strict=True)):
                self._keep(f"average_{fine}_{axis}", torch.from_numpy(_average(side >> fine, count, scales, fine)))

    def forward(self, images: Tensor) -> Tensor:
        """Map images, float [n, C, H, W], to features, float [n, C paths, H / 2^J, W / 2^J]."""
        check_shape(images, self.input_shape, "scattering transform")
        rows = len(images)
        signal = functional.pad(images.flatten(0, 1)[:, None], self.edges, mode="reflect")
        found = [self._averaged(signal, 0)]
        first: list[Tensor] = []
        second: list[list[Tensor]] = []  # for each scale of the first wavelet, [n, L, paths, h, w]
        spectrum = torch.fft.fft2(signal)
        for scale in range(self.scales):
            moduli = self._modulus(spectrum, 0, scale)
            first.append(self._averaged(moduli, scale))
            above: list[Tensor] = []
            if scale + 1 < self.scales:
                spectra = torch.fft.fft2(moduli)[:, :, None]
                for coarse in range(scale + 1, self.scales):
                    above.append(self._averaged(self._modulus(spectra, scale, coarse), coarse))
            second.append(above)
        found += first + [torch.cat(above, dim=2).flatten(1, 2) for above in second if above]
        return torch.cat(found, dim=1).reshape(rows, *self.feature_shape)

    def _modulus(self, spectrum: Tensor, fine: int, coarse: int) -> Tensor:
        """|x * psi| of scale `coarse`, from the spectrum at resolution `fine`; an angle goes to dimension -3."""
        step = 2 ** (coarse - fine)
        wavelets = self.get_buffer(f"wavelets_{fine}_{coarse}") / step**2
        products = (one * two for one, two in zip(_blocks(spectrum, step), _blocks(wavelets, step), strict=True))
        folded = next(products)
        for product in products:
            folded += product
        return torch.fft.ifft2(folded).abs()

    def _averaged(self, values: Tensor, fine: int) -> Tensor:
        """The low-pass filter, sampled every 2^J pixels within the image."""
        return self.get_buffer(f"average_{fine}_0") @ values @ self.get_buffer(f"average_{fine}_1").mT

    def _keep(self, name: str, values: Tensor) -> None:
        self.register_buffer(name, values.float(), persistent=False)


def scattering(images: Tensor, *, scales: int = 2, orientations: int = 8) -> Tensor:
    """Features of images, computed in portions, without a graph.

    Args:
        images: float [n, C, H, W] or [n, H, W]; the range is free, Tramer and Boneh use [0, 1].
        scales: J >= 1; features are sampled every 2^J pixels.
        orientations: L >= 1.

    Returns:
        float [n, C (1 + J L + J (J - 1) L^2 / 2), ceil(H / 2^J), ceil(W / 2^J)], on the device of the images.

    Raises:
        InputError: the images are no floats of this shape, or smaller than 2^(J + 1) pixels.
    """
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or not images.is_floating_point():
        kind = str(images.dtype).removeprefix("torch.")
        raise InputError(
            f"the scattering transform reads float images [n, C, H, W], got {kind} {list(images.shape)}; "
            "scale bytes to [0, 1] first"
        )
    channels, height, width = images.shape[1:]
    transform = Scattering(channels, (height, width), scales=scales, orientations=orientations)
    transform.to(images.device, images.dtype)
    features = images.new_empty(len(images), *transform.feature_shape)
    with torch.no_grad():
        for start in range(0, len(images), _CHUNK):
            features[start : start + _CHUNK] = transform(images[start : start + _CHUNK])
    return features


def _fold(spectrum: Tensor, step: int) -> Tensor:
    """Sum over the frequencies that are one after subsampling by `step`, [..., H, W] → [..., H / step, W / step]."""
    return torch.stack(_blocks(spectrum, step)).sum(dim=0)


def _blocks(spectrum: Tensor, step: int) -> list[Tensor]:
    """The step^2 blocks of frequencies, views [..., H / step, W / step]."""
    return [block for band in spectrum.chunk(step, dim=-2) for block in band.chunk(step, dim=-1)]


def _average(size: int, count: int, scales: int, fine: int) -> np.ndarray:
    """Weights of the points at resolution `fine` in each of the samples, float64 [count, size]."""
    kernel = periodic_gaussian(size, _LOW_PASS_WIDTH * 2.0 ** (scales - 1 - fine))
    centres = (np.arange(count) + 1) << (scales - fine)
    return kernel[(centres[:, None] - np.arange(size)) % size]


_EPS = 1e-6  # below the variance of the faint paths of order two, about 1e-5 for images in [0, 1]
_GROUP = 3  # channels in a group: 27 groups for grey images, as in the paper's MNIST runs


class ScatterLinear(nn.Module):
    """Scattering, normalisation, linear layer; see `scatternet_linear`."""

    def __init__(self, *, num_classes: int, transform: Scattering, norm: nn.Module) -> None:
        super().__init__()
        self.transform = transform
        self.norm = norm
        channels, height, width = transform.feature_shape
        self.classifier = nn.Linear(channels * height * width, num_classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Map images in [-1, 1), float [n, C, H, W], to features, float [n, 81 C, h, w], without a graph."""
        check_shape(images, self.transform.input_shape, "scattering classifier")
        scales, orientations = self.transform.scales, self.transform.orientations
        return scattering((images + 1) / 2, scales=scales, orientations=orientations)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images or their features to logits, float [n, num_classes]."""
        if inputs.shape[1:] != self.transform.feature_shape:
            check_shape(inputs, self.transform.input_shape, "scattering classifier")
            with torch.no_grad():
                inputs = self.transform((inputs + 1) / 2)
        return self.classifier(self.norm(inputs).flatten(1))


def scatternet_linear(
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: int | tuple[int, int] = 28,
    *,
    scales: int = 2,
    orientations: int = 8,
    normalisation: Literal["none", "group", "public_batch"] = "group",
    groups: int | None = None,
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> ScatterLinear:
    """Build a linear classifier on scattering features, with Glorot-uniform weights.

    Args:
        num_classes: outputs, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        image_size: height and width of the images in pixels, >= 2^(scales + 1); one number means square.
        scales: J >= 1; features are sampled every 2^J pixels.
        orientations: L >= 1.
        normalisation: "group", "public_batch" (mean and variance of public images in each channel) or "none".
        groups: of the group norm, a divisor of the channels; None takes groups of 3 where they divide the channels.
        public_inputs: float [M, C, H, W] in [-1, 1) or their features, for "public_batch".
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is out of range, a choice is unknown, or public inputs and normalisation do not go together.
    """
    whole(num_classes=num_classes)
    check_normalisation(normalisation, ("none", "group", "public_batch"))
    transform = Scattering(in_channels, image_size, scales=scales, orientations=orientations)
    channels = transform.feature_shape[0]
    norm: nn.Module = nn.Identity()
    if normalisation == "group":
        count = groups if groups is not None else next(channels // size for size in (_GROUP, 1) if channels % size == 0)
        whole(groups=count)
        if channels % count:
            raise InputError(f"groups must divide the {channels} channels of the features, got {count}")
        norm = nn.GroupNorm(count, channels, eps=_EPS, affine=False)
    elif normalisation == "public_batch":
        norm = PublicBatchNorm(channels, affine=False, eps=_EPS)
    model = ScatterLinear(num_classes=num_classes, transform=transform, norm=norm)
    glorot(model, generator)
    if public_inputs is not None:
        if normalisation != "public_batch":
            raise InputError(
                f"public_inputs go with normalisation='public_batch', got normalisation={normalisation!r}; "
                "leave them out"
            )
        refresh_statistics(model, public_inputs)  # once: nothing before this layer is trained
    return model
