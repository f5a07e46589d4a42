"""The normal numbers that a GPU computes are those of the processor."""

import numpy as np
import pytest
import torch

from sfumato._normals import TILE
from sfumato._random import RandomSource

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
TWO_PARTS = 65 * TILE


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("first", "count"), [(0, 1), (3, 1000), (TILE // 2 - 1, 2), (TILE - 1, 2), (5 * TILE, TILE), (7, TWO_PARTS)]
)
def test_the_numbers_are_those_of_the_processor_wherever_they_begin(device: str, first: int, count: int) -> None:
    one, other = (RandomSource.from_seed(5).stream("a stream of this test") for _ in range(2))
    one.normal(first)
    other.normal(first)
    expected, found = np.full(count, 0.5), torch.full((count,), 0.5, dtype=torch.float64, device=device)
    one.add_normal(expected, std=3.0, threads=2)
    other.add_normal_on_device(found, std=3.0, threads=2)
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("device", DEVICES)
def test_two_calls_go_on_where_the_first_ended(device: str) -> None:
    stream, other = (RandomSource.from_seed(6).stream("a stream of this test") for _ in range(2))
    whole = torch.zeros(TILE + 10, dtype=torch.float64, device=device)
    stream.add_normal_on_device(whole)
    parts = torch.zeros_like(whole)
    for part in parts.split(1000):
        other.add_normal_on_device(part)
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_gets_the_rounded_numbers(device: str) -> None:
    wide, narrow = (RandomSource.from_seed(7).stream("a stream of this test") for _ in range(2))
    expected, found = torch.zeros(100, dtype=torch.float64), torch.zeros(100, device=device)
    wide.add_normal_on_device(expected, std=2.0)
    narrow.add_normal_on_device(found, std=2.0)
    assert torch.allclose(found.cpu(), expected.float(), rtol=1e-6, atol=1e-12)
