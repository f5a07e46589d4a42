"""Layers that couple examples are found by type, and group norm takes their place."""

import pytest
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato.guard import self_check
from sfumato.models.check import tried_on


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4),
        nn.BatchNorm3d(4),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.SyncBatchNorm(4),
        nn.LazyBatchNorm2d(),
        nn.InstanceNorm2d(4, track_running_stats=True),
        nn.BatchNorm2d(4).eval(),
    ],
)
def test_layers_that_couple_or_keep_statistics_are_named_with_the_remedy(layer):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), layer))
    with pytest.raises(InputError, match=rf"layer 1\.1 \({type(layer).__name__}\).*fix_model") as error:
        models.refuse_batch_norm(model)
    assert "\n" not in str(error.value)


def test_unknown_layers_with_running_statistics_are_found_by_their_buffers():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("running_var", torch.ones(4))

    class FrozenBatchNorm2d(Odd):
        """Constants: nothing is learnt from the examples."""

    assert [found.name for found in models.coupled_layers(nn.Sequential(Odd(), FrozenBatchNorm2d()))] == ["0"]


class Pinned(nn.BatchNorm1d):
    """Keeps itself in evaluation mode."""

    def train(self, mode: bool = True) -> "Pinned":
        return super().train(False)


def test_batch_norm_in_evaluation_mode_is_a_constant_only_where_it_stays_there():
    frozen, pinned = nn.BatchNorm1d(4).eval(), Pinned(4).eval()
    assert [found.layer for found in models.coupled_layers(nn.Sequential(frozen, pinned))] == [frozen]
    assert not models.coupled_layers(nn.Sequential(frozen, pinned), mode_stays=True)
    assert not frozen.training
    assert models.coupled_layers(nn.BatchNorm1d(4, track_running_stats=False).eval(), mode_stays=True)


def test_tables_that_the_examples_rescale_are_found():
    table = nn.Embedding(9, 4, max_norm=1.0).requires_grad_(False)
    with pytest.raises(InputError, match=r"layer 0 \(Embedding\) has a max_norm.*use max_norm=None"):
        models.refuse_batch_norm(nn.Sequential(table, nn.Linear(4, 3)))


@pytest.mark.parametrize("name", models.BACKBONES)
@pytest.mark.parametrize("norm", ["group", "none"])
def test_our_backbones_pass_both_checks(name, norm):
    """By experiment, too, where that takes seconds."""
    model = models.backbone(name, embedding_dim=4, input_shape=(16, 16, 1), normalisation=norm)
    models.refuse_batch_norm(model)
    if name in ("lenet", "resnet20"):
        self_check(model, lambda inputs: model(inputs).square().sum(dim=1), torch.randn(3, 1, 16, 16))


def test_lazy_layers_are_refused_until_they_have_seen_data():
    with pytest.raises(InputError, match="run the model once"):
        models.fix_model(nn.Sequential(nn.LazyBatchNorm2d()))
    with pytest.raises(InputError, match="run the model once"):
        models.refuse_no_values(nn.LazyLinear(3))


def test_a_module_that_was_never_given_values_is_refused():
    with pytest.raises(InputError, match="running_mean is on the device meta"):
        models.refuse_no_values(nn.BatchNorm1d(3, affine=False, device="meta"))
    models.refuse_no_values(nn.BatchNorm1d(3))


def test_inputs_that_a_model_does_not_take_are_refused_by_their_shape():
    model = nn.Linear(3, 2)
    assert tried_on(model, torch.ones(4, 3)).shape == (4, 2)
    assert not tried_on(model, torch.ones(4, 3)).requires_grad
    with pytest.raises(InputError, match=r"fails on inputs of shape \(5,\) \(.*\); mend its forward pass"):
        tried_on(model, torch.ones(4, 5))
    with pytest.raises(InputError, match=r"fails on inputs of shape \(3,\)"):
        tried_on(nn.Embedding(2, 2), torch.full((1, 3), 7))
