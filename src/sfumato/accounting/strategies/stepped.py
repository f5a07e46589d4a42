"""Prefix variances of C = T(c) diag(d) where d is constant over stretches of rounds, with gradients.

With s = A c^-1, the sums of T(c)^-1, and 1/d = eps_m on stretch m, which starts at round start_m, the row of the prefix
sum at round t of stretch m is

    row_t[j] = h_m[j] + eps_m s[t - j],    h_m[j] = -sum_{1 <= i <= m} (eps_i - eps_{i-1}) s[start_i - 1 - j],

so its squared norm needs one convolution of h_m with s for each stretch: O(stretches * rounds * log(rounds)).
"""

from dataclasses import dataclass

import numpy as np
import scipy

from sfumato.accounting.doubles import dot
from sfumato.accounting.strategies.series import padded, reciprocal


@dataclass(frozen=True, eq=False)
class Stepped:
    """What is known of one c and one eps.

    Attributes:
        coefficients: c, float [bands].
        inverse_scales: eps, float [stretches], > 0.
        starts: first round of each stretch, the first one 0.
        rounds: of the run.
        inverse: first column of T(c)^-1, float [rounds].
        sums: s, float [rounds].
        offsets: h_m of each stretch, float [start_m].
        crossed: (h_m * s)[t] for the rounds of each stretch.
        variance: of the prefix sums, float [rounds].
    """

    coefficients: np.ndarray
    inverse_scales: np.ndarray
    starts: tuple[int, ...]
    rounds: int
    inverse: np.ndarray
    sums: np.ndarray
    offsets: list[np.ndarray]
    crossed: list[np.ndarray]
    variance: np.ndarray

    @classmethod
    def of(cls, coefficients: np.ndarray, inverse_scales: np.ndarray, starts: tuple[int, ...], rounds: int):
        """All of them, from the first four."""
        inverse = reciprocal(coefficients, rounds)
        sums = np.cumsum(inverse)
        squares = np.cumsum(sums**2)
        offsets, crossed, variance = [np.zeros(0)], [np.zeros(0)], np.empty(rounds)
        variance[: _end(starts, 0, rounds)] = inverse_scales[0] ** 2 * squares[: _end(starts, 0, rounds)]
        for m in range(1, len(starts)):
            start, end, eps = starts[m], _end(starts, m, rounds), inverse_scales[m]
            offset = padded(offsets[-1], start) - (eps - inverse_scales[m - 1]) * sums[start - 1 :: -1]
            cross = scipy.signal.fftconvolve(offset, sums[:end])[start:end]
            variance[start:end] = dot(offset, offset) + 2 * eps * cross + eps**2 * squares[start:end]
            offsets.append(offset)
            crossed.append(cross)
        return cls(coefficients, inverse_scales, starts, rounds, inverse, sums, offsets, crossed, variance)

    def by_round(self) -> np.ndarray:
        """float [rounds], eps of each round."""
        return np.repeat(self.inverse_scales, np.diff((*self.starts, self.rounds)))

    def pull_back(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient of weights @ variance with respect to coefficients and inverse scales."""
        to_sums, to_eps = np.zeros(self.rounds), np.zeros(len(self.starts))
        from_later = np.zeros(self.rounds)  # of what follows, with respect to the offset
        for m in reversed(range(len(self.starts))):
            start, end, eps = self.starts[m], _end(self.starts, m, self.rounds), self.inverse_scales[m]
            w = weights[start:end]
            left = np.cumsum(weights[end - 1 :: -1][: end - start])[::-1]  # in this stretch from a round on
            to_sums[start:end] += 2 * eps**2 * self.sums[start:end] * left
            to_sums[:start] += 2 * eps**2 * self.sums[:start] * left[0]
            squares = np.cumsum(self.sums[:end] ** 2)[start:end]
            to_eps[m] += 2 * eps * dot(w, squares)
            if not m:
                break
            offset = self.offsets[m]
            to_eps[m] += 2 * dot(w, self.crossed[m])
            to_sums[:end] += 2 * eps * _correlated(w, offset, start, end)
            from_later[:start] += 2 * left[0] * offset + 2 * eps * _correlated(w, self.sums[:end], start, start)
            step = eps - self.inverse_scales[m - 1]
            turned = from_later[start - 1 :: -1] if start else from_later[:0]
            to_step = -dot(turned, self.sums[:start])
            to_eps[m] += to_step
            to_eps[m - 1] -= to_step
            to_sums[:start] -= step * turned
        return self._to_coefficients(to_sums), to_eps

    def _to_coefficients(self, to_sums: np.ndarray) -> np.ndarray:
        """1/c changes by -1/c dc 1/c."""
        to_inverse = np.cumsum(to_sums[::-1])  # reversed
        back = scipy.signal.fftconvolve(to_inverse, scipy.signal.fftconvolve(self.inverse, self.inverse)[: self.rounds])
        return -back[: self.rounds][::-1][: len(self.coefficients)]


def _end(starts: tuple[int, ...], m: int, rounds: int) -> int:
    return starts[m + 1] if m + 1 < len(starts) else rounds


def _correlated(weights: np.ndarray, values: np.ndarray, start: int, count: int) -> np.ndarray:
    """float [count], sum over t of weights[t - start] * values[t - l] for each lag l, values zero outside."""
    found = scipy.signal.fftconvolve(weights[::-1], padded(values, start + len(weights)))
    last = start + len(weights) - 1
    return found[last::-1][:count]
