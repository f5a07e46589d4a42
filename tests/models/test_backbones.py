"""What every backbone of the catalogue has in common, and what the papers say of each."""

import pytest
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # Published: 25,557,032, 11,689,512 and 3,504,872 parameters with a 1,000-class layer.
        (lambda: models.resnet50(128), 25_557_032 - 2049 * 1000 + 2049 * 128),
        (lambda: models.resnet18(128), 11_689_512 - 513 * 1000 + 513 * 128),
        (lambda: models.mobilenet_v2(128), 3_504_872 - 1281 * 1000 + 1281 * 128),
        # 269,722 with ten classes and shortcuts without parameters; two 1x1 shortcuts with norms come on top.
        (lambda: models.resnet20(10), 269_722 + 16 * 32 + 32 * 64 + 2 * (32 + 64)),
    ],
)
def test_the_parameter_counts_are_those_of_the_published_networks(model, expected):
    assert count(model()) == expected


@pytest.mark.parametrize("name", models.BACKBONES)
@pytest.mark.parametrize("shape", [(28, 28, 1), (33, 20, 3), (64, 72, 3)])
def test_each_backbone_maps_images_of_any_size_to_embeddings(name, shape):
    model = models.backbone(name, embedding_dim=7, input_shape=shape).eval()
    height, width, channels = shape
    with torch.no_grad():
        assert model(torch.randn(2, channels, height, width)).shape == (2, 7)


@pytest.mark.parametrize("name", models.BACKBONES)
@pytest.mark.parametrize("norm", ["group", "none"])
def test_one_examples_gradient_does_not_depend_on_the_others(name, norm):
    model = models.backbone(name, embedding_dim=5, input_shape=(8, 8, 1), normalisation=norm).double().train()
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    total = torch.autograd.grad(model(images).square().sum(), list(model.parameters()))
    alone = [torch.autograd.grad(model(image[None]).square().sum(), list(model.parameters())) for image in images]
    for together, *parts in zip(total, *alone):
        assert torch.allclose(together, sum(parts), rtol=1e-6, atol=1e-8 * float(together.abs().max() + 1))


@pytest.mark.parametrize("name", models.BACKBONES)
def test_backbones_hold_parameters_only_and_every_one_gets_a_gradient(name):
    model = models.backbone(name, embedding_dim=5, input_shape=(16, 16, 3))
    assert list(model.buffers()) == []
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", models.BACKBONES)
def test_a_generator_fixes_every_weight(name):
    def build():
        return models.backbone(
            name, embedding_dim=5, input_shape=(16, 16, 3), generator=torch.Generator().manual_seed(1)
        )

    first, second = build(), build()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))


def test_group_norm_is_as_the_papers_set_it():
    def norms(model):
        return {(m.num_groups, m.eps) for m in model.modules() if isinstance(m, nn.GroupNorm)}

    assert norms(models.resnet50()) == norms(models.resnet18()) == {(32, 1e-5)}
    assert norms(models.mobilenet_v2()) == {(2, 1e-3)}
    assert all(m.bias is None for m in models.resnet50().modules() if isinstance(m, nn.Conv2d))


def test_resnet50_strides_in_the_3x3_convolution():
    strided = {
        name: layer.kernel_size
        for name, layer in models.resnet50().named_modules()
        if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2)
    }
    assert strided["conv1"] == (7, 7)
    assert {name.split(".")[-1]: size for name, size in strided.items() if "layer" in name} == {
        "conv2": (3, 3),
        "0": (1, 1),
    }


def test_small_images_get_a_stem_that_keeps_their_size():
    small, large = (models.backbone("resnet18", embedding_dim=4, input_shape=(n, n, 3)) for n in (63, 64))
    assert small.get_submodule("conv1").stride == (1, 1)
    assert large.get_submodule("conv1").stride == (2, 2)
    asked = models.backbone("resnet18", embedding_dim=4, input_shape=(63, 63, 3), stem="imagenet")
    assert asked.get_submodule("conv1").kernel_size == (7, 7)


def test_two_dimensions_mean_grey():
    assert models.backbone("lenet", embedding_dim=4, input_shape=(28, 28))(torch.zeros(1, 1, 28, 28)).shape == (
        1,
        4,
    )


def test_unknown_names_and_shapes_are_one_clear_line():
    with pytest.raises(InputError, match=r"model must be one of lenet, .*got alexnet") as error:
        models.backbone("alexnet", embedding_dim=4, input_shape=(28, 28, 1))
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"reads images .*input_shape=\(80,\)"):
        models.backbone("lenet", embedding_dim=4, input_shape=(80,))
    with pytest.raises(InputError, match="stem must be one of"):
        models.resnet18(stem="tiny")
    with pytest.raises(InputError, match="normalisation must be one of"):
        models.mobilenet_v2(normalisation="batch")
    with pytest.raises(InputError, match=r"this ResNet reads images \[n, 3, height, width\], got \[2, 1, 8, 8\]"):
        models.resnet20()(torch.zeros(2, 1, 8, 8))
