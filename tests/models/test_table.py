"""The click models: columns of one id and of several ids a row, and their products."""

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


def test_a_dlrm_multiplies_every_two_vectors() -> None:
    found = models.dlrm(
        vocabulary_sizes=(7, 0, 5), numeric=2, embedding_dim=3, dense_arch_layer_sizes=(4,), over_arch_layer_sizes=(6,)
    )
    numbers, ids = torch.randn(4, 2), torch.tensor([[1, 3, 9], [0, 0, 0], [6, 0, 2], [8, 3, 4]])
    expected = []
    for row, (one, more, other) in zip(numbers, ids.tolist(), strict=True):
        first = [each % 7 for each in (one, more) if each % 7] or [0]
        dense = found.dense_arch(row)
        vectors = [dense, found.tables[0].weight[first].mean(dim=0), found.tables[1].weight[other % 5]]
        products = [vectors[i] @ vectors[j] for i in range(3) for j in range(i + 1, 3)]
        expected.append(found.classifier(found.over_arch(torch.cat([dense, torch.stack(products)]))))
    torch.testing.assert_close(found(numbers, ids), torch.stack(expected))


def test_a_dlrm_without_numbers_has_products_alone_and_needs_two_columns() -> None:
    found = models.classifier("dlrm", 1, [(0,), (2,)], vocabulary_sizes=5, over_arch_layer_sizes=(4,))
    assert found.dense_arch is None
    assert found(torch.zeros(3, 0), torch.zeros(3, 2, dtype=torch.int64)).shape == (3, 1)
    with pytest.raises(InputError, match="needs two of them; use ctr"):
        models.dlrm(vocabulary_sizes=5, numeric=0, columns=1)
    with pytest.raises(InputError, match="over_arch_layer_sizes must be a whole number >= 1, got 0"):
        models.dlrm(vocabulary_sizes=5, over_arch_layer_sizes=(0,))
