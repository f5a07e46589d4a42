"""How a vector is made of parameters."""

import pytest
import torch
from torch import nn

from sfumato.clipping import Layout


def layout_of(model: nn.Module) -> Layout:
    named = list(model.named_parameters())
    return Layout([name for name, _ in named], [parameter.shape for _, parameter in named])


def test_views_are_the_parameters_in_their_order_and_lie_in_the_vector():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(4, 5, bias=False))
    layout = layout_of(model)
    vector = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    assert layout.size == vector.numel()
    assert layout.sizes == [54, 3, 20]
    for view, parameter in zip(layout.views(vector), model.parameters(), strict=True):
        assert torch.equal(view, parameter)
        view.fill_(7.0)
    assert (vector == 7.0).all()


def test_rows_of_vectors_have_views_by_row():
    layout = Layout(names=("a", "b"), shapes=(torch.Size([2, 3]), torch.Size([])))
    rows = torch.arange(14.0).view(2, 7)
    wide, scalar = layout.views(rows)
    assert (wide.shape, scalar.shape) == ((2, 2, 3), (2,))
    assert torch.equal(wide[1], layout.views(rows[1])[0])
    assert scalar.tolist() == [6.0, 13.0]


def test_a_vector_of_another_length_has_no_views():
    with pytest.raises(RuntimeError, match="split_with_sizes"):
        Layout(names=("a",), shapes=(torch.Size([2]),)).views(torch.zeros(3))
