"""Rows that nobody gave go through a model on the processor before they meet a GPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.guard import self_check
from sfumato.guard.trial import on_processor, other_device

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Clicks(nn.Module):
    """Places of a table in a column of real numbers, of which a made-up row holds some that are outside."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 3)
        self.head = nn.Linear(4, 1)

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([columns[:, :1], self.table(columns[:, 1].long())], dim=1)).squeeze(1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_a_model_that_reads_places_from_real_numbers_is_checked(device: str) -> None:
    torch.manual_seed(0)
    model = Clicks().to(device)
    rows = torch.stack([torch.randn(16), torch.arange(16) % 7], dim=1).to(device)
    self_check(model, lambda batch: F.softplus(model(batch)), rows)
    assert model(rows).isfinite().all()


def test_the_tensors_are_those_that_they_were() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = [(tensor, tensor.data_ptr()) for tensor in (*model.parameters(), *model.buffers())]
    with pytest.raises(ValueError, match="a test"), on_processor(model):
        raise ValueError("a test")
    assert all(tensor.data_ptr() == place for tensor, place in before)


def test_a_place_outside_a_table_is_no_matter_of_devices() -> None:
    with pytest.raises(IndexError) as raised:
        Clicks()(torch.tensor([[0.0, 9.0]]))
    assert not other_device(raised.value)
    assert other_device(RuntimeError("Expected all tensors to be on the same device, but got cpu and cuda:0"))
