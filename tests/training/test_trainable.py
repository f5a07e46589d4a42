"""A model as one vector: what is trained, what is frozen, what is released."""

import threading
from collections import OrderedDict

import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato.models import BACKBONES, backbone
from sfumato.training import HEAD, Trainable


class Buffered(nn.Module):
    """Two layers, a buffer that is saved and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("mean", torch.full((3,), 0.5))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.scale = nn.Parameter(torch.tensor(2.0))


def test_parameters_are_views_of_the_vector_in_the_models_order():
    trained = Trainable(Buffered())
    assert trained.layout.names == [name for name, _ in Buffered().named_parameters()]
    assert trained.vector.numel() == trained.layout.size == 12 + 4 + 8 + 2 + 1
    trained.vector.fill_(3.0)
    assert all((parameter == 3.0).all() for parameter in trained.model.parameters())
    assert not (trained.initial == 3.0).any()


def test_a_loaded_vector_is_what_the_model_computes_with_and_what_is_released():
    trained = Trainable(Buffered())
    theta = torch.arange(27.0)
    trained.load(theta)
    assert torch.equal(trained.vector, theta)
    released = trained.released(trained.vector)
    flat = torch.cat([released[name].reshape(-1) for name in trained.layout.names])
    assert torch.equal(flat, theta)
    trained.vector.zero_()
    assert torch.equal(released["first.weight"].reshape(-1), theta[1:13])  # no view of what goes on training


def test_the_users_module_is_never_touched():
    model = Buffered()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained = Trainable(model, "last.*")
    trained.load(trained.initial + 1)
    trained.model.mean.add_(1.0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_what_is_not_trained_is_frozen_and_both_together_are_the_model():
    trained = Trainable(Buffered(), r"last\..*")
    assert trained.layout.names == ["last.weight", "last.bias"]
    chosen = [name for name, parameter in trained.model.named_parameters() if parameter.requires_grad]
    assert chosen == trained.layout.names
    assert set(trained.frozen()) == {"first.weight", "first.bias", "mean", "scale"}
    assert set(trained.frozen()) | set(trained.layout.names) == set(trained.released(trained.vector))


def test_frozen_tensors_that_are_put_back_stay_when_buffers_are_restored():
    source, trained = Trainable(Buffered(), r"last\..*"), Trainable(Buffered(), r"last\..*")
    source.load_frozen({name: torch.full_like(value, 9.0) for name, value in source.frozen().items()})
    trained.load_frozen(source.frozen())
    trained.put_back()
    assert all((value == 9.0).all() for value in trained.frozen().values())
    assert torch.equal(trained.vector, trained.initial)


def test_buffers_that_training_moved_are_restored():
    trained = Trainable(Buffered())
    trained.model.mean.add_(1.0)
    trained.model.scratch.add_(1.0)
    trained.put_back()
    assert trained.model.mean.tolist() == [0.5] * 3
    assert trained.model.scratch.tolist() == [0.0] * 2


def test_a_head_is_trained_last_and_released_by_its_name():
    head = torch.arange(6.0).view(3, 2)
    trained = Trainable(Buffered(), head=head)
    assert trained.layout.names[-1] == HEAD
    assert torch.equal(trained.parameters[-1], head)
    trained.load(trained.initial * 2)
    assert torch.equal(trained.released(trained.vector)[HEAD], head * 2)
    assert torch.equal(head, torch.arange(6.0).view(3, 2))
    assert HEAD not in trained.frozen()


def test_a_head_can_be_all_that_there_is_to_train():
    trained = Trainable(nn.Flatten(), head=torch.ones(2, 3))
    assert trained.layout.names == [HEAD]
    with pytest.raises(InputError, match="parameter"):
        Trainable(nn.Flatten())


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda: nn.Linear(2, 2, dtype=torch.complex64), r"parameter weight is torch\.complex64; use real numbers"),
        (
            lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).half()),
            r"0\.weight is torch\.float32 and 1\.weight is",
        ),
        (lambda: nn.Linear(2, 2).requires_grad_(False), "names no parameter to train"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(model, named):
    with pytest.raises(InputError, match=named):
        Trainable(model())


def test_a_module_that_cannot_be_copied_is_refused():
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(InputError, match="the model cannot be copied"):
        Trainable(model)


def test_parameters_that_share_memory_stay_one():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    trained = Trainable(model)
    assert trained.vector.numel() == 9
    trained.load(torch.arange(9.0))
    assert torch.equal(trained.model[1].weight, torch.arange(9.0).view(3, 3))


def test_a_layer_that_is_called_as_the_shared_head_is_refused_and_of_ours_none_is():
    """In the released file one would take the other's place."""
    own = nn.Sequential(OrderedDict(body=nn.Linear(3, 4), head=nn.Linear(4, 2)))
    assert "head.weight" in Trainable(own).released(Trainable(own).initial)
    with pytest.raises(InputError, match=r"tensor head\.weight, and so is called the shared head.*another name"):
        Trainable(own, head=torch.zeros(5, 2))
    for name in BACKBONES:
        assert HEAD not in backbone(name, embedding_dim=8, input_shape=(112, 112, 3)).state_dict()
