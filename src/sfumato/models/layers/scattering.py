"""The scattering transform: features of images without anything to train, two layers of wavelets, moduli and averages.

Order 0 is the average of the image, order 1 of |x * psi|, order 2 of ||x * psi| * psi'| with psi' of a larger scale;
each is sampled every 2^J pixels. With J = 2 and L = 8 angles a 28x28 image gives 81 channels of 7x7. The transform is a
fixed function of one image: it needs no data, costs no privacy and may be computed once and kept. It is stable: no
layer lengthens the difference of two signals (see `sfumato.models.layers.morlet`), and small shifts change it little.

Images are mirrored at their edges by 2^J pixels. Averages are taken at the resolution of what is averaged, as products
with two small matrices, because the low-pass filter is a product of a row and a column filter.
docs/explanation/scattering.md has the derivation.

References:
    Bruna, Mallat (2012), arXiv 1203.1513. Oyallon, Mallat: Deep Roto-Translation Scattering for Object Classification
    (2014), arXiv 1412.8659: J = 2, L = 8. Tramer, Boneh: Differentially Private Learning Needs Better Features (Or
    Much More Data) (2021), arXiv 2011.11660, section 2.2.

>>> scattering(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 81, 7, 7])
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError, whole
from sfumato.models.layers.blocks import check_shape, height_and_width
from sfumato.models.layers.morlet import morlet_bank, periodic_gaussian

_WIDTH = 0.8  # of the low-pass filter, in 2^(J-1) pixels
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
    kernel = periodic_gaussian(size, _WIDTH * 2.0 ** (scales - 1 - fine))
    centres = (np.arange(count) + 1) << (scales - fine)
    return kernel[(centres[:, None] - np.arange(size)) % size]
