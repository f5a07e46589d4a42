"""The click model: columns of one id and of several ids a row."""

import pytest
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError

SIZES = (7, 0, 0, 0, 5, 9, 0)  # a bag of four ids, one id, a bag of two


def model(sizes: tuple[int, ...] = SIZES) -> models.CTRModel:
    generator = torch.Generator().manual_seed(0)
    return models.ctr_model(vocabulary_sizes=sizes, numeric=2, hidden=(6,), generator=generator)


def test_a_bag_is_the_mean_that_an_embedding_bag_takes_of_its_ids() -> None:
    bags = torch.tensor([[3, 1, 1, 0], [0, 2, 0, 6], [4, 0, 0, 0]])
    found, numbers, others = model(), torch.randn(3, 2), torch.tensor([[4, 8, 1], [0, 3, 3], [2, 1, 0]])
    parts = [numbers]
    for table, ids in zip(found.tables, (bags, others[:, :1], others[:, 1:]), strict=True):
        bag = nn.EmbeddingBag.from_pretrained(table.weight, mode="mean", padding_idx=0 if ids.shape[1] > 1 else None)
        parts.append(bag(ids))
    expected = found.classifier(found.dense(torch.cat(parts, dim=1)))
    torch.testing.assert_close(found(numbers, torch.cat([bags, others], dim=1)), expected)


def test_an_empty_bag_reads_row_zero_and_so_does_one_id_of_zero() -> None:
    found, numbers = model((7, 0, 0)), torch.randn(1, 2)
    row = found.tables[0].weight[0]
    expected = found.classifier(found.dense(torch.cat([numbers[0], row])))[None]
    torch.testing.assert_close(found(numbers, torch.zeros(1, 3, dtype=torch.int64)), expected)
    single = model((7,))
    single.load_state_dict(found.state_dict())
    torch.testing.assert_close(single(numbers, torch.zeros(1, 1, dtype=torch.int64)), expected)


def test_a_bag_reads_no_row_besides_its_own() -> None:
    found = model((7, 0, 0))
    (gradient,) = torch.autograd.grad(
        found(torch.randn(2, 2), torch.tensor([[5, 0, 0], [0, 2, 5]])).sum(), found.tables[0].weight
    )
    assert gradient.abs().sum(dim=1).nonzero().flatten().tolist() == [2, 5]


def test_ids_beyond_a_table_share_a_row_in_a_bag() -> None:
    found, numbers = model((7, 0, 0)), torch.randn(1, 2)
    assert torch.equal(found(numbers, torch.tensor([[8, 3, 7]])), found(numbers, torch.tensor([[1, 3, 0]])))


def test_a_bag_follows_its_own_column() -> None:
    with pytest.raises(InputError, match="vocabulary_sizes must be a whole number >= 1, got 0"):
        model((0, 7))
    found = models.classifier("ctr", 2, [(2,), (7,)], vocabulary_sizes=SIZES, hidden=(4,))
    assert found.lengths == (4, 1, 2)
    assert [table.weight.shape[0] for table in found.tables] == [7, 5, 9]
