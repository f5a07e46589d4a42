"""A norm is never below the truth, whatever an example holds."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from sfumato.per_example.factor import Dense, Outer, Rows, TiedTable, _lengths_at_most, lengths_of


def truth(factor: Any) -> float:
    return float(factor.dense().double().norm())


@pytest.mark.parametrize("positions", [1, 3])
def test_a_gradient_whose_square_is_too_small_for_a_float_meets_a_huge_input(positions: int) -> None:
    factor = Outer(torch.full((1, positions, 1000), 2.5e-23), torch.full((1, positions, 10), 3e18))
    assert truth(factor) > 1e-3
    assert float(factor.squared_norms().sqrt()) >= truth(factor) * (1 - 1e-6)


def test_nothing_has_norm_nothing_beside_huge_inputs() -> None:
    for positions in (1, 3):
        factor = Outer(torch.zeros(1, positions, 4), torch.full((1, positions, 4), 3e18))
        assert factor.squared_norms().tolist() == [0.0]


def test_positions_that_are_rounded_in_the_same_way_do_not_hide_what_is_left_of_their_difference() -> None:
    generator = torch.Generator().manual_seed(0)
    even = torch.arange(512) % 2 == 0
    right = torch.where(even, 1.0, -1.0).view(1, 512, 1)
    for _ in range(300):
        one = 1 + torch.rand((), generator=generator)
        other = one * (1 - 10 ** (-4.5 + 2 * torch.rand((), generator=generator)))
        factor = Outer(torch.where(even, one, other).view(1, 512, 1), right)
        exact = float((factor.left.double().mT @ right.double()).norm())
        assert float(factor.squared_norms().sqrt()) >= exact


@pytest.mark.parametrize("numbers", [100_000, 2_400_000])
def test_long_sums_of_equal_squares_do_not_fall_short(numbers: int) -> None:
    factor = Dense(torch.full((1, numbers), 1.2345e-3))
    exact = float(factor.gradients[0, 0].double()) * numbers**0.5
    assert float(factor.squared_norms().sqrt()) == pytest.approx(exact, rel=1e-5)


def test_rows_of_one_id_that_cancel_leave_what_the_sum_gets() -> None:
    ids, values = torch.zeros(1, 3, dtype=torch.int64), torch.tensor([[[1e6], [0.01], [-1e6]]])
    factor = Rows(ids, values, 4)
    total = torch.zeros(4, 1, dtype=torch.float64)
    factor.add_to(total, torch.tensor([0.3], dtype=torch.float64))
    assert float(total.norm()) <= 0.3 * float(factor.squared_norms().sqrt()) * (1 + 1e-6)


def test_a_tied_table_whose_two_uses_cancel_is_not_below_the_truth() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        ids = torch.randint(3, (1, 40), generator=generator)
        values = torch.randn(1, 40, 2, generator=generator)
        rows = Rows(ids, values, 3)
        left = -F.one_hot(ids, 3).float() * (1 + 1e-4 * torch.rand(1, 40, 1, generator=generator))
        factor = TiedTable(rows, Outer(left, values))
        table = torch.zeros(3, 2, dtype=torch.float64).index_add_(0, ids[0], values[0].double())
        exact = (table + left[0].double().T @ values[0].double()).norm()
        assert float(factor.squared_norms().sqrt()) >= float(exact)


@pytest.mark.parametrize("width", [1, 7, 4096, 9001])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-21, 1e-12, 1.0, 1e15])
def test_bounds_of_lengths_are_at_most_a_thousandth_above_them(width: int, scale: float) -> None:
    numbers = torch.randn(3, 4, width, generator=torch.Generator().manual_seed(0)) * scale
    numbers[0, 0] = 0.0
    numbers[0, 1, width // 2 :] *= 1e-20  # beside others these count for nothing
    exact, found = lengths_of(numbers), _lengths_at_most(numbers)
    assert found.dtype == torch.float64
    assert found[0, 0] == 0.0
    assert bool(((exact <= found) & (found <= 1.001 * exact)).all())
