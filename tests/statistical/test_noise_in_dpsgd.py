"""What a DP-SGD run releases has the noise that its ledger records. Seeds are fixed; false alarms are below 1e-6."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats
from torch import nn

from sfumato.central import DPSGD
from sfumato.data import examples_from_arrays

FIELDS = {"steps": 1, "batch_size": 8, "learning_rate": 1.0, "clip_norm": 0.05, "seed": 7, "micro_batch": 5}


def examples():
    rng = np.random.default_rng(0)
    return examples_from_arrays(
        rng.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8), rng.integers(0, 3, 40), num_classes=3
    )


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 16), nn.Linear(16, 3))


def released(folder) -> np.ndarray:
    tensors = load_file(folder / "model.safetensors")
    return torch.cat([tensors[name].reshape(-1).double() for name in sorted(tensors)]).numpy()


def std_is(samples: np.ndarray, std: float) -> bool:
    """Chi-square test of the std of normal samples at level 1e-6, and of the shape."""
    statistic = (samples**2).sum() / std**2
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], samples.size)
    return low < statistic < high and stats.kstest(samples / std, "norm").pvalue > 1e-6


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic", "adaptive"])
def test_the_noise_in_the_released_step_has_the_std_in_the_ledger(tmp_path, clipping):
    """Two runs with the same seed, with and without noise, differ by the noise alone, drawn once for all pieces."""
    for z, name in ((1.3, "noisy"), (0.0, "plain")):
        DPSGD(noise_multiplier=z, clipping=clipping, **FIELDS).fit(network(), examples(), out=tmp_path / name)
    noise = (released(tmp_path / "plain") - released(tmp_path / "noisy")) * 8
    entry = json.loads((tmp_path / "noisy" / "ledger.jsonl").read_text().splitlines()[0])
    assert std_is(noise, entry["noise_std"])
    assert not std_is(noise, entry["noise_std"] * 1.1)  # the test can tell


def test_batches_of_a_run_appear_at_the_accounted_rate():
    plan = DPSGD(**{**FIELDS, "steps": 300}, noise_multiplier=1.0)
    result = plan.fit(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), examples())
    units = sum(row["not_private"]["units"] for row in result.history)
    rate = plan.private_sum(40).event(1).sampling_rate
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 300 * 40, rate)
    assert low <= units <= high
